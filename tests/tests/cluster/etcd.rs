//! A real etcd, on loopback or on machines of a cluster.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};

use super::machines::Machines;
use tidewater_tests::{own_address, skipped, wait};

/// A member of an etcd, in a folder of its own.
pub struct Etcd {
    name: String,
    folder: PathBuf,
    client: SocketAddr,
    /// All members, as etcd is given them.
    members: String,
    /// The folder of the certificates that it and its clients have.
    certs: Option<PathBuf>,
    /// The machine that it is on, if it has one.
    machine: Option<(Arc<Machines>, u8)>,
    child: Option<Child>,
}

/// Whether there is one to start; if not, that is counted.
pub fn is_installed() -> bool {
    let is = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !is {
        skipped(1, "no etcd here: install etcd-server");
    }
    is
}

/// A CA, and a certificate of it for an etcd at this address and for its clients.
fn certificates(folder: &Path, host: IpAddr) {
    std::fs::create_dir_all(folder).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a folder");
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.pem", &ca.self_signed(&ca_key).expect("it signs").pem());
    write("ca.key", &ca_key.serialize_pem());
    certify(folder, host, &Issuer::new(ca, ca_key));
}

/// A certificate of the CA in this folder, in the place of the one before.
fn certify(folder: &Path, host: IpAddr, issuer: &Issuer<KeyPair>) {
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join("new"), text).expect("a folder");
        std::fs::rename(folder.join("new"), folder.join(name)).expect("a folder");
    };
    let mut of = CertificateParams::new(Vec::new()).expect("no names");
    of.subject_alt_names = vec![SanType::IpAddress(host)];
    // Each expires on another day than the one before.
    static YEAR: AtomicU16 = AtomicU16::new(2100);
    of.not_after = rcgen::date_time_ymd(i32::from(YEAR.fetch_add(1, Ordering::Relaxed)), 1, 1);
    of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    write("cert.pem", &of.signed_by(&key, issuer).expect("it signs").pem());
    write("key.pem", &key.serialize_pem());
}

impl Etcd {
    /// Members with an address for clients each, and two ports behind that: for the other members, and to be asked
    /// whether it is well.
    fn prepare(folder: &Path, all: &[(String, SocketAddr)]) -> Vec<Etcd> {
        let member = |(name, client): &(String, SocketAddr)| format!("{name}=http://{}", beside(*client, 1));
        let members = all.iter().map(member).collect::<Vec<_>>().join(",");
        let etcd = |(name, client): &(String, SocketAddr)| Etcd {
            name: name.clone(),
            folder: folder.join(format!("etcd-{name}")),
            client: *client,
            members: members.clone(),
            certs: None,
            machine: None,
            child: None,
        };
        all.iter().map(etcd).collect()
    }

    fn on_loopback(folder: &Path, names: &[&str]) -> Vec<Etcd> {
        static PORT: AtomicU16 = AtomicU16::new(30_000);
        let at = || SocketAddr::from((own_address(), PORT.fetch_add(3, Ordering::Relaxed)));
        let all: Vec<_> = names.iter().map(|&name| (name.to_owned(), at())).collect();
        Etcd::prepare(folder, &all)
    }

    fn begun(mut all: Vec<Etcd>) -> Vec<Etcd> {
        all.iter_mut().for_each(Etcd::spawn);
        all.iter().for_each(Etcd::until_healthy);
        all
    }

    /// One with a member on each of these machines.
    pub fn on(machines: &Arc<Machines>, folder: &Path, on: &[u8]) -> Vec<Etcd> {
        let place = |&machine: &u8| (format!("on{machine}"), SocketAddr::from((Machines::address(machine), 2379)));
        let mut all = Etcd::prepare(folder, &on.iter().map(place).collect::<Vec<_>>());
        all.iter_mut().zip(on).for_each(|(etcd, &machine)| etcd.machine = Some((Arc::clone(machines), machine)));
        Etcd::begun(all)
    }

    fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        match &self.machine {
            Some((machines, machine)) => machines.within(*machine, act),
            None => act(),
        }
    }

    /// One of one member.
    pub fn new(folder: &Path) -> Etcd {
        let mut etcd = Etcd::on_loopback(folder, &["only"]).pop().expect("one member of etcd");
        etcd.start();
        etcd
    }

    /// One of one member, which has a certificate, and asks its clients for one.
    pub fn secured(folder: &Path) -> Etcd {
        let mut etcd = Etcd::on_loopback(folder, &["only"]).pop().expect("one member of etcd");
        let certs = folder.join("etcd-certs");
        certificates(&certs, etcd.client.ip());
        etcd.certs = Some(certs);
        etcd.start();
        etcd
    }

    /// Gives it and its clients a new certificate of the same CA.
    pub fn renew(&self) {
        let certs = self.certs.as_deref().expect("it has certificates");
        let key = std::fs::read_to_string(certs.join("ca.key")).expect("a key");
        let mut ca = CertificateParams::new(Vec::new()).expect("no names");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        certify(certs, self.client.ip(), &Issuer::new(ca, KeyPair::from_pem(&key).expect("a key")));
    }

    /// One of three members.
    pub fn three(folder: &Path) -> Vec<Etcd> {
        Etcd::begun(Etcd::on_loopback(folder, &["one", "two", "three"]))
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.certs.is_some() { "https" } else { "http" }, self.client)
    }

    /// The argument by which `tidewater cluster keeper` reaches some members, and one that is down: its address leads
    /// nowhere.
    pub fn access(members: &[Etcd]) -> Vec<String> {
        let is_secure = members.iter().any(|etcd| etcd.certs.is_some());
        let nowhere = format!("{}://127.0.0.1:1", if is_secure { "https" } else { "http" });
        let urls: Vec<String> = std::iter::once(nowhere).chain(members.iter().map(Etcd::url)).collect();
        let mut access = vec!["--etcd".to_owned(), urls.join(",")];
        if let Some(certs) = members.iter().find_map(|etcd| etcd.certs.as_deref()) {
            for name in ["ca", "cert", "key"] {
                access.extend([format!("--etcd-{name}"), certs.join(format!("{name}.pem")).display().to_string()]);
            }
        }
        access
    }

    /// Environment variables by which programs reach it.
    pub fn variables(&self) -> Vec<(String, PathBuf)> {
        let of = |certs: &PathBuf| {
            ["ca", "cert", "key"]
                .map(|name| (format!("TIDEWATER_ETCD_{}", name.to_uppercase()), certs.join(format!("{name}.pem"))))
        };
        self.certs.iter().flat_map(of).collect()
    }

    /// A cluster of this etcd, as programs name it. One of its addresses leads nowhere.
    pub fn target(&self, cluster: &str) -> String {
        let nowhere = if self.certs.is_some() { "https://127.0.0.1:1" } else { "127.0.0.1:1" };
        format!("cluster:etcd={nowhere},{}/{cluster}", self.client)
    }

    pub fn start(&mut self) {
        self.spawn();
        self.until_healthy();
    }

    fn spawn(&mut self) {
        std::fs::create_dir_all(&self.folder).expect("a folder");
        let log = File::options().create(true).append(true).open(self.folder.join("log")).expect("a folder");
        let peer = format!("http://{}", beside(self.client, 1));
        let mut command = Command::new("etcd");
        command.args(["--name", &self.name, "--data-dir"]).arg(self.folder.join("data"));
        command.args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.members]);
        command.args(["--listen-metrics-urls", &format!("http://{}", beside(self.client, 2))]);
        if let Some(certs) = &self.certs {
            let file = |name: &str| certs.join(name).display().to_string();
            command.args(["--cert-file", &file("cert.pem"), "--key-file", &file("key.pem")]);
            command.args(["--client-cert-auth", "--trusted-ca-file", &file("ca.pem")]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.child = Some(self.within(|| command.spawn()).expect("it starts"));
    }

    fn until_healthy(&self) {
        let else_say = || format!("etcd does not begin: see {}", self.folder.display());
        wait::until(else_say, || self.within(|| is_healthy(beside(self.client, 2))));
    }

    /// Ends it (SIGKILL).
    pub fn kill(&mut self) {
        super::end(&mut self.child);
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.as_ref().expect("the process runs").id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the process can be signalled");
    }

    /// It loses all that it has, and begins anew.
    pub fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.join("data")).expect("the folder can be removed");
        self.start();
    }
}

fn is_healthy(at: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&at, Duration::from_secs(1)) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("\"true\"")
}

/// The same host, another port.
fn beside(at: SocketAddr, further: u16) -> SocketAddr {
    SocketAddr::new(at.ip(), at.port() + further)
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
