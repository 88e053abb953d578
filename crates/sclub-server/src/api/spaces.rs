//! The calls of spaces: `/v1/spaces/{space}/…` has every call that `/v1/…` has.
//!
//! Nothing tells a caller without a key of a space whether the space exists: the key is checked first, by the keys of
//! all spaces, and the answer to a wrong one is the same for every name.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{any, get};
use sclub_features::whole_text;
use serde::Serialize;
use serde_json::Value;
use tower::Service;
use utoipa::ToSchema;

use super::items::parsed_query;
use super::query::DeleteSpaceQuery;
use super::{Answer, Id, admin_route, body, counted, json, parse};
use crate::edge::error::{ErrorBody, wrong_method};
use crate::edge::guard::{Caller, Denied};
use crate::edge::serve::forwarded;
use crate::edge::{ApiError, Role, Scope};
use crate::spaces::{Given, Space, Spaces, drop_unset, unknown_space};

/// The route of one space.
pub(super) const ONE: &str = "/v1/spaces/{space}";

/// Some spaces.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpacesList {
    /// The spaces that the key opens, by name.
    pub spaces: Vec<SpaceCard>,
}

/// A space.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpaceCard {
    /// Its name.
    pub name: String,
    /// `ready`, `starting` while its log is read, or `broken` if it cannot be opened.
    pub status: &'static str,
    /// The reason why it cannot be opened.
    pub reason: Option<String>,
    /// Its policy.
    pub policy: Option<&'static str>,
    /// The number of features of its items, once it is known.
    pub dim: Option<u64>,
    /// The number of items.
    pub items: u64,
    /// The number of users.
    pub users: u64,
    /// The number of events.
    pub events: u64,
    /// The settings that it was made with. The default space has those of the server, which are not here.
    #[schema(value_type = Object)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// A space that was deleted.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpaceDeleted {
    /// Its name.
    pub deleted: String,
}

/// Adds the calls of spaces to the router of the default space.
pub fn with_spaces(router: Router, spaces: Arc<Spaces>) -> Router {
    let default = Arc::clone(&spaces.default_space().app);
    let routes = Router::new()
        .route("/v1/spaces", get(list).fallback(wrong_method))
        .route(
            ONE,
            get(show).put(create).delete(delete).fallback(wrong_method),
        )
        .route_layer(from_fn_with_state(default, counted))
        .route("/v1/spaces/{space}/{*call}", any(forward));
    router.merge(routes.with_state(spaces))
}

/// Adds the calls of spaces to the router of a node: it refuses them.
pub fn no_spaces(router: Router) -> Router {
    let refuse = || async {
        ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "unsupported",
            "a cluster has one space; run a cluster, with a name of its own, for each model",
        )
    };
    router
        .route("/v1/spaces", any(refuse))
        .route("/v1/spaces/{*call}", any(refuse))
}

/// Answers a call of a space by the router of the space.
async fn forward(State(spaces): State<Arc<Spaces>>, request: Request) -> Answer {
    let path = request.uri().path();
    let rest = path.strip_prefix("/v1/spaces/").unwrap_or_default();
    let (name, call) = rest.split_once('/').unwrap_or((rest, ""));
    let found = spaces.guard().identify(&request).and_then(|caller| {
        let found = of_space(caller, name).and_then(|caller| {
            spaces.get(name).ok_or_else(|| Denied {
                name: caller.name,
                error: unknown_space(name),
            })
        });
        // The guard of a space counts its own calls. Calls that reach no space count here.
        if found.is_err() {
            spaces.guard().check(Role::Read, &request)?;
        }
        found
    });
    match found {
        Ok(space) => {
            let uri = uri_of_call(call, request.uri());
            let mut router = space.router.clone();
            match router.call(forwarded(request, uri)).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        }
        Err(Denied { name: key, error }) => {
            spaces.default_space().app.refused_outside(path);
            if let Some((route, Some(space))) = admin_route(request.method(), path)
                && let Some(mut record) = spaces.guard().record(&request, route, space)
            {
                record.by(key);
                record.answered(error.status);
            }
            error.into_response()
        }
    }
}

/// The path of a call in the router of its space, with the query.
fn uri_of_call(call: &str, uri: &Uri) -> Uri {
    let base = match call {
        "metrics" | "healthz" | "readyz" => "/",
        _ => "/v1/",
    };
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    // A part of a path that was parsed is one too.
    Uri::try_from(format!("{base}{call}{query}")).unwrap_or_default()
}

/// Checks that a caller may use a space.
fn of_space(caller: Caller, name: &str) -> Result<Caller, Denied> {
    match caller.scope.opens(name) {
        true => Ok(caller),
        false => Err(Denied {
            name: caller.name,
            error: ApiError::forbidden("the key is not a key of this space"),
        }),
    }
}

/// Checks that a caller may make and delete spaces.
fn of_server(caller: Caller) -> Result<Caller, Denied> {
    match caller.scope {
        Scope::All => Ok(caller),
        Scope::One(_) => Err(Denied {
            name: caller.name,
            error: ApiError::forbidden(
                "the key is of one space; this call needs a key with the role admin of all spaces",
            ),
        }),
    }
}

/// Lists the spaces that the key opens: all of them, or its own.
#[utoipa::path(get, path = "/v1/spaces", operation_id = "spaces", tag = "spaces", responses(
    (status = 200, body = SpacesList, description = "The spaces")))]
pub(super) async fn list(
    State(spaces): State<Arc<Spaces>>,
    request: Request,
) -> Result<Answer, ApiError> {
    let caller = spaces
        .guard()
        .check(Role::Read, &request)
        .map_err(|denied| denied.error)?;
    let own = spaces.list().into_iter();
    let own = own.filter(|space| caller.scope.opens(&space.name));
    Ok(json(&SpacesList {
        spaces: own.map(|space| card(&space)).collect(),
    }))
}

/// Returns a space.
#[utoipa::path(get, path = "/v1/spaces/{space}", operation_id = "space", tag = "spaces", params(("space" = String, Path, description = "The name of the space")), responses(
    (status = 200, body = SpaceCard, description = "The space"),
    (status = 404, body = ErrorBody, description = "`unknown_space`: there is no such space")))]
pub(super) async fn show(
    State(spaces): State<Arc<Spaces>>,
    Id(name): Id,
    request: Request,
) -> Result<Answer, ApiError> {
    let caller = spaces.guard().check(Role::Read, &request);
    caller
        .and_then(|caller| of_space(caller, &name))
        .map_err(|denied| denied.error)?;
    let space = spaces.get(&name).ok_or_else(|| unknown_space(&name))?;
    Ok(json(&card(&space)))
}

/// Makes a space with some settings, by their names as flags of `sclub serve`. Limits that are not given are the
/// server's, and other settings have their defaults. A data folder that is in the place of the space already, for
/// example from `sclub restore`, is opened. Needs a key of all spaces.
#[utoipa::path(put, path = "/v1/spaces/{space}", operation_id = "make_space", tag = "spaces", params(("space" = String, Path, description = "The name of the space")), request_body(content = Option<Object>, example = json!({"policy": "sclub-soft", "dim": 16, "rate": 500})), responses(
    (status = 200, body = SpaceCard, description = "The space exists already, with the same settings"),
    (status = 201, body = SpaceCard, description = "The space is made"),
    (status = 409, body = ErrorBody, description = "`exists`: the space has other settings"),
    (status = 422, body = ErrorBody, description = "`invalid`: the name or a setting is invalid")))]
pub(super) async fn create(
    State(spaces): State<Arc<Spaces>>,
    Id(name): Id,
    request: Request,
) -> Result<Answer, ApiError> {
    let work = async |request| {
        let bytes = body(&spaces.default_space().app, request).await?;
        let mut given: Given = match bytes.is_empty() {
            true => Given::new(),
            false => parse(&bytes)?,
        };
        drop_unset(&mut given)?;
        if given.contains_key("after") && !given.contains_key("unanswered") {
            let message = "after is set without unanswered; set both, or leave after out";
            return Err(ApiError::invalid("after", message));
        }
        given.values_mut().for_each(make_whole);
        let (space, is_new) = spaces.create(&name, given).await?;
        let mut answer = json(&card(&space));
        if is_new {
            *answer.status_mut() = StatusCode::CREATED;
        }
        Ok(answer)
    };
    change(&spaces, &name, request, work).await
}

/// In JSON 16.0 is the same number as 16.
fn make_whole(value: &mut Value) {
    if let Some(text) = value
        .as_f64()
        .filter(|_| value.is_f64())
        .and_then(whole_text)
        && let Ok(number) = serde_json::from_str(&text)
    {
        *value = number;
    }
}

/// Deletes a space with everything that it has learned. `confirm` must be the name of the space. Needs a key of all
/// spaces.
#[utoipa::path(delete, path = "/v1/spaces/{space}", operation_id = "delete_space", tag = "spaces", params(("space" = String, Path, description = "The name of the space"), DeleteSpaceQuery), responses(
    (status = 200, body = SpaceDeleted, description = "The space and its data folder are deleted"),
    (status = 404, body = ErrorBody, description = "`unknown_space`: there is no such space"),
    (status = 422, body = ErrorBody, description = "`invalid`: `confirm` is not the name of the space, or it is the default space")))]
pub(super) async fn delete(
    State(spaces): State<Arc<Spaces>>,
    Id(name): Id,
    query: Result<Query<DeleteSpaceQuery>, QueryRejection>,
    request: Request,
) -> Result<Answer, ApiError> {
    let work = async |_| {
        let query = parsed_query(query)?;
        if query.confirm.as_deref() != Some(&*name) {
            let message = format!(
                "everything in space '{name}' will be lost; repeat its name in the query: ?confirm={name}"
            );
            return Err(ApiError::invalid("confirm", message));
        }
        spaces.delete(&name).await?;
        Ok(json(&SpaceDeleted {
            deleted: name.clone(),
        }))
    };
    change(&spaces, &name, request, work).await
}

/// Answers a call that makes or deletes a space, and records it in the audit log.
async fn change(
    spaces: &Spaces,
    name: &str,
    request: Request,
    work: impl AsyncFnOnce(Request) -> Result<Answer, ApiError>,
) -> Result<Answer, ApiError> {
    let mut record = spaces.guard().record(&request, ONE, name);
    let caller = spaces.guard().check(Role::Admin, &request);
    let caller = caller.and_then(of_server);
    if let Some(record) = &mut record {
        record.by(match &caller {
            Ok(caller) => caller.name.clone(),
            Err(denied) => denied.name.clone(),
        });
    }
    let outcome = match caller {
        Ok(_) => work(request).await,
        Err(denied) => Err(denied.error),
    };
    if let Some(record) = record {
        record.answered(match &outcome {
            Ok(answer) => answer.status(),
            Err(error) => error.status,
        });
    }
    outcome
}

fn card(space: &Space) -> SpaceCard {
    let engine = space.app.engine();
    let state = engine.map(|engine| engine.state());
    let state = state.as_deref();
    SpaceCard {
        name: space.name.to_string(),
        status: match (engine, space.app.failure()) {
            (Some(_), _) => "ready",
            (None, Some(_)) => "broken",
            (None, None) => "starting",
        },
        reason: space.app.failure().map(str::to_owned),
        policy: state.map(|state| state.identity().policy.name),
        dim: state.and_then(|state| state.dim()).map(|dim| dim as u64),
        items: state
            .and_then(|state| state.catalogue())
            .map_or(0, |catalogue| catalogue.len()) as u64,
        users: state.map_or(0, |state| state.users().len()) as u64,
        events: state.map_or(0, |state| state.events()),
        settings: space.given.clone(),
    }
}
