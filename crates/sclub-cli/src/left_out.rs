//! The spaces that a command on one space leaves out: a server has a backup only if each of them has one.

use std::path::Path;

use sclub_server::edge::keys::{DEFAULT_SPACE, check_space};

use crate::drill::get;
use crate::remote::Remote;

/// The names of the spaces in a data folder beside the default one.
fn of_folder(data: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(data.join("spaces"));
    let folders = folders.into_iter().flatten().flatten();
    let names = folders
        .filter(|folder| folder.path().is_dir())
        .filter_map(|folder| folder.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_other(name)).collect();
    names.sort();
    names
}

/// The names of the spaces of a server beside the default one, as far as its key opens them. Empty for the URL of a space.
fn of_server(remote: &Remote) -> Vec<String> {
    // A server of an earlier version has no such list, and a space has none either.
    let list = get(remote, "/v1/spaces").unwrap_or_default();
    let spaces = list["spaces"].as_array().into_iter().flatten();
    let names = spaces.filter_map(|space| space["name"].as_str());
    let names = names.filter(|name| is_other(name));
    names.map(str::to_owned).collect()
}

fn is_other(name: &str) -> bool {
    name != DEFAULT_SPACE && check_space(name).is_ok()
}

/// Says which spaces of a folder a command left out. `done` says what was not done with them.
pub fn tell_of_folder(data: &Path, done: &str, command: &str) {
    let spaces = data.join("spaces").join("NAME");
    let how = format!("`{command} --data {}`", spaces.display());
    tell(&of_folder(data), done, &how);
}

/// Says which spaces of a server a backup left out.
pub fn tell_of_server(remote: &Remote, done: &str, command: &str) {
    let how = format!("`{command} --url {}/v1/spaces/NAME`", remote.url());
    tell(&of_server(remote), done, &how);
}

fn tell(names: &[String], done: &str, how: &str) {
    if names.is_empty() {
        return;
    }
    let names = names.join(", ");
    eprintln!(
        "sclub: only the space default {done}, not {names}; each needs a command of its own: {how}"
    );
}
