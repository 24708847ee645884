//! Programs that follow the primary, by the recipes of `docs/guide/follow-primary.md` as they are printed there, on
//! machines that die and are cut off. Each machine has files of its own below `/srv`; a lock that all machines share
//! shows two programs that run at once.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use tidewater_tests::databases::process::{User, descendants, kill_tree, signal};
use tidewater_tests::databases::{postgresql, program};
use tidewater_tests::{binary, install, install_bytes, root, skipped, wait};

use crate::cluster::etcd::is_installed;
use crate::cluster::machines::Machines;
use crate::cluster::relay::Weather;
use crate::cluster::{Cluster, PATIENCE, Process};

/// Failure of the primary's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Program, supervisor, keeper and device are killed, and the program's files are lost.
    Dies,
    /// No other machine reaches it, nor etcd: the program there has to end by itself.
    CutOff,
    /// The keeper is killed, and starts at once.
    KeeperAnew,
    /// The keeper stands still, until another leads.
    KeeperStops,
    /// The program is killed, with all its processes.
    ProgramDies,
    /// The device is killed, and starts when another is primary.
    DeviceDies,
    /// An operator has another member lead.
    Switchover,
}

/// All of them, in an order in which each meets a cluster that is well.
pub const FATES: [Fate; 7] = [
    Fate::KeeperAnew,
    Fate::CutOff,
    Fate::ProgramDies,
    Fate::Dies,
    Fate::Switchover,
    Fate::DeviceDies,
    Fate::KeeperStops,
];

/// A program of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    Counter,
    Redis,
    Postgres,
}

impl Recipe {
    fn name(self) -> &'static str {
        match self {
            Recipe::Counter => "counter",
            Recipe::Redis => "redis",
            Recipe::Postgres => "postgres",
        }
    }

    /// Programs that are missing here to try it.
    fn missing(self) -> Option<&'static str> {
        let has = match self {
            Recipe::Counter => return program("cc").is_none().then_some("no C compiler (cc)"),
            Recipe::Redis => program("redis-server").is_some() && program("redis-cli").is_some(),
            Recipe::Postgres => postgresql::tool("initdb").is_some(),
        };
        let what = if self == Recipe::Redis { "redis-server" } else { "postgresql" };
        (!has).then_some(what)
    }
}

/// The indented lines behind the line of the page that ends so.
fn block(page: &str, ending: &str) -> String {
    let begin = page.find(ending).unwrap_or_else(|| panic!("the page has no {ending}")) + ending.len();
    let lines = page[begin..].lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

/// Machines whose keepers have a program.
pub struct Followed {
    recipe: Recipe,
    // In this order: a supervisor ends before what it has its files on.
    supervisors: Vec<Option<Child>>,
    /// A process of each machine's mount namespace.
    mounts: Vec<Child>,
    pub site: Cluster,
    /// Numbers that the program acknowledged.
    pub acknowledged: BTreeSet<u64>,
    next: u64,
    /// The machine that acknowledged last.
    at: u8,
}

impl Followed {
    /// `None`: it can't be done here, which is counted.
    pub fn new(recipe: Recipe, seed: u64) -> Option<Followed> {
        if let Some(what) = recipe.missing() {
            skipped(1, &format!("{}: {what} is missing", recipe.name()));
            return None;
        }
        if !is_installed() {
            return None;
        }
        let mut site = Cluster::on_machines(3, seed)?;
        if recipe == Recipe::Postgres {
            // It refuses to run as root.
            site.user = User::instead_of_root("postgres").map_err(|why| skipped(1, &why)).ok()?;
        }
        site.keeper_options = ["--program", "--program-stop", "1500ms"].map(String::from).into();
        if recipe != Recipe::Counter {
            site.options.iter_mut().for_each(|options| options.push("--hold-log".into()));
        }
        site.program = site.folder.path().join("bin/tidewater");
        let supervisors = site.nodes().map(|_| None).collect();
        let acknowledged = BTreeSet::new();
        let mut followed = Followed { recipe, supervisors, mounts: Vec::new(), site, acknowledged, next: 1, at: 0 };
        followed.install();
        followed.mount()?;
        followed.site.connect();
        let operator = followed.site.operator();
        followed.site.start_etcd(&[operator]);
        followed.site.nodes().for_each(|node| followed.supervise(node));
        followed.site.keep("quorum");
        followed.is_well();
        Some(followed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.folder.path().join(name)
    }

    fn own(&self, path: &Path) {
        if let Some(user) = self.site.user {
            chown(path, Some(user.uid), Some(user.gid)).expect("root may");
        }
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("a folder");
        self.own(&path);
        path
    }

    fn script(&self, name: &str, text: &str) {
        install_bytes(text.as_bytes(), &self.path(name));
    }

    /// The page's text with the folders of this test in place of the system's.
    fn here(&self, text: &str) -> String {
        let place = |name: &str| self.path(name).display().to_string();
        let device = format!("/var/lib/tidewater-{}", self.recipe.name());
        let text = text.replace("/etc/tidewater", &place("etc")).replace(&device, &place("log"));
        text.replace("/srv", &place("srv"))
    }

    /// What a machine has installed, and what the page says to write.
    fn install(&self) {
        let (recipe, name) = (self.recipe, self.recipe.name());
        self.own(self.site.folder.path());
        for folder in ["bin", "etc", &format!("etc/{name}"), "log", "srv"] {
            self.folder(folder);
        }
        for file in ["tidewater", "tidewater-keeper", "libtidewater_shim.so"] {
            install(&binary().with_file_name(file), &self.path("bin").join(file));
        }
        let page = fs::read_to_string(root().join("docs/guide/follow-primary.md")).expect("the page");
        let print = |file: &str, ending: &str| self.script(file, &self.here(&block(&page, ending)));
        print(&format!("etc/{name}/program"), &format!("`/etc/tidewater/{name}/program`"));
        if recipe != Recipe::Counter {
            for file in ["copy", "standby"] {
                print(&format!("etc/{name}/{file}"), &format!("`/etc/tidewater/{name}/{file}`"));
            }
            print("etc/standby", "`/etc/tidewater/standby DEVICE DATA COPY`");
            print("etc/complete", "`/etc/tidewater/complete DEVICE DATA`");
        }
        let nodes: String = self.site.nodes().map(|node| format!("{}\n", Machines::address(node))).collect();
        fs::write(self.path("etc/nodes"), nodes).expect("a folder");
        let folder = self.site.folder.path().display();
        // Another machine's command, which has that machine's folders.
        let ssh = format!(
            "#!/bin/sh\nnode=$((${{1##*.}} - 1))\nshift\n\
             to=\"s|{folder}/srv|{folder}/srv-$node|g; s|{folder}/log|{folder}/$node|g\"\n\
             exec sh -c \"$(echo \"$*\" | sed \"$to\")\"\n"
        );
        self.script("bin/ssh", &ssh);
        // It records its starts, and whether another program runs: processes of the program inherit the descriptor.
        let wrap = format!(
            "#!/bin/sh\nexec 9>> {folder}/one\nflock -n 9 || echo \"$TIDEWATER_NODE $TIDEWATER_EPOCH\" >> \
             {folder}/overlaps\necho \"$TIDEWATER_NODE $TIDEWATER_EPOCH\" >> {folder}/starts\nexec \"$@\"\n"
        );
        self.script("etc/wrap", &wrap);
        if recipe == Recipe::Counter {
            let library = binary().with_file_name("libtidewater_capi.so");
            let mut cc = Command::new("cc");
            cc.arg(root().join("crates/capi/examples/counter.c")).arg("-I").arg(root().join("crates/capi/include"));
            cc.arg("-o").arg(self.path("bin/counter")).arg(&library);
            // The library's name is that of its ABI.
            cc.arg(format!("-Wl,-rpath,{}", self.path("bin").display()));
            std::os::unix::fs::symlink(&library, self.path("bin/libtidewater.so.0")).expect("a folder");
            assert!(cc.status().expect("it is installed").success());
        }
    }

    /// Gives each machine its own `/srv` and device, by a mount namespace.
    fn mount(&mut self) -> Option<()> {
        let page = fs::read_to_string(root().join("docs/guide/follow-primary.md")).expect("the page");
        for node in self.site.nodes() {
            let (srv, device) = (self.folder(&format!("srv-{node}")), self.folder(&node.to_string()));
            let (at_srv, at_log) = (self.path("srv"), self.path("log"));
            let line = format!(
                "mount --bind {} {} && mount --bind {} {} && echo there && exec sleep 100000",
                srv.display(),
                at_srv.display(),
                device.display(),
                at_log.display()
            );
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "sh", "-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = unshare.spawn().expect("util-linux is there");
            let mut said = std::io::BufReader::new(child.stdout.take().expect("it is piped"));
            let mut first = String::new();
            std::io::BufRead::read_line(&mut said, &mut first).expect("text");
            self.mounts.push(child);
            if first.is_empty() {
                skipped(1, "no mount namespaces");
                return None;
            }
            match self.recipe {
                Recipe::Counter => _ = self.folder(&format!("srv-{node}/counter")),
                // As the page says, on the machine of the first primary.
                _ if node > 0 => {}
                Recipe::Redis => self.on(0, &block(&page, "/redis/standby`. The first machine, as the server's user:")),
                Recipe::Postgres => self.on(0, &block(&page, "that `pg_hba.conf` names:")),
            }
        }
        Some(())
    }

    /// A command on a machine.
    fn command(&self, node: u8, line: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.mounts[usize::from(node)].id()));
        if let Some(User { uid, gid }) = self.site.user {
            command.args(["setpriv", "--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
        }
        let tools = postgresql::tool("psql").and_then(|path| Some(path.parent()?.display().to_string()));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{path}", self.path("bin").display(), tools.unwrap_or_default());
        command.args(line).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn on(&self, node: u8, script: &str) {
        let output = self.command(node, &["sh", "-ec", &self.here(script)]).output().expect("it starts");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn supervise(&mut self, node: u8) {
        let said = OpenOptions::new().create(true).append(true).open(self.path(&format!("program-{node}")));
        let said = said.expect("a folder");
        let path = |name: &str| self.path(name).display().to_string();
        let name = self.recipe.name();
        let mut line = vec![path("bin/tidewater")];
        line.extend(["cluster", "keeper", "program", "--device"].map(String::from));
        line.push(path("log"));
        match self.recipe {
            Recipe::Counter => {}
            Recipe::Redis => line.extend(["--standby".into(), path("etc/redis/standby")]),
            Recipe::Postgres => {
                line.extend(["--stop-signal".into(), "INT".into(), "--standby".into(), path("etc/postgres/standby")]);
            }
        }
        line.extend(["--".into(), path("etc/wrap"), path(&format!("etc/{name}/program"))]);
        let mut command = self.command(node, &line.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(said.try_clone().expect("a descriptor")).stderr(said);
        let child = self.site.machines().within(node, || command.spawn()).expect("it starts");
        self.supervisors[usize::from(node)] = Some(child);
    }

    fn kill_supervisor(&mut self, node: u8) {
        let mut child = self.supervisors[usize::from(node)].take().expect("it runs");
        kill_tree(&[child.id()]);
        let _ = child.wait();
    }

    /// Words of supervisors and programs.
    pub fn said(&self) -> String {
        let said = |node| fs::read_to_string(self.path(&format!("program-{node}"))).unwrap_or_default();
        self.site.nodes().map(|node| format!("-- program {node}\n{}", said(node))).collect()
    }

    /// Starts of the program, as it has recorded them: node and epoch.
    pub fn starts(&self) -> Vec<(u8, u64)> {
        let text = fs::read_to_string(self.path("starts")).unwrap_or_default();
        let start = |line: &str| {
            let (node, epoch) = line.split_once(' ').expect("both");
            let counter = epoch.split('.').next().and_then(|counter| counter.parse().ok());
            (node.parse().expect("a number"), counter.expect("an epoch"))
        };
        text.lines().map(start).collect()
    }

    /// A program was never started while another ran, nor in an older epoch.
    pub fn never_two(&self) -> Result<(), String> {
        let overlaps = fs::read_to_string(self.path("overlaps")).unwrap_or_default();
        let is_sorted = self.starts().is_sorted_by_key(|(_, epoch)| *epoch);
        match overlaps.is_empty() && is_sorted {
            true => Ok(()),
            false => Err(format!("two at once: {overlaps:?}; starts {:?}", self.starts())),
        }
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Followed) -> Option<T>) -> T {
        wait::within(PATIENCE, || found(self)).unwrap_or_else(|| panic!("{what}: {}", self.said()))
    }

    /// All members are in step, the program acknowledges, and the others have what they need to start it.
    pub fn is_well(&mut self) {
        let primary = self.site.primary(|_| true);
        self.site.all_in_step(primary);
        self.goes_on(1);
        if self.recipe != Recipe::Counter {
            self.until("each other machine has a copy", |this| {
                let name = this.recipe.name();
                let primary = this.site.primary(|_| true);
                let has = |node: u8| this.path(&format!("srv-{node}/{name}/.tidewater-position")).exists();
                this.site.nodes().filter(|node| *node != primary).all(has).then_some(())
            });
        }
    }

    /// The program acknowledges some more numbers.
    pub fn goes_on(&mut self, count: usize) {
        let before = self.acknowledged.len();
        self.until("the program goes on", |this| {
            match this.recipe {
                Recipe::Counter => this.read_printed(),
                _ => this.write(),
            }
            (this.acknowledged.len() >= before + count).then_some(())
        });
    }

    /// Takes the numbers that the counters have printed: each was printed once, since the log had those before it.
    fn read_printed(&mut self) {
        let mut all: Vec<u64> = Vec::new();
        for node in self.site.nodes() {
            let text = fs::read_to_string(self.path(&format!("srv-{node}/counter/numbers"))).unwrap_or_default();
            // The last line may be half written.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            all.extend(whole.lines().map(|line| line.parse::<u64>().expect("a number")));
        }
        let number = all.len();
        self.acknowledged = all.into_iter().collect();
        assert_eq!(self.acknowledged.len(), number, "a number was printed twice: the one before was lost");
    }

    /// Has one number stored, where the program was last or where it is now.
    fn write(&mut self) {
        let (number, node) = (self.next, self.at);
        self.next += 1;
        let address = Machines::address(node).to_string();
        let output = match self.recipe {
            Recipe::Redis => self.ask(&["redis-cli", "-h", &address, "set", &number.to_string(), "1"]),
            _ => self.ask(&[
                "psql",
                "-h",
                &address,
                "-d",
                "postgres",
                "-qAtc",
                &format!("CREATE TABLE IF NOT EXISTS t (n bigint PRIMARY KEY); INSERT INTO t VALUES ({number})"),
                "-c",
                "SELECT 'OK'",
            ]),
        };
        match output.trim() == "OK" {
            true => _ = self.acknowledged.insert(number),
            false => self.at = (node + 1) % self.supervisors.len() as u8,
        }
    }

    /// Asks the program, from the operator's machine, and not for long.
    fn ask(&self, line: &[&str]) -> String {
        let mut command = self.command(0, &[&["timeout", "4"], line].concat());
        let output = self.site.machines().within(self.site.operator(), || command.output()).expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The numbers that the program has now.
    fn held(&mut self) -> BTreeSet<u64> {
        let address = Machines::address(self.at).to_string();
        let text = match self.recipe {
            Recipe::Redis => self.ask(&["redis-cli", "-h", &address, "keys", "*"]),
            _ => self.ask(&["psql", "-h", &address, "-d", "postgres", "-qAtc", "SELECT n FROM t"]),
        };
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Acknowledged numbers that the program does not have. A counter would have printed them again.
    pub fn lost(&mut self) -> Vec<u64> {
        if self.recipe == Recipe::Counter {
            self.read_printed();
            return Vec::new();
        }
        self.goes_on(1);
        let held = self.until("it answers", |this| Some(this.held()).filter(|held| !held.is_empty()));
        self.acknowledged.difference(&held).copied().collect()
    }

    /// Lets something happen to the primary's machine, and the program go on; then all is made well again.
    pub fn meets(&mut self, fate: Fate) {
        let primary = self.site.primary(|_| true);
        let other = |this: &mut Followed| this.site.primary(|node| node != primary);
        match fate {
            Fate::Dies => {
                self.kill_supervisor(primary);
                self.site.kill_keeper(primary);
                self.site.kill(primary);
                if self.recipe != Recipe::Counter {
                    for file in fs::read_dir(self.path(&format!("srv-{primary}"))).expect("a folder").flatten() {
                        let path = file.path();
                        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
                            .expect("its files");
                    }
                }
                other(self);
                self.goes_on(10);
                self.site.start(primary);
                self.site.start_keeper(primary);
                self.supervise(primary);
            }
            Fate::CutOff => {
                self.site.machines().isolate(primary, Weather::CUT);
                other(self);
                self.goes_on(10);
                self.site.machines().isolate(primary, Weather::default());
            }
            Fate::KeeperAnew => {
                self.site.kill_keeper(primary);
                self.site.start_keeper(primary);
                self.goes_on(10);
            }
            Fate::KeeperStops => {
                let keeper = Process::Keeper(primary);
                self.site.signal_to(keeper, Signal::SIGSTOP);
                other(self);
                self.goes_on(10);
                self.site.signal_to(keeper, Signal::SIGCONT);
            }
            Fate::ProgramDies => {
                let supervisor = self.supervisors[usize::from(primary)].as_ref().expect("it runs").id();
                for process in descendants(&[supervisor]) {
                    signal(process, Signal::SIGKILL);
                }
                self.goes_on(10);
            }
            Fate::DeviceDies => {
                self.site.kill(primary);
                other(self);
                self.goes_on(10);
                self.site.start(primary);
            }
            Fate::Switchover => {
                self.until("it is switched over", |this| {
                    (!this.site.operate(&["switchover"]).is_empty()).then_some(())
                });
                self.goes_on(10);
            }
        }
        self.is_well();
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        for node in 0..self.supervisors.len() as u8 {
            if self.supervisors[usize::from(node)].is_some() {
                self.kill_supervisor(node);
            }
        }
        for mount in &mut self.mounts {
            let _ = mount.kill();
            let _ = mount.wait();
        }
    }
}

/// A life of a recipe: rounds, acknowledged, and what is wrong.
fn life(recipe: Recipe, seed: u64, fates: impl Iterator<Item = Fate>) {
    let Some(mut followed) = Followed::new(recipe, seed) else { return };
    followed.goes_on(10);
    let (mut rounds, mut lost) = (0, Vec::new());
    for fate in fates {
        let start = Instant::now();
        followed.meets(fate);
        rounds += 1;
        lost.extend(followed.lost());
        println!(
            "{}: {fate:?}: {} ms, {} acknowledged",
            recipe.name(),
            start.elapsed().as_millis(),
            followed.acknowledged.len()
        );
        followed.never_two().unwrap_or_else(|why| panic!("{fate:?}: {why}\n{}", followed.said()));
        assert!(lost.is_empty(), "{fate:?}: acknowledged and lost: {lost:?}\n{}", followed.said());
    }
    let acknowledged = followed.acknowledged.len();
    let starts = followed.starts().len();
    println!("{}: {rounds} rounds, {starts} starts, {acknowledged} acknowledged, {} lost", recipe.name(), lost.len());
}

#[test]
fn an_own_program_follows_the_primary_with_its_log_alone() {
    life(Recipe::Counter, 60, [Fate::CutOff, Fate::Dies].into_iter());
}

#[test]
fn redis_follows_the_primary_by_the_recipe_as_printed() {
    life(Recipe::Redis, 61, [Fate::Dies].into_iter());
}

#[test]
fn postgresql_follows_the_primary_by_the_recipe_as_printed() {
    life(Recipe::Postgres, 62, [Fate::Dies].into_iter());
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_programs_follow_the_primary_through_every_fate() {
    let rounds = std::env::var("TIDEWATER_TORTURE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(14);
    for (seed, recipe) in (63..).zip([Recipe::Counter, Recipe::Redis, Recipe::Postgres]) {
        life(recipe, seed, FATES.into_iter().cycle().take(rounds));
    }
}
