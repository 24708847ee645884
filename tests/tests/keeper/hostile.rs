//! Keys that a stranger, or a keeper that errs, has written.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidewater_client::mapped::{Log, Options};
use tidewater_tests::run_well;

use crate::cluster::{PATIENCE, append};
use crate::etcd::{Etcd, is_installed};
use crate::kept::Kept;

/// Sets a key by etcd's gateway.
fn put(etcd: &Etcd, key: &str, value: &str) {
    let body = serde_json::json!({ "key": base64(key), "value": base64(value) }).to_string();
    let url = etcd.url();
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let head = format!("POST /v3/kv/put HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("it takes it");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.contains(" 200 "), "{key}: {answer}");
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
    serde_json::json!({
        "node": node, "address": "\u{1b}[2J/x", "role": null, "epoch": "0.0", "synced": "0.0", "promised": promised,
        "tail": [u64::MAX, u64::MAX], "stale": true, "frozen": false, "note": note,
    })
    .to_string()
}

/// The last epoch by a node outside of the group, values of other nodes, 8 MB, and what is no JSON.
#[test]
fn keys_of_strangers_stop_no_promotion_and_are_named() {
    if !is_installed() {
        return tidewater_tests::skipped(1, "no etcd here: install etcd-server");
    }
    let (kept, first) = Kept::formed(2, "eager");
    append(&kept.devices.log(first), 0, PATIENCE).expect("both are there");
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
    let epoch = kept.status()["leader"]["epoch"].as_str().map(str::to_owned).expect("one leads");
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
    let log = Log::open(&etcd.target("tidewater"), Options::default()).expect("the primary's");
    append(&log, 1, PATIENCE).expect("both are there");
    drop(log);
    let device = etcd.target("tidewater");
    let said = run_well(kept.devices.folder.path(), &["tail", "--device", &device]);
    assert_eq!(said.matches(" epoch ").count(), 2, "{said}");
    assert_eq!(kept.primary(|_| true), second);
}
