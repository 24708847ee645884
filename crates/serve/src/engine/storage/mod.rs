//! Storage: what goes to the image and when it is durable there, and a disk that can't be written. A device whose image
//! can't be written freezes, reports it, and starts anew once that is safe.

mod credit_limit;

use super::{Context, Firmware, Pending, Turn};
use crate::image::{Disk, Image, Payload};
use nix::libc::{EDQUOT, EIO, ENOSPC};
use std::time::{Duration, Instant};
use tidewater_core::content::Whereabouts;
use tidewater_core::fast::{LogPage, PAGE_HEADER, Place};
use tidewater_core::subsystem::{Input, LogPiece, MoveError, StoreFault, Unit};
use tidewater_nand::Changes;
use tidewater_wire::vendor::Epoch;

/// How often a device whose disk was full looks for room.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The image, and whether it can be written.
pub(crate) struct Storage {
    pub(crate) payload: Payload,
    /// Changes of the flash, on their way to the image.
    changes: Changes,
    /// The image can't be written.
    failed: bool,
    /// Clients and peers have not learnt yet what is wrong with the disk.
    is_news: bool,
    /// Whether the device starts itself anew once a full disk has room. It leaves its clients then: programs open a log
    /// again, but virtual machines would have lost their disk. An input log would begin anew.
    restarts: bool,
    /// When a device whose disk is full looks for room next.
    looks_for_room_at: Option<Instant>,
    /// The firmware's credit is limited to what is stored of the logs.
    is_credit_limited: bool,
}

impl Storage {
    pub(crate) fn new(payload: Payload, restarts: bool) -> Storage {
        Storage {
            payload,
            changes: Changes::default(),
            failed: false,
            is_news: false,
            restarts,
            looks_for_room_at: None,
            is_credit_limited: false,
        }
    }

    pub(crate) fn image(&self) -> &Image {
        self.payload.image()
    }

    pub(crate) fn image_mut(&mut self) -> &mut Image {
        self.payload.image_mut()
    }

    /// The image can't be written, and nothing more is promised.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Takes the result of an access to the image. False: it has failed, and with it the storage.
    #[inline]
    pub(crate) fn is_good<T>(&mut self, cx: &mut Context, result: Result<T, StoreFault>) -> bool {
        if result.is_err() {
            self.fail(cx);
        }
        result.is_ok()
    }

    /// Accesses the image; as [`Storage::is_good`].
    #[inline]
    pub(crate) fn access<T>(
        &mut self,
        cx: &mut Context,
        of: impl FnOnce(&mut Payload) -> Result<T, StoreFault>,
    ) -> bool {
        let result = of(&mut self.payload);
        self.is_good(cx, result)
    }

    #[cold]
    fn fail(&mut self, cx: &mut Context) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        cx.push(Input::StoreFailed);
        let image = self.payload.image();
        let next = match image.disk() {
            Disk::Full if self.can_start_anew() => "make room: the device starts itself anew then",
            Disk::Full => "make room, and start the device again",
            _ => "repair the disk and serve the drive again",
        };
        cx.warn(format!(
            "{}: {}: the drive is read-only from now on, and flushed data is safe; {next}",
            image.name(),
            image.fault().unwrap_or("cannot be read or written"),
        ));
        self.is_news = true;
    }

    // --- what of the firmware's state goes to the image ---

    /// Stores changes of the flash.
    #[inline]
    fn store_changes(&mut self, t: &mut Turn) {
        let medium = t.firmware.subsystem.device().medium();
        if medium.has_changes() {
            medium.take_changes(&mut self.changes);
            let applied = self.payload.apply(&self.changes);
            self.is_good(t.cx, applied);
        }
    }

    /// Stores the fast side's persistent memory, after the changes of the flash and before any client gets an answer
    /// that depends on it. `kept`: lanes whose bytes a client's ring holds, by function.
    #[inline]
    pub(crate) fn store_logs(&mut self, t: &mut Turn, kept: impl Fn(usize, usize) -> bool) {
        let device = t.firmware.subsystem.device();
        let has_window = device.window().is_enabled() && !device.is_recovering();
        let sequence = device.ftl().write_sequence();
        if has_window {
            self.access(t.cx, |it| it.image_mut().store_window_marks(device.window(), sequence));
        }
        self.store_changes(t);
        if has_window {
            self.access(t.cx, |it| it.image_mut().store_window(device.window(), sequence));
        }
        let fast = device.fast();
        if fast.is_enabled() && !device.is_recovering() {
            self.access(t.cx, |it| it.image_mut().store_logs(fast, &kept));
            self.limit_credit(t.cx, fast, kept);
        }
    }

    /// Stores the contents of clients' rings, too: they may be gone at the next start.
    pub(crate) fn store_rings(&mut self, t: &mut Turn) {
        let device = t.firmware.subsystem.device();
        if !device.is_recovering() {
            self.access(t.cx, |it| it.image_mut().store_logs(device.fast(), |_, _| false));
        }
    }

    /// Syncs what the byte window has in the image, if it needs that. False: it is not safe.
    pub(crate) fn sync_window(&mut self, cx: &mut Context) -> bool {
        let image = self.image_mut();
        let synced = if image.window_needs_sync() { image.sync() } else { Ok(()) };
        self.is_good(cx, synced) && !self.failed
    }

    /// Syncs the image on this thread. False: it can't be, and nothing more is promised.
    pub(crate) fn sync_here(&mut self, cx: &mut Context) -> bool {
        !self.failed && self.access(cx, |it| it.image_mut().sync_here())
    }

    /// Stores what of the subsystem outlives a power cut: before the sync that makes it safe is asked for.
    pub(crate) fn save_state(&mut self, t: &mut Turn) {
        self.access(t.cx, |it| it.image_mut().save_metadata(&t.firmware.subsystem.state()));
    }

    /// Nothing that no page of the drive stands for any more is left in the image. False: it may be.
    pub(crate) fn purge(&mut self, t: &mut Turn) -> bool {
        let device = t.firmware.subsystem.device();
        self.access(t.cx, |it| it.image_mut().purge_window().and_then(|()| it.purge(device)))
    }

    /// Resumes commands whose syncs have ended.
    #[inline]
    pub(crate) fn resume_synced(&mut self, cx: &mut Context) {
        while let Some((slot, result)) = self.payload.take_synced() {
            self.is_good(cx, result);
            cx.push(Input::Synced { slot, result });
        }
    }

    // --- pages of the window and of the log ---

    /// Bytes of a page for the byte window.
    pub(crate) fn load_window(&mut self, t: &mut Turn, lpn: u32, place: Whereabouts) {
        let mut bytes = t.cx.buffer(t.firmware.subsystem.device().profile().ftl.unit_size as usize);
        let unit = Unit { lpn, skip: 0, len: bytes.len() as u32, at: 0 };
        let is_good = self.payload.read(unit, place, &mut bytes).is_ok();
        t.cx.put(Pending::WindowFill { lpn, bytes: is_good.then_some(bytes) });
    }

    /// A page of the byte window is on its way to flash.
    pub(crate) fn keep_window(&mut self, t: &mut Turn, page: (u32, u64), offset: u64) {
        let device = t.firmware.subsystem.device();
        let mut bytes = t.cx.buffer(device.profile().ftl.unit_size as usize);
        device.window().read(offset, &mut bytes);
        self.payload.keep_window(page.0, page.1, &bytes);
        t.cx.spare(bytes);
    }

    /// A page of a function's log is on its way to flash; `number`: its number in the log.
    pub(crate) fn keep_log(
        &mut self,
        t: &mut Turn,
        (function, lpn, number, epoch): (u8, u32, u64, Epoch),
        page: &LogPage,
    ) {
        let mut bytes = t.cx.buffer(page.len as usize);
        let fast = t.firmware.subsystem.device().fast();
        fast.read_ring(function.into(), page.lane.into(), page.offset, &mut bytes);
        self.payload.keep_log(lpn, &page.header(function, number, epoch, &bytes), &bytes);
        t.cx.spare(bytes);
    }

    /// Bytes of the fast side's log.
    pub(crate) fn log_bytes(&mut self, firmware: &Firmware, piece: LogPiece, to: &mut [u8]) -> Result<(), MoveError> {
        let device = firmware.subsystem.device();
        let (function, lane) = (usize::from(piece.function), usize::from(piece.lane));
        match piece.from {
            Place::Ring => {
                device.fast().read_ring(function, lane, piece.offset, to);
                Ok(())
            }
            Place::Page { skip, .. } => {
                let log = device.fast().functions()[function].log();
                let (number, _) = log.find(piece.lane, piece.offset).ok_or(MoveError::Medium)?;
                let lpn = log.lpn(number);
                let unit = Unit { lpn, skip: PAGE_HEADER + skip, len: to.len() as u32, at: 0 };
                self.payload.read(unit, device.locate(lpn), to)
            }
        }
    }

    // --- the disk ---

    /// Fault of the image's disk.
    pub(crate) fn disk(&self) -> Disk {
        match (self.failed, self.image().disk()) {
            (false, _) => Disk::Works,
            (true, Disk::Works) => Disk::Failed,
            (true, disk) => disk,
        }
    }

    /// Peers are others now: what is wrong with the disk is news to them.
    pub(crate) fn repeat_news(&mut self) {
        self.is_news = true;
    }

    /// Fault of the disk, once, for clients and peers: nothing else is sent to them any more.
    #[inline]
    pub(crate) fn take_news(&mut self) -> Option<Disk> {
        std::mem::take(&mut self.is_news).then(|| self.disk())
    }

    /// The error of the disk as a number of the system's. `None`: it works.
    pub(crate) fn error_number(&self) -> Option<i32> {
        match (self.disk(), self.image().fault_number()) {
            (Disk::Works, _) => None,
            (Disk::Full, Some(number)) => Some(number),
            // ENOSPC tells a program that room is all that is missing.
            (_, Some(number)) if ![ENOSPC, EDQUOT].contains(&number) => Some(number),
            _ => Some(EIO),
        }
    }

    /// Nothing tells when there is room below a block device.
    fn can_start_anew(&self) -> bool {
        self.restarts && self.image().knows_room()
    }

    /// Whether the disk was full and has room again, so that the device starts anew: the image is as after a crash,
    /// with all that was acknowledged.
    pub(crate) fn has_room_again(&mut self) -> bool {
        if !self.failed || !self.can_start_anew() {
            return false;
        }
        let now = Instant::now();
        if self.looks_for_room_at.is_some_and(|at| now < at) {
            return false;
        }
        let is_first = self.looks_for_room_at.replace(now + LOOK_EVERY).is_none();
        if is_first || self.disk() != Disk::Full {
            return false;
        }
        // A sync that failed meanwhile leaves no way but a start by hand.
        self.is_news = true;
        self.image_mut().has_room()
    }
}
