use tidewater_core::device::{self, Device};
use tidewater_core::host::Submission;
use tidewater_core::profile::Profile;
use tidewater_core::subsystem::*;
use tidewater_wire::nvme::Sqe;

fn dev() -> Device {
    let mut p = Profile::generic();
    p.drive.capacity = 1 << 30;
    let o = device::Options { stamps: true, payload: true, capacity: 1 << 30, ..Default::default() };
    Device::new(&p, o).unwrap()
}
const UNITS: u64 = 1 << 14;
fn fill(d: &mut Device) {
    let mut now = d.now();
    for u in 0..UNITS / 32 {
        let s = Submission::new(Sqe::write(1, u * 8 * 32, 255), u + 1);
        d.handle(now, device::Input::Submit { queue: 0, submission: s }).unwrap();
        loop {
            let mut done = false;
            while let Some(o) = d.poll() {
                done |= matches!(o, device::Output::Complete(_));
            }
            if done {
                break;
            }
            now = d.deadline().unwrap();
            d.handle(now, device::Input::Timer).unwrap();
        }
    }
    d.handle(now, device::Input::Submit { queue: 0, submission: Submission::new(Sqe::flush(1), 0) }).unwrap();
    while let Some(at) = d.deadline() {
        d.handle(at, device::Input::Timer).unwrap();
        while d.poll().is_some() {}
    }
}
const N: u64 = 2_000_000;
const QD: u64 = 32;
fn main() {
    let mut d = dev();
    fill(&mut d);
    // device alone
    let mut e = d.clone();
    let t = std::time::Instant::now();
    let (mut issued, mut done) = (0u64, 0u64);
    let mut x = 12345u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x % UNITS) * 8
    };
    let mut now = e.now();
    let mut free: Vec<u16> = (0..QD as u16).collect();
    while done < N {
        while issued < N
            && let Some(cid) = free.pop()
        {
            e.handle(
                now,
                device::Input::Submit { queue: 0, submission: Submission::new(Sqe::read(cid, next(), 7), 0) },
            )
            .unwrap();
            issued += 1;
        }
        while let Some(o) = e.poll() {
            if let device::Output::Complete(c) = o {
                done += 1;
                free.push(c.cqe.cid);
            }
        }
        if free.is_empty() {
            now = e.deadline().unwrap();
            e.handle(now, device::Input::Timer).unwrap();
        }
    }
    println!("device alone: {:.0} ns", t.elapsed().as_nanos() as f64 / N as f64);
    // subsystem
    let mut o = Options::of(d.profile());
    o.queue_entries = 1024;
    let mut s = Subsystem::new(d, o).unwrap();
    let mut mem = vec![0u8; 1 << 20];
    let mut now = s.device().now();
    let reg =
        |s: &mut Subsystem, now, offset, value| s.handle(now, Input::Register { function: 0, offset, len: 4, value });
    reg(&mut s, now, 0x24, 0x001f_001f);
    reg(&mut s, now, 0x28, 0x1000);
    reg(&mut s, now, 0x30, 0x2000);
    reg(&mut s, now, 0x14, 0x460001);
    let mut tails = [0u64; 2];
    let ent = [32u64, 64];
    let bases = [0x1000u64, 0x4000];
    let mut completed = 0u64;
    macro_rules! pump {
        () => {
            while let Some(out) = s.poll() {
                match out {
                    Output::DmaRead { token, address, len, .. } => {
                        s.handle(now, Input::DmaRead { token, bytes: Some(&mem[address as usize..][..len as usize]) });
                    }
                    Output::Data { slot, .. } => {
                        if let Segments::Host(segs) = s.segments(slot) {
                            std::hint::black_box(segs[0].address);
                        }
                        s.handle(now, Input::Moved { slot, result: Ok(()) });
                    }
                    Output::Complete { cqe, address, .. } => {
                        let a = address.unwrap() as usize;
                        mem[a..a + 16].copy_from_slice(&cqe.to_bytes());
                        assert!(cqe.status.is_success());
                        completed += 1;
                    }
                    Output::Interrupt { .. } => {}
                    o => panic!("{o:?}"),
                }
            }
        };
    }
    macro_rules! put {
        ($q:expr, $sqe:expr) => {
            let a = (bases[$q] + tails[$q] * 64) as usize;
            mem[a..a + 64].copy_from_slice(&$sqe.to_bytes());
            tails[$q] = (tails[$q] + 1) % ent[$q];
        };
    }
    let cq = Sqe::default().with_dword(0, 5).with_dword(10, 1 | 63 << 16).with_dword(11, 1).with_dword(6, 0x8000);
    let sq =
        Sqe::default().with_dword(0, 1).with_dword(10, 1 | 63 << 16).with_dword(11, 1 << 16 | 1).with_dword(6, 0x4000);
    put!(0, cq);
    put!(0, sq);
    reg(&mut s, now, 0x1000, tails[0]);
    pump!();
    assert_eq!(completed, 2);
    completed = 0;
    let (mut issued, mut head) = (0u64, 0u64);
    let batch = std::env::args().nth(1).map_or(1, |a| a.parse().unwrap());
    let t = std::time::Instant::now();
    while completed < N {
        while issued < N && issued - completed + batch <= QD {
            for _ in 0..batch {
                let sqe = Sqe::read(issued as u16, next(), 7).with_dword(6, 0x10000);
                put!(1, sqe);
                issued += 1;
            }
            reg(&mut s, now, 0x1008, tails[1]);
            pump!();
        }
        pump!();
        if completed - head >= 8 {
            head = completed;
            reg(&mut s, now, 0x100c, head % 64);
        }
        if issued == N || issued - completed + batch > QD {
            now = s.deadline().unwrap();
            s.handle(now, Input::Timer);
        }
    }
    println!("subsystem: {:.0} ns", t.elapsed().as_nanos() as f64 / N as f64);
}
