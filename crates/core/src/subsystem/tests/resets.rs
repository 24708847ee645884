//! Reset and shutdown, in every order, with commands under way.

use super::*;

fn ready(rig: &Rig, function: u8) -> bool {
    rig.read(function, offset::CSTS) & 1 != 0
}

/// What is held up when the reset comes.
const STEPS: [fn(&Output) -> bool; 6] = [
    |_| false,
    |output| matches!(output, Output::DmaRead { .. }),
    |output| matches!(output, Output::Fetch { .. }),
    |output| matches!(output, Output::Data { .. }),
    |output| matches!(output, Output::Sync { .. }),
    |output| matches!(output, Output::Send { .. } | Output::Gather { .. }),
];

#[test]
fn orphans_end_before_the_controller_says_that_it_is_reset() {
    for (step, hold) in STEPS.into_iter().enumerate() {
        for how in 0..3 {
            let mut rig = Rig::new();
            rig.enable(0);
            rig.make_queue(0, 1, 32);
            let buffer = rig.alloc(128 << 10);
            let commands = [
                rig.with_data(&Sqe::write(0, 3, 200), buffer, 201 * 512),
                rig.with_data(&Sqe::read(0, 3, 200), buffer, 201 * 512),
                rig.with_data(&Sqe::compare(0, 3, 20), buffer, 21 * 512),
                with_prps(&Sqe::dataset_management(0, 3, true), buffer, 0),
                rig.with_data(&Sqe::write(0, 64, 7).with_fua(), buffer, 4096),
                Sqe::flush(0),
            ];
            rig.hold = hold;
            for _ in 0..3 {
                for sqe in &commands {
                    rig.put(0, 1, sqe);
                }
            }
            rig.ring(0, 1);
            let identify = with_prps(&admin_sqe(admin_opcode::IDENTIFY).with_dword(10, 1), buffer, 0);
            rig.put(0, 0, &identify);
            rig.ring(0, 0);
            rig.run();
            let held = rig.held.len();
            assert_eq!(held > 0, step > 0, "step {step}");
            match how {
                0 => rig.write(0, offset::CC, 0x0046_0000),
                1 => rig.input(Input::FunctionReset { function: 0 }),
                _ => {
                    // Disabled and enabled again before the reset has ended.
                    rig.write(0, offset::CC, 0x0046_0000);
                    rig.write(0, offset::CC, 0x0046_0001);
                }
            }
            let said = rig.said.len();
            rig.run();
            if step > 0 {
                assert!(ready(&rig, 0), "step {step}, how {how}: memory is still touched");
            }
            rig.let_go();
            rig.run();
            let completions = rig.said[said..].iter().filter(|o| matches!(o, Output::Complete { .. })).count();
            assert_eq!(completions, 0, "step {step}, how {how}: no host waits for these");
            assert_eq!(ready(&rig, 0), how == 2, "step {step}, how {how}");
            // It works as before, and all slots are free.
            rig.write(0, offset::CC, 0x0046_0000);
            rig.enable(0);
            rig.make_queue(0, 1, 64);
            for _ in 0..60 {
                rig.put(0, 1, &with_prps(&Sqe::read(0, 3, 7), buffer, 0));
            }
            rig.ring(0, 1);
            rig.run();
            let done = std::iter::from_fn(|| rig.take(0, 1)).filter(|cqe| cqe.status.is_success()).count();
            assert_eq!(done, 60, "step {step}, how {how}");
        }
    }
}

#[test]
fn a_bad_admin_queue_is_fatal() {
    let cases: [(u32, u64, u64, u32); 8] = [
        (31 << 16, 0x1000, 0x2000, 0x0046_0001), // One entry.
        (31, 0x1000, 0x2000, 0x0046_0001),
        (0x0FFF_0FFF, u64::MAX, 0x2000, 0x0046_0001), // It would end past the last address.
        (31 << 16 | 31, 0x1000, 0x2000, 0x0046_0081), // Pages of 8 KiB.
        (31 << 16 | 31, 0x1000, 0x2000, 0x0046_0011), // Another command set.
        (31 << 16 | 31, 0x1000, 0x2000, 0x0046_0061),
        (31 << 16 | 31, 0x1000, 0x2000, 0x0046_0801), // Weighted round robin.
        (31 << 16 | 31, 0x1000, 0x2000, 0x0046_3801),
    ];
    for (i, (aqa, asq, acq, cc)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new();
        rig.write(0, offset::AQA, aqa);
        rig.write64(0, offset::ASQ, asq);
        rig.write64(0, offset::ACQ, acq);
        rig.write(0, offset::CC, cc);
        rig.run();
        assert_eq!(rig.read(0, offset::CSTS), 2, "case {i}");
        rig.write(0, offset::CC, 0);
        rig.run();
        assert_eq!(rig.read(0, offset::CSTS), 0, "case {i}");
        rig.enable(0);
        assert!(ready(&rig, 0), "case {i}");
    }
}

#[test]
fn entries_from_nowhere_are_fatal_until_the_reset() {
    let mut rig = Rig::new();
    rig.enable_at(0, 1 << 40, 0x2000);
    rig.run();
    rig.write(0, offset::DOORBELLS, 1);
    rig.run();
    assert_eq!(rig.read(0, offset::CSTS), 3, "fatal");
    rig.write(0, offset::DOORBELLS, 2);
    rig.run();
    rig.write(0, offset::CC, 0);
    rig.run();
    assert_eq!(rig.read(0, offset::CSTS), 0);
    // Completions that go nowhere, too.
    rig.enable_at(0, 0x1000, 1 << 40);
    rig.run();
    rig.put(0, 0, &admin_sqe(admin_opcode::KEEP_ALIVE));
    rig.ring(0, 0);
    rig.run();
    assert_eq!(rig.read(0, offset::CSTS) & 2, 2);
    rig.write(0, offset::CC, 0);
    rig.enable(0);
}

#[test]
fn a_shutdown_makes_everything_safe() {
    for (notification, held) in [(1, false), (2, false), (1, true)] {
        let mut rig = Rig::new();
        rig.enable(0);
        rig.make_queue(0, 1, 32);
        let buffer = rig.alloc(4096);
        assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::write(0, 8, 7), buffer, 0)).status, Status::SUCCESS);
        assert_eq!((rig.syncs, rig.s.device().write_buffer().is_empty()), (0, false));
        if held {
            rig.hold = |output| matches!(output, Output::Sync { .. });
        }
        rig.write(0, offset::CC, 0x0046_0001 | notification << 14);
        assert_eq!(rig.read(0, offset::CSTS) >> 2 & 3, 1, "it occurs");
        rig.run();
        if held {
            assert_eq!(rig.read(0, offset::CSTS) >> 2 & 3, 1);
            rig.let_go();
            rig.run();
        }
        assert_eq!(rig.read(0, offset::CSTS) >> 2 & 3, 2, "complete");
        assert!(rig.s.device().write_buffer().is_empty() && rig.syncs == 1);
        // Nothing is taken any more until the next reset.
        rig.put(0, 1, &Sqe::flush(0));
        rig.ring(0, 1);
        rig.run();
        assert_eq!(rig.take(0, 1), None);
        rig.write(0, offset::CC, 0);
        rig.run();
        assert_eq!(rig.read(0, offset::CSTS), 0);
        rig.enable(0);
    }
}

#[test]
fn saved_state_comes_back() {
    let mut rig = Rig::new();
    assert_eq!(rig.saves, 0);
    rig.enable(0);
    rig.make_queue(0, 1, 8);
    assert!(rig.saves > 0, "an unsafe shutdown would be reported");
    let again = |rig: &Rig| {
        let state = rig.s.state();
        Rig::with(&tiny(), |options| options.state = state)
    };
    let cut = again(&rig);
    assert_eq!((cut.s.health().power_cycles, cut.s.health().unsafe_shutdowns), (2, 1));
    rig.write(0, offset::CC, 0x0046_4001);
    rig.run();
    assert_eq!(rig.state, rig.s.state());
    let clean = again(&rig);
    assert_eq!((clean.s.health().power_cycles, clean.s.health().unsafe_shutdowns), (2, 0));
    // What is damaged, or of another drive, is refused.
    let mut state = rig.s.state();
    state[40] ^= 1;
    let options = Options { state, ..Options::of(&tiny()) };
    assert!(Subsystem::new(device(&tiny()), options).is_err());
}
