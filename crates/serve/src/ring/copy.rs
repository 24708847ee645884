//! The copy of a mapped ring on a disk (ADR 26): clients write and sync it, so that what they wait for at DESTAGED
//! needs no other process.
//!
//! The device makes it, says whose sectors count, and reads it once: after a crash of the machine, when the ring is
//! gone. What follows then on the end of the drive's own log goes into the new ring, as if its client had just
//! published it. Everything that is read is untrusted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidewater_wire::log::{COPY_SECTOR, CopyPlace, RingCopyHeader};
use tidewater_wire::vfio_user::Area;

use super::file::{Lost, RingError, Shape, fill, lend, make, options, own, wrong};

const OPTION: &str = "--ring-copy";

/// The open file of a ring's copy. One process serves it at a time.
#[derive(Debug)]
pub struct RingCopy {
    path: PathBuf,
    /// The descriptor that holds the lock; never given to a client.
    file: File,
    /// The one that clients are given.
    lent: Arc<File>,
    header: RingCopyHeader,
}

impl RingCopy {
    /// Opens the copy at `path`, or makes one: `true`, it was made.
    ///
    /// # Errors
    /// [`RingError`]: the file is not a copy of this ring, is damaged, or belongs to another user. It is left
    /// unchanged then.
    pub fn open(path: &Path, shape: &Shape) -> Result<(RingCopy, bool), RingError> {
        let file = match options().open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return RingCopy::create(path, shape).map(|copy| (copy, true));
            }
            Err(error) => return Err(wrong(path, error)),
        };
        own(path, &file, OPTION)?;
        let away = "; move it away to start a new one: log bytes held only in it are then lost";
        let mut bytes = [0; RingCopyHeader::SIZE];
        let header = file.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string());
        let header = header.and_then(|()| RingCopyHeader::parse(&bytes).map_err(|error| error.to_string()));
        let header =
            header.map_err(|why| wrong(path, format_args!("is not a copy of a ring, or is damaged: {why}{away}")))?;
        if header.drive != shape.drive {
            return Err(wrong(path, format_args!("is a copy of another drive's ring{away}")));
        }
        let is = (header.function, header.lanes, header.ring_bytes);
        if is != (shape.function, shape.lanes, shape.ring_bytes) {
            let what = format!("is of function {}, {} lanes of {} bytes, which the ring is not", is.0, is.1, is.2);
            return Err(wrong(path, what + away));
        }
        let (len, need) = (file.metadata().map_err(|error| wrong(path, error))?.len(), file_bytes(shape));
        if len < need {
            return Err(wrong(path, format_args!("was truncated to {len} of {need} bytes{away}")));
        }
        RingCopy::of(path, file, header).map(|copy| (copy, false))
    }

    fn create(path: &Path, shape: &Shape) -> Result<RingCopy, RingError> {
        let Shape { drive, function, lanes, ring_bytes, .. } = *shape;
        let header = RingCopyHeader { function, lanes, ring_bytes, drive, generation: [0; _] };
        let failed = |error: io::Error| wrong(path, error);
        let file = make(path, OPTION, |file| {
            // Written, and not only allocated: a sync of bytes that have their place is one of them alone, and not of
            // the file system's journal, too.
            fill(file, 0, file_bytes(shape)).map_err(failed)?;
            file.write_all_at(&header.to_bytes(), 0).map_err(failed)?;
            file.sync_all().map_err(failed)
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        RingCopy::of(path, file, header)
    }

    fn of(path: &Path, file: File, header: RingCopyHeader) -> Result<RingCopy, RingError> {
        let lent = lend(path, &file)?;
        Ok(RingCopy { path: path.to_owned(), file, lent, header })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a client is given.
    pub fn lent(&self) -> &Arc<File> {
        &self.lent
    }

    /// All of it, as a region that may be mapped: rounded up to whole pages.
    pub fn area(&self) -> Area {
        let bytes = CopyPlace::file_bytes(self.header.lanes as u8, self.header.ring_bytes);
        Area { offset: 0, size: bytes.next_multiple_of(4096) }
    }

    /// The generation of a lane whose sectors count.
    pub fn generation(&self, lane: usize) -> u64 {
        self.header.generation[lane]
    }

    /// From now on other sectors of a lane count; safely so when this returns.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn set_generation(&mut self, lane: usize, generation: u64) -> Result<(), Lost> {
        self.header.generation[lane] = generation;
        self.file.write_all_at(&self.header.to_bytes(), 0).map_err(|_| Lost)?;
        self.file.sync_data().map_err(|_| Lost)
    }

    /// What a lane's stream held from an offset on, and nothing behind it any more: sectors that were written and never
    /// synced may be there without those before them, and must not count when the stream comes to them again.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn take_up(&mut self, lane: usize, from: u64) -> Result<Vec<u8>, Lost> {
        let place = CopyPlace::new(lane as u8, self.header.ring_bytes);
        let read = |at: u64, sector: &mut [u8; COPY_SECTOR]| self.file.read_exact_at(sector, at).map_err(|_| Lost);
        let bytes = place.read(self.header.generation[lane], from, self.header.ring_bytes, read)?;
        let (first, end) = (place.sector(from), from + bytes.len() as u64);
        let kept = if bytes.is_empty() { 0 } else { place.sector(end - 1) + place.sectors() - first + 1 };
        let kept = if kept > place.sectors() { kept - place.sectors() } else { kept };
        // From behind the last that counts, once around.
        let begin = (first + kept) % place.sectors();
        self.forget(&place, begin, place.sectors() - kept)?;
        Ok(bytes)
    }

    /// Nothing of a lane is there any more.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn clear(&mut self, lane: usize) -> Result<(), Lost> {
        let place = CopyPlace::new(lane as u8, self.header.ring_bytes);
        self.forget(&place, 0, place.sectors())
    }

    fn forget(&self, place: &CopyPlace, begin: u64, count: u64) -> Result<(), Lost> {
        let until_end = count.min(place.sectors() - begin);
        let fill = |sector: u64, count: u64| fill(&self.file, place.at(sector), count * COPY_SECTOR as u64);
        fill(begin, until_end).and_then(|()| fill(0, count - until_end)).map_err(|_| Lost)?;
        self.file.sync_data().map_err(|_| Lost)
    }
}

fn file_bytes(shape: &Shape) -> u64 {
    CopyPlace::file_bytes(shape.lanes as u8, shape.ring_bytes).next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::fs;
    use tidewater_wire::log::CopyBuffer;
    use tidewater_wire::vendor::Epoch;

    const RING: u64 = 8192;

    fn shape() -> Shape {
        let (drive, epoch) = ([7; 16], Epoch::ZERO);
        Shape { drive, function: 0, lanes: 2, ring_bytes: RING, epoch, persistent: false, copied: true }
    }

    fn refused(path: &Path, shape: &Shape) -> String {
        RingCopy::open(path, shape).expect_err("it is refused").0
    }

    /// As a client writes it whose ring holds all from `still` on.
    fn write(copy: &RingCopy, lane: u8, generation: u64, range: (u64, u64), still: u64) {
        let read = |at: u64, to: &mut [u8]| {
            to.iter_mut().zip(at..).for_each(|(to, at)| *to = at as u8);
            still
        };
        let write = |at: u64, bytes: &[u8]| {
            copy.lent().write_all_at(bytes, at).unwrap();
            Ok::<(), Infallible>(())
        };
        CopyPlace::new(lane, RING).write(generation, range, &mut CopyBuffer::new(3), read, write).unwrap();
    }

    #[test]
    fn what_clients_wrote_in_a_generation_is_taken_up_and_what_is_behind_a_gap_never_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        for begin in [0, 100, 7_000, 123_456] {
            let _ = fs::remove_file(&path);
            let (mut copy, is_new) = RingCopy::open(&path, &shape()).unwrap();
            assert!(is_new);
            copy.set_generation(1, 3).unwrap();
            write(&copy, 1, 3, (begin, begin + 1_000), begin);
            // Written, never synced, and the one before it is lost.
            write(&copy, 1, 3, (begin + 2_000, begin + 3_000), begin);
            write(&copy, 0, 3, (begin, begin + 500), begin);
            assert!(refused(&path, &shape()).contains("another process serves this ring"));
            drop(copy);
            let (mut copy, is_new) = RingCopy::open(&path, &shape()).unwrap();
            assert!(!is_new);
            assert!(copy.take_up(0, begin).unwrap().is_empty(), "another generation");
            let found = copy.take_up(1, begin).unwrap();
            assert_eq!(found, (begin..begin + 1_000).map(|at| at as u8).collect::<Vec<_>>());
            assert_eq!(copy.take_up(1, begin + 300).unwrap().len(), 700, "as often as it takes");
            // The stream goes on up to where that was.
            write(&copy, 1, 3, (begin + 1_000, begin + 2_000), begin);
            assert_eq!(copy.take_up(1, begin + 300).unwrap().len(), 1_700);
        }
    }

    #[test]
    fn what_is_foreign_damaged_or_truncated_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        drop(RingCopy::open(&path, &shape()).unwrap());
        assert!(refused(&path, &Shape { drive: [8; 16], ..shape() }).contains("another drive"));
        assert!(refused(&path, &Shape { ring_bytes: 4096, ..shape() }).contains("2 lanes of 8192"));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(refused(&path, &shape()).contains("was truncated to"));
        let mut damaged = whole.clone();
        damaged[140] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(refused(&path, &shape()).contains("damaged"));
        assert_eq!(fs::read(&path).unwrap(), damaged);
        let header = RingCopyHeader::parse(&whole[..RingCopyHeader::SIZE]).unwrap();
        let forged = RingCopyHeader { generation: [u64::MAX; _], ..header }.to_bytes();
        fs::write(&path, [&forged, &whole[RingCopyHeader::SIZE..]].concat()).unwrap();
        assert!(refused(&path, &shape()).contains("damaged"));
        fs::write(&path, b"x").unwrap();
        assert!(refused(&path, &shape()).contains("is not a copy of a ring"));
    }
}
