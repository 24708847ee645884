//! Keys that a stranger, or a keeper that errs, has written.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use tidewater_client::Level;
use tidewater_client::mapped::{Log, Options};

use crate::cluster::etcd::{Etcd, is_installed};
use crate::cluster::{Cluster, PATIENCE, append};
use tidewater_tests::{run, wait};

/// Sets a key by etcd's gateway.
fn put(etcd: &Etcd, key: &str, value: &str) {
    post(etcd, "kv/put", &json!({ "key": base64(key), "value": base64(value) }));
}

/// An answer of etcd's gateway.
fn post(etcd: &Etcd, what: &str, body: &Value) -> Value {
    let (body, url) = (body.to_string(), etcd.url());
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let head = format!("POST /v3/{what} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()))
        .expect("the server reads the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    let (head, answer) = answer.split_once("\r\n\r\n").expect("head and body");
    assert!(head.contains(" 200 "), "{body}: {head}");
    serde_json::from_str(answer).expect("JSON")
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| char::from(DIGITS[(bits & 63) as usize]);
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let four = [digit(bits >> 18), digit(bits >> 12), digit(bits >> 6), digit(bits)];
        out.extend(four.iter().take(three.len() + 1));
        out.extend(std::iter::repeat_n('=', 3 - three.len()));
    }
    out
}

fn member(node: u8, promised: &str, note: &str) -> String {
    json!({
        "node": node, "address": "\u{1b}[2J/x", "role": null, "epoch": "0.0", "synced": "0.0", "promised": promised,
        "tail": [u64::MAX, u64::MAX], "stale": true, "frozen": false, "note": note,
    })
    .to_string()
}

/// The last epoch by a node outside of the group, values of other nodes, 8 MB, and what is no JSON.
#[test]
fn keys_of_strangers_stop_no_promotion_and_are_named() {
    if !is_installed() {
        return;
    }
    let (kept, first) = Cluster::kept(2, "eager");
    append(&kept.log(first), 0, PATIENCE).expect("both nodes acknowledge");
    let etcd = &kept.etcd[0];
    let key = |name: &str| format!("/tidewater/tidewater/{name}");
    put(etcd, &key("members/7"), &member(7, "72057594037927934.7", "\u{1b}]0;own\u{7}"));
    put(etcd, &key("members/5"), &member(0, "72057594037927934.0", ""));
    put(etcd, &key("members/6"), "[[[[");
    put(etcd, &key("reinit/99"), "");
    put(etcd, &key("later/\u{1b}[2J"), "?");
    for node in 8..14 {
        put(etcd, &key(&format!("members/{node}")), &"x".repeat(1_400_000));
    }
    let said = kept.ask(&["switchover"]);
    assert!(said.contains("is primary of epoch"), "{said}");
    let second = 1 - first;
    let epoch = kept.known()["leader"]["epoch"].as_str().map(str::to_owned).expect("one leads");
    let counter: u64 = epoch.split('.').next().and_then(|it| it.parse().ok()).expect("an epoch");
    assert!(counter < 100, "epoch {epoch}");
    let said = kept.ask(&["status"]);
    for expected in [
        "ignored: members/5: its value is of node 0",
        "ignored: members/6: ",
        "ignored: members/13: its value",
        "ignored: members/7: it is no member of the group",
        "later/\u{fffd}[2J",
        concat!("version ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    let ailing: Vec<&str> = said.lines().filter(|line| line.starts_with("etcd: ")).collect();
    assert!(matches!(ailing[..], [one] if one.contains("127.0.0.1:1 ")), "but for one that is not there: {said}");
    // etcd reads 8 MB for an answer of which 1 MiB is taken: on a busy machine for longer than a program waits.
    let log = wait::success("the primary's", || Log::open(&etcd.target("tidewater"), Options::default()));
    append(&log, 1, PATIENCE).expect("both nodes acknowledge");
    drop(log);
    let device = etcd.target("tidewater");
    let said = wait::success("the program reads the log", || {
        let output = run(kept.folder.path(), &["tail", "--device", &device]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(said).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    assert_eq!(said.matches(" epoch ").count(), 2, "{said}");
    assert_eq!(kept.leader(|_| true), second);
}

/// Its revision rose by what its keepers wrote, until that was as high as before: then they took it.
#[test]
fn keepers_that_refuse_an_etcd_write_nothing_to_it() {
    if !is_installed() {
        return;
    }
    let (mut kept, _) = Cluster::kept(2, "eager");
    kept.etcd[0].wipe();
    wait::until(|| kept.all_said(), || (0..2).all(|node| kept.said(node).contains("went back from")));
    let all = post(&kept.etcd[0], "kv/range", &json!({ "key": base64("\0"), "range_end": base64("\0") }));
    assert_eq!((&all["kvs"], &all["header"]["revision"]), (&Value::Null, &json!("1")), "{all}");
    // So it does not say itself what became of it; what a keeper remembers does.
    let until = |more: &[&str], is_so: &dyn Fn(&str) -> bool| {
        let said = || kept.operate(&[&["status"], more].concat());
        wait::until(said, || is_so(&said()));
    };
    until(&[], &|said| said.contains("no group yet") && !said.contains("went back"));
    until(&["--device", "1"], &|said| said.contains("etcd's revision went back from") && said.contains("--new-etcd"));
}

#[test]
fn an_etcd_that_is_full_or_has_no_quorum_is_named() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut etcd = Etcd::three(folder.path());
    let status = |etcd: &[Etcd]| {
        let mut line = vec!["keeper".to_owned()];
        line.extend(Etcd::access(etcd));
        line.push("status".to_owned());
        let output = run(folder.path(), &line.iter().map(String::as_str).collect::<Vec<_>>());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let until = |etcd: &[Etcd], words: &str| wait::until(|| status(etcd), || status(etcd).contains(words));
    assert!(!status(&etcd).contains("writes"), "{}", status(&etcd));
    // As when its quota is used up.
    post(&etcd[0], "maintenance/alarm", &json!({ "action": "ACTIVATE", "alarm": "NOSPACE" }));
    until(&etcd, "takes no writes: its database is full (NOSPACE)");
    etcd[0].kill();
    etcd[1].kill();
    until(&etcd, "has no quorum: too many members of etcd are away for it to take writes");
}

/// Bytes that an etcd which lies sends to each that connects.
#[derive(Clone, Copy)]
enum Lie {
    /// So much once, and then the end.
    Once(fn() -> Vec<u8>),
    /// The first, and then the second again and again.
    Endless(&'static str, fn() -> Vec<u8>),
    /// The same, a byte each 20 ms.
    Drip(&'static str),
    /// Nothing.
    Silence,
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into()
}

/// An answer with the keys `group`, `identity`, `leader` and `members/0`.
fn keys(leader: &str, member: &str) -> Vec<u8> {
    let all = [("group", r#"{"members":[0,1],"mode":"eager"}"#), ("identity", "i"), ("leader", leader)];
    let all = all.into_iter().chain([("members/0", member)]);
    let of = |(key, value): (&str, &str)| {
        let pair = json!({ "key": base64(&format!("/tidewater/tidewater/{key}")), "value": base64(value) });
        json!({ "response_range": { "kvs": [pair] } })
    };
    ok(&json!({ "header": { "cluster_id": "1", "revision": "9" }, "responses": all.map(of).collect::<Vec<_>>() })
        .to_string())
}

fn member_at(address: &str) -> String {
    let epoch = "3.0";
    json!({
        "node": 0, "address": address, "role": "primary", "epoch": epoch, "synced": epoch, "promised": epoch,
        "tail": [0], "stale": false, "frozen": false, "note": "\u{1b}]0;own\u{7}",
    })
    .to_string()
}

const LEADER: &str = r#"{"node":0,"epoch":"3.0"}"#;
const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const LIES: [(&str, Lie); 24] = [
    ("silence", Lie::Silence),
    ("the end", Lie::Once(Vec::new)),
    ("no HTTP", Lie::Once(|| b"SSH-2.0-OpenSSH_9\r\n".to_vec())),
    ("zeroes", Lie::Once(|| vec![0; 1 << 16])),
    ("half a head", Lie::Once(|| b"HTTP/1.1 200 OK\r\nContent-Le".to_vec())),
    ("half a body", Lie::Once(|| b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{".to_vec())),
    ("a head without an end", Lie::Endless("HTTP/1.1 200 OK\r\n", || "X-A: b\r\n".repeat(4_096).into())),
    ("100,000 headers", Lie::Once(|| ["HTTP/1.1 200 OK\r\n", &"A: b\r\n".repeat(100_000), "\r\n"].concat().into())),
    ("a body without an end", Lie::Endless(HEAD, || ["8000\r\n", &" ".repeat(0x8000), "\r\n"].concat().into())),
    ("a body that drips", Lie::Drip(HEAD)),
    ("a head that drips", Lie::Drip("HTTP/1.1 200 OK\r\nX: ")),
    ("6 MB", Lie::Once(|| ok(&format!("{{\"responses\":[\"{}\"]}}", "x".repeat(6 << 20))))),
    ("200,000 brackets", Lie::Once(|| ok(&"[".repeat(200_000)))),
    ("no JSON", Lie::Once(|| ok("\u{1b}[2J\0"))),
    ("another JSON", Lie::Once(|| ok("[null,7]"))),
    ("no answer", Lie::Once(|| ok("{}"))),
    ("keys that are no base64", Lie::Once(|| ok(r#"{"responses":[{"response_range":{"kvs":[{"key":"\u0000!"}]}}]}"#))),
    ("a leader that is none", Lie::Once(|| keys("[[[[", &member_at("/nowhere")))),
    ("a leader of an epoch beyond all", Lie::Once(|| keys(r#"{"node":255,"epoch":"18446744073709551615.255"}"#, "{"))),
    ("a device that is nowhere", Lie::Once(|| keys(LEADER, &member_at("/nowhere/\u{1b}[2J")))),
    ("a device that is a file", Lie::Once(|| keys(LEADER, &member_at("vfio-user:/etc/passwd")))),
    ("a device in this folder", Lie::Once(|| keys(LEADER, &member_at("")))),
    (
        "a redirect to itself",
        Lie::Once(|| b"HTTP/1.1 307 Moved\r\nLocation: /v3\r\nContent-Length: 0\r\n\r\n".to_vec()),
    ),
    ("an error", Lie::Once(|| b"HTTP/1.1 500 \x1b[31mown\r\nContent-Length: 6\r\n\r\n\x1b]0;o\x07".to_vec())),
];

/// An etcd that lies to each that connects, until the test ends. Its address.
fn liar(lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("the socket has an address").to_string();
    let tell = move |mut stream: TcpStream| -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        // It has asked.
        let _ = stream.read(&mut [0; 4096])?;
        match lie {
            Lie::Silence => std::io::copy(&mut stream, &mut std::io::sink()).map(drop),
            Lie::Once(bytes) => stream.write_all(&bytes()),
            Lie::Endless(first, next) => {
                stream.write_all(first.as_bytes())?;
                loop {
                    stream.write_all(&next())?;
                }
            }
            Lie::Drip(first) => {
                stream.write_all(first.as_bytes())?;
                loop {
                    stream.write_all(b"1")?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || tell(stream));
        }
    });
    address
}

/// Of an etcd that lies, a program gets a reason; beside one that does not, it finds the primary.
#[test]
fn programs_and_keepers_go_on_beside_an_etcd_that_lies_or_stop_in_words() {
    if !is_installed() {
        return;
    }
    let (mut kept, first) = Cluster::kept(2, "eager");
    append(&kept.log(first), 0, PATIENCE).expect("both nodes acknowledge");
    let liars = LIES.map(|(name, lie)| (name, liar(lie)));
    // A lane has one client at a time.
    let lane = std::sync::Mutex::new(());
    let real = kept.etcd[0].url();
    let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
    std::thread::scope(|scope| {
        for (name, address) in &liars {
            let (real, lane) = (real.trim_start_matches("http://"), &lane);
            scope.spawn(move || {
                let begin = Instant::now();
                let outcome = Log::open(&format!("cluster:etcd={address}/tidewater"), options);
                let said = outcome.map(drop).expect_err(name).to_string();
                println!("{name}: {} ms: {said:.200}", begin.elapsed().as_millis());
                assert!(!said.contains(|sign: char| sign.is_control()) && said.len() < 10_000, "{name}: {said:?}");
                // One that lies well is believed to be etcd; what it says of devices is not.
                if !name.contains("device") && !name.contains("leader") && !name.contains("base64") {
                    let target = format!("cluster:etcd={address},{real}/tidewater");
                    let _alone = lane.lock();
                    let log = Log::open(&target, options).unwrap_or_else(|why| panic!("{name}: {why}"));
                    drop(log);
                }
            });
        }
    });

    // A keeper that is given them all, and a real one at the end.
    let next = 1 - first;
    kept.kill_keeper(next);
    let all = liars.iter().map(|(_, address)| format!("http://{address}")).chain([real]).collect::<Vec<_>>();
    kept.start_keeper_at(next, &["--etcd".into(), all.join(",")], &[]);
    kept.until_known("its keeper is there", |status| status["members"].as_array().is_some_and(|all| all.len() == 2));
    let said = kept.ask(&["switchover", "--to", &next.to_string(), "--wait", "60s"]);
    assert!(said.contains("is primary of epoch"), "{said}");
    append(&kept.log(next), 1, PATIENCE).expect("both nodes acknowledge");
    assert!(!kept.said(next).contains(['\u{1b}', '\u{7}']), "{:?}", kept.said(next));
}
