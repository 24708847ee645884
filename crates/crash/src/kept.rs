//! A failing state as a file that replays.

use crate::{Fate, Operation, Rules, State, Tear, Tree, Volume};
use serde::{Deserialize, Serialize};

/// First key of the file.
const KIND: &str = "tidewater crash-test failure";
/// Version of the file.
const VERSION: u32 = 1;

/// A failing state, with all that leads to it.
#[derive(Debug)]
pub struct Kept {
    /// The volume, with its log up to the cut.
    pub volume: Volume,
    /// The state.
    pub state: State,
    /// Where writes are torn.
    pub tear: Tear,
    /// The check's command.
    pub check: String,
}

/// The same as it is in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kind: String,
    version: u32,
    rules: Rules,
    tear: Tear,
    check: String,
    said: String,
    state: State,
    base: Vec<Operation>,
    operations: Vec<Operation>,
}

impl Kept {
    /// The text of the file. `said`: words of the check.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    pub fn text(volume: &Volume, state: &State, tear: Tear, check: &str, said: &str) -> serde_json::Result<String> {
        // Up to the syncs that came too late.
        let syncs = state.lost.keys().filter_map(|number| volume.durable_by(*number));
        let end = syncs.map(|by| by + 1).chain([state.cut]).max().unwrap_or_default();
        let file = File {
            kind: KIND.into(),
            version: VERSION,
            rules: volume.rules(),
            tear,
            check: check.into(),
            said: said.into(),
            state: state.clone(),
            base: volume.base().operations(),
            operations: volume.operations().take_while(|(at, _)| *at < end).map(|(_, it)| it.clone()).collect(),
        };
        Ok(serde_json::to_string(&file)? + "\n")
    }

    /// Reads such a text.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub fn read(text: &str) -> Result<Kept, String> {
        let file: File = serde_json::from_str(text).map_err(|error| format!("no failure of a crash test: {error}"))?;
        if file.kind != KIND || file.version != VERSION {
            return Err(format!("no failure of a crash test of version {VERSION}"));
        }
        if !file.base.iter().chain(&file.operations).all(Operation::is_sound) {
            return Err("no failure of a crash test: a number, an offset or a size that no file has".into());
        }
        let mut base = Tree::default();
        file.base.iter().for_each(|operation| base.apply(operation, Fate::Kept));
        let mut volume = Volume::of(base, file.rules);
        for operation in file.operations {
            volume.record(operation);
        }
        if file.state.cut > volume.end() {
            return Err("no failure of a crash test: the cut is behind the last operation".into());
        }
        Ok(Kept { volume, state: file.state, tear: file.tear, check: file.check })
    }
}
