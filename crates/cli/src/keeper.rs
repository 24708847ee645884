//! `tidewater cluster keeper`: hands its arguments to the program `tidewater-keeper`, which alone has what etcd takes.

use crate::args::keeper::{KeeperArgs, KeeperCommand, KeeperProgram, KeeperRun};
use crate::args::log_device::CONTROL;
use crate::args::peers::GroupIfAny;
use crate::args::served::Served;
use crate::failure::Failure;
use crate::{group, socket};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidewater_base::Duration;
use tidewater_wire::replication::{Epoch, Group, Mode};

/// The program.
const PROGRAM: &str = "tidewater-keeper";

/// `tidewater cluster keeper`.
///
/// # Errors
/// Arguments that can't be, or no such program.
pub fn command(of: &KeeperArgs) -> Result<(), Failure> {
    let job = job(of)?;
    let path = program();
    let error = Command::new(&path).arg(job.to_string()).exec();
    Err(Failure::run(format_args!("{}: {error}", path.display()))
        .help(format_args!("install {PROGRAM} beside tidewater; the packages and `make install` have it")))
}

/// Where it is: beside this one, else in the path.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PROGRAM.into())
}

fn ms(time: Duration) -> u64 {
    time.as_ns() / 1_000_000
}

/// What it is asked to do.
fn job(of: &KeeperArgs) -> Result<Value, Failure> {
    if of.cluster.is_empty() || of.cluster.contains(['/', ':']) {
        let wrong = Failure::usage(format_args!("`{}` is no name of a cluster", of.cluster));
        return Err(wrong.help("use no slash and no colon"));
    }
    if of.etcd_ca.is_none() && of.etcd.iter().any(|url| url.starts_with("https://")) {
        return Err(Failure::usage("https:// without the CA of etcd's certificate").help("give its file by --etcd-ca"));
    }
    if of.etcd_ca.is_some() && of.etcd.iter().any(|url| !url.starts_with("https://")) {
        return Err(Failure::usage("--etcd-ca with an address that is not encrypted").help("begin each with https://"));
    }
    let mut job = match &of.what {
        KeeperCommand::Run(run) => json!({ "do": "run", "keep": keep(run, of.function) }),
        KeeperCommand::Status { served, json } => {
            // One that was not named may be another cluster's.
            let state = served.device.as_ref().map(|_| beside(&control(served), "keeper", "json", of.function));
            json!({ "do": "status", "json": json, "state": state })
        }
        KeeperCommand::Switchover { to, wait } => json!({ "do": "switchover", "to": to, "wait_ms": ms(*wait) }),
        KeeperCommand::Pause => json!({ "do": "pause" }),
        KeeperCommand::Resume => json!({ "do": "resume" }),
        KeeperCommand::Reinit { node } => json!({ "do": "reinit", "node": node }),
        KeeperCommand::Group { group } => json!({ "do": "group", "group": group_of(group)? }),
        KeeperCommand::Program(KeeperProgram { served, standby, stop_signal, command }) => json!({
            "do": "program",
            "program": {
                "socket": program_socket(&control(served), of.function),
                "command": command, "standby": standby, "signal": stop_signal,
            },
        }),
    };
    if let KeeperCommand::Program(_) = of.what {
        return Ok(job);
    }
    job["at"] = json!({
        "etcd": of.etcd, "cluster": of.cluster, "function": of.function, "user": of.etcd_user,
        "ca": of.etcd_ca, "cert": of.etcd_cert, "key": of.etcd_key,
    });
    Ok(job)
}

/// The control socket of a device, which may not have been started yet.
fn control(served: &Served) -> PathBuf {
    let control = match &served.device {
        Some(folder) if !folder.exists() && folder.extension().is_none() => folder.join(CONTROL),
        _ => socket::control_socket(served),
    };
    std::path::absolute(&control).unwrap_or(control)
}

/// A file of this function's keeper, beside the control socket.
fn beside(control: &Path, name: &str, ending: &str, function: u8) -> PathBuf {
    control.with_file_name(match function {
        0 => format!("{name}.{ending}"),
        function => format!("{name}-{function}.{ending}"),
    })
}

/// The socket of the supervisor of a device's program.
fn program_socket(control: &Path, function: u8) -> PathBuf {
    beside(control, "program", "sock", function)
}

/// A device and how it is kept.
fn keep(run: &KeeperRun, function: u8) -> Value {
    let control = control(&run.served);
    let folder = control.parent().map(PathBuf::from).unwrap_or_default();
    json!({
        "control": control,
        "address": run.address.clone().unwrap_or_else(|| folder.display().to_string()),
        "state": run.state.clone().unwrap_or_else(|| beside(&control, "keeper", "json", function)),
        "ttl_ms": ms(run.ttl),
        "loop_wait_ms": ms(run.loop_wait),
        "retry_timeout_ms": ms(run.retry_timeout),
        "slow_disk_ms": run.slow_disk.map(ms),
        "new_etcd": run.new_etcd,
        "page": run.page,
        "metrics": run.metrics,
        "program": run.program.then(|| program_socket(&control, function)),
        "stop_ms": ms(run.program_stop),
    })
}

/// The group that is to be set: one that can be.
fn group_of(group: &GroupIfAny) -> Result<Value, Failure> {
    let Some(of) = group.group() else { return Ok(Value::Null) };
    let (mode, k) = group::mode_of(of.mode, of.quorum, of.members.len());
    let checked = match k {
        0 => Mode::Eager,
        k => Mode::Quorum(k),
    };
    Group::new(Epoch::ZERO, checked, &of.members).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(json!({ "members": of.members, "mode": mode, "k": k }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    fn job_of(line: &[&str]) -> Result<Value, Failure> {
        match Cli::try_parse_from(["tidewater", "keeper"].iter().chain(line)).unwrap().command {
            Command::Keeper(of) => job(&of),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_group_that_can_not_be_is_refused_before_it_is_written() {
        let good = job_of(&["group", "--members", "0,1,2", "--mode", "quorum", "--cluster", "c"]).unwrap();
        assert_eq!(good["group"], json!({ "members": [0, 1, 2], "mode": "quorum", "k": 2 }));
        assert_eq!(good["at"]["cluster"], "c");
        for wrong in [
            &["group", "--members", "0,0", "--mode", "eager"][..],
            &["group", "--members", "0,1", "--mode", "quorum", "--quorum", "3"],
            &["group", "--cluster", "a/b"],
            &["group", "--cluster", "a:1"],
            &["group", "--etcd", "https://10.0.0.9:2379"],
            &["group", "--etcd", "http://10.0.0.9:2379", "--etcd-ca", "ca.pem"],
        ] {
            assert!(job_of(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(job_of(&["group"]).unwrap()["group"], Value::Null);
    }

    #[test]
    fn a_keeper_has_its_files_beside_the_devices_socket() {
        let folder = tempfile::tempdir().unwrap();
        let job = job_of(&["run", "--device", folder.path().to_str().unwrap(), "--ttl", "20s"]).unwrap();
        assert_eq!(job["keep"]["control"], json!(folder.path().join("control.sock")));
        assert_eq!(job["keep"]["state"], json!(folder.path().join("keeper.json")));
        let line = ["run", "--device", folder.path().to_str().unwrap(), "--function", "1"];
        let other = job_of(&line).unwrap();
        assert_eq!(other["keep"]["state"], json!(folder.path().join("keeper-1.json")));
        assert_eq!(other["at"]["function"], 1);
        assert_eq!(job["keep"]["program"], Value::Null);
        let other = job_of(&[&line[..], &["--program"]].concat()).unwrap();
        let program = job_of(&["program", "--device", line[2], "--function", "1", "--", "app", "-x"]).unwrap();
        assert_eq!(other["keep"]["program"], json!(folder.path().join("program-1.sock")));
        assert_eq!(other["keep"]["program"], program["program"]["socket"]);
        assert_eq!(program["program"]["command"], json!(["app", "-x"]));
        assert_eq!((&job["keep"]["ttl_ms"], &job["keep"]["loop_wait_ms"]), (&json!(20_000), &json!(1_000)));
    }
}
