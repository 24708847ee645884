//! Rounds in which the primary's machine is gone: the database goes on elsewhere, from a copy that followed the log.

use std::sync::atomic::AtomicBool;

use nix::sys::signal::Signal;
use tidewater_tests::databases::group::Group;
use tidewater_tests::databases::process::kill_tree;
use tidewater_tests::databases::{Around, Database, Flush, Ledger, Level, Place, Server, Verdict};

use crate::campaign::{Campaign, Moment};

/// Bytes of log that a lazy group takes while its replicas stand still: more than may be on their way to them, which
/// they read when they go on.
const UNSHIPPED: u64 = 2 << 20;

/// A round: what is there on the second machine. In a lazy group, which waits for no replica, replicas stand still for
/// a while before: what is acknowledged then is lost, and with it, maybe, the database.
///
/// # Errors
/// A step that failed, or the message of the database's own check.
pub fn round(
    campaign: &Campaign,
    database: &dyn Database,
    place: &Place,
    is_lazy: bool,
    moment: &Moment,
) -> Result<Verdict, String> {
    let mut group = Group::start(campaign.tidewater(), place, is_lazy)?;
    let level = if is_lazy { Level::Ring } else { Level::RemoteRing };
    let start = |place: &Place, group: &Group, node| {
        let device = Some((group.device(node), level));
        database.start(place, Flush::Real, Around { device, is_copied: true, ..Around::default() })
    };
    let mut server = start(place, &group, 0)?;
    let ledger = Ledger::new(database.writers());
    let went = ledger.load(server.as_mut(), |server: &mut dyn Server, _: &AtomicBool| {
        let mut went = || {
            let came = ledger.wait(1, std::time::Duration::ZERO);
            group.follow(|place, copy| database.copy(place, copy))?;
            let came = came && ledger.wait(moment.commits, moment.time);
            if is_lazy {
                group.signal_replicas(Signal::SIGSTOP);
                let end = group.log_end()? + UNSHIPPED;
                while group.log_end()? < end {
                    if !ledger.wait(1, std::time::Duration::ZERO) {
                        return Ok(false);
                    }
                }
            }
            Ok(came)
        };
        let went = went();
        let database = [server.root().id()];
        if moment.order {
            group.kill_primary();
            kill_tree(&database);
        } else {
            kill_tree(&database);
            group.kill_primary();
        }
        went
    });
    let said = || place.said(database.speaks_as());
    match went {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return Err(format!("no commits are acknowledged: {}", said())),
        Ok(Err(why)) | Err(why) => return Err(format!("{why}: {}", said())),
    }
    let _ = server.root().wait();
    group.remove_primary()?;
    if is_lazy {
        group.signal_replicas(Signal::SIGCONT);
    }
    group.recover(is_lazy)?;
    let copy = group.place(1).clone();
    let found = start(&copy, &group, 1).and_then(|mut server| {
        let verdict = ledger.judge(&server.contents()?);
        server.check().map_err(|why| format!("{verdict}, and its own check says: {why}"))?;
        server.stop()?;
        Ok(verdict)
    });
    let verdict = match found {
        // One that does not start, or has no tables, has lost all.
        Err(_) if is_lazy => {
            let acknowledged = ledger.acknowledged();
            Verdict { acknowledged, lost: acknowledged, ..Verdict::default() }
        }
        found => found?,
    };
    group.remove()?;
    Ok(verdict)
}
