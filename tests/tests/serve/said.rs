//! Messages of a served device: at its start, by levels while it runs, and to `status --watch`.

use super::*;

#[test]
fn the_start_says_each_thing_once() {
    let folder = folder();
    let hosts = ["--vfio-user", "f0.sock", "--vfio-user", "f1.sock", "--nvme-tcp", "127.0.0.1:0"];
    let served = Served::start(folder.path(), &[&["--image", "drive.img"], hosts.as_slice()].concat());
    let said = served.said.clone();
    for once in [
        "qemu-system-x86_64",
        "f0.sock",
        "PCIe function 1: the same with \"path\":\"f1.sock\"",
        "nvme connect",
        "Control: ",
        "--watch",
        "Durability: flushed and FUA data is in drive.img",
        "write buffer: in [memory.dram], which is volatile",
    ] {
        assert_eq!(said.matches(once).count(), 1, "{once} in {said}");
    }
    assert!(said.ends_with("Stop it with Ctrl-C or SIGTERM.\n"), "{said}");
    let errors = served.errors();
    assert!(errors.starts_with("note: a new drive of ") && errors.lines().count() == 1, "{errors}");
    served.end_well();
}

/// A driver engineer who looks for a host memory buffer reads why there is none, and what has one.
#[test]
fn a_drive_says_whether_it_asks_for_host_memory() {
    let folder = folder();
    let here = folder.path();
    let serve = ["--profile", "ssd-a", "--image", "memory", "--size", "64MiB", "--vfio-user", "v.sock"];
    let asked = |more: &[&str]| {
        let served = Served::start_plain(here, &[&serve[..], more].concat());
        let said = served.said.clone() + &served.errors();
        let page = json(here, &["nvme", "id-ctrl", "vfio-user:v.sock", "--json"]);
        served.end_well();
        (said, page["hmpre"].as_u64().expect("a number"))
    };
    let (said, hmpre) = asked(&[]);
    assert_eq!(hmpre, 0);
    assert!(said.contains("asks hosts for no memory (HMPRE 0)") && !said.contains("mapping cache: in"), "{said}");
    let advice = said.split("For one that does: ").nth(1).and_then(|rest| rest.lines().next()).expect("advice");
    let (said, hmpre) = asked(&advice.split(' ').collect::<Vec<_>>());
    assert_eq!(hmpre, (480 << 20) / 4096);
    assert!(said.contains("the whole mapping table is kept in memory") && !said.contains("HMPRE 0"), "{said}");
}

/// Standard error of a device whose client comes and goes, and whose power is cut.
fn errors(folder: &Path, verbose: &[&str], levels: &str) -> String {
    let errors = File::create(folder.join("stderr")).expect("the folder is writable");
    let mut command = tidewater(folder);
    command.args(PLAIN).args(["--profile", "tiny", "--image", "memory", "--vfio-user", "v.sock"]).args(verbose);
    let served = Served::wait(command.env("RUST_LOG", levels), folder, errors);
    run_well(folder, &["nvme", "id-ctrl", "vfio-user:v.sock"]);
    run_well(folder, &["fault", "power-cut", "--control", "control.sock"]);
    run_well(folder, &["status", "--control", "control.sock"]);
    served.end_well();
    std::fs::read_to_string(folder.join("stderr")).expect("the file can be read")
}

#[test]
fn levels_choose_what_is_said_a_line_each() {
    let folder = folder();
    let plain = errors(folder.path(), &[], "");
    assert!(plain.contains("note: the power was cut: ") && plain.contains("\nnote: the power is back\n"), "{plain}");
    assert!(plain.lines().all(|line| line.starts_with("note: ")), "{plain}");
    let more = errors(folder.path(), &["-v"], "");
    for words in ["debug: a client is attached function=0", "debug: CC is set to 0x", "debug: request of the control"] {
        assert!(more.contains(words), "{words} in {more}");
    }
    assert!(more.contains("note: the power is back"), "{more}");
    let is_timed = |line: &str| line.starts_with("[ ") && line.split_once("] ").is_some();
    assert!(more.lines().all(is_timed), "{more}");
    let some = errors(folder.path(), &[], "tidewater_serve=debug");
    assert!(some.contains("debug: the function is reset function=0") && !some.contains("a new drive"), "{some}");
    assert_eq!(errors(folder.path(), &[], "off"), "");

    let mut wrong = tidewater(folder.path());
    wrong.args(["serve", "--image", "memory", "--vfio-user", "v.sock"]);
    let refused = wrong.env("RUST_LOG", "tidewater=loud").output().expect("the binary starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("RUST_LOG=tidewater=loud") && said.contains("help: give a level"), "{said}");
}

/// Lines of a watch that goes to no terminal; it ends well on Ctrl-C.
fn watched(folder: &Path, more: &[&str]) -> Vec<String> {
    let mut command = tidewater(folder);
    command.args(["status", "--control", "control.sock", "--watch", "50ms"]).args(more);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let seen = lines.by_ref().take(3).collect::<Result<Vec<String>, _>>().expect("it prints UTF-8");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
    assert!(sent.success());
    lines.for_each(drop);
    assert_eq!(child.wait().expect("the process can be waited for").code(), Some(0));
    seen
}

#[test]
fn a_watch_prints_a_line_each_time_and_ends_on_ctrl_c() {
    let folder = folder();
    let served = Served::start(folder.path(), &["--image", "memory", "--nvme-tcp", "127.0.0.1:0"]);
    let (_controller, mut queue) = served.connect();
    write(&mut queue, 0, pattern(1, 4));
    let lines = watched(folder.path(), &[]);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(
            line.starts_with("uptime_s=") && line.contains(" state=serving ") && line.contains(" writes=1 "),
            "{line}"
        );
    }
    for line in watched(folder.path(), &["--json"]) {
        let answer: Value = serde_json::from_str(&line).expect("an object a line");
        assert_eq!((&answer["ok"], &answer["writes"]), (&Value::Bool(true), &Value::from(1)));
    }
    drop(queue);
    served.end_well();
}
