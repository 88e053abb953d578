//! TLS from a certificate and a key in files.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, RwLock};

use crate::locks;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};

/// The TLS configuration of a server. Clones share it, so that [`Tls::reload`] changes all of them.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<TlsAcceptor>>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a chain of certificates, the server's own first, and its private key, both PEM.
    ///
    /// # Errors
    /// If a file cannot be used; the message names it.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, String> {
        Ok(Self(Arc::new(RwLock::new(read(cert, key)?))))
    }

    /// Reads both files again, for connections from now on.
    ///
    /// # Errors
    /// As [`Tls::load`]. The old certificate stays in use then.
    pub fn reload(&self, cert: &Path, key: &Path) -> Result<(), String> {
        let acceptor = read(cert, key)?;
        *locks::write(&self.0) = acceptor;
        Ok(())
    }

    /// The acceptor for a new connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        locks::read(&self.0).clone()
    }
}

fn read(cert: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let (cert_file, key_file) = (cert.display(), key.display());
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| {
            format!(
                "the certificate {cert_file}: {}",
                reason(&error, "certificate")
            )
        })?;
    if chain.is_empty() {
        return Err(format!(
            "the certificate {cert_file}: {}",
            reason(&PemError::NoItemsFound, "certificate")
        ));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        format!(
            "the private key {key_file}: {}",
            reason(&error, "private key")
        )
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                format!("the private key {key_file} does not belong to the certificate {cert_file}")
            }
            Error::InvalidCertificate(_) => {
                format!("the certificate {cert_file} is invalid: {error}")
            }
            _ => format!("the private key {key_file} cannot be used: {error}"),
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The reason why a PEM file cannot be read, without the contents of the file.
fn reason(error: &PemError, item: &str) -> String {
    match error {
        PemError::Io(error) => format!("cannot be read: {error}"),
        PemError::NoItemsFound => format!("the file has no {item}; it must be PEM"),
        _ => "the file is damaged; it must be PEM".to_owned(),
    }
}
