//! The keeper's side: what it orders of the program's supervisor, and what it knows of the program.

use super::{FAILURES_MAX, LINE_MAX, Order, Report, clock_ms};
use crate::decide::{Action, Decision, View};
use crate::device::{self, Role};
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

/// How long the supervisor may take for an answer: it is on the same machine, and waits for nothing.
const ANSWER: Duration = Duration::from_millis(500);
/// How often a program that is being stopped is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Whether an action ends this leadership: the program is gone before it is carried out.
pub fn ends_leadership(action: &Action) -> bool {
    match action {
        Action::Release | Action::Device(device::Order::Demote) => true,
        Action::Device(device::Order::Lead { for_ms, .. }) => *for_ms == 0,
        _ => false,
    }
}

/// The order to the program by a decision. Time is granted only by a lease that etcd has renewed: a primary that goes
/// on without etcd (fail-safe) keeps its log, and its program until the lease is over.
pub fn order(view: &View<'_>, decision: &Decision) -> Order {
    let stop_ms = view.keep.stop_ms;
    let stop = Order::Stop { stop_ms };
    if decision.actions.iter().any(ends_leadership) {
        return stop;
    }
    let Ok(cluster) = view.cluster else { return Order::Look };
    let is_own = cluster.leader.as_ref().is_some_and(|(_, is_own)| *is_own);
    let Ok(device) = view.device else {
        return if is_own || cluster.paused { Order::Look } else { stop };
    };
    let node = device.node;
    if device.role == Role::Candidate && is_own {
        // Its group changes: its deadline stands as it is.
        return Order::Look;
    }
    if device.role != Role::Primary {
        let primary = cluster.leader.as_ref().filter(|(_, is_own)| !is_own).map(|(leader, _)| leader.node);
        return Order::Standby { node, primary, stop_ms };
    }
    let run = |until_ms| Order::Run { node, epoch: device.epoch, until_ms, stop_ms };
    match (cluster.paused, is_own) {
        (true, true) if !device.has_deadline && !device.is_frozen() => return run(None),
        (true, _) => return Order::Look,
        (false, false) => return stop,
        (false, true) => {}
    }
    let extended = decision.actions.iter().find_map(|action| match action {
        Action::Device(device::Order::Lead { from_ms, for_ms, .. }) => Some(from_ms + for_ms),
        _ => None,
    });
    // While its group changes, its deadline stands as it is.
    extended.map_or(Order::Look, |until| run(Some(until)))
}

/// A keeper's knowledge of the program.
#[derive(Debug)]
pub struct Program {
    socket: PathBuf,
    /// How it stood when the supervisor last answered, or why that does not answer.
    pub report: Result<Report, String>,
    /// Since when the supervisor has not answered, on the machine's clock.
    away_since_ms: Option<u64>,
    /// Until when the program may run, as far as this keeper knows; its last life may have granted as much.
    granted_until_ms: u64,
}

impl Program {
    /// A program of which nothing is known yet.
    pub fn new(socket: PathBuf, ttl: Duration) -> Program {
        let granted_until_ms = clock_ms() + ttl.as_millis() as u64;
        Program { socket, report: Err("it was not asked yet".into()), away_since_ms: None, granted_until_ms }
    }

    /// Has the supervisor carry out an order.
    pub async fn order(&mut self, order: &Order) {
        let answer = timeout(ANSWER, exchange(&self.socket, order)).await;
        let late = || (true, format!("no answer within {} ms", ANSWER.as_millis()));
        let answer = answer.unwrap_or_else(|_| Err(late()));
        match (&answer, order) {
            (Ok(report), Order::Stop { .. } | Order::Standby { .. }) if report.is_gone() => self.granted_until_ms = 0,
            (Ok(_), Order::Run { until_ms, .. }) => self.granted_until_ms = until_ms.unwrap_or(u64::MAX),
            // It may have taken the order before it fell silent.
            (Err((true, _)), Order::Run { until_ms, .. }) => {
                self.granted_until_ms = self.granted_until_ms.max(until_ms.unwrap_or(u64::MAX));
            }
            _ => {}
        }
        match &answer {
            Ok(_) => self.away_since_ms = None,
            Err(_) => _ = self.away_since_ms.get_or_insert_with(clock_ms),
        }
        self.report = answer.map_err(|(_, why)| format!("{}: {why}", self.socket.display()));
    }

    /// Stops the program, and waits for its end: until it would have been killed, and a while. True: no process of it
    /// is there, or it could run no longer than until now.
    pub async fn is_stopped(&mut self, stop_ms: u64) -> bool {
        let late_ms = clock_ms() + stop_ms;
        loop {
            self.order(&Order::Stop { stop_ms }).await;
            if self.granted_until_ms == u64::MAX && self.report.is_err() && has_no_supervisor(&self.socket) {
                self.granted_until_ms = 0;
            }
            let now_ms = clock_ms();
            let is_gone = self.report.as_ref().is_ok_and(Report::is_gone);
            if is_gone || now_ms >= self.granted_until_ms || now_ms >= late_ms {
                return is_gone || now_ms >= self.granted_until_ms;
            }
            sleep(LOOK).await;
        }
    }

    /// Why this machine does not run the program as primary, if it has tried for a while.
    pub fn trouble(&self, ttl: Duration) -> Option<String> {
        match &self.report {
            Ok(report) if report.failures >= FAILURES_MAX => {
                Some(format!("its program ends soon after each start ({})", report.last))
            }
            Err(_) if self.away_since_ms.is_some_and(|since| clock_ms() - since >= ttl.as_millis() as u64) => {
                Some("its program's supervisor does not answer".into())
            }
            _ => None,
        }
    }

    /// How the program stands, in words that change with its state alone.
    pub fn in_words(&self) -> String {
        match &self.report {
            Ok(report) => report.in_words(),
            Err(why) => format!("the program's supervisor does not answer: {why}"),
        }
    }
}

/// Whether neither a supervisor is there, nor a process that one has left: they hold a lock beside its socket.
fn has_no_supervisor(socket: &Path) -> bool {
    let file = File::options().append(true).open(socket.with_extension("lock"));
    file.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok())
}

/// The answer to an order; else whether the supervisor can have taken it, and what went wrong.
async fn exchange(socket: &Path, order: &Order) -> Result<Report, (bool, String)> {
    let stream = UnixStream::connect(socket).await.map_err(|error| (false, error.to_string()))?;
    answer(stream, order).await.map_err(|why| (true, why))
}

async fn answer(mut stream: UnixStream, order: &Order) -> Result<Report, String> {
    let failed = |error: std::io::Error| error.to_string();
    let line = serde_json::to_string(order).map_err(|error| error.to_string())?;
    stream.write_all(format!("{line}\n").as_bytes()).await.map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut answer).await.map_err(failed)?;
    let answer: Value = serde_json::from_str(&answer).map_err(|error| format!("invalid answer: {error}"))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        None => serde_json::from_value(answer).map_err(|error| format!("invalid answer: {error}")),
    }
}

#[cfg(test)]
mod tests;
