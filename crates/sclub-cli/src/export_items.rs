//! `sclub export --items`: the catalogue as JSON lines.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use sclub_server::api::item_line;
use sclub_server::engine::folder_contents;
use sclub_server::env::Env;
use serde_json::Value;

use crate::explain::escaped;
use crate::keeping::explained;
use crate::progress;
use crate::remote::{Remote, block_on, call};

/// The number of items in a request.
const PAGE: usize = 1000;

/// Writes the items in a folder. Returns their number.
pub fn of_folder(data: &Path, out: &mut dyn Write) -> Result<u64> {
    let items = folder_contents(&Env::real(), data)
        .map_err(explained)?
        .items;
    let count = items.len() as u64;
    for item in items {
        writeln!(out, "{}", item_line(item)).context("cannot write items")?;
    }
    Ok(count)
}

/// Writes the items of a running server. Returns their number.
pub fn of_server(remote: &Remote, out: &mut dyn Write, quiet: bool) -> Result<u64> {
    let bar = progress::bar(quiet, None, "{spinner} {human_pos} items");
    let count = block_on(async {
        let mut connection = remote.open().await?;
        let mut path = format!("/v1/items?limit={PAGE}");
        let mut count = 0;
        loop {
            let page = call(&mut connection, "GET", &path, b"").await?;
            let items = page["items"].as_array();
            let items = items.ok_or_else(|| anyhow!("the answer has no items; check --url"))?;
            for item in items {
                writeln!(out, "{item}").context("cannot write items")?;
            }
            count += items.len() as u64;
            bar.set_position(count);
            match &page["next"] {
                Value::String(next) => {
                    path = format!("/v1/items?limit={PAGE}&after={}", escaped(next));
                }
                _ => return Ok(count),
            }
        }
    });
    bar.finish_and_clear();
    count
}
