use super::features::*;
use super::interface::Transport;
use super::namespaces::{Geometry, Initial, Namespaces};
use crate::saved;
use proptest::prelude::*;
use tidewater_base::Instant;
use tidewater_wire::nvme::feature::{self, Capabilities, HmbDescriptor, HostMemoryBuffer, Timestamp};
use tidewater_wire::nvme::{Event, GetFeatures, NSID_ALL, Select, SetFeatures, Status};

const LOCAL: Limits =
    Limits { transport: Transport::Pcie, queues: 4, vectors: 5, host_memory_min: Some(2), burst: 3, weights: [0; 3] };
const REMOTE: Limits = Limits { transport: Transport::Fabrics, host_memory_min: None, ..LOCAL };

struct Bench {
    features: Features,
    namespaces: Namespaces,
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

impl Bench {
    fn new() -> Bench {
        let geometry = Geometry { blocks: 8192, block_shift: 9, unit_shift: 12 };
        let mut namespaces = Namespaces::new(geometry, 1);
        for _ in 0..2 {
            namespaces.add(Initial { bytes: 1 << 20, block_shift: 9, shared: true }).unwrap();
        }
        Bench { features: Features::new([LOCAL, LOCAL, REMOTE]), namespaces }
    }

    fn get(&self, fid: u8, select: Select, nsid: u32, cdw11: u32) -> Result<Answer, Status> {
        self.features.get(0, at(5_000), &GetFeatures { fid, select, nsid, cdw11 }, &self.namespaces)
    }

    fn dword(&self, fid: u8, select: Select) -> u32 {
        self.get(fid, select, 0, 0).unwrap().dword
    }

    fn set_of(&mut self, function: u8, set: SetFeatures, data: &[u8]) -> Result<u32, Status> {
        let asked = Asked { function, now: at(1_000), queues_exist: false };
        self.features.set(asked, &set, data, &mut self.namespaces)
    }

    fn set(&mut self, fid: u8, save: bool, nsid: u32, dword: u32) -> Result<u32, Status> {
        self.set_of(0, SetFeatures { fid, save, nsid, dwords: [dword, 0, 0, 0, 0] }, &[])
    }
}

#[test]
fn values_are_current_default_and_saved() {
    let mut b = Bench::new();
    let cache = feature::VOLATILE_WRITE_CACHE;
    assert_eq!(b.dword(cache, Select::Current), 1);
    assert!(b.features.write_cache(0));
    b.set(cache, false, 0, 0).unwrap();
    assert!(!b.features.write_cache(0) && b.features.write_cache(1), "it is each controller's own");
    let all = [Select::Current, Select::Default, Select::Saved];
    assert_eq!(all.map(|select| b.dword(cache, select)), [0, 1, 1]);
    b.set(cache, true, NSID_ALL, 0).unwrap();
    assert_eq!(all.map(|select| b.dword(cache, select)), [0, 1, 0]);
    b.set(cache, false, 0, 1).unwrap();
    b.features.reset(0, at(2_000));
    assert_eq!(all.map(|select| b.dword(cache, select)), [0, 1, 0]);
    assert!(!b.features.write_cache(0));

    let burst = feature::ARBITRATION;
    assert_eq!(b.features.arbitration(0), (Some(8), [1, 1, 1]));
    b.set(burst, false, 0, 0x0302_0107).unwrap();
    assert_eq!((b.features.arbitration(0), b.dword(burst, Select::Default)), ((None, [4, 3, 2]), 3));
    b.features.reset(0, at(2_000));
    assert_eq!(b.dword(burst, Select::Current), 3);

    // The subsystem's own: one value for all controllers, that a reset leaves.
    let progress = feature::SOFTWARE_PROGRESS;
    b.set_of(1, SetFeatures { fid: progress, save: false, nsid: 0, dwords: [7, 0, 0, 0, 0] }, &[]).unwrap();
    b.features.reset(1, at(2_000));
    assert_eq!(b.dword(progress, Select::Current), 7);
}

#[test]
fn what_is_supported() {
    let b = Bench::new();
    let can = |fid| Capabilities::from_dword(b.get(fid, Select::Supported, 0, 0).unwrap().dword);
    let all = Capabilities { saveable: true, of_namespace: false, changeable: true };
    assert_eq!(can(feature::VOLATILE_WRITE_CACHE), all);
    assert_eq!(can(feature::TIMESTAMP), Capabilities { saveable: false, ..all });
    assert_eq!(can(feature::WRITE_PROTECTION), Capabilities { saveable: false, of_namespace: true, ..all });
    for fid in [feature::KEEP_ALIVE, feature::HOST_BEHAVIOR] {
        assert_eq!(can(fid), Capabilities { saveable: false, ..all }, "{fid:02X}h");
    }
    assert_eq!(b.get(0x03, Select::Supported, 0, 0), Err(Status::INVALID_FIELD));
    let remote =
        |fid| b.features.get(2, at(0), &GetFeatures { fid, select: Select::Current, nsid: 0, cdw11: 0 }, &b.namespaces);
    assert_eq!(remote(feature::KEEP_ALIVE).unwrap().dword, 0);
    for fid in [feature::HOST_MEMORY_BUFFER, feature::INTERRUPT_COALESCING, feature::INTERRUPT_VECTOR] {
        assert_eq!(remote(fid), Err(Status::INVALID_FIELD), "{fid:02X}h");
    }
}

#[test]
fn a_host_says_how_it_behaves() {
    let mut b = Bench::new();
    let set = SetFeatures { fid: feature::HOST_BEHAVIOR, save: false, nsid: 0, dwords: [0; 5] };
    let get = |b: &Bench| b.get(feature::HOST_BEHAVIOR, Select::Current, 0, 0).unwrap().data;
    assert_eq!(get(&b), [0; 512]);
    let mut data = [0xFF; 512];
    assert_eq!(b.set_of(0, set, &data), Err(Status::INVALID_FIELD), "the first byte is 0 or 1");
    data[0] = 1;
    assert_eq!(b.set_of(0, set, &data), Ok(0));
    let got = get(&b);
    assert_eq!((got[0], &got[1..]), (1, &[0; 511][..]), "what is not offered stays off");
    b.features.reset(0, at(2_000));
    assert_eq!(get(&b), [0; 512]);
    assert_eq!(b.set_of(0, set, &data[..511]), Err(Status::INVALID_FIELD));
}

#[test]
fn error_recovery_of_no_namespace_is_that_of_all() {
    let mut b = Bench::new();
    let recovery = feature::ERROR_RECOVERY;
    let limits = |b: &Bench| [0, 1, 2].map(|nsid| b.get(recovery, Select::Current, nsid, 0).unwrap().dword);
    assert_eq!(limits(&b), [0, 0, 0]);
    b.set(recovery, false, 2, 7).unwrap();
    assert_eq!(limits(&b), [0, 0, 7], "all have had another value");
    assert_eq!(b.set(recovery, false, 0, 5), Err(Status::INVALID_NAMESPACE));
    b.set(recovery, false, NSID_ALL, 6).unwrap();
    assert_eq!(limits(&b), [6, 6, 6]);
    assert_eq!(b.get(recovery, Select::Current, 9, 0), Err(Status::INVALID_FIELD));
    assert_eq!(b.get(recovery, Select::Current, NSID_ALL, 0), Err(Status::INVALID_NAMESPACE));
}

#[test]
fn rules_of_set_features() {
    let mut b = Bench::new();
    assert_eq!(b.set(feature::TIMESTAMP, true, 0, 0), Err(Status::FEATURE_NOT_SAVEABLE));
    assert_eq!(b.set(feature::VOLATILE_WRITE_CACHE, false, 1, 0), Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC));
    assert_eq!(b.set(feature::POWER_MANAGEMENT, false, 0, 1), Err(Status::INVALID_FIELD));
    assert_eq!(b.set(feature::POWER_MANAGEMENT, false, 0, 1 << 5), Ok(0));
    assert_eq!(b.set(feature::NUMBER_OF_QUEUES, false, 0, 0x000F_000F), Ok(0x0003_0003));
    let late = Asked { function: 0, now: at(0), queues_exist: true };
    let queues = SetFeatures { fid: feature::NUMBER_OF_QUEUES, save: false, nsid: 0, dwords: [0; 5] };
    assert_eq!(b.features.set(late, &queues, &[], &mut b.namespaces), Err(Status::COMMAND_SEQUENCE_ERROR));

    assert_eq!(b.set(feature::ERROR_RECOVERY, false, 1, 1 << 16), Err(Status::INVALID_FIELD));
    assert_eq!(b.set(feature::ERROR_RECOVERY, false, 0, 5), Err(Status::INVALID_NAMESPACE));
    assert_eq!(b.set(feature::ERROR_RECOVERY, false, 1, 5), Ok(0));
    assert_eq!(b.set(feature::ERROR_RECOVERY, false, NSID_ALL, 6), Ok(0));
    assert_eq!(b.get(feature::ERROR_RECOVERY, Select::Current, 2, 0).unwrap().dword, 6);
    assert_eq!(b.get(feature::ERROR_RECOVERY, Select::Default, 2, 0).unwrap().dword, 0);
    assert_eq!(b.get(feature::ERROR_RECOVERY, Select::Current, 3, 0), Err(Status::INVALID_FIELD));

    assert_eq!(b.set(feature::WRITE_PROTECTION, false, 2, 1), Ok(0));
    assert!(b.namespaces.at(2).unwrap().is_protected());
    assert_eq!(b.get(feature::WRITE_PROTECTION, Select::Current, 2, 0).unwrap().dword, 1);
    assert_eq!(b.get(feature::WRITE_PROTECTION, Select::Current, NSID_ALL, 0), Err(Status::INVALID_NAMESPACE));

    assert_eq!(b.features.coalescing(0), None);
    assert_eq!(b.set(feature::INTERRUPT_COALESCING, false, 0, 0x0107), Ok(0));
    assert_eq!(b.features.coalescing(0), Some((8, 1)));
    assert_eq!(b.set(feature::INTERRUPT_VECTOR, false, 0, 1 << 16 | 4), Ok(0));
    assert_eq!(b.set(feature::INTERRUPT_VECTOR, false, 0, 1 << 16 | 5), Err(Status::INVALID_FIELD));
    assert!(b.features.is_uncoalesced(0, 4) && !b.features.is_uncoalesced(0, 3) && !b.features.is_uncoalesced(0, 99));
    assert_eq!(b.get(feature::INTERRUPT_VECTOR, Select::Current, 0, 4).unwrap().dword, 1 << 16 | 4);
}

#[test]
fn thresholds_and_events() {
    let mut b = Bench::new();
    let threshold = feature::TEMPERATURE_THRESHOLD;
    assert_eq!(b.dword(threshold, Select::Current), 343);
    assert!(!b.features.is_hot(0));
    b.set(threshold, false, 0, 300 | 0xF << 16).unwrap();
    assert!(b.features.is_hot(0) && !b.features.is_hot(1));
    assert_eq!((b.dword(threshold, Select::Current), b.dword(threshold, Select::Default)), (300, 343));
    assert_eq!(b.set(threshold, false, 0, 300 | 1 << 16), Err(Status::INVALID_FIELD), "there are no sensors");
    b.set(threshold, false, 0, 343).unwrap();
    b.set(threshold, false, 0, 310 | 1 << 20).unwrap();
    assert!(b.features.is_hot(0), "too cold counts as well");
    assert_eq!(b.get(threshold, Select::Current, 0, 1 << 20).unwrap().dword, 310);

    assert!(!b.features.tells(0, Event::NamespaceAttributeChanged) && b.features.tells(0, Event::InvalidDoorbellValue));
    b.set(feature::ASYNC_EVENTS, false, 0, 1 << 8 | 2).unwrap();
    assert!(b.features.tells(0, Event::NamespaceAttributeChanged) && b.features.tells(0, Event::Temperature));
    assert!(!b.features.tells(0, Event::SpareBelowThreshold) && !b.features.tells(0, Event::FirmwareActivation));
}

#[test]
fn time_and_identity() {
    let mut b = Bench::new();
    let stamp = |b: &Bench, select| {
        let data = b.get(feature::TIMESTAMP, select, 0, 0).unwrap().data;
        Timestamp::from_bytes(data.try_into().unwrap())
    };
    assert_eq!(stamp(&b, Select::Current), Timestamp { ms: 5_000, set_by_host: false, stopped: false });
    let set = SetFeatures { fid: feature::TIMESTAMP, save: false, nsid: 0, dwords: [0; 5] };
    assert_eq!(b.set_of(0, set, &1_000_000u64.to_le_bytes()), Ok(0));
    assert_eq!(stamp(&b, Select::Current), Timestamp { ms: 1_004_000, set_by_host: true, stopped: false });
    assert_eq!(stamp(&b, Select::Saved), Timestamp::default());
    assert_eq!(b.set_of(0, set, &[0; 7]), Err(Status::INVALID_FIELD));

    let id = |extended: u32| SetFeatures {
        fid: feature::HOST_IDENTIFIER,
        save: false,
        nsid: 0,
        dwords: [extended, 0, 0, 0, 0],
    };
    assert_eq!(b.set_of(0, id(1), &[7; 16]), Ok(0));
    assert_eq!(b.get(feature::HOST_IDENTIFIER, Select::Current, 0, 1).unwrap().data, [7; 16]);
    let short = b.get(feature::HOST_IDENTIFIER, Select::Current, 0, 0);
    assert_eq!(short, Err(Status::HOST_IDENTIFIER_INCONSISTENT));
    assert_eq!(b.set_of(0, id(0), &[8; 8]), Ok(0));
    assert_eq!(b.get(feature::HOST_IDENTIFIER, Select::Current, 0, 0).unwrap().data, [8; 8]);
    assert_eq!(b.set_of(2, id(1), &[7; 16]), Err(Status::COMMAND_SEQUENCE_ERROR));
    b.features.connected(2, 120_000);
    assert_eq!(b.features.keep_alive_ms(2), 120_000);
}

#[test]
fn host_memory_is_lent_and_taken_back() {
    let mut b = Bench::new();
    let lend = |entries| SetFeatures {
        fid: feature::HOST_MEMORY_BUFFER,
        save: false,
        nsid: 0,
        dwords: [1, 3, 0x5000, 1, entries],
    };
    assert_eq!(b.set_of(0, lend(0), &[]), Err(Status::INVALID_FIELD));
    assert_eq!(b.set_of(0, lend(257), &[]), Err(Status::INVALID_FIELD));
    assert_eq!(b.set_of(0, lend(2), &[]), Ok(0));
    assert_eq!(b.set_of(0, lend(2), &[]), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(b.set_of(2, lend(2), &[]), Err(Status::INVALID_FIELD));
    let buffer = b.features.host_memory(0).unwrap();
    assert_eq!((buffer.size, buffer.list, buffer.entries), (3, 0x1_0000_5000, 2));
    let told = b.get(feature::HOST_MEMORY_BUFFER, Select::Current, 0, 0).unwrap();
    assert_eq!((told.dword, told.data[..16].to_vec()), (1, [3u32, 0x5000, 1, 2].map(u32::to_le_bytes).concat()));
    assert_eq!(b.set(feature::HOST_MEMORY_BUFFER, false, 0, 0), Ok(0));
    assert_eq!((b.features.host_memory(0), b.dword(feature::HOST_MEMORY_BUFFER, Select::Current)), (None, 0));

    let piece = |address, size| HmbDescriptor { address, size }.to_bytes();
    let list = [piece(0x1000, 1), piece(0, 0), piece(0x8000, 2), piece(0x10_0000, 9)].concat();
    let of = |buffer: &HostMemoryBuffer, list: &[u8]| host_memory(buffer, list, 12, 2);
    let wanted = HostMemoryBuffer { entries: 3, ..buffer };
    let pieces = of(&wanted, &list).unwrap();
    assert_eq!(pieces.iter().map(|s| (s.address, s.len)).collect::<Vec<_>>(), [(0x1000, 0x1000), (0x8000, 0x2000)]);
    for (buffer, list) in [
        (HostMemoryBuffer { size: 4, ..wanted }, &list[..]),
        (HostMemoryBuffer { size: 1, entries: 1, ..wanted }, &list[..]),
        (wanted, &piece(0x1001, 3)[..]),
        (wanted, &piece(!0xFFF, 3)[..]),
        (wanted, &piece(0, 1 << 20)[..]),
        (wanted, &[][..]),
    ] {
        assert_eq!(of(&buffer, list), Err(Status::INVALID_FIELD), "{buffer:?}");
    }
}

#[test]
fn saved_values_outlive_a_power_cut() {
    let mut b = Bench::new();
    b.set(feature::VOLATILE_WRITE_CACHE, true, 0, 0).unwrap();
    b.set(feature::SOFTWARE_PROGRESS, true, 0, 9).unwrap();
    b.set(feature::SANITIZE_CONFIG, true, 0, 1).unwrap();
    b.set(feature::ARBITRATION, false, 0, 1).unwrap();
    let bytes = b.features.to_bytes();
    b.features = Features::from_bytes(&bytes, [LOCAL, LOCAL, REMOTE]).unwrap();
    assert!(!b.features.write_cache(0) && b.features.write_cache(1) && b.features.sanitize_warns());
    assert_eq!(
        (b.dword(feature::SOFTWARE_PROGRESS, Select::Current), b.dword(feature::ARBITRATION, Select::Current)),
        (9, 3)
    );
    saved::try_damage(&bytes, |bytes| Features::from_bytes(bytes, [LOCAL]));
    let none = Features::from_bytes(&bytes, []).unwrap();
    assert!(none.sanitize_warns(), "a drive may have fewer controllers than before");
}

proptest! {
    /// Whatever is asked for and set: a status or an answer, and what was taken is returned again.
    #[test]
    fn any_commands(
        commands in prop::collection::vec(
            (
                0u8..3,
                0..feature::NAMED.len() + 1,
                any::<bool>(),
                0u32..4,
                prop_oneof![0u32..4, any::<u32>()],
                any::<[u8; 16]>(),
            ),
            1..40,
        ),
    ) {
        let mut b = Bench::new();
        for (function, which, save, nsid, dword, data) in commands {
            let fid = feature::NAMED.get(which).map_or(0x55, |&(fid, _)| fid);
            let nsid = if nsid == 3 { NSID_ALL } else { nsid };
            let set = SetFeatures { fid, save, nsid, dwords: [dword, dword, dword, dword, dword & 0x1FF] };
            let taken = b.set_of(function, set, &data).is_ok();
            for select in [Select::Current, Select::Default, Select::Saved, Select::Supported] {
                let get = GetFeatures { fid, select, nsid, cdw11: dword };
                let found = b.features.get(function, at(9), &get, &b.namespaces);
                if taken && nsid != NSID_ALL && select == Select::Current && fid == feature::VOLATILE_WRITE_CACHE {
                    prop_assert_eq!(found.map(|answer| answer.dword), Ok(dword & 1));
                }
            }
            b.features.coalescing(function);
            b.features.arbitration(function);
            for &event in Event::ALL {
                b.features.tells(function, event);
            }
        }
        let again = Features::from_bytes(&b.features.to_bytes(), [LOCAL, LOCAL, REMOTE]);
        for function in 0..3 {
            b.features.reset(function, at(0));
        }
        prop_assert_eq!(again.map(|features| features.write_cache(0)), Ok(b.features.write_cache(0)));
    }

    #[test]
    fn any_list_of_host_memory(
        list in prop::collection::vec(any::<u8>(), 0..200),
        size in any::<u32>(),
        entries in any::<u32>(),
        page_shift in 12u32..28,
    ) {
        let buffer = HostMemoryBuffer { enable: true, returned: false, size, list: 0, entries };
        if let Ok(pieces) = host_memory(&buffer, &list, page_shift, 0) {
            prop_assert!(!pieces.is_empty());
            let ends = pieces.iter().map(|piece| piece.address.checked_add(piece.len.into()));
            prop_assert!(ends.zip(&pieces).all(|(end, piece)| piece.len > 0 && end.is_some()));
        }
    }
}
