//! Epochs, as devices print them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// An epoch: a counter, and the node that made it. Of two, the higher is the later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch {
    /// How many there were before; 0: none was.
    pub counter: u64,
    /// The node that made it.
    pub node: u8,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.counter, self.node)
    }
}

impl FromStr for Epoch {
    type Err = String;

    fn from_str(text: &str) -> Result<Epoch, String> {
        let parts = text.split_once('.').and_then(|(counter, node)| Some((counter.parse().ok()?, node.parse().ok()?)));
        parts.map(|(counter, node)| Epoch { counter, node }).ok_or_else(|| format!("`{text}` is no epoch, such as 3.0"))
    }
}

impl Serialize for Epoch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Epoch, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}
