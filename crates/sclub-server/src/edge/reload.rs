//! Files that are read again while the server runs: keys, certificate and private key, the audit log.

use std::path::PathBuf;

use super::audit::Audit;
use super::guard::Guard;
use super::keys::Keys;
use super::tls::Tls;
use crate::settings::Settings;

/// The files of a server, and the parts of the server that use them.
#[derive(Debug)]
pub struct Reload {
    keys: Option<(PathBuf, Guard)>,
    tls: Option<(PathBuf, PathBuf, Tls)>,
    audit: Option<Audit>,
}

impl Reload {
    /// The files that the settings name.
    pub fn new(settings: &Settings, guard: &Guard, tls: Option<&Tls>, audit: &Audit) -> Self {
        let tls_files = settings.tls_cert.clone().zip(settings.tls_key.clone());
        Self {
            keys: settings.keys.clone().map(|file| (file, guard.clone())),
            tls: tls_files
                .zip(tls.cloned())
                .map(|((cert, key), tls)| (cert, key, tls)),
            audit: audit.file().is_some().then(|| audit.clone()),
        }
    }

    /// Reads each file again. If a file cannot be read, that is logged as an error, and its old contents stay
    /// in use. Connections are not affected. Blocks.
    pub fn run(&self) {
        let note = |what: &str, outcome: Result<(), String>| match outcome {
            Ok(()) => tracing::info!(what, "reloaded"),
            Err(error) => tracing::error!(
                what,
                error,
                "cannot be reloaded; the old contents stay in use"
            ),
        };
        if let Some((file, guard)) = &self.keys {
            let outcome = Keys::from_file(file).and_then(|keys| guard.replace_keys(keys));
            note("keys", outcome);
        }
        if let Some((cert, key, tls)) = &self.tls {
            note("certificate", tls.reload(cert, key));
        }
        if let Some(audit) = &self.audit {
            note("audit log", audit.reopen());
        }
        if self.keys.is_none() && self.tls.is_none() && self.audit.is_none() {
            tracing::info!("nothing to reload: no keys, certificate or audit log come from a file");
        }
    }
}
