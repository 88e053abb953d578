//! The settings of a space.

use std::path::Path;
use std::sync::Arc;

use sclub_features::Transform;
use serde_json::{Map, Value};

use crate::api::plain;
use crate::edge::ApiError;
use crate::engine::OpenError;
use crate::env::{Access, Disk};
use crate::serve::check;
use crate::settings::{MAX_PROPENSITIES, Settings, constants, setting_name};
use crate::store::StoreError;

/// The settings that a space was made with, by their names.
pub type Given = Map<String, Value>;

/// The file with the settings of a space, in its data folder.
const SETTINGS_FILE: &str = "settings.toml";

/// The settings that a server has and a space has not.
const OF_SERVER: [&str; 23] = [
    "data",
    "addr",
    "keys",
    "insecure",
    "tls-cert",
    "tls-key",
    "host",
    "audit",
    "max-connections",
    "max-connections-per-address",
    "timeout",
    "threads",
    "fit-threads",
    "cluster",
    "cluster-name",
    "node",
    "standby",
    "nats-creds",
    "nats-ca",
    "log-format",
    "log",
    "otel-endpoint",
    "otel-sample-ratio",
];

/// The names of the settings that a space can have.
pub(crate) fn names_of_settings() -> Vec<String> {
    let mut names = Settings::names();
    names.retain(|name| !OF_SERVER.contains(&&**name));
    names.extend(constants().iter().map(|known| setting_name(known.name)));
    names
}

/// Drops settings that are `null`.
///
/// # Errors
/// If one of them is unknown.
pub fn drop_unset(given: &mut Given) -> Result<(), ApiError> {
    let known = names_of_settings();
    let mut unset = given.iter().filter(|(_, value)| value.is_null());
    if let Some((name, _)) = unset.find(|(name, _)| !known.contains(name)) {
        let reason = format!("{name} is not a setting of a space");
        return Err(refused(given, reason));
    }
    given.retain(|_, value| !value.is_null());
    Ok(())
}

/// The answer for settings that are refused for a reason. A reason begins with the setting that it is about, if there is one.
pub fn refused(given: &Given, reason: String) -> ApiError {
    let first = reason.split([' ', ':']).next().unwrap_or_default();
    let field = match given.contains_key(first) {
        true => first.to_owned(),
        false => "settings".to_owned(),
    };
    ApiError::invalid(field, reason)
}

/// The settings of a space in a data folder: those given, the server's limits, and defaults.
pub(super) fn space_settings(
    server: &Settings,
    data: &Path,
    given: &Given,
) -> Result<Settings, String> {
    if let Some(name) = given.keys().find(|name| OF_SERVER.contains(&&***name)) {
        return Err(format!("{name} is a setting of the server, not of a space"));
    }
    // A file has no larger ones.
    let too_large = |value: &Value| {
        value
            .as_u64()
            .is_some_and(|number| i64::try_from(number).is_err())
    };
    if let Some((name, value)) = given.iter().find(|(_, value)| too_large(value)) {
        let max = i64::MAX;
        return Err(format!("{name} is {value}; it must be at most {max}"));
    }
    let base = Settings {
        max_body: server.max_body,
        max_candidates: server.max_candidates,
        max_k: server.max_k,
        max_seen: server.max_seen,
        max_dim: server.max_dim,
        max_id: server.max_id,
        max_batch: server.max_batch,
        rate: server.rate,
        ..Settings::default()
    };
    let mut all = match serde_json::to_value(base) {
        Ok(Value::Object(all)) => all,
        _ => return Err("the defaults cannot be read".to_owned()),
    };
    all.extend(given.clone());
    // One by one, so that an error names the setting.
    for (name, value) in given {
        let one = Given::from_iter([(name.clone(), value.clone())]);
        if let Err(error) = serde_json::from_value::<Settings>(Value::Object(one)) {
            return Err(match names_of_settings().contains(name) {
                true => format!("{name}: {}", plain(&error.to_string())),
                false => {
                    format!("{name} is not a setting; settings are named as flags of `sclub serve`")
                }
            });
        }
    }
    let mut settings: Settings =
        serde_json::from_value(Value::Object(all)).map_err(|error| error.to_string())?;
    settings.data = data.to_owned();
    check(&settings)?;
    let max = settings.max_dim;
    if settings.dim.is_some_and(|dim| dim == 0 || dim > max) {
        let dim = settings.dim.unwrap_or_default();
        return Err(format!("dim is {dim}; it must be from 1 to max-dim, {max}"));
    }
    if settings.propensities > MAX_PROPENSITIES {
        let given = settings.propensities;
        return Err(format!(
            "propensities is {given}; it must be at most {MAX_PROPENSITIES}"
        ));
    }
    if let Some(file) = &settings.features {
        let bytes = std::fs::read(file)
            .map_err(|error| format!("features: cannot read {}: {error}", file.display()))?;
        let transform = Transform::decode(&bytes)
            .map_err(|error| format!("features: {}: {error}", file.display()))?;
        settings.transform = Some(Arc::new(transform));
    }
    Ok(settings)
}

/// The settings in the folder of a space. A folder without any was put there by an operator.
pub(super) fn read_given(folder: &Path) -> Result<Option<Given>, String> {
    let file = folder.join(SETTINGS_FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
    };
    let given = toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Some(given))
}

/// Writes the settings of a space. They are durable when this returns.
pub(super) fn write_given(disk: &dyn Disk, folder: &Path, given: &Given) -> Result<(), StoreError> {
    let text = toml::to_string(given);
    let text = text.map_err(|error| StoreError::Refused(format!("settings: {error}")))?;
    write_file(disk, folder, text.as_bytes())
}

fn write_file(disk: &dyn Disk, folder: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let file = folder.join(SETTINGS_FILE);
    let written = (|| {
        let new = file.with_extension("tmp");
        let out = disk.open(&new, Access::Create)?;
        out.write_all_at(bytes, 0)?;
        out.sync()?;
        disk.rename(&new, &file)?;
        disk.sync_dir(folder)
    })();
    written.map_err(|error: std::io::Error| StoreError::Write {
        reason: error.to_string(),
        file,
    })
}

/// Writes the settings of a space that is opened with them. If it cannot be opened, the folder has its former settings again:
/// refused ones must not be in force after a restart.
pub(super) fn try_given<T>(
    disk: &dyn Disk,
    folder: &Path,
    given: &Given,
    open: impl FnOnce() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let file = folder.join(SETTINGS_FILE);
    let former = match std::fs::read(&file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            let reason = error.to_string();
            return Err(StoreError::Read { file, reason }.into());
        }
    };
    write_given(disk, folder, given)?;
    open().inspect_err(|_| {
        let restored = match former {
            Some(bytes) => write_file(disk, folder, &bytes).map_err(|error| error.to_string()),
            None => {
                let removed = disk.remove(&file).and_then(|()| disk.sync_dir(folder));
                removed.map_err(|error| error.to_string())
            }
        };
        if let Err(reason) = restored {
            tracing::warn!(file = %file.display(), reason, "cannot restore the settings of a space");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use serde_json::json;

    fn given(value: Value) -> Given {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_space_has_the_limits_of_the_server_and_settings_of_its_own() {
        let server = Settings {
            max_k: 7,
            rate: 5,
            reward_max: 9.0,
            dim: Some(3),
            ..Settings::default()
        };
        let own = given(json!({"dim": 16, "policy": "sclub-soft", "rate": 50, "after": "5m"}));
        let settings = space_settings(&server, Path::new("x"), &own).unwrap();
        assert_eq!((settings.max_k, settings.rate), (7, 50));
        assert_eq!((settings.dim, settings.reward_max), (Some(16), 1.0));
        assert_eq!(settings.data, Path::new("x"));
        let mut some = given(json!({"dim": 16, "policy": null, "beta": null}));
        assert_eq!(drop_unset(&mut some), Ok(()));
        assert_eq!(some, given(json!({"dim": 16})));
        for unknown in ["strange", "addr", ""] {
            let error = drop_unset(&mut given(json!({ unknown: null }))).unwrap_err();
            assert!(error.message.contains("not a setting of a space"));
            assert_eq!(error.field.as_deref(), Some(unknown));
        }
        for (bad, reason) in [
            (
                json!({"addr": "0.0.0.0:1"}),
                "addr is a setting of the server",
            ),
            (
                json!({"dim": 0}),
                "dim is 0; it must be from 1 to max-dim, 512",
            ),
            (
                json!({"dim": "x"}),
                "dim: invalid type: string \"x\", expected a whole number",
            ),
            (
                json!({"max-k": -1}),
                "max-k: invalid value: integer `-1`, expected a whole number",
            ),
            (json!({"strange": 1}), "strange is not a setting"),
            (json!({"beta": true}), "beta"),
            (json!({"after": "soon"}), "after"),
            (json!({"rate": -1}), "rate"),
            (json!({"max-body": 0}), "max-body is 0"),
            (
                json!({"max-seen": u64::MAX}),
                "max-seen is 18446744073709551615; it must be at most 9223372036854775807",
            ),
            (json!({"features": "/none"}), "features: cannot read /none"),
        ] {
            let bad = given(bad);
            let error = space_settings(&server, Path::new("x"), &bad).unwrap_err();
            assert!(error.contains(reason), "{error}");
            let field = refused(&bad, error).field;
            assert_eq!(field.as_deref(), bad.keys().next().map(String::as_str));
        }
    }

    #[test]
    fn a_setting_that_the_policy_does_not_have_is_named() {
        for (bad, field) in [
            (json!({"policy": "sclub", "temper": 1}), "temper"),
            (json!({"policy": "lints", "preset": "released"}), "preset"),
            (json!({"preset": "zz"}), "preset"),
            (json!({"policy": "sclub", "preset": "zz"}), "preset"),
            (json!({"alpha-p": 1}), "alpha-p"),
            (json!({"policy": "club"}), "policy"),
        ] {
            let bad = given(bad);
            let settings = space_settings(&Settings::default(), Path::new("x"), &bad).unwrap();
            let refused_by = Identity::new(&settings, &*crate::env::Env::real().random);
            let error = refused(&bad, refused_by.unwrap_err().to_string());
            assert_eq!(error.field.as_deref(), Some(field), "{}", error.message);
        }
    }

    #[test]
    fn settings_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let disk = crate::env::Env::real().disk;
        assert_eq!(read_given(folder.path()), Ok(None));
        let own = given(json!({"dim": 16, "beta": 0.5, "context": ["hour"], "policy": "sclub"}));
        write_given(&*disk, folder.path(), &own).unwrap();
        assert_eq!(read_given(folder.path()), Ok(Some(own)));
    }
}
