//! Prometheus metrics over HTTP: loopback, read-only, one answer for each connection.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes of a request that are looked at.
const REQUEST_MAX: usize = 8 << 10;
/// Whoever takes longer to ask, or to listen, is left alone.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long nobody is let in after the system had no descriptor, or no memory, for a connection.
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

/// Answers whoever asks, for ever. `page` makes the page; `None`: the device does not answer now.
pub fn serve(listener: &TcpListener, page: impl Fn() -> Option<String>) {
    for stream in listener.incoming() {
        match stream {
            // Whoever leaves early misses something, and nobody else.
            Ok(stream) => drop(answer(&stream, &page)),
            // Whatever it is, it passes.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(mut stream: &TcpStream, page: &impl Fn() -> Option<String>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = request(stream)?;
    let mut words = request.split(' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/metrics")) => match page() {
            Some(page) => ("200 OK", "text/plain; version=0.0.4", page),
            None => ("503 Service Unavailable", "text/plain", "the device did not answer in time\n".to_owned()),
        },
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "metrics are only read\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if request.starts_with("HEAD ") { "" } else { &body };
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()))
}

/// The first line of a request, after its head was read to the end or to its limit.
fn request(mut stream: &TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    let until = Instant::now() + PATIENCE;
    while head.len() < REQUEST_MAX && !head.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut piece)? {
            0 => break,
            n => head.extend_from_slice(&piece[..n]),
        }
    }
    let line = head.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_are_read_and_nothing_else() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            serve(&listener, || {
                let mut page = Page::default();
                page.add("counter", "tidewater_x_total", "Xs.", 3.0);
                page.family("gauge", "tidewater_y", "Ys.");
                page.sample("tidewater_y", &[("of", "a\"b"), ("in", "c")], 0.5);
                Some(page.into_text())
            });
        });
        let page = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        let body = page.split("\r\n\r\n").nth(1).unwrap();
        assert_eq!(
            body,
            "# HELP tidewater_x_total Xs.\n# TYPE tidewater_x_total counter\ntidewater_x_total 3\n\
             # HELP tidewater_y Ys.\n# TYPE tidewater_y gauge\ntidewater_y{of=\"a\\\"b\",in=\"c\"} 0.5\n"
        );
        assert!(ask(address, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(address, "\0\u{1}").starts_with("HTTP/1.1 405"));
        assert!(listen("0.0.0.0:0".parse().unwrap()).is_err());
    }

    #[test]
    fn a_device_that_does_not_answer_is_asked_again_the_next_time() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = std::sync::atomic::AtomicU32::new(0);
        std::thread::spawn(move || {
            serve(&listener, || {
                let is_first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
                (!is_first).then(|| "here".to_owned())
            });
        });
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503"));
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("here"));
    }

    /// Whoever sends a byte now and then, however long that goes on, keeps nobody waiting.
    #[test]
    fn a_request_that_never_ends_keeps_nobody_from_asking() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, || Some("here".to_owned())));
        let mut slow = TcpStream::connect(address).unwrap();
        let begin = std::time::Instant::now();
        let sender = std::thread::spawn(move || {
            while begin.elapsed() < 30 * PATIENCE && slow.write_all(b"x").is_ok() {
                std::thread::sleep(PATIENCE / 20);
            }
        });
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("here"));
        assert!(begin.elapsed() < 15 * PATIENCE, "{:?}", begin.elapsed());
        sender.join().unwrap();
    }
}
