//! Records of runs, and the pages, tables and figures made from them.
//!
//! [`record`] is the run record: one JSON document with every figure of a run and all that reproduces it. The rest
//! reads records and nothing else, so a page can be made from a record years later, on another machine: [`summary()`]
//! for the terminal, [`page()`] for one HTML page, [`compare`] for several records side by side. [`experiment`] is the
//! same for experiments of papers: a document, its text and its page; [`ledger`] has every statement of the papers with
//! its verdict; [`probe`] is for drives that were probed, [`log`] for logs. [`table`] has the figures as columns, for
//! programs; [`mod@figure`] has them as drawings, for papers.

pub mod compare;
mod document;
pub mod experiment;
pub mod figure;
mod html;
mod json;
pub mod ledger;
pub mod log;
mod page;
mod plot;
pub mod probe;
mod quantity;
pub mod record;
pub mod requests;
mod summary;
pub mod table;

pub use json::ReadError;
pub use page::{figures, page};
pub use quantity::Quantity;
pub use record::Record;
pub use summary::summary;
