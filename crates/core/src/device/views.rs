//! What can be asked of a device, besides what it says by itself.

use super::{Device, Options};
use crate::buffer::Buffer;
use crate::content::Whereabouts;
use crate::cost::Traffic;
use crate::fast::Fast;
use crate::flaw::Injected;
use crate::ftl::Ftl;
use crate::host::Host;
use crate::host_memory::HostMemory;
use crate::memory::{Note, Use};
use crate::profile::Profile;
use crate::window::Window;
use crate::{fast, window};
use tidewater_base::Instant;
use tidewater_nand::Medium;
use tidewater_wire::vendor::{ControlPage, FastStatus, Peers, WindowStatus};

impl<M: Medium> Device<M> {
    /// When it had its last input.
    pub fn now(&self) -> Instant {
        self.cx.now
    }

    /// The profile, with the geometry that the capacity led to.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How it is run.
    pub fn options(&self) -> &Options {
        &self.cx.options
    }

    /// Usable bytes; the LBA rings of the fast side and the byte window's dumps lie behind them.
    pub fn capacity(&self) -> u64 {
        u64::from(self.ftl.data_units()) << self.cx.shift.unit
    }

    /// What a reader of the results should know of the placement of buffers.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The host room: queues and permits.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The translation layer.
    pub fn ftl(&self) -> &Ftl<M> {
        &self.ftl
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.ftl.medium
    }

    /// The write buffer.
    pub fn write_buffer(&self) -> &Buffer {
        &self.block.caches.write
    }

    /// The read cache.
    pub fn read_cache(&self) -> &Buffer {
        &self.block.caches.read
    }

    /// Host memory.
    pub fn host_memory(&self) -> &HostMemory {
        &self.block.memory
    }

    /// The fast side.
    pub fn fast(&self) -> &Fast {
        &self.fast
    }

    /// The byte window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Breaks the fast side on purpose, until the power fails: for tests of the tests.
    #[doc(hidden)]
    pub fn set_fast_flaw(&mut self, flaw: Injected<fast::Flaw>) {
        self.fast.set_flaw(flaw);
    }

    /// Breaks the window on purpose, until the power fails: for tests of the tests.
    #[doc(hidden)]
    pub fn set_window_flaw(&mut self, flaw: Injected<window::Flaw>) {
        self.window.set_flaw(flaw);
    }

    /// A hint that a command for this byte will come soon: it changes nothing but speed.
    #[inline]
    pub fn expect(&self, offset: u64) {
        self.ftl.prefetch((offset >> self.cx.shift.unit) as u32);
    }

    /// Bytes that commands have brought over the link, by DMA from the host's memory.
    pub fn link_bytes_in(&self) -> u64 {
        self.cx.link_in.bytes()
    }

    /// What crossed the port of the memory that a use lives in: the write buffer, the read cache, the fast side's ring
    /// or the BA-buffer.
    pub fn traffic(&self, used: Use) -> Option<Traffic> {
        let port = match used {
            Use::WriteBuffer => self.block.caches.write_port,
            Use::ReadCache => self.block.caches.read_port,
            Use::FastRing => self.fast.port(),
            Use::BaBuffer => self.window.port(),
            Use::MapCache => self.block.map_port(),
            Use::IntakeQueue => return None,
        };
        self.cx.memories.get(port).map(|memory| memory.traffic)
    }

    /// Every version of a logical page that is in the controller's memory and may yet be read or programmed; needs
    /// stamps.
    pub fn unprogrammed(&self) -> impl Iterator<Item = (u32, u64)> {
        let buffered = self.write_buffer().contents().into_iter();
        buffered.chain(self.restored.iter().copied()).chain(self.ftl.unprogrammed())
    }

    /// Events handled so far.
    pub fn events_handled(&self) -> u64 {
        self.cx.events.popped()
    }

    /// Commands taken or waiting in queues.
    pub fn outstanding(&self) -> usize {
        self.host.outstanding() + self.host.waiting()
    }

    /// Forgets all counters, at the end of a warm-up.
    pub fn reset_statistics(&mut self) {
        let now = self.cx.now;
        self.ftl.flash.reset_statistics(now);
        self.ftl.statistics = Default::default();
        self.ftl.reset_map_statistics();
        self.block.reset_statistics(now);
    }

    /// The version of what a logical page holds, as a read would find it now; needs stamps.
    pub fn content(&self, lpn: u32) -> Option<u64> {
        self.locate(lpn).version()
    }

    /// Where the content of a logical page is, as a read would find it now; needs stamps.
    pub fn locate(&self, lpn: u32) -> Whereabouts {
        self.block.caches.locate(&self.ftl, lpn)
    }

    /// Deallocations that a loss of power would undo, the drive having no capacitor: first page and pages. One of no
    /// pages is that flash has lost the page.
    pub fn staged_deallocations(&self) -> impl Iterator<Item = (u32, u32)> {
        self.ftl.staged_deallocations().into_iter().map(|(first, count, _)| (first, count))
    }

    /// The page of a function that only the device writes, but for its `sequence`.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn control_page(&self, function: usize) -> ControlPage {
        self.fast.control_page(&self.ftl, function)
    }

    /// Log page C0h.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn fast_status(&self, function: usize) -> FastStatus {
        self.fast.fast_status(&self.ftl, function)
    }

    /// The log page on the mirror flows.
    ///
    /// # Panics
    /// When there is no such function.
    pub fn peers_page(&self, function: usize) -> Peers {
        self.fast.peers_page(&self.cx, function)
    }

    /// Log page C3h.
    pub fn window_status(&self) -> WindowStatus {
        self.window.status()
    }

    /// A load from a function's BAR2, of up to 8 bytes. What is nowhere reads as ones, as on a bus.
    pub fn load(&self, function: usize, address: u64, len: usize) -> u64 {
        self.fast.load(&self.ftl, function, address, len)
    }

    /// What a load from a function's BAR2 finds at once, up to 8 bytes, and whether some of them lie outside of every
    /// entry; `None`: the address is not of the window.
    pub fn window_peek(&self, function: u8, address: u64, len: u8) -> Option<(u64, bool)> {
        self.window.peek(function, address, len)
    }

    /// Counts a load that [`Device::window_peek`] answered and of which some byte lay outside of every entry.
    pub(crate) fn window_loaded_outside(&mut self) {
        self.window.loaded_outside();
    }

    /// Whether the command with this identifier waits at the gate. Asserts nothing of identifiers that several queues
    /// use.
    pub fn is_held(&self, cid: u16) -> bool {
        self.window.is_held(&self.host, cid)
    }

    /// A line for each command that is under way, for messages about a device that does not end.
    pub fn describe_outstanding(&self) -> String {
        let mut text = String::new();
        for (permit, slot) in self.host.outstanding_commands().take(8) {
            text += &self.block.describe(permit, slot);
        }
        text + &format!(
            "  {} outstanding, {} in queues, {} stalled, {} flash operations, {} events, free superblocks {:?}, \
             next event {:?}",
            self.host.outstanding(),
            self.host.waiting(),
            self.block.stalled(),
            self.ftl.flash.outstanding(),
            self.cx.events.len(),
            self.ftl.free_superblocks(),
            self.cx.events.next_at()
        ) + &self.ftl.map_cache().map_or_else(String::new, |cache| cache.describe())
    }
}
