use super::namespaces::*;
use crate::saved::{self, StateError};
use proptest::prelude::*;
use tidewater_wire::nvme::feature::Protection;
use tidewater_wire::nvme::{FormatNvm, NSID_ALL, NamespaceManagement, SecureErase, Status};

/// 1,024 units of 4 KiB.
const SMALL: Geometry = Geometry { blocks: 8192, block_shift: 9, unit_shift: 12 };

fn wish(nsze: u64, flbas: u8, nmic: u8) -> NamespaceManagement {
    NamespaceManagement { nsze, ncap: nsze, flbas, nmic, ..Default::default() }
}

fn format(nsid: u32, lbaf: u8) -> FormatNvm {
    FormatNvm { nsid, lbaf, secure_erase: SecureErase::None }
}

#[test]
fn one_namespace_takes_everything() {
    let all = Namespaces::whole(SMALL, 1, 9, false);
    assert_eq!(all.resolve(1, 0, 8, 16), Ok(Extent { first: 8, blocks: 16 }));
    assert_eq!(all.resolve(1, 255, 8191, 1), Ok(Extent { first: 8191, blocks: 1 }));
    assert_eq!(all.resolve(1, 0, 8191, 2), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(all.resolve(1, 0, u64::MAX, 2), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(all.resolve(2, 0, 0, 1), Err(Status::INVALID_FIELD));
    for nsid in [0, NAMESPACES_MAX + 1, NSID_ALL] {
        assert_eq!(all.resolve(nsid, 0, 0, 1), Err(Status::INVALID_NAMESPACE));
    }
    assert_eq!(all.unallocated(), 0);
    // A tail of the device that is no whole unit belongs to no namespace.
    let odd = Namespaces::whole(Geometry { blocks: 8199, ..SMALL }, 1, 12, false);
    assert_eq!(odd.at(1).map(|ns| ns.blocks), Ok(1024));
    // A device of 4 KiB blocks has one format only.
    let coarse = Geometry { blocks: 1024, block_shift: 12, unit_shift: 14 };
    let all = Namespaces::whole(coarse, 1, 12, false);
    assert_eq!(all.resolve(1, 0, 3, 2), Ok(Extent { first: 3, blocks: 2 }));
    assert_eq!(all.check_format(&format(1, 1), 0), Err(Status::INVALID_FORMAT));
}

#[test]
fn namespaces_come_and_go() {
    let mut all = Namespaces::new(SMALL, 1);
    // 9 blocks take two units.
    assert_eq!(all.create(0, &wish(9, 0, 1)), Ok(1));
    assert_eq!(all.create(0, &wish(100, 1, 0)), Ok(2));
    assert_eq!(all.at(2).map(|ns| ns.extent), Ok(Extent { first: 16, blocks: 800 }));
    assert_eq!(all.unallocated(), (1024 - 102) * 4096);
    assert_eq!(all.create(0, &wish(923, 1, 0)), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
    assert_eq!(all.create(0, &wish(u64::MAX, 1, 0)), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
    assert_eq!(all.create(0, &wish(u64::MAX >> 9, 0, 0)), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
    assert_eq!(all.create(0, &wish(922, 1, 0)), Ok(3));
    assert_eq!(all.unallocated(), 0);

    let attach = |all: &mut Namespaces, nsid, ids: &[u16]| all.attach(nsid, true, ids, |id| id < 4);
    assert_eq!(all.find(2, 0), Err(Status::INVALID_FIELD), "it is not attached");
    assert_eq!(attach(&mut all, 2, &[0, 1]), Err(Status::NAMESPACE_IS_PRIVATE));
    assert_eq!(attach(&mut all, 2, &[1]), Ok(()));
    assert_eq!(attach(&mut all, 2, &[0]), Err(Status::NAMESPACE_IS_PRIVATE));
    assert_eq!(attach(&mut all, 2, &[1]), Err(Status::NAMESPACE_ALREADY_ATTACHED));
    assert_eq!(attach(&mut all, 1, &[0, 4]), Err(Status::CONTROLLER_LIST_INVALID));
    assert_eq!(attach(&mut all, 1, &[0x100]), Err(Status::CONTROLLER_LIST_INVALID));
    assert_eq!(attach(&mut all, 1, &[]), Err(Status::CONTROLLER_LIST_INVALID));
    assert_eq!(attach(&mut all, 9, &[0]), Err(Status::INVALID_FIELD));
    assert_eq!(attach(&mut all, 1, &[0, 1, 3]), Ok(()));
    assert_eq!(all.active(1).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(all.at(1).map(|ns| ns.attached.iter().collect()), Ok(vec![0, 1, 3]));
    assert_eq!(all.attach(1, false, &[0, 2], |_| true), Err(Status::NAMESPACE_NOT_ATTACHED));
    assert_eq!(all.attach(1, false, &[0], |_| true), Ok(()));
    assert_eq!(all.find(1, 0), Err(Status::INVALID_FIELD));

    // A fabrics host that comes gets what is shared.
    all.admit(2);
    assert_eq!(all.active(2).collect::<Vec<_>>(), [1]);

    let gone = all.delete(2).unwrap();
    assert_eq!((gone.len(), gone[0].extent.blocks, all.at(2)), (1, 800, Err(Status::INVALID_FIELD)));
    assert_eq!(all.delete(2), Err(Status::INVALID_FIELD));
    // The gap is used again, under another identity.
    let before = all.identifiers(&gone[0]);
    assert_eq!(all.create(0, &wish(50, 1, 0)), Ok(2));
    let new = *all.at(2).unwrap();
    assert_eq!(new.extent, Extent { first: 16, blocks: 400 });
    assert!(all.identifiers(&new).uuid != before.uuid && all.identifiers(&new).eui64 != before.eui64);
    assert_eq!(all.delete(NSID_ALL).unwrap().len(), 3);
    assert_eq!(all.unallocated(), SMALL.bytes());
    assert_eq!(all.delete(NSID_ALL), Ok(vec![]));
}

#[test]
fn wishes_that_cannot_be() {
    let mut all = Namespaces::new(SMALL, 1);
    let good = wish(8, 0, 0);
    assert_eq!(all.create(2, &good), Err(Status::COMMAND_SET_NOT_SUPPORTED));
    assert_eq!(all.create(0, &NamespaceManagement { ncap: 7, ..good }), Err(Status::THIN_PROVISIONING_NOT_SUPPORTED));
    assert_eq!(all.create(0, &NamespaceManagement { flbas: 2, ..good }), Err(Status::INVALID_FORMAT));
    for wrong in [
        NamespaceManagement { nsze: 0, ncap: 0, ..good },
        NamespaceManagement { dps: 1, ..good },
        NamespaceManagement { flbas: 0x10, ..good },
        NamespaceManagement { nmic: 2, ..good },
        NamespaceManagement { anagrpid: 1, ..good },
        NamespaceManagement { nvmsetid: 1, ..good },
    ] {
        assert_eq!(all.create(0, &wrong), Err(Status::INVALID_FIELD), "{wrong:?}");
    }
    for nsid in 1..=NAMESPACES_MAX {
        assert_eq!(all.create(0, &good), Ok(nsid));
    }
    assert_eq!(all.create(0, &good), Err(Status::NAMESPACE_ID_UNAVAILABLE));
}

#[test]
fn formats_and_protection() {
    let mut all = Namespaces::new(SMALL, 1);
    all.add(Initial { bytes: 9 * 512, block_shift: 9, shared: true }).unwrap();
    all.add(Initial { bytes: 1 << 20, block_shift: 12, shared: true }).unwrap();
    assert_eq!(all.check_format(&format(NSID_ALL, 1), 0), Ok(vec![1, 2]));
    assert_eq!(all.check_format(&format(1, 2), 0), Err(Status::INVALID_FORMAT));
    assert_eq!(all.check_format(&format(3, 0), 0), Err(Status::INVALID_FIELD));
    assert_eq!(all.check_format(&format(0, 0), 0), Err(Status::INVALID_NAMESPACE));
    let crypto = FormatNvm { secure_erase: SecureErase::Cryptographic, ..format(1, 0) };
    assert_eq!(all.check_format(&crypto, 0), Err(Status::INVALID_FIELD));
    all.format(1, 0).unwrap();
    assert_eq!(all.at(1).map(|ns| ns.blocks), Ok(9), "the same format changes nothing");
    all.format(1, 1).unwrap();
    assert_eq!(all.resolve(1, 0, 1, 1), Ok(Extent { first: 8, blocks: 8 }));
    assert_eq!(all.resolve(1, 0, 2, 1), Err(Status::LBA_OUT_OF_RANGE));

    all.protect(2, 0, Protection::Protected).unwrap();
    assert!(all.find(2, 0).unwrap().is_protected());
    assert_eq!(all.check_format(&format(NSID_ALL, 1), 0), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.delete(2), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.delete(NSID_ALL), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.protect(2, 0, Protection::Permanent), Err(Status::INVALID_FIELD));
    all.protect(2, 0, Protection::UntilPowerCycle).unwrap();
    assert_eq!(all.protect(2, 0, Protection::None), Err(Status::FEATURE_NOT_CHANGEABLE));
    let all = Namespaces::from_bytes(&all.to_bytes(), SMALL).unwrap();
    assert_eq!(all.at(2).map(|ns| ns.protection), Ok(Protection::None), "the power was cycled");
}

#[test]
fn saved_namespaces_are_whole_or_refused() {
    let mut all = Namespaces::whole(SMALL, 7, 12, true);
    saved::try_damage(&all.to_bytes(), |bytes| Namespaces::from_bytes(bytes, SMALL));
    assert_eq!(Namespaces::from_bytes(&all.to_bytes(), SMALL).as_ref(), Ok(&all));
    let other = Geometry { blocks: 8200, ..SMALL };
    assert!(matches!(Namespaces::from_bytes(&all.to_bytes(), other), Err(StateError::Field { .. })));
    all.delete(NSID_ALL).unwrap();
    let again = Namespaces::from_bytes(&all.to_bytes(), SMALL).unwrap();
    assert_eq!(again, all, "generations go on");
}

#[test]
fn identifiers_are_of_the_seed() {
    let [one, same, other] = [1, 1, 2].map(|seed| Namespaces::whole(SMALL, seed, 9, false));
    let of = |all: &Namespaces| all.identifiers(all.at(1).unwrap());
    assert_eq!(of(&one), of(&same));
    assert_ne!(of(&one), of(&other));
    let ids = of(&one);
    assert_eq!((ids.uuid[6] >> 4, ids.uuid[8] >> 6, ids.eui64[0] & 3), (8, 2, 2));
    assert_eq!(ids.nguid[8..], ids.eui64);
}

proptest! {
    /// Whatever hosts ask for: namespaces never overlap, never pass the end, and are found again after a power cut.
    #[test]
    fn any_order_of_commands(commands in prop::collection::vec((0u8..6, 0u32..6, 0u64..600, 0u8..3), 1..60)) {
        let mut all = Namespaces::whole(SMALL, 3, 9, true);
        for (what, nsid, size, small) in commands {
            let _ = match what {
                0 => all.create(0, &wish(size, small, small & 1)).map(|_| ()),
                1 => all.delete(nsid).map(|_| ()),
                2 => all.attach(nsid, true, &[u16::from(small)], |_| true),
                3 => all.attach(nsid, false, &[u16::from(small)], |_| true),
                4 => all.check_format(&format(nsid, small), 0).and_then(|_| all.format(nsid, small)),
                _ => all.protect(nsid, small, if size % 2 == 0 { Protection::None } else { Protection::Protected }),
            };
            let mut units = vec![false; 1024];
            for ns in all.iter() {
                let last = ns.locate(ns.blocks - 1, 1).unwrap();
                prop_assert!(last.first + last.blocks <= ns.extent.first + ns.extent.blocks);
                for unit in ns.extent.first / 8..(ns.extent.first + ns.extent.blocks) / 8 {
                    prop_assert!(!std::mem::replace(&mut units[unit as usize], true), "unit {} twice", unit);
                }
            }
            prop_assert_eq!(all.unallocated(), units.iter().filter(|taken| !**taken).count() as u64 * 4096);
            prop_assert_eq!(Namespaces::from_bytes(&all.to_bytes(), SMALL), Ok(all.clone()));
        }
    }

    #[test]
    fn any_bytes_are_namespaces_or_an_error(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        count in any::<u32>(),
    ) {
        let mut near = SMALL.blocks.to_le_bytes().to_vec();
        near.extend([9, 12]);
        near.extend([1; 16]);
        near.extend(count.to_le_bytes());
        near.extend(&payload);
        for payload in [&near, &payload] {
            let sealed = saved::Kind { what: "namespaces", magic: *b"TWNS", version: 1 }.seal(payload);
            if let Ok(found) = Namespaces::from_bytes(&sealed, SMALL) {
                prop_assert_eq!(Namespaces::from_bytes(&found.to_bytes(), SMALL), Ok(found));
            }
        }
    }
}

#[test]
fn logs_are_read_by_their_function_and_never_changed_by_commands() {
    let whole = Namespaces::whole(SMALL, 1, 12, true);
    assert_eq!(whole.highest(), NAMESPACES_MAX);
    let saved = whole.to_bytes();
    let mut all = whole.clone().with_logs(2, 3);
    let [first, second] = [NAMESPACES_MAX + 1, NAMESPACES_MAX + 2];
    assert_eq!(all.highest(), second);
    assert_eq!(all.active(0).collect::<Vec<_>>(), [1, first]);
    assert_eq!(all.active(1).collect::<Vec<_>>(), [1, second]);
    assert_eq!(all.active(2).collect::<Vec<_>>(), [1]);
    assert_eq!(all.allocated().map(|ns| ns.nsid).collect::<Vec<_>>(), [1, first, second]);
    // One after another behind the device's own blocks, three units of eight blocks each.
    assert_eq!(all.resolve(first, 0, 0, 24), Ok(Extent { first: SMALL.blocks, blocks: 24 }));
    assert_eq!(all.resolve(second, 1, 23, 1), Ok(Extent { first: SMALL.blocks + 47, blocks: 1 }));
    assert_eq!(all.resolve(first, 0, 24, 1), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(all.resolve(first, 1, 0, 1), Err(Status::INVALID_FIELD));
    assert_eq!(all.resolve(second + 1, 0, 0, 1), Err(Status::INVALID_NAMESPACE));
    assert!(all.find(first, 0).is_ok_and(Namespace::is_protected));
    let names: Vec<_> = all.allocated().map(|ns| all.identifiers(ns).uuid).collect();
    assert!(names[0] != names[1] && names[1] != names[2]);

    assert_eq!(all.check_format(&format(first, 0), 0), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.check_format(&format(NSID_ALL, 0), 0), Ok(vec![1]), "all that can be formatted");
    assert_eq!(all.format(first, 0), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.delete(first), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.attach(first, true, &[1], |_| true), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.attach(first, false, &[0], |_| true), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(all.protect(first, 0, Protection::None), Err(Status::FEATURE_NOT_CHANGEABLE));
    all.power_cycle();
    assert!(all.find(first, 0).is_ok_and(Namespace::is_protected));
    assert_eq!(all.delete(NSID_ALL).map(|gone| gone.len()), Ok(1));
    assert_eq!(all.allocated().count(), 2);
    // They come with the device, and nothing of them is saved.
    assert_eq!(whole.with_logs(2, 3).to_bytes(), saved);
}
