//! What comes out of the files of commands, and that the device's end never waits.

use super::*;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};
use tidewater_wire::nvme::Status;

const NQN: &str = "nqn.2014-08.org.example:drive";

/// Bytes that two threads see.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk that is full after some bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::Error::from(io::ErrorKind::StorageFull))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk that stands still while the gate is locked, and says that it does.
struct Held {
    gate: Arc<Mutex<()>>,
    stands: Arc<AtomicBool>,
    memory: Memory,
}

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gate.try_lock().is_err() {
            self.stands.store(true, Ordering::Relaxed);
        }
        let _held = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.memory.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn completion(cid: u16, status: Status) -> Cqe {
    Cqe { cid, status, ..Cqe::default() }
}

/// A short life of a controller, with commands of every kind of end.
fn play(tap: &mut Tap) {
    let identify = Sqe::default().with_dword(0, 6 | 1 << 16).with_dword(6, 0x1000).with_dword(10, 1);
    let create = Sqe::default().with_dword(0, 1 | 2 << 16).with_dword(10, 63 << 16 | 1).with_dword(11, 1 << 16 | 1);
    let delete = Sqe::default().with_dword(0, 5 << 16).with_dword(10, 1);
    tap.entries(0, 0, &[identify.to_bytes(), create.to_bytes()].concat());
    tap.ended(0, 0, completion(1, Status::SUCCESS));
    tap.ended(0, 0, completion(2, Status::SUCCESS));
    tap.entries(0, 1, &Sqe::read(3, 8, 7).with_fua().to_bytes());
    tap.capsule(1, 1, Sqe::write(3, 16, 0));
    tap.ended(0, 1, completion(3, Status::UNRECOVERED_READ_ERROR.with_more(true)));
    tap.ended(0, 1, completion(9, Status::SUCCESS));
    tap.entries(0, 1, &Sqe::flush(4).to_bytes());
    tap.entries(0, 0, &delete.to_bytes());
    tap.ended(0, 0, completion(5, Status::SUCCESS));
    tap.gone(2, None);
    tap.all_gone();
}

fn written(form: Form) -> Vec<u8> {
    let memory = Memory::default();
    let mut tap = Tap::to(Box::new(memory.clone()), None, form, NQN, 64).unwrap();
    play(&mut tap);
    tap.end().unwrap();
    assert_eq!((tap.written(), tap.dropped()), (13, 0));
    memory.bytes()
}

#[test]
fn the_ending_of_a_path_chooses_the_form() {
    let form = |path: &str| Form::of(Path::new(path));
    assert_eq!(form("a/b.pcapng"), Ok(Form::Pcapng));
    assert_eq!((form("b.txt"), form("-")), (Ok(Form::Text), Ok(Form::Text)));
    for other in ["b", "b.pcap", "b.PCAPNG", "-.x", ".txt"] {
        assert!(form(other).unwrap_err().contains("neither in .pcapng nor in .txt"), "{other}");
    }
}

#[test]
fn text_names_opcode_and_status_and_says_what_has_no_end() {
    let text = String::from_utf8(written(Form::Text)).unwrap();
    let (mut lines, mut last) = (Vec::new(), 0.0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (at, rest) = line.split_once(": ").unwrap();
        let at: f64 = at.parse().unwrap();
        assert!(at >= last && at > 1.7e9, "{text}");
        last = at;
        lines.push(rest.split(", took_us=").next().unwrap());
    }
    assert_eq!(
        lines,
        [
            "nvme_setup_cmd: function=0, qid=0, cmdid=1, nsid=0, flags=0x0, cmd=(Identify cns=0x01, cntid=0, \
             prp1=0x1000)",
            "nvme_setup_cmd: function=0, qid=0, cmdid=2, nsid=0, flags=0x0, cmd=(Create I/O Submission Queue sqid=1, \
             entries=64, cqid=1)",
            "nvme_complete_rq: function=0, qid=0, cmdid=1, cmd=(Identify), res=0x0, status=0x0 (Successful Completion)",
            "nvme_complete_rq: function=0, qid=0, cmdid=2, cmd=(Create I/O Submission Queue), res=0x0, status=0x0 \
             (Successful Completion)",
            "nvme_setup_cmd: function=0, qid=1, cmdid=3, nsid=1, flags=0x0, cmd=(Read slba=8, blocks=8, fua)",
            "nvme_setup_cmd: function=1, qid=1, cmdid=3, nsid=1, flags=0x0, cmd=(Write slba=16, blocks=1)",
            "nvme_complete_rq: function=0, qid=1, cmdid=3, cmd=(Read), res=0x0, status=0x2281 (Unrecovered Read Error)",
            "nvme_complete_rq: function=0, qid=1, cmdid=9, res=0x0, status=0x0 (Successful Completion)",
            "nvme_setup_cmd: function=0, qid=1, cmdid=4, nsid=1, flags=0x0, cmd=(Flush)",
            "nvme_setup_cmd: function=0, qid=0, cmdid=5, nsid=0, flags=0x0, cmd=(Delete I/O Submission Queue sqid=1)",
            "nvme_complete_rq: function=0, qid=0, cmdid=5, cmd=(Delete I/O Submission Queue), res=0x0, status=0x0 \
             (Successful Completion)",
            "gone: function=0, qid=1, 1 commands without an end",
            "gone: function=0, all queues, 0 commands without an end",
            "gone: function=1, all queues, 1 commands without an end",
        ]
    );
    assert_eq!(text.matches(", took_us=").count(), 4);
    assert!(text.ends_with(", 0 events dropped\n"), "{text}");
}

/// Type and body of each block.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (kind, len) = (word(0), word(4) as usize);
        assert_eq!((len % 4, word(len - 4) as usize), (0, len), "both lengths of a block are the same");
        blocks.push((kind, bytes[8..len - 4].to_vec()));
        bytes = &bytes[len..];
    }
    blocks
}

#[test]
fn a_capture_holds_each_entry_in_a_connection_of_its_queue() {
    let blocks = blocks(&written(Form::Pcapng));
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!((kinds[0], kinds[1], kinds.last()), (0x0A0D_0D0A, 1, Some(&5)));
    let packets: Vec<&[u8]> = blocks.iter().filter(|(kind, _)| *kind == 6).map(|(_, body)| &body[20..]).collect();
    // Three queues, each with its begin of 7 packets and its end of 3; 11 entries.
    let queues = 3;
    assert_eq!(packets.len(), queues * 10 + 11);
    let entries = packets.iter().filter(|packet| packet.len() > 40 && matches!(packet[40], 4 | 5));
    assert_eq!(entries.count(), queues * 2 + 11, "capsules, those of Connect too");
    let read = Sqe::read(3, 8, 7).with_fua().to_bytes();
    assert!(packets.iter().any(|packet| packet.get(48..112) == Some(&read[..])), "an entry is there byte by byte");
}

#[test]
fn what_a_slow_disk_has_no_room_for_is_dropped_and_counted_where_it_is_missing() {
    let (gate, stands, memory) = (Arc::new(Mutex::new(())), Arc::<AtomicBool>::default(), Memory::default());
    let disk = Held { gate: Arc::clone(&gate), stands: Arc::clone(&stands), memory: memory.clone() };
    let mut tap = Tap::to(Box::new(disk), None, Form::Text, NQN, 4).unwrap();
    let held = gate.lock().unwrap();
    tap.capsule(0, 1, Sqe::flush(0));
    while !stands.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    for cid in 1..1_000 {
        tap.capsule(0, 1, Sqe::flush(cid));
    }
    assert_eq!(tap.dropped(), 995, "four wait, and one was taken");
    drop(held);
    tap.end().unwrap();
    assert_eq!(tap.written() + tap.dropped(), 1_000);
    let text = String::from_utf8(memory.bytes()).unwrap();
    assert_eq!(text.matches("nvme_setup_cmd").count() as u64, tap.written());
    let dropped = text.lines().filter_map(|line| line.strip_prefix("# ")?.split_once(" events dropped here"));
    assert_eq!(dropped.map(|(count, _)| count.parse::<u64>().unwrap()).sum::<u64>(), tap.dropped());
    assert!(text.ends_with(&format!(", {} events dropped\n", tap.dropped())), "{text}");
}

/// A socket's path, and the tap that serves it.
fn socket_tap(folder: &Path) -> (PathBuf, Tap) {
    let path = folder.join("seen.txt");
    let given = PathBuf::from(format!("unix:{}", path.display()));
    assert_eq!((socket(&given), Form::of(&given)), (Some(path.clone()), Ok(Form::Text)));
    assert_eq!(Form::of(Path::new("unix:seen.sock")), Ok(Form::Pcapng));
    assert!(Form::of(Path::new("unix:")).is_err());
    (path, Tap::start(&given, NQN).unwrap())
}

/// A reader that has got the first line of its stream.
fn reader(path: &Path) -> BufReader<UnixStream> {
    let mut reader = BufReader::new(UnixStream::connect(path).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("# NVMe commands"), "{line}");
    reader
}

#[test]
fn a_reader_of_a_socket_gets_all_from_then_on_and_without_one_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut tap) = socket_tap(folder.path());
    play(&mut tap);
    assert_eq!((tap.written(), tap.dropped()), (0, 0));
    let mut one = reader(&path);
    play(&mut tap);
    let other = reader(&path);
    drop(other);
    tap.end().unwrap();
    let mut text = String::new();
    one.read_to_string(&mut text).unwrap();
    let entries = ["nvme_setup_cmd", "nvme_complete_rq"].map(|name| text.matches(name).count());
    assert_eq!((entries, tap.written()), ([6, 5], 13), "{text}");
    assert!(text.ends_with(", 0 events dropped\n") && !path.exists(), "{text}");
}

#[test]
fn a_reader_that_stalls_is_dropped_and_one_beside_it_gets_all() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut tap) = socket_tap(folder.path());
    let readers = tap.readers.clone().unwrap();
    let mut stalled = reader(&path);
    let mut reads = reader(&path);
    let taken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&taken);
    let lines = std::thread::spawn(move || {
        let mut line = String::new();
        while reads.read_line(&mut line).unwrap() > 0 {
            count.fetch_add(u64::from(line.contains("nvme_setup_cmd")), Ordering::Relaxed);
            line.clear();
        }
    });
    let is_at = |all: u64| taken.load(Ordering::Relaxed) >= all;
    let begun = Instant::now();
    let mut put = 0;
    while readers.load(Ordering::Relaxed) == 2 {
        assert!(begun.elapsed() < Duration::from_secs(600), "it is dropped");
        // As fast as the other takes them, on a machine that is busy.
        if is_at(put) {
            (0..1_000).for_each(|cid| tap.capsule(0, 1, Sqe::flush(cid)));
            put += 1_000;
        }
    }
    tap.capsule(0, 1, Sqe::flush(1));
    while !is_at(put + 1) {
        assert!(begun.elapsed() < Duration::from_secs(600), "the other gets all");
        std::thread::yield_now();
    }
    tap.end().unwrap();
    lines.join().unwrap();
    assert_eq!((taken.load(Ordering::Relaxed), tap.dropped()), (put + 1, 0));
    let mut rest = Vec::new();
    let read = stalled.read_to_end(&mut rest);
    assert!(read.is_err() || rest.len() < 8 << 20, "it has what it was behind by: {} bytes", rest.len());
}

#[test]
fn a_full_disk_ends_the_file_and_not_the_device() {
    let mut tap = Tap::to(Box::new(Full(200)), None, Form::Text, NQN, 64).unwrap();
    let start = Instant::now();
    let mut put = 0;
    while !tap.has_failed() {
        tap.capsule(0, 1, Sqe::flush(1));
        put += 1;
        assert!(start.elapsed() < Duration::from_secs(30), "a failure shows");
    }
    assert_eq!(tap.end().unwrap_err().kind(), io::ErrorKind::StorageFull);
    tap.capsule(0, 1, Sqe::flush(2));
    tap.end().unwrap();
    assert!(tap.written() <= 2, "200 bytes are the first line and little more");
    assert_eq!(tap.written() + tap.dropped(), put + 1, "what is lost is counted, also after the failure");
}

/// The real file on a full disk ends behind a whole packet.
#[test]
fn a_file_that_cannot_be_written_is_cut_to_whole_packets() {
    /// A file that is full after some bytes, of which it takes as many as fit.
    struct Small(File, usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = bytes.len().min(self.1);
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1 -= room;
            self.0.write_all(&bytes[..room])?;
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.pcapng");
    let file = File::create(&path).unwrap();
    let other = file.try_clone().unwrap();
    let mut tap = Tap::to(Box::new(Small(file, 50_000)), Some(other), Form::Pcapng, NQN, 64).unwrap();
    let start = Instant::now();
    while !tap.has_failed() {
        tap.capsule(0, 1, Sqe::flush(1));
        assert!(start.elapsed() < Duration::from_secs(30), "a failure shows");
    }
    tap.end().unwrap_err();
    let packets = blocks(&std::fs::read(&path).unwrap()).iter().filter(|(kind, _)| *kind == 6).count() as u64;
    assert_eq!(packets, tap.written() + 7, "a packet for each entry, and 7 that open the connection");
    assert!(tap.written() > BATCH / 2 && tap.dropped() > 0, "{} written, {} dropped", tap.written(), tap.dropped());
}
