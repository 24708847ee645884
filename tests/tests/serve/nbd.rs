//! A served drive as a network block device: what the tools of others make of it.

use super::*;

/// Where the device says that it serves NBD.
fn uri(served: &Served) -> String {
    served.between("nbdinfo --list '", "'").to_owned()
}

/// Runs a tool of others, and expects that it ends well; `None`: it is not here.
fn tool(folder: &Path, name: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(name).args(arguments).current_dir(folder).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(1, &format!("no {name} here (qemu-utils, libnbd-bin, fio)"));
            return None;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name} {arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

#[test]
fn an_address_of_nbd_is_a_socket_or_loopback() {
    let folder = folder();
    let serve = |address: &'static str| ["serve", "--profile", "tiny", "--image", "memory", "--nbd", address];
    for wrong in ["unix:", "localhost:10809", "/run/nbd.sock"] {
        refused_with_help(folder.path(), &serve(wrong), 2, &["--nbd", wrong]);
    }
    let arguments = [&serve("0.0.0.0:0")[..], &["--control", "control.sock"]].concat();
    refusal(folder.path(), &arguments, 2, &["0.0.0.0:0 is not a loopback address", "unix:PATH"]);
    std::fs::write(folder.path().join("a-file"), "").expect("the folder is writable");
    let arguments = [&serve("unix:a-file")[..], &["--control", "control.sock"]].concat();
    refusal(folder.path(), &arguments, 2, &["a-file", "not a socket"]);
}

#[test]
fn tools_of_others_use_a_drive_by_nbd() {
    let folder = folder();
    let here = folder.path();
    for address in ["unix:nbd.sock", "127.0.0.1:0"] {
        let served = Served::start(here, &["--image", "memory", "--nbd", address]);
        let uri = uri(&served);
        if let Some(said) = tool(here, "nbdinfo", &["--json", "--list", &uri]) {
            let exports: Value = serde_json::from_str(&said).expect("nbdinfo prints JSON");
            let export = &exports["exports"][0];
            assert_eq!((&export["export-name"], &export["block_size_minimum"]), (&"1".into(), &4_096.into()), "{said}");
            let offers = ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"];
            assert!(offers.iter().all(|offer| export[offer] == true), "{said}");
            assert!(["is_read_only", "is_rotational"].iter().all(|not| export[not] == false), "{said}");
        }
        let steps = [
            "write -P 0x5a 0 1M",
            "write -f -P 0x17 1M 4M",
            "flush",
            "discard 64k 64k",
            "write -z 128k 64k",
            "read -P 0x5a 0 64k",
            "read -P 0 64k 128k",
            "read -P 0x5a 192k 832k",
            "read -P 0x17 1M 4M",
        ];
        let steps: Vec<&str> = steps.iter().flat_map(|step| ["-c", step]).collect();
        if let Some(said) = tool(here, "qemu-io", &[&["-f", "raw"], &steps[..], &[&uri]].concat()) {
            assert!(!said.contains("failed"), "{said}");
        }
        let job = "--name=verify --ioengine=nbd --rw=randwrite --bsrange=4k-256k --iodepth=16 --size=4m \
                   --verify=crc32c --verify_fatal=1 --do_verify=1 --fsync=16 --output-format=terse";
        let uri_of_fio = format!("--uri={uri}");
        let arguments: Vec<&str> = job.split_whitespace().chain([uri_of_fio.as_str()]).collect();
        tool(here, "fio", &arguments);
        served.end_well();
        assert!(!here.join("nbd.sock").exists());
    }
}

/// A write is in the trace and the commands are seen, as those of other hosts are.
#[test]
fn commands_of_nbd_are_seen_like_those_of_other_hosts() {
    let folder = folder();
    let here = folder.path();
    let more = ["--trace", "seen.iolog", "--commands", "seen.txt"];
    let served = Served::start(here, &[&["--image", "memory", "--nbd", "unix:nbd.sock"], &more[..]].concat());
    let address = tidewater_serve::nbd::Address::Unix(here.join("nbd.sock"));
    let mut client = tidewater_testkit::served::NbdClient::of(&address, "");
    client.write(8_192, &[7; 4_096]).expect("a write");
    client.flush().expect("a flush");
    drop(client);
    assert_eq!(json(here, &["status", "--json", "--control", "control.sock"])["writes"], 1);
    served.end_well();
    let seen = std::fs::read_to_string(here.join("seen.txt")).expect("the commands are written");
    assert!(seen.contains("function=1, qid=1, ") && seen.contains("cmd=(Write slba=2, blocks=1"), "{seen}");
    let trace = std::fs::read_to_string(here.join("seen.iolog")).expect("the trace is written");
    assert!(trace.lines().any(|line| line.ends_with(" write 8192 4096")), "{trace}");
}
