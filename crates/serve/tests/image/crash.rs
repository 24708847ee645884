//! Crashes at every write and every sync, with whatever the disk makes of what was not synced.
