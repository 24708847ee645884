use super::*;
use crate::layout::LayoutError;

#[test]
fn a_ring_of_another_shape_is_no_ring() {
    let file_bytes = RingHeader::file_bytes(2, 8192);
    let good = RingHeader { lanes: 2, ring_bytes: 8192, file_bytes, ..Default::default() };
    assert_eq!(RingHeader::parse(&good.to_bytes()), Ok(good));
    let field = |bad: RingHeader| match RingHeader::parse(&bad.to_bytes()) {
        Err(LayoutError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(RingHeader { lanes: 0, ..good }), "lanes");
    assert_eq!(field(RingHeader { lanes: 17, ..good }), "lanes");
    assert_eq!(field(RingHeader { ring_bytes: 6144, ..good }), "ring_bytes");
    assert_eq!(field(RingHeader { ring_bytes: 1 << 63, ..good }), "ring_bytes");
    assert_eq!(field(RingHeader { file_bytes: file_bytes - 1, ..good }), "file_bytes");
    let mut damaged = good.to_bytes();
    damaged[130] ^= 1;
    assert!(matches!(RingHeader::parse(&damaged), Err(LayoutError::Checksum { .. })));
}

#[test]
fn a_record_takes_whole_lines() {
    assert_eq!(RecordHeader::span(0), 64);
    assert_eq!(RecordHeader::span(24), 64);
    assert_eq!(RecordHeader::span(25), 128);
    assert_eq!(RecordHeader::span(u64::MAX), u64::MAX);
}

#[test]
fn records_about_files_are_read_whole_or_not_at_all() {
    let head = |kind, offset, len| FileChange { kind, id: 7, offset, len, ..FileChange::default() }.to_bytes().to_vec();
    let write = [head(FileChangeKind::Write, 5, 3), b"abc".to_vec()].concat();
    assert_eq!(FileRecord::parse(&write), Ok(FileRecord::Write { id: 7, offset: 5, bytes: b"abc", base: 0 }));
    assert!(FileRecord::parse(&write[..write.len() - 1]).is_err());
    assert!(FileRecord::parse(&[write.clone(), vec![0]].concat()).is_err());
    assert!(FileRecord::parse(&head(FileChangeKind::Truncate, 0, u64::MAX)).is_err());
    assert!(FileRecord::parse(&head(FileChangeKind::Zero, 1 << 62, 1 << 62)).is_err());
    assert_eq!(FileRecord::parse(&head(FileChangeKind::Leave, 0, 0)), Ok(FileRecord::Leave { id: 7 }));
    let bind = |path: &[u8]| {
        let bind = FileBind { inode: 3, path_bytes: 4, ..FileBind::default() };
        [head(FileChangeKind::Bind, 0, 0), bind.to_bytes().to_vec(), path.to_vec()].concat()
    };
    assert!(matches!(FileRecord::parse(&bind(b"/a/b")), Ok(FileRecord::Bind { id: 7, path: b"/a/b", .. })));
    for path in [&b"a/bc"[..], b"/a\0b", b"/a"] {
        assert!(FileRecord::parse(&bind(path)).is_err(), "{path:?}");
    }
    let session = FileSession { pattern_bytes: 3, ..FileSession::default() }.to_bytes();
    let session = [head(FileChangeKind::Session, 0, 0), session.to_vec(), b"/a\0".to_vec()].concat();
    assert!(matches!(FileRecord::parse(&session), Ok(FileRecord::Session { patterns: b"/a\0", .. })));
    assert!(FileRecord::parse(&session[..session.len() - 1]).is_err());
}

#[test]
fn a_delta_is_read_with_all_its_patches_and_none_beyond_its_bytes() {
    let delta = |base: u8, len: u64, patches: u16, bytes: &[(u16, &[u8])]| {
        let head = FileChange { kind: FileChangeKind::Delta, id: 7, base, offset: 5, len };
        let mut record = [&head.to_bytes()[..], &FileDelta { lsn: 640, patches }.to_bytes()].concat();
        for (at, bytes) in bytes {
            record.extend(FilePatch { at: *at, len: bytes.len() as u16 }.to_bytes());
            record.extend(*bytes);
        }
        record
    };
    let whole = delta(4, 600, 2, &[(3, b"ab"), (598, b"cd")]);
    let Ok(FileRecord::Delta { id: 7, offset: 5, len: 600, base: 4, lsn: 640, patches }) = FileRecord::parse(&whole)
    else {
        panic!("{:?}", FileRecord::parse(&whole));
    };
    assert_eq!(patches.collect::<Vec<_>>(), [(3, &b"ab"[..]), (598, b"cd")]);
    assert!(matches!(FileRecord::parse(&delta(1, 600, 0, &[])), Ok(FileRecord::Delta { .. })), "all of it is the same");
    for (record, why) in [
        (delta(0, 600, 0, &[]), "no base"),
        (delta(5, 600, 0, &[]), "no such base"),
        (delta(1, 599, 2, &[(3, b"ab"), (598, b"cd")]), "beyond its bytes"),
        (delta(1, u64::MAX, 0, &[]), "beyond any file"),
        (delta(1, 600, 1, &[(3, b"ab"), (598, b"cd")]), "more than there are"),
        (delta(1, 600, 3, &[(3, b"ab"), (598, b"cd")]), "fewer than there are"),
    ] {
        assert!(FileRecord::parse(&record).is_err(), "{why}");
    }
    for end in 0..whole.len() {
        assert!(FileRecord::parse(&whole[..end]).is_err(), "the first {end} bytes");
    }
}
