//! Policies of the write buffer from outside of this crate: how one is handed over, and what is noticed when it breaks
//! its contract.

use super::guard::Guard;
use super::policy::{Fault, Policy, Setting};
use std::fmt;
use std::sync::Arc;

type Make = dyn Fn(&Setting) -> Result<Box<dyn Policy>, Fault> + Send + Sync;

/// A policy that is none of [`POLICIES`](super::POLICIES): its name, and how it is made. A drive keeps it
/// ([`with_policy`](crate::device::with_policy)), because it makes a new one when power returns.
///
/// Each policy that it makes is guarded: every answer is compared with what the policy was asked before. The first
/// wrong one is a [`Fault`], and the guard answers in its place from then on, so that the drive stays consistent until
/// its driver sees [`Buffer::fault`](super::Buffer::fault) and ends the run.
#[derive(Clone)]
pub struct Outside {
    name: Arc<str>,
    make: Arc<Make>,
}

impl Outside {
    /// A policy by the name `origin:name`, as in `python:Lru`: the colon tells it from a built-in one wherever the name
    /// stands.
    pub fn new(
        origin: &str,
        name: &str,
        make: impl Fn(&Setting) -> Result<Box<dyn Policy>, Fault> + Send + Sync + 'static,
    ) -> Outside {
        Outside { name: format!("{origin}:{name}").into(), make: Arc::new(make) }
    }

    /// Its name, with its origin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A new policy.
    ///
    /// # Errors
    /// When it can't be made, or holds pages before it was given any.
    pub fn make(&self, setting: &Setting) -> Result<Box<dyn Policy>, Fault> {
        Ok(Box::new(Guard::new((self.make)(setting)?, setting.units)?))
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outside").field(&self.name).finish()
    }
}
