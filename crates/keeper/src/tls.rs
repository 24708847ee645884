//! Certificates between a keeper and etcd: files that may be renewed at any time.

use crate::job::At;
use etcd_client::{Certificate, Identity, TlsOptions};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use std::path::Path;
use std::time::Duration;

/// An instant by which every certificate has expired: the end of the year 9999, in seconds since 1970.
const EVER: u64 = 253_402_300_799;

/// The CA of etcd's certificate, this keeper's certificate and its key: what is in their files.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Content([Vec<u8>; 3]);

impl Content {
    fn read(at: &At) -> Result<Content, String> {
        let read = |path: Option<&Path>| match path {
            Some(path) => std::fs::read(path).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(Vec::new()),
        };
        let content = Content([read(at.ca.as_deref())?, read(at.cert.as_deref())?, read(at.key.as_deref())?]);
        for (path, pem) in [&at.ca, &at.cert].into_iter().zip(&content.0) {
            let Some(path) = path else { continue };
            if let Err(error) = CertificateDer::from_pem_slice(pem) {
                return Err(format!("{}: no certificate in PEM: {error}", path.display()));
            }
        }
        Ok(content)
    }

    /// Proofs of etcd to this keeper, and of this keeper to etcd.
    pub(crate) fn options(&self) -> TlsOptions {
        let [ca, cert, key] = &self.0;
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if cert.is_empty() { options } else { options.identity(Identity::from_pem(cert, key)) }
    }

    /// Until when this keeper's certificate is valid, in seconds since 1970; `None`: it has none.
    fn expires(&self) -> Option<u64> {
        let der = CertificateDer::from_pem_slice(&self.0[1]).ok()?;
        let certificate = ParsedCertificate::try_from(&der).ok()?;
        let (none, ever) = (RootCertStore::empty(), UnixTime::since_unix_epoch(Duration::from_secs(EVER)));
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        // Its time is looked at before its CA, of which nothing is known here.
        match verify_server_cert_signed_by_trust_anchor(&certificate, &none, &[], ever, algorithms) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                Some(not_after.as_secs())
            }
            _ => None,
        }
    }
}

/// The files, and what was last in use of them.
#[derive(Default)]
pub(crate) struct Tls {
    /// Content that connections are made with.
    used: Option<Content>,
    /// Files that could not be used, and why.
    refused: Option<(Result<Content, String>, String)>,
}

impl Tls {
    /// Content of the files, for a new connection. Where they can't be read, what was in them before.
    ///
    /// # Errors
    /// Files that can't be read, in words, while none have been used.
    pub(crate) fn content(&mut self, at: &At) -> Result<Content, String> {
        let read = Content::read(at);
        match &read {
            Ok(content) => Ok(content.clone()),
            Err(why) => {
                let before = self.used.clone().ok_or_else(|| why.clone())?;
                self.refused = Some((read.clone(), why.clone()));
                Ok(before)
            }
        }
    }

    /// Whether this was not used before, and something else was.
    pub(crate) fn is_new(&self, content: &Content) -> bool {
        self.used.as_ref().is_some_and(|used| used != content)
    }

    /// A connection could be made with this.
    pub(crate) fn use_from_now(&mut self, content: Content) {
        if self.used.as_ref() != Some(&content) {
            (self.used, self.refused) = (Some(content), None);
        }
    }

    /// No connection could be made with this, for this reason: what was used before, if that was something else.
    pub(crate) fn before(&mut self, content: Content, why: String) -> Option<Content> {
        let before = self.used.clone().filter(|used| *used != content)?;
        self.refused = Some((Ok(content), why));
        Some(before)
    }

    /// Whether the files hold something else than what was used, or refused, last: a new connection takes it up.
    pub(crate) fn has_changed(&mut self, at: &At) -> bool {
        let Some(used) = &self.used else { return false };
        let read = Content::read(at);
        if read.as_ref() == Ok(used) {
            self.refused = None;
            return false;
        }
        self.refused.as_ref().is_none_or(|(refused, _)| *refused != read)
    }

    /// How it stands, for people and for metrics.
    pub(crate) fn state(&self) -> TlsState {
        TlsState {
            expires: self.used.as_ref().and_then(Content::expires),
            refused: self.refused.as_ref().map(|(_, why)| why.clone()),
        }
    }
}

/// The certificate that a keeper shows to etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsState {
    /// Until when the certificate in use is valid, in seconds since 1970; `None`: none is in use.
    pub(crate) expires: Option<u64>,
    /// Why the files that are there now are not used, in words.
    pub(crate) refused: Option<String>,
}
