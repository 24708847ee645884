//! The socket: who may come, who is turned away, and what stays when a client goes.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidewater_driver::vfio_user::Socket;
use tidewater_serve::vfio_user::{Server, ServerError};
use tidewater_testkit::PATIENCE;
use tidewater_wire::vfio_user::{Header, command, region};

use crate::vfio_user::support::{Bench, Raw, Shared, eventually};

#[test]
fn the_socket_is_for_its_owner_and_goes_with_the_server() {
    let mut bench = Bench::new();
    let there = std::fs::metadata(&bench.path).expect("a socket");
    assert!(there.file_type().is_socket());
    assert_eq!(there.permissions().mode() & 0o777, 0o600);
    assert_eq!(bench.server.as_ref().map(Server::path), Some(bench.path.as_path()));
    bench.server = None;
    assert!(!bench.path.exists());
    bench.start();
    Socket::connect(&bench.path).expect("a client of the new one");
}

#[test]
fn a_socket_is_replaced_only_if_no_server_listens() {
    let mut bench = Bench::new();
    let again = Server::start(&bench.path, bench.device(), Shared(Arc::clone(&bench.plain)));
    assert!(matches!(again, Err(ServerError::InUse(_))), "{again:?}");
    let mut client = Socket::connect(&bench.path).expect("the first serves on");
    client.reset().expect("a reset");
    bench.server = None;

    // Left behind by a process that was killed.
    drop(UnixListener::bind(&bench.path).expect("a socket"));
    assert!(bench.path.exists());
    bench.start();
    Socket::connect(&bench.path).expect("a client");
    bench.server = None;

    std::fs::write(&bench.path, b"precious").expect("a file");
    let over = Server::start(&bench.path, bench.device(), Shared(Arc::clone(&bench.plain)));
    assert!(matches!(over, Err(ServerError::NoSocket(_))), "{over:?}");
    assert_eq!(std::fs::read(&bench.path).expect("a file"), b"precious");
    let link = bench.folder.path().join("link");
    symlink(bench.folder.path().join("elsewhere"), &link).expect("a link");
    let through = Server::start(&link, bench.device(), Shared(Arc::clone(&bench.plain)));
    assert!(matches!(through, Err(ServerError::NoSocket(_))), "{through:?}");
    assert!(!bench.folder.path().join("elsewhere").exists(), "no link is followed");

    for path in [bench.folder.path().join("no/such/folder"), bench.folder.path().join("n".repeat(200))] {
        let error = Server::start(&path, bench.device(), Shared(Arc::clone(&bench.plain))).expect_err("no place");
        assert!(matches!(error, ServerError::Io("bind", _, _)), "{error}");
    }
}

#[test]
fn one_client_at_a_time() {
    let bench = Bench::new();
    let mut first = Socket::connect(&bench.path).expect("a client");
    for _ in 0..10 {
        Socket::connect(&bench.path).expect_err("it is turned away");
        first.reset().expect("the first stays");
    }
    drop(first);
    // The server sees the end of the first before it sees the second.
    Socket::connect(&bench.path).expect("the next one");
}

#[test]
fn registers_stay_when_a_client_goes_and_the_next_comes() {
    let bench = Bench::new();
    for round in 0..20u8 {
        let mut client = Socket::connect(&bench.path).expect("a client");
        let mut bytes = [0; 4];
        client.read(region::BAR0, 0x14, &mut bytes).expect("a read");
        assert_eq!(bytes, [round; 4]);
        client.write(region::BAR0, 0x14, &[round + 1; 4]).expect("a write");
        assert_eq!(bench.connection().memory().len(), 0);
        drop(client);
        eventually("the loss of the client", || bench.plain.disconnects.load(Ordering::SeqCst) == u32::from(round) + 1);
    }
    let mut client = Socket::connect(&bench.path).expect("a client");
    client.reset().expect("a reset");
    assert_eq!(client.read_u32(region::BAR0, 0x14).expect("a read"), 0);
}

#[test]
fn clients_that_go_at_any_point_leave_a_server_that_serves() {
    let bench = Bench::new();
    let version = [Header::command(1, command::VERSION, 4).to_bytes().as_slice(), &[0, 0, 1, 0]].concat();
    let payload = [0u8; 20];
    let write = [Header::command(2, command::REGION_WRITE, payload.len()).to_bytes().as_slice(), &payload].concat();
    let whole = [version, write].concat();
    for end in 0..=whole.len() {
        let mut raw = Raw::connect(&bench);
        raw.send(&whole[..end.max(1)], &[]);
        drop(raw);
        let mut client = Socket::connect(&bench.path).expect("the next one");
        client.reset().expect("a reset");
        drop(client);
    }
    // The function was reset once for each version that was agreed on.
    let resets = bench.plain.resets.load(Ordering::SeqCst);
    assert_eq!(resets as usize, whole.len() + 1);
}

#[test]
fn a_server_ends_whatever_its_client_does() {
    for half in [false, true] {
        let mut bench = Bench::new();
        let mut raw = Raw::agreed(&bench);
        if half {
            raw.send(&Header::command(1, command::REGION_WRITE, 100).to_bytes(), &[]);
        }
        let start = Instant::now();
        bench.server = None;
        assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
        assert!(raw.reply().is_none(), "the connection is closed");
        eventually("the end", || bench.plain.disconnects.load(Ordering::SeqCst) == 1);
    }
}

/// Fills a connection with replies that are not read.
fn clog(raw: &Raw) {
    let payload = [0u64.to_le_bytes().as_slice(), &2u32.to_le_bytes(), &0x10000u32.to_le_bytes()].concat();
    let read = [Header::command(1, command::REGION_READ, 16).to_bytes().as_slice(), &payload].concat();
    raw.0.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let mut stream: &UnixStream = &raw.0;
    // Until the server, which can't send, does not read any more either.
    while std::io::Write::write_all(&mut stream, &read).is_ok() {}
}

#[test]
fn a_server_ends_though_its_client_reads_no_replies() {
    let mut bench = Bench::new();
    let raw = Raw::agreed(&bench);
    clog(&raw);
    let start = Instant::now();
    bench.server = None;
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn a_client_that_reads_no_replies_is_given_up() {
    let bench = Bench::new();
    let raw = Raw::agreed(&bench);
    clog(&raw);
    eventually("the end of that client", || bench.plain.disconnects.load(Ordering::SeqCst) == 1);
    Socket::connect(&bench.path).expect("the next one");
}
