//! The backing store: NAND pages at their physical place, with their out-of-band areas, in a file.
