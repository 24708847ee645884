//! Rules of what survives, each with where it comes from.

use super::*;
use crate::{Entry, Ino, ROOT, Rules};

/// A volume that names files by their paths.
struct Disk(Volume);

impl Disk {
    fn new(rules: Rules) -> Disk {
        Disk(Volume::new(rules))
    }

    fn at(&self, path: &str) -> Entry {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Entry::new(if folder.is_empty() { ROOT } else { self.ino(folder) }, name)
    }

    fn ino(&self, path: &str) -> Ino {
        if path == "." { ROOT } else { self.0.seen().find(&self.at(path)).expect("it is there") }
    }

    fn make(&mut self, path: &str, mode: u32) -> Ino {
        let (at, ino) = (self.at(path), self.0.new_ino());
        self.0.record(Operation::Create { at, ino, mode, uid: 0, gid: 0, rdev: 0, target: Vec::new() });
        ino
    }

    fn create(&mut self, path: &str) -> Ino {
        self.make(path, 0o100_644)
    }

    fn write(&mut self, path: &str, offset: u64, text: &str) -> u64 {
        let ino = self.ino(path);
        self.0.record(Operation::Write { ino, offset, data: text.into() })
    }

    fn rename(&mut self, from: &str, to: &str) -> u64 {
        let (from, to) = (self.at(from), self.at(to));
        self.0.record(Operation::Rename { from, to, exchange: false })
    }

    fn remove(&mut self, path: &str) -> u64 {
        let at = self.at(path);
        self.0.record(Operation::Remove { at })
    }

    fn sync(&mut self, path: &str) {
        let ino = self.ino(path);
        self.0.record(Operation::Sync { ino, data_only: false });
    }

    /// Every file that a cut now leaves, when all is lost that may be lost.
    fn cut(&self) -> Vec<String> {
        self.left(self.0.end(), Lose::Unsynced, Tear::None, 0)
    }

    fn left(&self, cut: u64, lose: Lose, tear: Tear, seed: u64) -> Vec<String> {
        listed(&self.0.build(&self.0.state(cut, lose, tear, &mut Rng::new(seed, b"test")), tear))
    }
}

fn listed(tree: &Tree) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (folder, name, ino) in tree.walk() {
        let folder = if folder == ROOT { String::new() } else { tree.path(folder) + "/" };
        let name = folder + &String::from_utf8_lossy(name);
        match tree.node(ino).and_then(|node| node.bytes()) {
            Some(content) => {
                let text = content.read(0, content.size() as usize);
                found.push(format!("{name}={}", String::from_utf8_lossy(&text).replace('\0', ".")));
            }
            None => found.push(name + "/"),
        }
    }
    found.sort();
    found
}

/// fsync(2): the entry in the directory is not synced with the file. ext4 writes both in one transaction.
#[test]
fn the_name_of_a_new_file_is_durable_by_the_folder_alone_and_on_ext4_with_the_file() {
    for (rules, by_file) in [(Rules::Strict, vec![]), (Rules::Ext4, vec!["a=one"])] {
        let mut disk = Disk::new(rules);
        disk.create("a");
        disk.write("a", 0, "one");
        assert_eq!(disk.cut(), Vec::<String>::new(), "{rules:?}: nothing was synced");
        disk.sync("a");
        assert_eq!(disk.cut(), by_file, "{rules:?}");
        disk.sync(".");
        assert_eq!(disk.cut(), ["a=one"], "{rules:?}");
    }
}

/// POSIX, fsync: of a folder its entries, not the bytes of its files. ext4 delays the allocation of bytes likewise.
#[test]
fn a_folders_sync_keeps_names_without_bytes() {
    for rules in [Rules::Strict, Rules::Ext4] {
        let mut disk = Disk::new(rules);
        disk.create("a");
        disk.write("a", 0, "one");
        disk.sync(".");
        assert_eq!(disk.cut(), ["a="], "{rules:?}");
    }
}

/// fdatasync(2): what is needed to read the bytes, so the size too; not the permissions.
#[test]
fn fdatasync_keeps_bytes_and_size_and_no_permissions() {
    let mut disk = Disk::new(Rules::Strict);
    let ino = disk.create("a");
    disk.sync(".");
    disk.write("a", 0, "one");
    disk.0.record(Operation::Attributes { ino, mode: Some(0o600), uid: None, gid: None });
    let mode = |disk: &Disk| {
        let state = disk.0.state(disk.0.end(), Lose::Unsynced, Tear::None, &mut Rng::new(0, b""));
        disk.0.build(&state, Tear::None).node(ino).map(|node| node.mode)
    };
    disk.0.record(Operation::Sync { ino, data_only: true });
    assert_eq!((disk.cut(), mode(&disk)), (vec!["a=one".to_owned()], Some(0o100_644)));
    disk.0.record(Operation::Sync { ino, data_only: false });
    assert_eq!(mode(&disk), Some(0o100_600));
}

/// Before a sync has returned, it promises nothing.
#[test]
fn a_cut_within_a_sync_is_one_before_it() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("a");
    disk.sync(".");
    disk.write("a", 0, "one");
    disk.sync("a");
    let end = disk.0.end();
    assert_eq!(disk.left(end - 1, Lose::Unsynced, Tear::None, 0), ["a="]);
    assert_eq!(disk.left(end - 1, Lose::Nothing, Tear::None, 0), ["a=one"]);
    assert_eq!(disk.left(end, Lose::Unsynced, Tear::None, 0), ["a=one"]);
}

/// A rename is atomic (rename(2); Pillai et al., table 1, all but ext2) and durable by a sync of one of its folders.
#[test]
fn a_rename_is_atomic_and_not_durable_before_its_folder_is() {
    let mut disk = Disk::new(Rules::Strict);
    disk.make("from", 0o040_755);
    disk.make("to", 0o040_755);
    disk.create("to/a");
    disk.write("to/a", 0, "old");
    disk.sync("to/a");
    disk.sync("to");
    disk.create("from/a");
    disk.write("from/a", 0, "new");
    disk.sync("from/a");
    disk.sync("from");
    disk.sync(".");
    disk.rename("from/a", "to/a");
    let (before, after) = (["from/", "from/a=new", "to/", "to/a=old"], ["from/", "to/", "to/a=new"]);
    for seed in 0..20 {
        for lose in [Lose::Random, Lose::AllBut, Lose::One] {
            let left = disk.left(disk.0.end(), lose, Tear::Sector, seed);
            assert!(left == before || left == after, "{left:?}");
        }
    }
    assert_eq!(disk.cut(), before);
    disk.sync("from");
    assert_eq!(disk.cut(), after);
}

/// Delayed allocation: the renamed file is empty (ext4 before 2.6.30, xfs, POSIX). `auto_da_alloc` of ext4 writes its
/// bytes first where the rename replaces a file, and only there.
#[test]
fn a_rename_without_a_sync_of_the_file_leaves_an_empty_one_but_on_ext4_when_it_replaces() {
    for rules in [Rules::Strict, Rules::Ext4] {
        for replaces in [false, true] {
            let mut disk = Disk::new(rules);
            if replaces {
                disk.create("a");
                disk.write("a", 0, "old");
                disk.sync("a");
                disk.sync(".");
            }
            disk.create("new");
            disk.write("new", 0, "whole");
            disk.rename("new", "a");
            disk.sync(".");
            let has_bytes = replaces && rules == Rules::Ext4;
            assert_eq!(disk.cut(), [if has_bytes { "a=whole" } else { "a=" }], "{rules:?} {replaces}");
        }
    }
}

/// Unlink is atomic and comes back when its folder was not synced: a rollback journal that is there again.
#[test]
fn a_removed_file_comes_back_until_its_folder_is_synced() {
    for rules in [Rules::Strict, Rules::Ext4] {
        let mut disk = Disk::new(rules);
        disk.create("journal");
        disk.sync("journal");
        disk.sync(".");
        disk.remove("journal");
        assert_eq!(disk.cut(), ["journal="], "{rules:?}");
        disk.sync(".");
        assert_eq!(disk.cut(), Vec::<String>::new(), "{rules:?}");
    }
}

/// Pillai et al., table 1: directory operations may be reordered (btrfs), on ext4 they are not.
#[test]
fn names_survive_in_any_order_by_posix_and_in_theirs_on_ext4() {
    let left = |rules| {
        let mut disk = Disk::new(rules);
        disk.create("a");
        disk.create("b");
        let all: HashSet<_> = (0..60).map(|seed| disk.left(disk.0.end(), Lose::Random, Tear::None, seed)).collect();
        all.contains(&vec!["b=".to_owned()])
    };
    assert!(left(Rules::Strict));
    assert!(!left(Rules::Ext4));
}

/// A name that moved on can't be at both places: each move of it needs the one before.
#[test]
fn a_later_move_of_a_name_never_survives_alone() {
    for rules in [Rules::Strict, Rules::Ext4] {
        let mut disk = Disk::new(rules);
        disk.create("a");
        disk.write("a", 0, "x");
        disk.sync("a");
        disk.sync(".");
        disk.rename("a", "b");
        disk.rename("b", "c");
        for seed in 0..60 {
            for lose in [Lose::Random, Lose::AllBut, Lose::One] {
                let left = disk.left(disk.0.end(), lose, Tear::None, seed);
                assert!(left == ["a=x"] || left == ["b=x"] || left == ["c=x"], "{rules:?} {lose:?} {left:?}");
            }
        }
    }
}

/// Two moves of folders of which one is lost would make a circle, which no file system leaves.
#[test]
fn lost_moves_of_folders_leave_no_circle() {
    let mut disk = Disk::new(Rules::Strict);
    disk.make("y", 0o040_755);
    disk.make("y/x", 0o040_755);
    disk.create("y/x/file");
    disk.0.record(Operation::SyncAll);
    disk.rename("y/x", "x");
    disk.rename("y", "x/y");
    for seed in 0..40 {
        let left = disk.left(disk.0.end(), Lose::Random, Tear::None, seed);
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(left.iter().any(|path| path.ends_with("file=")), "{left:?}");
    }
}

/// A sector is written whole (NVMe, Atomic Write Unit Power Fail; ALICE: single-sector overwrites); more is not.
#[test]
fn writes_tear_at_sectors_of_the_file_or_pages_and_never_within() {
    for (tear, grain) in [(Tear::Sector, 512), (Tear::Page, 4096), (Tear::None, usize::MAX)] {
        let mut disk = Disk::new(Rules::Strict);
        disk.create("a");
        disk.write("a", 0, &"o".repeat(20_000));
        disk.0.record(Operation::SyncAll);
        // Neither its begin nor its end is at a boundary.
        disk.write("a", 100, &"n".repeat(19_000));
        let mut was_torn = false;
        for seed in 0..40 {
            let left = disk.left(disk.0.end(), Lose::Random, tear, seed);
            let text = left[0].strip_prefix("a=").expect("the file");
            assert_eq!(text.len(), 20_000);
            let written = &text.as_bytes()[100..19_100];
            let changes = (1..written.len()).filter(|at| written[*at] != written[*at - 1]).map(|at| at + 100);
            let changes: Vec<usize> = changes.collect();
            was_torn |= !changes.is_empty();
            assert!(changes.iter().all(|at| at % grain == 0), "{tear:?} {changes:?}");
        }
        assert_eq!(was_torn, tear != Tear::None);
    }
}

/// An append of which only the later piece survives begins with zeroes: the size is not what says that it is whole.
#[test]
fn a_torn_append_may_have_its_size_and_zeroes() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("log");
    disk.0.record(Operation::SyncAll);
    disk.write("log", 0, &"r".repeat(1024));
    let left: HashSet<_> = (0..60).map(|seed| disk.left(disk.0.end(), Lose::Random, Tear::Sector, seed)).collect();
    assert!(left.contains(&vec![format!("log={}{}", ".".repeat(512), "r".repeat(512))]));
}

/// POSIX, open: O_DSYNC makes the write durable, and not those before it.
#[test]
fn a_write_through_is_durable_alone() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("a");
    disk.0.record(Operation::SyncAll);
    disk.write("a", 0, "first");
    let write = disk.write("a", 5, "through");
    disk.0.record(Operation::WrittenThrough { write });
    assert_eq!(disk.cut(), ["a=.....through"]);
}

/// A file that is truncated and written anew has its new bytes in new blocks: they never show without the truncation.
#[test]
fn bytes_behind_a_truncation_need_it() {
    for rules in [Rules::Strict, Rules::Ext4] {
        let mut disk = Disk::new(rules);
        let ino = disk.create("a");
        disk.write("a", 0, "long old text");
        disk.0.record(Operation::SyncAll);
        disk.0.record(Operation::Resize { ino, size: 0 });
        disk.write("a", 0, "new");
        for seed in 0..40 {
            let left = disk.left(disk.0.end(), Lose::Random, Tear::None, seed).concat();
            assert!(["a=long old text", "a=", "a=new"].contains(&left.as_str()), "{rules:?} {left}");
        }
    }
}

/// Linux since 4.13: after a failed fsync pages are clean, so that the next fsync succeeds and they are not written.
#[test]
fn bytes_of_a_failed_sync_are_lost_though_a_later_sync_succeeds() {
    let mut disk = Disk::new(Rules::Strict);
    let ino = disk.create("a");
    disk.0.record(Operation::SyncAll);
    disk.write("a", 0, "lost");
    disk.0.record(Operation::SyncFailed { ino });
    disk.sync("a");
    assert_eq!(disk.cut(), ["a="]);
    disk.write("a", 4, "kept");
    disk.sync("a");
    disk.0.record(Operation::SyncAll);
    assert_eq!(disk.cut(), ["a=....kept"]);
    disk.0.fold();
    assert_eq!((disk.cut(), disk.0.log.len()), (vec!["a=....kept".to_owned()], 0));
}

/// One journal: the sync of one file makes the names before it durable, and an overwrite commits none.
#[test]
fn a_sync_commits_the_journal_of_ext4_when_metadata_of_the_file_changed() {
    let mut disk = Disk::new(Rules::Ext4);
    disk.create("db");
    disk.write("db", 0, "page");
    disk.sync("db");
    disk.create("other");
    disk.write("db", 0, "PAGE");
    disk.sync("db");
    assert_eq!(disk.cut(), ["db=PAGE"], "an overwrite changes no metadata");
    disk.write("db", 4, "more");
    disk.sync("db");
    assert_eq!(disk.cut(), ["db=PAGEmore", "other="]);
}

/// The size is in the journal: what is appended comes with the names before it, and maybe later than those behind it.
/// POSIX orders neither. An overwrite changes no metadata.
#[test]
fn an_append_survives_on_ext4_only_with_the_metadata_before_it() {
    for (rules, is_ordered) in [(Rules::Strict, false), (Rules::Ext4, true)] {
        let mut disk = Disk::new(rules);
        disk.create("log");
        disk.write("log", 0, "one");
        disk.0.record(Operation::SyncAll);
        disk.create("object");
        disk.write("log", 3, "two");
        disk.write("log", 3, "TWO");
        disk.create("later");
        let left: HashSet<_> = (0..200).map(|seed| disk.left(disk.0.end(), Lose::Random, Tear::None, seed)).collect();
        let has = |files: &[&str]| left.iter().any(|left| left.iter().map(String::as_str).eq(files.iter().copied()));
        assert_eq!(has(&["log=onetwo"]) || has(&["log=oneTWO"]), !is_ordered, "{left:?}");
        assert!(has(&["log=oneTWO", "object="]) && has(&["later=", "log=one", "object="]), "{left:?}");
        // The same with a single survivor.
        let alone = (0..50).map(|seed| disk.left(disk.0.end(), Lose::AllBut, Tear::None, seed));
        assert_eq!(alone.into_iter().any(|left| left == ["log=onetwo"]), !is_ordered);
        disk.0.record(Operation::SyncAll);
        disk.create("last");
        disk.write("log", 0, "ONE");
        let kept = (0..50).map(|seed| disk.left(disk.0.end(), Lose::AllBut, Tear::None, seed));
        assert!(kept.into_iter().any(|left| left == ["later=", "log=ONETWO", "object="]));
    }
}

/// O_DSYNC writes the size of a file as `fdatasync` does, by a commit of the journal.
#[test]
fn an_append_that_goes_through_commits_the_journal_of_ext4() {
    for (rules, expected) in [(Rules::Strict, vec!["log=one"]), (Rules::Ext4, vec!["log=one", "other="])] {
        let mut disk = Disk::new(rules);
        disk.create("log");
        disk.0.record(Operation::SyncAll);
        disk.create("other");
        let write = disk.write("log", 0, "one");
        disk.0.record(Operation::WrittenThrough { write });
        assert_eq!(disk.cut(), expected);
    }
}

#[test]
fn all_but_keeps_one_and_one_loses_one() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("a");
    disk.0.record(Operation::SyncAll);
    for (at, text) in ["x", "y", "z"].into_iter().enumerate() {
        disk.write("a", at as u64, text);
    }
    let all = |lose| (0..40).map(|seed| disk.left(disk.0.end(), lose, Tear::None, seed).concat()).collect();
    let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<HashSet<String>>();
    let (all_but, one): (HashSet<String>, HashSet<String>) = (all(Lose::AllBut), all(Lose::One));
    assert_eq!(all_but, texts(&["a=x", "a=.y", "a=..z"]));
    assert_eq!(one, texts(&["a=.yz", "a=x.z", "a=xy"]));
}

#[test]
fn a_plan_is_bounded_and_the_same_for_a_seed() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("a");
    for at in 0..10 {
        disk.write("a", at, "x");
        disk.sync("a");
    }
    let kinds = [Lose::Unsynced, Lose::Random];
    for at in [At::Sync, At::Write, At::Every] {
        let cuts = plan(&disk.0, at, &kinds, 15, 7);
        assert_eq!((cuts.len(), &cuts), (15, &plan(&disk.0, at, &kinds, 15, 7)), "{at:?}");
        assert_ne!(cuts, plan(&disk.0, at, &kinds, 15, 8), "{at:?}");
        assert_eq!(plan(&disk.0, at, &kinds, 500, 7).len(), 500, "{at:?}: draws are drawn again");
    }
    // Ten syncs, before and after each, and the end, which is one of these.
    assert_eq!(plan(&disk.0, At::Sync, &[Lose::Unsynced], 500, 7).len(), 20);
    assert_eq!(plan(&disk.0, At::Write, &[Lose::Unsynced], 500, 7).len(), 12);
    assert_eq!(plan(&disk.0, At::Every, &[Lose::Unsynced], 500, 7).len(), 21);
}

#[test]
fn a_folded_log_leaves_what_a_whole_one_does() {
    for rules in [Rules::Strict, Rules::Ext4] {
        let mut rng = Rng::new(3, b"fold");
        let (mut whole, mut folded) = (Disk::new(rules), Disk::new(rules));
        for round in 0..400 {
            let name = format!("f{}", rng.below(4));
            let other = format!("f{}", rng.below(4));
            let is_there = whole.0.seen().find(&whole.at(&name)).is_some();
            let what = rng.below(6);
            for disk in [&mut whole, &mut folded] {
                match what {
                    _ if !is_there => _ = disk.create(&name),
                    0 | 1 => _ = disk.write(&name, round % 7, &format!("<{round}>")),
                    2 => disk.sync(&name),
                    3 => disk.sync("."),
                    4 if name != other => _ = disk.rename(&name, &other),
                    _ => _ = disk.remove(&name),
                }
            }
            // As a mount does once no program has the file open.
            (1..=folded.0.seen().last()).for_each(|ino| folded.0.forget(ino));
            folded.0.fold();
            assert_eq!(whole.0.end(), folded.0.end());
            assert_eq!(whole.cut(), folded.cut(), "{rules:?} round {round}");
            let all = |disk: &Disk| disk.left(disk.0.end(), Lose::Nothing, Tear::None, 0);
            assert_eq!(all(&whole), all(&folded), "{rules:?} round {round}");
        }
        assert!(folded.0.log.len() < 100, "{}", folded.0.log.len());
    }
}

#[test]
fn states_of_a_prepared_volume_are_the_same() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("a");
    disk.sync(".");
    for round in 0..1_000 {
        disk.write("a", round % 90, &round.to_string());
        if round % 50 == 0 {
            disk.sync("a");
        }
    }
    let states: Vec<State> = (0..60)
        .map(|seed| disk.0.state(disk.0.end() * seed / 60, Lose::Random, Tear::None, &mut Rng::new(seed, b"")))
        .chain([State { cut: 0, ..State::default() }, State { cut: disk.0.end(), ..State::default() }])
        .collect();
    let digests = |disk: &Disk| -> Vec<u64> { states.iter().map(|it| disk.0.build(it, Tear::None).digest()).collect() };
    let before = digests(&disk);
    disk.0.prepare();
    assert!(disk.0.steps.len() > 3);
    assert_eq!(digests(&disk), before);
}

#[test]
fn a_tree_is_made_again_by_its_operations() {
    let mut disk = Disk::new(Rules::Strict);
    disk.make("d", 0o040_700);
    disk.create("d/a");
    disk.write("d/a", 5_000, "far");
    let (ino, at) = (disk.ino("d/a"), disk.at("hard"));
    disk.0.record(Operation::Link { ino, at });
    let (at, ino) = (disk.at("soft"), disk.0.new_ino());
    let target = b"d/a".to_vec();
    disk.0.record(Operation::Create { at, ino, mode: 0o120_777, uid: 3, gid: 4, rdev: 0, target });
    let mut again = Tree::default();
    disk.0.seen().operations().iter().for_each(|operation| again.apply(operation, Fate::Kept));
    assert_eq!(again.digest(), disk.0.seen().digest());
    disk.write("d/a", 5_000, "Far");
    assert_ne!(again.digest(), disk.0.seen().digest());

    let folder = tempfile::tempdir().unwrap();
    crate::unpack(disk.0.seen(), folder.path()).unwrap();
    let path = |name: &str| folder.path().join(name);
    assert_eq!(std::fs::read(path("hard")).unwrap()[4_990..], *b"\0\0\0\0\0\0\0\0\0\0Far");
    assert_eq!(std::fs::read_link(path("soft")).unwrap(), std::path::Path::new("d/a"));
    use std::os::unix::fs::MetadataExt as _;
    let about = |name: &str| std::fs::metadata(path(name)).unwrap();
    assert_eq!((about("hard").ino(), about("hard").nlink()), (about("d/a").ino(), 2));
    assert_eq!(about("d").mode(), 0o040_700);
}

/// A log without a sync: the smallest cut is behind the first acknowledged record, and one lost write is enough.
#[test]
fn a_failure_shrinks_to_the_first_cut_and_one_lost_write() {
    let mut disk = Disk::new(Rules::Strict);
    disk.create("log");
    disk.sync(".");
    let mut writes = Vec::new();
    for at in 0..20 {
        writes.push(disk.write("log", at, "r"));
        disk.0.record(Operation::Acknowledge { id: at.to_string() });
    }
    let mut asked = 0;
    let mut fails = |state: &State| {
        asked += 1;
        let tree = disk.0.build(state, Tear::None);
        let found = listed(&tree).concat().matches('r').count();
        found < disk.0.acknowledged(state.cut).count()
    };
    let first = disk.0.state(disk.0.end(), Lose::Random, Tear::None, &mut Rng::new(1, b""));
    assert!(fails(&first));
    let smallest = crate::shrink(&disk.0, first, 100, &mut fails);
    assert_eq!(smallest.cut, writes[0] + 2);
    assert_eq!(smallest.lost.keys().copied().collect::<Vec<_>>(), [writes[0]]);
    assert!(asked <= 102, "{asked}");
}

/// Names alone made a log that no bound held, since only data was counted.
#[test]
fn operations_without_data_count_in_the_log_and_leave_it() {
    for rules in [Rules::Strict, Rules::Ext4] {
        let mut disk = Disk::new(rules);
        for _ in 0..1_000 {
            let ino = disk.create("file");
            disk.0.record(Operation::Remove { at: disk.at("file") });
            disk.0.forget(ino);
        }
        assert!(disk.0.logged() > 2_000 * 64, "{}", disk.0.logged());
        disk.0.record(Operation::SyncAll);
        disk.0.fold();
        assert_eq!((disk.0.logged(), disk.0.pending(disk.0.end()).len()), (0, 0));
    }
}
