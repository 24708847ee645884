//! Sizes, times and rates as people write them: `4KiB`, `16g`, `25us`, `2GB/s`.
