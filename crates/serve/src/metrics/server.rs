//! Connections that ask for metrics: many at once on one thread, so that those that say nothing keep no other waiting.

use super::PAUSE;
use super::request::{Verdict, head_end, judge};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Bytes of a request that are looked at.
const REQUEST_MAX: usize = 8 << 10;
/// A connection that takes longer, to ask and to take its answer, is closed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections at once: when one more comes, the one that has asked for nothing for longest is closed.
const CONNECTIONS_MAX: usize = 64;

/// A connection.
struct Visit {
    stream: TcpStream,
    since: Instant,
    request: Vec<u8>,
    /// The answer, and bytes of it that are gone.
    answer: Option<(Vec<u8>, usize)>,
    ended: bool,
}

/// Answers all that ask, for ever. `names`: those that requests may name besides addresses and localhost. `page` makes
/// the page; `None`: the device does not answer now.
pub fn serve(listener: &TcpListener, names: &[String], page: impl Fn() -> Option<String>) {
    let mut visits: Vec<Visit> = Vec::new();
    // A listener that blocks would only keep those waiting that are there.
    let _ = listener.set_nonblocking(true);
    loop {
        wait(listener, &visits);
        if accept(listener, &mut visits).is_err() {
            // Whatever it is, it passes.
            std::thread::sleep(PAUSE);
        }
        // Those that ask at once get the same page.
        let mut made = None;
        for visit in &mut visits {
            visit.read();
            if visit.answer.is_none() && !visit.ended && visit.has_asked() {
                visit.answer = Some((answer(&visit.request, names, || made.get_or_insert_with(&page).clone()), 0));
            }
            if visit.answer.is_none() && visit.since.elapsed() >= PATIENCE {
                let late = respond("408 Request Timeout", "text/plain", "the request did not come in time\n", false);
                visit.answer = Some((late, 0));
            }
            visit.write();
            visit.ended |= visit.since.elapsed() >= PATIENCE;
        }
        visits.retain(|visit| !visit.ended);
    }
}

/// Until something can be done.
fn wait(listener: &TcpListener, visits: &[Visit]) {
    let mut fds = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    fds.extend(visits.iter().map(|visit| {
        let flags = if visit.answer.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        PollFd::new(visit.stream.as_fd(), flags)
    }));
    let first = visits.iter().map(|visit| PATIENCE.saturating_sub(visit.since.elapsed())).min();
    // A millisecond more, so that it has passed.
    let time = first.map_or(PollTimeout::NONE, |time| PollTimeout::from(time.as_millis() as u16 + 1));
    // Interrupted or not, what can be done is done.
    let _ = poll(&mut fds, time);
}

/// Takes all connections that wait.
fn accept(listener: &TcpListener, visits: &mut Vec<Visit>) -> std::io::Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        if visits.len() >= CONNECTIONS_MAX {
            // Those in front came first.
            let place = visits.iter().position(|visit| visit.answer.is_none()).unwrap_or(0);
            visits.remove(place);
        }
        let mut visit = Visit { stream, since: Instant::now(), request: Vec::new(), answer: None, ended: false };
        visit.read();
        visits.push(visit);
    }
}

impl Visit {
    /// Whether all of the request that is looked at has come.
    fn has_asked(&self) -> bool {
        self.request.len() >= REQUEST_MAX || head_end(&self.request).is_some()
    }

    fn read(&mut self) {
        let mut piece = [0; 1024];
        while self.answer.is_none() && !self.ended && !self.has_asked() {
            match self.stream.read(&mut piece) {
                // What has come is all that comes: it is answered as far as it goes.
                Ok(0) if self.request.is_empty() => self.ended = true,
                Ok(0) => self.request.resize(REQUEST_MAX, b'\n'),
                Ok(len) => self.request.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.ended = true,
            }
        }
    }

    fn write(&mut self) {
        while let Some((answer, sent)) = self.answer.as_mut().filter(|_| !self.ended) {
            match self.stream.write(&answer[*sent..]) {
                Ok(len) => *sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.ended = true,
            }
            self.ended |= *sent == answer.len();
        }
    }
}

fn answer(request: &[u8], names: &[String], page: impl FnOnce() -> Option<String>) -> Vec<u8> {
    match judge(&request[..head_end(request).unwrap_or(request.len())], names) {
        Verdict::Page { head_only } => match page() {
            Some(page) => respond("200 OK", "text/plain; version=0.0.4", &page, head_only),
            None => respond("503 Service Unavailable", "text/plain", "the device did not answer in time\n", head_only),
        },
        Verdict::Refused(status, words) => respond(status, "text/plain", words, request.starts_with(b"HEAD ")),
    }
}

fn respond(status: &str, kind: &str, body: &str, head_only: bool) -> Vec<u8> {
    let len = body.len();
    let body = if head_only { "" } else { body };
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::{Page, listen};
    use super::*;
    use std::net::SocketAddr;

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
        std::thread::spawn(move || serve(&listener, &[], || Some("here".to_owned())));
        address
    }

    #[test]
    fn metrics_are_read_and_nothing_else() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            serve(&listener, &[], || {
                let mut page = Page::default();
                page.add("counter", "tidewater_x_total", "Xs.", 3.0);
                page.family("gauge", "tidewater_y", "Ys.");
                page.sample("tidewater_y", &[("of", "a\"b"), ("in", "c")], 0.5);
                Some(page.into_text())
            });
        });
        let page = ask(address, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
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
            serve(&listener, &[], || {
                let is_first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
                (!is_first).then(|| "here".to_owned())
            });
        });
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503"));
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
        let mut idle: Vec<_> = (0..2 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        let (mut longest, begin) = (Duration::ZERO, Instant::now());
        for stale in idle.iter_mut().take(20) {
            let each = Instant::now();
            assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").ends_with("here"));
            longest = longest.max(each.elapsed());
            *stale = TcpStream::connect(address).unwrap();
        }
        println!("the longest of 20 requests beside {} idle connections took {longest:?}", idle.len());
        assert!(begin.elapsed() < 20 * PATIENCE, "{:?}", begin.elapsed());
    }

    #[test]
    fn names_of_others_are_refused_and_slow_requests_are_answered() {
        let address = started();
        let evil = ask(address, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert!(evil.starts_with("HTTP/1.1 421") && evil.contains("--metrics-host NAME"), "{evil}");
        // The other side waits for its answer, and does not close.
        for (request, status) in [
            ("GET /metrics HTTP/1.1\nHost: localhost\n\n", "200"),
            ("GET /metrics HTTP/1.0\n\n", "200"),
            ("GET /metrics\r\n", "505"),
            ("GET /metrics HTTP/1.0\r\n", "408"),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {answer}");
        }
    }
}
