//! The calls of the catalogue.

mod list;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::HeaderMap;
use serde::de::IgnoredAny;

use super::calls::{check_dim, check_id};
use super::model::{CatalogueItem, ItemFigures, ItemLine, ItemPatch, ItemsPage, ItemsPut, Removed};
use super::query::ItemsQuery;
use super::raw_items::with_features;
use super::{Answer, App, Id, Shared, Work, body, json, parse, plain, run_blocking, wrong_json};
use crate::cluster::Node;
use crate::description::Description;
use crate::edge::ApiError;
use crate::edge::body::{Line, check_json_lines, lines};
use crate::edge::error::ErrorBody;
use crate::engine::{Engine, ItemCount, Refusal, SomeCounts};
use crate::event::DescribedItem;
use crate::state::Catalogue;

/// The maximum number of items in one write.
const MAX_ITEMS_PER_WRITE: usize = 1000;

/// The maximum number of feature values in one write.
const MAX_VALUES_PER_WRITE: usize = 1 << 17;

/// The maximum number of unknown fields that an answer names.
const MAX_NAMED: usize = 100;

/// Inserts items into the catalogue, or replaces those with the same ids: one JSON object a line. An invalid
/// line ends the upload; the items of the lines before it stay. On a server with a transform (`--features`) a line may
/// have the raw fields of the item, such as its title, tags and price, in place of `features`; they are kept in `title`, `tags`,
/// `available` and `data`. An item that exists is replaced as a whole: a field that is not given has its default afterwards.
#[utoipa::path(put, path = "/v1/items", operation_id = "put_items", tag = "items", request_body(content = Option<Vec<ItemLine>>, description = "One item a line. The schema is that of all lines as a list. `application/jsonl` and `application/json` are accepted too", content_type = "application/x-ndjson", example = json!([{"id": "i1", "features": [0.6, 0.8], "title": "Green tea", "tags": ["tea"], "data": {"price": 4.5}}, {"id": "i2", "features": [1.0, 0.0], "available": false}])), responses(
    (status = 200, body = ItemsPut, description = "The number of items, and the number that were new or changed"),
    (status = 400, body = ErrorBody, description = "`bad_json`: a line is not an item; the message has its number"),
    (status = 413, body = ErrorBody, description = "`too_large`: a line is too long; the message has its number"),
    (status = 422, body = ErrorBody, description = "`invalid`: a field is invalid; the message has the line number")))]
pub(super) async fn put(
    State(app): State<Shared>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    let dim = engine.state().dim();
    put_into(&app, &headers, sent, dim, Target::Engine(engine)).await
}

/// The catalogue that items are written to.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Engine(&'a Engine),
    Cluster(&'a Arc<Node>),
}

impl Target<'_> {
    /// Writes items. Returns the number that were new or changed.
    async fn upsert(self, items: Vec<DescribedItem>) -> Result<usize, ApiError> {
        match self {
            Target::Engine(engine) => Ok(engine.upsert(items).await?),
            Target::Cluster(node) => super::cluster::upsert(node, items).await,
        }
    }
}

/// Reads items, and writes them.
pub(super) async fn put_into(
    app: &App,
    headers: &HeaderMap,
    sent: Body,
    mut dim: Option<usize>,
    to: Target<'_>,
) -> Result<Answer, ApiError> {
    check_json_lines(headers)?;
    let transform = match to {
        Target::Engine(engine) => engine.state().identity().features.clone(),
        Target::Cluster(_) => None,
    };
    let mut lines = lines(sent, app.settings.max_body);
    let mut waiting: Vec<DescribedItem> = Vec::new();
    let mut numbers = 0;
    let mut ids: HashSet<String> = HashSet::new();
    let mut unknown = BTreeSet::new();
    let mut put = ItemsPut::default();
    let mut failed = None;
    loop {
        let next = match lines.next().await {
            Ok(Some(line)) => with_features(transform.as_deref(), &line, &mut unknown)
                .and_then(|line| read(app, &line))
                .and_then(|item| check_dim_of_line(&mut dim, &line, item))
                .map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let is_last = !matches!(next, Ok(Some(_)));
        let again = matches!(&next, Ok(Some(item)) if ids.contains(&item.id));
        if is_last
            || again
            || waiting.len() == MAX_ITEMS_PER_WRITE
            || numbers >= MAX_VALUES_PER_WRITE
        {
            let together = std::mem::take(&mut waiting);
            put.items += together.len() as u64;
            if !together.is_empty() {
                put.changed += to.upsert(together).await? as u64;
            }
            ids.clear();
            numbers = 0;
        }
        match next {
            Ok(Some(item)) => {
                ids.insert(item.id.clone());
                numbers += item.features.len() + item.description.len() / size_of::<f64>();
                waiting.push(item);
            }
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    put.unknown_fields = unknown.into_iter().take(MAX_NAMED).collect();
    match failed {
        None => Ok(json(&put)),
        Some(mut error) => {
            let kept = format!("; items taken before it: {}", put.items);
            error.message.push_str(&kept);
            Err(error)
        }
    }
}

/// Parses the item of a line.
pub(super) fn read(app: &App, line: &Line) -> Result<DescribedItem, ApiError> {
    let number = line.number;
    let ItemLine {
        id,
        features,
        title,
        tags,
        available,
        data,
    } = serde_json::from_slice(&line.bytes).map_err(|error| {
        let (problem, error) =
            match serde_json::from_slice::<HashMap<String, IgnoredAny>>(&line.bytes) {
                Ok(_) => ("is not an item", error),
                Err(error) => (
                    "is not one JSON object. Send one object a line; with curl, send a file by --data-binary, which keeps \
                     the line ends",
                    error,
                ),
            };
        wrong_json(&format!("line {number} {problem}"), &line.bytes, &error)
    })?;
    let description = Description {
        title,
        tags,
        is_unavailable: !available,
        data: data.map_or_else(String::new, |data| {
            serde_json::to_string(&data).unwrap_or_default()
        }),
    };
    let settings = &app.settings;
    check_id(settings, &id, || "id".to_owned())
        .and_then(|()| check_dim(settings, "features", features.len()))
        .and_then(|()| check_features(&features))
        .and_then(|()| {
            let checked = description.check();
            checked.map_err(|(field, message)| Refusal::invalid(field, message))
        })
        .map_err(|refusal| {
            let mut error = ApiError::from(refusal);
            error.message = format!("line {number}: {}", error.message);
            error
        })?;
    Ok(DescribedItem {
        id,
        features,
        description,
    })
}

/// Checks that an item has as many features as the others.
fn check_dim_of_line(
    dim: &mut Option<usize>,
    line: &Line,
    item: DescribedItem,
) -> Result<DescribedItem, ApiError> {
    let (given, expected) = (item.features.len(), *dim.get_or_insert(item.features.len()));
    if given == expected {
        return Ok(item);
    }
    let message = format!(
        "line {}: the item has {given} features; it must have {expected}",
        line.number
    );
    Err(ApiError::invalid("features", message))
}

fn check_features(features: &[f64]) -> Result<(), Refusal> {
    sclub::ItemSet::from_rows(features.len(), features)
        .map(drop)
        .map_err(|error| Refusal::invalid("features", error.to_string()))
}

/// Returns a page of the catalogue, or of the items that a search finds, in the order of the catalogue or by counts.
#[utoipa::path(get, path = "/v1/items", operation_id = "items", tag = "items", params(ItemsQuery), responses(
    (status = 200, body = ItemsPage, description = "Some items"),
    (status = 404, body = ErrorBody, description = "`unknown_item`: the item given as `after` is not in the catalogue")))]
pub(super) async fn list(
    State(app): State<Shared>,
    query: Result<Query<ItemsQuery>, QueryRejection>,
) -> Result<Answer, ApiError> {
    let query = parsed_query(query)?;
    Ok(json(&page(&app, query).await?))
}

/// A page of the catalogue of an engine.
pub(super) async fn page(app: &Shared, query: ItemsQuery) -> Result<ItemsPage, ApiError> {
    run_blocking(app, Work::Look, move |_, engine| {
        list::page_of(engine, &query)
    })
    .await?
}

impl ItemsPage {
    /// Sets the counts of its items.
    pub(super) fn set_counts(&mut self, counts: Option<SomeCounts>) {
        self.counted_since = counts.as_ref().and_then(|counts| counts.since);
        self.counts =
            counts.map(|counts| counts.items.into_iter().map(ItemFigures::from).collect());
    }
}

impl From<ItemCount> for ItemFigures {
    fn from(count: ItemCount) -> Self {
        Self {
            shown: count.shown,
            rewards: count.rewards,
            reward_rate: (count.rewards > 0).then(|| count.reward_sum / count.rewards as f64),
        }
    }
}

/// Returns an item of the catalogue.
#[utoipa::path(get, path = "/v1/items/{id}", operation_id = "item", tag = "items", params(("id" = String, Path, description = "Its id")), responses(
    (status = 200, body = CatalogueItem, description = "The item"),
    (status = 404, body = ErrorBody, description = "`unknown_item`: the item is not in the catalogue")))]
pub(super) async fn show(State(app): State<Shared>, Id(id): Id) -> Result<Answer, ApiError> {
    shown(app.ready()?, &id)
}

fn shown(engine: &Engine, id: &str) -> Result<Answer, ApiError> {
    let state = engine.state();
    let catalogue = state.catalogue().ok_or_else(|| unknown(id))?;
    let slot = catalogue.slot(id).ok_or_else(|| unknown(id))?;
    Ok(json(&card(catalogue, slot)))
}

/// The item in a slot.
fn card(catalogue: &Catalogue, slot: usize) -> CatalogueItem {
    card_of(catalogue.item(slot))
}

/// An item as it is shown.
pub(super) fn card_of(item: DescribedItem) -> CatalogueItem {
    CatalogueItem {
        id: item.id,
        features: item.features,
        data: item.description.object().ok().flatten(),
        title: item.description.title,
        tags: item.description.tags,
        available: !item.description.is_unavailable,
    }
}

/// An item as a line of JSON, as `PUT /v1/items` takes it.
pub fn item_line(item: DescribedItem) -> String {
    serde_json::to_string(&card_of(item)).expect("it has only strings, numbers and lists")
}

/// Changes some fields of an item and returns the item. Fields that are not given stay. `data` is merged as in RFC 7396: objects
/// are merged, and null removes a field. On a server with a transform (`--features`) raw fields can be given too, and features
/// that the transform made are made anew; features that were sent stay.
#[utoipa::path(patch, path = "/v1/items/{id}", operation_id = "patch_item", tag = "items", params(("id" = String, Path, description = "Its id")), request_body(content = ItemPatch, example = json!({"available": false, "data": {"price": 5}})), responses(
    (status = 200, body = CatalogueItem, description = "The item with the changes"),
    (status = 404, body = ErrorBody, description = "`unknown_item`: the item is not in the catalogue"),
    (status = 422, body = ErrorBody, description = "`invalid`: a field is unknown or invalid; nothing was changed")))]
pub(super) async fn patch(
    State(app): State<Shared>,
    Id(id): Id,
    request: Request,
) -> Result<Answer, ApiError> {
    let bytes = body(&app, request).await?;
    let patch: serde_json::Map<String, serde_json::Value> = parse(&bytes)?;
    let engine = app.ready()?;
    check_id(&app.settings, &id, || "id".to_owned())?;
    engine.patch(&id, patch).await?;
    shown(engine, &id)
}

/// Removes an item from the catalogue. Decisions that showed it still accept a reward.
#[utoipa::path(delete, path = "/v1/items/{id}", operation_id = "remove_item", tag = "items", params(("id" = String, Path, description = "Its id")), responses(
    (status = 200, body = Removed, description = "`removed` is false if it was not in the catalogue")))]
pub(super) async fn remove(State(app): State<Shared>, Id(id): Id) -> Result<Answer, ApiError> {
    let engine = app.ready()?;
    check_id(&app.settings, &id, || "id".to_owned())?;
    let removed = engine.remove(&id).await?;
    Ok(json(&Removed { removed }))
}

fn unknown(id: &str) -> Refusal {
    Refusal::unknown_item(id)
}

/// The parsed query, or the error for the client, with the name of the parameter.
pub(super) fn parsed_query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    let error = match query {
        Ok(Query(query)) => return Ok(query),
        Err(error) => error.body_text(),
    };
    let reason = error.rsplit("query string: ").next().unwrap_or(&error);
    // "a: b: unknown field `a: b`, expected one of": its name may be any text.
    let mut parts = reason.match_indices(": unknown field `");
    let unknown = parts.find_map(|(at, _)| {
        let (name, rest) = (&reason[..at], &reason[at + 2..]);
        rest.starts_with(&format!("unknown field `{name}`"))
            .then_some(rest)
    });
    let reason = unknown.unwrap_or(reason);
    // "limit: invalid digit found in string", or "duplicate field `limit`"
    let (name, reason) = match reason.split_once(": ") {
        Some((name, reason)) if unknown.is_none() => (name, reason),
        _ => (reason.split('`').nth(1).unwrap_or("query"), reason),
    };
    let message = match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            format!("{name} must be a whole number that is not negative")
        }
        "number too large to fit in target type" => format!("{name} is too large"),
        "provided string was not `true` or `false`" => format!("{name} must be true or false"),
        reason => format!("the query is invalid: {}", plain(reason)),
    };
    Err(ApiError::invalid(name.to_owned(), message))
}

/// The number of entries to list: validated, or the default.
pub(super) fn limit(asked: Option<usize>, default: usize) -> Result<usize, Refusal> {
    const MAX_LIMIT: usize = 1000;
    match asked.unwrap_or(default) {
        limit if limit <= MAX_LIMIT => Ok(limit),
        limit => {
            let message = format!("limit is {limit}; it must be at most {MAX_LIMIT}");
            Err(Refusal::invalid("limit", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    #[test]
    fn a_parameter_is_named_whatever_its_value_says() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "lowercase")]
        #[expect(dead_code, reason = "only its errors are read")]
        struct Known {
            sort: Option<Sort>,
            limit: Option<u64>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Sort {
            Shown,
        }
        let field = |query: &str| {
            let uri: Uri = format!("/?{query}").parse().unwrap();
            let error = parsed_query(Query::<Known>::try_from_uri(&uri)).unwrap_err();
            error.field.clone().unwrap_or_default()
        };
        assert_eq!(field("limit=x"), "limit");
        assert_eq!(field("sort=rewards"), "sort");
        assert_eq!(field("order=1"), "order");
        assert_eq!(field("a:%20b:%20c=1"), "a: b: c");
        assert_eq!(field("sort=unknown%20field%20%60z%60"), "sort");
        assert_eq!(field("sort=:%20unknown%20field%20%60z%60"), "sort");
    }
}
