//! Which connections are taken: bounds that no host alone can use up.
//!
//! Connections that are no queue yet have places of their own; when these are taken, the oldest one of the address with
//! most of them goes, so that a host that comes finds one. Connections that are queues are bounded by
//! [`super::association::Associations`].

use super::border::Border;
use super::options::after;
use super::target::{LISTENER, Peer, Target};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use tidewater_base::Duration;

/// How long no connection is taken after the system had no descriptor, or no memory, for one.
const PAUSE: Duration = Duration::from_ms(100);

impl Target {
    /// Takes the connections that wait at a listener.
    pub(super) fn accept(&mut self, listener: usize, border: &mut dyn Border) {
        loop {
            match self.listeners[listener].accept() {
                Ok((stream, address)) => self.admit(stream, address, border),
                // Whatever else is wrong with one connection is not wrong with the next.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A connection that waits is reported for as long as it does: to look at it again and again would take
                // all of the thread's time.
                Err(_) => return self.pause(),
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr, border: &mut dyn Border) {
        let unconnected = self.peers.iter().flatten().filter(|peer| peer.queue.is_none()).count();
        if unconnected >= self.options.unconnected_max
            && let Some(oldest) = self.oldest_unconnected()
        {
            self.statistics.displaced += 1;
            self.close(oldest, border);
        }
        if self.peers.iter().flatten().count() >= self.options.connections_max {
            self.statistics.refused += 1;
            return;
        }
        let index = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, index as u64);
        let ready = stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok();
        if !ready || self.epoll.add(&stream, event).is_err() {
            self.statistics.refused += 1;
            return;
        }
        let peer = Peer::new(stream, address, &self.options, self.now);
        if index == self.peers.len() {
            self.peers.push(None);
        }
        self.peers[index] = Some(peer);
        self.statistics.accepted += 1;
        self.check_by(self.options.handshake_time_max);
    }

    /// The oldest connection that is no queue, of the address with most of them. Those that have ended already come
    /// first.
    fn oldest_unconnected(&self) -> Option<usize> {
        let unconnected = || {
            let peers = self.peers.iter().enumerate();
            peers
                .filter_map(|(index, peer)| peer.as_ref().filter(|peer| peer.queue.is_none()).map(|peer| (index, peer)))
        };
        let of_address = |address: IpAddr| unconnected().filter(|(_, peer)| peer.address.ip() == address).count();
        let busiest = unconnected().map(|(_, peer)| peer.address.ip()).max_by_key(|&address| of_address(address))?;
        let candidates = unconnected().filter(|(_, peer)| peer.address.ip() == busiest);
        let oldest = candidates.min_by_key(|(_, peer)| (peer.close_at.is_none(), peer.opened));
        oldest.map(|(index, _)| index)
    }

    /// No connection is taken for a while.
    fn pause(&mut self) {
        self.paused_until = Some(after(self.now, PAUSE));
        self.listen(EpollFlags::empty());
        self.check_by(PAUSE);
    }

    /// Which events of listeners are reported.
    pub(super) fn listen(&self, flags: EpollFlags) {
        for (number, listener) in (0u64..).zip(&self.listeners) {
            // It is in the set.
            let _ = self.epoll.modify(listener, &mut EpollEvent::new(flags, LISTENER | number));
        }
    }
}
