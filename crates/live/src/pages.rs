//! The server of a page, on a thread of its own.

use crate::host::{is_of_this_page, judge};
use crate::patient::Patient;
use crate::samples::{EVERY, Sample, Samples, Source};
use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{Stream, StreamExt as _, iter, unfold};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tower::ServiceExt as _;

/// Bytes of the head of a request, at most.
const HEAD_MAX: usize = 64 << 10;
/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// A request that takes longer to come, or an answer of which nothing is taken for longer, ends its connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long viewers are waited for at the end.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// How long no connection is taken after the system had no room for one.
const PAUSE: Duration = Duration::from_millis(100);

/// A file of a page: path, type, text.
pub(crate) type File = (&'static str, &'static str, &'static str);

/// Files common to all pages.
pub(crate) const COMMON: [File; 2] = [
    ("/live.css", "text/css; charset=utf-8", include_str!("../assets/live.css")),
    ("/common.js", "text/javascript; charset=utf-8", include_str!("../assets/common.js")),
];

/// Nothing from elsewhere, and in no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page.
pub(crate) struct Pages {
    /// Its files.
    pub(crate) files: Vec<File>,
    /// The first message to each viewer.
    pub(crate) about: String,
    /// Names that requests may use besides addresses and localhost.
    pub(crate) names: Vec<String>,
    /// Messages that are kept for viewers that come later.
    pub(crate) kept: usize,
}

/// A connection.
#[derive(Default)]
struct Guest {
    /// It is to end.
    closed: Arc<Notify>,
    /// It is a viewer.
    looks: AtomicBool,
}

struct Site {
    about: String,
    names: Vec<String>,
    samples: Arc<Samples>,
}

/// A page that is served: until the process ends.
#[derive(Clone)]
pub struct Shown(Arc<Samples>);

impl Shown {
    /// Lets viewers see what is there now, before the process ends: as long as that takes, 5 s at most; no time without
    /// a viewer.
    pub fn finish(&self) {
        if self.0.viewers() > 0 {
            self.0.wait_until_taken(FINISH_MAX);
            // What was taken goes out meanwhile.
            std::thread::sleep(EVERY);
        }
    }
}

/// Serves a page from now on: `next` gives its messages.
///
/// # Errors
/// When the system has no room for two threads.
pub(crate) fn serve_pages(listener: TcpListener, pages: Pages, next: Source) -> io::Result<Shown> {
    let Pages { files, about, names, kept } = pages;
    let samples = Arc::new(Samples::new(kept));
    let site = Site { about, names, samples: Arc::clone(&samples) };
    accept(listener, "page", false, router(files, site))?;
    let shown = Shown(Arc::clone(&samples));
    std::thread::Builder::new().name("moments".into()).spawn(move || samples.run(next))?;
    Ok(shown)
}

fn router(files: Vec<File>, site: Site) -> Router {
    let site = Arc::new(site);
    let mut router = Router::new().route("/events", get(events));
    for (path, kind, text) in files {
        router = router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }));
    }
    router.layer(from_fn_with_state(Arc::clone(&site), guarded)).with_state(site)
}

/// Takes connections from now on, on a thread of its own. `answers_half_closed`: a client that has sent all that it
/// sends, and closed its side, gets its answer; else such a connection ends, as that of a viewer who left.
///
/// # Errors
/// When the system has no room for it.
pub(crate) fn accept(listener: TcpListener, name: &str, answers_half_closed: bool, router: Router) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let take = move || runtime.block_on(take(listener, answers_half_closed, router));
    std::thread::Builder::new().name(name.into()).spawn(take).map(drop)
}

async fn take(listener: TcpListener, answers_half_closed: bool, router: Router) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut guests = VecDeque::<Weak<Guest>>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        guests.retain(|guest| guest.strong_count() > 0);
        if guests.len() >= CONNECTIONS_MAX {
            // The oldest that is no viewer: of these there are fewer than connections.
            let looks = |guest: &Weak<Guest>| guest.upgrade().is_some_and(|guest| guest.looks.load(Ordering::Relaxed));
            let oldest = guests.iter().position(|guest| !looks(guest)).unwrap_or(0);
            if let Some(guest) = guests.remove(oldest).and_then(|guest| guest.upgrade()) {
                guest.closed.notify_one();
            }
        }
        let guest = Arc::new(Guest::default());
        guests.push_back(Arc::downgrade(&guest));
        let router = router.clone();
        tokio::spawn(async move {
            let closed = Arc::clone(&guest.closed);
            let service = service_fn(move |mut request: hyper::Request<Incoming>| {
                request.extensions_mut().insert(Arc::clone(&guest));
                router.clone().oneshot(request)
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(HEAD_MAX)
                .half_close(answers_half_closed)
                .serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), service);
            // However it ends, the reason is of no use.
            tokio::select! {
                _ = connection => {}
                () = closed.notified() => {}
            }
        });
    }
}

/// Who may not ask is refused, and what is answered stays here.
async fn guarded(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let verdict = match *request.method() {
        Method::GET | Method::HEAD => {
            judge(request.headers(), &site.names).map_err(|why| (StatusCode::MISDIRECTED_REQUEST, why))
        }
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "the page is read-only: use GET")),
    };
    let mut response = match verdict {
        Ok(()) => next.run(request).await,
        Err((status, why)) => (status, format!("{why}\n")).into_response(),
    };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Streams the earlier samples, and each new one as it comes.
async fn events(
    State(site): State<Arc<Site>>,
    Extension(guest): Extension<Arc<Guest>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, (StatusCode, &'static str)> {
    if !is_of_this_page(&headers) {
        return Err((StatusCode::FORBIDDEN, "pages of other sites may not watch this one\n"));
    }
    // A browser that tries again by itself sends the last it has seen, and the page's own new stream names it.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let after = uri.query().and_then(|query| query.strip_prefix("after="));
    let seen = last.or(after).and_then(|id| id.parse().ok());
    let (missed, coming) = site.samples.join(seen, Arc::clone(&guest.closed));
    guest.looks.store(true, Ordering::Relaxed);
    let about = Event::default().event("about").data(&site.about);
    let coming = unfold(coming, |mut coming| async move { coming.recv().await.map(|sample| (sample, coming)) });
    let event = |sample: Sample| Event::default().id(sample.0.to_string()).data(&sample.1);
    let all = iter([about]).chain(iter(missed).chain(coming).map(event)).map(Ok);
    Ok(Sse::new(all).keep_alive(KeepAlive::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::VIEWERS_MAX;
    use crate::{About, Kind, listen, moments};
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;
    use tidewater_gauges::Moment;

    /// How long anything may take that comes about by itself.
    const FOREVER: Duration = Duration::from_secs(600);

    /// A page of something that has read once more whenever it is asked, with so many bytes of faults.
    fn started(bytes: usize) -> (SocketAddr, Arc<AtomicU64>) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let about = About { kind: Kind::Device, title: "<b>&".into(), promise: "none".into() };
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let take = move || {
            let reads = count.fetch_add(1, Ordering::Relaxed);
            let faults = vec!["x".repeat(bytes)];
            Some(Moment { commands: [reads, 0, 0, 0], time_s: reads as f64, faults, ..Moment::default() })
        };
        moments::serve(listener, Vec::new(), &about, take).unwrap();
        (address, asked)
    }

    fn ask(address: SocketAddr, line: &str, headers: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(FOREVER)).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n").unwrap();
        BufReader::new(stream)
    }

    fn whole(mut reader: BufReader<TcpStream>) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    /// Numbers and texts of so many moments.
    fn moments(reader: BufReader<TcpStream>, count: usize) -> Vec<(u64, serde_json::Value)> {
        let mut lines =
            reader.lines().map(Result::unwrap).filter(|line| line.starts_with("id:") || line.starts_with("data:"));
        let mut found = Vec::new();
        while found.len() < count {
            let line = lines.next().expect("another moment arrives");
            let Some(id) = line.strip_prefix("id:") else { continue };
            let data = lines.next().unwrap();
            let text = data.strip_prefix("data:").unwrap().trim();
            found.push((id.trim().parse().unwrap(), serde_json::from_str(text).unwrap()));
        }
        found
    }

    #[test]
    fn the_page_is_whole_and_lets_nothing_in_from_elsewhere() {
        let (address, _) = started(0);
        for (path, kind, text) in moments::FILES.into_iter().chain(COMMON) {
            let answer = whole(ask(address, &format!("GET {path}"), ""));
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(text), "{path}");
            assert!(answer.contains(kind) && answer.contains("default-src 'none'"), "{path}");
        }
        for (line, headers, status) in [
            ("GET /none", "", "404"),
            ("POST /", "", "405"),
            ("GET /events", "Origin: http://evil.example\r\n", "421"),
            // As an image in a page of another site asks.
            ("GET /events", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", "403"),
            ("GET /", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", "200"),
        ] {
            let answer = whole(ask(address, line, headers));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
        }
        let mut evil = TcpStream::connect(address).unwrap();
        evil.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").unwrap();
        assert!(whole(BufReader::new(evil)).starts_with("HTTP/1.1 421"));
        assert!(listen("0.0.0.0:0".parse().unwrap()).is_err());
    }

    #[test]
    fn moments_come_four_times_a_second_and_none_without_viewers() {
        let (address, asked) = started(0);
        std::thread::sleep(2 * crate::samples::EVERY);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        let begun = Instant::now();
        let found = moments(ask(address, "GET /events", ""), 6);
        assert!(begun.elapsed() > 5 * crate::samples::EVERY, "also between the first two");
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[1].1["dt"] == 1.0), "{found:?}");
        let last = found[3].0;
        let again = moments(ask(address, "GET /events", &format!("Last-Event-ID: {last}\r\n")), 2);
        assert_eq!(again[..2], found[4..6], "what came meanwhile is not lost");
        let again = moments(ask(address, &format!("GET /events?after={last}"), ""), 2);
        assert_eq!(again[..2], found[4..6], "nothing comes twice to a page that makes a new stream");
    }

    /// Streams that stand for ever kept all others out.
    #[test]
    fn the_oldest_stream_gives_way_to_a_new_one() {
        let (address, _) = started(0);
        let mut streams: VecDeque<_> = (0..VIEWERS_MAX + 8)
            .map(|_| {
                let mut lines = moments_of(ask(address, "GET /events", ""));
                lines.next().expect("each viewer gets a moment");
                lines
            })
            .collect();
        for mut lines in streams.drain(..8) {
            // What was sent before comes first; then the connection ends.
            while lines.next().is_some() {}
        }
        for lines in &mut streams {
            lines.next().expect("the other viewers get more moments");
        }
    }

    /// A viewer that takes nothing is dropped; who looks beside it goes on.
    #[test]
    fn a_viewer_that_stalls_is_dropped() {
        let (address, _) = started(1 << 20);
        let stalled = ask(address, "GET /events", "");
        let found = moments(ask(address, "GET /events", ""), VIEWERS_MAX);
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
        // Its channel and the system's buffers are full by now, or soon.
        let begun = Instant::now();
        let mut more = moments_of(ask(address, "GET /events", &format!("Last-Event-ID: {}\r\n", found[31].0)));
        while is_open(stalled.get_ref()) {
            assert!(begun.elapsed() < FOREVER, "it is dropped");
            more.next();
        }
        let mut rest = Vec::new();
        let read = stalled.into_inner().read_to_end(&mut rest);
        assert!(read.is_err() || rest.len() < 64 << 20, "{} bytes came", rest.len());
    }

    /// A connection that the page has closed resets at what comes to it.
    fn is_open(mut stream: &TcpStream) -> bool {
        match stream.write_all(b"G") {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn moments_of(reader: BufReader<TcpStream>) -> impl Iterator<Item = String> {
        reader.lines().map_while(Result::ok).filter(|line| line.starts_with("id:"))
    }

    /// Connections that ask and take no answer.
    #[test]
    fn connections_that_do_not_read_keep_no_request_waiting_and_are_closed() {
        let (address, _) = started(0);
        let _viewer = moments(ask(address, "GET /events", ""), 1);
        let line = format!("GET /uplot.js HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let asks: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nonblocking(true).unwrap();
                // As much as the system takes.
                let _ = stream.write_all(line.repeat(1_000).as_bytes());
                stream
            })
            .collect();
        for _ in 0..3 {
            assert!(whole(ask(address, "GET /", "")).starts_with("HTTP/1.1 200"));
        }
        let begun = Instant::now();
        while asks.iter().any(is_open) {
            assert!(begun.elapsed() < FOREVER, "they are closed");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Connections that say nothing are closed, and keep no other waiting.
    #[test]
    fn idle_connections_keep_no_request_waiting() {
        let (address, _) = started(0);
        let idle: Vec<_> = (0..CONNECTIONS_MAX - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(whole(ask(address, "GET /", "")).starts_with("HTTP/1.1 200"));
        let begun = Instant::now();
        for mut stream in idle {
            stream.set_read_timeout(Some(FOREVER)).unwrap();
            // It may get a reason.
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert!(begun.elapsed() < FOREVER);
    }
}
