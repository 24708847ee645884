//! A cluster in etcd.

use crate::job::At;
use crate::kept::Seen;
use crate::keys::{Cluster, Keys};
use crate::tls::{Content, Tls, TlsState};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, GetResponse, LeaseKeepAliveStream, LeaseKeeper,
    PutOptions, Txn, TxnOp, TxnOpResponse, WatchOptions,
};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// The environment variable with the password of etcd's user.
pub const PASSWORD: &str = "TIDEWATER_ETCD_PASSWORD";

/// Certificates of all connections of a keeper.
pub(crate) type Shared = Arc<Mutex<Tls>>;

fn lock(tls: &Shared) -> MutexGuard<'_, Tls> {
    tls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection to one member of etcd. After a failure the next one is asked.
pub struct Store {
    at: At,
    tls: Shared,
    /// The member that is asked.
    which: usize,
    /// The cluster's keys.
    pub keys: Keys,
    patience: Duration,
    client: Option<Client>,
    renewer: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
}

/// Codes of gRPC for a request that etcd did not answer: UNKNOWN, DEADLINE_EXCEEDED and UNAVAILABLE.
const NO_ANSWER: [i32; 3] = [2, 4, 14];
/// Keys that are looked at for [`Store::strangers`].
const STRANGERS_MAX: i64 = 100;
/// The gRPC status of an answer that is longer than a client takes (`OUT_OF_RANGE`).
const OUT_OF_RANGE: i32 = 11;

/// What is found in etcd.
enum Found {
    /// etcd's state that it is of.
    At(Seen),
    /// A key, its value and its lease.
    Key(String, Vec<u8>, i64),
    /// A key whose value is too large.
    TooLarge(String),
}

/// These keys, at one moment; where it is said so, without their values.
async fn get(client: &mut Client, keys: &[(String, bool)]) -> Result<Vec<Found>, Error> {
    let of = |(key, has_value): &(String, bool)| {
        TxnOp::get(key.clone(), (!has_value).then(|| GetOptions::new().with_keys_only()))
    };
    let answer = client.txn(Txn::new().and_then(keys.iter().map(of).collect::<Vec<_>>())).await?;
    let header = answer.header().map(|it| Seen { cluster_id: it.cluster_id(), revision: it.revision() });
    let mut all: Vec<Found> = header.into_iter().map(Found::At).collect();
    for one in answer.op_responses() {
        let TxnOpResponse::Get(one) = one else { continue };
        let pairs = one.kvs().iter();
        all.extend(pairs.map(|pair| {
            Found::Key(String::from_utf8_lossy(pair.key()).into_owned(), pair.value().to_vec(), pair.lease())
        }));
    }
    Ok(all)
}

fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.code() as i32 == OUT_OF_RANGE)
}

/// What went wrong, in words.
fn words(error: Error) -> String {
    match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    }
}

fn value(of: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(of).map_err(|error| error.to_string())
}

impl Store {
    /// A cluster in etcd; `patience`: how long an answer may take.
    pub fn new(at: &At, patience: Duration) -> Store {
        Store {
            keys: Keys::new(&at.cluster, at.function),
            at: at.clone(),
            tls: Shared::default(),
            which: 0,
            patience,
            client: None,
            renewer: None,
        }
    }

    /// As [`Store::read`], by the first member of etcd that answers.
    ///
    /// # Errors
    /// What each of them said.
    pub async fn read_any(&mut self, lease: i64) -> Result<(Cluster, Seen), String> {
        let mut failed = Vec::new();
        for _ in 0..self.members() {
            match self.read(lease).await {
                Ok(read) => return Ok(read),
                Err(why) => failed.push(why),
            }
        }
        Err(failed.join("; "))
    }

    /// The certificates that its connections are made with, for other connections of the same keeper.
    pub(crate) fn tls(&self) -> Shared {
        Arc::clone(&self.tls)
    }

    /// Looks at the files of the certificates: if they were renewed, the next request makes a new connection by them.
    /// Returns how they stand.
    pub(crate) fn look_at_certificates(&mut self) -> TlsState {
        let mut tls = lock(&self.tls);
        if tls.has_changed(&self.at) {
            (self.client, self.renewer) = (None, None);
        }
        tls.state()
    }

    /// Members of etcd that are known.
    pub fn members(&self) -> usize {
        self.at.etcd.len()
    }

    /// Carries out requests; after a failure the next ones go to another member.
    async fn with<T>(&mut self, each: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> Result<T, String> {
        let (at, tls, which, patience) = (&self.at, &self.tls, self.which, self.patience);
        let mut known = self.client.take();
        // Where it is another one's turn if this fails.
        self.which = which + 1;
        let done = timeout(patience, async {
            let mut client = match known.take() {
                Some(client) => client,
                None => connect(at, tls, which, patience, true).await?,
            };
            let done = each(&mut client).await?;
            Ok((client, done))
        });
        let url = at.etcd.get(which % at.etcd.len().max(1)).map_or("etcd", String::as_str);
        let done = done.await.map_err(|_| format!("{url}: no answer within {} ms", patience.as_millis()))?;
        let (client, done) = done.map_err(|error| format!("{url}: {}", words(error)))?;
        (self.client, self.which) = (Some(client), which);
        Ok(done)
    }

    /// Renews a lease, or grants one where that is over. Returns the lease that holds from now on.
    ///
    /// # Errors
    /// In words.
    pub async fn renew(&mut self, lease: i64, ttl: Duration) -> Result<i64, String> {
        if lease != 0 {
            let known = self.renewer.take().filter(|(keeper, _)| keeper.id() == lease);
            let renewed = self.with(async |client: &mut Client| {
                let Some((mut keeper, mut stream)) = known else {
                    // It renews the lease, too.
                    return match client.lease_keep_alive(lease).await {
                        Ok(renewer) => Ok(Some(renewer)),
                        Err(Error::LeaseKeepAliveError(_)) => Ok(None),
                        Err(error) => Err(error),
                    };
                };
                keeper.keep_alive().await?;
                let answer = stream.message().await?;
                Ok(answer.filter(|answer| answer.ttl() > 0).map(|_| (keeper, stream)))
            });
            self.renewer = renewed.await?;
            if self.renewer.is_some() {
                return Ok(lease);
            }
        }
        let seconds = ttl.as_secs() as i64;
        self.with(async |client: &mut Client| client.lease_grant(seconds, None).await.map(|answer| answer.id())).await
    }

    /// All that there is of the cluster: its known keys alone, at one moment. Where their values are larger than an
    /// answer may be, one after the other, without those that are too large. `lease`: this keeper's.
    ///
    /// # Errors
    /// In words.
    pub async fn read(&mut self, lease: i64) -> Result<(Cluster, Seen), String> {
        let known = self.keys.known();
        let all: Vec<Found> = self
            .with(async |client: &mut Client| match get(client, &known).await {
                Err(error) if is_too_large(&error) => {
                    let mut all = Vec::new();
                    for one in known.chunks(1) {
                        match get(client, one).await {
                            Err(error) if is_too_large(&error) => all.push(Found::TooLarge(one[0].0.clone())),
                            other => all.extend(other?),
                        }
                    }
                    Ok(all)
                }
                other => other,
            })
            .await?;
        let mut cluster = Cluster::default();
        let mut seen = None;
        for found in all {
            match found {
                // Where there are several, the first is the oldest.
                Found::At(at) => seen = seen.or(Some(at)),
                Found::Key(key, value, of) => cluster.take(&self.keys, (&key, &value, of), lease)?,
                Found::TooLarge(key) => cluster.leave_out(&self.keys, &key, "its value is too large")?,
            }
        }
        Ok((cluster, seen.ok_or("etcd's answer has no header")?))
    }

    /// Names of keys below the cluster's prefix that no keeper of this version writes: at most `STRANGERS_MAX`, and
    /// how many keys there are.
    ///
    /// # Errors
    /// In words.
    pub async fn strangers(&mut self) -> Result<(Vec<String>, i64), String> {
        let options = GetOptions::new().with_prefix().with_keys_only().with_limit(STRANGERS_MAX);
        let prefix = self.keys.prefix.clone();
        let answer: GetResponse =
            self.with(async |client: &mut Client| client.get(prefix, Some(options)).await).await?;
        let names = answer.kvs().iter().map(|pair| String::from_utf8_lossy(pair.key()).into_owned());
        let strangers = names.filter(|name| !self.keys.is_known(name)).collect();
        Ok((strangers, answer.count()))
    }

    /// What is wrong with etcd, member by member, in words.
    pub async fn ailments(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for (which, url) in self.at.etcd.iter().enumerate() {
            let asked = timeout(self.patience, async {
                connect(&self.at, &self.tls, which, self.patience, false).await?.status().await
            });
            match asked.await {
                Err(_) => all.push(format!("{url} does not answer within {} ms", self.patience.as_millis())),
                Ok(Err(error)) => all.push(format!("{url} does not answer: {}", words(error))),
                Ok(Ok(status)) => {
                    if status.leader() == 0 {
                        all.push(format!(
                            "{url} has no quorum: too many members of etcd are away for it to take writes"
                        ));
                    }
                    let errors = status.errors().iter().filter(|error| !error.contains("no leader"));
                    all.extend(errors.map(|error| match error.contains("NOSPACE") {
                        true => format!(
                            "{url} takes no writes: its database is full (NOSPACE); compact it, then etcdctl defrag \
                             and etcdctl alarm disarm"
                        ),
                        false => format!("{url}: {error}"),
                    }));
                }
            }
        }
        // It passes through the same consensus as a write, and leaves nothing behind.
        if let Err(why) = self.lease_once(Duration::from_secs(2)).await
            && all.is_empty()
        {
            all.push(format!("etcd takes no writes: {why}"));
        }
        all
    }

    /// Sets a key, bound to a lease unless that is 0.
    ///
    /// # Errors
    /// In words.
    pub async fn put(&mut self, key: String, of: &impl Serialize, lease: i64) -> Result<(), String> {
        let value = value(of)?;
        let options = (lease != 0).then(|| PutOptions::new().with_lease(lease));
        self.with(async |client: &mut Client| client.put(key, value, options).await.map(drop)).await
    }

    /// Removes a key.
    ///
    /// # Errors
    /// In words.
    pub async fn remove(&mut self, key: String) -> Result<(), String> {
        self.with(async |client: &mut Client| client.delete(key, None).await.map(drop)).await
    }

    /// Sets a key that is not there, bound to a lease unless that is 0. False: it is there.
    ///
    /// # Errors
    /// In words.
    pub async fn begin(&mut self, key: String, of: Vec<u8>, lease: i64) -> Result<bool, String> {
        let options = (lease != 0).then(|| PutOptions::new().with_lease(lease));
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        self.change(absent, TxnOp::put(key, of, options)).await
    }

    /// As [`Store::begin`], of a value.
    ///
    /// # Errors
    /// In words.
    pub async fn begin_with(&mut self, key: String, of: &impl Serialize, lease: i64) -> Result<bool, String> {
        self.begin(key, value(of)?, lease).await
    }

    /// Sets a key that is bound to a lease already. False: it is not.
    ///
    /// # Errors
    /// In words.
    pub async fn put_own(&mut self, key: String, of: &impl Serialize, lease: i64) -> Result<bool, String> {
        let owned = Compare::lease(key.clone(), CompareOp::Equal, lease);
        let put = TxnOp::put(key, value(of)?, Some(PutOptions::new().with_lease(lease)));
        self.change(owned, put).await
    }

    /// Removes a key that is bound to a lease. False: it is not.
    ///
    /// # Errors
    /// In words.
    pub async fn remove_own(&mut self, key: String, lease: i64) -> Result<bool, String> {
        let owned = Compare::lease(key.clone(), CompareOp::Equal, lease);
        self.change(owned, TxnOp::delete(key, None)).await
    }

    async fn change(&mut self, when: Compare, then: TxnOp) -> Result<bool, String> {
        let txn = Txn::new().when([when]).and_then([then]);
        self.with(async |client: &mut Client| client.txn(txn).await.map(|answer| answer.succeeded())).await
    }

    /// A lease that is not renewed, for a key that vanishes by itself.
    ///
    /// # Errors
    /// In words.
    pub async fn lease_once(&mut self, time: Duration) -> Result<i64, String> {
        self.renew(0, time).await
    }
}

/// A connection to a member of etcd; `led`: it answers while it has a leader only.
async fn connect(at: &At, tls: &Shared, which: usize, patience: Duration, led: bool) -> Result<Client, Error> {
    let Some(url) = at.etcd.get(which % at.etcd.len().max(1)) else {
        return Err(Error::InvalidArgs("no address of etcd".into()));
    };
    let mut options = ConnectOptions::new().with_connect_timeout(patience).with_require_leader(led);
    if let Some(user) = &at.user {
        let password = std::env::var(PASSWORD).unwrap_or_default();
        options = options.with_user(user.clone(), password).with_auto_token_refresh(true);
    }
    if at.ca.is_none() {
        return Client::connect([url], Some(options)).await;
    }
    let with = |content: &Content| Client::connect([url], Some(options.clone().with_tls(content.options())));
    let content = lock(tls).content(at).map_err(Error::InvalidArgs)?;
    let is_new = lock(tls).is_new(&content);
    let mut made = with(&content).await;
    // To make a connection sends nothing yet. Renewed files have to be good for an answer, whatever it says.
    if is_new
        && let Ok(client) = &mut made
        && let Err(error) = client.status().await
        && !matches!(&error, Error::GRpcStatus(status) if !NO_ANSWER.contains(&(status.code() as i32)))
    {
        made = Err(error);
    }
    let error = match made {
        Ok(client) => {
            lock(tls).use_from_now(content);
            return Ok(client);
        }
        Err(error) => error,
    };
    let why = with_cause(&error);
    let before = lock(tls).before(content, why);
    match before {
        Some(before) => with(&before).await,
        None => Err(error),
    }
}

/// An error with what has caused it, in words.
fn with_cause(error: &Error) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(of) = cause {
        said = format!("{said}: {of}");
        cause = of.source();
    }
    said
}

/// Calls `each` when a known key of the cluster changes, but not for those of members, which change all the time. It
/// ends when the watch does; what it has missed, the next read has. `which`: the member of etcd that is asked, counted
/// on and on.
///
/// # Errors
/// In words.
pub(crate) async fn watch(
    at: &At,
    tls: &Shared,
    which: usize,
    patience: Duration,
    mut each: impl FnMut(),
) -> Result<(), String> {
    let keys = Keys::new(&at.cluster, at.function);
    let members = format!("{}members/", keys.prefix);
    let counts = |key: &[u8]| {
        !key.starts_with(members.as_bytes()) && std::str::from_utf8(key).is_ok_and(|key| keys.is_known(key))
    };
    let begin = timeout(patience, async {
        let mut client = connect(at, tls, which, patience, true).await?;
        client.watch(keys.prefix.clone(), Some(WatchOptions::new().with_prefix())).await
    });
    let mut stream = begin.await.map_err(|_| "no answer from etcd")?.map_err(words)?;
    while let Some(answer) = stream.message().await.map_err(words)? {
        if answer.canceled() {
            return Err(answer.cancel_reason().to_owned());
        }
        let mut others = answer.events().iter().filter_map(|event| event.kv());
        if others.any(|pair| counts(pair.key())) {
            each();
        }
    }
    Ok(())
}
