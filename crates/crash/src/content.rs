//! Bytes of a file, in pages that copies share.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page in memory.
const PAGE: usize = 4096;

/// Bytes of a file. Pages that were never written are zeroes and take no memory; a copy shares its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Content {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that its pages take in memory.
    pub fn allocated(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// The written pages, each with the offset of its first byte; the last may reach beyond the size.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(index, page)| {
            let begin = index * PAGE as u64;
            (begin, &page[..(self.size - begin).min(PAGE as u64) as usize])
        })
    }

    /// Up to `length` bytes from `offset` on; fewer at the end of the file.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = offset.saturating_add(length as u64).min(self.size);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        for (index, within, part) in parts(offset, bytes.len()) {
            if let Some(page) = self.pages.get(&index) {
                let to = part.clone();
                bytes[to].copy_from_slice(&page[within..within + part.len()]);
            }
        }
        bytes
    }

    /// Writes `data` at `offset`; the file grows if it ends before.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (index, within, part) in parts(offset, data.len()) {
            let page = self.pages.entry(index).or_insert_with(|| Arc::new([0; PAGE]));
            let page = Arc::make_mut(page);
            page[within..within + part.len()].copy_from_slice(&data[part]);
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Sets the size: what is behind it is gone, and what is new is zeroes.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }

    /// Makes a range zeroes; the size stays.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return;
        }
        let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
        let touched: Vec<u64> = self.pages.range(first..=last).map(|(index, _)| *index).collect();
        for index in touched {
            let begin = index * PAGE as u64;
            let from = offset.saturating_sub(begin) as usize;
            let to = (end - begin).min(PAGE as u64) as usize;
            // Behind the end of the file there are zeroes.
            if from == 0 && (to == PAGE || begin + to as u64 == self.size) {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                Arc::make_mut(page)[from..to].fill(0);
            }
        }
    }
}

/// A range by pages: the page, where it begins there, and which of the bytes.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let count = (PAGE - within).min(length - done);
        let part = done..done + count;
        done += count;
        (count > 0).then_some((at / PAGE as u64, within, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_in_a_plain_vector() {
        let mut rng = tidewater_base::Rng::new(1, b"content");
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        for round in 0..3_000_u32 {
            let (offset, length) = (rng.below(20_000) as usize, rng.below(9_000) as usize);
            match rng.below(4) {
                0 | 1 => {
                    let data: Vec<u8> = (0..length).map(|at| (at as u32 ^ round) as u8 | 1).collect();
                    content.write(offset as u64, &data);
                    if length > 0 {
                        plain.resize(plain.len().max(offset + length), 0);
                        plain[offset..offset + length].copy_from_slice(&data);
                    }
                }
                2 => {
                    content.resize(offset as u64);
                    plain.resize(offset, 0);
                }
                _ => {
                    content.zero(offset as u64, length as u64);
                    let end = (offset + length).min(plain.len());
                    plain[offset.min(end)..end].fill(0);
                }
            }
            assert_eq!(content.size(), plain.len() as u64, "round {round}");
            assert_eq!(content.read(0, 40_000), plain, "round {round}");
            let part = content.read(offset as u64, length);
            assert_eq!(part, plain[offset.min(plain.len())..(offset + length).min(plain.len())], "round {round}");
        }
    }

    #[test]
    fn holes_take_no_memory() {
        let mut content = Content::default();
        content.resize(1 << 40);
        content.write(1 << 39, b"x");
        assert_eq!((content.size(), content.allocated()), (1 << 40, 4096));
        content.zero(0, 1 << 40);
        assert_eq!(content.allocated(), 0);
    }
}
