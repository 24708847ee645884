//! Servers as systemd runs them on a log device, without systemd: the `ExecStart` lines of `packaging/systemd` and of
//! docs/guide/existing-servers.md, with folders of their own in place of the system's, as a user other than root.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use tidewater_tests::databases::process::{User, as_user, kill_tree, signal};
use tidewater_tests::databases::{postgresql, program};
use tidewater_tests::{PATIENCE, binary, compile, install, root, skipped, wait};

/// The units of the package.
const UNITS: [&str; 4] =
    ["tidewater.service", "tidewater-log@.service", "tidewater-keeper@.service", "tidewater-program@.service"];
/// Restrictions of each of them, besides its address families and `SystemCallFilter`.
const RESTRICTIONS: [&str; 18] = [
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "MemoryDenyWriteExecute=yes",
    "CapabilityBoundingSet=",
    "SystemCallErrorNumber=EPERM",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
];

/// The page, or a unit.
fn text_of(file: &str) -> String {
    fs::read_to_string(root().join(file)).expect("the file can be read").replace("\\\n", " ")
}

/// The command of `ExecStart`, in the part of a text behind `heading`.
fn exec_start(text: &str, heading: &str) -> String {
    let part = &text[text.find(heading).expect("the text has the section")..];
    let lines = part.lines().filter_map(|line| line.trim().strip_prefix("ExecStart="));
    lines.map(str::to_owned).find(|line| !line.is_empty()).expect("the unit has a command")
}

/// A file system's folders that a service uses, for a user who is not root.
struct Machine {
    folder: TempDir,
    user: Option<User>,
}

impl Machine {
    /// `None`: the users are not here.
    fn new(users: &[&str]) -> Option<Machine> {
        let user = match users.iter().find_map(|user| User::instead_of_root(user).ok()) {
            Some(user) => user,
            None => {
                skipped(1, &format!("no user {}", users.join(" or ")));
                return None;
            }
        };
        // Sockets have short paths.
        let machine = Machine { folder: tempfile::Builder::new().prefix("tw").tempdir_in("/tmp").expect("/tmp"), user };
        machine.own(machine.folder.path());
        for name in ["tidewater", "libtidewater_shim.so"] {
            install(&binary().with_file_name(name), &machine.path(name));
        }
        Some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn own(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user.uid), Some(user.gid)).expect("root can change the owner");
        }
    }

    /// A program as the service's user.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env("LC_ALL", "C");
        if let Some(user) = self.user {
            as_user(&mut command, user);
        }
        command
    }

    /// A line with paths of this machine in place of those that it has.
    fn here(&self, line: &str, places: &[(&str, &Path)]) -> String {
        let mut line = line.to_owned();
        for (from, to) in places {
            assert!(line.contains(from), "{from} is not in {line}");
            line = line.replace(from, to.to_str().expect("UTF-8"));
        }
        let foreign = ["/var/", "/etc/", "/run/", "%", "@"].iter().find(|part| line.contains(**part));
        assert_eq!(foreign, None, "{line}");
        line
    }

    /// Starts a service of `Type=notify` by its line, and waits until it reports that it is ready.
    fn start(&self, name: &str, line: &str) -> Service {
        let socket = self.path(&format!("{name}.notify"));
        let _ = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).expect("a socket");
        self.own(&socket);
        manager.set_read_timeout(Some(std::time::Duration::from_millis(100))).expect("the time-out is above zero");
        let log = self.path(&format!("{name}.log"));
        let said = OpenOptions::new().create(true).append(true).open(&log).expect("the folder is writable");
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-c", &format!("exec {line}")]).env("NOTIFY_SOCKET", &socket);
        command.stdout(said.try_clone().expect("a descriptor")).stderr(said);
        let mut service = Service { child: command.spawn().expect("sh starts"), log };
        let begin = Instant::now();
        let mut message = [0; 1024];
        loop {
            if let Ok(len) = manager.recv(&mut message)
                && String::from_utf8_lossy(&message[..len]).lines().any(|line| line == "READY=1")
            {
                return service;
            }
            let ended = service.child.try_wait().expect("the process can be polled");
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "{line}: {ended:?}: {}", service.said());
        }
    }

    /// The user's log device, by the unit of the package.
    fn device(&self) -> Service {
        let unit = text_of("packaging/systemd/tidewater-log@.service");
        assert!(unit.contains("\nType=notify\n"), "{unit}");
        let line = exec_start(&unit, "[Service]");
        let places = [
            ("@PREFIX@/bin/tidewater", self.path("tidewater")),
            ("/var/lib/tidewater-%i", self.path("device")),
            ("/run/tidewater-%i/ring", self.path("ring")),
        ];
        let places = places.each_ref().map(|(from, to)| (*from, to.as_path()));
        let service = self.start("device", &self.here(&line, &places));
        UnixStream::connect(self.path("device/vfio.sock")).expect("a device that is ready accepts programs");
        service
    }

    /// The line of a server of the page.
    fn server(&self, heading: &str, places: &[(&str, &Path)]) -> String {
        let page = text_of("docs/guide/existing-servers.md");
        self.here(&exec_start(&page, heading), places)
    }
}

/// A service that runs. It is killed with all its processes when this is dropped.
struct Service {
    child: Child,
    log: PathBuf,
}

impl Service {
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it is so, and the service runs.
    fn until(&mut self, mut is_so: impl FnMut() -> bool) {
        wait::until(
            || "a service is late".into(),
            || {
                let is_so = is_so();
                let ended = self.child.try_wait().expect("the process can be polled");
                assert!(is_so || ended.is_none(), "{ended:?}: {}", self.said());
                is_so
            },
        );
    }

    /// SIGKILL for all its processes.
    fn kill(&mut self) {
        kill_tree(&[self.child.id()]);
        let _ = self.child.wait();
    }

    /// Stops it by the signal of `systemctl stop`.
    fn stop(&mut self) {
        signal(self.child.id(), nix::sys::signal::Signal::SIGTERM);
        let status = self.child.wait().expect("the process can be waited for");
        assert!(status.success(), "{status}: {}", self.said());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.kill();
        }
    }
}

/// Runs a command to its end; its standard output.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_cluster_of_postgresql_starts_by_its_drop_in_and_recovers() {
    let Some(postgres) = postgresql::tool("postgres") else {
        return skipped(1, "apt-get install postgresql");
    };
    let Some(machine) = Machine::new(&["postgres"]) else { return };
    let bin = postgres.parent().expect("a folder");
    // /usr/lib/postgresql/VERSION/bin
    let version = bin.parent().and_then(Path::file_name).and_then(OsStr::to_str).expect("a folder of Debian's");
    let (data, conf_root) = (machine.path("data"), machine.path("conf"));
    let conf = conf_root.join(version).join("main/postgresql.conf");
    fs::create_dir_all(conf.parent().expect("a folder")).expect("the folder is writable");
    said(machine.command(&bin.join("initdb")).args(["-A", "trust", "-U", "me", "-D"]).arg(&data));
    let settings = format!(
        "data_directory = '{}'\nlisten_addresses = ''\nunix_socket_directories = '{}'\n",
        data.display(),
        machine.folder.path().display()
    );
    fs::write(&conf, settings).expect("the folder is writable");
    let line = machine.server(
        "## PostgreSQL",
        &[
            ("/usr/bin/tidewater", &machine.path("tidewater")),
            ("/var/lib/tidewater-postgres", &machine.path("device")),
            ("/var/lib/postgresql/15/main", &data),
            ("/usr/lib/postgresql/15/bin/postgres", &postgres),
            ("/etc/postgresql/15/main/postgresql.conf", &conf),
        ],
    );
    let ask = |sql: &str| {
        let mut psql = machine.command(&bin.join("psql"));
        said(psql.args(["-Atq", "-U", "me", "-d", "postgres", "-c", sql, "-h"]).arg(machine.folder.path()))
    };
    let mut device = machine.device();
    let mut server = machine.start("server", &line);
    ask("CREATE TABLE account AS SELECT generate_series(1, 1000) id");
    server.kill();
    device.kill();
    // As by the units: the device first.
    let mut device = machine.device();
    let mut server = machine.start("server", &line);
    assert_eq!(ask("SELECT count(*) FROM account"), "1000\n");
    if let Some(control) = program("pg_ctlcluster") {
        // As ExecStop of Debian's unit.
        let mut stop = machine.command(&control);
        stop.args(["--skip-systemctl-redirect", "-m", "fast", &format!("{version}-main"), "stop"]);
        self::said(stop.env("PG_CLUSTER_CONF_ROOT", &conf_root));
        assert!(server.child.wait().expect("the process can be waited for").success(), "{}", server.said());
    } else {
        skipped(1, "apt-get install postgresql-common");
        server.stop();
    }
    let said = server.said();
    let drained = said.lines().rfind(|line| line.starts_with("drained: ")).unwrap_or_default();
    assert!(drained.contains(" on the log, ") && !drained.contains(" 0 files "), "{said}");
    device.stop();
}

/// Redis, started by `line` on a device of its own: its commits outlive both, and a stop drains them.
fn redis(machine: &Machine, line: &str, is_notify: bool) {
    let cli = program("redis-cli").expect("it comes with the server");
    let ask = |words: &[&str]| said(machine.command(&cli).arg("-s").arg(machine.path("redis.sock")).args(words));
    let start = || {
        if is_notify {
            return machine.start("server", line);
        }
        // A container reports nothing.
        let log = machine.path("server.log");
        let out = OpenOptions::new().create(true).append(true).open(&log).expect("the folder is writable");
        let mut shell = Command::new("sh");
        shell.current_dir(machine.folder.path()).args(["-c", &format!("exec {line}")]);
        shell.stdin(Stdio::null()).stdout(out.try_clone().expect("a descriptor")).stderr(out);
        let mut service = Service { child: shell.spawn().expect("sh starts"), log };
        let ping = || machine.command(&cli).arg("-s").arg(machine.path("redis.sock")).arg("ping").output();
        service.until(|| ping().is_ok_and(|output| output.stdout == b"PONG\n"));
        service
    };
    let mut device = machine.device();
    let mut server = start();
    assert_eq!(ask(&["set", "answer", "17"]), "OK\n");
    server.kill();
    device.kill();
    let mut device = machine.device();
    let mut server = start();
    assert_eq!(ask(&["get", "answer"]), "17\n");
    assert_eq!(ask(&["set", "answer", "18"]), "OK\n");
    if is_notify {
        server.stop();
    } else {
        let _ = machine.command(&cli).arg("-s").arg(machine.path("redis.sock")).arg("shutdown").output();
        assert!(server.child.wait().expect("the process can be waited for").success(), "{}", server.said());
    }
    assert!(server.said().contains("drained: 1 file on the log"), "{}", server.said());
    device.stop();
}

/// The settings of a Redis that listens in the machine's folder alone.
fn redis_conf(machine: &Machine) -> PathBuf {
    let (conf, folder) = (machine.path("redis.conf"), machine.folder.path().display());
    let text = format!(
        "port 0\nunixsocket {folder}/redis.sock\ndir {folder}/data\nsave \"\"\nappendonly yes\nappendfsync always\n"
    );
    fs::write(&conf, text).expect("the folder is writable");
    fs::create_dir(machine.path("data")).expect("the folder is writable");
    machine.own(&machine.path("data"));
    conf
}

fn redis_server() -> Option<PathBuf> {
    let server = program("redis-server").filter(|_| program("redis-cli").is_some());
    if server.is_none() {
        skipped(1, "apt-get install redis-server");
    }
    server
}

#[test]
fn redis_starts_by_its_drop_in_and_recovers() {
    let Some(server) = redis_server() else { return };
    let Some(machine) = Machine::new(&["redis", "daemon"]) else { return };
    let conf = redis_conf(&machine);
    let line = machine.server(
        "## Redis",
        &[
            ("/usr/bin/tidewater", &machine.path("tidewater")),
            ("/var/lib/tidewater-redis", &machine.path("device")),
            ("/var/lib/redis", &machine.path("data")),
            ("/usr/bin/redis-server", &server),
            ("/etc/redis/redis.conf", &conf),
        ],
    );
    redis(&machine, &line, true);
}

#[test]
fn redis_runs_in_namespaces_of_its_own_as_in_a_container() {
    let Some(server) = redis_server() else { return };
    let Some(machine) = Machine::new(&["redis", "daemon"]) else { return };
    let Some(user) = machine.user else { return skipped(1, "namespaces of processes need root") };
    let conf = redis_conf(&machine);
    let page = text_of("docs/guide/existing-servers.md");
    let command = page.split(" IMAGE ").nth(1).and_then(|rest| rest.lines().next()).expect("the page runs a container");
    let inside = machine.here(
        command,
        &[
            ("/var/lib/tidewater-redis", &machine.path("device")),
            ("redis-server --dir", &PathBuf::from(format!("{} {} --dir", server.display(), conf.display()))),
            ("/var/lib/redis", &machine.path("data")),
        ],
    );
    let own = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--net", "--ipc"];
    let is_allowed = Command::new(own[0]).args(&own[1..]).arg("true").output().is_ok_and(|done| done.status.success());
    if !is_allowed {
        return skipped(1, "no namespaces (unshare)");
    }
    let line = format!(
        "{} setpriv --reuid {} --regid {} --clear-groups {} {inside}",
        own.join(" "),
        user.uid,
        user.gid,
        machine.path("tidewater").display()
    );
    redis(&machine, &line, false);
}

#[test]
fn systemd_finds_no_fault_in_the_units_and_the_drop_ins() {
    if program("systemd-analyze").is_none() {
        return skipped(1, "apt-get install systemd");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("bin")).expect("a new folder");
    let tidewater = folder.path().join("bin/tidewater");
    File::create(&tidewater).expect("a new folder");
    fs::set_permissions(&tidewater, fs::Permissions::from_mode(0o755)).expect("the mode can be changed");
    let prefix = folder.path().to_str().expect("UTF-8");
    File::create(folder.path().join("bin/tidewater-keeper")).expect("a new folder");
    for name in UNITS {
        let unit = fs::read_to_string(root().join("packaging/systemd").join(name)).expect("the file can be read");
        // A user of this machine.
        let unit = unit.replace("@PREFIX@", prefix).replace("=tidewater\n", "=daemon\n");
        fs::write(folder.path().join(name), unit).expect("the folder is writable");
    }
    // Units as the packages of the databases have them, of which the drop-ins change a part.
    let page = fs::read_to_string(root().join("docs/guide/existing-servers.md")).expect("the file can be read");
    let mut units = UNITS.map(|name| name.replace('@', "@daemon")).to_vec();
    for part in page.split("    sudo tee /etc/systemd/system/").skip(1) {
        let Some((path, rest)) = part.split_once(" <<'END'\n").filter(|(path, _)| !path.contains('\n')) else {
            continue;
        };
        let lines: Vec<&str> = rest.lines().map(str::trim_start).take_while(|line| *line != "END").collect();
        let drop_in = lines.join("\n").replace("/usr/bin/tidewater", tidewater.to_str().expect("UTF-8"));
        // Programs and users that this machine may lack.
        let drop_in = drop_in.replace("/usr/lib/postgresql/15/bin/postgres", "/bin/true");
        let drop_in =
            drop_in.replace("tidewater-log@redis", "tidewater-log@daemon").replace("=postgres\n", "=daemon\n");
        let drop_in = drop_in.replace("tidewater-log@postgres", "tidewater-log@daemon") + "\n";
        let (unit, name) = path.split_once(".d/").expect("a drop-in");
        fs::create_dir_all(folder.path().join(format!("{unit}.d"))).expect("a folder");
        fs::write(folder.path().join(format!("{unit}.d")).join(name), drop_in).expect("the folder is writable");
        fs::write(folder.path().join(unit), "[Service]\nType=forking\nPIDFile=/run/x.pid\nExecStart=/bin/true\n")
            .expect("the folder is writable");
        units.push(unit.to_owned());
    }
    assert_eq!(units.len(), 7, "{units:?}");
    let mut analyze = Command::new("systemd-analyze");
    analyze
        .args(["verify", "--man=no", "--recursive-errors=yes"])
        .args(units.iter().map(|unit| folder.path().join(unit)));
    let output = analyze.env("SYSTEMD_UNIT_PATH", format!("{prefix}:")).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // Of units that the system has, others may be missing.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains(prefix) || line.contains("tidewater")).collect();
    assert!(ours.is_empty(), "{said}");
}

/// systemd gives up after five starts within 10 s, and a start on a disk that is full takes less than one.
#[test]
fn units_are_started_again_until_they_serve() {
    for name in UNITS {
        let unit = text_of(&format!("packaging/systemd/{name}"));
        let (head, service) = unit.split_once("[Service]").expect("the unit has a service section");
        assert!(head.contains("\nStartLimitIntervalSec=0\n"), "{name}");
        assert!(service.contains("\nRestart=") && service.contains("\nRestartSec=1\n"), "{name}");
    }
}

/// The system calls of a set, such as `@system-service`, as systemd has it.
fn calls_of(set: &str) -> BTreeSet<String> {
    let list = said(Command::new("systemd-analyze").args(["syscall-filter", set]));
    let lines = list.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(|line| if line.starts_with('@') { calls_of(line) } else { [line.to_owned()].into() }).collect()
}

/// A program that starts another one under the restrictions of a unit, as far as they are filters of system calls.
/// `None`: a tool is missing.
fn confined(machine: &Machine, name: &str) -> Option<PathBuf> {
    let unit = text_of(&format!("packaging/systemd/{name}"));
    // A server may compile what it executes.
    let is_server = name == "tidewater-program@.service";
    for line in RESTRICTIONS.into_iter().filter(|line| !is_server || *line != "MemoryDenyWriteExecute=yes") {
        assert!(unit.lines().any(|own| own == line), "{name} has no {line}");
    }
    if program("systemd-analyze").is_none() {
        skipped(1, "apt-get install systemd");
        return None;
    }
    let all = |option: &str| -> Vec<&str> {
        unit.lines().filter_map(|line| line.strip_prefix(option)).flat_map(str::split_whitespace).collect()
    };
    let mut calls = BTreeSet::new();
    for set in all("SystemCallFilter=") {
        match set.strip_prefix('~') {
            None => calls.extend(calls_of(set)),
            Some(set) => calls = &calls - &calls_of(set),
        }
    }
    assert!(calls.len() > 100, "{calls:?}");
    let allowed = machine.path(&format!("{name}.h"));
    let lines: Vec<String> = calls.iter().map(|call| format!("#ifdef SYS_{call}\nSYS_{call},\n#endif\n")).collect();
    fs::write(&allowed, lines.concat()).expect("the folder is writable");
    let families: Vec<String> = all("RestrictAddressFamilies=").iter().map(|family| format!("{family},")).collect();
    let folder = machine.path(&format!("{name}.bin"));
    fs::create_dir(&folder).expect("a new folder");
    let options = [format!("-DALLOWED=\"{}\"", allowed.display()), format!("-DFAMILIES={}", families.concat())];
    let built = compile("confined.c", &folder, &options.each_ref().map(String::as_str));
    if built.is_none() {
        skipped(1, "no C compiler (cc)");
    }
    built
}

/// The log device's unit allowed no address but a socket's path, so that a group could not be served by it.
#[test]
fn units_start_under_their_restrictions_and_devices_as_a_group() {
    let Some(machine) = Machine::new(&["postgres", "daemon"]) else { return };
    let Some(under) = confined(&machine, "tidewater-log@.service") else { return };
    let unit = text_of("packaging/systemd/tidewater-log@.service");
    // All of 127/8 is loopback: each process has an address of its own.
    let [low, middle, high, _] = std::process::id().to_le_bytes();
    let at = [7700, 7701].map(|port| format!("127.{}.{middle}.{}:{port}", 128 + high % 64, low.max(1)));
    let mut devices = [0, 1].map(|node: usize| {
        let folder = machine.path(&format!("device{node}"));
        let peers = format!("--node {node} --peer-listen {} --peer {}={}", at[node], 1 - node, at[1 - node]);
        let line = exec_start(&unit, "[Service]").replace("$LOG_OPTIONS", &peers);
        let places = [
            ("@PREFIX@/bin/tidewater", machine.path("tidewater")),
            ("/var/lib/tidewater-%i", folder),
            ("/run/tidewater-%i/ring", machine.path(&format!("ring{node}"))),
        ];
        let line = machine.here(&line, &places.each_ref().map(|(from, to)| (*from, to.as_path())));
        machine.start(&format!("device{node}"), &format!("{} {line}", under.display()))
    });
    let group = |what: &[&str]| said(machine.command(&machine.path("tidewater")).arg("group").args(what));
    for (node, more) in [("1", &[][..]), ("0", &["--primary"])] {
        let form = ["form", "--control", &format!("device{node}"), "--members", "0,1", "--mode", "eager"];
        group(&[&form[..], more].concat());
    }
    let status = || group(&["status", "--control", "device0"]);
    wait::until(status, || status().contains("in step"));
    // A program commits on it, which both devices have then.
    let program = ["run", "--device", "device0", "--log", "wal", "--", "sh", "-c", "echo commit > wal; sync wal"];
    said(machine.command(&machine.path("tidewater")).args(program));
    // A keeper connects to what it is given as etcd.
    if let Some(under) = confined(&machine, "tidewater-keeper@.service") {
        install(&binary().with_file_name("tidewater-keeper"), &machine.path("tidewater-keeper"));
        let line = exec_start(&text_of("packaging/systemd/tidewater-keeper@.service"), "[Service]");
        let etcd = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("--etcd http://{}", etcd.local_addr().expect("the socket has an address"));
        etcd.set_nonblocking(true).expect("a socket may be");
        let line = line.replace("$KEEPER_OPTIONS", &url);
        let places =
            [("@PREFIX@/bin/tidewater", machine.path("tidewater")), ("/var/lib/tidewater-%i", machine.path("device1"))];
        let line = machine.here(&line, &places.each_ref().map(|(from, to)| (*from, to.as_path())));
        let log = machine.path("keeper.log");
        let out = File::create(&log).expect("the folder is writable");
        let mut command = machine.command(Path::new("/bin/sh"));
        command.args(["-c", &format!("exec {} {line}", under.display())]);
        command.stdout(out.try_clone().expect("a descriptor")).stderr(out);
        let mut keeper = Service { child: command.spawn().expect("sh starts"), log };
        keeper.until(|| etcd.accept().is_ok());
        keeper.kill();
        assert!(!keeper.said().contains("not permitted"), "{}", keeper.said());
    }
    // A supervisor takes its keeper's word, and starts a program that the machine has.
    if let Some(under) = confined(&machine, "tidewater-program@.service") {
        install(&binary().with_file_name("tidewater-keeper"), &machine.path("tidewater-keeper"));
        let line = exec_start(&text_of("packaging/systemd/tidewater-program@.service"), "[Service]");
        let line = line.replace("$PROGRAM_OPTIONS", "--stop-signal INT");
        let places = [
            ("@PREFIX@/bin/tidewater", machine.path("tidewater")),
            ("/var/lib/tidewater-%i", machine.path("device1")),
            ("/etc/tidewater/%i/program", PathBuf::from("/bin/date")),
        ];
        let line = machine.here(&line, &places.each_ref().map(|(from, to)| (*from, to.as_path())));
        let log = machine.path("program.log");
        let out = File::create(&log).expect("the folder is writable");
        let mut command = machine.command(Path::new("/bin/sh"));
        command.args(["-c", &format!("exec {} {line}", under.display())]);
        command.stdout(out.try_clone().expect("a descriptor")).stderr(out);
        let mut program = Service { child: command.spawn().expect("sh starts"), log };
        let log = program.log.clone();
        program.until(|| {
            let has_ended =
                std::fs::read_to_string(&log).is_ok_and(|said| said.contains("it has ended: exit status 0"));
            if has_ended {
                return true;
            }
            if let Ok(mut stream) = UnixStream::connect(machine.path("device1/program.sock")) {
                let order = r#"{"do":"run","node":1,"epoch":"2.1","until_ms":null,"stop_ms":3000}"#;
                stream.write_all(format!("{order}\n").as_bytes()).expect("it listens");
            }
            false
        });
        program.stop();
        assert!(!program.said().contains("not permitted"), "{}", program.said());
    }
    devices.iter_mut().for_each(Service::stop);
    for device in &devices {
        assert!(!device.said().contains("not permitted"), "{}", device.said());
    }

    let Some(under) = confined(&machine, "tidewater.service") else { return };
    let line = exec_start(&text_of("packaging/systemd/tidewater.service"), "[Service]");
    let line = line.replace("${SIZE}", "64MiB").replace("$OPTIONS", "--metrics 127.0.0.1:0");
    let places = [
        ("@PREFIX@/bin/tidewater", machine.path("tidewater")),
        ("/var/lib/tidewater/drive/image", machine.path("image")),
        ("/run/tidewater/vfio.sock", machine.path("vfio.sock")),
        ("/run/tidewater", machine.path("runtime")),
    ];
    let line = machine.here(&line, &places.each_ref().map(|(from, to)| (*from, to.as_path())));
    let mut drive = machine.start("drive", &format!("{} {line}", under.display()));
    drive.stop();
    assert!(!drive.said().contains("not permitted"), "{}", drive.said());
}
