//! Links between calls: which part of an answer is a parameter of which other call.

use serde_json::{Value, json};

use super::each_operation;

/// A link: the operation and the status that it belongs to, its name, the operation that it leads to, and the parameters and
/// the body there.
struct Link {
    from: &'static str,
    status: &'static str,
    name: &'static str,
    to: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    body: Option<Value>,
}

#[rustfmt::skip] // one link a line
fn links() -> Vec<Link> {
    let link = |from, name, to, parameters| Link { from, status: "200", name, to, parameters, body: None };
    let decision = |at: &str| json!(format!("$response.body#{at}/decision"));
    let reward = json!({"decision": decision(""), "reward": 1.0});
    let rewards = json!({"feedback": [{"decision": decision("/decisions/0"), "reward": 1.0}]});
    let winner = json!({"winner": "$response.body#/arms/0/name"});
    vec![
        Link { body: Some(reward), ..link("recommend", "reward", "feedback", &[]) },
        Link { body: Some(rewards), ..link("recommend_batch", "rewards", "feedback_batch", &[]) },
        link("recommend", "user", "user", &[("id", "$request.body#/user")]),
        link("recommend", "forget", "forget", &[("id", "$request.body#/user")]),
        link("recommend", "item", "item", &[("id", "$response.body#/items/0/id")]),
        link("put_items", "item", "item", &[("id", "$request.body#/0/id")]),
        link("put_items", "patch", "patch_item", &[("id", "$request.body#/0/id")]),
        link("put_items", "remove", "remove_item", &[("id", "$request.body#/0/id")]),
        link("items", "next_page", "items", &[("after", "$response.body#/next")]),
        link("items", "item", "item", &[("id", "$response.body#/items/0/id")]),
        link("items", "patch", "patch_item", &[("id", "$response.body#/items/0/id")]),
        link("items", "remove", "remove_item", &[("id", "$response.body#/items/0/id")]),
        link("item", "patch", "patch_item", &[("id", "$response.body#/id")]),
        link("item", "remove", "remove_item", &[("id", "$response.body#/id")]),
        link("user", "cluster", "cluster", &[("id", "$response.body#/cluster")]),
        link("user", "forget", "forget", &[("id", "$response.body#/user")]),
        link("clusters", "next_page", "clusters", &[("after", "$response.body#/next")]),
        link("clusters", "cluster", "cluster", &[("id", "$response.body#/clusters/0/cluster")]),
        link("cluster", "member", "user", &[("id", "$response.body#/members/0")]),
        link("cluster", "favourite", "item", &[("id", "$response.body#/favourites/0/id")]),
        link("history", "next_page", "history", &[("before", "$response.body#/next")]),
        Link { body: Some(winner), ..link("start_experiment", "end", "end_experiment", &[("name", "$response.body#/name")]) },
        link("spaces", "space", "space", &[("space", "$response.body#/spaces/0/name")]),
        Link { status: "201", ..link("make_space", "space", "space", &[("space", "$response.body#/name")]) },
        Link { status: "201", ..link("make_space", "delete", "delete_space", &[("space", "$response.body#/name"), ("confirm", "$response.body#/name")]) },
    ]
}

/// Adds the links to the answers.
pub(super) fn add(document: &mut Value) {
    let links = links();
    each_operation(document, |_, _, operation| {
        let id = operation["operationId"].clone();
        for link in links.iter().filter(|link| id == link.from) {
            let mut described = json!({"operationId": link.to});
            for (name, value) in link.parameters {
                described["parameters"][name] = (*value).into();
            }
            if let Some(body) = &link.body {
                described["requestBody"] = body.clone();
            }
            operation["responses"][link.status]["links"][link.name] = described;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_link_joins_operations_and_parameters_that_exist() {
        let mut document: Value = serde_json::from_str(&super::super::document()).unwrap();
        let mut known = BTreeSet::new();
        each_operation(&mut document, |_, _, operation| {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let answers = operation["responses"].as_object().unwrap().keys();
            known.extend(answers.map(|status| (id.clone(), status.clone())));
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            known.extend(parameters.map(|about| (id.clone(), about["name"].to_string())));
        });
        let has = |id: &str, what: String| known.contains(&(id.to_owned(), what));
        for link in links() {
            assert!(has(link.from, link.status.to_owned()), "{}", link.from);
            assert!(has(link.to, "503".to_owned()), "{}", link.to);
            for (name, _) in link.parameters {
                assert!(has(link.to, json!(name).to_string()), "{} {name}", link.to);
            }
        }
    }
}
