//! Owners of files and logs: `tidewater recover` and `run` with logs that another user can write.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use tempfile::TempDir;
use tidewater_tests::forged::{bind, entered, forge, session, write};
use tidewater_tests::ring::Device;
use tidewater_tests::{binary, skipped, tidewater};

const DEVICE: &str = "vfio-user:f0.sock";
const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
/// Users without an entry in the system's table.
const OWNER: u32 = 43_210;
const STRANGER: u32 = 43_211;

/// A folder of root's in which each user has one, and the device of one of them. It ends with this.
struct Trial {
    device: Option<Device>,
    folder: TempDir,
    serves: u32,
}

/// Gives a file to a user.
fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).expect("root can change the owner");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Both outputs of a command.
fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

impl Trial {
    /// `None`: this is not root, who alone can be others, or others do not get at the binary.
    fn new(serves: u32) -> Option<Trial> {
        if !nix::unistd::geteuid().is_root() {
            skipped(1, "only root can be other users");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("the mode can be changed");
        let mut asked = Command::new(binary());
        asked.arg("--version").current_dir("/").uid(OWNER).gid(OWNER);
        if !asked.output().is_ok_and(|done| done.status.success()) {
            skipped(1, "the binary lies where other users do not get");
            return None;
        }
        let mut trial = Trial { device: None, folder, serves };
        for user in [0, OWNER, STRANGER] {
            fs::create_dir(trial.of(user)).expect("a new folder");
            give(&trial.of(user), user);
        }
        trial.serve();
        Some(trial)
    }

    /// The folder of a user.
    fn of(&self, user: u32) -> PathBuf {
        self.folder.path().canonicalize().expect("the folder exists").join(user.to_string())
    }

    /// A user's file with something precious in it.
    fn file(&self, user: u32, name: &str) -> PathBuf {
        let path = self.of(user).join(name);
        fs::write(&path, "precious").expect("a new file");
        give(&path, user);
        path
    }

    fn serve(&mut self) {
        self.device = None;
        let (folder, user) = (self.of(self.serves), self.serves);
        self.device = Some(Device::start_as(&folder, &[&["--ring", "ring"], WAITS].concat(), |command| {
            command.uid(user).gid(user);
        }));
    }

    fn forge(&self, file: &Path, name: &Path) {
        let target = self.device.as_ref().expect("the device was started").target();
        forge(&target, &[session(), bind(file, name), write(b"forged")]);
    }

    fn command(&self, user: u32, what: &[&str]) -> Command {
        let mut command = tidewater(&self.of(self.serves));
        command.args([&what[..1], &["--device", DEVICE], &what[1..]].concat()).uid(user).gid(user);
        command
    }

    fn recover(&self, user: u32, more: &[&str]) -> Output {
        let start = Instant::now();
        loop {
            let done = self.command(user, &[&["recover"], more].concat()).output().expect("it starts");
            // The last of a run's processes may just be ending.
            let is_busy = text(&done.stderr).contains("one program at a time");
            if !is_busy || start.elapsed() > tidewater_tests::PATIENCE {
                return done;
            }
        }
    }

    /// Recovery by root that is refused for this, and then forgets.
    fn is_refused(&self, more: &[&str], why: &[&str]) {
        let done = self.recover(0, more);
        let said = said(&done);
        assert!(!done.status.success() && said.contains("REFUSED"), "{said}");
        assert!(why.iter().all(|why| said.contains(why)), "{why:?}: {said}");
        assert!(self.recover(0, &["--forget"]).status.success());
    }
}

fn holds(path: &Path, text: &str) {
    assert_eq!(fs::read_to_string(path).expect("the file can be read"), text, "{}", path.display());
}

/// The attack: the owner of the log names another user's file, and root recovers.
#[test]
fn a_log_changes_by_roots_hand_only_files_of_whose_log_it_is() {
    let Some(trial) = Trial::new(STRANGER) else { return };
    let victims = [(0, trial.file(0, "shadow")), (OWNER, trial.file(OWNER, "wal"))];
    for (user, victim) in &victims {
        trial.forge(victim, victim);
        let (owner, way_out) = (format!("it belongs to user {user}, "), format!("--allow-owner {user}"));
        let why = [&*victim.to_string_lossy(), &owner, &format!("the log is user {STRANGER}'s"), &way_out];
        trial.is_refused(&[], &why);
        holds(victim, "precious");
        // Nor before root starts a program.
        trial.forge(victim, victim);
        let run = trial.command(0, &["run", "--log", &victim.to_string_lossy(), "--", "true"]).output();
        let run = run.expect("it starts");
        assert!(!run.status.success() && said(&run).contains(&owner), "{}", said(&run));
        holds(victim, "precious");
        // By the name that he gives the file in his folder, where the system lets him.
        let link = trial.of(STRANGER).join("link");
        fs::hard_link(victim, &link).expect("one file system");
        trial.forge(victim, &link);
        trial.is_refused(&[], &["and its folder to another"][..usize::from(*user != 0)]);
        fs::remove_file(&link).expect("the file can be removed");
        holds(victim, "precious");
    }
    // What is asked for is done, and nothing besides.
    let (_, victim) = &victims[1];
    trial.forge(victim, victim);
    trial.is_refused(&["--allow-owner", &STRANGER.to_string(), "--allow-owner", "root"], &["--allow-owner names"]);
    trial.forge(victim, victim);
    let done = trial.recover(0, &["--allow-owner", &OWNER.to_string()]);
    assert!(done.status.success(), "{}", said(&done));
    holds(victim, "forgedus");
}

/// A device's statements count as its user's, even if it lends another user's ring.
#[test]
fn a_device_of_another_user_is_not_believed_for_its_rings_sake() {
    let Some(trial) = Trial::new(STRANGER) else { return };
    let victim = trial.file(0, "shadow");
    give(&trial.of(STRANGER).join("ring"), 0);
    trial.forge(&victim, &victim);
    trial.is_refused(&[], &[&format!("the log is user {STRANGER}'s")]);
    holds(&victim, "precious");
    // And the other way round.
    give(&trial.of(STRANGER).join("ring"), OWNER);
    let own = trial.file(STRANGER, "wal");
    trial.forge(&own, &own);
    trial.is_refused(&[], &[&format!("the log is user {OWNER}'s")]);
    holds(&own, "precious");
}

/// Part of a log is in the image, so the owner of the image can change the log.
#[test]
fn an_image_of_another_user_is_not_served_with_a_ring() {
    let Some(mut trial) = Trial::new(STRANGER) else { return };
    trial.device = None;
    let folder = trial.of(STRANGER);
    fs::remove_file(folder.join("ring")).expect("the file can be removed");
    let refused = Device::command(&folder, &["--ring", "ring"]).output().expect("it starts");
    let why = format!("belongs to user {STRANGER}, who can change the log");
    assert!(!refused.status.success() && said(&refused).contains(&why), "{}", said(&refused));
    assert!(!folder.join("ring").exists());
    // Without one, it is a drive like any other, and whose it is is said.
    let device = Device::start_plain(&folder, &[]);
    let whose = format!("belongs to user {STRANGER}, who can change the drive's data");
    assert!(device.said.contains(&whose) || device.errors().contains(&whose), "{}{}", device.said, device.errors());
}

#[test]
fn a_set_user_id_program_is_no_file_of_a_log() {
    let Some(trial) = Trial::new(STRANGER) else { return };
    let own = trial.file(STRANGER, "wal");
    for mode in [0o4755, 0o2755] {
        fs::set_permissions(&own, fs::Permissions::from_mode(mode)).expect("root can change the mode");
        trial.forge(&own, &own);
        trial.is_refused(&[], &["set-user-ID"]);
        holds(&own, "precious");
    }
}

/// `/proc/PID/uid_map` is a regular file of the process's user: what root writes to it makes that user root.
#[test]
fn what_stands_for_an_order_to_the_system_is_no_file_of_a_log() {
    let Some(trial) = Trial::new(STRANGER) else { return };
    // Of a process of his: the device's.
    let process = trial.device.as_ref().expect("the device was started").child.id();
    let comm = PathBuf::from(format!("/proc/{process}/comm"));
    let before = fs::read_to_string(&comm).expect("the process runs");
    trial.forge(&comm, &comm);
    trial.is_refused(&[], &["the system's own"]);
    holds(&comm, &before);
}

#[test]
fn a_name_does_not_lead_out_of_the_set() {
    let Some(trial) = Trial::new(0) else { return };
    let victim = trial.file(0, "shadow");
    let set = trial.of(0).join("set");
    fs::create_dir(&set).expect("a new folder");
    let pattern = format!("{}/**", set.display());
    for name in [set.join("../shadow"), set.join("..//shadow")] {
        trial.forge(&victim, &name);
        trial.is_refused(&["--log", &pattern], &["without `.` and `..`"]);
        holds(&victim, "precious");
    }
}

/// Commits to a file on the log, and everybody is killed; the file then loses what it was not synced.
fn commit_and_die(trial: &Trial, runs: u32, program: &[&str], wal: &Path) {
    let pattern = wal.to_string_lossy();
    let _ = fs::remove_file(wal);
    let line = [&["run", "--level", "ring", "--log", &pattern, "--"], program].concat();
    let died = trial.command(runs, &line).env("WAL", wal).output().expect("it starts");
    assert!(!died.status.success() && !said(&died).contains("drained"), "{}", said(&died));
    let file = File::options().write(true).open(wal).expect("the file was written");
    assert_eq!(file.metadata().expect("the file is open").len(), 7, "{}", said(&died));
    file.set_len(0).expect("the file can be resized");
}

/// The supervisor, whose child the program is, stands still before: it would sync the file and trim the log behind it.
const COMMIT: &str = "exec 3>>$WAL; kill -STOP $PPID; echo commit >&3; kill -KILL $PPID";

#[test]
fn root_recovers_a_users_log_into_his_files() {
    let Some(mut trial) = Trial::new(OWNER) else { return };
    let wal = trial.of(OWNER).join("wal");
    commit_and_die(&trial, OWNER, &["sh", "-c", COMMIT], &wal);
    trial.serve();
    let done = trial.recover(0, &[]);
    assert!(done.status.success(), "{}", said(&done));
    holds(&wal, "commit\n");
    // And its owner does it himself, as ever.
    commit_and_die(&trial, OWNER, &["sh", "-c", COMMIT], &wal);
    trial.serve();
    let done = trial.recover(OWNER, &[]);
    assert!(done.status.success(), "{}", said(&done));
    holds(&wal, "commit\n");
}

#[test]
fn a_database_that_gives_up_roots_rights_recovers_from_roots_device() {
    let Some(mut trial) = Trial::new(0) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skipped(1, "there is no setpriv");
    }
    let wal = trial.of(OWNER).join("wal");
    let (user, group) = (format!("--reuid={OWNER}"), format!("--regid={OWNER}"));
    // It may not stop root's process: the shell above does, once the file is open.
    let line = format!(
        "rm -f go; mkfifo go; setpriv {user} {group} --clear-groups sh -c 'exec 3>>$WAL; read go <go; echo commit >&3' \
         & exec 4>go; kill -STOP $PPID; echo >&4; wait; kill -KILL $PPID"
    );
    for more in [&[][..], &["--allow-owner", &OWNER.to_string()]] {
        commit_and_die(&trial, 0, &["sh", "-c", &line], &wal);
        trial.serve();
        let done = trial.recover(0, more);
        assert!(done.status.success(), "{}", said(&done));
        holds(&wal, "commit\n");
    }
    // A second run needs no option for it, either.
    commit_and_die(&trial, 0, &["sh", "-c", &line], &wal);
    trial.serve();
    let again = trial.command(0, &["run", "--log", &wal.to_string_lossy(), "--", "true"]).output().expect("it starts");
    assert!(again.status.success(), "{}", said(&again));
    holds(&wal, "commit\n");
}

/// Root's program on a user's device: a note names whose files will be recovered.
#[test]
fn whose_files_come_back_from_anothers_log_is_said_when_a_program_starts() {
    let Some(trial) = Trial::new(STRANGER) else { return };
    let start = |more: &[&str]| {
        let line = [&["run", "--log", "wal"], more, &["--", "true"]].concat();
        let done = trial.command(0, &line).output().expect("it starts");
        assert!(done.status.success(), "{}", said(&done));
        said(&done)
    };
    let note = format!("the log belongs to user {STRANGER}: ");
    assert!(start(&[]).contains(&note));
    assert!(!start(&["--allow-owner", "root"]).contains(&note));
}

/// Another user's device runs already: to start it again would not help.
#[test]
fn a_socket_of_another_user_is_said_to_be_his() {
    let Some(trial) = Trial::new(OWNER) else { return };
    let device = DEVICE.trim_start_matches("vfio-user:").to_owned();
    let mut nvme = tidewater(&trial.of(OWNER));
    nvme.args(["nvme", "id-ctrl", DEVICE]).uid(STRANGER).gid(STRANGER);
    for mut command in [trial.command(STRANGER, &["run", "--log", "wal", "--", "true"]), nvme] {
        let said = said(&command.output().expect("it starts"));
        assert!(said.contains(&format!("{device}: Permission denied")), "{said}");
        assert!(said.contains(&format!("help: it belongs to user {OWNER}: run this command as that user")), "{said}");
    }
}

#[test]
fn a_file_without_write_permission_is_refused_with_what_to_do() {
    let Some(mut trial) = Trial::new(OWNER) else { return };
    let wal = trial.of(OWNER).join("wal");
    commit_and_die(&trial, OWNER, &["sh", "-c", COMMIT], &wal);
    fs::set_permissions(&wal, fs::Permissions::from_mode(0o444)).expect("root can change the mode");
    trial.serve();
    let done = trial.recover(OWNER, &[]);
    let advice = format!("its mode 0444 allows no user to write it: `chmod u+w {}`, then recover again", wal.display());
    assert!(!done.status.success() && said(&done).contains(&advice), "{}", said(&done));
    holds(&wal, "");
    let mut chmod = Command::new("chmod");
    assert!(chmod.arg("u+w").arg(&wal).uid(OWNER).gid(OWNER).status().expect("it starts").success());
    let done = trial.recover(OWNER, &[]);
    assert!(done.status.success(), "{}", said(&done));
    holds(&wal, "commit\n");
}

/// Onto a copy, root wrote a file of its own that another user had linked into the copy's folder, made files there that
/// this user could not open, and followed that user's link to another folder.
#[test]
fn a_replay_by_root_onto_another_users_folder_changes_that_users_files_alone() {
    let Some(trial) = Trial::new(0) else { return };
    let source = trial.of(0).join("src");
    fs::create_dir(&source).expect("a new folder");
    let logged = source.join("wal");
    File::create(&logged).expect("a new file");
    let target = trial.device.as_ref().expect("the device was started").target();
    forge(&target, &[session(), entered(&logged), write(b"forged")]);
    let victim = trial.file(0, "shadow");
    let copy = trial.of(STRANGER).join("copy");
    fs::create_dir(&copy).expect("a new folder");
    give(&copy, STRANGER);
    let onto = |to: &Path| format!("{}={}", source.display(), to.display());
    let refused = |to: &Path, why: &str| {
        let done = trial.recover(0, &["--onto", &onto(to)]);
        let said = said(&done);
        assert!(!done.status.success() && said.contains(why), "{said}");
        holds(&victim, "precious");
    };
    let wal = copy.join("wal");
    fs::hard_link(&victim, &wal).expect("one file system");
    refused(&copy, &format!("it belongs to user 0, and its folder to user {STRANGER}, who may have put it there"));
    fs::remove_file(&wal).expect("the file can be removed");
    // A link in place of what the replay writes about the copy.
    for name in [".tidewater-position", ".tidewater-position.new"] {
        std::os::unix::fs::symlink(&victim, copy.join(name)).expect("a link");
    }
    refused(&copy, "position");
    fs::remove_file(copy.join(".tidewater-position")).expect("the file can be removed");
    // The folder itself, by a link of the other user's: anywhere on the way.
    let elsewhere = trial.of(0).join("elsewhere");
    fs::create_dir(&elsewhere).expect("a new folder");
    let link = trial.of(STRANGER).join("link");
    for (to, path) in [(&elsewhere, link.clone()), (&trial.of(0), link.join("elsewhere"))] {
        std::os::unix::fs::symlink(to, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(STRANGER), Some(STRANGER)).expect("root can change the owner");
        refused(&path, &format!("is a symbolic link of user {STRANGER}, which is not followed"));
        assert_eq!(fs::read_dir(&elsewhere).expect("the folder can be read").count(), 0);
        fs::remove_file(&link).expect("the file can be removed");
    }
    // One of root's own is followed, and what is missing is the folder's owner's.
    std::os::unix::fs::symlink(&copy, &link).expect("a link");
    let done = trial.recover(0, &["--onto", &onto(&link)]);
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(
        fs::metadata(&wal).map(|about| (about.uid(), about.gid())).expect("the file exists"),
        (STRANGER, STRANGER)
    );
    holds(&wal, "forged");
    holds(&victim, "precious");
}
