//! Read-only views of a served device: its status, its metrics, and its moment for the live page.

pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod status;
