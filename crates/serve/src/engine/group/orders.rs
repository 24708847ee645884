//! Commands of a group as operators give them, by the control socket.

use crate::clock;
use crate::control::{GroupMode, Request};
use crate::peers::carrier::Carrier;
use tidewater_base::Duration;
use tidewater_core::fast::transport::Command;
use tidewater_wire::replication::{Epoch, Group, Mode};

/// The furthest leader deadline, in milliseconds: a day.
const LEAD_MS_MAX: u64 = 86_400_000;

/// Counters of epochs, which have 56 bits.
const EPOCHS: u64 = 1 << 56;

/// The command that a request stands for.
///
/// # Errors
/// A group that can't be, in words.
pub(super) fn command_of(request: &Request, peers: &dyn Carrier) -> Result<Command, String> {
    let links = peers.links();
    let group = |members: &[u8], mode: GroupMode, k: u8| {
        let mode = match mode {
            GroupMode::Lazy => Mode::Lazy,
            GroupMode::Eager => Mode::Eager,
            GroupMode::Chain => Mode::Chain,
            GroupMode::Quorum => Mode::Quorum(k),
        };
        if let Some(node) =
            members.iter().find(|&&node| node != peers.node() && !links.iter().any(|link| link.node == node))
        {
            return Err(format!("node {node} is not a peer of this device: serve it with --peer {node}=ADDRESS"));
        }
        Group::new(Epoch::ZERO, mode, members).map_err(|error| error.to_string())
    };
    Ok(match request {
        Request::GroupForm { members, mode, k, primary, .. } => Command::Setup {
            node: peers.node(),
            group: group(members, *mode, *k)?,
            primary: *primary,
            epoch: Epoch::ZERO,
            force: false,
        },
        Request::GroupPromote { before_ms: Some(before), .. } if clock::milliseconds() >= *before => {
            return Err("this order has come too late".into());
        }
        Request::GroupPromote { members, mode, k, force, above, .. } => Command::Promote {
            target: match mode {
                Some(mode) => Some(group(members, *mode, *k)?),
                None => None,
            },
            epoch: match *above {
                0 => Epoch::ZERO,
                above if above >= EPOCHS => return Err(format!("there is no epoch above {above}")),
                above => Epoch::new(above, 0).next(peers.node()).ok_or("all epochs are used up")?,
            },
            force: *force,
        },
        Request::GroupLead { epoch, for_ms, from_ms, .. } => lead(epoch, *for_ms, *from_ms)?,
        Request::GroupDemote { .. } => Command::Demote,
        Request::GroupLeave { .. } => Command::StandAlone,
        _ => Command::Rebuild,
    })
}

/// The command that sets a leader deadline.
///
/// # Errors
/// An epoch that is none, or a deadline that is over.
fn lead(epoch: &str, for_ms: Option<u64>, from_ms: Option<u64>) -> Result<Command, String> {
    let Some(for_ms) = for_ms.filter(|&time| time > 0) else {
        return Ok(Command::Lead { epoch: Epoch::ZERO, lasts: for_ms.map(|_| Duration::ZERO) });
    };
    let parts = epoch.split_once('.').and_then(|(counter, node)| Some((counter.parse().ok()?, node.parse().ok()?)));
    let parts = parts.filter(|(counter, _)| *counter < EPOCHS);
    let (counter, node) = parts.ok_or_else(|| format!("`{epoch}` is no epoch: give one as 3.0"))?;
    let now = clock::milliseconds();
    let until = from_ms.unwrap_or(now).saturating_add(for_ms);
    // What was on its way for too long must not last any longer for that.
    let lasts = until.checked_sub(now).filter(|&lasts| lasts > 0).ok_or("this deadline has passed already")?;
    Ok(Command::Lead { epoch: Epoch::new(counter, node), lasts: Some(Duration::from_ms(lasts.min(LEAD_MS_MAX))) })
}
