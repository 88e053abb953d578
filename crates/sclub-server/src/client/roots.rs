//! Trusted certificates.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::ClientError;

/// The certificates that are trusted over https.
#[derive(Clone)]
pub struct Roots(pub(super) Arc<ClientConfig>);

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Roots")
    }
}

impl Roots {
    /// Reads certificates from a PEM file.
    ///
    /// # Errors
    /// [`ClientError::Roots`]
    pub fn from_file(path: &Path) -> Result<Self, ClientError> {
        let bad = |why: String| ClientError::Roots {
            path: path.to_owned(),
            why,
        };
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad(error.to_string()))?;
        Self::new(certificates).map_err(bad)
    }

    /// The certificate authorities of this machine, read once.
    pub(super) fn of_machine() -> Result<&'static Self, String> {
        static READ: OnceLock<Result<Roots, String>> = OnceLock::new();
        let read = || {
            let native = rustls_native_certs::load_native_certs();
            let mut roots = RootCertStore::empty();
            // Certificates that cannot be parsed are skipped.
            roots.add_parsable_certificates(native.certs);
            if roots.is_empty() {
                let why = native.errors.first().map(|error| format!(": {error}"));
                return Err(format!(
                    "this machine has no certificate authorities to trust{}; use --ca FILE",
                    why.unwrap_or_default()
                ));
            }
            Self::from_store(roots)
        };
        READ.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    pub(super) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        if certificates.is_empty() {
            return Err("it has no certificates".into());
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        Self::from_store(roots)
    }

    fn from_store(roots: RootCertStore) -> Result<Self, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}
