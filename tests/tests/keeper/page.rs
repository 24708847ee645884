//! The live page of a cluster, as one keeper serves it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use serde_json::Value;

use crate::cluster::PATIENCE;
use crate::etcd::is_installed;
use crate::kept::Kept;

/// What a viewer sees, the next time that a board comes.
fn board(port: u16) -> Option<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").ok()?;
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    // The first message says what is watched; those with a number are boards.
    let mut lines = lines.skip_while(|line| !line.starts_with("id:"));
    let text = lines.find_map(|line| line.strip_prefix("data:").map(str::to_owned))?;
    serde_json::from_str(&text).ok()
}

fn until(what: &str, kept: &Kept, port: u16, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let seen = board(port);
        match seen {
            Some(seen) if is_so(&seen) => return seen,
            seen => assert!(start.elapsed() < PATIENCE, "{what}: {seen:#?}\n{}", kept.all_said()),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The cells of a member's row.
fn member(board: &Value, node: u8) -> Vec<String> {
    let rows = board["tables"][0]["rows"].as_array().expect("rows");
    let text = |cell: &Value| cell["text"].as_str().expect("a text").to_owned();
    let rows = rows.iter().map(|row| row.as_array().expect("cells").iter().map(text).collect::<Vec<String>>());
    rows.into_iter().find(|row| row[0] == node.to_string()).expect("a row")
}

#[test]
fn a_page_shows_leader_lease_members_and_a_failover() {
    if !is_installed() {
        return tidewater_tests::skipped(1, "no etcd here: install etcd-server");
    }
    let (mut kept, first) = Kept::formed(3, "quorum");
    let viewer = (0..3).find(|node| *node != first).expect("three are there");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    kept.kill_keeper(viewer);
    kept.start_keeper(viewer, &["--page", &format!("127.0.0.1:{port}")]);
    let seen = until("the cluster", &kept, port, |seen| seen["tiles"][2][1] == "3");
    assert!(kept.said(viewer).contains(&format!("watch it: http://127.0.0.1:{port}/")), "{}", kept.said(viewer));
    assert_eq!((&seen["tiles"][0][1], &seen["bad"]), (&format!("node {first}").into(), &false.into()), "{seen:#}");
    assert_eq!(seen["tiles"][1][1], "quorum of 2");
    let lease = seen["tiles"][3][1].as_str().and_then(|text| text.strip_suffix(" s")).expect("a time");
    assert!((0.0..=4.0).contains(&lease.parse::<f64>().expect("a number")), "{lease}");
    let status = kept.status();
    let tails = status["members"].as_array().expect("members");
    let tail =
        tails[usize::from(first)]["tail"].as_array().expect("lanes").iter().filter_map(Value::as_u64).sum::<u64>();
    let row = member(&seen, first);
    assert_eq!((row[1].as_str(), row[3].replace(',', "")), ("primary", format!("{tail} bytes")));

    // Its primary goes, with its keeper: another leads, and the page says each step.
    kept.devices.kill(first);
    kept.kill_keeper(first);
    let seen = until("another leader", &kept, port, |seen| {
        let text = seen["events"].to_string();
        text.contains("was promoted: primary of epoch") && seen["bad"] == false
    });
    let events = seen["events"].to_string();
    assert!(events.contains(&format!("node {first}: its keeper is gone")), "{events}");
    assert_eq!(member(&seen, first)[1], "no keeper");
    let next = kept.primary(|node| node != first);
    assert_eq!(seen["tiles"][0][1], format!("node {next}"));
    // A new primary is frozen until its keeper lets it acknowledge.
    until("a primary that acknowledges", &kept, port, |seen| member(seen, next)[1] == "primary");

    kept.ask(&["pause"]);
    let seen = until("a pause", &kept, port, |seen| seen["state"] == "paused");
    assert!(seen["events"].to_string().contains("\"paused\""), "{seen:#}");
}
