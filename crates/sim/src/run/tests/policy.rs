//! Write policies from outside of the firmware.

use super::*;
use tidewater_core::buffer::{Fault, Outside, Policy, Run as Pages, Victim};

/// The least recently written page leaves first, over a plain list. At the page that it `fails_at`, it fails.
#[derive(Clone, Debug, Default)]
struct Lru {
    pages: Vec<u32>,
    fails_at: Option<u32>,
    fault: Option<Fault>,
}

impl Policy for Lru {
    fn contains(&self, lpn: u32) -> bool {
        self.pages.contains(&lpn)
    }

    fn write(&mut self, lpn: u32, _run: Pages, room: bool) -> bool {
        if self.fails_at == Some(lpn) {
            self.fault = Some(Fault::new(format_args!("it fails at page {lpn}")));
        }
        let held = self.remove(lpn);
        if held || room {
            self.pages.push(lpn);
        }
        held
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let before = self.pages.len();
        self.pages.retain(|&page| page != lpn);
        self.pages.len() < before
    }

    fn evict(&mut self, most: usize, victim: &mut Victim) {
        self.pages.drain(..most.min(self.pages.len())).for_each(|lpn| victim.push(lpn));
    }

    fn len(&self) -> usize {
        self.pages.len()
    }

    fn pages(&self) -> Vec<u32> {
        self.pages.clone()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

fn outside(fails_at: Option<u32>) -> Outside {
    Outside::new("test", "Lru", move |_| Ok(Box::new(Lru { fails_at, ..Lru::default() })))
}

/// Without what is measured in real time.
fn text(mut record: Record) -> String {
    (record.wall_seconds, record.user_cpu_seconds) = (0.0, 0.0);
    record.to_json()
}

fn options(policy: Option<Outside>, power_cut: Option<Duration>) -> RunOptions {
    let mut options = RunOptions { policy, power_cut, ..at_depth(8) };
    options.device.precondition = Precondition::Steady;
    options
}

const JOB: &str = "rw=randrw,bs=4k,size=4m,number_ios=3000";

#[test]
fn an_lru_from_outside_has_the_record_of_the_built_in_one() {
    let profile = with(small(), &["buffer.write_policy=lru", "buffer.write_size=256KiB"]);
    for cut in [None, Some(Duration::from_us(20_000))] {
        let made = |policy| run(&profile, job(JOB, 5), options(policy, cut)).unwrap().record;
        let built_in = made(None);
        assert!(built_in.write_buffer.evictions > 1_000 || cut.is_some(), "{:?}", built_in.write_buffer);
        let mut record = made(Some(outside(None)));
        assert_eq!(record.write_buffer.policy, "test:Lru");
        assert_eq!(record.profile.settings["buffer.write_policy"], "test:Lru");
        assert_eq!(record.profile.changed, ["buffer.write_policy=test:Lru"]);
        assert!(record.profile.description.ends_with("; changed: buffer.write_policy=test:Lru"));
        record.write_buffer.policy = "lru".into();
        record.profile = built_in.profile.clone();
        assert_eq!(text(record), text(built_in), "{cut:?}");
    }
}

/// A drive that was made for several runs is a copy of one with the profile's own policy.
#[test]
fn a_shared_drive_takes_a_policy_from_outside_once_it_is_copied() {
    let profile = with(small(), &["buffer.write_policy=fab", "buffer.write_size=256KiB"]);
    let made = |policy: Option<Outside>, shared: &Device| {
        let shared = shared.clone();
        let make: MakeDevice = Box::new(move |_, _| Ok(shared));
        run(&profile, job(JOB, 5), RunOptions { make: Some(make), ..options(policy, None) }).unwrap().record
    };
    let shared = Device::new(&profile, options(None, None).device).unwrap();
    let (first, between, second) = (made(None, &shared), made(Some(outside(None)), &shared), made(None, &shared));
    assert_eq!(text(first.clone()), text(second));
    assert_eq!((first.write_buffer.policy, between.write_buffer.policy), ("fab".into(), "test:Lru".into()));
}

#[test]
fn a_policy_that_fails_ends_the_run_in_its_words() {
    let profile = with(small(), &["buffer.write_size=256KiB"]);
    let failed = run(&profile, job(JOB, 5), options(Some(outside(Some(9))), None)).err().unwrap();
    assert_eq!(failed.to_string(), "write policy test:Lru: it fails at page 9");
    let unmade = Outside::new("test", "Unmade", |_| Err(Fault::new("it can't be made")));
    let failed = run(&profile, job(JOB, 5), options(Some(unmade), None)).err().unwrap();
    assert_eq!(failed.to_string(), "write policy test:Unmade: it can't be made");
}

#[test]
fn a_policy_needs_a_buffer_and_a_drive_that_has_not_served() {
    let profile = with(small(), &["buffer.write_policy=none"]);
    let refused = run(&profile, job(JOB, 5), options(Some(outside(None)), None)).err().unwrap().to_string();
    assert!(refused.contains("the drive has no write buffer; give it one"), "{refused}");
    let served = run(&small(), job(JOB, 5), options(None, None)).unwrap().device;
    let refused = with_policy(served, &outside(None)).err().unwrap().to_string();
    assert_eq!(refused, "write policy test:Lru: the drive has served already with another policy");
}
