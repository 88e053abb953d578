//! The files of a table.

use serde_json::json;

use super::latex::latex;
use super::page::page;
use super::picture::ranks_picture;
use super::table::Field;
use super::text::text;

/// The names of the files.
pub const FILES: [&str; 5] = [
    "index.html",
    "field.json",
    "field.tex",
    "field.txt",
    "ranks.svg",
];

/// The files by name: the page, all digits, a table for a paper, the results as text, and the picture of the ranks,
/// which a table of one policy or world does not have. `command` made them, and `took` says how long it took.
///
/// # Errors
/// If the template of the page is invalid, which a test rules out.
pub fn files(
    field: &Field,
    command: &str,
    took: &str,
    is_complete: bool,
) -> Result<Vec<(&'static str, String)>, minijinja::Error> {
    let document = json!({
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "complete": is_complete,
        "field": field,
    });
    let [html, json, tex, txt, svg] = FILES;
    let mut files = vec![
        (html, page(field, command, took, is_complete)?),
        (json, format!("{document:#}\n")),
        (tex, latex(field)),
        (txt, text(field, is_complete)),
    ];
    files.extend(ranks_picture(field).map(|picture| (svg, picture)));
    Ok(files)
}
