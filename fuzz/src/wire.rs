//! Byte layouts: whatever parses comes back the same.

use tidewater_base::checksum::crc32c;
use tidewater_wire::fabrics::{ConnectData, DataPointer, DiscoveryEntry, DiscoveryHeader, Fabrics};
use tidewater_wire::nvme::identify::{
    IdentifyController, IdentifyNamespace, parse_controller_list, parse_namespace_descriptors, parse_namespace_list,
};
use tidewater_wire::nvme::log::{EffectsLog, SanitizeLog, SelfTestLog, SmartLog, parse_error_page};
use tidewater_wire::nvme::{AdminCommand, Command, Sqe};
use tidewater_wire::nvme_tcp::{COMMON_BYTES, CommonHeader, Framing, Pdu, Receiver, Rules};
use tidewater_wire::replication::{Envelope, FRAME_BYTES_MAX, Frame, Hello, Piece, Refusal};
use tidewater_wire::vfio_user::{
    DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Header, IrqInfo, RegionAccess, RegionInfo, SetIrqs, Version, WriteMulti,
    parse_areas,
};
use tidewater_wire::{log, vendor};

/// Entries and messages of one input, at most.
const MESSAGES_MAX: usize = 32;

/// Everything in `tidewater-wire` that takes foreign bytes.
pub fn wire(data: &[u8]) {
    for entry in data.as_chunks::<{ Sqe::SIZE }>().0.iter().take(MESSAGES_MAX) {
        command(&Sqe::from_bytes(entry));
    }
    pages(data);
    pdus(data);
    messages(data);
    file_record(data);
    if let Ok(frame) = Frame::parse(data) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        let len = frame.encode(&mut bytes);
        assert_eq!(Frame::parse(&bytes[..len]), Ok(frame));
    }
    peers(data);
}

fn command(sqe: &Sqe) {
    if let Ok(command) = Command::parse(sqe) {
        assert_eq!(Command::parse(&command.emit(sqe.cid())), Ok(command));
    }
    if let Ok(command) = AdminCommand::parse(sqe) {
        assert_eq!(AdminCommand::parse(&command.emit(sqe.cid())), Ok(command));
    }
    let _ = AdminCommand::parse_capsule(sqe);
    let _ = DataPointer::parse(sqe);
    if let Ok(command) = Fabrics::parse(sqe) {
        assert_eq!(Fabrics::parse(&command.emit(sqe.cid())), Ok(command));
    }
    if let Ok(command) = vendor::IoCommand::parse(sqe) {
        assert_eq!(vendor::IoCommand::parse(&command.emit(sqe.cid())), Ok(command));
    }
    if let Ok(command) = vendor::AdminCommand::parse(sqe) {
        assert_eq!(vendor::AdminCommand::parse(&command.emit(sqe.cid())), Ok(command));
    }
}

/// The layout that begins here comes back the same, if it parses.
macro_rules! comes_back {
    ($data:expr, $($layout:ty),+) => {$({
        let parsed = $data.get(..<$layout>::SIZE).map(<$layout>::parse);
        if let Some(Ok(parsed)) = parsed {
            assert_eq!(<$layout>::parse(&parsed.to_bytes()).as_ref(), Ok(&parsed));
        }
    })+};
}

fn pages(data: &[u8]) {
    // Short inputs reach long layouts too.
    let mut page = data.to_vec();
    page.resize(page.len().max(4_864), 0);
    comes_back!(page, IdentifyController, IdentifyNamespace, SmartLog, SelfTestLog, SanitizeLog);
    comes_back!(page, log::FileChange, log::FileDelta, log::FilePatch, log::FileBind);
    comes_back!(page, vendor::ControlPage, vendor::FastStatus, vendor::BarLayout, vendor::Peers, vendor::LanePage);
    comes_back!(page, vendor::FastSetup, vendor::TransportSetup, vendor::Promote, vendor::AttachPeers);
    if let Some(log) = EffectsLog::parse(&page) {
        assert_eq!(EffectsLog::parse(&log.to_bytes()), Some(log));
    }
    let _ = parse_error_page(data);
    let _ = parse_namespace_list(data);
    let _ = parse_controller_list(data);
    let _ = parse_namespace_descriptors(data);
    if let Some(Ok(connect)) = page.first_chunk().map(ConnectData::from_bytes) {
        assert_eq!(ConnectData::from_bytes(&connect.to_bytes()), Ok(connect));
    }
    if let Some(entry) = page.first_chunk().and_then(DiscoveryEntry::from_bytes) {
        assert_eq!(DiscoveryEntry::from_bytes(&entry.to_bytes()), Some(entry));
    }
    comes_back!(page, DiscoveryHeader);
}

/// PDUs, one behind the other, as both sides read them.
fn pdus(data: &[u8]) {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let framing = Framing { header_digest: how & 1 != 0, data_digest: how & 2 != 0, alignment: how >> 3 };
    let receiver = if how & 4 != 0 { Receiver::Host } else { Receiver::Controller };
    let rules = Rules { receiver, framing, capsule_data_max: 8_192, data_max: 128 << 10 };
    for _ in 0..MESSAGES_MAX {
        let Some(common) = rest.first_chunk::<COMMON_BYTES>() else { return };
        let common = CommonHeader::from_bytes(common);
        let Ok(layout) = common.layout(&rules) else { return };
        assert!(layout.total() == u64::from(common.plen), "{common:?} {layout:?}");
        let Some(header) = rest.get(..layout.header) else { return };
        if let Ok(pdu) = Pdu::parse(header, &layout) {
            let mut out = Vec::new();
            let bytes = vec![0x5A; (layout.data as usize).min(8_192)];
            if bytes.len() == layout.data as usize {
                pdu.append(&framing, &bytes, &mut out);
                let again = CommonHeader::from_bytes(out.first_chunk().expect("a PDU has a header")).layout(&rules);
                let again = again.expect("what is written is read");
                assert_eq!(Pdu::parse(&out[..again.header], &again), Ok(pdu));
            }
        }
        let Some(next) = rest.get(layout.total() as usize..) else { return };
        rest = next;
    }
}

fn messages(data: &[u8]) {
    comes_back!(data, Header, DmaMap, DmaUnmap, DeviceInfo, RegionInfo, IrqInfo);
    let _ = Version::parse(data);
    let _ = (SetIrqs::parse(data).map(|set| set.to_bytes()), parse_areas(data));
    for with_data in [false, true] {
        let _ = (DmaAccess::split(data, with_data), RegionAccess::split(data, with_data));
    }
    if let Some(writes) = WriteMulti::parse(data) {
        assert!(writes.writes().count() as u64 <= writes.count());
    }
}

/// What a log says of files: a delta's patches are within the bytes that it is about.
fn file_record(data: &[u8]) {
    if let Ok(log::FileRecord::Delta { len, patches, .. }) = log::FileRecord::parse(data) {
        for (at, bytes) in patches {
            assert!((at + bytes.len()) as u64 <= len, "{at} and {} of {len}", bytes.len());
        }
    }
}

/// What devices send each other on a connection.
fn peers(data: &[u8]) {
    comes_back!(data, Hello);
    if let Some(refusal) = data.first_chunk().and_then(Refusal::parse) {
        assert_eq!(Refusal::parse(&refusal.to_bytes()).map(|it| it.why()), Some(refusal.why()));
    }
    // Sealed, so that what is behind the checksum is reached.
    let mut sealed = Vec::new();
    let body = &data[..data.len().min(Envelope::LEN_MAX)];
    let flag = if data.first().is_some_and(|byte| byte & 1 == 1) { Envelope::PING } else { 0 };
    let head = Envelope { len: body.len() as u32 | flag, checksum: crc32c(body) };
    sealed.extend_from_slice(&head.to_bytes());
    sealed.extend_from_slice(body);
    for stream in [data, &sealed] {
        if let Ok(Some((piece, used))) = Piece::parse(stream) {
            let mut again = Vec::new();
            match &piece {
                Piece::Frame(frame, log) => Piece::append_frame(frame, log, &mut again),
                Piece::Ping(ping) => Piece::append_ping(ping, &mut again),
            }
            assert!(used <= stream.len());
            assert_eq!(Piece::parse(&again), Ok(Some((piece, again.len()))));
        }
    }
}
