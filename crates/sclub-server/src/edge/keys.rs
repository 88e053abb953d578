//! API keys with roles. Each belongs to one space, or to all.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// The environment variable with keys, `role:name:secret` with commas or new lines between.
pub const VARIABLE: &str = "SCLUB_API_KEYS";

/// The prefix of a secret that is given as its hash.
const HASH_PREFIX: &str = "sha256:";

const MIN_SECRET_LENGTH: usize = 16;
const MAX_SECRET_LENGTH: usize = 512;
const MAX_NAME_LENGTH: usize = 64;

/// The role of a key. Each role includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May read everything.
    Read,
    /// May recommend, send feedback and change items.
    Write,
    /// May forget users and administer the server.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            "admin" => Ok(Self::Admin),
            _ => Err(()),
        }
    }
}

/// The space of calls that name none. Keys for reading and writing belong to it unless they name another.
pub const DEFAULT_SPACE: &str = "default";

/// The maximum length of the name of a space.
pub const MAX_SPACE_LENGTH: usize = 63;

/// Checks the name of a space.
///
/// # Errors
/// If it is not a name of 1 to 63 lower-case letters, digits, `-` and `_` that begins with a letter or digit.
pub fn check_space(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_known = |byte: u8| is_plain(byte) || byte == b'-' || byte == b'_';
    let is_valid = name.len() <= MAX_SPACE_LENGTH
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(is_known);
    match is_valid {
        true => Ok(()),
        false => Err(format!(
            "the name of a space must have 1 to {MAX_SPACE_LENGTH} characters from a-z, 0-9, - and _, and \
             begin with a letter or a digit"
        )),
    }
}

/// The spaces that a key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every space, and the calls that make and delete spaces.
    All,
    /// One space.
    One(Arc<str>),
}

impl Scope {
    /// Returns true if a space is opened.
    pub fn opens(&self, space: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(own) => **own == *space,
        }
    }
}

/// A key. Of its secret only the SHA-256 is kept.
#[derive(Clone)]
struct Key {
    name: Arc<str>,
    role: Role,
    scope: Scope,
    digest: [u8; 32],
}

/// The keys of a server or of a space, without their secrets.
#[derive(Clone)]
pub struct Keys {
    list: Arc<[Key]>,
    /// True if a key is required. A space of a server with keys may have none.
    required: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.list.iter().map(|key| (&key.name, key.role));
        f.debug_map().entries(shown).finish()
    }
}

/// A key that was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known<'a> {
    /// The index of the key, from 0.
    pub index: usize,
    /// Its name.
    pub name: &'a Arc<str>,
    /// Its role.
    pub role: Role,
    /// The spaces that it opens.
    pub scope: &'a Scope,
}

impl Keys {
    /// No keys: every caller has full access.
    pub fn none() -> Self {
        Self {
            list: Arc::new([]),
            required: false,
        }
    }

    /// The keys that open a space. A key is required if the server requires one, even if none opens the space.
    pub fn of_space(&self, space: &str) -> Self {
        let opening = self.list.iter().filter(|key| key.scope.opens(space));
        Self {
            list: opening.cloned().collect(),
            required: self.required,
        }
    }

    /// The keys of a file if one is given, else those of [`VARIABLE`] if it is set, else none.
    ///
    /// # Errors
    /// If both are given, or the keys cannot be read.
    pub fn load(file: Option<&Path>) -> Result<Self, String> {
        match (file, std::env::var_os(VARIABLE)) {
            (None, None) => Ok(Self::none()),
            (Some(file), None) => Self::from_file(file),
            (None, Some(list)) => match list.to_str() {
                Some(list) => Self::from_list(list),
                None => Err(format!("{VARIABLE} is not UTF-8")),
            },
            (Some(file), Some(_)) => Err(format!(
                "keys are given both in {} and in {VARIABLE}; remove one of them",
                file.display()
            )),
        }
    }

    /// Reads keys from a file with one `role name secret` a line. `role@space` is a key of a space and `role@*`
    /// one of all spaces. A role alone is that of a key of [`DEFAULT_SPACE`], and for `admin` of all spaces. Instead of a secret there may be `sha256:`
    /// and the 64 hex digits of its SHA-256, as in [`VARIABLE`]. Empty lines and lines that start with `#`
    /// are ignored. Logs a warning if others than the owner can read the file.
    ///
    /// # Errors
    /// A message with the file and the line number, never with the contents of the line.
    pub fn from_file(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read the keys in {}: {error}", file.display()))?;
        warn_if_open(file);
        let lines = text.lines().map(str::trim).enumerate();
        let entries = lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(at, line)| (at + 1, line.split_whitespace().collect()));
        Self::collect(entries, "line").map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Parses keys from a list in the syntax of [`VARIABLE`].
    ///
    /// # Errors
    /// A message with the number of the entry, never with its contents.
    pub fn from_list(list: &str) -> Result<Self, String> {
        let entries = list
            .split([',', '\n'])
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        let entries = entries
            .enumerate()
            .map(|(at, entry)| (at + 1, entry.splitn(3, ':').map(str::trim).collect()));
        Self::collect(entries, "entry").map_err(|error| format!("{VARIABLE}: {error}"))
    }

    fn collect<'a>(
        entries: impl Iterator<Item = (usize, Vec<&'a str>)>,
        unit: &str,
    ) -> Result<Self, String> {
        let mut keys: Vec<Key> = Vec::new();
        for (at, words) in entries {
            let key = key(&words).and_then(|key| {
                if keys.iter().any(|other| other.name == key.name) {
                    Err("its name is that of an earlier key".to_owned())
                } else if keys.iter().any(|other| other.digest == key.digest) {
                    Err("its secret is that of an earlier key".to_owned())
                } else {
                    Ok(key)
                }
            });
            keys.push(key.map_err(|reason| format!("{unit} {at}: {reason}"))?);
        }
        if keys.is_empty() {
            // An empty list must not disable authorization.
            return Err("it has no keys".to_owned());
        }
        Ok(Self {
            list: keys.into(),
            required: true,
        })
    }

    /// Returns true if no key is required.
    pub fn is_none(&self) -> bool {
        !self.required
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The names of the keys, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.list.iter().map(|key| &key.name)
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The key with this secret. The search takes the same time for every key, and for a wrong secret that
    /// is almost right.
    pub fn find(&self, secret: &[u8]) -> Option<Known<'_>> {
        let given = sha256(secret);
        let mut found = u32::MAX;
        for (index, key) in (0u32..).zip(self.list.iter()) {
            found.conditional_assign(&index, key.digest.ct_eq(&given));
        }
        let index = found as usize;
        let key = self.list.get(index)?;
        Some(Known {
            index,
            name: &key.name,
            role: key.role,
            scope: &key.scope,
        })
    }
}

/// Parses a key from its three words. Errors repeat none of them: they may be in the wrong order, and one
/// is the secret.
fn key(words: &[&str]) -> Result<Key, String> {
    let &[role, name, secret] = words else {
        return Err(format!(
            "it has {} parts; it must have a role, a name and a secret",
            words.len()
        ));
    };
    let (role, space) = match role.split_once('@') {
        Some((role, space)) => (role, Some(space)),
        None => (role, None),
    };
    let role = role.parse().map_err(
        |()| "the role must be read, write or admin, alone or followed by @ and the name of a space, or by @*",
    )?;
    let scope = match space {
        Some("*") => Scope::All,
        Some(space) => {
            check_space(space)?;
            Scope::One(space.into())
        }
        None if role == Role::Admin => Scope::All,
        None => Scope::One(DEFAULT_SPACE.into()),
    };
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !plain(name) {
        return Err(format!(
            "the name must have 1 to {MAX_NAME_LENGTH} visible ASCII characters"
        ));
    }
    if secret.len() < MIN_SECRET_LENGTH {
        return Err(format!(
            "the secret is too short; it must have at least {MIN_SECRET_LENGTH} characters"
        ));
    }
    if secret.len() > MAX_SECRET_LENGTH || !plain(secret) {
        return Err(format!(
            "the secret must have at most {MAX_SECRET_LENGTH} characters, all visible ASCII"
        ));
    }
    let digest = match secret.strip_prefix(HASH_PREFIX) {
        Some(hex) => read_hex(hex).ok_or("after sha256: there must be 64 hex digits")?,
        None => sha256(secret.as_bytes()),
    };
    Ok(Key {
        name: name.into(),
        role,
        scope,
        digest,
    })
}

/// The hash that secrets are compared by. It is fast, so secrets must be random: others could be found from
/// their hash by trial.
fn sha256(secret: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, secret);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn read_hex(hex: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let bytes: Vec<u8> = digits?
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte * 16 + *digit as u8))
        .collect();
    // Checked here because chunks(2) accepts an odd digit at the end.
    (hex.len() == 64).then(|| bytes.try_into().ok())?
}

#[cfg(unix)]
fn warn_if_open(file: &Path) {
    use std::os::unix::fs::MetadataExt;
    let Ok(about) = std::fs::metadata(file) else {
        return;
    };
    let mode = about.mode() & 0o777;
    // Packages set up a group for the service alone: root writes the file, and the group reads it.
    #[cfg(target_os = "linux")]
    let is_of_own_group = about.gid() == rustix::process::getegid().as_raw();
    #[cfg(not(target_os = "linux"))]
    let is_of_own_group = false;
    let allowed = if is_of_own_group { 0o740 } else { 0o700 };
    if mode & !allowed != 0 {
        let file = file.display();
        tracing::warn!(%file, mode = format!("{mode:o}"), "other users of this machine can read the keys; run chmod 600 on the file");
    }
}

#[cfg(not(unix))]
fn warn_if_open(_: &Path) {}

/// Checks that a server with these keys may listen on this address. Without keys only loopback addresses are
/// allowed.
///
/// # Errors
/// If it may not; the message has a hint.
pub fn check_bind(addr: SocketAddr, keys: &Keys, insecure: bool) -> Result<(), String> {
    if !keys.is_none() || insecure || addr.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(format!(
        "without API keys, any client that reaches {addr} would have full access; set keys (--keys FILE \
         or {VARIABLE}), listen on 127.0.0.1, or pass --insecure"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "read:eye:aaaaaaaaaaaaaaaa, write:hand:bbbbbbbbbbbbbbbb:with:colons\n\
                        admin:head:cccccccccccccccc";

    #[test]
    fn each_secret_finds_its_own_key() {
        let keys = Keys::from_list(LIST).unwrap();
        let find = |secret: &str| {
            keys.find(secret.as_bytes())
                .map(|key| (&**key.name, key.role))
        };
        assert_eq!(find("aaaaaaaaaaaaaaaa"), Some(("eye", Role::Read)));
        assert_eq!(
            find("bbbbbbbbbbbbbbbb:with:colons"),
            Some(("hand", Role::Write))
        );
        assert_eq!(find("cccccccccccccccc"), Some(("head", Role::Admin)));
        for wrong in [
            "",
            "aaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaa",
            "eye",
            "bbbbbbbbbbbbbbbb",
        ] {
            assert_eq!(find(wrong), None, "{wrong:?}");
        }
        assert_eq!(Keys::none().find(b""), None);
        assert!(Role::Read < Role::Write && Role::Write < Role::Admin);
    }

    #[test]
    fn a_key_opens_its_own_space() {
        let list = "read:a:aaaaaaaaaaaaaaaa,write@shop:b:bbbbbbbbbbbbbbbb,admin@shop:c:cccccccccccccccc,\
                    admin:d:dddddddddddddddd,read@*:e:eeeeeeeeeeeeeeee,admin@default:f:ffffffffffffffff";
        let keys = Keys::from_list(list).unwrap();
        let opening = |space: &str| {
            let keys = keys.of_space(space);
            assert!(!keys.is_none());
            keys.names()
                .map(|name| &**name)
                .collect::<Vec<_>>()
                .concat()
        };
        assert_eq!(opening("default"), "adef");
        assert_eq!(opening("shop"), "bcde");
        assert_eq!(opening("shop2"), "de");
        let shop = keys.of_space("shop");
        assert_eq!(shop.find(b"aaaaaaaaaaaaaaaa"), None);
        assert_eq!(shop.find(b"bbbbbbbbbbbbbbbb").unwrap().role, Role::Write);
        let alone = Keys::from_list("read:a:aaaaaaaaaaaaaaaa").unwrap();
        assert!(alone.of_space("shop").is_empty() && !alone.of_space("shop").is_none());
        assert!(Keys::none().of_space("shop").is_none());
        for space in [
            "",
            "Shop",
            "-a",
            "a/b",
            "..",
            "a.b",
            "*a",
            "é",
            &"a".repeat(64),
        ] {
            assert!(Keys::from_list(&format!("read@{space}:a:aaaaaaaaaaaaaaaa")).is_err());
        }
    }

    /// `printf %s dddddddddddddddd | sha256sum`
    const HASH: &str = "90bb1cc25ca4a28318912d0e1954b30110e873d03a5ae275d45c43d4eb74a388";

    #[test]
    fn a_secret_may_be_given_by_its_hash() {
        let upper = HASH.to_uppercase();
        for list in [
            format!("read:a:aaaaaaaaaaaaaaaa,admin:d:sha256:{HASH}"),
            format!("read:a:aaaaaaaaaaaaaaaa,admin:d:sha256:{upper}"),
        ] {
            let keys = Keys::from_list(&list).unwrap();
            let find = |secret: &str| keys.find(secret.as_bytes()).map(|key| key.role);
            assert_eq!(find("dddddddddddddddd"), Some(Role::Admin));
            assert_eq!(find("aaaaaaaaaaaaaaaa"), Some(Role::Read));
            // The hash itself is not accepted as a secret.
            assert_eq!(find(HASH), None);
            assert_eq!(find(&format!("sha256:{HASH}")), None);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, format!("write d sha256:{HASH}\n")).unwrap();
        let keys = Keys::from_file(&file).unwrap();
        assert_eq!(keys.find(b"dddddddddddddddd").unwrap().role, Role::Write);
        for (wrong, reason) in [
            (&HASH[..63], "after sha256: there must be 64 hex digits"),
            (&format!("{HASH}0"), "after sha256: there must be"),
            (&format!("{HASH}00"), "after sha256: there must be"),
            (&HASH.replace('9', "g"), "after sha256: there must be"),
            ("0123456789abcdef", "after sha256: there must be"),
            ("", "the secret is too short"),
        ] {
            let error = Keys::from_list(&format!("read:d:sha256:{wrong}")).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
            assert!(!error.contains("90bb1c"), "{error}");
        }
        let both = format!("read:a:dddddddddddddddd,read:b:sha256:{HASH}");
        let error = Keys::from_list(&both).unwrap_err();
        assert!(
            error.contains("entry 2: its secret is that of an earlier key"),
            "{error}"
        );
    }

    #[test]
    fn a_file_reads_like_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        let text = "# who\n\n  read eye   aaaaaaaaaaaaaaaa\nadmin\thead cccccccccccccccc\r\n";
        std::fs::write(&file, text).unwrap();
        let keys = Keys::from_file(&file).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys.find(b"cccccccccccccccc").unwrap().role, Role::Admin);
        let missing = Keys::from_file(&folder.path().join("none")).unwrap_err();
        assert!(missing.starts_with("cannot read the keys in "), "{missing}");
    }

    #[test]
    fn errors_name_the_entry_and_never_the_secret() {
        let cases = [
            (
                "read:a:0123456789abcdef,write:b:0123456789abcde",
                "entry 2: the secret is too short",
            ),
            ("0123456789abcdef:a:read", "entry 1: the role must be"),
            (
                "read:0123456789abcdef",
                "entry 1: it has 2 parts; it must have a role, a name and a secret",
            ),
            ("read::0123456789abcdef", "entry 1: the name must have"),
            ("read:a:0123456789 abcdef", "entry 1: the secret must have"),
            (
                "read:a:0123456789abcdef,read:a:0123456789abcdeX",
                "entry 2: its name is that",
            ),
            (
                "read:a:0123456789abcdef,read:b:0123456789abcdef",
                "entry 2: its secret is that",
            ),
            (" \n,", "it has no keys"),
        ];
        for (list, reason) in cases {
            let error = Keys::from_list(list).unwrap_err();
            assert!(
                error.starts_with(&format!("SCLUB_API_KEYS: {reason}")),
                "{list:?}: {error}"
            );
            assert!(!error.contains("0123456789"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(
            &file,
            "# one\nread a 0123456789abcdef\n\nroot b 0123456789abcdef\n",
        )
        .unwrap();
        let error = Keys::from_file(&file).unwrap_err();
        assert!(
            error.contains("line 4: the role must be read, write or admin"),
            "{error}"
        );
    }

    #[test]
    fn debug_shows_names_only() {
        let shown = format!("{:?}", Keys::from_list(LIST).unwrap());
        assert_eq!(shown, r#"{"eye": Read, "hand": Write, "head": Admin}"#);
    }

    #[test]
    fn without_keys_only_this_machine() {
        let keys = Keys::from_list(LIST).unwrap();
        let cases = [
            ("127.0.0.1:80", true),
            ("127.9.9.9:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("10.0.0.1:80", false),
        ];
        for (addr, local) in cases {
            let addr = addr.parse().unwrap();
            assert_eq!(
                check_bind(addr, &Keys::none(), false).is_ok(),
                local,
                "{addr}"
            );
            assert_eq!(check_bind(addr, &Keys::none(), true), Ok(()));
            assert_eq!(check_bind(addr, &keys, false), Ok(()));
        }
    }
}
