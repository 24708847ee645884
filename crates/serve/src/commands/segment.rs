//! TCP segments of a conversation that never took place on a network (RFC 791, RFC 9293): enough for a dissector to
//! follow a stream.

use std::net::Ipv4Addr;
use tidewater_wire::nvme_tcp::PORT;

/// The device's address: TEST-NET-1, which no network uses (RFC 5737).
pub(super) const DEVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const TCP: u8 = 6;
const WINDOW: u16 = u16::MAX;

/// TCP flags.
pub(super) mod flag {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 1 << 1;
    pub const PSH: u8 = 1 << 3;
    pub const ACK: u8 = 1 << 4;
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Host,
    Device,
}

/// The host's address of a controller: in TEST-NET-2.
pub(super) fn host(function: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, function.saturating_add(1))
}

/// One TCP connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    host: Ipv4Addr,
    port: u16,
    /// The next sequence numbers: of the host, of the device.
    next: [u32; 2],
}

impl Stream {
    /// A connection from a port of a controller's host.
    pub(super) fn new(function: u8, port: u16) -> Stream {
        Stream { host: host(function), port, next: [1, 1] }
    }

    /// The next packet of one side, with all IP and TCP headers.
    pub(super) fn packet(&mut self, from: From, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (us, them) = if from == From::Host { (0, 1) } else { (1, 0) };
        let ends = [(self.host, self.port), (DEVICE, PORT)];
        let ((source, source_port), (target, target_port)) = (ends[us], ends[them]);
        let len = IPV4_BYTES + TCP_BYTES + payload.len();
        let mut packet = Vec::with_capacity(len);
        // Version 4, 5 double words; the length; no identification, don't fragment; 64 hops.
        packet.extend_from_slice(&[0x45, 0]);
        packet.extend_from_slice(&(len as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0x40, 0, 64, TCP, 0, 0]);
        packet.extend_from_slice(&source.octets());
        packet.extend_from_slice(&target.octets());
        let sum = checksum(&packet, 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());

        packet.extend_from_slice(&source_port.to_be_bytes());
        packet.extend_from_slice(&target_port.to_be_bytes());
        packet.extend_from_slice(&self.next[us].to_be_bytes());
        let acknowledged = if flags & flag::ACK == 0 { 0 } else { self.next[them] };
        packet.extend_from_slice(&acknowledged.to_be_bytes());
        packet.extend_from_slice(&[((TCP_BYTES / 4) << 4) as u8, flags]);
        packet.extend_from_slice(&WINDOW.to_be_bytes());
        packet.extend_from_slice(&[0; 4]);
        packet.extend_from_slice(payload);
        // The pseudo header: addresses, protocol, length.
        let pseudo = sum_of(&packet[12..20]) + u32::from(TCP) + (TCP_BYTES + payload.len()) as u32;
        let sum = checksum(&packet[IPV4_BYTES..], pseudo);
        packet[IPV4_BYTES + 16..IPV4_BYTES + 18].copy_from_slice(&sum.to_be_bytes());

        let counted = payload.len() as u32 + u32::from(flags & (flag::SYN | flag::FIN) != 0);
        self.next[us] = self.next[us].wrapping_add(counted);
        packet
    }
}

fn sum_of(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |&byte| u32::from(byte) << 8);
    words.iter().map(|&word| u32::from(u16::from_be_bytes(word))).sum::<u32>() + last
}

/// The Internet checksum (RFC 1071) of bytes whose own field is zero, on top of a sum.
fn checksum(bytes: &[u8], sum: u32) -> u16 {
    let mut sum = sum_of(bytes) + sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_headers_with_their_checksums_are_zero_and_numbers_go_on() {
        let mut stream = Stream::new(2, 50_000);
        for (from, flags, payload) in [
            (From::Host, flag::SYN, &b""[..]),
            (From::Device, flag::SYN | flag::ACK, b""),
            (From::Host, flag::PSH | flag::ACK, b"odd"),
            (From::Device, flag::PSH | flag::ACK, b"even"),
        ] {
            let packet = stream.packet(from, flags, payload);
            assert_eq!(packet.len(), 40 + payload.len());
            assert_eq!(checksum(&packet[..20], 0), 0);
            let pseudo = sum_of(&packet[12..20]) + 6 + (packet.len() - 20) as u32;
            assert_eq!(checksum(&packet[20..], pseudo), 0);
        }
        let last = stream.packet(From::Host, flag::ACK, b"");
        assert_eq!(last[12..16], [198, 51, 100, 3]);
        assert_eq!(last[20..24], [0xC3, 0x50, 0x11, 0x44], "ports 50,000 and 4,420");
        assert_eq!(last[24..28], 5u32.to_be_bytes(), "the SYN and three bytes after 1");
        assert_eq!(last[28..32], 6u32.to_be_bytes(), "the SYN and four bytes after 1");
    }
}
