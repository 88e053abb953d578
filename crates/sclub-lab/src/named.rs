//! Things by name.

/// What is called `text` among all of a kind.
///
/// # Errors
/// Says what there is.
pub(crate) fn named<T: Copy>(kind: &str, text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|&&(name, _)| name == text);
    found.map(|&(_, one)| one).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|&(name, _)| name).collect();
        format!(
            "there is no {kind} '{text}'; there are {}",
            known.join(", ")
        )
    })
}
