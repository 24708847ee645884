//! Layouts against their references.

mod admin_fields;
mod nvme_reference;
mod vendor_reference;
