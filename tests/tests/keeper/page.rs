//! The live page of a cluster, as one keeper serves it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::cluster::etcd::{Etcd, is_installed};
use crate::cluster::{Cluster, PATIENCE};
use tidewater_tests::wait;

/// The next board that a viewer gets.
fn board(port: u16) -> Option<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").ok()?;
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    // The first message says what is watched; those with a number are boards.
    let mut lines = lines.skip_while(|line| !line.starts_with("id:"));
    let text = lines.find_map(|line| line.strip_prefix("data:").map(str::to_owned))?;
    serde_json::from_str(&text).ok()
}

fn until(what: &str, kept: &Cluster, port: u16, is_so: impl Fn(&Value) -> bool) -> Value {
    let else_say = || format!("{what}: {:#?}\n{}", board(port), kept.all_said());
    wait::some(else_say, || board(port).filter(&is_so))
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
        return;
    }
    let (mut kept, first) = Cluster::kept(3, "quorum");
    let viewer = (0..3).find(|node| *node != first).expect("three are there");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    kept.kill_keeper(viewer);
    kept.start_keeper_with(viewer, &["--page", &format!("127.0.0.1:{port}")]);
    let seen = until("the cluster", &kept, port, |seen| seen["tiles"][2][1] == "3");
    assert!(kept.said(viewer).contains(&format!("watch it: http://127.0.0.1:{port}/")), "{}", kept.said(viewer));
    assert_eq!((&seen["tiles"][0][1], &seen["bad"]), (&format!("node {first}").into(), &false.into()), "{seen:#}");
    assert_eq!(seen["tiles"][1][1], "quorum of 2");
    let lease = seen["tiles"][3][1].as_str().and_then(|text| text.strip_suffix(" s")).expect("a time");
    assert!((0.0..=4.0).contains(&lease.parse::<f64>().expect("a number")), "{lease}");
    let status = kept.known();
    let tails = status["members"].as_array().expect("members");
    let tail =
        tails[usize::from(first)]["tail"].as_array().expect("lanes").iter().filter_map(Value::as_u64).sum::<u64>();
    let row = member(&seen, first);
    assert_eq!((row[1].as_str(), row[3].replace(',', "")), ("primary", format!("{tail} bytes")));

    // Its primary goes, with its keeper: another leads, and the page says each step.
    kept.kill(first);
    kept.kill_keeper(first);
    let seen = until("another leader", &kept, port, |seen| {
        let text = seen["events"].to_string();
        text.contains("was promoted: primary of epoch") && seen["bad"] == false
    });
    let events = seen["events"].to_string();
    assert!(events.contains(&format!("node {first}: its keeper is gone")), "{events}");
    assert_eq!(member(&seen, first)[1], "no keeper");
    let next = kept.leader(|node| node != first);
    assert_eq!(seen["tiles"][0][1], format!("node {next}"));
    // A new primary is frozen until its keeper lets it acknowledge.
    until("a primary that acknowledges", &kept, port, |seen| member(seen, next)[1] == "primary");

    kept.ask(&["pause"]);
    let seen = until("a pause", &kept, port, |seen| seen["state"] == "paused");
    assert!(seen["events"].to_string().contains("\"paused\""), "{seen:#}");
}

/// The answer of a keeper to a health check of HTTP/1.0: status and text.
pub fn asked(kept: &Cluster, node: u8, path: &str) -> (u16, String) {
    let said = kept.said(node);
    let at =
        said.split("metrics: http://").nth(1).and_then(|rest| rest.split("/metrics").next()).expect("it says where");
    let mut stream = TcpStream::connect(at).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("the program reads its input");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    let (head, text) = answer.split_once("\r\n\r\n").expect("head and body");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), text.to_owned())
}

#[test]
fn load_balancers_find_the_primary_alone_and_keepers_have_metrics() {
    if !is_installed() {
        return;
    }
    let mut kept = Cluster::new(2);
    let etcd = Etcd::new(kept.folder.path());
    kept.start_keepers(vec![etcd], &["--metrics", "127.0.0.1:0"]);
    let first = kept.keep("eager");
    let next = 1 - first;
    let healthy = |kept: &Cluster| -> Vec<u8> {
        // In this order: one that has become primary meanwhile was none before.
        let all = [first, next].map(|node| (node, asked(kept, node, "/primary").0));
        assert!(all.iter().all(|(_, status)| [200, 503].contains(status)), "{all:?}");
        all.iter().filter(|(_, status)| *status == 200).map(|(node, _)| *node).collect()
    };
    let until = |kept: &Cluster, wanted: u8| {
        wait::until(|| format!("{:?}: {}", healthy(kept), kept.all_said()), || healthy(kept) == [wanted]);
    };
    until(&kept, first);
    assert!(asked(&kept, next, "/primary").1.contains(&format!("follows node {first}")));
    let metric = |kept: &Cluster, node: u8, name: &str| -> f64 {
        let (status, text) = asked(kept, node, "/metrics");
        assert_eq!(status, 200, "{text}");
        let line = text.lines().find(|line| line.starts_with(&format!("tidewater_keeper_{name}{{")));
        let value =
            line.and_then(|line| line.strip_prefix(&format!("tidewater_keeper_{name}{{cluster=\"tidewater\"}} ")));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert_eq!([first, next].map(|node| metric(&kept, node, "leads")), [1.0, 0.0]);
    assert_eq!((metric(&kept, next, "members"), metric(&kept, next, "members_without_keeper")), (2.0, 0.0));
    kept.ask(&["switchover"]);
    until(&kept, next);
    assert_eq!(metric(&kept, first, "leader_changes_total"), 1.0);
    // Its machine is gone: the other one leads again, and misses its keeper.
    kept.kill_keeper(next);
    kept.kill(next);
    let is = |kept: &Cluster, name: &str| metric(kept, first, name);
    wait::until(
        || asked(&kept, first, "/metrics").1,
        || is(&kept, "leader_changes_total") == 2.0 && is(&kept, "members_without_keeper") == 1.0,
    );
    kept.etcd[0].kill();
    wait::until(|| asked(&kept, first, "/metrics").1, || is(&kept, "etcd_silent_seconds") >= 1.0);
}
