//! Read-ahead: pages that sequential reads will ask for next are read from flash into the read cache. A command that
//! catches up with them reads them itself, by the same sense where the drive shares senses (`[flash] share_senses`).

use super::Block;
use crate::context::Context;
use crate::ftl::Ftl;
use crate::owner::Owner;
use crate::profile::Profile;
use tidewater_nand::Medium;

/// Sequential streams that are followed at once.
const STREAMS: usize = 16;
/// Flash reads under way at once.
const READS: u8 = u8::MAX;

/// Commands that read one after the other.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The page behind the last one that was asked for.
    next: u32,
    /// The page behind the last one that was read ahead.
    reached: u32,
}

/// Reads ahead of the commands.
#[derive(Clone, Debug)]
pub(crate) struct Ahead {
    /// How many pages before a stream. 0: none.
    pages: u32,
    /// The newest first.
    streams: [Stream; STREAMS],
    /// The pages of each read under way: the first, and the one behind the last; and the superblock and row.
    reads: Vec<(u32, u32, (u32, u32))>,
    free: Vec<u8>,
}

impl Ahead {
    /// Reads ahead as a profile with a read cache says.
    pub(crate) fn new(profile: &Profile) -> Ahead {
        let pages = (profile.buffer.read_ahead / u64::from(profile.ftl.unit_size)) as u32;
        let pages = if profile.buffer.read_policy == "none" { 0 } else { pages };
        let reads = if pages > 0 { READS } else { 0 };
        Ahead {
            pages,
            streams: [Stream { next: u32::MAX, reached: 0 }; STREAMS],
            reads: vec![(0, 0, (0, 0)); reads.into()],
            free: (0..reads).rev().collect(),
        }
    }

    #[inline(always)]
    pub(super) fn is_enabled(&self) -> bool {
        self.pages > 0
    }

    /// A command reads these pages. Returns the first page to read ahead, if it goes on where another one ended.
    fn follow(&mut self, first: u32, end: u32) -> Option<u32> {
        let found = self.streams.iter().position(|stream| stream.next == first);
        self.streams[..=found.unwrap_or(STREAMS - 1)].rotate_right(1);
        let stream = &mut self.streams[0];
        stream.reached = if found.is_some() { stream.reached.max(end) } else { end };
        stream.next = end;
        // Half of them at once, so that rows are read whole and dies work side by side.
        (found.is_some() && stream.reached - end <= self.pages / 2).then_some(stream.reached)
    }
}

impl Block {
    /// A command reads these pages: what its stream will ask for next is read ahead.
    #[inline(never)]
    pub(super) fn read_ahead<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, first: u32, end: u32) {
        let Some(mut lpn) = self.ahead.follow(first, end) else { return };
        let mut to = end.saturating_add(self.ahead.pages).min(ftl.data_units());
        if let Some(map) = ftl.map_cache() {
            to = to.min(map.first_of(map.page_of(end - 1) + 1)); // Those entries are at hand.
        }
        while lpn < to {
            let Some(row) = self.row_ahead(ftl, lpn) else {
                lpn += 1;
                continue;
            };
            let Some(place) = self.ahead.free.pop() else { break };
            let begin = lpn;
            while lpn < to && self.row_ahead(ftl, lpn) == Some(row) {
                lpn += 1;
            }
            self.ahead.reads[usize::from(place)] = (begin, lpn, row);
            let read = ftl.read(cx.now, &mut cx.events, begin..lpn, Owner::Ahead(place));
            assert_eq!(read, Ok(1), "pages {begin} to {lpn} are of one row");
        }
        self.ahead.streams[0].reached = lpn;
    }

    /// The flash row that a page is to be read ahead from; `None`: it is in memory, or nowhere.
    fn row_ahead<M: Medium>(&self, ftl: &Ftl<M>, lpn: u32) -> Option<(u32, u32)> {
        let held = self.caches.write.contains(lpn) || self.caches.read.contains(lpn);
        if held { None } else { ftl.row_of(lpn) }
    }

    /// A read ahead has ended: its pages are in the read cache, but those that have moved from there meanwhile.
    pub(crate) fn on_read_ahead<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, place: u8, failed: bool) {
        let (first, end, row) = self.ahead.reads[usize::from(place)];
        self.ahead.free.push(place);
        for lpn in first..end {
            if !failed && self.caches.read.is_enabled() && self.row_ahead(ftl, lpn) == Some(row) {
                self.cache_pages(cx, ftl, lpn, lpn + 1);
            }
        }
    }
}
