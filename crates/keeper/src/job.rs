//! The job of a keeper: `tidewater cluster keeper` writes it as one JSON object.

use crate::keys::Group;
use crate::program::supervisor::Supervise;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the cluster is kept in etcd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// Addresses of etcd, such as `http://127.0.0.1:2379`.
    pub etcd: Vec<String>,
    /// The cluster's name.
    pub cluster: String,
    /// The function of the devices.
    #[serde(default)]
    pub function: u8,
    /// User of etcd; its password is in the environment variable `TIDEWATER_ETCD_PASSWORD`.
    #[serde(default)]
    pub user: Option<String>,
    /// File of the CA of etcd's certificate: connections are encrypted.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// File of this keeper's certificate.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// File of its key.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Job {
    /// Keeps a device, until it is ended.
    Run {
        /// The cluster.
        at: At,
        /// The device and its times.
        keep: Keep,
    },
    /// Prints how the cluster is.
    Status {
        /// The cluster.
        at: At,
        /// As JSON.
        json: bool,
        /// The file that a keeper remembers etcd by.
        #[serde(default)]
        state: Option<PathBuf>,
    },
    /// Makes another member primary.
    Switchover {
        /// The cluster.
        at: At,
        /// Which; without it, the one that has most.
        to: Option<u8>,
        /// How long it is waited for.
        wait_ms: u64,
    },
    /// No member is promoted, and the primary needs no keeper.
    Pause {
        /// The cluster.
        at: At,
    },
    /// The keepers go on.
    Resume {
        /// The cluster.
        at: At,
    },
    /// A member discards its log, and takes the primary's.
    Reinit {
        /// The cluster.
        at: At,
        /// Its number.
        node: u8,
    },
    /// The members and their mode.
    Group {
        /// The cluster.
        at: At,
        /// The group; without it, it is printed.
        group: Option<Group>,
    },
    /// Supervises a program that follows the primary, until it is ended.
    Program {
        /// The program.
        program: Supervise,
    },
    /// Becomes a command of this supervisor's, which ends with it.
    Exec {
        /// The supervisor's process.
        supervisor: i32,
        /// The command and its arguments.
        command: Vec<String>,
    },
}

/// A device and how it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The device's control socket.
    pub control: PathBuf,
    /// Where programs find the device: other keepers and clients read it in etcd.
    pub address: String,
    /// The file that this keeper remembers etcd by.
    pub state: PathBuf,
    /// How long leadership lasts without a word to etcd, in milliseconds.
    pub ttl_ms: u64,
    /// How often the keeper looks, in milliseconds.
    pub loop_wait_ms: u64,
    /// How long it waits for etcd, or for the device, in milliseconds.
    pub retry_timeout_ms: u64,
    /// Leadership is given up when a write or a sync of the device's image takes at least this long on average, for a
    /// whole ttl, in milliseconds; without it, a slow disk is no reason.
    #[serde(default)]
    pub slow_disk_ms: Option<u64>,
    /// The etcd there is counts, though it is not the one of before.
    pub new_etcd: bool,
    /// Where the live page of the cluster is served; without it, there is none.
    #[serde(default)]
    pub page: Option<SocketAddr>,
    /// Where metrics, and whether the device is primary, are asked for; without it, nowhere.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// The socket of the supervisor whose program follows the primary; without it, there is none.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// How long before the end of the lease that program is stopped, in milliseconds. It is killed after two thirds of
    /// that.
    #[serde(default)]
    pub stop_ms: u64,
}

/// Shortest lease that etcd gives reliably: its own election time-out is 1 s.
const TTL_MS_MIN: u64 = 2_000;
/// Shortest time for a program to end before it is killed, and for the kill to come about.
const STOP_MS_MIN: u64 = 300;

impl Keep {
    /// Patroni's rule: within a lease, a keeper looks once and is let down twice.
    ///
    /// # Errors
    /// When the times break the rule, or the device's address is no absolute path, in words.
    pub fn check(&self) -> Result<(), String> {
        let (ttl, wait, retry) = (self.ttl_ms, self.loop_wait_ms, self.retry_timeout_ms);
        if wait == 0 || retry == 0 {
            return Err("the loop wait and the retry time-out must not be 0".into());
        }
        let place = self.address.strip_prefix("vfio-user:").unwrap_or(&self.address);
        if !Path::new(place).is_absolute() {
            return Err(format!(
                "--address {:?} is no absolute path: programs that read it in etcd run in other folders",
                self.address
            ));
        }
        if ttl < TTL_MS_MIN || ttl % 1_000 != 0 {
            return Err(format!("a ttl of {ttl} ms: etcd counts leases in whole seconds, from 2 s on"));
        }
        if self.slow_disk_ms == Some(0) {
            return Err("a disk whose writes take 0 ms is not slow: give a time, or leave --slow-disk out".into());
        }
        let least = retry.saturating_mul(2).saturating_add(wait);
        if least > ttl {
            return Err(format!(
                "the ttl of {ttl} ms is too short: within it the keeper waits once ({wait} ms) and may wait twice for \
                 an answer ({retry} ms each), which takes {least} ms; raise the ttl, or lower the others"
            ));
        }
        let least = retry.saturating_add(wait).saturating_add(self.stop_ms);
        let lasts = self.leads_for_ms();
        if self.program.is_some() && (self.stop_ms < STOP_MS_MIN || least > lasts) {
            return Err(format!(
                "--program-stop {} ms with a ttl of {ttl} ms: it is {STOP_MS_MIN} ms at least, and with the loop wait \
                 ({wait} ms) and the retry time-out ({retry} ms) no more than {lasts} ms: one slow answer would stop \
                 the program",
                self.stop_ms
            ));
        }
        Ok(())
    }

    /// How long a device acknowledges for a lease that was just renewed, in milliseconds: etcd's clock may be the
    /// faster one, by 2 %.
    pub fn leads_for_ms(&self) -> u64 {
        self.ttl_ms - self.ttl_ms / 50
    }

    /// The lease's time.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// How often it looks.
    pub fn loop_wait(&self) -> Duration {
        Duration::from_millis(self.loop_wait_ms)
    }

    /// How long it waits for an answer.
    pub fn retry_timeout(&self) -> Duration {
        Duration::from_millis(self.retry_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(ttl_ms: u64, loop_wait_ms: u64, retry_timeout_ms: u64) -> Keep {
        let (control, state) = ("a/control.sock".into(), "a/keeper".into());
        let (address, new_etcd, page) = ("/a".into(), false, None);
        let (slow_disk_ms, metrics, program, stop_ms) = (None, None, None, 0);
        Keep {
            control,
            address,
            state,
            ttl_ms,
            loop_wait_ms,
            retry_timeout_ms,
            slow_disk_ms,
            new_etcd,
            page,
            metrics,
            program,
            stop_ms,
        }
    }

    #[test]
    fn a_ttl_that_does_not_outlast_two_failures_is_refused_in_words() {
        assert_eq!(keep(10_000, 1_000, 4_000).check(), Ok(()));
        assert_eq!(keep(10_000, 2_000, 4_000).check(), Ok(()));
        let refused = keep(10_000, 2_001, 4_000).check().unwrap_err();
        assert!(refused.contains("10001 ms") && refused.contains("raise the ttl"), "{refused}");
        for wrong in [keep(1_000, 100, 100), keep(2_500, 100, 100), keep(10_000, 0, 1), keep(10_000, 1, 0)] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        for address in ["", "a", "vfio-user:", "vfio-user:a/vfio.sock"] {
            let wrong = Keep { address: address.into(), ..keep(10_000, 1_000, 4_000) };
            assert!(wrong.check().unwrap_err().contains("absolute"), "{address}");
        }
        for (stop_ms, is_right) in [(299, false), (300, true), (4_800, true), (4_801, false)] {
            let of = Keep { program: Some("a/program.sock".into()), stop_ms, ..keep(10_000, 1_000, 4_000) };
            assert_eq!(of.check().is_ok(), is_right, "{:?}", of.check());
        }
    }

    #[test]
    fn a_job_is_one_object_without_a_field_too_many() {
        let at = r#""at":{"etcd":["http://127.0.0.1:2379"],"cluster":"c"}"#;
        let job: Job = serde_json::from_str(&format!(r#"{{"do":"reinit",{at},"node":2}}"#)).unwrap();
        assert!(matches!(job, Job::Reinit { node: 2, .. }));
        assert!(serde_json::from_str::<Job>(&format!(r#"{{"do":"pause",{at},"for":2}}"#)).is_err());
    }
}
