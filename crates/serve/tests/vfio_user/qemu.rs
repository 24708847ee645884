//! QEMU as the client: real PCI accesses, by its test interface, without a guest.
//!
//! `TIDEWATER_QEMU` names a `qemu-system-x86_64` of version 10.1 or newer; without it these tests say that they are
//! skipped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use tidewater_serve::vfio_user::{DmaError, Reached};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe, Status};

use crate::vfio_user::trial::Trial;
use tidewater_testkit::PATIENCE;

/// Where the function is on the bus: device 4.
const DEVICE: u32 = 4 << 11;
/// Where its BAR0 is put.
const BAR0: u64 = 0xE000_0000;
const DOORBELLS: u64 = BAR0 + offset::DOORBELLS as u64;
/// Places in the machine's memory.
const ASQ: u64 = 0x10_0000;
const ACQ: u64 = 0x10_1000;
const DATA: u64 = 0x10_2000;
const MESSAGE: u64 = 0x10_3000;

/// A machine without processors that run.
struct Machine {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Machine {
    /// Starts it with a function attached, if there is a QEMU. `shared`: its memory comes with descriptors.
    fn start(trial: &Trial, shared: bool) -> Option<Machine> {
        let Some(qemu) = std::env::var_os("TIDEWATER_QEMU") else {
            println!("SKIPPED: TIDEWATER_QEMU names no QEMU");
            return None;
        };
        let path = trial.path();
        let device = format!(
            r#"{{"driver":"vfio-user-pci","addr":"4.0","socket":{{"type":"unix","path":"{}"}}}}"#,
            path.to_str().expect("a path that is text")
        );
        let memory = ["-machine", "memory-backend=mem0", "-object", "memory-backend-memfd,id=mem0,size=64M,share=on"];
        let mut child = Command::new(qemu)
            .args(if shared { memory.as_slice() } else { &[] })
            .args(["-machine", "q35", "-m", "64", "-nodefaults", "-display", "none"])
            .args(["-accel", "qtest", "-qtest", "stdio", "-qtest-log", "/dev/null", "-device", &device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("QEMU starts");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        Some(Machine { child, to, from })
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").expect("QEMU listens");
        loop {
            let mut reply = String::new();
            let len = self.from.read_line(&mut reply).expect("QEMU answers");
            assert!(len > 0, "QEMU has ended at '{line}'");
            match reply.trim_end().strip_prefix("OK") {
                Some(value) => return value.trim().to_owned(),
                None => assert!(!reply.starts_with("FAIL"), "{line}: {reply}"),
            }
        }
    }

    fn number(&mut self, line: &str) -> u64 {
        let reply = self.ask(line);
        u64::from_str_radix(reply.trim_start_matches("0x"), 16).expect("a number")
    }

    fn config_read(&mut self, at: u32) -> u32 {
        self.ask(&format!("outl 0xcf8 {:#x}", 1 << 31 | DEVICE | at));
        self.number("inl 0xcfc") as u32
    }

    fn config_write(&mut self, at: u32, value: u32) {
        self.ask(&format!("outl 0xcf8 {:#x}", 1 << 31 | DEVICE | at));
        self.ask(&format!("outl 0xcfc {value:#x}"));
    }

    fn readl(&mut self, at: u64) -> u32 {
        self.number(&format!("readl {at:#x}")) as u32
    }

    fn writel(&mut self, at: u64, value: u32) {
        self.ask(&format!("writel {at:#x} {value:#x}"));
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.ask(&format!("write {at:#x} {:#x} 0x{text}", bytes.len()));
    }

    fn read(&mut self, at: u64, len: usize) -> Vec<u8> {
        let text = self.ask(&format!("read {at:#x} {len:#x}"));
        let text = text.trim_start_matches("0x");
        (0..len).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("bytes")).collect()
    }

    /// Maps BAR0, and enables memory and bus mastering.
    fn enable(&mut self) {
        assert_eq!(self.config_read(8) >> 8, 0x01_0802, "an NVMe controller");
        self.config_write(0x10, BAR0 as u32);
        self.config_write(0x14, 0);
        self.config_write(4, 6);
    }

    /// Waits until a word of memory is as it should be.
    fn wait(&mut self, what: &str, at: u64, is: impl Fn(u32) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let value = self.readl(at);
            if is(value) {
                return;
            }
            assert!(Instant::now() < until, "{what}: {value:#x}");
        }
    }

    /// Runs the admin command that stands `index`th in the queue.
    fn admin(&mut self, index: u64, sqe: &Sqe) -> Cqe {
        self.write(ASQ + index * 64, &sqe.to_bytes());
        self.writel(DOORBELLS, index as u32 + 1);
        self.wait("a completion", ACQ + index * 16 + 12, |word| word >> 16 & 1 == 1);
        let entry = self.read(ACQ + index * 16, 16);
        Cqe::from_bytes(entry.first_chunk().expect("16 bytes"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn qemu_drives_the_function_and_its_interrupts() {
    for mapped in [false, true] {
        let trial = Trial::new(mapped);
        let Some(mut machine) = Machine::start(&trial, true) else { return };
        machine.enable();
        assert_eq!(machine.readl(BAR0 + 8), 0x0001_0400, "the version");
        // QEMU seals its memfds, so that nothing need be trusted. Its ROMs have no descriptors.
        let lent = trial.memory.list();
        let with_data = lent.iter().find(|(first, last, _)| (*first..=*last).contains(&DATA));
        assert!(matches!(with_data, Some((_, _, Reached::Mapped))), "{lent:x?}");
        let mut bytes = [0; 4];
        machine.write(DATA, b"tide");
        trial.memory.read(DATA, &mut bytes).expect("its memory");
        assert_eq!(&bytes, b"tide");

        // MSI-X: the table is QEMU's, and a message goes wherever it says: here to memory.
        let capability = (0..48).map(|at| 0x40 + at * 4).find(|at| machine.config_read(*at) & 0xFF == 0x11);
        let capability = capability.expect("an MSI-X capability");
        let table = BAR0 + u64::from(machine.config_read(capability + 4) & !7);
        let pending = BAR0 + u64::from(machine.config_read(capability + 8) & !7);
        for (at, word) in [MESSAGE as u32, 0, 0xABCD, 0].into_iter().enumerate() {
            machine.writel(table + 4 * at as u64, word);
        }
        assert_eq!(machine.readl(table + 8), 0xABCD);
        machine.config_write(capability, 1 << 31);

        machine.writel(BAR0 + u64::from(offset::AQA), 0x001F_001F);
        machine.writel(BAR0 + u64::from(offset::ASQ), ASQ as u32);
        machine.writel(BAR0 + u64::from(offset::ACQ), ACQ as u32);
        machine.writel(BAR0 + u64::from(offset::CC), 0x0046_0001);
        machine.wait("ready", BAR0 + u64::from(offset::CSTS), |csts| csts & 1 == 1);
        let identify = Sqe::from_dwords([0; 16]).with_dword(0, 0x0077_0006).with_dword(6, DATA as u32);
        let cqe = machine.admin(0, &identify.with_dword(10, 1));
        assert_eq!((cqe.cid, cqe.status), (0x77, Status::SUCCESS));
        assert_eq!(machine.read(DATA + 4, 5), b"TRIAL");
        machine.wait("a message", MESSAGE, |word| word == 0xABCD);

        // Masked, an interrupt waits in QEMU, which tells the function nothing of masks (11.1) and yet asks it for
        // pending bits.
        machine.writel(table + 12, 1);
        machine.writel(MESSAGE, 0);
        let cqe = machine.admin(1, &identify.with_dword(10, 1));
        assert_eq!(cqe.status, Status::SUCCESS);
        assert_eq!((machine.readl(MESSAGE), machine.readl(pending)), (0, 0));
        machine.writel(table + 12, 0);
        machine.wait("a message", MESSAGE, |word| word == 0xABCD);

        // A machine reset takes everything back to the start.
        machine.ask("outb 0xcf9 2");
        machine.ask("outb 0xcf9 6");
        let until = Instant::now() + PATIENCE;
        while machine.config_read(4) & 6 != 0 {
            assert!(Instant::now() < until, "the machine does not reset");
        }
        machine.enable();
        machine.wait("not ready", BAR0 + u64::from(offset::CSTS), |csts| csts & 1 == 0);
        let again = machine.readl(table + 12);
        assert_eq!(again & 1, 1, "all vectors are masked");
    }
}

#[test]
fn qemu_that_shares_no_memory_is_asked_for_it_by_messages() {
    let trial = Trial::new(false);
    let Some(mut machine) = Machine::start(&trial, false) else { return };
    machine.enable();
    machine.write(DATA, b"tide");
    let mut bytes = [0; 4];
    assert_eq!(trial.memory.read(DATA, &mut bytes), Err(DmaError::ByMessage { address: DATA }));
    let connection = trial.connection.lock().expect("no test panics with the lock").clone().expect("a connection");
    let time = PATIENCE;
    connection.read(DATA, &mut bytes, time).expect("its memory");
    assert_eq!(&bytes, b"tide");
    let pattern: Vec<u8> = (0..3_000_000u32).map(|at| (at % 253) as u8).collect();
    connection.write(DATA, &pattern, time).expect("its memory, in pieces");
    assert_eq!(machine.read(DATA + 2_999_000, 1000), pattern[2_999_000..]);
    let beyond = connection.read(1 << 40, &mut bytes, time);
    assert_eq!(beyond, Err(DmaError::Unmapped { address: 1 << 40 }));
}

#[test]
fn qemu_may_be_killed_and_the_next_one_attaches() {
    let trial = Trial::new(false);
    for _ in 0..3 {
        let Some(mut machine) = Machine::start(&trial, true) else { return };
        machine.enable();
        assert_eq!(machine.readl(BAR0 + 8), 0x0001_0400);
    }
}
