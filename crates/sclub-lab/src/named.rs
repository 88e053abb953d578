//! Types whose values are chosen by name, as in flags.

/// A type whose values are chosen by name.
pub trait Named: Copy + PartialEq + Send + Sync + 'static {
    /// The name of the type in messages.
    const KIND: &'static str;

    /// All values: name, a line of help, and the value.
    const ALL: &'static [(&'static str, &'static str, Self)];

    /// The name of the value; empty if it is not in [`Named::ALL`].
    fn name(&self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, _, one)| one == self);
        found.map_or("", |&(name, ..)| name)
    }

    /// Parses a name.
    ///
    /// # Errors
    /// The error lists the valid names.
    fn named(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|&&(name, ..)| name == text);
        found
            .map(|&(_, _, one)| one)
            .ok_or_else(|| unknown(Self::KIND, text, Self::ALL.iter().map(|&(name, ..)| name)))
    }
}

/// The message for an unknown name, with the valid names.
pub(crate) fn unknown<'a>(
    kind: &str,
    text: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    format!("unknown {kind} '{text}'; use one of {}", known.join(", "))
}

/// Gives a type its names: [`Named`] and `FromStr`.
macro_rules! named {
    ($type:ident, $kind:literal, [$(($name:literal, $help:literal, $one:expr),)+]) => {
        impl $crate::named::Named for $type {
            const KIND: &'static str = $kind;
            const ALL: &'static [(&'static str, &'static str, Self)] =
                &[$(($name, $help, $one)),+];
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $crate::named::Named::named(text)
            }
        }
    };
}
pub(crate) use named;
