//! The file format pcapng (draft-ietf-opsawg-pcapng): one section, one interface, packets.

use std::io::{self, Write};

/// Packets that begin with an IPv4 header.
pub(super) const LINK_TYPE_IPV4: u16 = 228;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;

const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const EPB_DROPS: u16 = 4;
const SHB_PROGRAM: u16 = 4;
const ISB_RECEIVED: u16 = 4;
const ISB_DROPPED: u16 = 5;
const IF_RESOLUTION: u16 = 9;
/// 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// A block that is being made.
struct Block(Vec<u8>);

impl Block {
    fn new(mut buffer: Vec<u8>, kind: u32) -> Block {
        buffer.clear();
        buffer.extend_from_slice(&kind.to_le_bytes());
        buffer.extend_from_slice(&[0; 4]);
        Block(buffer)
    }

    fn u16(mut self, value: u16) -> Block {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Block {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Bytes, padded to double words.
    fn padded(mut self, bytes: &[u8]) -> Block {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Block {
        let len = value.len().min(usize::from(u16::MAX));
        self.u16(code).u16(len as u16).padded(&value[..len])
    }

    fn time(self, nanos: u64) -> Block {
        self.u32((nanos >> 32) as u32).u32(nanos as u32)
    }

    /// The end of the options, and the length at both ends.
    fn end(self) -> Vec<u8> {
        let block = self.u16(0).u16(0);
        let len = block.0.len() as u32 + 4;
        let mut bytes = block.u32(len).0;
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        bytes
    }
}

/// Writes blocks.
pub(super) struct Pcapng<W> {
    out: W,
    /// The buffer of the last block.
    buffer: Vec<u8>,
}

impl<W: Write> Pcapng<W> {
    /// Begins a file of one interface.
    pub(super) fn begin(out: W, link_type: u16, program: &str, comment: &str) -> io::Result<Pcapng<W>> {
        let mut file = Pcapng { out, buffer: Vec::new() };
        // Version 1.0, and a section of unknown length.
        let header = file.block(SECTION_HEADER).u32(BYTE_ORDER).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX);
        file.put(header.option(COMMENT, comment.as_bytes()).option(SHB_PROGRAM, program.as_bytes()))?;
        let interface = file.block(INTERFACE_DESCRIPTION).u16(link_type).u16(0).u32(0);
        file.put(interface.option(IF_NAME, b"tidewater").option(IF_RESOLUTION, &[NANOSECONDS]))?;
        Ok(file)
    }

    fn block(&mut self, kind: u32) -> Block {
        Block::new(std::mem::take(&mut self.buffer), kind)
    }

    fn put(&mut self, block: Block) -> io::Result<()> {
        self.buffer = block.end();
        self.out.write_all(&self.buffer)
    }

    /// A packet, at nanoseconds of Unix time. `dropped`: events that are missing before it.
    pub(super) fn packet(&mut self, nanos: u64, bytes: &[u8], dropped: u64) -> io::Result<()> {
        let len = bytes.len() as u32;
        let mut block = self.block(ENHANCED_PACKET).u32(0).time(nanos).u32(len).u32(len).padded(bytes);
        if dropped > 0 {
            let comment = format!("{dropped} events dropped before this one: the writer was too slow");
            block = block.option(EPB_DROPS, &dropped.to_le_bytes()).option(COMMENT, comment.as_bytes());
        }
        self.put(block)
    }

    /// Packets of the whole file, and those that are missing.
    pub(super) fn statistics(&mut self, nanos: u64, packets: u64, dropped: u64) -> io::Result<()> {
        let block = self.block(INTERFACE_STATISTICS).u32(0).time(nanos);
        self.put(block.option(ISB_RECEIVED, &packets.to_le_bytes()).option(ISB_DROPPED, &dropped.to_le_bytes()))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
