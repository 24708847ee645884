//! What the fast side tells of itself: control page and log pages.

use super::{Fast, Function, Lane, bar};
use crate::context::Context;
use crate::ftl::Ftl;
use tidewater_base::checksum::crc32c;
use tidewater_nand::Medium;
use tidewater_wire::vendor::{
    BarLayout, ControlPage, FastStatus, LanePlace, LaneRecord, LaneStatus, TransportStatus, log_page,
};

impl Function {
    /// The status register: what is wrong, if anything.
    pub fn status(&self) -> TransportStatus {
        let mut status = TransportStatus::OK
            .with(TransportStatus::DESTAGE_FAILED, self.destage_failed)
            .with(TransportStatus::WAITS_FOR_TRIM, self.waits_for_trim);
        for (lane, l) in (0..).zip(&self.lanes) {
            status = status.with(TransportStatus::broken(lane), l.is_broken());
        }
        status
    }

    /// The oldest offset of a lane that can still be read, from the ring or from flash.
    pub fn oldest(&self, lane: usize) -> u64 {
        self.oldest_on_flash(lane).min(self.lanes[lane].in_ring_from())
    }

    /// The oldest offset of a lane that is still on flash; the end of the log if none is.
    fn oldest_on_flash(&self, lane: usize) -> u64 {
        // Pages that nothing is needed of may wait for others before them to go.
        let is_needed =
            |page: &super::LogPage| page.lane == lane as u8 && page.len > 0 && page.end() > self.trimmed[lane];
        let mut pages = self.log.pages().map(|(_, page)| page);
        pages.find(is_needed).map_or(self.lanes[lane].durable(), |page| page.offset)
    }
}

/// The credit counter, if it is what lies at this byte of the control page.
#[inline]
pub(super) fn credit_at(function: &Function, at: u64) -> Option<u64> {
    let first = ControlPage::lane_offset(0) as u64;
    let lane = at.checked_sub(first)? / LaneRecord::SIZE as u64;
    let is_credit = (at - first).is_multiple_of(LaneRecord::SIZE as u64);
    function.lanes().get(lane as usize).filter(|_| is_credit).map(Lane::credit)
}

impl Fast {
    /// The page of a function that only the device writes, as its host reads it: `sequence` stands for all the rest,
    /// and is another one when any of it has changed.
    pub(super) fn shown_control_page<M: Medium>(&self, ftl: &Ftl<M>, function: usize) -> [u8; ControlPage::SIZE] {
        let page = self.control_page(ftl, function);
        // Even: nothing of it is being changed while it is read.
        let sequence = u64::from(crc32c(&page.to_bytes())) << 1;
        ControlPage { sequence, ..page }.to_bytes()
    }

    /// The page of a function that only the device writes, but for its `sequence`.
    ///
    /// # Panics
    /// When there is no such function.
    pub(crate) fn control_page<M: Medium>(&self, ftl: &Ftl<M>, function: usize) -> ControlPage {
        let f = &self.functions[function];
        let mut page = ControlPage {
            function: function as u16,
            lanes: f.lanes.len() as u16,
            sequence: 0,
            epoch: f.epoch(),
            status: f.status().with(TransportStatus::RECOVERING, ftl.is_recovering()),
            lba_first: f.log.first_lpn().into(),
            lba_count: f.log.count().into(),
            lba_head: f.log.head(),
            lba_tail: f.log.settled(),
            ..ControlPage::default()
        };
        for (lane, l) in f.lanes.iter().enumerate() {
            page.lane[lane] = LaneRecord {
                credit: l.credit(),
                persisted: l.persisted(),
                queue_bytes: l.queue_size() as u32,
                ring_bytes: l.ring_size() as u32,
                ring_head: l.durable(),
                ring_tail: l.reached(),
                lba_head: f.oldest_on_flash(lane),
                lba_tail: l.durable(),
                floor: l.floor(),
            };
        }
        self.fill_replication(function, &mut page);
        page
    }

    /// Log page C0h.
    ///
    /// # Panics
    /// When there is no such function.
    pub(crate) fn fast_status<M: Medium>(&self, ftl: &Ftl<M>, function: usize) -> FastStatus {
        let f = &self.functions[function];
        let page = self.control_page(ftl, function);
        let nanojoules = |joules: f64| (joules * 1e9) as u64;
        let mut status = FastStatus {
            function: page.function,
            lanes: page.lanes,
            role: page.role,
            node: page.node,
            mode: page.mode,
            status: page.status,
            epoch: page.epoch,
            lba_first: page.lba_first,
            lba_count: page.lba_count,
            lba_head: page.lba_head,
            lba_tail: page.lba_tail,
            bytes_cut: f.transport().status().cut.iter().sum(),
            energy_needed_nj: nanojoules(self.energy_needed),
            energy_stored_nj: nanojoules(self.profile.energy),
            ..FastStatus::default()
        };
        for (lane, l) in f.lanes.iter().enumerate() {
            status.lane[lane] = LaneStatus {
                persisted: l.persisted(),
                credit: l.credit(),
                floor: l.floor(),
                replicated: l.replicated(),
                destaged: l.durable(),
                readable: page.lane[lane].lba_head,
                drops: l.statistics.dropped,
                first_drop: l.statistics.first_drop,
                bytes_destaged: l.statistics.bytes_destaged,
                pages_destaged: l.statistics.pages,
                pages_partial: l.statistics.partial_pages,
                pages_rewritten: l.statistics.rewritten_pages,
            };
        }
        status
    }

    /// Log page C1h.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn bar_layout(&self, function: usize) -> BarLayout {
        let setup = self.functions[function].setup();
        let mut layout = BarLayout {
            function: function as u16,
            lanes: setup.lanes as u16,
            bar_bytes: (bar::RINGS + u64::from(setup.lanes) * setup.ring_size).next_power_of_two(),
            control_page_offset: bar::CONTROL,
            ..BarLayout::default()
        };
        for lane in 0..setup.lanes as usize {
            layout.lane[lane] = LanePlace {
                window_offset: bar::ring_address(setup, lane, 0),
                window_bytes: setup.ring_size,
                lane_page_offset: bar::lane_page_address(lane),
                queue_bytes: setup.queue_size as u32,
            };
        }
        layout
    }

    /// A vendor specific log page. `None`: there is no such one.
    pub(super) fn vendor_page<M: Medium>(
        &self,
        cx: &Context,
        ftl: &Ftl<M>,
        function: usize,
        id: u8,
    ) -> Option<Vec<u8>> {
        match id {
            log_page::FAST_STATUS => Some(self.fast_status(ftl, function).to_bytes().to_vec()),
            log_page::LAYOUT => Some(self.bar_layout(function).to_bytes().to_vec()),
            log_page::PEERS => Some(self.peers_page(cx, function).to_bytes().to_vec()),
            _ => None,
        }
    }
}
