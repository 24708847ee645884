//! Peers that prove who they are.

use super::*;
use crate::peers::authority::{Authority, Validity};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, SignatureScheme};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;
use tempfile::TempDir;
use tidewater_base::Rng;

/// A folder with a CA and certificates of nodes 0 to 2.
struct Certificates {
    folder: TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Certificates {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::create(folder.path(), "test", Validity::days(2)).expect("a CA");
        for node in 0..3 {
            authority.certify(&of(folder.path(), node), node, Validity::days(1), false).expect("a certificate");
        }
        Certificates { folder, authority }
    }

    fn of(&self, node: u8) -> PathBuf {
        of(self.folder.path(), node)
    }

    /// A node's folder with a certificate of this name.
    fn replace(&self, node: u8, name: &str, valid: Validity) {
        let (certificate, key) = self.authority.node(name, valid).expect("a certificate");
        std::fs::write(self.of(node).join(CERTIFICATE_FILE), certificate).expect("a folder");
        std::fs::write(self.of(node).join(KEY_FILE), key).expect("a folder");
    }

    /// What a device would be given, whether it takes it or not.
    fn identity(&self, node: u8, cluster: &str, named: u8) -> Identity {
        Identity::load(&self.of(node), cluster, named).expect("an identity")
    }
}

fn of(folder: &Path, node: u8) -> PathBuf {
    folder.join(format!("node-{node}"))
}

fn secured(setup: PeersSetup, folder: PathBuf) -> PeersSetup {
    PeersSetup { identity: Some(folder), ..setup }
}

fn one_of(certificates: &Certificates) -> Peers {
    bind(&secured(setup(1, &[(0, "127.0.0.1:1".into())]), certificates.of(1)), 1)
}

fn pair(certificates: &Certificates) -> (Peers, Peers) {
    let one = one_of(certificates);
    let zero = bind(&secured(setup(0, &[(1, at(&one))]), certificates.of(0)), 2);
    (zero, one)
}

fn why(peers: &Peers) -> String {
    peers.links().find_map(|link| link.why).unwrap_or_default()
}

/// Polls until both say why they are not connected, in these words, and neither is connected.
fn refused(zero: &mut Peers, one: &mut Peers, at_zero: &str, at_one: &str) {
    until(&mut [zero, one], |all| {
        assert!(all.iter().all(|peers| !is_up(peers)));
        why(all[0]).contains(at_zero) && why(all[1]).contains(at_one)
    });
}

#[test]
fn frames_go_both_ways_over_tls() {
    let certificates = Certificates::new();
    let (mut zero, mut one) = pair(&certificates);
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    assert!(zero.links().chain(one.links()).all(|link| link.encrypted));
    let log: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let data = |offset| frame(0, 1, Body::Data { pulled: false, lane: 1, offset, len: 200_000 });
    (0..20).for_each(|offset| zero.send(&data(offset), &log));
    one.send(&frame(1, 0, Body::KeepAlive), &[]);
    let (mut at_one, mut at_zero) = (Vec::new(), None);
    until(&mut [&mut zero, &mut one], |all| {
        at_zero = at_zero.take().or_else(|| take_frame(all[0]));
        at_one.extend(take_frame(all[1]));
        at_zero.is_some() && at_one.len() == 20
    });
    for (offset, (frame, bytes)) in at_one.into_iter().enumerate() {
        assert!(frame == data(offset as u64) && bytes == log, "{frame:?}");
    }
    assert_eq!(at_zero.map(|(frame, _)| frame.body), Some(Body::KeepAlive));
}

#[test]
fn a_certificate_that_has_expired_is_named_on_both_sides() {
    let past = |certificates: &Certificates, node: u8| {
        let to = SystemTime::now() - Duration::from_secs(60);
        certificates.replace(node, &name("test", node), Validity { from: to - Duration::from_secs(600), to });
    };
    let (said, heard) = ("its certificate expired on ", "refuses this device's certificate, which has expired");
    for (expired, at_zero, at_one) in [(0, heard, said), (1, said, heard)] {
        let certificates = Certificates::new();
        past(&certificates, expired);
        let (mut zero, mut one) = pair(&certificates);
        let note = if expired == 0 { zero.take_note() } else { one.take_note() };
        assert!(matches!(note, Some(Note::Bad(note)) if note.contains("this device's certificate expired on")));
        refused(&mut zero, &mut one, at_zero, at_one);
    }
}

#[test]
fn a_certificate_of_another_ca_is_named_on_both_sides() {
    let (certificates, foreign) = (Certificates::new(), Certificates::new());
    let mut one = one_of(&certificates);
    let mut zero = bind(&secured(setup(0, &[(1, at(&one))]), foreign.of(0)), 2);
    refused(&mut zero, &mut one, "its certificate is of another CA", "refuses this device's certificate");
    // A device that takes all CAs is refused all the same.
    let mixed = std::fs::read_to_string(certificates.folder.path().join(CA_FILE)).expect("a CA")
        + &std::fs::read_to_string(foreign.folder.path().join(CA_FILE)).expect("a CA");
    std::fs::write(foreign.of(0).join(CA_FILE), mixed).expect("a folder");
    let mut zero = bind(&secured(setup(0, &[(1, at(&one))]), foreign.of(0)), 2);
    refused(&mut zero, &mut one, "refuses this device's certificate, which is of another CA", "its certificate is of");
}

#[test]
fn a_certificate_with_another_name_is_refused_in_words_on_both_sides() {
    let certificates = Certificates::new();
    let mut one = one_of(&certificates);
    let mut zero = bind(&secured(setup(0, &[(1, at(&one))]), certificates.of(0)), 2);
    // Node 2's certificate on node 0.
    zero.identity = Some(certificates.identity(2, "test", 2));
    refused(&mut zero, &mut one, "for node 2 and not node 0", "for node 2 and not node 0");
    drop(zero);
    // Of the same CA, for another cluster.
    certificates.replace(0, &name("bank", 0), Validity::days(1));
    let mut zero = bind(&setup(0, &[(1, at(&one))]), 2);
    zero.identity = Some(certificates.identity(0, "bank", 0));
    zero.cluster = "bank".into();
    let words = "for cluster \"test\" and not \"bank\"";
    refused(&mut zero, &mut one, "", "for cluster \"bank\" and not \"test\"");
    // The other side's is wrong, too.
    let mut two = bind(&secured(setup(2, &[(0, "127.0.0.1:1".into())]), certificates.of(2)), 3);
    let mut zero = bind(&setup(0, &[(2, at(&two))]), 2);
    zero.identity = Some(certificates.identity(0, "bank", 0));
    zero.cluster = "bank".into();
    until(&mut [&mut zero, &mut two], |all| {
        assert!(!is_up(all[0]) && !is_up(all[1]));
        why(all[0]).contains(words) || why(all[0]).contains("for cluster \"bank\" and not \"test\"")
    });
}

#[test]
fn neither_side_falls_back_to_plain() {
    let certificates = Certificates::new();
    let plain = |peers: &[(u8, String)], node| bind(&setup(node, peers), node + 1);
    let mut one = one_of(&certificates);
    let mut zero = plain(&[(1, at(&one))], 0);
    let words = "node 1 encrypts, and node 0 does not: start both with --peer-identity";
    refused(&mut zero, &mut one, words, words);
    let mut one = plain(&[(0, "127.0.0.1:1".into())], 1);
    let mut zero = bind(&secured(setup(0, &[(1, at(&one))]), certificates.of(0)), 2);
    let words = "it encrypts, and node 1 does not: start both with --peer-identity";
    refused(&mut zero, &mut one, words, words);
    // Nor does a device that dials a plain one which would take it.
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be had");
    let to = listener.local_addr().expect("it listens").to_string();
    let mut zero = bind(&secured(setup(0, &[(1, to)]), certificates.of(0)), 2);
    let mut stream = None;
    listener.set_nonblocking(true).expect("a socket");
    until(&mut [&mut zero], |_| {
        stream = stream.take().or_else(|| listener.accept().ok());
        stream.is_some()
    });
    let (mut stream, _) = stream.expect("it dials");
    let theirs = Hello { node: 1, to: 0, session: 1, cluster: zero.ours.cluster, ..zero.ours };
    stream.write_all(&Hello { drive: [9; 16], boot: 7, ..theirs }.to_bytes()).expect("it is open");
    until(&mut [&mut zero], |all| why(all[0]).contains("node 0 encrypts, and node 1 does not"));
    assert!(!is_up(&zero));
    // What it sent is TLS, and a refusal: no hello.
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
    let mut sent = [0; 4096];
    let count = stream.read(&mut sent).expect("a handshake");
    assert!(sent[..2] == [22, 3] && !sent[..count].windows(8).any(|bytes| bytes == b"TIDEPEER"));
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn a_peer_without_a_certificate_is_named() {
    let certificates = Certificates::new();
    let mut one = one_of(&certificates);
    let mut config = ClientConfig::clone(&certificates.identity(0, "test", 0).client);
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    let hint = ServerName::try_from("0.tidewater").expect("a name");
    let mut client = ClientConnection::new(config.into(), hint).expect("a client");
    let mut stream = TcpStream::connect(one.address().expect("it listens")).expect("it listens");
    stream.set_nonblocking(true).expect("a socket");
    until(&mut [&mut one], |all| {
        let _ = client.write_tls(&mut stream);
        if client.read_tls(&mut stream).is_ok() {
            let _ = client.process_new_packets();
        }
        why(all[0]).contains("it has no certificate: start it with --peer-identity")
    });
    assert!(!is_up(&one));
}

#[test]
fn an_identity_that_is_not_whole_is_refused_by_name() {
    let certificates = Certificates::new();
    let refused = |cluster: &str, node: u8| {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let setup = secured(PeersSetup { cluster: cluster.into(), ..setup(node, &[]) }, certificates.of(0));
        Peers::bind(&setup, hello(1), waker).map(drop).expect_err("it is refused").to_string()
    };
    assert!(refused("test", 1).contains("node.pem: this certificate is for node 0 and not node 1"));
    assert!(refused("bank", 0).contains("for cluster \"test\" and not \"bank\""));
    let (key, certificate) = (certificates.of(0).join(KEY_FILE), certificates.of(0).join(CERTIFICATE_FILE));
    for mode in [0o640, 0o604] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("our file");
        let said = refused("test", 0);
        assert!(said.contains(&format!("node.key: mode {mode:04o}")) && said.contains("chmod 600"), "{said}");
    }
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("our file");
    let kept = std::fs::read(&key).expect("a key");
    std::fs::copy(certificates.of(1).join(KEY_FILE), &key).expect("our file");
    assert!(refused("test", 0).contains("node.key: it does not go with node.pem"));
    std::fs::write(&key, "no key").expect("our file");
    assert!(refused("test", 0).contains("node.key: no private key in PEM"));
    std::fs::write(&key, kept).expect("our file");
    let foreign = Certificates::new();
    std::fs::copy(foreign.folder.path().join(CA_FILE), certificates.of(0).join(CA_FILE)).expect("our file");
    assert!(refused("test", 0).contains("this certificate is of another CA"));
    std::fs::remove_file(&certificate).expect("our file");
    assert!(refused("test", 0).contains("tidewater cluster identity init"));
}

/// Results of looks at the files, until two in a row have seen the same files.
fn looks(files: &mut Files) -> Vec<Found> {
    (0..3).filter_map(|_| files.look()).collect()
}

#[test]
fn files_that_can_not_be_used_are_named_once_and_whole_ones_are_taken() {
    let certificates = Certificates::new();
    let folder = certificates.of(0);
    let mut files = Files::new(folder.clone(), "test", 0, &certificates.identity(0, "test", 0));
    assert!(looks(&mut files).is_empty(), "they are those in use");
    let (key, pem) = (folder.join(KEY_FILE), folder.join(CERTIFICATE_FILE));
    let kept = [&key, &pem].map(|file| std::fs::read(file).expect("it was made"));
    let write = |file: &Path, content: &[u8]| std::fs::write(file, content).expect("our file");
    let past = SystemTime::now() - Duration::from_secs(60);
    let early = SystemTime::now() + Duration::from_secs(3600);
    let made = |name: &str, from: SystemTime, to: SystemTime| {
        let (pem, key) = certificates.authority.node(name, Validity { from, to }).expect("a certificate");
        (pem.into_bytes(), key.into_bytes())
    };
    let own = name("test", 0);
    let (expired, expired_key) = made(&own, past - Duration::from_secs(60), past);
    let (soon, soon_key) = made(&own, early, early + Duration::from_secs(60));
    let (others, others_key) = made(&name("test", 1), past, early);
    for (content, of_key, words) in [
        (&kept[1][..kept[1].len() / 2], &kept[0][..], "node.pem: no certificate in PEM"),
        (&kept[1], b"-----BEGIN PRIVATE KEY-----", "node.key: no private key in PEM"),
        (&expired, &kept[0], "node.key: it does not go with node.pem"),
        (&expired, &expired_key, "this device's certificate expired on"),
        (&soon, &soon_key, "this device's certificate is not valid before"),
        (&others, &others_key, "node.pem: this certificate is for node 1 and not node 0"),
    ] {
        write(&pem, content);
        write(&key, of_key);
        let found = looks(&mut files);
        assert!(matches!(&found[..], [Found::Unusable(why)] if why.contains(words)), "{words}");
        assert!(looks(&mut files).is_empty(), "{words} is named once");
        write(&pem, &kept[1]);
        write(&key, &kept[0]);
        assert!(matches!(looks(&mut files)[..], [Found::Mended]), "{words}");
    }
    std::fs::remove_file(&key).expect("our file");
    assert!(matches!(&looks(&mut files)[..], [Found::Unusable(why)] if why.contains("node.key: No such file")));
    // The first look takes a whole identity, and one at which the files changed once more takes that.
    certificates.authority.certify(&folder, 0, Validity::days(2), true).expect("a certificate");
    let Some(Found::Renewed(first)) = files.look() else { panic!("a whole identity is taken at once") };
    certificates.authority.certify(&folder, 0, Validity::days(3), true).expect("a certificate");
    let found = looks(&mut files);
    assert!(matches!(&found[..], [Found::Renewed(second)] if second.expires > first.expires));
}

#[test]
fn a_renewed_certificate_is_shown_by_new_connections_and_ends_none() {
    let certificates = Certificates::new();
    let (mut zero, mut one) = pair(&certificates);
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    let shown = |peers: &Peers| peers.peers[0].open.as_ref().and_then(Open::certificate);
    let before = [shown(&zero), shown(&one)];
    for node in 0..2 {
        certificates.authority.certify(&certificates.of(node), node, Validity::days(9), true).expect("a certificate");
    }
    until(&mut [&mut zero, &mut one], |all| {
        assert!(all.iter().all(|peers| is_up(peers)), "no connection ends");
        all.iter().all(|peers| peers.identity().is_some_and(|it| it.renewals == 1))
    });
    assert_eq!([shown(&zero), shown(&one)], before);
    let expires = zero.identity().expect("it has one").expires_on();
    assert!(matches!(zero.take_note(), Some(Note::Bad(_))), "it expires within 30 days");
    zero.close(0, "a test");
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    assert!(shown(&zero) != before[0] && shown(&one) != before[1], "both show the ones that expire on {expires}");
}

#[test]
fn an_identity_allows_addresses_beyond_loopback() {
    let certificates = Certificates::new();
    let open = PeersSetup { listen: Some("0.0.0.0:0".parse().expect("an address")), ..setup(0, &[]) };
    let peers = bind(&secured(open, certificates.of(0)), 1);
    assert!(peers.address().is_some());
}

/// Records of TLS that are changed or cut, by seed, from both sides of a connection.
#[test]
fn damaged_records_do_no_harm() {
    const ATTEMPTS: u64 = 60;
    let certificates = Certificates::new();
    let (mut zero, mut one) = pair(&certificates);
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    let address = one.address().expect("it listens");
    let (mut rng, mut ended) = (Rng::new(1, b"damaged records"), 0);
    let mut strangers: Vec<TcpStream> = Vec::new();
    for _ in 0..ATTEMPTS {
        // The first flight of a peer that is none: node 2 of the same CA.
        let mut session = certificates.identity(2, "test", 2).dial().expect("a client");
        let mut flight = Vec::new();
        session.write_tls(&mut flight).expect("memory");
        match rng.below(4) {
            0 => flight.truncate(rng.below(flight.len() as u64) as usize),
            1 => flight.iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
            2 => flight.extend((0..20_000).map(|_| rng.below(256) as u8)),
            _ => {
                let at = rng.below(flight.len() as u64) as usize;
                flight[at] ^= 1 << rng.below(8);
            }
        }
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        let _ = stream.write(&flight);
        strangers.push(stream);
    }
    let log = vec![3; 10_000];
    let mut offset = 0;
    until(&mut [&mut zero, &mut one], |all| {
        assert!(is_up(all[0]) && is_up(all[1]));
        assert!(all[1].strangers.len() <= 16 + 15, "{}", all[1].strangers.len());
        // The connection that is there goes on meanwhile.
        all[0].send(&frame(0, 1, Body::Data { pulled: false, lane: 0, offset, len: 10_000 }), &log);
        while let Some((_, bytes)) = take_frame(all[1]) {
            assert_eq!(bytes, log);
            offset += 1;
        }
        strangers.retain_mut(|stream| {
            let is_open = match stream.read(&mut [0; 4096]) {
                Ok(count) => count > 0,
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            };
            ended += u64::from(!is_open);
            is_open
        });
        ended == ATTEMPTS && offset > 0
    });
}

/// Changed bytes on a connection of two that know each other end it, and it comes back.
#[test]
fn a_changed_byte_ends_the_connection_and_reaches_no_frame() {
    let certificates = Certificates::new();
    let (mut zero, mut one) = pair(&certificates);
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    // Past TLS, onto the socket: a record that neither side has encrypted.
    let record = [&[23, 3, 3, 0, 40][..], &[7; 40]].concat();
    let open = zero.peers[0].open.as_mut().expect("it is connected");
    open.stream.write_all(&record).expect("it is open");
    let mut was_down = false;
    until(&mut [&mut zero, &mut one], |all| {
        while let Some(incoming) = all[1].take() {
            assert!(!matches!(incoming, Incoming::Frame(..)));
            was_down |= matches!(incoming, Incoming::Link { up: false, .. });
        }
        was_down && all.iter().all(|peers| is_up(peers))
    });
}

/// What was refused is read no longer than a reason takes to arrive.
#[test]
fn a_refused_stranger_can_not_send_for_ever() {
    let certificates = Certificates::new();
    let mut one = one_of(&certificates);
    for begin in [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], b"TIDEPEER", &[20, 3, 3, 0, 1, 1]] {
        let mut stream = TcpStream::connect(one.address().expect("it listens")).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        let flood: Vec<u8> = begin.iter().copied().cycle().take(16_386).collect();
        let mut sent = 0;
        until(&mut [&mut one], |_| match stream.write(&flood) {
            Ok(count) => {
                sent += count;
                // Far more than the system's buffers hold.
                assert!(sent < 256 << 20, "{sent} bytes were taken");
                false
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        });
    }
}

#[test]
fn one_address_does_not_keep_out_another() {
    use rustix::net::{AddressFamily, SocketType, bind as bind_socket, connect, socket};
    let certificates = Certificates::new();
    let mut one = one_of(&certificates);
    let to = match one.address().expect("it listens") {
        SocketAddr::V4(to) => to,
        SocketAddr::V6(_) => unreachable!("it is IPv4"),
    };
    // Half a handshake each, from an address that is not the peer's.
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
            bind_socket(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 9), 0)).expect("loopback");
            connect(&socket, &to).expect("it listens");
            TcpStream::from(socket)
        })
        .collect();
    let mut zero = bind(&secured(setup(0, &[(1, at(&one))]), certificates.of(0)), 2);
    until(&mut [&mut zero, &mut one], |all| {
        let most = all[1].strangers.iter().flatten().count();
        assert!(most <= 16, "{most}");
        all.iter().all(|peers| is_up(peers))
    });
    drop(silent);
}
