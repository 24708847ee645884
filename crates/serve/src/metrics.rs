//! Prometheus metrics over HTTP: loopback, read-only, one answer for each connection.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};

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

/// Answers all that ask, for ever, on a thread of its own. `names`: those that requests may name besides addresses and
/// localhost. `page` makes the page; `None`: the device does not answer now.
///
/// # Errors
/// When the system has no room for a thread.
pub fn serve(
    listener: TcpListener,
    names: Vec<String>,
    page: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> io::Result<()> {
    tidewater_live::serve_answers(listener, names, move |path| {
        let answer = || match page() {
            Some(page) => (200, page),
            None => (503, "the device did not answer in time\n".into()),
        };
        (path == "/metrics").then(answer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    /// As long as a connection may take, and more.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// More connections than are kept.
    const CONNECTIONS: usize = 128;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A server of pages that say "here".
    fn started() -> SocketAddr {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, vec!["metrics.example".into()], || Some("here".to_owned())).unwrap();
        address
    }

    #[test]
    fn metrics_are_read_and_nothing_else() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, Vec::new(), || {
            let mut page = Page::default();
            page.add("counter", "tidewater_x_total", "Xs.", 3.0);
            page.family("gauge", "tidewater_y", "Ys.");
            page.sample("tidewater_y", &[("of", "a\"b"), ("in", "c")], 0.5);
            Some(page.into_text())
        })
        .unwrap();
        let page = ask(address, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        let body = page.split("\r\n\r\n").nth(1).unwrap();
        assert_eq!(
            body,
            "# HELP tidewater_x_total Xs.\n# TYPE tidewater_x_total counter\ntidewater_x_total 3\n\
             # HELP tidewater_y Ys.\n# TYPE tidewater_y gauge\ntidewater_y{of=\"a\\\"b\",in=\"c\"} 0.5\n"
        );
        assert!(ask(address, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
        assert!(ask(address, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 405"));
        assert!(ask(address, "\0\u{1}").starts_with("HTTP/1.1 400"));
        assert!(listen("0.0.0.0:0".parse().unwrap()).is_err());
    }

    #[test]
    fn a_device_that_does_not_answer_is_asked_again_the_next_time() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = std::sync::atomic::AtomicU32::new(0);
        serve(listener, Vec::new(), move || {
            let is_first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            (!is_first).then(|| "here".to_owned())
        })
        .unwrap();
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 503"));
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("here"));
    }

    /// A byte now and then, however long that goes on, keeps no other request waiting.
    #[test]
    fn a_request_that_never_ends_keeps_no_other_waiting() {
        let address = started();
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

    /// Connections that ask for nothing, more than are kept, each opened again when it is closed. One after the other,
    /// each would keep a request waiting for two seconds.
    #[test]
    fn idle_connections_keep_no_request_waiting() {
        let address = started();
        let mut idle: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let (mut longest, begin) = (Duration::ZERO, Instant::now());
        for stale in idle.iter_mut().take(20) {
            let each = Instant::now();
            let answer = ask(address, "GET /metrics HTTP/1.0\r\n\r\n");
            assert!(answer.ends_with("here"), "{answer:?}");
            longest = longest.max(each.elapsed());
            *stale = TcpStream::connect(address).unwrap();
        }
        println!("the longest of 20 requests beside {} idle connections took {longest:?}", idle.len());
        assert!(begin.elapsed() < 20 * PATIENCE, "{:?}", begin.elapsed());
    }

    #[test]
    fn names_of_others_are_refused_and_slow_requests_end() {
        let address = started();
        // The other side waits for its answer, and does not close.
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics HTTP/1.1\r\nHost: metrics.example:80\r\n\r\n", "HTTP/1.1 200"),
            ("GET /metrics HTTP/1.1\nHost: localhost\n\n", "HTTP/1.1 200"),
            ("GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421"),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"),
            ("GET /metrics HTTP/1.0\n\n", "HTTP/1.0 200"),
            ("GET /metrics\r\n", "HTTP/1.1 400"),
            ("GET /metrics HTTP/1.0\r\n", ""),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(status) && answer.is_empty() == status.is_empty(), "{request:?}: {answer}");
            assert_eq!(
                answer.contains("--metrics-host NAME"),
                request.contains("Host: evil.example\r\n\r\n"),
                "{answer}"
            );
        }
        // A head without an end is refused, and not kept.
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nx: ").unwrap();
        let sent = (0..1 << 10).take_while(|_| stream.write_all(&[b'y'; 1 << 10]).is_ok()).count();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(sent < 1 << 10 || answer.starts_with(b"HTTP/1.1 431"), "{sent}: {}", answer.escape_ascii());
    }
}
