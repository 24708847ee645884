//! What is written is what is read, whatever its shape.

use super::*;

/// Random reads, writes, zeroes and deallocations of whole and partial units, against a plain array of bytes.
#[test]
fn random_traffic_keeps_its_data() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 32);
    rig.make_queue(0, 2, 32);
    let blocks = rig.s.device().capacity() >> 9;
    let mut truth = vec![0u8; (blocks << 9) as usize];
    let mut rng = Rng::new(7, b"traffic");
    let buffer = rig.alloc(256 << 10);
    let mut version = 0;
    for round in 0..3_000 {
        let queue = 1 + rng.below(2) as u16;
        let longest = if rng.below(8) == 0 { 256 } else { 24 };
        let count = 1 + rng.below(longest);
        let first = rng.below(blocks - count);
        let (at, len) = ((first << 9) as usize, (count << 9) as usize);
        let address = buffer + 4 * rng.below(1024);
        let (slba, nlb) = (first, (count - 1) as u16);
        match rng.below(10) {
            0..4 => {
                version += 1;
                let bytes = pattern(version, len);
                rig.memory[address as usize..][..len].copy_from_slice(&bytes);
                truth[at..at + len].copy_from_slice(&bytes);
                let sqe = Sqe::write(0, slba, nlb);
                let sqe = rig.with_data(&if rng.below(4) == 0 { sqe.with_fua() } else { sqe }, address, len);
                assert_eq!(rig.submit(0, queue, &sqe).status, Status::SUCCESS, "round {round}");
            }
            4 => {
                truth[at..at + len].fill(0);
                let sqe = Sqe::write_zeroes(0, slba, nlb, rng.below(2) == 0);
                assert_eq!(rig.submit(0, queue, &sqe).status, Status::SUCCESS, "round {round}");
            }
            5 => {
                let sqe = rig.with_data(&Sqe::compare(0, slba, nlb), address, len);
                rig.memory[address as usize..][..len].copy_from_slice(&truth[at..at + len]);
                assert_eq!(rig.submit(0, queue, &sqe).status, Status::SUCCESS, "round {round}");
                rig.memory[address as usize + rng.below(len as u64) as usize] ^= 1;
                assert_eq!(rig.submit(0, queue, &sqe).status, Status::COMPARE_FAILURE, "round {round}");
            }
            6 => assert_eq!(rig.submit(0, queue, &Sqe::verify(0, slba, nlb)).status, Status::SUCCESS),
            _ => {
                let sqe = rig.with_data(&Sqe::read(0, slba, nlb), address, len);
                assert_eq!(rig.submit(0, queue, &sqe).status, Status::SUCCESS, "round {round}");
                assert_eq!(rig.bytes(address, len).unwrap(), &truth[at..at + len], "round {round}: {first} + {count}");
            }
        }
        rig.free = buffer + (260 << 10);
    }
}
