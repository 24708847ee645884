//! What hosts may do that is less common: reserved data pointers, queues that come back, an identifier that is used
//! again, no name.

use crate::nvme_tcp::hostile::still_works;
use crate::nvme_tcp::mock::{ASYNC_EVENT_REQUEST, BLOCK, SUBSYSTEM, Served, VENDOR_SILENT, host, nqn, options};
use crate::nvme_tcp::raw::{PLAIN, Raw, Reply, connect_command, connect_data};
use tidewater_driver::nvme_tcp::{Controller, Transfer, discover};
use tidewater_serve::nvme_tcp::{HostRule, Hosts};
use tidewater_testkit::PATIENCE;
use tidewater_wire::fabrics::{
    self, CONTROLLER_ANY, ConnectData, DataPointer, Fabrics, Parameter, PropertyGet, PropertySet, Response, property,
};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::Pdu;

const KEEP_ALIVE: u8 = 0x18;
const ABORT: u8 = 0x08;

/// Data pointers of commands that move no data: byte 1, and bytes 24 to 39 of the entry.
fn pointers() -> Vec<(&'static str, Sqe)> {
    let sqe = |psdt: u32, word: u32, descriptor: u32| {
        Sqe::default().with_dword(0, psdt << 14).with_dword(8, word).with_dword(9, descriptor << 24)
    };
    vec![
        ("as most hosts have it", sqe(1, 0, 0x5A)),
        ("byte 1 and the descriptor are zero", sqe(0, 0, 0)),
        ("a descriptor of zeroes", sqe(1, 0, 0)),
        ("byte 1 is zero", sqe(0, 0, 0x5A)),
        ("a type that does not exist, and a length", sqe(3, u32::MAX, 0xFF)),
        ("a length that is more than any transfer", sqe(1, u32::MAX, 0x5A)),
    ]
}

fn with_pointer(sqe: Sqe, pointer: &Sqe) -> Sqe {
    let flags = pointer.dwords()[0] & 3 << 14;
    let sqe = sqe.with_dword(0, sqe.dwords()[0] & !(3 << 14) | flags);
    (6..10).fold(sqe, |sqe, at| sqe.with_dword(at, pointer.dwords()[at]))
}

fn opcode(opcode: u8, cid: u16) -> Sqe {
    Sqe::default().with_dword(0, u32::from(opcode) | u32::from(cid) << 16)
}

fn call(raw: &mut Raw, sqe: Sqe) -> Response {
    raw.send(&Pdu::CapsuleCmd(sqe), &[]);
    let response = raw.response();
    assert_eq!(response.cid, sqe.cid());
    response
}

fn get(offset: u32, cid: u16) -> Sqe {
    DataPointer::Transport { len: 0 }.put(Fabrics::PropertyGet(PropertyGet { offset, len: 4 }).emit(cid))
}

#[test]
fn what_moves_no_data_is_taken_whatever_its_data_pointer_says() {
    let served = Served::start(options(), 8);
    for (what, pointer) in pointers() {
        let mut admin = Raw::initialized(served.address, PLAIN);
        admin.send(&Pdu::CapsuleCmd(connect_command(0)), &connect_data(CONTROLLER_ANY).to_bytes());
        let id = admin.response().value as u16;
        let enable = PropertySet { offset: property::CC, len: 4, value: 0x0046_0001 };
        let of = |sqe: Sqe| with_pointer(sqe, &pointer);
        assert_eq!(call(&mut admin, of(Fabrics::PropertySet(enable).emit(1))).status, Status::SUCCESS, "{what}");
        let get = PropertyGet { offset: property::CSTS, len: 4 };
        let status = call(&mut admin, of(Fabrics::PropertyGet(get).emit(2)));
        assert_eq!((status.status, status.value), (Status::SUCCESS, 1), "{what}");
        assert_eq!(call(&mut admin, of(opcode(KEEP_ALIVE, 3))).status, Status::SUCCESS, "{what}");
        // The mock knows no Abort: it says so, and not that the pointer is wrong.
        assert_eq!(call(&mut admin, of(opcode(ABORT, 4))).status, Status::INVALID_OPCODE, "{what}");
        // It waits, and its controller goes on.
        admin.send(&Pdu::CapsuleCmd(of(opcode(ASYNC_EVENT_REQUEST, 5))), &[]);
        // Set Features of Number of Queues, and of the Keep Alive Timer: some features have data, these do not.
        for (feature, cid) in [(0x07, 6), (0x0F, 7)] {
            let set = opcode(0x09, cid).with_dword(10, feature).with_dword(11, 30_000);
            assert_eq!(call(&mut admin, of(set)).status, Status::SUCCESS, "{what}");
        }
        let mut queue = Raw::initialized(served.address, PLAIN);
        queue.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
        assert_eq!(queue.response().status, Status::SUCCESS);
        assert_eq!(call(&mut queue, of(Sqe::flush(8))).status, Status::SUCCESS, "{what}");
        still_works(&mut queue);
        assert_eq!(call(&mut queue, of(Fabrics::Disconnect.emit(9))).status, Status::SUCCESS, "{what}");
    }
}

/// Data pointers count where data moves.
#[test]
fn what_moves_data_needs_its_data_pointer() {
    let served = Served::start(options(), 8);
    let (mut admin, mut queue) = Raw::queue(served.address, PLAIN);
    let zero = Sqe::default();
    let identify = opcode(0x06, 1).with_dword(10, 1);
    assert_eq!(call(&mut admin, with_pointer(identify, &zero)).status, Status::INVALID_FIELD);
    assert_eq!(call(&mut queue, with_pointer(Sqe::read(2, 0, 0), &zero)).status, Status::INVALID_FIELD);
    assert_eq!(call(&mut queue, with_pointer(Sqe::write(3, 0, 0), &zero)).status, Status::INVALID_FIELD);
    // Connect has data; its byte 1 is reserved.
    let mut raw = Raw::initialized(served.address, PLAIN);
    raw.send(&Pdu::CapsuleCmd(with_pointer(connect_command(0), &zero)), &connect_data(CONTROLLER_ANY).to_bytes());
    assert_eq!(raw.response().status, Status::SGL_TYPE_INVALID);
}

#[test]
fn a_queue_comes_back_as_often_as_it_goes() {
    let served = Served::start(options(), 64);
    let controller = served.controller(&host());
    for round in 0..40 {
        let mut queue = controller.queue(1, 8).unwrap_or_else(|error| panic!("round {round}: {error}"));
        queue.call(Sqe::read(0, 5, 0), Transfer::In(BLOCK as u32)).unwrap().good().unwrap();
        match round % 4 {
            // It is closed; it is disconnected; it is closed with commands under way, and with half a transfer.
            0 => {}
            1 => assert_eq!(queue.call(Fabrics::Disconnect.emit(0), Transfer::None).unwrap().status, Status::SUCCESS),
            2 => {
                queue.submit(opcode(VENDOR_SILENT, 0), Transfer::None).unwrap();
                queue.flush().unwrap();
            }
            _ => {
                queue.submit(Sqe::write(0, 5, 7), Transfer::Out(vec![7; 8 * BLOCK])).unwrap();
                queue.flush().unwrap();
            }
        }
    }
    // Another queue beside it is untouched.
    controller.queue(2, 8).unwrap().call(Sqe::flush(0), Transfer::None).unwrap().good().unwrap();
    drop(controller);
    let (statistics, _) = served.stop();
    assert_eq!((statistics.fatal, statistics.stalled), (0, 0), "{statistics:?}");
}

/// Data of the old queue's commands must not come by the new one: that waits until they have ended.
#[test]
fn a_queue_that_comes_back_waits_for_what_it_left() {
    let served = Served::start(options(), 64);
    let (admin, id) = Raw::admin(served.address, PLAIN);
    for _ in 0..20 {
        let mut old = Raw::initialized(served.address, PLAIN);
        old.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
        assert_eq!(old.response().status, Status::SUCCESS);
        old.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 8_192 }.put(Sqe::write(1, 1, 1))), &[]);
        assert!(matches!(old.receive(), Reply::Pdu(Pdu::R2t(_), _)));
        drop(old);
        let mut new = Raw::initialized(served.address, PLAIN);
        new.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
        assert_eq!(new.response().status, Status::SUCCESS);
        still_works(&mut new);
        // While it stands, there is no second one.
        let mut twice = Raw::initialized(served.address, PLAIN);
        twice.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
        assert_eq!(twice.response().status, Status::COMMAND_SEQUENCE_ERROR);
        still_works(&mut new);
    }
    drop(admin);
    let (_, mock) = served.stop();
    assert_eq!(mock.lost, 20, "each of those writes has failed");
}

/// The subsystem has not said yet that nothing of the queue is left: Connect is neither refused nor answered before.
#[test]
fn a_connect_waits_for_what_the_queue_has_left() {
    let mut target = tidewater_serve::nvme_tcp::Target::bind(options()).unwrap();
    let mut mock = crate::nvme_tcp::mock::Mock::new(8);
    let address = target.addresses()[0];
    let host = std::thread::spawn(move || {
        let (admin, id) = Raw::admin(address, PLAIN);
        let connect = || {
            let mut raw = Raw::initialized(address, PLAIN);
            raw.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
            raw
        };
        let mut old = connect();
        assert_eq!(old.response().status, Status::SUCCESS);
        drop(old);
        (admin, connect())
    });
    let now = tidewater_base::Instant::ZERO;
    let begin = std::time::Instant::now();
    // Connect, Property Set, Connect, Connect.
    while target.statistics().commands < 4 || !host.is_finished() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", target.statistics());
        target.poll(now, &mut mock);
        target.flush();
    }
    let (_admin, mut new) = host.join().unwrap();
    mock.work(&mut target);
    target.poll(now, &mut mock);
    target.flush();
    assert_eq!(new.response().status, Status::SUCCESS);
}

#[test]
fn a_property_command_may_have_the_identifier_of_an_event_request() {
    let served = Served::start(options(), 8);
    let (mut admin, _) = Raw::admin(served.address, PLAIN);
    let wait = DataPointer::Transport { len: 0 }.put(opcode(ASYNC_EVENT_REQUEST, 9));
    admin.send(&Pdu::CapsuleCmd(wait), &[]);
    assert_eq!(call(&mut admin, get(property::CSTS, 9)).value, 1);
    // A host shuts its controller down so.
    let shutdown = PropertySet { offset: property::CC, len: 4, value: 0x0046_4001 };
    let shutdown = DataPointer::Transport { len: 0 }.put(Fabrics::PropertySet(shutdown).emit(9));
    assert_eq!(call(&mut admin, shutdown).status, Status::SUCCESS);
    assert_eq!(call(&mut admin, get(property::CSTS, 9)).value, 1 | 2 << 2);
    // Nothing else may, and no other command is that patient.
    let keep_alive = DataPointer::Transport { len: 0 }.put(opcode(KEEP_ALIVE, 9));
    assert_eq!(call(&mut admin, keep_alive).status, Status::COMMAND_ID_CONFLICT);
    let silent = DataPointer::Transport { len: 0 }.put(opcode(VENDOR_SILENT, 10));
    admin.send(&Pdu::CapsuleCmd(silent), &[]);
    assert_eq!(call(&mut admin, get(property::CSTS, 10)).status, Status::COMMAND_ID_CONFLICT);
}

#[test]
fn a_host_needs_a_name_where_hosts_are_listed_and_an_identifier_everywhere() {
    let connect = |served: &Served, data: &ConnectData| {
        let mut raw = Raw::initialized(served.address, PLAIN);
        raw.send(&Pdu::CapsuleCmd(connect_command(0)), &data.to_bytes());
        let response = raw.response();
        (response.status, response.value as u32)
    };
    let nameless = ConnectData { host: None, ..connect_data(CONTROLLER_ANY) };
    let served = Served::start(options(), 8);
    assert_eq!(connect(&served, &nameless).0, Status::SUCCESS);
    let mut zero = connect_data(CONTROLLER_ANY);
    zero.host_id = [0; 16];
    let invalid = (fabrics::status::INVALID_PARAMETERS, Response::of_parameter(Parameter::HostId) as u32);
    assert_eq!(connect(&served, &zero), invalid);
    assert_eq!((invalid.0.bits() & 0x7FF, invalid.1), (0x182, 1 << 16), "offset 0 of the data");
    zero.subsystem = nqn(fabrics::DISCOVERY_NQN);
    assert_eq!(connect(&served, &zero), invalid);
    drop(served);

    let mut listed = options();
    listed.hosts = Hosts::Listed(vec![HostRule { name: host().name, privileged: false }]);
    let served = Served::start(listed, 8);
    assert_eq!(connect(&served, &nameless).0, fabrics::status::INVALID_HOST);
    assert!(Controller::connect(served.address, &host(), &nqn(SUBSYSTEM)).is_ok());
    assert!(discover(served.address, &host()).is_ok());
}

/// Byte 1 of Fabrics commands is reserved, Connect included.
#[test]
fn connect_needs_no_flag_of_data_pointers() {
    let served = Served::start(options(), 8);
    let bare = |sqe: Sqe| sqe.with_dword(0, sqe.dwords()[0] & !(3 << 14));
    let connect = |queue: u16, id: u16| {
        let mut raw = Raw::initialized(served.address, PLAIN);
        raw.send(&Pdu::CapsuleCmd(bare(connect_command(queue))), &connect_data(id).to_bytes());
        (raw.response(), raw)
    };
    let (response, mut admin) = connect(0, CONTROLLER_ANY);
    assert_eq!(response.status, Status::SUCCESS);
    let enable = PropertySet { offset: property::CC, len: 4, value: 0x0046_0001 };
    assert_eq!(call(&mut admin, Fabrics::PropertySet(enable).emit(1)).status, Status::SUCCESS);
    assert_eq!(connect(1, response.value as u16).0.status, Status::SUCCESS);
    // Its data by an R2T.
    let mut raw = Raw::initialized(served.address, PLAIN);
    let by_transport = DataPointer::Transport { len: ConnectData::SIZE as u32 }.put(connect_command(0));
    raw.send(&Pdu::CapsuleCmd(bare(by_transport)), &[]);
    assert!(matches!(raw.receive(), Reply::Pdu(Pdu::R2t(_), _)));
}

/// One line says what is wrong; many such hosts do not fill a log.
#[test]
fn a_tls_hello_is_named_once_in_a_while() {
    let mut target = tidewater_serve::nvme_tcp::Target::bind(options()).unwrap();
    let mut mock = crate::nvme_tcp::mock::Mock::new(1);
    let address = target.addresses()[0];
    let mut hosts: Vec<Raw> = Vec::new();
    let mut notes = Vec::new();
    let start = std::time::Instant::now();
    for seconds in [1_u64, 2, 3, 30] {
        let mut raw = Raw::open(address);
        raw.send_bytes(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]);
        hosts.push(raw);
        let now = tidewater_base::Instant::ZERO + tidewater_base::Duration::from_ms(1_000 * seconds);
        while target.statistics().fatal < hosts.len() as u64 {
            assert!(start.elapsed() < PATIENCE, "{:?}", target.statistics());
            target.poll(now, &mut mock);
            target.flush();
        }
        notes.extend(target.take_note());
    }
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("127.0.0.1:") && notes[0].contains("TLS is not supported"), "{}", notes[0]);
}
