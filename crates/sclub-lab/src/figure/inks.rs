//! Colours of charts: literal ones for files, CSS variables for pages.

use kuva::Theme;

use crate::policies::Name;

/// The colour of lines that belong to no policy, such as a bound.
pub const GREY: &str = "#767676";

/// The same on a dark ground.
pub const GREY_ON_DARK: &str = "#9AA0A6";

/// The share of its colour that the weakest line keeps, to be seen at all.
const WEAKEST: f64 = 0.3;

fn share(strength: f64) -> f64 {
    WEAKEST + (1.0 - WEAKEST) * strength.clamp(0.0, 1.0)
}

/// The CSS variable with the colour of a policy. Names of policies may have characters that names of variables
/// cannot have.
pub fn page_variable(policy: Name) -> String {
    let mut variable = String::from("--policy-");
    for character in policy.as_str().chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => variable.push(character),
            other => variable.push_str(&format!("_{:x}_", u32::from(other))),
        }
    }
    variable
}

/// A colour of a page, as CSS has it: the policy's variable, or `--bound` for a line of no policy.
pub fn page_colour(policy: Option<Name>, strength: f64) -> String {
    let variable = policy.map_or("--bound".to_owned(), page_variable);
    if strength >= 1.0 {
        format!("var({variable})")
    } else {
        let share = 100.0 * share(strength);
        format!("color-mix(in srgb, var({variable}) {share:.0}%, var(--paper))")
    }
}

/// The same colour on white.
pub(super) fn file_colour(policy: Option<Name>, strength: f64) -> String {
    let full = policy.map_or(GREY, |policy| policy.colors[0]);
    let part = |from: usize| {
        let value = u8::from_str_radix(&full[from..from + 2], 16).unwrap_or(0);
        255.0 + share(strength) * (f64::from(value) - 255.0)
    };
    format!(
        "#{:02X}{:02X}{:02X}",
        part(1) as u8,
        part(3) as u8,
        part(5) as u8
    )
}

/// Text, axes and grid as the page has them.
pub(super) fn page_theme() -> Theme {
    Theme {
        background: "none".into(),
        axis_color: "currentColor".into(),
        grid_color: "var(--grid)".into(),
        tick_color: "currentColor".into(),
        text_color: "currentColor".into(),
        font_family: Some("inherit".into()),
        ..Theme::light()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weaker_colour_is_nearer_to_the_ground() {
        assert_eq!(file_colour(Some(Name::SCLUB), 1.0), "#D55E00");
        // 255 less three tenths of 255 − 0xD5, 255 − 0x5E and 255.
        assert_eq!(file_colour(Some(Name::SCLUB), 0.0), "#F2CEB2");
        assert_eq!(file_colour(None, 1.0), GREY);
        assert_eq!(page_colour(Some(Name::SCLUB), 1.0), "var(--policy-sclub)");
        assert!(page_colour(Some(Name::SCLUB), 0.5).contains("var(--policy-sclub) 65%"));
        let thompson: Name = "ts:club".parse().unwrap();
        assert_eq!(page_colour(Some(thompson), 1.0), "var(--policy-ts_3a_club)");
    }
}
