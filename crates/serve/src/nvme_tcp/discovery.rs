//! Commands of hosts that ask where the subsystem is: the discovery log page, and the way of a controller's answers.

use super::association::Kind;
use super::discovery_controller::Reply;
use super::fabrics::Answer;
use super::target::Target;
use std::net::SocketAddr;
use tidewater_wire::fabrics::{AddressFamily, DiscoveryEntry, DiscoveryHeader, SubsystemKind};
use tidewater_wire::nvme::{Sqe, Status};

impl Target {
    /// A command for a discovery controller.
    pub(super) fn on_discovery(&mut self, index: usize, place: u16, sqe: &Sqe) {
        let peer = self.peers[index].as_mut().expect("a command comes by a connection");
        let (association, _) = peer.queue.expect("only queues get here");
        let log = log_page(&self.options, peer.local_address());
        let association = self.associations.get_mut(association).expect("a queue belongs to a controller");
        let Kind::Discovery(controller) = &mut association.kind else { return };
        let Some(reply) = controller.command(sqe, || log) else { return };
        let answer: Answer = match reply {
            Ok(Reply::Value(value)) => Ok(value),
            Err(status) => Err(status),
            Ok(Reply::Data(data)) => {
                let sent = peer.connection.data::<()>(place, 0, data.len() as u32, |out| {
                    out.copy_from_slice(&data);
                    Ok(())
                });
                sent.map(|_| 0).map_err(|_| Status::DATA_SGL_LENGTH_INVALID)
            }
        };
        self.answer(index, place, answer);
    }
}

/// The discovery log page: where the subsystem is, as the host at `local` sees it.
fn log_page(options: &super::Options, local: Option<SocketAddr>) -> Vec<u8> {
    let addresses: Vec<SocketAddr> = options.advertise.or(local).into_iter().collect();
    let mut log = DiscoveryHeader { generation: 1, records: addresses.len() as u64 }.to_bytes().to_vec();
    for (address, port_id) in addresses.into_iter().zip(0..) {
        let entry = DiscoveryEntry {
            kind: SubsystemKind::Nvm,
            family: if address.is_ipv4() { AddressFamily::V4 } else { AddressFamily::V6 },
            port_id,
            admin_entries_max: options.entries_max,
            subsystem: options.subsystem.clone(),
            address: address.ip().to_string(),
            port: address.port(),
        };
        log.extend_from_slice(&entry.to_bytes());
    }
    log
}
