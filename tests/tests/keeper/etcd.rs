//! A real etcd of one member, on loopback.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::PATIENCE;

/// An etcd, in a folder of its own.
pub struct Etcd {
    folder: PathBuf,
    client: SocketAddr,
    child: Option<Child>,
}

/// Whether there is one to start.
pub fn is_installed() -> bool {
    Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

impl Etcd {
    pub fn new(folder: &Path) -> Etcd {
        // As clusters of devices have theirs: an address for each process, and ports for each etcd of it.
        static PORT: AtomicU16 = AtomicU16::new(30_000);
        let (pid, port) = (std::process::id(), PORT.fetch_add(2, Ordering::Relaxed));
        let host = [127, 1 + (pid >> 16 & 127) as u8, (pid >> 8) as u8, 2 + (pid & 126) as u8];
        let mut etcd = Etcd { folder: folder.join("etcd"), client: (host, port).into(), child: None };
        etcd.start();
        etcd
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    pub fn start(&mut self) {
        std::fs::create_dir_all(&self.folder).expect("a folder");
        let log = File::options().create(true).append(true).open(self.folder.join("log")).expect("a folder");
        let peer = format!("http://{}", SocketAddr::new(self.client.ip(), self.client.port() + 1));
        let mut command = Command::new("etcd");
        command.args(["--name", "only", "--data-dir"]).arg(self.folder.join("data"));
        command.args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("only={peer}")]);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.child = Some(command.spawn().expect("it starts"));
        let start = Instant::now();
        while !self.is_healthy() {
            assert!(start.elapsed() < PATIENCE, "etcd does not begin: see {}", self.folder.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_healthy(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect_timeout(&self.client, Duration::from_secs(1)) else { return false };
        let mut answer = String::new();
        let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("\"true\"")
    }

    /// Ends it (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }

    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill(Pid::from_raw(child.id() as i32), signal).expect("it is our child");
    }

    /// It loses all that it has, and begins anew.
    pub fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.join("data")).expect("it was there");
        self.start();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
