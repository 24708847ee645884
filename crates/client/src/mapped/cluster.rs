//! A cluster that keepers watch: etcd says which device is primary (`cluster:etcd=HOST:PORT,HOST:PORT/NAME`).
//!
//! Keepers write keys below `/tidewater/NAME/`: `leader`, and `members/N` for each device. They are read by etcd's JSON
//! gateway (`/v3/kv/range`), so that a program needs no runtime for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tidewater_base::units::printable;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::LogError;
use crate::log_error::Tried;

/// Scheme of a cluster's target.
pub(super) const SCHEME: &str = "cluster:";
/// How long one member of etcd may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Bytes of an answer, at most.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Characters of a keeper's note that are repeated.
const NOTE_MAX: usize = 1_000;
/// Numbers of nodes, from 0 on.
const NODES: u8 = 16;
/// Keys below a cluster's prefix of which it matters whether they are there, and not their values.
const SIGNS: [&str; 3] = ["group", "paused", "identity"];
/// Users, by number with commas between them, whose devices a program takes that has no option for it.
pub(super) const ALLOW_OWNER: &str = "TIDEWATER_ALLOW_OWNER";
/// The socket of a log device, within the folder that its keeper gives as its address.
const SOCKET: &str = "vfio.sock";
/// The user of etcd and its password, and files of its CA, and of this program's certificate and key, where etcd asks
/// for them.
const VARIABLES: [&str; 5] = [
    "TIDEWATER_ETCD_USER",
    "TIDEWATER_ETCD_PASSWORD",
    "TIDEWATER_ETCD_CA",
    "TIDEWATER_ETCD_CERT",
    "TIDEWATER_ETCD_KEY",
];

/// A cluster, and how to ask etcd for it.
#[derive(Debug)]
pub(super) struct Cluster {
    name: String,
    etcd: Vec<String>,
    /// Files of the CA, and of this program's certificate and key, if connections are encrypted.
    files: Option<[Option<String>; 3]>,
    reach: Mutex<Reach>,
    user: Option<(String, String)>,
    /// Where its devices were when etcd answered last.
    known: Mutex<Vec<PathBuf>>,
}

/// How etcd is asked, and what was in the files of certificates by which it is.
#[derive(Clone, Debug)]
struct Reach {
    agent: Agent,
    content: Vec<Vec<u8>>,
}

impl Reach {
    /// # Errors
    /// Certificates that can't be used, in words.
    fn new(files: Option<&[Option<String>; 3]>) -> Result<Reach, String> {
        let mut config = Agent::config_builder().timeout_global(Some(ANSWER)).http_status_as_error(false).proxy(None);
        // etcd sends none, and one could lead anywhere.
        config = config.max_redirects(0);
        let mut content = Vec::new();
        if let Some([ca, cert, key]) = files {
            config = config.tls_config(tls(ca.as_deref(), cert.as_deref(), key.as_deref(), &mut content)?);
        }
        Ok(Reach { agent: Agent::new_with_config(config.build()), content })
    }
}

/// A device, as its keeper wrote it last.
#[derive(Clone, Debug, Default, PartialEq)]
struct Member {
    address: String,
    /// Counter and node of the epoch of its log.
    epoch: (u64, u8),
    note: String,
    leaderless_ms: Option<u64>,
}

/// State of a cluster in etcd.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    is_there: bool,
    has_group: bool,
    is_paused: bool,
    /// The node that leads, and the counter of its epoch: 0 while it is being promoted.
    leader: Option<(u8, u64)>,
    members: BTreeMap<u8, Member>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Cluster {
    /// Reads a target without its scheme: `etcd=HOST:PORT,HOST:PORT/NAME`. `None`: it is none.
    ///
    /// # Errors
    /// `NoCluster`: certificates that can't be used, in words.
    pub(super) fn parse(rest: &str) -> Result<Option<Cluster>, LogError> {
        let Some((hosts, name)) = rest.strip_prefix("etcd=").and_then(|rest| rest.rsplit_once('/')) else {
            return Ok(None);
        };
        let has_port = |host: &str| host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let is_secure = hosts.starts_with("https://");
        let etcd: Vec<String> = hosts
            .split(',')
            .map(|host| match host.contains("://") {
                true => host.to_owned(),
                false => format!("{}://{host}", if is_secure { "https" } else { "http" }),
            })
            .collect();
        let is_known = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if name.is_empty() || !hosts.split(',').all(has_port) || !etcd.iter().all(is_known) {
            return Ok(None);
        }
        let [user, password, ca, cert, key] = VARIABLES.map(variable);
        let failed = |why: String| LogError::NoCluster { name: name.to_owned(), why };
        let files = etcd.iter().any(|url| url.starts_with("https://")).then_some([ca, cert, key]);
        let reach = Mutex::new(Reach::new(files.as_ref()).map_err(failed)?);
        let user = user.map(|user| (user, password.unwrap_or_default()));
        Ok(Some(Cluster { name: name.to_owned(), etcd, files, reach, user, known: Mutex::default() }))
    }

    /// The device that is primary, by the first member of etcd that answers; all that were known, while none does.
    ///
    /// # Errors
    /// `Cluster`, `NoCluster`.
    pub(super) fn sockets(&self) -> Result<Vec<PathBuf>, LogError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match self.read() {
            Ok(state) => state,
            Err(why) if known.is_empty() => return Err(LogError::Cluster { name: self.name.clone(), why }),
            Err(_) => return Ok(known.clone()),
        };
        *known = state.members.values().filter_map(|member| socket_of(&member.address)).collect();
        let leader = state.leader.filter(|(_, counter)| *counter > 0);
        let named = leader.and_then(|(node, _)| Some((node, state.members.get(&node)?))).filter(|_| state.has_group);
        let Some((node, member)) = named else { return Err(self.no_primary(&state)) };
        let socket = socket_of(&member.address).ok_or_else(|| {
            let why = format!(
                "the keeper of node {node} gives {:?} as the place of its device, which is no absolute path: start it \
                 with --address FOLDER",
                member.address.chars().take(NOTE_MAX).collect::<String>()
            );
            LogError::Cluster { name: self.name.clone(), why }
        })?;
        Ok(vec![socket])
    }

    /// That the device that etcd names is not the one, or not here.
    pub(super) fn error(&self, tried: &[Tried]) -> LogError {
        let tried: Vec<String> = tried.iter().map(ToString::to_string).collect();
        let why = format!(
            "etcd names its primary, and this program can't append there: {}; run the program on the primary's \
             machine, or move the primary here (tidewater cluster keeper switchover --to N)",
            tried.join("; ")
        );
        LogError::Cluster { name: self.name.clone(), why }
    }

    /// That the device that etcd names is served by another user.
    pub(super) fn foreign(&self, path: &Path, user: u32) -> LogError {
        let why = format!(
            "etcd names {}, a device of user {user}, who could read what is appended to it: --allow-owner {user} if \
             that is meant, or {ALLOW_OWNER}={user} in the environment of a program that has no such option; else \
             correct etcd's key",
            path.display()
        );
        LogError::Cluster { name: self.name.clone(), why }
    }

    fn no_primary(&self, state: &State) -> LogError {
        let (name, why) = (self.name.clone(), self.why_no_primary(state));
        match state.is_there && state.has_group {
            true => LogError::Cluster { name, why },
            false => LogError::NoCluster { name, why },
        }
    }

    fn why_no_primary(&self, state: &State) -> String {
        let at = self.etcd.join(", ");
        if !state.is_there {
            let name = &self.name;
            return format!(
                "etcd at {at} has no key below /tidewater/{name}/: start tidewater cluster keeper run --cluster {name} \
                 beside each device, or correct the name"
            );
        }
        if !state.has_group {
            let name = &self.name;
            return format!(
                "it has no group yet: tidewater cluster keeper group --cluster {name} --members LIST --mode MODE \
                 makes one"
            );
        }
        if let Some((node, _)) = state.leader {
            return match state.members.contains_key(&node) {
                true => format!("node {node} is being promoted: try again in a moment"),
                false => format!("node {node} leads, and its keeper has not written yet where its device is"),
            };
        }
        let mut why = "it has no primary now".to_owned();
        if let Some((counter, node)) = state.members.values().map(|member| member.epoch).max().filter(|it| it.0 > 0) {
            why += &format!(": the last was node {node}, of epoch {counter}.{node}");
        }
        if let Some(ms) = state.members.values().filter_map(|member| member.leaderless_ms).max() {
            why += &format!(", and no keeper has led for {} s", ms.div_ceil(1000));
        }
        for (node, member) in &state.members {
            why += &format!("; node {node}: {}", member.note);
        }
        why += match (state.is_paused, state.members.is_empty()) {
            (true, _) => {
                "; the cluster is paused: tidewater cluster keeper resume, or cluster group promote on a member"
            }
            (_, true) => "; no keeper runs: start tidewater cluster keeper run beside each device",
            _ => "; see tidewater cluster keeper status",
        };
        why
    }

    /// Reads its state. Certificates that were renewed are used from now on, if etcd answers by them; those before are
    /// tried as well.
    fn read(&self) -> Result<State, String> {
        let mut reach = self.reach.lock().unwrap_or_else(PoisonError::into_inner);
        let mut renewed = self.files.as_ref().map(|files| Reach::new(Some(files)));
        renewed = renewed.filter(|new| new.as_ref().is_ok_and(|new| new.content != reach.content) || new.is_err());
        let why = match renewed {
            None => return self.read_by(&reach.agent),
            Some(Err(why)) => why,
            Some(Ok(new)) => match self.read_by(&new.agent) {
                Ok(state) => {
                    *reach = new;
                    return Ok(state);
                }
                Err(why) => why,
            },
        };
        self.read_by(&reach.agent).map_err(|_| why)
    }

    fn read_by(&self, agent: &Agent) -> Result<State, String> {
        let mut failed = Vec::new();
        for url in &self.etcd {
            match self.read_at(agent, url) {
                Ok(state) => return Ok(state),
                Err(why) => failed.push(format!("{url}: {why}")),
            }
        }
        Err(format!(
            "etcd does not say which device is primary ({}); a list of devices needs no etcd: \
             vfio-user:SOCKET,vfio-user:SOCKET",
            failed.join("; ")
        ))
    }

    fn read_at(&self, agent: &Agent, url: &str) -> Result<State, String> {
        let token = match &self.user {
            Some((name, password)) => {
                let answer =
                    post(agent, url, "auth/authenticate", &json!({ "name": name, "password": password }), None);
                Some(answer.map_err(Failed::words)?["token"].as_str().ok_or("etcd gives no token")?.to_owned())
            }
            None => None,
        };
        let prefix = format!("/tidewater/{}/", self.name);
        let ask = |keys: &[String]| post(agent, url, "kv/txn", &transaction(keys), token.as_deref());
        let keys = known_keys(&prefix);
        match ask(&keys) {
            // Some value is larger than any that keepers write: the others count without it.
            Err(Failed::TooLong) => {
                let mut state = State::default();
                for key in keys.chunks(1) {
                    match ask(key) {
                        Err(Failed::TooLong) if key[0].starts_with(&format!("{prefix}members/")) => {}
                        answer => state.take(&answer.map_err(Failed::words)?, &prefix)?,
                    }
                }
                Ok(state)
            }
            answer => {
                let mut state = State::default();
                state.take(&answer.map_err(Failed::words)?, &prefix)?;
                Ok(state)
            }
        }
    }
}

fn post(agent: &Agent, url: &str, what: &str, of: &Value, token: Option<&str>) -> Result<Value, Failed> {
    let failed = |error: ureq::Error| match error {
        ureq::Error::BodyExceedsLimit(_) => Failed::TooLong,
        other => Failed::Else(other.to_string()),
    };
    let mut request = agent.post(format!("{url}/v3/{what}")).content_type("application/json");
    if let Some(token) = token {
        request = request.header("Authorization", token);
    }
    let mut response = request.send(of.to_string()).map_err(failed)?;
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(failed)?;
    let status = response.status();
    if status.is_redirection() {
        return Err(Failed::Else(format!("it answers with {status}, and etcd leads to no other place")));
    }
    let answer: Value = serde_json::from_str(&body).map_err(|_| Failed::Else("the answer is not etcd's".into()))?;
    match answer["message"].as_str().or(answer["error"].as_str()) {
        Some(refused) => Err(Failed::Else(refused.to_owned())),
        None if !status.is_success() => Err(Failed::Else(format!("it answers with {status}"))),
        None => Ok(answer),
    }
}

/// Why a member of etcd gives no answer that can be used.
#[derive(Debug)]
enum Failed {
    /// It is longer than [`ANSWER_BYTES_MAX`].
    TooLong,
    /// Another reason, in words.
    Else(String),
}

impl Failed {
    fn words(self) -> String {
        match self {
            Failed::TooLong => format!("its answer is longer than {ANSWER_BYTES_MAX} bytes"),
            Failed::Else(why) => why,
        }
    }
}

/// All keys that are read. Others are of a later version, or a stranger's.
fn known_keys(prefix: &str) -> Vec<String> {
    let members = (0..NODES).map(|node| format!("{prefix}members/{node}"));
    SIGNS.iter().map(|name| format!("{prefix}{name}")).chain([format!("{prefix}leader")]).chain(members).collect()
}

/// The etcd transaction that reads these keys at one revision.
fn transaction(keys: &[String]) -> Value {
    let of = |key: &String| {
        let is_sign = SIGNS.iter().any(|name| key.ends_with(&format!("/{name}")));
        json!({ "request_range": { "key": BASE64.encode(key), "keys_only": is_sign } })
    };
    json!({ "success": keys.iter().map(of).collect::<Vec<_>>() })
}

/// Connections to an etcd that has a certificate; `content` gets what is in the files.
fn tls(
    ca: Option<&str>,
    cert: Option<&str>,
    key: Option<&str>,
    content: &mut Vec<Vec<u8>>,
) -> Result<TlsConfig, String> {
    let mut read = |path: &str| {
        let pem = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        content.push(pem.clone());
        Ok::<_, String>(pem)
    };
    let as_certificate = |path: &str, pem: &[u8]| {
        Certificate::from_pem(pem).map(|it| it.to_owned()).map_err(|error| format!("{path}: {error}"))
    };
    let ca = ca.ok_or("https needs the file of the CA of etcd's certificate in TIDEWATER_ETCD_CA")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = RootCerts::Specific(Arc::new(vec![as_certificate(ca, &read(ca)?)?]));
    let mut config = TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(roots);
    config = match (cert, key) {
        (None, None) => config,
        (Some(cert), Some(key)) => {
            let certificate = as_certificate(cert, &read(cert)?)?;
            let private = PrivateKey::from_pem(&read(key)?).map(|it| it.to_owned());
            let private = private.map_err(|error| format!("{key}: {error}"))?;
            config.client_cert(Some(ClientCert::new_with_certs(&[certificate], private)))
        }
        _ => return Err("TIDEWATER_ETCD_CERT and TIDEWATER_ETCD_KEY belong together".into()),
    };
    Ok(config.build())
}

/// The socket of a device, by the address that its keeper gives: a folder, unless a socket is there. `None`: it is no
/// place whatever folder a program runs in.
fn socket_of(address: &str) -> Option<PathBuf> {
    let socket = match address.strip_prefix("vfio-user:") {
        Some(socket) => socket.into(),
        None => Path::new(address).join(SOCKET),
    };
    (socket.is_absolute() && !address.contains('\0')).then_some(socket)
}

/// `counter.node`.
fn epoch_of(value: &Value) -> Option<(u64, u8)> {
    let (counter, node) = value.as_str()?.split_once('.')?;
    Some((counter.parse().ok()?, node.parse().ok()?))
}

impl State {
    /// Takes in the answer to a [`transaction`]. A member that makes no sense is none.
    ///
    /// # Errors
    /// In words: the leader makes no sense.
    fn take(&mut self, answer: &Value, prefix: &str) -> Result<(), String> {
        // Another member of etcd is asked then: what is no answer says of no key that it is not there.
        let responses = answer["responses"].as_array().ok_or("the answer is not etcd's")?;
        let ranges = responses.iter().filter_map(|it| it["response_range"]["kvs"].as_array());
        for pair in ranges.flatten() {
            let field = |name: &str| pair[name].as_str().and_then(|text| BASE64.decode(text).ok()).unwrap_or_default();
            let (key, value) = (String::from_utf8_lossy(&field("key")).into_owned(), field("value"));
            let Some(name) = key.strip_prefix(prefix) else { continue };
            self.is_there = true;
            let value = || -> Result<Value, String> {
                serde_json::from_slice(&value).map_err(|error| format!("etcd's key {key} makes no sense: {error}"))
            };
            match name.split_once('/') {
                None if name == "group" => self.has_group = true,
                None if name == "paused" => self.is_paused = true,
                None if name == "leader" => {
                    let value = value()?;
                    let node = value["node"].as_u64().and_then(|node| node.try_into().ok());
                    let node = node.ok_or_else(|| format!("etcd's key {key} names no node"))?;
                    self.leader = Some((node, epoch_of(&value["epoch"]).unwrap_or_default().0));
                }
                Some(("members", of_node)) => {
                    let Ok(value) = value() else { continue };
                    let node =
                        value["node"].as_u64().filter(|node| node.to_string() == of_node && *node < NODES.into());
                    let Some(node) = node else { continue };
                    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
                    let note = printable(&text("note").chars().take(NOTE_MAX).collect::<String>());
                    let address = printable(&text("address"));
                    let (epoch, leaderless_ms) = (epoch_of(&value["epoch"]), value["leaderless_ms"].as_u64());
                    let member = Member { address, epoch: epoch.unwrap_or_default(), note, leaderless_ms };
                    self.members.insert(node as u8, member);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::{Log, Options};

    fn cluster(rest: &str) -> Option<Cluster> {
        Cluster::parse(rest).expect("it needs no certificates")
    }

    fn answer(pairs: &[(&str, &str)]) -> Value {
        let of = |(key, value): &(&str, &str)| {
            let key = BASE64.encode(format!("/tidewater/shop/{key}"));
            json!({ "response_range": { "kvs": [{ "key": key, "value": BASE64.encode(value) }] } })
        };
        json!({ "responses": pairs.iter().map(of).collect::<Vec<_>>() })
    }

    fn state(pairs: &[(&str, &str)]) -> State {
        let mut state = State::default();
        state.take(&answer(pairs), "/tidewater/shop/").expect("the answer is well-formed");
        state
    }

    #[test]
    fn a_target_names_members_of_etcd_and_the_cluster() {
        let found = cluster("etcd=10.0.0.1:2379,[::1]:2379/shop").expect("the target names a cluster");
        assert_eq!((found.name.as_str(), found.etcd.len()), ("shop", 2));
        assert_eq!(found.etcd, ["http://10.0.0.1:2379", "http://[::1]:2379"]);
        assert_eq!(cluster("etcd=http://h:1/c").expect("the target names a cluster").etcd, ["http://h:1"]);
        for wrong in ["etcd=h:1/", "etcd=h:1", "etcd=/c", "etcd=h/c", "h:1/c", "etcd=ftp://h:1/c", "etcd=h:1,/c"] {
            assert!(cluster(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn https_without_a_ca_is_refused_with_what_to_do() {
        let why = tls(None, None, None, &mut Vec::new()).expect_err("there is no CA");
        assert!(why.contains("TIDEWATER_ETCD_CA"), "{why}");
        let why = tls(Some("/nonexistent/ca"), None, None, &mut Vec::new()).expect_err("there is no such file");
        assert!(why.contains("/nonexistent/ca"), "{why}");
    }

    #[test]
    fn without_a_primary_the_last_one_is_named_and_since_when_and_what_to_do() {
        let of = cluster("etcd=127.0.0.1:1/shop").expect("the target names a cluster");
        let said = of.why_no_primary(&state(&[]));
        assert!(said.contains("/tidewater/shop/") && said.contains("correct the name"), "{said}");
        let said = of.why_no_primary(&state(&[("identity", "x")]));
        assert!(said.contains("tidewater cluster keeper group --cluster shop"), "{said}");
        let member = r#"{"node":1,"address":"/b","epoch":"4.0","note":"stands back","leaderless_ms":6500}"#;
        let all = [("group", "{}"), ("members/1", member)];
        let said = of.why_no_primary(&state(&all));
        let expected = "the last was node 0, of epoch 4.0, and no keeper has led for 7 s; node 1: stands back";
        assert!(said.contains(expected) && said.contains("keeper status"), "{said}");
        let said = of.why_no_primary(&state(&[all[0], all[1], ("paused", "{}")]));
        assert!(said.contains("paused") && said.contains("resume"), "{said}");
        let said = of.why_no_primary(&state(&[all[0], all[1], ("leader", r#"{"node":1,"epoch":"0.0"}"#)]));
        assert!(said.contains("node 1 is being promoted"), "{said}");
        let said = of.why_no_primary(&state(&all[..1]));
        assert!(said.contains("no keeper runs"), "{said}");
    }

    #[test]
    fn an_etcd_that_does_not_answer_is_named_with_what_needs_none() {
        // No process listens at port 1.
        let why = Log::open("cluster:etcd=127.0.0.1:1/shop", Options::default()).expect_err("there is none");
        let said = why.to_string();
        assert!(said.starts_with("cluster shop:") && said.contains("http://127.0.0.1:1: "), "{said}");
        assert!(said.contains("a list of devices needs no etcd"), "{said}");
    }

    #[test]
    fn the_address_of_a_keeper_is_a_folder_or_a_socket() {
        assert_eq!(socket_of("/srv/log").as_deref(), Some(Path::new("/srv/log/vfio.sock")));
        assert_eq!(socket_of("vfio-user:/run/f0.sock").as_deref(), Some(Path::new("/run/f0.sock")));
        // In the folder of the program that reads it they would be anything.
        for wrong in ["", ".", "log", "vfio-user:", "vfio-user:f0.sock", "../log", "/srv/\0log"] {
            assert_eq!(socket_of(wrong), None, "{wrong:?}");
        }
    }

    /// An etcd that answers each connection with these bytes, over and over if so it is, and its address.
    fn gateway(answer: Vec<u8>, is_endless: bool) -> std::net::SocketAddr {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback can be had");
        let address = listener.local_addr().expect("the socket can be bound");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 1 << 14]);
                while stream.write_all(&answer).is_ok() && is_endless {}
                let _ = stream.shutdown(std::net::Shutdown::Write);
                // A close with bytes that were not read could overtake the answer.
                let _ = stream.read(&mut [0; 1 << 14]);
            }
        });
        address
    }

    #[test]
    fn an_etcd_that_lies_is_an_error_in_words_and_leads_nowhere() {
        let ok = |body: &[u8]| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            [head.as_bytes(), body].concat()
        };
        let led = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback can be had");
        led.set_nonblocking(true).expect("a socket");
        let to = led.local_addr().expect("the socket can be bound");
        let redirect = |status: &str| {
            format!("HTTP/1.1 {status}\r\nLocation: http://{to}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        };
        let many: String = (0..100_000).map(|n| format!("x-{n}: y\r\n")).collect();
        let leader = |value: &str| ok(answer(&[("group", ""), ("leader", value)]).to_string().as_bytes());
        let member = |value: &str| {
            let leads = r#"{"node":1,"epoch":"4.1"}"#;
            ok(answer(&[("group", ""), ("leader", leads), ("members/1", value)]).to_string().as_bytes())
        };
        let place = |address: &str| member(&format!(r#"{{"node":1,"address":{address:?},"epoch":"4.1","note":""}}"#));
        let modes: Vec<(&str, Vec<u8>, bool, &str)> = vec![
            ("nothing", Vec::new(), false, ""),
            ("no HTTP", b"\0\x1b[2J".to_vec(), false, ""),
            ("302", redirect("302 Found").into(), false, "302"),
            ("307", redirect("307 Temporary Redirect").into(), false, "307"),
            ("308", redirect("308 Permanent Redirect").into(), false, "308"),
            ("500", b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}".to_vec(), false, "500"),
            ("6 MB", ok(&vec![b' '; 6 << 20]), false, "longer than"),
            ("endless body", b"HTTP/1.1 200 OK\r\n\r\n".repeat(1 << 12), true, ""),
            ("endless headers", b"HTTP/1.1 200 OK\r\nx: y\r\n".to_vec(), true, ""),
            ("many headers", format!("HTTP/1.1 200 OK\r\n{many}\r\n{{}}").into(), false, ""),
            ("deep", ok(&vec![b'['; 200_000]), false, "not etcd's"),
            ("NUL", ok(b"\0\0\0"), false, "not etcd's"),
            ("a list", ok(b"[]"), false, "not etcd's"),
            ("no answers", ok(b"{\"responses\":7}"), false, "not etcd's"),
            ("refusal", ok(b"{\"error\":\"etcdserver: \\u001b[2J\"}"), false, "etcdserver"),
            ("leader none", leader("?"), false, "leader makes no sense"),
            ("leader no node", leader(r#"{"node":300}"#), false, "names no node"),
            ("leader without keeper", leader(r#"{"node":9,"epoch":"1.9"}"#), false, "has not written yet"),
            ("member none", member("["), false, "has not written yet"),
            ("member of another key", member(r#"{"node":0,"address":"/x"}"#), false, "has not written yet"),
            ("no address", place(""), false, "no absolute path"),
            ("relative", place("x"), false, "no absolute path"),
            ("NUL in it", place("/x\\0").to_vec(), false, ""),
            ("another place", place("/nonexistent"), false, "/nonexistent/vfio.sock"),
            (
                "ESC in it",
                member(r#"{"node":1,"address":"/x\u001b[2J","epoch":"4.1","note":""}"#),
                false,
                "/x\u{fffd}[2J/vfio.sock",
            ),
        ];
        std::thread::scope(|scope| {
            for (name, bytes, is_endless, expected) in modes {
                scope.spawn(move || {
                    let target = format!("etcd={}/shop", gateway(bytes, is_endless));
                    let cluster = Cluster::parse(&target).expect("no certificates").expect("a target");
                    let said = match cluster.sockets() {
                        Err(why) => why.to_string(),
                        Ok(sockets) => format!("{sockets:?}"),
                    };
                    assert!(said.contains(expected), "{name}: {said}");
                });
            }
        });
        assert_eq!(led.accept().expect_err("none was led there").kind(), std::io::ErrorKind::WouldBlock);
    }
}
