//! Short answers for programs, at paths of their own: metrics, and whether something is well.

use crate::host::judge;
use crate::pages::accept;
use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// Answers from now on, on a thread of its own. `answer` has a status of HTTP and a text for a path; `None`: nothing is
/// there. It is called for one request at a time. On loopback a request has to name an address, localhost or one of
/// `names` in `Host`, or to be one of HTTP/1.0 without it, as health checks are; else any name leads here. Each
/// connection gets one answer.
///
/// # Errors
/// When the system has no room for a thread.
pub fn serve_answers(
    listener: TcpListener,
    names: Vec<String>,
    answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
) -> io::Result<()> {
    let is_local = listener.local_addr()?.ip().is_loopback();
    let shared = Arc::new((names, answer, Mutex::new(())));
    let router = Router::new().fallback(move |request: Request| {
        let shared = Arc::clone(&shared);
        async move {
            // An answer may take its time: connections are served meanwhile.
            let _turn = shared.2.lock().await;
            let (of, head) = (Arc::clone(&shared), request.into_parts().0);
            let made = spawn_blocking(move || respond(&of.1, is_local.then_some(&of.0), &head)).await;
            made.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
    });
    accept(listener, "answers", true, router)
}

/// `names`: those that are good in `Host`; `None`: any name is.
fn respond(answer: &dyn Fn(&str) -> Option<(u16, String)>, names: Option<&Vec<String>>, request: &Parts) -> Response {
    let is_bare = request.version == Version::HTTP_10 && !request.headers.contains_key(header::HOST);
    let verdict = match request.method {
        // OPTIONS is what some load balancers ask with.
        Method::GET | Method::HEAD | Method::OPTIONS => match names.filter(|_| !is_bare) {
            Some(names) => {
                judge(&request.headers, names).map_err(|why| (StatusCode::MISDIRECTED_REQUEST, format!("{why}\n")))
            }
            None => Ok(()),
        },
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "this is read-only: use GET\n".to_owned())),
    };
    // As a proxy is asked: for another server.
    let path = request.uri.authority().map_or(request.uri.path(), |_| "");
    let (status, text) = match verdict.map(|()| answer(path)) {
        Ok(Some((status, text))) => (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text),
        Ok(None) => (StatusCode::NOT_FOUND, "nothing is here\n".to_owned()),
        Err(refused) => refused,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONNECTION, "close"),
    ];
    (status, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    #[test]
    fn programs_get_a_status_and_a_text_and_pages_of_other_sites_do_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve_answers(listener, Vec::new(), |path| (path == "/primary").then(|| (503, "it follows\n".to_owned())))
            .unwrap();
        for (request, status) in [
            ("GET /primary HTTP/1.0\r\n\r\n", "503"),
            ("HEAD /primary HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "503"),
            ("OPTIONS /primary HTTP/1.0\r\n\r\n", "503"),
            ("GET / HTTP/1.0\r\n\r\n", "404"),
            ("POST /primary HTTP/1.0\r\n\r\n", "405"),
            ("GET /primary HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "421"),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(status), "{request}: {answer}");
            assert_eq!(answer.ends_with("it follows\n"), status == "503" && !request.starts_with("HEAD"), "{answer}");
        }
    }
}
