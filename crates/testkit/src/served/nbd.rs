//! A client of NBD that a test drives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use tidewater_serve::nbd::Address;
use tidewater_wire::nbd::{
    ExportInfo, OptionHeader, Request, SimpleReply, append_option_reply, command, greeting, option, reply,
};

/// A connected socket, with time-outs as the system has them.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A client: one connection.
pub struct NbdClient {
    stream: Box<dyn Stream>,
    cookies: u64,
}

impl NbdClient {
    /// Connects, and has no export yet.
    pub fn connect(address: &Address) -> std::io::Result<NbdClient> {
        let mut stream: Box<dyn Stream> = match address {
            Address::Unix(path) => Box::new(UnixStream::connect(path)?),
            Address::Tcp(address) => Box::new(TcpStream::connect(address)?),
        };
        let mut bytes = greeting();
        stream.read_exact(&mut bytes)?;
        assert_eq!(bytes, greeting());
        stream.write_all(&3_u32.to_be_bytes())?;
        Ok(NbdClient { stream, cookies: 0 })
    }

    /// Connects, and uses the export of this name.
    pub fn of(address: &Address, name: &str) -> NbdClient {
        let mut client = NbdClient::connect(address).expect("it listens");
        client.go(name);
        client
    }

    /// Sends any bytes.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives so many bytes.
    pub fn receive(&mut self, len: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the server has closed the connection, behind whatever else it says.
    pub fn is_closed(&mut self) -> bool {
        let mut scratch = [0; 4_096];
        loop {
            match self.stream.read(&mut scratch) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// Sends an option, and returns the type and the data of each reply.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&OptionHeader { option, len: data.len() as u32 }.to_bytes()).expect("it is taken");
        self.send(data).expect("it is taken");
        let mut replies = Vec::new();
        loop {
            let header = self.receive(20).expect("a reply");
            let word = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().expect("20 bytes"));
            let data = self.receive(word(16) as usize).expect("its data");
            let mut whole = Vec::new();
            append_option_reply(option, word(12), &data, &mut whole);
            assert_eq!(whole, [&header[..], &data].concat());
            let kind = word(12);
            replies.push((kind, data));
            if ![reply::SERVER, reply::INFO].contains(&kind) {
                return replies;
            }
        }
    }

    /// Uses an export.
    pub fn go(&mut self, name: &str) -> ExportInfo {
        let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
        let replies = self.option(option::GO, &data);
        let [(reply::INFO, export), (reply::INFO, blocks), (reply::ACK, _)] = &replies[..] else {
            panic!("{replies:?}")
        };
        let word = |bytes: &[u8], at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().expect("4 bytes"));
        ExportInfo {
            size: u64::from(word(export, 2)) << 32 | u64::from(word(export, 6)),
            flags: u16::from_be_bytes([export[10], export[11]]),
            block_min: word(blocks, 2),
            block_preferred: word(blocks, 6),
        }
    }

    /// Sends a request, with a new cookie, and its data.
    pub fn request(&mut self, (kind, flags): (u16, u16), offset: u64, len: u32, data: &[u8]) -> std::io::Result<u64> {
        self.cookies += 1;
        let request = Request { flags, kind, cookie: self.cookies, offset, len };
        self.send(&[&request.to_bytes()[..], data].concat())?;
        Ok(self.cookies)
    }

    /// The next reply: its cookie, and its error if it has one.
    pub fn reply(&mut self) -> std::io::Result<(u64, Result<(), u32>)> {
        let bytes = self.receive(SimpleReply::SIZE)?;
        let reply = bytes.first_chunk().and_then(|bytes| SimpleReply::from_bytes(*bytes)).expect("a simple reply");
        Ok((reply.cookie, if reply.error == 0 { Ok(()) } else { Err(reply.error) }))
    }

    /// Sends a request without data for the client, and waits for its end.
    ///
    /// # Errors
    /// As the reply says.
    pub fn call(&mut self, kind: (u16, u16), offset: u64, len: u32, data: &[u8]) -> Result<(), u32> {
        let cookie = self.request(kind, offset, len, data).expect("it is taken");
        let (answered, result) = self.reply().expect("a reply");
        assert_eq!(answered, cookie);
        result
    }

    /// Reads.
    ///
    /// # Errors
    /// As the reply says.
    pub fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        self.call((command::READ, 0), offset, len as u32, &[])?;
        Ok(self.receive(len).expect("the data"))
    }

    /// Writes.
    ///
    /// # Errors
    /// As the reply says.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.call((command::WRITE, 0), offset, data.len() as u32, data)
    }

    /// Flushes.
    ///
    /// # Errors
    /// As the reply says.
    pub fn flush(&mut self) -> Result<(), u32> {
        self.call((command::FLUSH, 0), 0, 0, &[])
    }
}
