//! The pattern of a path, for traces.

use std::sync::OnceLock;

use serde_json::Value;

use crate::edge::keys::DEFAULT_SPACE;

/// The paths of the API description, those without parameters first.
fn patterns() -> &'static [String] {
    static PATTERNS: OnceLock<Vec<String>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        let document: Value = serde_json::from_str(&super::document()).unwrap_or_default();
        let paths = document["paths"].as_object();
        let mut paths: Vec<String> = paths
            .into_iter()
            .flat_map(|all| all.keys().cloned())
            .collect();
        paths.sort_by_key(|path| path.contains('{'));
        paths
    })
}

/// The pattern of a path, such as `/v1/users/{id}`, and the name of its space. `None` if the API description has no such path. No
/// pattern has a part of an id.
pub fn route_of(path: &str) -> Option<(String, &str)> {
    let Some((space, rest)) = path
        .strip_prefix("/v1/spaces/")
        .map(|rest| rest.split_once('/').unwrap_or((rest, "")))
    else {
        return pattern_of(path).map(|route| (route.to_owned(), DEFAULT_SPACE));
    };
    if rest.is_empty() {
        return pattern_of(path).map(|route| (route.to_owned(), space));
    }
    let route = pattern_of(&format!("/v1/{rest}"))?;
    let call = route.strip_prefix("/v1/")?;
    Some((format!("/v1/spaces/{{space}}/{call}"), space))
}

fn pattern_of(path: &str) -> Option<&'static str> {
    let is_same = |pattern: &&String| {
        let (parts, given) = (pattern.split('/'), path.split('/'));
        let is_part = |(part, given): (&str, &str)| {
            part == given || part.starts_with('{') && !given.is_empty()
        };
        parts.clone().count() == given.clone().count() && parts.zip(given).all(is_part)
    };
    patterns().iter().find(is_same).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_patterns_of_the_description_and_no_ids() {
        for (path, route, space) in [
            ("/metrics", "/metrics", "default"),
            ("/v1/recommend", "/v1/recommend", "default"),
            ("/v1/feedback/batch", "/v1/feedback/batch", "default"),
            ("/v1/users/anna", "/v1/users/{id}", "default"),
            (
                "/v1/experiments/anna/end",
                "/v1/experiments/{name}/end",
                "default",
            ),
            ("/v1/spaces", "/v1/spaces", "default"),
            ("/v1/spaces/shop", "/v1/spaces/{space}", "shop"),
            (
                "/v1/spaces/shop/recommend",
                "/v1/spaces/{space}/recommend",
                "shop",
            ),
            (
                "/v1/spaces/shop/users/anna",
                "/v1/spaces/{space}/users/{id}",
                "shop",
            ),
        ] {
            assert_eq!(route_of(path), Some((route.to_owned(), space)), "{path}");
        }
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v1/users/",
            "/v1/users/a/b",
            "/secret",
            "/v1/spaces/a/secret",
        ] {
            assert_eq!(route_of(path), None, "{path}");
        }
    }
}
