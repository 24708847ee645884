//! Interrupts: the event descriptors that a client has given for them.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::write;
use tidewater_wire::vfio_user::{IrqAction, IrqData, IrqIndex, SetIrqs};

/// Vectors of one kind, at most: what MSI-X can name (PCI Express Base Specification, 7.7.2.2).
pub const VECTORS_MAX: u32 = 2048;

#[derive(Debug, Default)]
struct Vector {
    event: Option<OwnedFd>,
    masked: bool,
    /// Raised while it was masked.
    pending: bool,
}

impl Vector {
    fn raise(&mut self) {
        if self.masked {
            self.pending = true;
        } else if let Some(event) = &self.event {
            // A counter that is full has its reader woken already.
            let _ = write(event, &1u64.to_ne_bytes());
        }
    }

    fn unmask(&mut self) {
        self.masked = false;
        if std::mem::take(&mut self.pending) {
            self.raise();
        }
    }
}

/// The interrupts of a function, MSI-X and, if it has it, MSI. Any thread may raise them.
///
/// An interrupt without a descriptor is lost, as one of a function whose driver has not enabled it; one that is masked
/// stays pending.
#[derive(Debug)]
pub struct Interrupts {
    msi: Mutex<Vec<Vector>>,
    msix: Mutex<Vec<Vector>>,
}

impl Interrupts {
    /// A function with so many vectors of each kind. Asserts that there are at most 32 of MSI and [`VECTORS_MAX`] of
    /// MSI-X.
    pub fn new(msi: u32, msix: u32) -> Interrupts {
        assert!(msi <= 32 && msix <= VECTORS_MAX, "{msi} vectors of MSI, {msix} of MSI-X");
        let vectors = |count| Mutex::new((0..count).map(|_| Vector::default()).collect());
        Interrupts { msi: vectors(msi), msix: vectors(msix) }
    }

    fn of(&self, index: IrqIndex) -> Option<MutexGuard<'_, Vec<Vector>>> {
        let vectors = match index {
            IrqIndex::Msi => &self.msi,
            IrqIndex::MsiX => &self.msix,
            IrqIndex::IntX | IrqIndex::Error | IrqIndex::Request => return None,
        };
        Some(vectors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Vectors of a kind.
    pub fn count(&self, index: IrqIndex) -> u32 {
        self.of(index).map_or(0, |vectors| vectors.len() as u32)
    }

    /// Raises a vector of the kind that the client has enabled: MSI-X if any of its vectors has a descriptor, else MSI.
    /// MSI vectors that were not granted are raised on vector 0.
    pub fn raise(&self, vector: u16) {
        let mut msix = self.msix.lock().unwrap_or_else(PoisonError::into_inner);
        if msix.iter().any(|one| one.event.is_some()) {
            if let Some(one) = msix.get_mut(usize::from(vector)) {
                one.raise();
            }
            return;
        }
        drop(msix);
        let mut msi = self.msi.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = msi.get(usize::from(vector)).is_some_and(|one| one.event.is_some());
        if let Some(one) = msi.get_mut(if granted { usize::from(vector) } else { 0 }) {
            one.raise();
        }
    }

    /// Bits of the MSI-X pending bit array from vector `64 * word`.
    pub fn pending(&self, word: usize) -> u64 {
        let msix = self.msix.lock().unwrap_or_else(PoisonError::into_inner);
        let bits = msix.iter().skip(word.saturating_mul(64)).take(64).enumerate();
        bits.fold(0, |bits, (at, vector)| bits | u64::from(vector.pending) << at)
    }

    /// As if no client had ever been there.
    pub fn clear(&self) {
        for index in [IrqIndex::Msi, IrqIndex::MsiX] {
            for vector in self.of(index).iter_mut().flat_map(|vectors| vectors.iter_mut()) {
                *vector = Vector::default();
            }
        }
    }

    /// Does what a SET_IRQS message says.
    ///
    /// # Errors
    /// EINVAL: vectors that are not there, or descriptors that don't fit the count; EOPNOTSUPP: masks by descriptor;
    /// EBADF: a descriptor that is not an event descriptor. Nothing has changed then.
    pub fn set(&self, set: &SetIrqs<'_>, events: Vec<OwnedFd>) -> Result<(), Errno> {
        let mut vectors = self.of(set.index).ok_or(Errno::EINVAL)?;
        let all = set.data == IrqData::None && set.start == 0 && set.count == 0;
        let end = set.start.checked_add(set.count).ok_or(Errno::EINVAL)?;
        if end as usize > vectors.len() || (set.count == 0 && !all) {
            return Err(Errno::EINVAL);
        }
        if set.data != IrqData::Event && !events.is_empty() {
            return Err(Errno::EINVAL);
        }
        if all {
            let disable = set.action == IrqAction::Trigger;
            for vector in vectors.iter_mut() {
                match set.action {
                    IrqAction::Trigger => *vector = Vector::default(),
                    IrqAction::Mask => vector.masked = true,
                    IrqAction::Unmask => vector.unmask(),
                }
            }
            debug_assert!(!disable || vectors.iter().all(|vector| vector.event.is_none()));
            return Ok(());
        }
        let named = &mut vectors[set.start as usize..end as usize];
        match set.data {
            IrqData::Event => {
                if set.action != IrqAction::Trigger {
                    return Err(Errno::EOPNOTSUPP);
                }
                if events.is_empty() {
                    named.iter_mut().for_each(|vector| vector.event = None);
                    return Ok(());
                }
                if events.len() != named.len() {
                    return Err(Errno::EINVAL);
                }
                events.iter().try_for_each(check_event)?;
                for (vector, event) in named.iter_mut().zip(events) {
                    vector.event = Some(event);
                }
            }
            IrqData::None | IrqData::Bool(_) => {
                let chosen = |at: usize| match set.data {
                    IrqData::Bool(bools) => bools.get(at).is_some_and(|value| *value != 0),
                    _ => true,
                };
                for vector in named.iter_mut().enumerate().filter(|(at, _)| chosen(*at)).map(|(_, vector)| vector) {
                    match set.action {
                        IrqAction::Trigger => vector.raise(),
                        IrqAction::Mask => vector.masked = true,
                        IrqAction::Unmask => vector.unmask(),
                    }
                }
            }
        }
        Ok(())
    }
}

/// An interrupt must never wait for its client. Only an event descriptor is taken, since a pipe or a socket could be
/// made to block; and it is made one that refuses instead of waiting when its counter is full.
fn check_event(event: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd())).map_err(|_| Errno::EBADF)?;
    if link.as_os_str() != "anon_inode:[eventfd]" {
        return Err(Errno::EBADF);
    }
    let flags = OFlag::from_bits_retain(fcntl(event, FcntlArg::F_GETFL)?);
    if !flags.contains(OFlag::O_NONBLOCK) {
        fcntl(event, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
}
