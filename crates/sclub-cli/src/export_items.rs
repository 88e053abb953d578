//! `sclub export --items`: the catalogue as JSON lines.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sclub_server::api::item_line;
use sclub_server::engine::folder_contents;
use sclub_server::env::Env;
use serde_json::Value;

use crate::explain::escaped;
use crate::keeping::explained;
use crate::progress;
use crate::remote::{Refusal, Remote, block_on, call};

/// The number of items in a request.
const PAGE: usize = 1000;

/// The number of times that the pages are read, at most.
const PASSES: usize = 20;

/// Writes the items in a folder. Returns their number.
pub fn of_folder(data: &Path, out: &mut dyn Write) -> Result<u64> {
    let items = folder_contents(&Env::reading(data), data)
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
        let page = async |after: Option<String>| {
            let after = after.map_or_else(String::new, |id| format!("&after={}", escaped(&id)));
            let path = format!("/v1/items?limit={PAGE}{after}");
            call(&mut connection, "GET", &path, b"").await
        };
        write_pages(page, out, &|count| bar.set_position(count)).await
    });
    bar.finish_and_clear();
    count
}

/// Writes the items of all pages, each item once. `page` returns the page after an item.
///
/// The removal of an item moves another one, perhaps to a page that was read before. So the pages are read again until no item is
/// removed meanwhile: then every item has been seen that was there all the time.
async fn write_pages(
    mut page: impl AsyncFnMut(Option<String>) -> Result<Value>,
    out: &mut dyn Write,
    written: &dyn Fn(u64),
) -> Result<u64> {
    let mut ids: HashSet<String> = HashSet::new();
    for _ in 0..PASSES {
        let (mut after, mut order, mut is_same) = (None, None, true);
        loop {
            let is_first = after.is_none();
            let page = match page(after).await {
                Err(error) if !is_first && is_unknown_item(&error) => {
                    is_same = false;
                    break;
                }
                answer => answer?,
            };
            let revision = &page["order_revision"];
            is_same &= order.get_or_insert_with(|| revision.clone()) == revision;
            let items = page["items"].as_array();
            let items = items.ok_or_else(|| anyhow!("the answer has no items; check --url"))?;
            for item in items {
                let id = item["id"].as_str().unwrap_or_default();
                if !ids.contains(id) {
                    writeln!(out, "{item}").context("cannot write items")?;
                    ids.insert(id.to_owned());
                }
            }
            written(ids.len() as u64);
            after = page["next"].as_str().map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        if is_same {
            return Ok(ids.len() as u64);
        }
    }
    bail!(
        "the catalogue was read {PASSES} times, and each time items were removed meanwhile, so that others may be missing; try \
         again later, or stop the server and export its folder with --data"
    )
}

/// Returns true if the last item of a page is no longer there.
fn is_unknown_item(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Refusal>()
        .is_some_and(|refusal| refusal.code == "unknown_item")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sclub_server::state::Catalogue;
    use serde_json::json;

    /// Pages of 3 items as the server makes them. Before each page but the first, `remove` is called.
    fn exported(
        items: usize,
        mut remove: impl FnMut(&mut Catalogue, usize),
    ) -> Result<Vec<String>> {
        let mut catalogue = Catalogue::new(1, false).unwrap();
        for item in 0..items {
            catalogue.upsert(&format!("i{item}"), &[1.0], None).unwrap();
        }
        let mut read = 0;
        let page = async |after: Option<String>| {
            if read > 0 {
                remove(&mut catalogue, read);
            }
            read += 1;
            let first = match &after {
                None => 0,
                Some(id) => match catalogue.slot(id) {
                    Some(slot) => slot + 1,
                    None => {
                        let body = br#"{"error": {"code": "unknown_item", "message": "gone"}}"#;
                        return Err(Refusal::answered(404, body).into());
                    }
                },
            };
            let ids: Vec<&str> = (first..catalogue.len().min(first + 3))
                .map(|slot| &*catalogue.entry(slot).id)
                .collect();
            let next = ids.last().filter(|_| first + 3 < catalogue.len());
            let items: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
            Ok(json!({"items": items, "next": next, "order_revision": catalogue.order_revision()}))
        };
        let mut out = Vec::new();
        let count = block_on(write_pages(page, &mut out, &|_| ()))?;
        let lines = String::from_utf8(out).unwrap();
        let ids: Vec<String> = lines
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap()["id"]
                    .as_str()
                    .unwrap()
                    .into()
            })
            .collect();
        assert_eq!(ids.len() as u64, count);
        Ok(ids)
    }

    fn all(items: std::ops::Range<usize>) -> Vec<String> {
        items.map(|item| format!("i{item}")).collect()
    }

    #[test]
    fn items_that_are_there_all_the_time_are_exported_though_others_are_removed() {
        assert_eq!(exported(10, |_, _| ()).unwrap(), all(0..10));
        // i9 moves to the first page, which has been read.
        let mut ids = exported(10, |catalogue, read| {
            if read == 1 {
                assert!(catalogue.remove("i0", true));
            }
        })
        .unwrap();
        assert_eq!(ids.pop().unwrap(), "i9");
        assert_eq!(ids, all(0..9));
        // The last item of a page is removed.
        let mut ids = exported(10, |catalogue, read| {
            if read == 2 {
                assert!(catalogue.remove("i5", true));
            }
        })
        .unwrap();
        ids.sort();
        assert_eq!(ids, all(0..10));
    }

    #[test]
    fn removals_without_end_are_an_error() {
        let error = exported(10, |catalogue, read| {
            let id = format!("i{}", read * 7 % 10);
            assert!(catalogue.remove(&id, true));
            catalogue.upsert(&id, &[1.0], None).unwrap();
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--data"), "{error}");
    }
}
