//! Who may ask. A web page that a user of this machine looks at may send requests here, by a name of its own that leads
//! to loopback: so the name in `Host` has to be one that leads here by itself, and an `Origin` has to be this page.

use axum::http::{HeaderMap, header};
use std::net::IpAddr;

/// Whether a request with these headers is answered; else why not. `names`: those that are good besides addresses and
/// localhost.
pub(crate) fn judge(headers: &HeaderMap, names: &[String]) -> Result<(), &'static str> {
    let text = |name| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or_default());
        if values.next().is_some() { Some("") } else { first }
    };
    let host = text(header::HOST).ok_or("a request needs a Host line")?;
    if !is_ours(host, names) {
        return Err(
            "use an IP address or localhost as host; --metrics-host NAME and --page-host NAME of `tidewater serve` \
             allow other names",
        );
    }
    match text(header::ORIGIN) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            Err("pages of other sites may not read this one")
        }
        _ => Ok(()),
    }
}

/// Whether a stream is asked for by this page, or by no page. What a page of another site embeds comes without
/// `Origin`, but browsers say where it is from. Other ports of this host count as another site: their servers may be
/// other users'.
pub(crate) fn is_of_this_page(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().all(|site| site == "same-origin" || site == "none")
}

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
    fn streams_are_for_this_page_and_for_programs() {
        let of = |sites: &[&str]| {
            let mut headers = HeaderMap::new();
            for site in sites {
                headers.append("sec-fetch-site", site.parse().unwrap());
            }
            is_of_this_page(&headers)
        };
        assert!(of(&[]) && of(&["same-origin"]) && of(&["none"]));
        assert!(!of(&["cross-site"]) && !of(&["same-site"]) && !of(&[""]) && !of(&["none", "cross-site"]));
    }

    fn judged(lines: &[(header::HeaderName, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value.parse().unwrap());
        }
        judge(&headers, &["page.example".to_owned()]).is_ok()
    }

    #[test]
    fn only_names_that_lead_here_and_only_this_page() {
        for host in ["127.0.0.1:8080", "[::1]:8080", "localhost", "LOCALHOST:1", "page.example:8080"] {
            assert!(judged(&[(header::HOST, host)]), "{host}");
            let own = format!("http://{host}");
            assert!(judged(&[(header::HOST, host), (header::ORIGIN, &own)]), "{host}");
            assert!(!judged(&[(header::HOST, host), (header::ORIGIN, "http://evil.example")]), "{host}");
            assert!(!judged(&[(header::HOST, host), (header::ORIGIN, "null")]), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:8080", "", ":80", "[::1"] {
            assert!(!judged(&[(header::HOST, host)]), "{host}");
        }
        assert!(!judged(&[]) && !judged(&[(header::HOST, "localhost"), (header::HOST, "localhost")]));
    }
}
