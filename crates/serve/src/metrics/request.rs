//! The head of a request (RFC 9112), and what it is answered with.
//!
//! A web page that a user of this machine looks at may send requests here, by a name of its own that leads to loopback:
//! so the name in `Host` has to be one that leads here by itself.

use std::net::IpAddr;

/// What is said to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The page; without its body for HEAD.
    Page {
        /// The method is HEAD.
        head_only: bool,
    },
    /// Status and words.
    Refused(&'static str, &'static str),
}

/// Where the head of a request ends in these bytes: behind an empty line. Lines end with CR LF, or with LF alone
/// (section 2.2). A request line without a version is a whole head (HTTP/0.9).
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            return None;
        }
        at += line.len();
        let line = line.trim_ascii_end();
        let is_first = number == 0;
        if line.is_empty() && !is_first || is_first && !line.is_empty() && line.split(|&byte| byte == b' ').count() < 3
        {
            return Some(at);
        }
    }
    None
}

/// What a head is answered with. `names`: those that are good in `Host` besides addresses and localhost.
pub(super) fn judge(head: &[u8], names: &[String]) -> Verdict {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or_default(), words.next());
    let head_only = match method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Verdict::Refused("405 Method Not Allowed", "metrics are read-only: use GET\n"),
    };
    let hosts: Vec<&str> = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim())
        .collect();
    match (version, hosts.as_slice()) {
        (Some("HTTP/1.0"), []) => {}
        (Some("HTTP/1.0" | "HTTP/1.1"), [host]) if is_ours(host, names) => {}
        (Some("HTTP/1.0" | "HTTP/1.1"), [_]) => {
            return Verdict::Refused(
                "421 Misdirected Request",
                "use an IP address or localhost as host; `tidewater serve --metrics-host NAME` allows another name\n",
            );
        }
        (Some("HTTP/1.0" | "HTTP/1.1"), _) => {
            return Verdict::Refused("400 Bad Request", "a request needs exactly one Host line\n");
        }
        _ => return Verdict::Refused("505 HTTP Version Not Supported", "use HTTP/1.1 or HTTP/1.0\n"),
    }
    match target {
        "/metrics" => Verdict::Page { head_only },
        _ => Verdict::Refused("404 Not Found", "the metrics are at /metrics\n"),
    }
}

/// Whether a value of `Host`, a port behind it or not, is an address, localhost, or one of these names.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        },
    };
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    name.parse::<IpAddr>().is_ok() || is("localhost") || names.iter().any(|known| is(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line_however_lines_end() {
        for head in [
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /metrics HTTP/1.1\nHost: localhost\n\n",
            "GET /metrics HTTP/1.1\nHost: localhost\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\n",
            "GET /metrics HTTP/1.0\n\n",
            "GET /metrics HTTP/1.0\r\n\r\n",
            "GET /metrics\r\n",
            "GET /metrics\n",
        ] {
            assert_eq!(head_end(head.as_bytes()), Some(head.len()), "{head:?}");
            assert_eq!(head_end(format!("{head}more").as_bytes()), Some(head.len()), "{head:?}");
            for cut in 0..head.len() {
                assert_eq!(head_end(&head.as_bytes()[..cut]), None, "{:?}", &head[..cut]);
            }
        }
    }

    #[test]
    fn names_that_lead_here_by_themselves_are_good() {
        let names = ["metrics.example".to_owned()];
        let judged = |host: &str| judge(format!("GET /metrics HTTP/1.1\r\nhOsT:{host}\r\n\r\n").as_bytes(), &names);
        for host in [
            "127.0.0.1",
            " 127.0.0.1:9464 ",
            "[::1]",
            "[::1]:9464",
            "localhost",
            "LocalHost:1",
            "metrics.example",
            "METRICS.example:80",
        ] {
            assert_eq!(judged(host), Verdict::Page { head_only: false }, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "",
            ":80",
            "[::1",
            "localhost.evil.example",
            "a b",
        ] {
            assert!(matches!(judged(host), Verdict::Refused("421 Misdirected Request", _)), "{host}");
        }
        let two = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        let none = b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n";
        for head in [&two[..], none] {
            assert!(matches!(judge(head, &names), Verdict::Refused("400 Bad Request", _)));
        }
        // A browser speaks HTTP/1.1; what speaks HTTP/1.0 may leave the name out.
        assert_eq!(judge(b"HEAD /metrics HTTP/1.0\r\n\r\n", &names), Verdict::Page { head_only: true });
        for (head, status) in [
            ("GET / HTTP/1.0\r\n\r\n", "404"),
            ("GET http://evil.example/metrics HTTP/1.0\r\n\r\n", "404"),
            ("GET /metrics HTTP/2.0\r\nHost: localhost\r\n\r\n", "505"),
            ("GET /metrics\r\n", "505"),
            ("POST /metrics HTTP/1.0\r\n\r\n", "405"),
            ("\0\u{1}", "405"),
            ("", "405"),
        ] {
            let Verdict::Refused(said, _) = judge(head.as_bytes(), &names) else { panic!("{head:?}") };
            assert!(said.starts_with(status), "{head:?}: {said}");
        }
    }
}
