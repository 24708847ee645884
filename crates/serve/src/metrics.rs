//! Prometheus metrics over HTTP: loopback, read-only, one answer for each connection.

mod request;
mod server;

pub use server::serve;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// How long no connection is taken after the system had no descriptor, or no memory, for a connection.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// A page of metrics in Prometheus' text format, version 0.0.4.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Adds a metric of one value.
    pub fn add(&mut self, kind: &str, name: &str, help: &str, value: f64) {
        self.family(kind, name, help);
        self.sample(name, &[], value);
    }

    /// Begins a metric of several samples.
    pub fn family(&mut self, kind: &str, name: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample; values of labels are escaped.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0 += name;
        for (i, (label, value)) in labels.iter().enumerate() {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{escaped}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Listens where metrics are asked for.
///
/// # Errors
/// When the address is not one of this machine's loopback, or is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "metrics are served on loopback only; give an address such as 127.0.0.1:9464",
        ));
    }
    TcpListener::bind(address)
}
