//! Who a device is to its peers: a certificate of the cluster's CA, with the name `tidewater://CLUSTER/NODE`.
//!
//! A folder holds the CA's certificate, the node's and its key, as `tidewater cluster identity init` writes them. Both
//! sides of a connection show a certificate (TLS 1.3); the name in it has to be that of the hello, which comes behind
//! the handshake.

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SignatureScheme, version::TLS13};
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidewater_ipc::{trusted_folder, trusted_owner};

/// Certificates of the CAs that peers may be of.
pub const CA_FILE: &str = "ca.pem";
/// The node's certificate.
pub const CERTIFICATE_FILE: &str = "node.pem";
/// The node's key, which its owner alone may read.
pub const KEY_FILE: &str = "node.key";

/// How names of this protocol begin.
const SCHEME: &str = "tidewater://";
/// What follows the node in the name that the dialling side puts into its first message.
const HINT: &str = "tidewater";
/// Bytes of a file of an identity, at most.
const FILE_MAX: u64 = 1 << 20;
/// An instant by which every certificate has expired: the end of the year 9999, in seconds since 1970.
const EVER: u64 = 253_402_300_799;
/// A note says so when the certificate is valid for no longer than this.
const EXPIRES_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// The name in a node's certificate: `tidewater://CLUSTER/NODE`. Bytes of the cluster's name other than letters, digits
/// and `-._~` are percent-encoded.
pub fn name(cluster: &str, node: u8) -> String {
    format!("{}/{node}", cluster_name(cluster))
}

/// The name in the certificate of a cluster's CA: `tidewater://CLUSTER`.
pub(super) fn cluster_name(cluster: &str) -> String {
    let mut name = SCHEME.to_owned();
    for byte in cluster.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            name.push(byte.into());
        } else {
            name += &format!("%{byte:02X}");
        }
    }
    name
}

/// Why a certificate's name is not `wanted`, in words. `whose`: whose certificate it is.
pub(super) fn wrong_name(whose: &str, found: Option<&str>, wanted: &str) -> Option<String> {
    let parts = |name: &str| {
        let (cluster, node) = name.strip_prefix(SCHEME).unwrap_or(name).rsplit_once('/').unwrap_or((name, ""));
        (cluster.to_owned(), node.to_owned())
    };
    let Some(found) = found else {
        return Some(format!("{whose} has no name of the form {SCHEME}CLUSTER/NODE: make one for {wanted}"));
    };
    let ((cluster, node), (wanted_cluster, wanted_node)) = (parts(found), parts(wanted));
    match () {
        () if found == wanted => None,
        () if cluster != wanted_cluster => Some(format!(
            "{whose} is for cluster {cluster:?} and not {wanted_cluster:?}: give both devices the same --cluster, and \
             certificates for it"
        )),
        () => Some(format!(
            "{whose} is for node {node} and not node {wanted_node}: start each node with the --peer-identity that was \
             made for it"
        )),
    }
}

/// The name in a certificate; `None`: it has none of this protocol, or several.
pub(super) fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_uri_names().filter(|name| name.starts_with(SCHEME));
    let name = names.next()?.to_owned();
    names.next().is_none().then_some(name)
}

/// Why a device has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file can't be read.
    #[error(
        "{path}: {1}; give --peer-identity a folder with {CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE}, as `tidewater \
         cluster identity init` makes it",
        path = .0.display()
    )]
    Read(PathBuf, io::Error),
    /// Others than its owner may read the key: its mode.
    #[error(
        "{path}: mode {1:04o} lets other users read this key; allow that to its owner alone (chmod 600 {path}), and \
         make a new one if another user may have read it",
        path = .0.display()
    )]
    KeyIsOpen(PathBuf, u32),
    /// Another user could replace a file, or has made it, in words.
    #[error(
        "{path}: {1}; an identity is this user's or root's, in folders that no other user can change",
        path = .0.display()
    )]
    NotOurs(PathBuf, io::Error),
    /// A file holds something else, or its parts do not fit together.
    #[error("{path}: {1}", path = .0.display())]
    Content(PathBuf, String),
    /// The certificate is another node's or another cluster's, in words.
    #[error("{path}: {1}", path = .0.display())]
    Name(PathBuf, String),
}

/// A device's certificate and key, and the CAs that its peers are of.
pub(super) struct Identity {
    pub(super) client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    hint: ServerName<'static>,
    /// What the user should know about the certificate.
    pub(super) note: Option<String>,
    /// Whether the certificate was valid when it was read: neither expired nor too early.
    pub(super) in_time: bool,
    /// Until when the certificate is valid, in seconds since 1970.
    pub(super) expires: u64,
    /// Tells one content of the files from another, within this process.
    pub(super) content: u64,
}

impl Identity {
    /// Reads a folder. The certificate has to be for this node of this cluster, and of a CA in the folder.
    ///
    /// # Errors
    /// As [`IdentityError`] says.
    pub(super) fn load(folder: &Path, cluster: &str, node: u8) -> Result<Identity, IdentityError> {
        let [ca_path, path, key_path] = [CA_FILE, CERTIFICATE_FILE, KEY_FILE].map(|file| folder.join(file));
        trusted_folder(folder).map_err(|(path, error)| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => IdentityError::Read(key_path.clone(), error),
            _ => IdentityError::NotOurs(path, error),
        })?;
        let content = |path: &Path| {
            let path = path.to_owned();
            move |what: String| IdentityError::Content(path, what)
        };
        let key = PrivateKeyDer::from_pem_slice(&read(&key_path, true)?)
            .map_err(|error| content(&key_path)(format!("no private key in PEM: {error}")))?;
        let (chain, of_ca) = (certificates(&path)?, certificates(&ca_path)?);
        let mut hasher = DefaultHasher::new();
        (key.secret_der(), &chain, &of_ca).hash(&mut hasher);
        let mut roots = RootCertStore::empty();
        for certificate in of_ca {
            roots.add(certificate).map_err(|error| content(&ca_path)(format!("no certificate of a CA: {error}")))?;
        }
        let provider = Arc::new(ring::default_provider());
        let is_ours = OfCa { roots: Arc::new(roots), provider: Arc::clone(&provider) };
        let (own, between) = chain.split_first().ok_or_else(|| content(&path)("it is empty".into()))?;
        if let Some(why) = wrong_name("this certificate", name_in(own).as_deref(), &name(cluster, node)) {
            return Err(IdentityError::Name(path, why));
        }
        let (in_time, note) = match is_ours.check(own, between, UnixTime::now()) {
            Ok(()) => (true, is_ours.expires_soon(own, between)),
            Err(error) if is_of_time(&error) => (false, Some(format!("this device's certificate {}", words(&error)))),
            Err(error) => return Err(content(&path)(format!("this certificate {}", words(&error)))),
        };
        let expires = is_ours.expires_before(own, between, EVER).unwrap_or(EVER);
        let unfit = |error: Error| content(&key_path)(format!("it does not go with {CERTIFICATE_FILE}: {error}"));
        let unusable = |error: &dyn fmt::Display| content(&path)(error.to_string());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&is_ours.roots), Arc::clone(&provider)).build();
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(verifier.map_err(|error| unusable(&error))?)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unfit)?;
        // Each connection shows its certificates: a resumed one would outlive them.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(is_ours))
            .with_client_auth_cert(chain, key)
            .map_err(unfit)?;
        client.resumption = Resumption::disabled();
        let hint = ServerName::try_from(format!("{node}.{HINT}")).map_err(|error| unusable(&error))?;
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(Identity { client, server, hint, note, in_time, expires, content: hasher.finish() })
    }

    /// The dialling side of a connection. It says which node it is before that is proven: by this the other side can
    /// say whose certificate it refuses.
    pub(super) fn dial(&self) -> Result<rustls::Connection, Error> {
        Ok(ClientConnection::new(Arc::clone(&self.client), self.hint.clone())?.into())
    }

    /// The other side.
    pub(super) fn accept(&self) -> Result<rustls::Connection, Error> {
        Ok(ServerConnection::new(Arc::clone(&self.server))?.into())
    }
}

/// The node that a dialling side says it is, which is not proven.
pub(super) fn hinted(session: &rustls::Connection) -> Option<u8> {
    let rustls::Connection::Server(server) = session else { return None };
    server.server_name()?.strip_suffix(HINT)?.strip_suffix('.')?.parse().ok()
}

fn read(path: &Path, secret: bool) -> Result<Vec<u8>, IdentityError> {
    let failed = |error| IdentityError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    trusted_owner(&about).map_err(|error| IdentityError::NotOurs(path.to_owned(), error))?;
    let mode = about.permissions().mode() & 0o7777;
    if secret && mode & 0o077 != 0 {
        return Err(IdentityError::KeyIsOpen(path.to_owned(), mode));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let bytes = read(path, false)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(IdentityError::Content(path.to_owned(), "no certificate in PEM".into())),
        Err(error) => Err(IdentityError::Content(path.to_owned(), format!("no certificate in PEM: {error}"))),
    }
}

/// Takes certificates of the cluster's CA, whatever their name: the hello says which one is expected.
#[derive(Debug)]
struct OfCa {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl OfCa {
    fn check(&self, own: &CertificateDer<'_>, between: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(own)?,
            &self.roots,
            between,
            now,
            algorithms,
        )
    }

    /// Says so when the certificate expires soon.
    fn expires_soon(&self, own: &CertificateDer<'_>, between: &[CertificateDer<'_>]) -> Option<String> {
        let then = SystemTime::now() + EXPIRES_SOON;
        let then = then.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        let expires = self.expires_before(own, between, then)?;
        Some(format!(
            "this device's certificate expires on {}: make a new one before (`tidewater cluster identity add-node \
             --renew`), and copy its files to where the old ones are",
            date(expires)
        ))
    }

    /// When the certificate expires, if that is before an instant, both in seconds since 1970.
    fn expires_before(&self, own: &CertificateDer<'_>, between: &[CertificateDer<'_>], then: u64) -> Option<u64> {
        let error = self.check(own, between, UnixTime::since_unix_epoch(Duration::from_secs(then))).err()?;
        let Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) = error else { return None };
        Some(not_after.as_secs())
    }
}

impl ServerCertVerifier for OfCa {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(own, between, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate is refused for its time alone.
fn is_of_time(error: &Error) -> bool {
    use CertificateError as Why;
    matches!(
        error,
        Error::InvalidCertificate(
            Why::Expired | Why::ExpiredContext { .. } | Why::NotValidYet | Why::NotValidYetContext { .. }
        )
    )
}

/// What is wrong with a certificate, as what follows "the certificate".
fn words(error: &Error) -> String {
    use CertificateError as Why;
    match error {
        Error::InvalidCertificate(Why::ExpiredContext { not_after, .. }) => format!(
            "expired on {}: make a new one (`tidewater cluster identity add-node --renew`), or check the clocks of \
             both machines",
            date(not_after.as_secs())
        ),
        Error::InvalidCertificate(Why::Expired) => {
            "expired: make a new one (`tidewater cluster identity add-node --renew`)".into()
        }
        Error::InvalidCertificate(Why::NotValidYetContext { not_before, .. }) => {
            format!("is not valid before {}: check the clocks of both machines", date(not_before.as_secs()))
        }
        Error::InvalidCertificate(Why::UnknownIssuer | Why::BadSignature) => {
            format!("is of another CA: give all nodes certificates of one CA, and its {CA_FILE}")
        }
        Error::InvalidCertificate(Why::InvalidPurpose | Why::InvalidPurposeContext { .. }) => {
            "may not be used on both sides of a connection: make one with serverAuth and clientAuth".into()
        }
        other => format!("can't be taken: {other}"),
    }
}

/// Why there is no connection, in words about the peer; `None`: nothing that a device of ours would send.
pub(super) fn failure(error: &Error) -> Option<String> {
    Some(match error {
        Error::InvalidCertificate(_) => format!("its certificate {}", words(error)),
        Error::NoCertificatesPresented => "it has no certificate: start it with --peer-identity".into(),
        Error::AlertReceived(AlertDescription::CertificateExpired) => "it refuses this device's certificate, which \
            has expired or is not valid yet: make a new one, or check the clocks of both machines"
            .into(),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => format!(
            "it refuses this device's certificate, which is of another CA: give all nodes certificates of one CA, and \
             its {CA_FILE}"
        ),
        Error::AlertReceived(alert) => format!("it refuses this device's certificate or its TLS: alert {alert:?}"),
        _ => return None,
    })
}

/// An instant in UTC, by seconds since 1970.
pub(super) fn date(seconds: u64) -> String {
    // Days to a date of the Gregorian calendar, by eras of 400 years that begin in March.
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let part = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * part + 2) / 5 + 1, if part < 10 { part + 3 } else { part - 9 });
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", time / 3600, time / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (1_795_744_200, "2026-11-27 01:50 UTC"),
        ] {
            assert_eq!(date(seconds), wanted);
        }
    }

    #[test]
    fn names_say_what_is_wrong_with_them() {
        assert_eq!(name("shop", 2), "tidewater://shop/2");
        assert_eq!(name("a b/ü", 0), "tidewater://a%20b%2F%C3%BC/0");
        let wrong = |found: Option<&str>| wrong_name("its certificate", found, &name("shop", 2));
        assert_eq!(wrong(Some("tidewater://shop/2")), None);
        assert!(wrong(Some("tidewater://shop/1")).is_some_and(|why| why.contains("node 1 and not node 2")));
        assert!(wrong(Some("tidewater://bank/2")).is_some_and(|why| why.contains("\"bank\" and not \"shop\"")));
        assert!(wrong(None).is_some_and(|why| why.contains("no name")));
    }
}
