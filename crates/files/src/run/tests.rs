//! Checkpoints, amid what files do meanwhile.

use super::*;
use crate::backing::Journal;
use crate::replay::tests::{Memory, new_file};
use crate::set::tests::Nothing;
use crate::system::Plain;
use crate::table::HELD;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// A file leaves the set, or is real, after a checkpoint has chosen where the log will begin, and before it comes
/// to the file.
#[test]
fn a_file_that_leaves_amid_a_checkpoint_is_named_behind_it_and_left_alone_by_replay() {
    for stays in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, file) = new_file(folder.path(), "file");
        let (level, globs) = (Some(Level::Ring), Globs::from_text("/**"));
        let owners = Vec::new();
        let setup = Setup { target: String::new(), lane: 0, level, globs, owners, forget: false, adopt: false };
        let (run, _) = Run::over(&setup, Memory::default()).expect("memory");
        let (files, bytes) = (run.files(), path.as_os_str().as_bytes());
        let place = files
            .enter(file.as_fd(), bytes, &Plain)
            .expect("the file can join the set")
            .expect("the file is in the set");
        let (from, bind, name) = (files.journal().end(), files.table().bind(place), files.table().path(place));
        run.say_session().expect("the log accepts it");
        let locked = files.lock(place, file.as_fd(), false).expect("no owner died").expect("the file is in the table");
        locked.begin(0, 3);
        files.write(&locked, 0, b"old").expect("the log accepts it");
        file.write_all_at(b"old", 0).expect("there is room");
        locked.end();
        drop(locked);
        files.leave(place, file.as_fd(), stays, &Plain).expect("the log accepts it");
        file.write_all_at(b"new", 0).expect("there is room");
        run.ready(place, file.as_fd(), Some((&bind, &name))).expect("the log accepts it");
        let mut state = run.state.lock().expect("no thread panicked");
        state.marks.know(bytes);
        assert!(run.advance_marks(&mut state, from).expect("the log accepts it").is_none());
        files.record(FileChangeKind::Synced, from, &[]).expect("the log accepts it");
        let (report, found) = files.journal().recovered(&path);
        assert_eq!((report.unbound, found.as_slice()), (0, &b"new"[..]), "{stays}");
    }
}

/// A run has places for some files, and a program may write more of them, one after another.
#[test]
fn files_without_changes_give_way_to_others_and_come_back() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory: there are many files");
    let setup = Setup {
        target: String::new(),
        lane: 0,
        level: Some(Level::Ring),
        globs: Globs::from_text("/**"),
        owners: Vec::new(),
        forget: false,
        adopt: false,
    };
    let (run, _) = Run::over(&setup, Memory::default()).expect("memory");
    let files = run.files();
    files.table().set_limit(u64::MAX, 4096);
    let checkpoint = || {
        let mut state = run.state.lock().expect("no thread panicked");
        run.checkpoint(&mut state, false).expect("the checkpoint succeeds");
    };
    let enter = |path: &Path, file: &File| {
        let place = files.enter(file.as_fd(), path.as_os_str().as_bytes(), &Nothing).expect("there is a place");
        place.expect("the file is in the set")
    };
    let write = |place: Place, file: &File, text: &[u8], at: u64| {
        let locked = files.lock(place, file.as_fd(), false).expect("no owner died").expect("the file is in the table");
        locked.begin(at, at + text.len() as u64);
        files.write(&locked, at, text).expect("the log accepts it");
        file.write_all_at(text, at).expect("there is room");
        locked.end();
    };
    let (first_path, first) = new_file(folder.path(), "first");
    let (busy_path, busy) = new_file(folder.path(), "busy");
    let (layers_path, layers) = new_file(folder.path(), "layers");
    let [gone, stays, held] =
        [(&first_path, &first), (&busy_path, &busy), (&layers_path, &layers)].map(|(path, file)| enter(path, file));
    write(gone, &first, b"one", 0);
    files.table().flag(held, HELD);
    for number in 0..FILES_MAX + FILES_MAX / 4 {
        let (path, file) = new_file(folder.path(), &format!("{number}"));
        write(enter(&path, &file), &file, b"bytes", 0);
        if number % (FILES_MAX / 4) == 0 {
            write(stays, &busy, &[number as u8], 0);
            checkpoint();
        }
    }
    assert!(!files.table().is(gone) && files.table().is(stays) && files.table().is(held));
    let back = enter(&first_path, &first);
    assert!(back != gone);
    write(back, &first, b"two", 3);
    let (report, found) = files.journal().recovered(&first_path);
    assert_eq!((report.unbound, found.as_slice()), (0, &b"onetwo"[..]));
}

#[test]
fn a_checkpoint_waits_for_a_file_that_is_being_renamed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, file) = new_file(folder.path(), "old");
    let new = old.with_file_name("new");
    let (level, globs) = (Some(Level::Ring), Globs::from_text("/**"));
    let setup = Setup { target: String::new(), lane: 0, level, globs, owners: Vec::new(), forget: false, adopt: false };
    let (run, _) = Run::over(&setup, Memory::default()).expect("memory");
    let files = run.files();
    let place = files
        .enter(file.as_fd(), old.as_os_str().as_bytes(), &Plain)
        .expect("the file can join the set")
        .expect("a name");
    let moving = files.record_move(place, new.as_os_str().as_bytes(), false).expect("the log accepts it");
    std::thread::scope(|scope| {
        let found = scope.spawn(|| run.open_moved(place).map(|(_, path)| path));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            assert!(!found.is_finished(), "it is taken for a file that is gone");
            std::thread::yield_now();
        }
        std::fs::rename(&old, &new).expect("the rename succeeds");
        drop(moving);
        assert_eq!(found.join().expect("no panic"), Some(new.clone()));
    });
    std::fs::remove_file(&new).expect("the file can be removed");
    assert!(run.open_moved(place).is_none(), "no rename of it is under way");
}
