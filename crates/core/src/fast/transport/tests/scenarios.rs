//! Single properties.
