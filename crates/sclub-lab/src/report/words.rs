//! Words as the page shows them.

use std::fmt::Write;

use minijinja::{HtmlEscape, Value};

use crate::policies::Name;

/// A note about a policy that is shown beside the paper's.
pub fn about(policy: Name) -> String {
    let more = if policy == Name::SCLUB_SOFT {
        "It assumes that users come from some tight clusters and one broad Gaussian, and that rewards are \
         linear in the features with the same noise everywhere; no bound on its regret is proven. Its \
         constants are one set of its own"
    } else {
        policy.summary
    };
    format!("{} is not in the paper. {more}.", policy.title)
}

/// Text from elsewhere: escaped, with text between backticks as code.
pub fn prose(text: &str) -> Value {
    let mut html = String::new();
    let mut rest = text;
    while let Some((before, code, after)) = next_code(rest) {
        let (before, code) = (HtmlEscape(before), HtmlEscape(code));
        write!(html, "{before}<code>{code}</code>").expect("a string takes all");
        rest = after;
    }
    write!(html, "{}", HtmlEscape(rest)).expect("a string takes all");
    Value::from_safe_string(html)
}

/// The text before the next pair of backticks, between them and after them.
fn next_code(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((before, code, after))
}

/// A name as part of an address: small letters, digits and hyphens.
pub fn slug(name: &str) -> String {
    let mut slug = String::new();
    for character in name.chars() {
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

/// `a`, `a and b`, `a, b and c`.
pub fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backticks_make_code_and_all_else_is_escaped() {
        assert_eq!(
            prose("run `get <it>` & wait").to_string(),
            "run <code>get &lt;it&gt;</code> &amp; wait"
        );
        assert_eq!(prose("a ` b").to_string(), "a ` b");
    }

    #[test]
    fn names_become_addresses() {
        assert_eq!(slug("MovieLens 20M (old)"), "movielens-20m-old");
        assert_eq!(and(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }
}
