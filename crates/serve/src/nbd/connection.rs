//! A connection, sans-IO: bytes of a client in, commands of NVMe out; their data and their ends in, bytes for the
//! client out.

use std::collections::VecDeque;
use std::io::IoSlice;
use tidewater_core::subsystem::MoveError;
use tidewater_core::subsystem::namespaces::Namespace;
use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nbd::{
    ExportInfo, OptionHeader, PAYLOAD_MAX, Request, SimpleReply, append_option_reply, asked_export, client_flags,
    command, error, export_flag, greeting, option, reply,
};
use tidewater_wire::nvme::{Command, DsmRange, Kind, Sqe, Status};

/// Commands under way at once, at most.
pub(super) const PLACES: u16 = 1 << PLACE_BITS;
/// Bits of a command identifier that are its place; those above count the commands that the place has had: a completion
/// that comes twice meets no other command.
const PLACE_BITS: u32 = 7;
/// Bytes of an option's data, at most: a name, and requests for information.
const OPTION_MAX: u32 = 8 << 10;
/// Blocks of a command, at most.
const BLOCKS_MAX: u32 = 1 << 16;
/// Bytes of data that requests hold and replies wait with, at most; one request may be larger than what is left.
const HELD_MAX: usize = PAYLOAD_MAX as usize;
/// Small replies share a buffer of so many bytes.
const SHARED_BYTES: usize = 4 << 10;

/// The message that the client sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flags,
    Option,
    OptionData(OptionHeader),
    Request,
    /// Bytes of a write; it is refused with an error, or taken.
    Data(Request, Result<(), u32>),
}

/// A request that is carried out.
#[derive(Debug)]
struct Job {
    request: Request,
    /// Of a write its data; of a read the reply, from its first command on; of a trim the range.
    data: Vec<u8>,
    /// Bytes that commands have been made for.
    begun: u64,
    /// Commands under way.
    open: u16,
    /// Of its commands the first error, or 0.
    error: u32,
    /// A flush is to end it.
    flushes: bool,
}

impl Job {
    /// Bytes of the export that it is about.
    fn len(&self) -> u64 {
        if self.request.kind == command::FLUSH { 0 } else { self.request.len.into() }
    }

    /// Whether all of its commands are made, but for the flush that ends it.
    fn has_begun(&self) -> bool {
        self.error != 0 || self.begun == self.len()
    }

    fn has_ended(&self) -> bool {
        self.open == 0 && self.has_begun() && (self.error != 0 || !self.flushes)
    }

    /// Its next command, with the bytes of the export that it is about. `None`: none can be made now.
    fn next(&self, export: &Namespace, transfer_max: u32) -> Option<(Command, u32)> {
        // Of a read it means nothing to NBD.
        let fua = self.request.flags & command::FUA != 0 && self.request.kind != command::READ;
        let part = |kind, max: u32| {
            let len = (self.len() - self.begun).min(max.into()) as u32;
            let first_block = (self.request.offset + self.begun) >> export.block_shift;
            let blocks = len >> export.block_shift;
            (Command { kind, nsid: export.nsid, first_block, blocks, fua, limited_retry: false }, len)
        };
        let flush = Command { fua: false, ..part(Kind::Flush, 0).0 };
        let blocks_max = BLOCKS_MAX << export.block_shift;
        match self.request.kind {
            _ if self.has_begun() => (self.error == 0 && self.flushes && self.open == 0).then_some((flush, 0)),
            command::READ => Some(part(Kind::Read, transfer_max.min(blocks_max))),
            command::WRITE => Some(part(Kind::Write, transfer_max.min(blocks_max))),
            command::WRITE_ZEROES => {
                let deallocate = self.request.flags & command::NO_HOLE == 0;
                Some(part(Kind::WriteZeroes { deallocate }, blocks_max))
            }
            _ => {
                let (ranges, deallocate) = (1, true);
                let kind = Kind::DatasetManagement { ranges, deallocate, integral_read: false, integral_write: false };
                Some(part(kind, self.request.len))
            }
        }
    }
}

/// A place for a command.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Its job; `None`: it is free.
    job: Option<usize>,
    /// First byte and bytes of the job's data.
    at: usize,
    len: usize,
    /// Commands that the place has had.
    count: u16,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    /// The beginning of the client's next message.
    gathered: Vec<u8>,
    no_zeroes: bool,
    /// The namespace that the client has chosen, as it was then.
    export: Option<Namespace>,
    transfer_max: u32,
    jobs: Vec<Option<Job>>,
    /// Jobs whose next command is to be made, in the order of their requests.
    waiting: VecDeque<usize>,
    parts: Vec<Part>,
    free: Vec<u16>,
    /// Bytes that jobs hold.
    held: usize,
    out: VecDeque<Vec<u8>>,
    /// Bytes of `out`, of which these of the first buffer have been sent.
    unsent: usize,
    sent: usize,
    is_closing: bool,
    /// The client takes nothing any more.
    is_mute: bool,
}

impl Connection {
    /// A new one; `transfer_max`: bytes that a command may move, a multiple of a block.
    pub fn new(transfer_max: u32) -> Connection {
        let mut connection = Connection {
            phase: Phase::Flags,
            gathered: Vec::new(),
            no_zeroes: false,
            export: None,
            transfer_max,
            jobs: Vec::new(),
            waiting: VecDeque::new(),
            parts: vec![Part::default(); PLACES.into()],
            free: (0..PLACES).rev().collect(),
            held: 0,
            out: VecDeque::new(),
            unsent: 0,
            sent: 0,
            is_closing: false,
            is_mute: false,
        };
        connection.say(&greeting());
        connection
    }

    /// The namespace that the client has chosen, as it was when it did.
    pub fn export(&self) -> Option<&Namespace> {
        self.export.as_ref()
    }

    /// Whether requests wait for commands to be made.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether no more is to be read from the client now.
    pub fn is_paused(&self) -> bool {
        self.is_closing || self.is_waiting() || self.held + self.unsent > HELD_MAX
    }

    /// Whether the client is to do something now: send the rest of a message, or take what is there for it.
    pub fn is_owed(&self) -> bool {
        self.is_closing || self.unsent > 0 || !self.gathered.is_empty() || matches!(self.phase, Phase::Data(..))
    }

    /// Whether nothing more comes and goes: it is to be closed.
    pub fn is_over(&self) -> bool {
        self.is_closing && self.unsent == 0 && self.jobs.iter().all(Option::is_none)
    }

    /// Nothing more is taken from the client; what it has asked for is still answered.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    // --- bytes of the client ---

    /// Takes what the client has sent. `exports`: namespaces that it may choose, at least until it has chosen one.
    pub fn receive(&mut self, mut input: &[u8], exports: &[Namespace]) {
        while !self.is_closing {
            let size = match self.phase {
                Phase::Flags => 4,
                Phase::Option => OptionHeader::SIZE,
                Phase::OptionData(header) => header.len as usize,
                Phase::Request => Request::SIZE,
                Phase::Data(request, _) => request.len as usize,
            };
            let is_skipped = matches!(self.phase, Phase::Data(_, Err(_)));
            if is_skipped {
                // Counted in its request.
                let Phase::Data(request, _) = &mut self.phase else { return };
                let len = input.len().min(size);
                request.len -= len as u32;
                input = &input[len..];
                if request.len > 0 {
                    return;
                }
            } else {
                let len = input.len().min(size - self.gathered.len());
                self.gathered.extend_from_slice(&input[..len]);
                input = &input[len..];
                if self.gathered.len() < size {
                    return;
                }
            }
            let message = std::mem::take(&mut self.gathered);
            self.on_message(message, exports);
        }
    }

    fn on_message(&mut self, message: Vec<u8>, exports: &[Namespace]) {
        self.phase = match self.phase {
            Phase::Flags => match message.first_chunk().and_then(|bytes| client_flags(*bytes)) {
                Some(no_zeroes) => {
                    self.no_zeroes = no_zeroes;
                    Phase::Option
                }
                None => return self.close(),
            },
            Phase::Option => match message.first_chunk().and_then(|bytes| OptionHeader::from_bytes(*bytes)) {
                Some(header) if header.len <= OPTION_MAX => Phase::OptionData(header),
                _ => return self.close(),
            },
            Phase::OptionData(header) => {
                self.on_option(header.option, &message, exports);
                if self.export.is_some() { Phase::Request } else { Phase::Option }
            }
            Phase::Request => {
                let Some(request) = message.first_chunk().and_then(Request::from_bytes) else { return self.close() };
                let Some(export) = &self.export else { return self.close() };
                let checked = check(&request, export);
                match request.kind {
                    command::DISCONNECT => return self.close(),
                    // Its data comes in any case.
                    command::WRITE if request.len > 0 => Phase::Data(request, checked),
                    _ => {
                        self.take(request, checked, Vec::new());
                        Phase::Request
                    }
                }
            }
            Phase::Data(request, checked) => {
                self.take(request, checked, message);
                Phase::Request
            }
        };
    }

    /// An option of the handshake, with its data.
    fn on_option(&mut self, option: u32, data: &[u8], exports: &[Namespace]) {
        let name = |namespace: &Namespace| namespace.nsid.to_string().into_bytes();
        let find = |wanted: &[u8]| exports.iter().find(|one| wanted.is_empty() || name(one) == wanted);
        let mut out = Vec::new();
        let mut answer = |kind: u32, data: &[u8]| append_option_reply(option, kind, data, &mut out);
        match option {
            option::EXPORT_NAME => match find(data) {
                Some(export) => {
                    info_of(export).append_answer(self.no_zeroes, &mut out);
                    self.export = Some(*export);
                }
                None => self.close(),
            },
            option::ABORT => {
                answer(reply::ACK, &[]);
                self.close();
            }
            option::LIST if data.is_empty() => {
                for export in exports {
                    let name = name(export);
                    answer(reply::SERVER, &[&(name.len() as u32).to_be_bytes()[..], &name].concat());
                }
                answer(reply::ACK, &[]);
            }
            option::INFO | option::GO => match asked_export(data).map(find) {
                Some(Some(export)) => {
                    info_of(export).append_infos(option, &mut out);
                    self.export = (option == option::GO).then_some(*export);
                }
                Some(None) => answer(reply::UNKNOWN, &[]),
                None => answer(reply::INVALID, &[]),
            },
            option::LIST => answer(reply::INVALID, &[]),
            _ => answer(reply::UNSUPPORTED, &[]),
        }
        self.say(&out);
    }

    /// Takes a request with its data, or refuses it.
    fn take(&mut self, request: Request, checked: Result<(), u32>, data: Vec<u8>) {
        if let Err(error) = checked {
            return self.say(&SimpleReply { error, cookie: request.cookie }.to_bytes());
        }
        let flushes = match request.kind {
            command::FLUSH => true,
            // A deallocation has no Force Unit Access.
            command::TRIM => request.flags & command::FUA != 0,
            _ => false,
        };
        self.held += data.len();
        let job = Some(Job { request, data, begun: 0, open: 0, error: 0, flushes });
        let at = self.jobs.iter().position(Option::is_none).unwrap_or(self.jobs.len());
        if at == self.jobs.len() {
            self.jobs.push(job);
        } else {
            self.jobs[at] = job;
        }
        self.waiting.push_back(at);
    }

    // --- commands ---

    /// The next command that the client's requests make. `None`: they make none now.
    pub fn begin(&mut self) -> Option<Sqe> {
        let export = self.export.as_ref()?;
        while let Some(&at) = self.waiting.front() {
            let job = self.jobs[at].as_mut().expect("a job that waits is there");
            let Some((command, len)) = job.next(export, self.transfer_max) else {
                self.waiting.pop_front();
                continue;
            };
            let room = match job.request.kind {
                command::READ => SimpleReply::SIZE + job.request.len as usize,
                command::TRIM => DsmRange::SIZE,
                _ => 0,
            };
            if job.data.len() < room {
                let all = self.held + self.unsent;
                if all > 0 && all + room > HELD_MAX {
                    return None;
                }
                job.data = vec![0; room];
                self.held += room;
            }
            let place = self.free.pop()?;
            let part = &mut self.parts[usize::from(place)];
            let at_data = job.begun as usize;
            let pointer = match command.kind {
                Kind::Read => {
                    (part.at, part.len) = (SimpleReply::SIZE + at_data, len as usize);
                    DataPointer::Transport { len }
                }
                Kind::Write => {
                    (part.at, part.len) = (at_data, len as usize);
                    DataPointer::Capsule { offset: 0, len }
                }
                Kind::DatasetManagement { .. } => {
                    job.data.copy_from_slice(&DsmRange::new(command.first_block, command.blocks).to_bytes());
                    (part.at, part.len) = (0, DsmRange::SIZE);
                    DataPointer::Capsule { offset: 0, len: DsmRange::SIZE as u32 }
                }
                _ => {
                    (part.at, part.len) = (0, 0);
                    DataPointer::Transport { len: 0 }
                }
            };
            part.job = Some(at);
            part.count = part.count.wrapping_add(1);
            job.begun += u64::from(len);
            job.open += 1;
            job.flushes &= command.kind != Kind::Flush;
            return Some(pointer.put(command.emit(place | part.count << PLACE_BITS)));
        }
        None
    }

    /// The part and its job that an identifier names.
    fn find(&mut self, cid: u16) -> Option<(&mut Part, &mut Job)> {
        let part = &mut self.parts[usize::from(cid & (PLACES - 1))];
        let job = self.jobs[part.job.filter(|_| part.count << PLACE_BITS == cid & !(PLACES - 1))?].as_mut()?;
        Some((part, job))
    }

    /// Data of a command, which the client has sent.
    ///
    /// # Errors
    /// There is no such command, or it has no data of this length.
    pub fn fetch(&mut self, cid: u16, len: usize) -> Result<&[u8], MoveError> {
        let (part, job) = self.find(cid).ok_or(MoveError::Host)?;
        if part.len != len { Err(MoveError::Host) } else { Ok(&job.data[part.at..][..len]) }
    }

    /// Data for a command's client, `at` bytes behind the start of the command's data, which `fill` writes.
    ///
    /// # Errors
    /// There is no such command, or it has not so much data; or as `fill` says.
    pub fn data(
        &mut self,
        cid: u16,
        (at, len): (usize, usize),
        fill: impl FnOnce(&mut [u8]) -> Result<(), MoveError>,
    ) -> Result<(), MoveError> {
        let (part, job) = self.find(cid).ok_or(MoveError::Host)?;
        let of_part = &mut job.data[part.at..][..part.len];
        fill(of_part.get_mut(at..).and_then(|rest| rest.get_mut(..len)).ok_or(MoveError::Host)?)
    }

    /// A command has ended.
    pub fn complete(&mut self, cid: u16, status: Status) {
        let Some((part, job)) = self.find(cid) else { return };
        let at = part.job.take().expect("it was found by it");
        job.open -= 1;
        if !status.is_success() && job.error == 0 {
            job.error = error_of(status);
        }
        let (has_ended, flushes) = (job.has_ended(), job.has_begun() && job.open == 0);
        self.free.push(cid & (PLACES - 1));
        if has_ended {
            self.waiting.retain(|&waiting| waiting != at);
            self.end(at);
        } else if flushes && !self.waiting.contains(&at) {
            self.waiting.push_front(at);
        }
    }

    /// Answers a request.
    fn end(&mut self, at: usize) {
        let Job { request, mut data, error, .. } = self.jobs[at].take().expect("it ends once");
        while self.jobs.pop_if(|job| job.is_none()).is_some() {}
        self.held -= data.len();
        let reply = SimpleReply { error, cookie: request.cookie }.to_bytes();
        if request.kind == command::READ && error == 0 && !self.is_mute {
            data[..SimpleReply::SIZE].copy_from_slice(&reply);
            self.unsent += data.len();
            self.out.push_back(data);
        } else {
            self.say(&reply);
        }
    }

    // --- bytes for the client ---

    fn say(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.is_mute {
            return;
        }
        self.unsent += bytes.len();
        match self.out.back_mut() {
            Some(last) if last.len() + bytes.len() <= SHARED_BYTES => last.extend_from_slice(bytes),
            _ => self.out.push_back(bytes.to_vec()),
        }
    }

    /// The client takes nothing any more: what it has asked for is carried out all the same.
    pub fn mute(&mut self) {
        self.is_mute = true;
        self.out.clear();
        (self.unsent, self.sent) = (0, 0);
    }

    /// Bytes for the client.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// The first of these bytes, in several pieces.
    pub fn pieces(&self) -> Vec<IoSlice<'_>> {
        let skips = std::iter::once(self.sent).chain(std::iter::repeat(0));
        self.out.iter().zip(skips).take(64).map(|(bytes, skip)| IoSlice::new(&bytes[skip..])).collect()
    }

    /// So many of them have been sent.
    pub fn advance(&mut self, sent: usize) {
        self.unsent -= sent;
        self.sent += sent;
        while let Some(first) = self.out.pop_front_if(|first| first.len() <= self.sent) {
            self.sent -= first.len();
        }
    }
}

/// Whether a request can be made of an export.
fn check(request: &Request, export: &Namespace) -> Result<(), u32> {
    let flags = match request.kind {
        command::WRITE_ZEROES => command::FUA | command::NO_HOLE,
        command::READ | command::WRITE | command::FLUSH | command::TRIM => command::FUA,
        _ => return Err(error::EINVAL),
    };
    let has_data = matches!(request.kind, command::READ | command::WRITE);
    let block = (1_u64 << export.block_shift) - 1;
    let end = request.offset.checked_add(request.len.into());
    match request.kind {
        _ if request.flags & !flags != 0 => Err(error::EINVAL),
        command::FLUSH => Ok(()),
        _ if request.len == 0 || (request.offset | u64::from(request.len)) & block != 0 => Err(error::EINVAL),
        _ if has_data && request.len > PAYLOAD_MAX => Err(error::EINVAL),
        command::WRITE | command::WRITE_ZEROES if end.is_none_or(|end| end > size_of(export)) => Err(error::ENOSPC),
        _ if end.is_none_or(|end| end > size_of(export)) => Err(error::EINVAL),
        _ => Ok(()),
    }
}

/// Bytes of an export.
fn size_of(export: &Namespace) -> u64 {
    export.blocks << export.block_shift
}

fn info_of(export: &Namespace) -> ExportInfo {
    use export_flag::{CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES};
    let read_only = if export.is_protected() { READ_ONLY } else { 0 };
    let flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN | read_only;
    let block_min = 1 << export.block_shift;
    // Drives map units of at least 4 KiB.
    ExportInfo { size: size_of(export), flags, block_min, block_preferred: block_min.max(4_096) }
}

/// The error that is nearest to a status.
fn error_of(status: Status) -> u32 {
    const EPERM: [Status; 3] =
        [Status::NAMESPACE_WRITE_PROTECTED, Status::WRITE_TO_READ_ONLY_RANGE, Status::OPERATION_DENIED];
    const EINVAL: [Status; 4] =
        [Status::INVALID_OPCODE, Status::INVALID_FIELD, Status::INVALID_NAMESPACE, Status::LBA_OUT_OF_RANGE];
    let is_one_of = |all: &[Status]| all.iter().any(|one| one.same_code(status));
    match () {
        () if is_one_of(&EPERM) => error::EPERM,
        () if is_one_of(&EINVAL) => error::EINVAL,
        () if status.same_code(Status::CAPACITY_EXCEEDED) => error::ENOSPC,
        () => error::EIO,
    }
}
