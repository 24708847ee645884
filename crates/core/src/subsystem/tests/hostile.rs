//! A host that means ill: every register, doorbell and field at its boundaries and beyond. Never a panic, never
//! silence, and after a reset the controller is as good as new. And that nothing depends on anything but inputs.

use super::*;
use tidewater_wire::nvme::{NSID_ALL, opcode};

/// What a field of 32 or 64 bits is tried with.
const EDGES: [u64; 12] =
    [0, 1, 2, 0xFFF, 0x1000, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0x4E56_4D65, 0xFFFF_FFFF, 0x8000_0000_0000_0000, u64::MAX];

struct Host {
    rig: Rig,
    cells: u32,
    /// Pages for admin and I/O queues and for data, which are used again after each reset.
    pages: u64,
}

impl Host {
    fn new() -> Host {
        let mut rig = Rig::with(&tiny(), |options| {
            (options.functions, options.cmb, options.pmr) = (2, 16 << 10, 64 << 10);
            (options.hmb_preferred, options.hmb_minimum) = (16, 4);
        });
        let pages = rig.alloc(64 << 10);
        let mut host = Host { rig, cells: 0, pages };
        host.renew();
        host
    }

    /// Resets the controller, and finds it well.
    fn renew(&mut self) {
        let (rig, at) = (&mut self.rig, self.pages);
        rig.input(Input::FunctionReset { function: 0 });
        rig.run();
        assert_eq!(rig.read(0, offset::CSTS) & 0xF, 0, "reset");
        rig.enable_at(0, at, at + 4096);
        assert!(rig.run_until(|rig| rig.read(0, offset::CSTS) == 1), "ready");
        rig.make_queue_at(0, 1, (at + 8192, 16), (at + 12_288, 16));
        assert_eq!(rig.submit(0, 1, &Sqe::flush(0).with_nsid(NSID_ALL)).status, Status::SUCCESS);
        rig.said.clear();
        rig.interrupts.clear();
    }

    /// Whether the controller still works; if it says that it does not, it is reset.
    fn check(&mut self) {
        self.cells += 1;
        self.rig.run();
        self.renew();
    }

    /// A command must end, with success or not.
    fn ends(&mut self, queue: u16, sqe: &Sqe) -> Status {
        self.cells += 1;
        let cqe = self.rig.submit(0, queue, sqe);
        self.rig.said.clear();
        assert_eq!(self.rig.read(0, offset::CSTS), 1, "{sqe:?}: {:?}", cqe.status);
        cqe.status
    }
}

#[test]
fn every_field_at_its_boundaries_and_beyond() {
    let mut host = Host::new();
    // Registers: every one, and what lies between and behind them, whole, in part and askew.
    let named = (0..0x70).step_by(4).chain((0xE00..0xE24).step_by(4)).chain([0xDFC, 0xFFC]);
    for at in named {
        for (i, value) in EDGES.into_iter().enumerate() {
            let len = [1, 2, 3, 4, 4, 4, 4, 5, 4, 8, 8, 8][i];
            host.rig.input(Input::Register { function: 0, offset: at, len, value });
            for (at, len) in [(at, 4), (at, 8), (at.saturating_add(1), 7), (at, 200)] {
                let _ = host.rig.s.register(0, at, len);
            }
            host.check();
        }
        host.rig.input(Input::Register { function: 0, offset: at + 2, len: 4, value: u64::MAX });
        host.check();
    }
    let registers = host.cells;
    // Doorbells: of queues that are there, that are not, and that never can be.
    for queue in [0u32, 1, 2, 3, 64, 65, 4095, 65_535] {
        for completion in [0, 4] {
            for value in [0, 1, 2, 14, 15, 16, 17, 31, 32, 33, 65_535, 65_536, u32::MAX] {
                host.rig.write(0, offset::DOORBELLS + 8 * queue + completion, value);
                host.check();
            }
        }
    }
    for at in [0x1001, 0x1002, 0xFFFF_FFFC, 0xFFFF_FFFF] {
        for len in [1, 2, 4, 8] {
            host.rig.input(Input::Register { function: 0, offset: at, len, value: u64::MAX });
            host.check();
        }
    }
    for function in [1, 2, 255] {
        host.rig.input(Input::Register { function, offset: offset::CC, len: 4, value: u64::MAX });
        host.check();
    }
    let doorbells = host.cells - registers;
    // Fields of I/O commands.
    let data = host.pages + (16 << 10);
    let blocks = host.rig.s.namespaces().at(1).unwrap().blocks;
    for code in 0..=255u32 {
        let known = opcode::NAMED.iter().any(|&(known, _)| u32::from(known) == code);
        for flags in [0, 1 << 8, 1 << 14, 2 << 14, 3 << 14, 0x3C00] {
            let sqe = with_prps(&Sqe::default().with_dword(0, code | flags).with_nsid(1), data, 0);
            let status = host.ends(1, &sqe);
            assert!(known || code >= 0x80 || status == Status::INVALID_OPCODE, "{code:02X}h: {status:?}");
        }
    }
    for &(code, name) in opcode::NAMED {
        for nsid in [0, 1, 2, 128, 129, NSID_ALL - 1, NSID_ALL] {
            let sqe = with_prps(&Sqe::default().with_dword(0, code.into()).with_nsid(nsid), data, 0);
            let good = nsid == 1 || nsid == NSID_ALL && code == opcode::FLUSH;
            assert_eq!(
                host.ends(1, &sqe).is_success() || code == opcode::COMPARE,
                good || code == opcode::COMPARE,
                "{name} {nsid}"
            );
        }
        for slba in [0, blocks - 1, blocks, blocks + 1, 1 << 32, u64::MAX - 1, u64::MAX] {
            for nlb in [0u16, 1, 255, 256, 0xFFFF] {
                let sqe = Sqe::read(0, slba, nlb).with_dword(0, code.into());
                let sqe = if code == opcode::DATASET_MANAGEMENT { sqe.with_dword(10, 0) } else { sqe };
                let status = host.ends(1, &host.rig.clone_prps(&sqe, data));
                let addresses = !matches!(code, opcode::FLUSH | opcode::DATASET_MANAGEMENT);
                let inside = slba < blocks && u64::from(nlb) < blocks - slba;
                assert!(!addresses || inside || !status.is_success(), "{name} {slba} + {nlb}: {status:?}");
            }
        }
    }
    // Data pointers.
    for prp1 in [0, 1, 2, 3, data + 4, data + 511, data + 4092, 1 << 40, u64::MAX, u64::MAX - 4095, MEMORY as u64 - 4] {
        for prp2 in [0, 1, 4, 8, data + 8, data + 4088, data + 4092, 1 << 40, u64::MAX - 7, u64::MAX, MEMORY as u64 - 8]
        {
            for nlb in [0, 7, 8, 15, 16, 255] {
                for sqe in [Sqe::read(0, 0, nlb), Sqe::write(0, 0, nlb)] {
                    host.ends(1, &with_prps(&sqe, prp1, prp2));
                }
            }
        }
    }
    let io = host.cells - registers - doorbells;
    // Admin commands: every opcode, and every field of those that are there. What waits for ever is left out.
    let edges =
        [0u32, 1, 2, 0xF, 0xFF, 0x100, 0x0001_0001, 0x000F_0001, 0x003F_0002, 0x7FFF_FFFF, 0xFFFF_0001, u32::MAX];
    for code in (0..=255u32).filter(|&code| code != u32::from(admin_opcode::ASYNCHRONOUS_EVENT_REQUEST)) {
        for flags in [0, 1 << 8, 1 << 14] {
            host.ends(0, &with_prps(&Sqe::default().with_dword(0, code | flags), data, data));
        }
        let known = admin_opcode::NAMED.iter().any(|&(known, _)| u32::from(known) == code) || code >= 0xC0;
        for (i, &value) in edges.iter().enumerate().filter(|_| known) {
            for dword in [1, 6, 10, 11, 12, 13] {
                let sqe = with_prps(&Sqe::default().with_dword(0, code).with_nsid(1), data, data);
                let sqe = sqe.with_dword(dword, value).with_dword(10 + i % 2, value);
                host.ends(0, &sqe);
            }
        }
        host.renew();
    }
    let admin = host.cells - registers - doorbells - io;
    println!(
        "{} cells: {registers} of registers, {doorbells} of doorbells, {io} of I/O commands, {admin} of admin commands",
        host.cells
    );
    assert!(host.cells >= 2_000);
}

impl Rig {
    /// A command with data that is there, as far as that can be.
    fn clone_prps(&self, sqe: &Sqe, data: u64) -> Sqe {
        with_prps(sqe, data, data + 4096)
    }
}

/// Brings a controller up, whatever it is doing.
fn bring_up(rig: &mut Rig, function: u8) {
    rig.write(function, offset::CC, 0);
    rig.run_for(40);
    let base = 0x4_0000 * (1 + u64::from(function));
    rig.enable_at(function, base, base + 4096);
    rig.run_for(20);
    for queue in 1..=2u16 {
        let at = base + 8192 * u64::from(queue);
        rig.put(function, 0, &create_cq(queue, at, 16, queue.into()));
        rig.put(function, 0, &create_sq(queue, at + 4096, 16, queue));
        let (sq, cq) = (at + 4096, at);
        let q = Queue { sq, cq, sq_entries: 16, cq_entries: 16, phase: true, ..Queue::default() };
        rig.queues.insert((function, queue), q);
    }
    rig.ring(function, 0);
}

/// One step of a host that does anything.
fn step(rig: &mut Rig, rng: &mut Rng) {
    let function = rng.below(2) as u8;
    match rng.below(40) {
        0 => {
            let at = (4 * rng.below(0x20)) as u32;
            let value = EDGES[rng.below(12) as usize] ^ rng.below(4);
            rig.input(Input::Register { function, offset: at, len: if rng.below(2) == 0 { 4 } else { 8 }, value });
        }
        1 => {
            let at = offset::DOORBELLS + 4 * rng.below(10) as u32;
            rig.write(function, at, rng.below(40) as u32);
        }
        2 => rig.write(function, offset::CC, [0, 0x0046_0000, 0x0046_4001, 0x0046_0001][rng.below(4) as usize]),
        3 => rig.write(function, offset::NSSR, if rng.below(4) == 0 { 0x4E56_4D65 } else { 0 }),
        4 => rig.input(Input::FunctionReset { function }),
        5 => bring_up(rig, function),
        6 => {
            let mut sqe = Sqe::default();
            for i in 0..16 {
                sqe = sqe.with_dword(
                    i,
                    [0, 1, 7, 0x1000, 0x8_0000, u32::MAX, rng.below(1 << 32) as u32][rng.below(7) as usize],
                );
            }
            rig.put_any(function, rng.below(3) as u16, &sqe);
        }
        7 | 16..=19 => {
            let code = admin_opcode::NAMED[rng.below(admin_opcode::NAMED.len() as u64) as usize].0;
            let sqe = with_prps(&admin_sqe(code), 0x1000 * rng.below(1 << 12), 0x1000 * rng.below(1 << 12));
            rig.put_any(function, 0, &sqe.with_nsid(rng.below(3) as u32).with_dword(10, rng.below(8) as u32));
        }
        8 => {
            let hold: fn(&Output) -> bool = match rng.below(4) {
                0 => |output| matches!(output, Output::Fetch { .. } | Output::DmaRead { .. }),
                1 => |output| matches!(output, Output::Data { .. } | Output::Gather { .. }),
                2 => |output| matches!(output, Output::Send { .. } | Output::Sync { .. }),
                _ => |_| false,
            };
            rig.hold = hold;
        }
        9 | 10 => {
            let held = std::mem::take(&mut rig.held);
            held.into_iter().for_each(|output| rig.act(output));
        }
        11 => rig.input(Input::Inject(Fault::Delay { function, by: Duration::from_us(50), count: 2 })),
        12 => rig.input(Input::Inject(if rng.below(8) == 0 { Fault::Fatal { function } } else { Fault::Clear })),
        13 => rig.sync_fails = rng.below(16) == 0 && rig.s.health().critical_warning == 0,
        14 | 15 => {
            for queue in 0..=2 {
                while rig.queues.contains_key(&(function, queue)) && rig.take(function, queue).is_some() {}
                if rig.queues.contains_key(&(function, queue)) {
                    rig.ring_head(function, queue);
                }
            }
        }
        _ => {
            let (slba, nlb) = (rng.below(2_000), rng.below(64) as u16);
            let sqe = match rng.below(7) {
                6 => Sqe::dataset_management(0, rng.below(4) as u8, true),
                0 => Sqe::flush(0),
                1 => Sqe::write_zeroes(0, slba, nlb, true),
                2 => Sqe::compare(0, slba, nlb),
                3 | 4 => Sqe::write(0, slba, nlb),
                _ => Sqe::read(0, slba, nlb),
            };
            let sqe = with_prps(&sqe, 0x10_0000 + 4 * rng.below(1 << 16), 0x20_0000 + 8 * rng.below(4));
            rig.put_any(function, 1 + rng.below(2) as u16, &sqe);
        }
    }
    rig.run_for(rng.below(30) as u32);
}

impl Rig {
    /// Handles at most so many events.
    fn run_for(&mut self, events: u32) {
        self.settle();
        for _ in 0..events {
            let Some(at) = self.s.deadline() else { return };
            self.now = self.now.max(at);
            self.input(Input::Timer);
            self.settle();
        }
    }

    /// Puts an entry into a queue, if there is one, and rings.
    fn put_any(&mut self, function: u8, queue: u16, sqe: &Sqe) {
        if self.queues.contains_key(&(function, queue)) {
            self.put(function, queue, sqe);
            self.ring(function, queue);
        }
    }
}

fn random_life(seed: u64, steps: u32) -> Rig {
    let mut rng = Rng::new(seed, b"hostile");
    let mut rig = Rig::with(&tiny(), |options| (options.functions, options.cmb) = (2, 8192));
    // PRP lists that lead somewhere.
    for i in 0..64u64 {
        rig.memory[0x20_0000 + 8 * i as usize..][..8].copy_from_slice(&(0x30_0000 + 4096 * i).to_le_bytes());
    }
    for function in [0, 1] {
        bring_up(&mut rig, function);
    }
    for _ in 0..steps {
        step(&mut rig, &mut rng);
    }
    rig
}

#[test]
fn whatever_happens_a_reset_heals() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..24 {
        let mut rig = random_life(seed, 400);
        for output in &rig.said {
            let text = format!("{output:?}");
            let kind = text.split([' ', '(']).next().unwrap_or_default().to_owned();
            *seen.entry(kind).or_insert(0u32) += 1;
        }
        rig.sync_fails = false;
        rig.let_go();
        rig.input(Input::Inject(Fault::Clear));
        for function in [0, 1] {
            rig.input(Input::FunctionReset { function });
        }
        rig.run();
        assert_eq!(rig.s.parts().0.available(), 32, "seed {seed}: a slot is lost");
        for function in [0, 1] {
            assert_eq!(rig.read(function, offset::CSTS) & 0xF, 0, "seed {seed}");
            rig.free = 0x1000;
            rig.enable(function);
            rig.make_queue(function, 1, 16);
            let flush = Sqe::flush(0).with_nsid(NSID_ALL);
            let status = rig.submit(function, 1, &flush).status;
            // A sanitize that failed outlives resets: that is what it is for.
            assert!(status.is_success() || status == Status::SANITIZE_FAILED, "seed {seed}: {status:?}");
        }
    }
    // The lives were lived.
    println!("24 lives: {seen:?}");
    for kind in ["DmaRead", "Fetch", "Taken", "Data", "Sync", "Send", "Gather", "Complete", "Interrupt", "SaveState"] {
        assert!(seen.get(kind).is_some_and(|&count| count > 20), "{kind}: {seen:?}");
    }
}

#[test]
fn the_same_inputs_have_the_same_outputs() {
    for seed in 100..104 {
        let (one, other) = (random_life(seed, 300), random_life(seed, 300));
        assert!(!one.said.is_empty());
        assert_eq!((one.now, one.said, one.memory), (other.now, other.said, other.memory), "seed {seed}");
    }
}
