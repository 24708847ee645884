//! A cluster's CA, and the certificates that it makes for nodes: what a first try takes. It is a folder with the CA's
//! certificate and key, and a folder for each node with what that node is given.

use super::identity::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, cluster_name, date};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tidewater_ipc::trusted_folder;

/// The CA's key, which makes certificates: it belongs on no node.
pub const CA_KEY_FILE: &str = "ca.key";
/// Certificates are valid from so long before they are made on, for clocks that differ.
const SKEW: Duration = Duration::from_secs(3600);

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its begin.
    pub from: SystemTime,
    /// Its end.
    pub to: SystemTime,
}

impl Validity {
    /// From an hour ago, since clocks differ, for so many days from now on.
    pub fn days(days: u32) -> Validity {
        let now = SystemTime::now();
        Validity { from: now - SKEW, to: now + Duration::from_secs(u64::from(days) * 86_400) }
    }

    /// Its end as a date in UTC.
    pub fn end(&self) -> String {
        date(self.to.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
    }
}

/// Why no certificate is made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file or folder is there, and is not overwritten.
    #[error("{}: exists, and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file can't be read or written.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
    /// A file is not what it should be.
    #[error("{path}: {1}", path = .0.display())]
    Content(PathBuf, String),
    /// The name of the cluster: 1 to 32 bytes.
    #[error("cluster name {0:?}: expected 1 to 32 bytes without zeros")]
    Cluster(String),
    /// The certificate can't be made.
    #[error("the certificate can't be made: {0}")]
    Certificate(String),
}

fn unmade(error: rcgen::Error) -> AuthorityError {
    AuthorityError::Certificate(error.to_string())
}

/// A CA with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// `tidewater://CLUSTER`.
    name: String,
    certificate: String,
}

impl Authority {
    /// Makes a CA in a folder, which is made if it is missing.
    ///
    /// # Errors
    /// When there is one, other users could write the folder, or the files can't be written.
    pub fn create(folder: &Path, cluster: &str, valid: Validity) -> Result<Authority, AuthorityError> {
        if cluster.is_empty() || cluster.len() > 32 || cluster.contains('\0') {
            return Err(AuthorityError::Cluster(cluster.to_owned()));
        }
        for file in [CA_FILE, CA_KEY_FILE].map(|file| folder.join(file)) {
            if file.exists() {
                return Err(AuthorityError::Exists(file));
            }
        }
        let key = KeyPair::generate().map_err(unmade)?;
        let name = cluster_name(cluster);
        let params = params(&name, valid)?;
        let certificate = params.self_signed(&key).map_err(unmade)?.pem();
        let is_new = !folder.exists();
        make_folder(folder)?;
        check_folder(folder).inspect_err(|_| {
            if is_new {
                let _ = std::fs::remove_dir(folder);
            }
        })?;
        write(&folder.join(CA_KEY_FILE), &key.serialize_pem(), 0o600)?;
        write(&folder.join(CA_FILE), &certificate, 0o644)?;
        Ok(Authority { issuer: Issuer::new(params, key), name, certificate })
    }

    /// The CA in a folder.
    ///
    /// # Errors
    /// When there is none, it was not made by [`Authority::create`], or other users could write the folder.
    pub fn open(folder: &Path) -> Result<Authority, AuthorityError> {
        check_folder(folder)?;
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path).map_err(|error| AuthorityError::File(path, error))
        };
        let (certificate, key) = (read(CA_FILE)?, read(CA_KEY_FILE)?);
        let wrong = |file: &str, what: String| AuthorityError::Content(folder.join(file), what);
        let key = KeyPair::from_pem(&key).map_err(|error| wrong(CA_KEY_FILE, error.to_string()))?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| wrong(CA_FILE, format!("no certificate in PEM: {error}")))?;
        let name = super::identity::name_in(&der)
            .ok_or_else(|| wrong(CA_FILE, "no CA that `tidewater cluster identity init` made".into()))?;
        // What an issuer adds to a certificate is its name.
        let issuer = Issuer::new(params(&name, Validity::days(1))?, key);
        Ok(Authority { issuer, name, certificate })
    }

    /// Makes a node's folder, with all that the node is given. With `renew` the folder is there, and gets a new key and
    /// certificate.
    ///
    /// # Errors
    /// When it is there and is not to be renewed, or can't be written.
    pub fn certify(&self, folder: &Path, node: u8, valid: Validity, renew: bool) -> Result<(), AuthorityError> {
        if folder.exists() != renew {
            return Err(match renew {
                false => AuthorityError::Exists(folder.to_owned()),
                true => AuthorityError::File(folder.to_owned(), ErrorKind::NotFound.into()),
            });
        }
        let (certificate, key) = self.node(&format!("{}/{node}", self.name), valid)?;
        if renew {
            for (file, content, mode) in [(KEY_FILE, &key, 0o600), (CERTIFICATE_FILE, &certificate, 0o644)] {
                let (path, new) = (folder.join(file), folder.join(format!("{file}.new")));
                write(&new, content, mode)?;
                std::fs::rename(&new, &path).map_err(|error| AuthorityError::File(path, error))?;
            }
            return Ok(());
        }
        make_folder(folder)?;
        write(&folder.join(KEY_FILE), &key, 0o600)?;
        write(&folder.join(CERTIFICATE_FILE), &certificate, 0o644)?;
        write(&folder.join(CA_FILE), &self.certificate, 0o644)
    }

    /// A certificate and its key, in PEM.
    pub(super) fn node(&self, name: &str, valid: Validity) -> Result<(String, String), AuthorityError> {
        let key = KeyPair::generate().map_err(unmade)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![uri(name)?];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (valid.from.into(), valid.to.into());
        let certificate = params.signed_by(&key, &self.issuer).map_err(unmade)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The cluster that it is for, as certificates have it.
    pub fn cluster(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

fn uri(name: &str) -> Result<SanType, AuthorityError> {
    Ia5String::try_from(name).map(SanType::URI).map_err(unmade)
}

/// What a CA's certificate says.
fn params(name: &str, valid: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("CA of {name}"));
    params.subject_alt_names = vec![uri(name)?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = (valid.from.into(), valid.to.into());
    Ok(params)
}

fn make_folder(path: &Path) -> Result<(), AuthorityError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| AuthorityError::File(path.to_owned(), error))
}

/// Refuses a folder where other users could replace the CA, or what is written for a node.
fn check_folder(folder: &Path) -> Result<(), AuthorityError> {
    trusted_folder(folder).map_err(|(folder, error)| AuthorityError::File(folder, error))?;
    let mode = folder.metadata().map_err(|error| AuthorityError::File(folder.to_owned(), error))?.mode() & 0o7777;
    match mode & 0o022 {
        0 => Ok(()),
        // A sticky one: others could make a node's folder before this user does.
        _ => Err(AuthorityError::Content(folder.to_owned(), format!("mode {mode:04o} lets other users write it"))),
    }
}

/// Writes a new file.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::AlreadyExists => AuthorityError::Exists(path.to_owned()),
        _ => AuthorityError::File(path.to_owned(), error),
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}
