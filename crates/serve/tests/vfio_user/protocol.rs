//! Each message at its boundaries and beyond.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tidewater_driver::vfio_user::Socket;
use tidewater_ipc::{MESSAGE_MAX, SharedMemory, TRANSFER_MAX};
use tidewater_wire::vfio_user::{
    Area, DmaMap, DmaUnmap, Header, IrqIndex, RegionAccess, RegionInfo, Version, command, parse_areas, region,
};

use crate::vfio_user::support::{BAR0_SIZE, BAR2_SIZE, Bench, CONFIG_SIZE, Raw, VECTORS};

const EINVAL: u32 = 22;
const ENOENT: u32 = 2;
const EEXIST: u32 = 17;
const ENOTSUP: u32 = 95;
const EBADF: u32 = 9;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    DmaMap { argsz: 32, flags, offset, address, size }.to_bytes().to_vec()
}

fn unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    DmaUnmap { argsz: 24, flags, address, size }.to_bytes().to_vec()
}

fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
    RegionAccess { offset, region, count }.to_bytes().to_vec()
}

/// One message, and what it is refused with.
struct Cell<'a> {
    command: u16,
    payload: Vec<u8>,
    descriptors: Vec<BorrowedFd<'a>>,
    errno: u32,
    what: String,
}

/// Every message at its boundaries. The server must survive each, in order, on one connection.
fn cells<'a>(memory: &'a SharedMemory, events: &'a [OwnedFd]) -> Vec<Cell<'a>> {
    let mut cells = Vec::new();
    let file = memory.as_fd();
    let mut cell = |command: u16, payload: Vec<u8>, descriptors: Vec<BorrowedFd<'a>>, errno: u32, what: &str| {
        cells.push(Cell { command, payload, descriptors, errno, what: what.to_owned() });
    };

    // Lengths of every structure: one less is too short, padding is taken.
    let whole = [
        (command::DMA_UNMAP, unmap(0, 0x7000, 0x1000), ENOENT),
        (command::DEVICE_GET_INFO, words(&[16, 0, 0, 0]), 0),
        (command::DEVICE_GET_REGION_INFO, words(&[32, 0, 0, 0, 0, 0, 0, 0]), 0),
        (command::DEVICE_GET_REGION_IO_FDS, words(&[16, 0, 0, 0]), 0),
        (command::DEVICE_GET_IRQ_INFO, words(&[16, 0, 2, 0]), 0),
        (command::DEVICE_SET_IRQS, words(&[20, 0b100001, 2, 0, 0]), 0),
        (command::REGION_READ, access(region::BAR0, 0, 4), 0),
        (command::REGION_WRITE, [access(region::BAR0, 0, 4), vec![1, 2, 3, 4]].concat(), 0),
        (command::REGION_WRITE_MULTI, vec![0; 8], 0),
        (command::DEVICE_RESET, vec![], 0),
    ];
    for (command, payload, errno) in whole {
        for short in 0..payload.len() {
            cell(command, payload[..short].to_vec(), vec![], EINVAL, "too short");
        }
        cell(command, payload.clone(), vec![], errno, "exact");
        for padding in [1, 7, 4096] {
            cell(command, [payload.clone(), vec![0xAA; padding]].concat(), vec![], errno, "padded");
        }
        if command != command::DEVICE_SET_IRQS {
            cell(command, payload, vec![file], errno, "a descriptor that it has no use for");
        }
    }

    // Room for replies.
    for (command, fields, least) in [
        (command::DEVICE_GET_INFO, vec![0, 0, 0], 16),
        (command::DEVICE_GET_REGION_INFO, vec![0, 2, 0, 0, 0, 0, 0], 32),
        (command::DEVICE_GET_REGION_IO_FDS, vec![0, 0, 0], 16),
        (command::DEVICE_GET_IRQ_INFO, vec![0, 2, 0], 16),
    ] {
        for argsz in [0, 1, least - 1, least, least + 1, 4096, u32::MAX] {
            let payload = words(&[vec![argsz], fields.clone()].concat());
            cell(command, payload, vec![], if argsz < least { EINVAL } else { 0 }, &format!("argsz {argsz}"));
        }
    }

    // Numbers of regions and of interrupts.
    for index in [0, 1, 5, 6, 7, 8, 9, 10, 255, u32::MAX] {
        let errno = if index < region::COUNT { 0 } else { EINVAL };
        cell(command::DEVICE_GET_REGION_INFO, words(&[64, 0, index, 0, 0, 0, 0, 0]), vec![], errno, "region");
        cell(command::DEVICE_GET_REGION_IO_FDS, words(&[64, 0, index, 0]), vec![], errno, "region");
        let errno = if index < 3 { 0 } else { EINVAL };
        cell(command::DEVICE_GET_IRQ_INFO, words(&[16, 0, index, 0]), vec![], errno, "kind of interrupt");
    }
    cell(command::DEVICE_GET_REGION_IO_FDS, words(&[64, 1, 0, 0]), vec![], EINVAL, "flags");
    cell(command::DEVICE_GET_REGION_IO_FDS, words(&[64, 0, 0, 1]), vec![], EINVAL, "count");

    // Region accesses, at the end of each region and beyond.
    for (index, size) in
        [(region::BAR0, BAR0_SIZE), (region::BAR2, BAR2_SIZE), (region::CONFIG, CONFIG_SIZE), (1, 0), (9, 0)]
    {
        for (offset, count) in [
            (0, 0),
            (0, 1),
            (0, 4096),
            (size.wrapping_sub(1), 1),
            (size.wrapping_sub(1), 2),
            (size.wrapping_sub(4), 4),
            (size.wrapping_sub(4), 5),
            (size, 1),
            (size, 0),
            (size + 1, 1),
            (u64::MAX, 1),
            (u64::MAX - 3, 8),
            (1 << 63, 4),
            (0, TRANSFER_MAX),
            (0, TRANSFER_MAX + 1),
            (0, u32::MAX),
        ] {
            let good = count > 0 && offset.checked_add(count.into()).is_some_and(|end| end <= size);
            let errno = if good { 0 } else { EINVAL };
            let what = format!("region {index} offset {offset:#x} count {count:#x}");
            cell(command::REGION_READ, access(index, offset, count), vec![], errno, &what);
            let data = vec![0; count.min(TRANSFER_MAX) as usize];
            cell(command::REGION_WRITE, [access(index, offset, count), data].concat(), vec![], errno, &what);
        }
    }
    // Across the border of what is mapped.
    for offset in [0xFFC, 0xFFE, 0x1FFC, 0x1FFE] {
        cell(command::REGION_READ, access(region::BAR0, offset, 8), vec![], 0, "across a border");
        cell(
            command::REGION_WRITE,
            [access(region::BAR0, offset, 8), vec![0; 8]].concat(),
            vec![],
            0,
            "across a border",
        );
    }
    let multi = |count: u64, writes: &[(u64, u32, u32)]| {
        let mut bytes = count.to_le_bytes().to_vec();
        for (offset, region, len) in writes {
            bytes.extend([access(*region, *offset, *len), vec![0; 8]].concat());
        }
        bytes
    };
    for (payload, errno) in [
        (multi(1, &[(0x1000, 0, 4)]), 0),
        (multi(2, &[(0x1000, 0, 4), (0, 7, 8)]), 0),
        (multi(2, &[(0x1000, 0, 4)]), EINVAL),
        (multi(1, &[(0x1000, 0, 9)]), EINVAL),
        (multi(1, &[(0x1000, 0, 0)]), EINVAL),
        (multi(1, &[(u64::MAX, 0, 4)]), EINVAL),
        (multi(1, &[(0, 9, 4)]), EINVAL),
        (multi(u64::MAX, &[]), EINVAL),
        (multi(1 << 61, &[]), EINVAL),
    ] {
        cell(command::REGION_WRITE_MULTI, payload, vec![], errno, "several writes");
    }

    // Memory. Nothing of this stays.
    let size = memory.len();
    for (flags, offset, address, len, files, errno, what) in [
        (3, 0, 0, 0, 1, EINVAL, "empty"),
        (3, 0, 1, 0x1000, 1, EINVAL, "an address that is not aligned"),
        (3, 0, 0x1000, 0x1001, 1, EINVAL, "a size that is not aligned"),
        (3, 1, 0x1000, 0x1000, 1, EINVAL, "an offset that is not aligned"),
        (3, 0, u64::MAX - 0xFFF, 0x2000, 1, EINVAL, "beyond all addresses"),
        (3, 0, 0x1000, u64::MAX - 0xFFF, 1, EINVAL, "beyond all addresses, by size"),
        (3, 0, 0x1000, u64::MAX - 0x1FFF, 1, EINVAL, "nearly all addresses, by descriptor"),
        (3, u64::MAX - 0xFFF, 0x1000, 0x1000, 1, EINVAL, "an offset beyond all files"),
        (3, 1 << 62, 0x1000, 0x1000, 1, EINVAL, "an offset far behind the file"),
        (3, size, 0x1000, 0x1000, 1, EINVAL, "an offset at the file's end"),
        (3, 0, 0x1000, size + 0x1000, 1, EINVAL, "more than the file has"),
        (3, 0, 0x1000, 0x1000, 2, EINVAL, "two descriptors"),
        (16, 0, 0x1000, 0x1000, 1, EINVAL, "an unknown flag"),
        (u32::MAX, 0, 0x1000, 0x1000, 1, EINVAL, "unknown flags"),
    ] {
        cell(command::DMA_MAP, map(flags, offset, address, len), vec![file; files], errno, what);
    }
    let event = events[0].as_fd();
    cell(command::DMA_MAP, map(3, 0, 0x1000, 0x1000), vec![event], EINVAL, "no file");
    for short in 0..DmaMap::SIZE {
        cell(command::DMA_MAP, map(3, 0, 0, 0x1000)[..short].to_vec(), vec![file], EINVAL, "too short");
    }
    cell(command::DMA_MAP, words(&[31, 3, 0, 0, 0, 0, 0x1000, 0]), vec![file], EINVAL, "argsz");
    for (payload, errno, what) in [
        (map(3, 0, 0x10000, 0x10000), 0, "by descriptor"),
        (map(3, 0, 0x10000, 0x10000), EEXIST, "the same again"),
        (map(3, 0, 0x1F000, 0x1000), EEXIST, "its end"),
        (map(3, 0, 0xF000, 0x2000), EEXIST, "its start"),
        (map(3, 0, 0, 0x40000), EEXIST, "around it"),
        (map(3, 0, 0x14000, 0x1000), EEXIST, "in it"),
        (map(3, 0x1000, 0x20000, 0x1000), 0, "behind it"),
        (map(1, 0, 0xF000, 0x1000), 0, "before it"),
        (map(3, 0, u64::MAX - 0xFFF, 0x1000), 0, "the last page"),
    ] {
        let files = if payload[24..32] == 0x40000u64.to_le_bytes() { vec![] } else { vec![file] };
        cell(command::DMA_MAP, payload, files, errno, what);
    }
    for (payload, errno, what) in [
        (unmap(0, 0x10000, 0x8000), EINVAL, "half of a range"),
        (unmap(0, 0x18000, 0x8000), EINVAL, "the other half"),
        (unmap(0, 0x11000, 0x1000), EINVAL, "the middle"),
        (unmap(0, 0x10000, 0), EINVAL, "nothing"),
        (unmap(0, u64::MAX, 2), EINVAL, "beyond all addresses"),
        (unmap(0, 0x30000, 0x1000), ENOENT, "a range that was never lent"),
        (unmap(1, 0x10000, 0x10000), ENOTSUP, "with dirty pages"),
        (unmap(2, 0x10000, 0x10000), EINVAL, "all, and some"),
        (unmap(4, 0, 0), EINVAL, "an unknown flag"),
        (unmap(0, 0x10000, 0x10000), 0, "a range"),
        (unmap(0, 0x10000, 0x10000), ENOENT, "a range, again"),
        (unmap(0, 0xF000, 0x12000), 0, "two ranges and a gap"),
        (unmap(0, u64::MAX - 0xFFF, 0x1000), 0, "the last page"),
        (unmap(2, 0, 0), 0, "all of nothing"),
    ] {
        cell(command::DMA_UNMAP, payload, vec![], errno, what);
    }
    cell(command::DMA_UNMAP, words(&[23, 0, 0, 0, 0, 0]), vec![], EINVAL, "argsz");

    // Interrupts: every combination of flags, with and without data.
    for flags in 0..128u32 {
        for descriptors in [0, 2] {
            let files = events[..descriptors].iter().map(|event| event.as_fd()).collect();
            let payload = [words(&[22, flags, 2, 0, 2]), vec![1, 0]].concat();
            let errno = match flags {
                0b10_0100 => 0,
                0b00_1100 | 0b01_0100 => ENOTSUP,
                0b00_1001 | 0b01_0001 | 0b10_0001 | 0b00_1010 | 0b01_0010 | 0b10_0010 if descriptors == 0 => 0,
                _ => EINVAL,
            };
            cell(
                command::DEVICE_SET_IRQS,
                payload,
                files,
                errno,
                &format!("flags {flags:#b}, {descriptors} descriptors"),
            );
        }
    }
    for (index, start, count) in [
        (2, 0, VECTORS),
        (2, 0, VECTORS + 1),
        (2, VECTORS, 1),
        (2, VECTORS, 0),
        (2, 1, 0),
        (2, VECTORS - 1, 1),
        (2, u32::MAX, 1),
        (2, 1, u32::MAX),
        (2, u32::MAX, u32::MAX),
        (1, 0, 1),
        (1, 0, 2),
        (0, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
        (5, 0, 1),
        (u32::MAX, 0, 1),
    ] {
        let vectors = [0, 1, VECTORS, 0, 0].get(index as usize).copied().unwrap_or(0);
        let good = count > 0 && start.checked_add(count).is_some_and(|end| end <= vectors);
        for flags in [0b10_0001, 0b10_0100] {
            let what = format!("kind {index} start {start} count {count} flags {flags:#b}");
            cell(
                command::DEVICE_SET_IRQS,
                words(&[20, flags, index, start, count]),
                vec![],
                if good { 0 } else { EINVAL },
                &what,
            );
        }
    }
    for count in [1, 2, 3, 4] {
        let files = events[..3].iter().map(|event| event.as_fd()).collect();
        let errno = if count == 3 { 0 } else { EINVAL };
        cell(command::DEVICE_SET_IRQS, words(&[20, 0b10_0100, 2, 0, count]), files, errno, "descriptors for others");
    }
    cell(command::DEVICE_SET_IRQS, words(&[20, 0b10_0100, 2, 0, 1]), vec![file], EBADF, "no event");
    cell(command::DEVICE_SET_IRQS, words(&[19, 0b10_0001, 2, 0, 1]), vec![], EINVAL, "argsz");

    // Commands that a server does not take.
    for command in
        [0, command::DMA_READ, command::DMA_WRITE, command::USER_DIRTY_PAGES, 16, 17, 18, 19, 255, 0x8000, 0xFFFF]
    {
        for payload in [vec![], vec![0; 16], vec![0xFF; 64]] {
            cell(command, payload, vec![], ENOTSUP, "not for a server");
        }
    }
    cell(command::VERSION, Version { major: 0, minor: 0, data: b"" }.to_bytes(), vec![], EINVAL, "a version again");
    cells
}

#[test]
fn every_message_at_its_boundaries_gets_the_reply_that_it_should() {
    let bench = Bench::new();
    let memory = SharedMemory::new("client", 0x10000).expect("a memfd");
    let events: Vec<OwnedFd> =
        (0..3).map(|_| EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("an event").into()).collect();
    let mut raw = Raw::agreed(&bench);
    let cells = cells(&memory, &events);
    for cell in &cells {
        let errno = raw.errno(cell.command, &cell.payload, &cell.descriptors);
        assert_eq!(errno, cell.errno, "command {} of {} bytes: {}", cell.command, cell.payload.len(), cell.what);
    }
    println!("{} cells of the vfio-user protocol", cells.len());
    assert!(cells.len() > 700, "{}", cells.len());
    assert_eq!(bench.memory.len(), 0, "all memory has been taken back");
}

#[test]
fn versions_are_agreed_on_with_and_without_text() {
    let bench = Bench::new();
    let good: [(&[u8], u16); 9] = [
        (b"\0\0\x01\0", 1),
        (b"\0\0\0\0", 0),
        (b"\0\0\xFF\xFF", 1),
        (b"\0\0\x01\0\0", 1),
        (b"\0\0\x01\0\0\0\0\0", 1),
        (b"\0\0\x01\0{}", 1),
        (b"\0\0\x01\0{}\0", 1),
        (b"\0\0\x01\0{}\0\0\0\0\0\0", 1),
        (b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":8,\"x\":[1],\"max_data_xfer_size\":4096}}\0", 1),
    ];
    for (payload, minor) in good {
        let mut raw = Raw::connect(&bench);
        let (header, reply) = raw.ask(command::VERSION, payload, &[]);
        assert!(!header.is_failure(), "{payload:?}");
        let version = Version::parse(&reply).expect("a version");
        assert_eq!((version.major, version.minor), (0, minor), "{payload:?}");
        assert_eq!(reply.last(), Some(&0), "the text ends with a zero byte");
        let text: serde_json::Value = serde_json::from_slice(version.data).expect("JSON");
        assert_eq!(text["capabilities"]["max_data_xfer_size"], TRANSFER_MAX);
        assert!(text["capabilities"]["write_multiple"].is_null(), "only what was offered");
        assert_eq!(raw.errno(command::DEVICE_GET_INFO, &words(&[16, 0, 0, 0]), &[]), 0);
    }
    let bad: [&[u8]; 10] = [
        b"",
        b"\0\0\x01",
        b"\x01\0\0\0",
        b"\xFF\xFF\0\0",
        b"\0\0\x01\0{",
        b"\0\0\x01\0tide",
        b"\0\0\x01\0\xFF\xFE",
        b"\0\0\x01\0{\"capabilities\":{\"max_msg_fds\":\"8\"}}",
        b"\0\0\x01\0{\"capabilities\":{\"max_data_xfer_size\":0}}",
        b"\0\0\x01\0{\"capabilities\":{\"max_data_xfer_size\":-1}}",
    ];
    for payload in bad {
        let mut raw = Raw::connect(&bench);
        assert_eq!(raw.errno(command::VERSION, payload, &[]), EINVAL, "{payload:?}");
        assert_eq!(raw.errno(command::DEVICE_GET_INFO, &words(&[16, 0, 0, 0]), &[]), EINVAL, "nothing was agreed on");
        let deep = [b"\0\0\x01\0".as_slice(), &b"[".repeat(100_000)].concat();
        assert_eq!(raw.errno(command::VERSION, &deep, &[]), EINVAL, "far too deep");
        assert_eq!(raw.errno(command::VERSION, b"\0\0\x01\0", &[]), 0, "and then it was");
    }
}

#[test]
fn a_client_of_our_own_reads_what_the_server_says_of_itself() {
    let bench = Bench::new();
    for capabilities in ["", "{}", r#"{"capabilities":{"write_multiple":true}}"#] {
        let mut client = Socket::connect_saying(&bench.path, capabilities.as_bytes()).expect("a client");
        assert_eq!(client.capabilities().contains("write_multiple"), capabilities.contains("write_multiple"));
        let info = client.device_info().expect("information");
        assert_eq!((info.flags, info.regions, info.irqs), (3, region::COUNT, 3));
        let bar0 = client.region_info(region::BAR0).expect("BAR0");
        assert_eq!(bar0.info.size, BAR0_SIZE);
        assert_eq!(bar0.areas, [Area { offset: 0x1000, size: 0x1000 }]);
        let bar2 = client.region_info(region::BAR2).expect("BAR2");
        assert_eq!(bar2.areas, [Area { offset: 0, size: BAR2_SIZE }]);
        let none = client.region_info(1).expect("no BAR1");
        assert!(none.info.size == 0 && none.areas.is_empty() && none.file.is_none());
        let config = client.region_info(region::CONFIG).expect("the configuration space");
        assert!(config.info.size == CONFIG_SIZE && config.file.is_none());
        let counts = [IrqIndex::IntX, IrqIndex::Msi, IrqIndex::MsiX]
            .map(|index| client.irq_info(index).expect("information").count);
        assert_eq!(counts, [0, 1, VECTORS]);
    }
}

#[test]
fn a_region_that_lacks_room_for_its_list_says_how_much_it_needs() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    let asked = |argsz: u32| words(&[argsz, 0, region::BAR0, 0, 0, 0, 0, 0]);
    let (_, short) = raw.ask(command::DEVICE_GET_REGION_INFO, &asked(32), &[]);
    let info = RegionInfo::parse(&short).expect("a structure");
    assert_eq!((short.len(), info.argsz, info.cap_offset), (32, 64, 32));
    let (_, short) = raw.ask(command::DEVICE_GET_REGION_INFO, &asked(63), &[]);
    assert_eq!(short.len(), 32);
    let (_, whole) = raw.ask(command::DEVICE_GET_REGION_INFO, &asked(64), &[]);
    assert_eq!(parse_areas(&whole), Some(Some(vec![Area { offset: 0x1000, size: 0x1000 }])));
}

#[test]
fn mapped_and_trapped_bytes_are_those_of_the_region() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let bar0 = client.region_info(region::BAR0).expect("BAR0");
    let page = bar0.map(bar0.areas[0]).expect("a mapping");
    assert!(page.store_u32(8, 0x1234_5678));
    assert_eq!(client.read_u32(region::BAR0, 0x1008).expect("a read"), 0x1234_5678, "by message too");
    client.write(region::BAR0, 0x1FFC, &[1, 2, 3, 4, 5, 6, 7, 8]).expect("a write across the border");
    assert_eq!(page.load_u32(0xFFC), Some(0x0403_0201));
    assert_eq!(bench.plain.bar0.lock().expect("a lock")[0x2000..0x2004], [5, 6, 7, 8]);
    assert_eq!(bench.plain.bar0.lock().expect("a lock")[0x1FFC..0x2000], [0; 4], "the function does not see it");
    let mut bytes = [0; 8];
    client.read(region::BAR0, 0x1FFC, &mut bytes).expect("a read across the border");
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);

    let bar2 = client.region_info(region::BAR2).expect("BAR2");
    let whole = bar2.map(bar2.areas[0]).expect("a mapping");
    assert!(whole.write(0x8001, b"tide"));
    let mut bytes = [0; 4];
    assert!(bench.bar2.read(0x8001, &mut bytes));
    assert_eq!(&bytes, b"tide");
    let mut config = vec![0; CONFIG_SIZE as usize];
    client.read(region::CONFIG, 0, &mut config).expect("the whole configuration space");
    assert_eq!(config[0x104], 4);
}

#[test]
fn messages_may_come_in_pieces_and_together() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    let write = |offset: u64, byte: u8, flags: u32| {
        let payload = [access(region::BAR0, offset, 4), vec![byte; 4]].concat();
        let header = Header { flags, ..Header::command(u16::from(byte), command::REGION_WRITE, payload.len()) };
        [header.to_bytes().as_slice(), &payload].concat()
    };
    raw.dribble(&write(0, 1, 0));
    let (header, _) = raw.reply().expect("a reply");
    assert!(!header.is_failure());

    // Three in one piece, of which the middle one wants no reply, and the start of a fourth.
    let fourth = write(12, 5, 0);
    let all = [write(4, 2, 0), write(8, 3, Header::NO_REPLY), write(8, 4, 0), fourth[..20].to_vec()].concat();
    raw.send(&all, &[]);
    assert_eq!(raw.reply().map(|(header, _)| header.id), Some(2));
    assert_eq!(raw.reply().map(|(header, _)| header.id), Some(4));
    raw.send(&fourth[20..], &[]);
    assert_eq!(raw.reply().map(|(header, _)| header.id), Some(5));
    let bar0 = bench.plain.bar0.lock().expect("a lock");
    assert_eq!(bar0[..16], [1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 5, 5, 5, 5]);
}

#[test]
fn descriptors_belong_to_the_message_that_they_came_with() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    let (one, two) =
        (SharedMemory::new("one", 0x1000).expect("a memfd"), SharedMemory::new("two", 0x1000).expect("a memfd"));
    let message = |id: u16, command: u16, payload: &[u8]| {
        [Header::command(id, command, payload.len()).to_bytes().as_slice(), payload].concat()
    };
    // The server reads none of them before all are there, since the first is not whole.
    let first = message(1, command::DMA_MAP, &map(3, 0, 0x1000, 0x1000));
    raw.send(&first[..40], &[one.as_fd()]);
    raw.send(&first[40..], &[]);
    raw.send(&message(2, command::DMA_MAP, &map(3, 0, 0x2000, 0x1000)), &[two.as_fd()]);
    raw.send(&message(3, command::DMA_MAP, &map(3, 0, 0x3000, 0x1000)), &[]);
    for id in 1..4 {
        let (header, _) = raw.reply().expect("a reply");
        assert!(header.id == id && !header.is_failure(), "{header:?}");
    }
    assert!(one.write(0, b"one") && two.write(0, b"two"));
    let mut bytes = [0; 3];
    bench.memory.read(0x1000, &mut bytes).expect("the first");
    assert_eq!(&bytes, b"one");
    bench.memory.read(0x2000, &mut bytes).expect("the second");
    assert_eq!(&bytes, b"two");
    assert!(bench.memory.read(0x3000, &mut bytes).is_err(), "the third has no descriptor");
}

#[test]
fn what_can_not_be_told_apart_any_more_ends_the_connection() {
    let bench = Bench::new();
    let header = Header::command(1, command::DEVICE_RESET, 0);
    let broken = [
        Header { size: 0, ..header },
        Header { size: 15, ..header },
        Header { size: MESSAGE_MAX + 1, ..header },
        Header { size: u32::MAX, ..header },
        Header { flags: 2, ..header },
        Header { flags: 15, ..header },
    ];
    for header in broken {
        let mut raw = Raw::agreed(&bench);
        raw.send(&header.to_bytes(), &[]);
        assert!(raw.reply().is_none(), "{header:?}");
    }
    let memory = SharedMemory::new("client", 0x1000).expect("a memfd");
    let mut raw = Raw::agreed(&bench);
    raw.send(&header.to_bytes(), &[memory.as_fd(); 253]);
    assert!(raw.reply().is_none(), "253 descriptors");

    // An unexpected reply is ignored.
    let mut raw = Raw::agreed(&bench);
    raw.send(&Header { flags: 1, ..header }.to_bytes(), &[]);
    assert_eq!(raw.errno(command::DEVICE_RESET, &[], &[]), 0);
    // The largest message that there is.
    let size = MESSAGE_MAX as usize - Header::SIZE;
    let payload = [access(region::BAR2, 0, 4), vec![7; size - RegionAccess::SIZE]].concat();
    let whole = [Header::command(9, command::REGION_WRITE, size).to_bytes().as_slice(), &payload].concat();
    std::io::Write::write_all(&mut raw.0, &whole).expect("the server reads");
    assert_eq!(raw.reply().map(|(header, _)| (header.id, header.error)), Some((9, 0)));
    assert_eq!(bench.bar2.load_u64(0), Some(0x0707_0707));
}

#[test]
fn commands_that_want_no_reply_get_none() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    let messages = [
        (command::DEVICE_RESET, vec![]),
        (command::DEVICE_GET_INFO, words(&[16, 0, 0, 0])),
        (command::REGION_WRITE, vec![]),
        (0xFFFF, vec![1, 2, 3]),
    ];
    for (command, payload) in messages {
        let header = Header { flags: Header::NO_REPLY, ..Header::command(1, command, payload.len()) };
        raw.send(&[header.to_bytes().as_slice(), &payload].concat(), &[]);
    }
    assert_eq!(raw.errno(command::DEVICE_RESET, &[], &[]), 0, "the first reply is to this");
    assert_eq!(bench.plain.resets.load(std::sync::atomic::Ordering::SeqCst), 2);
}
