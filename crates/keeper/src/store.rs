//! A cluster in etcd.

use crate::job::At;
use crate::kept::Seen;
use crate::keys::{Cluster, Keys};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, GetResponse, Identity,
    LeaseKeepAliveStream, LeaseKeeper, PutOptions, TlsOptions, Txn, TxnOp, WatchOptions,
};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// The environment variable with the password of etcd's user.
pub const PASSWORD: &str = "TIDEWATER_ETCD_PASSWORD";

/// A connection to one member of etcd. After a failure the next one is asked.
pub struct Store {
    at: At,
    /// The member that is asked.
    which: usize,
    /// The cluster's keys.
    pub keys: Keys,
    patience: Duration,
    client: Option<Client>,
    renewer: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
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

    /// Members of etcd that are known.
    pub fn members(&self) -> usize {
        self.at.etcd.len()
    }

    /// Carries out requests; after a failure the next ones go to another member.
    async fn with<T>(&mut self, each: impl AsyncFnOnce(&mut Client) -> Result<T, Error>) -> Result<T, String> {
        let (at, which, patience) = (&self.at, self.which, self.patience);
        let mut known = self.client.take();
        // Where it is another one's turn if this fails.
        self.which = which + 1;
        let done = timeout(patience, async {
            let mut client = match known.take() {
                Some(client) => client,
                None => connect(at, which, patience).await?,
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

    /// All that there is of the cluster. `lease`: this keeper's.
    ///
    /// # Errors
    /// In words.
    pub async fn read(&mut self, lease: i64) -> Result<(Cluster, Seen), String> {
        let prefix = self.keys.prefix.clone();
        let answer: GetResponse = self
            .with(async |client: &mut Client| client.get(prefix, Some(GetOptions::new().with_prefix())).await)
            .await?;
        let header = answer.header().ok_or("etcd's answer has no header")?;
        let seen = Seen { cluster_id: header.cluster_id(), revision: header.revision() };
        let mut cluster = Cluster::default();
        for pair in answer.kvs() {
            let key = String::from_utf8_lossy(pair.key());
            cluster.take(&self.keys, (&key, pair.value(), pair.lease()), lease)?;
        }
        Ok((cluster, seen))
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

/// What proves etcd to this keeper, and this keeper to etcd. Files are read for each connection: they may be renewed.
fn tls(ca: &Path, own: Option<(&Path, &Path)>) -> Result<TlsOptions, Error> {
    let read = |path: &Path| {
        let failed = |error: std::io::Error| Error::InvalidArgs(format!("{}: {error}", path.display()));
        std::fs::read(path).map_err(failed)
    };
    let options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
    Ok(match own {
        Some((cert, key)) => options.identity(Identity::from_pem(read(cert)?, read(key)?)),
        None => options,
    })
}

async fn connect(at: &At, which: usize, patience: Duration) -> Result<Client, Error> {
    let Some(url) = at.etcd.get(which % at.etcd.len().max(1)) else {
        return Err(Error::InvalidArgs("no address of etcd".into()));
    };
    let mut options = ConnectOptions::new().with_connect_timeout(patience).with_require_leader(true);
    if let Some(ca) = &at.ca {
        options = options.with_tls(tls(ca, at.cert.as_deref().zip(at.key.as_deref()))?);
    }
    if let Some(user) = &at.user {
        let password = std::env::var(PASSWORD).unwrap_or_default();
        options = options.with_user(user.clone(), password).with_auto_token_refresh(true);
    }
    Client::connect([url], Some(options)).await
}

/// Calls `each` when a key of the cluster changes, but not for those of members, which change all the time. It ends
/// when the watch does; what it has missed, the next read has. `which`: the member of etcd that is asked, counted on
/// and on.
///
/// # Errors
/// In words.
pub async fn watch(at: &At, which: usize, patience: Duration, mut each: impl FnMut()) -> Result<(), String> {
    let keys = Keys::new(&at.cluster, at.function);
    let members = format!("{}members/", keys.prefix);
    let begin = timeout(patience, async {
        let mut client = connect(at, which, patience).await?;
        client.watch(keys.prefix.clone(), Some(WatchOptions::new().with_prefix())).await
    });
    let mut stream = begin.await.map_err(|_| "no answer from etcd")?.map_err(words)?;
    while let Some(answer) = stream.message().await.map_err(words)? {
        if answer.canceled() {
            return Err(answer.cancel_reason().to_owned());
        }
        let mut others = answer.events().iter().filter_map(|event| event.kv());
        if others.any(|pair| !pair.key().starts_with(members.as_bytes())) {
            each();
        }
    }
    Ok(())
}
