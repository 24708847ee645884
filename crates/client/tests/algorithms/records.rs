//! Records in a recovered stream, whole or damaged.

use proptest::prelude::*;
use tidewater_client::{Damage, End, Entry, Records, encode_record, fill_void};
use tidewater_wire::log::RecordHeader;
use tidewater_wire::vendor::Epoch;

fn epoch(counter: u64) -> Epoch {
    Epoch::new(counter, 1)
}

/// A stream of these payloads, and where each record begins.
fn stream(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
    let (mut bytes, mut lsns) = (Vec::new(), Vec::new());
    for payload in payloads {
        lsns.push(bytes.len() as u64);
        encode_record(bytes.len() as u64, epoch(1), payload, &mut bytes).unwrap();
    }
    (bytes, lsns)
}

fn read(bytes: &[u8], start: u64) -> (Vec<Entry<'_>>, End) {
    let mut records = Records::new(bytes, start);
    let entries: Vec<_> = records.by_ref().collect();
    assert_eq!(records.next(), None);
    (entries, records.end().expect("an iteration that ended says why"))
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..12)
}

proptest! {
    #[test]
    fn what_is_appended_is_read(payloads in payloads()) {
        let (bytes, lsns) = stream(&payloads);
        let (entries, end) = read(&bytes, 0);
        prop_assert_eq!(end, End::Complete);
        prop_assert_eq!(entries.len(), payloads.len());
        for ((entry, payload), lsn) in entries.iter().zip(&payloads).zip(lsns) {
            prop_assert_eq!(entry, &Entry::Record { lsn, epoch: epoch(1), payload });
        }
    }

    #[test]
    fn any_prefix_gives_all_whole_records_and_says_what_is_torn(payloads in payloads(), cut: u16) {
        let (bytes, lsns) = stream(&payloads);
        let cut = usize::from(cut) % (bytes.len() + 1);
        let (entries, end) = read(&bytes[..cut], 0);
        let whole = |(payload, lsn): &(&Vec<u8>, &u64)| **lsn as usize + RecordHeader::SIZE + payload.len() <= cut;
        let want = payloads.iter().zip(&lsns).filter(whole).count();
        prop_assert_eq!(entries.len(), want);
        match lsns.get(want) {
            Some(&lsn) if lsn < cut as u64 => {
                let torn = matches!(end, End::Torn { lsn: at, have, .. } if at == lsn && have == cut as u64 - lsn);
                prop_assert!(torn, "{:?}", end);
            }
            _ => prop_assert_eq!(end, End::Complete),
        }
    }

    /// Entries follow each other without a gap, whatever the bytes are; what is not damaged is found.
    #[test]
    fn damage_costs_only_what_it_hits(
        payloads in payloads(),
        start_line in 0..50u64,
        flips in proptest::collection::vec((any::<u16>(), 1..=255u8), 0..6),
        behead in 0..100usize,
    ) {
        let start = start_line * 64;
        let (mut bytes, mut lsns) = (Vec::new(), Vec::new());
        for payload in &payloads {
            lsns.push(start + bytes.len() as u64);
            encode_record(start + bytes.len() as u64, epoch(1), payload, &mut bytes).unwrap();
        }
        let mut hit = vec![false; bytes.len()];
        for (at, flip) in flips {
            if !bytes.is_empty() {
                let at = usize::from(at) % bytes.len();
                if !hit[at] {
                    bytes[at] ^= flip;
                    hit[at] = true;
                }
            }
        }
        let behead = behead.min(bytes.len());
        let (entries, end) = read(&bytes[behead..], start + behead as u64);
        let mut at = start + behead as u64;
        for entry in &entries {
            let (from, to) = match *entry {
                Entry::Record { lsn, payload, .. } => (lsn, lsn + RecordHeader::span(payload.len() as u64)),
                Entry::Void { lsn, bytes } => (lsn, lsn + bytes),
                Entry::Skipped { from, to, .. } => (from, to),
            };
            prop_assert_eq!(from, at);
            prop_assert!(to > from);
            at = to;
        }
        prop_assert!(at == start + bytes.len() as u64 || matches!(end, End::Torn { .. }), "{:?} {:?}", entries, end);
        for (payload, lsn) in payloads.iter().zip(lsns) {
            let first = (lsn - start) as usize;
            let last = first + RecordHeader::SIZE + payload.len();
            let safe = first >= behead && !hit[first..last].contains(&true);
            if safe {
                let found = entries.contains(&Entry::Record { lsn, epoch: epoch(1), payload });
                prop_assert!(found, "the record at {} is lost: {:?}", lsn, entries);
            }
        }
    }

    #[test]
    fn noise_never_panics_and_is_told(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        start in 0..1u64 << 44,
    ) {
        let (entries, end) = read(&bytes, start);
        let nothing = entries.iter().all(|entry| matches!(entry, Entry::Skipped { .. }));
        prop_assert!(nothing);
        prop_assert_eq!(end == End::Complete, bytes.is_empty());
    }

    #[test]
    fn a_sealed_part_is_passed_over(
        offset in 0..300u64,
        bytes in 0..500usize,
        payload in proptest::collection::vec(any::<u8>(), 0..99),
    ) {
        let mut sealed = vec![0xAA; bytes];
        fill_void(offset, epoch(1), &mut sealed);
        // Up to the next line.
        let next = (offset + bytes as u64).next_multiple_of(64);
        sealed.resize((next - offset) as usize, 0);
        encode_record(next, epoch(1), &payload, &mut sealed).unwrap();
        let (entries, end) = read(&sealed, offset);
        prop_assert_eq!(end, End::Complete);
        prop_assert_eq!(entries.last(), Some(&Entry::Record { lsn: next, epoch: epoch(1), payload: &payload }));
        if offset.is_multiple_of(64) && bytes >= 64 {
            prop_assert!(matches!(entries[0], Entry::Void { lsn, .. } if lsn == offset), "{:?}", entries);
            prop_assert_eq!(entries.len(), 2);
        }
    }
}

#[test]
fn each_kind_of_damage_is_named() {
    let (good, _) = stream(&[b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    let said = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        read(&bytes, 0).0.into_iter().find_map(|entry| match entry {
            Entry::Skipped { from, to, damage } => Some((from, to, damage)),
            _ => None,
        })
    };
    assert_eq!(said(|_| {}), None);
    assert_eq!(said(|bytes| bytes[64..128].fill(0)), Some((64, 128, Damage::NoHeader)));
    assert_eq!(said(|bytes| bytes[64 + 20] ^= 1), Some((64, 128, Damage::Header)));
    assert_eq!(said(|bytes| bytes[64 + 41] ^= 1), Some((64, 128, Damage::Payload)));
    assert_eq!(said(|bytes| bytes.copy_within(0..64, 64)), Some((64, 128, Damage::Misplaced)));
    assert_eq!(said(|bytes| drop(bytes.drain(64..128))), Some((64, 128, Damage::Misplaced)));
    let stale = said(|bytes| {
        bytes.truncate(64);
        encode_record(64, epoch(3), b"new", bytes).unwrap();
        encode_record(128, epoch(2), b"deposed", bytes).unwrap();
        encode_record(192, epoch(3), b"new", bytes).unwrap();
    });
    assert_eq!(stale, Some((128, 192, Damage::StaleEpoch)));
    let (entries, end) = read(&good[10..], 10);
    assert_eq!(entries[0], Entry::Skipped { from: 10, to: 64, damage: Damage::Beginning });
    assert_eq!((entries.len(), end), (3, End::Complete));
}

#[test]
fn after_the_last_record_nothing_is_told_apart_from_a_torn_one() {
    let (mut bytes, _) = stream(&[b"one".to_vec(), vec![7; 500]]);
    let (entries, end) = read(&bytes[..300], 0);
    assert_eq!((entries.len(), end), (1, End::Torn { lsn: 64, need: 540, have: 236 }));
    bytes.truncate(64);
    bytes.resize(300, 0);
    let (entries, end) = read(&bytes, 0);
    assert_eq!(entries[1], Entry::Skipped { from: 64, to: 300, damage: Damage::NoHeader });
    assert_eq!(end, End::NoMoreRecords { from: 64 });
    assert_eq!((read(&[], 0).1, read(&[], 1).1), (End::Complete, End::Complete));
}

#[test]
fn a_torn_record_before_whole_ones_is_a_hole_and_not_the_end() {
    let (mut bytes, _) = stream(&[vec![7; 5000]]);
    bytes.truncate(128);
    encode_record(128, epoch(1), b"later", &mut bytes).unwrap();
    let (entries, end) = read(&bytes, 0);
    assert_eq!(entries[0], Entry::Skipped { from: 0, to: 128, damage: Damage::Payload });
    assert!(matches!(entries[1], Entry::Record { lsn: 128, payload: b"later", .. }));
    assert_eq!(end, End::Complete);
}
