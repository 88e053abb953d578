//! `sclub import` and `sclub reteach`: what becomes of the items, and of the folder that is imported into.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::server::Server;
use crate::teach::{IMPORT, done, features, folder_with_files, refused, run, text};

/// Items `i0` to `i8` with descriptions, one JSON object a line.
fn described() -> String {
    let line = |item: usize| {
        let tag = ["even", "odd"][item % 2];
        let line = json!({"id": format!("i{item}"), "features": features(item), "title": format!("Item {item}"),
                          "tags": [tag], "data": {"price": item}, "available": item != 3});
        format!("{line}\n")
    };
    (0..9).map(line).collect()
}

fn cards(server: &Server) -> Value {
    server.ok("GET", "/v1/items", "")["items"].clone()
}

#[test]
fn an_import_keeps_the_other_spaces_and_files_of_the_folder() {
    let folder = folder_with_files();
    let folder = folder.path();
    let data = folder.join("shop");
    let server = Server::start(&data, &["--policy", "linucb-ind"]);
    server.ok("PUT", "/v1/items", &described());
    let made = server.call("PUT", "/v1/spaces/other", "{\"policy\": \"linucb-one\"}");
    assert!(made.0 < 300, "{}", made.1);
    server.ok("PUT", "/v1/spaces/other/items", &described());
    let answer = server.ok("POST", "/v1/spaces/other/recommend", r#"{"user": "u1"}"#);
    let feedback = json!({"decision": answer["decision"], "reward": 1}).to_string();
    server.ok("POST", "/v1/spaces/other/feedback", &feedback);
    let other = |server: &Server| {
        let state = server.ok("GET", "/v1/spaces/other/state?hash=true", "");
        (
            state["hash"].clone(),
            state["policy"].clone(),
            state["rounds"].clone(),
        )
    };
    let before = other(&server);
    let items = cards(&server);
    server.stop();
    fs::write(data.join("note.txt"), "mine").unwrap();

    let import = [
        "import",
        "--interactions",
        "rows.csv",
        "--data",
        "shop",
        "--quiet",
    ];
    done(folder, &import);
    let names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(fs::read_to_string(data.join("note.txt")).unwrap(), "mine");
    done(folder, &["verify", "--data", "shop"]);
    let server = Server::start(&data, &[]);
    assert_eq!(server.state()["rounds"], json!(700));
    assert_eq!(other(&server), before);
    // The catalogue that was there before has its descriptions.
    assert_eq!(cards(&server), items);
    server.stop();

    // An import into the folder of a space keeps the settings of that space.
    let settings = fs::read(data.join("spaces/other/settings.toml")).unwrap();
    let server = Server::start(&data, &[]);
    let made = server.call("PUT", "/v1/spaces/third", "{\"policy\": \"linucb-one\"}");
    assert!(made.0 < 300, "{}", made.1);
    server.ok("PUT", "/v1/spaces/third/items", &described());
    server.stop();
    let import = [
        "import",
        "--interactions",
        "rows.csv",
        "--data",
        "shop/spaces/third",
        "--quiet",
    ];
    done(folder, &import);
    assert_eq!(
        fs::read(data.join("spaces/third/settings.toml")).unwrap(),
        settings
    );
    let server = Server::start(&data, &[]);
    let state = server.ok("GET", "/v1/spaces/third/state", "");
    assert_eq!(
        (&state["rounds"], &state["policy"]),
        (&json!(700), &json!("linucb-one"))
    );
    assert_eq!(other(&server), before);
    server.stop();
}

#[test]
fn reteaching_carries_the_descriptions_of_items() {
    let folder = folder_with_files();
    let folder = folder.path();
    let server = Server::start(&folder.join("shop"), &["--policy", "linucb-ind"]);
    server.ok("PUT", "/v1/items", &described());
    let items = cards(&server);
    server.stop();
    let args = [
        "reteach",
        "--from",
        "shop",
        "--data",
        "other",
        "--policy",
        "linucb-one",
        "--quiet",
    ];
    done(folder, &args);
    let server = Server::start(&folder.join("other"), &[]);
    assert_eq!(cards(&server), items);
    server.stop();
}

const SHOP: &str = "sku,title,tags,available,price,maker,url\n\
    a,green tea,tea|hot,true,$3.00,Ito,http://x/a\n\
    b,black tea,tea|hot,yes,$4.00,Ito,http://x/b\n\
    c,iced coffee,coffee|cold,0,\"$1,005.50\",Nero,http://x/c\n\
    d,filter coffee,coffee|hot,,$2.00,Nero,http://x/d\n";

fn fit(folder: &Path, items: &str, dim: &str, out: &str) -> String {
    let args = [
        "features",
        "--items",
        items,
        "--dim",
        dim,
        "--tags",
        "tags",
        "--category",
        "maker",
        "--out",
        out,
    ];
    done(folder, &args)
}

fn import_shop(folder: &Path, data: &str) {
    let args = [
        "import",
        "--interactions",
        "rows.csv",
        "--items",
        "shop.csv",
        "--features",
        "made/transform.json",
        "--data",
        data,
        "--quiet",
    ];
    done(folder, &args);
}

fn shop_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shop.csv"), SHOP).unwrap();
    let rows = "user,item,reward\nu,a,1\nu,c,0\nv,b,0\nv,d,1\n";
    fs::write(folder.path().join("rows.csv"), rows).unwrap();
    fit(folder.path(), "shop.csv", "5", "made");
    folder
}

#[test]
fn imported_items_have_the_columns_of_the_catalogue() {
    let folder = shop_folder();
    let folder = folder.path();
    import_shop(folder, "data");
    let server = Server::start(&folder.join("data"), &[]);
    let card = server.ok("GET", "/v1/items/c", "");
    assert_eq!(
        (&card["title"], &card["tags"], &card["available"]),
        (
            &json!("iced coffee"),
            &json!(["coffee", "cold"]),
            &json!(false)
        )
    );
    assert_eq!(
        card["data"],
        json!({"sku": "c", "price": 1005.5, "maker": "Nero", "url": "http://x/c"})
    );
    let shown = |filter: Value| {
        let request = json!({"user": "u", "k": 10, "filter": filter}).to_string();
        let answer = server.ok("POST", "/v1/recommend", &request);
        answer["items"].as_array().unwrap().len()
    };
    assert_eq!(shown(json!({})), 3);
    assert_eq!(
        shown(json!({"tags": "hot", "maker": "Ito", "price": {"max": 3.5}})),
        1
    );
    server.stop();

    fs::write(folder.join("shop.csv"), SHOP.replace(",yes,", ",perhaps,")).unwrap();
    let args = [
        "import",
        "--interactions",
        "rows.csv",
        "--items",
        "shop.csv",
        "--features",
        "made/transform.json",
        "--data",
        "new",
    ];
    let error = refused(folder, &args);
    assert!(
        error.contains("shop.csv:3: ") && error.contains("'perhaps'"),
        "{error}"
    );
}

#[test]
fn availability_is_left_out_of_the_features() {
    let folder = shop_folder();
    let folder = folder.path();
    let shop = SHOP.replace(",true,", ",1,").replace(",yes,", ",1,");
    fs::write(folder.join("shop.csv"), &shop).unwrap();
    let said = "available is left out: it says whether an item can be shown";
    let words = fit(folder, "shop.csv", "5", "made");
    assert!(words.contains(said), "{words}");
    let without: Vec<String> = shop
        .lines()
        .map(|line| {
            let (before, after) = line.split_at(line.match_indices(',').nth(2).unwrap().0);
            let after = after.split_once(',').unwrap().1;
            let rest = after.split_once(',').unwrap().1;
            format!("{before},{rest}")
        })
        .collect();
    fs::write(folder.join("plain.csv"), without.join("\n")).unwrap();
    let words = fit(folder, "plain.csv", "5", "plain");
    assert!(!words.contains(said), "{words}");
    let file = |path: &str| fs::read(folder.join(path)).unwrap();
    assert_eq!(file("made/transform.json"), file("plain/transform.json"));

    import_shop(folder, "data");
    let server = Server::start(&folder.join("data"), &[]);
    let written = fs::read_to_string(folder.join("made/items.csv")).unwrap();
    for line in written.lines().skip(1) {
        let (id, numbers) = line.split_once(',').unwrap();
        let numbers: Vec<f64> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
        let path = format!("/v1/items/{id}");
        assert_eq!(server.ok("GET", &path, "")["features"], json!(numbers));
        for available in [false, true] {
            let patch = json!({"available": available}).to_string();
            assert_eq!(
                server.ok("PATCH", &path, &patch)["features"],
                json!(numbers)
            );
        }
    }
    server.stop();
}

#[test]
fn an_exported_catalogue_is_imported_as_it_was() {
    let folder = shop_folder();
    let folder = folder.path();
    import_shop(folder, "data");
    let export = |out: &str| {
        let args = ["export", "--data", "data", "--out", "log.jsonl", "--items"];
        done(folder, &[&args[..], &[out]].concat());
    };
    // Features of the export are those of the catalogue that it was made from.
    export("items.jsonl");
    let args = [
        "features",
        "--items",
        "items.jsonl",
        "--dim",
        "5",
        "--tags",
        "tags",
        "--category",
        "maker",
        "--ignore",
        "sku",
        "--out",
        "again",
    ];
    let words = done(folder, &args);
    assert!(words.contains("features is left out"), "{words}");
    let file = |path: &str| fs::read(folder.join(path)).unwrap();
    assert_eq!(file("made/items.npy"), file("again/items.npy"));

    let server = Server::start(&folder.join("data"), &[]);
    let own = json!({"id": "own", "features": [0, 0, 0, 0, 1], "tags": ["x"], "available": false,
                     "data": {"title": "inner", "price": "$7.00", "features": [1, 2], "more": {"a": [""]}}});
    server.ok("PUT", "/v1/items", &own.to_string());
    let items = cards(&server);
    assert_eq!(items.as_array().unwrap().len(), 5);
    server.stop();
    export("items.jsonl");
    let mut import = vec![
        "import",
        "--interactions",
        "rows.csv",
        "--items",
        "items.jsonl",
        "--quiet",
        "--data",
    ];
    let imported = |args: &[&str], data: &str| {
        done(folder, &[args, &[data]].concat());
        let server = Server::start(&folder.join(data), &[]);
        let items = cards(&server);
        server.stop();
        items
    };
    assert_eq!(imported(&import, "vectors"), items);
    import.splice(1..1, ["--features", "made/transform.json"]);
    assert_eq!(imported(&import, "transform"), items);

    // Words for availability are understood, and a vector of another length is an error with its line.
    let lines = fs::read_to_string(folder.join("items.jsonl")).unwrap();
    let words = lines.replace("\"available\":false", "\"available\":\"no\"");
    assert_ne!(words, lines);
    fs::write(folder.join("items.jsonl"), words).unwrap();
    assert_eq!(imported(&import, "words"), items);
    import.drain(1..3);
    assert_eq!(imported(&import, "word-vectors"), items);
    import.splice(1..1, ["--features", "made/transform.json"]);
    let short = lines.replace("[0.0,0.0,0.0,0.0,1.0]", "[0.0,1.0]");
    fs::write(folder.join("items.jsonl"), short).unwrap();
    let error = refused(folder, &[&import[..], &["short"]].concat());
    assert!(
        error.contains("items.jsonl:5")
            && error.contains("there are 2 features; the transform makes 5"),
        "{error}"
    );
}

#[test]
fn rows_without_a_reward_or_with_a_wrong_time_are_refused() {
    let folder = folder_with_files();
    let folder = folder.path();
    for (rows, expected) in [
        ("user,item,reward\nu,i1\n", "rows.csv:2: there is no reward"),
        (
            "user,item,reward,time\nu,i1,1,2024-02-29\nu,i1,1,2024-02-30\n",
            "rows.csv:3: the time '2024-02-30' is neither",
        ),
        (
            "user,item,reward,time\nu,i1,1,-5\n",
            "rows.csv:2: the time '-5' is out of range",
        ),
        (
            "user,item,reward,time\nu,i1,1,99999999999999999999\n",
            "rows.csv:2: the time '99999999999999999999' is out of range",
        ),
    ] {
        fs::write(folder.join("rows.csv"), rows).unwrap();
        let error = refused(folder, &IMPORT);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn reteaching_with_another_transform_makes_all_vectors_anew_or_is_refused() {
    let folder = shop_folder();
    let folder = folder.path();
    import_shop(folder, "data");
    fit(folder, "shop.csv", "4", "small");
    let args = |data: &'static str| {
        [
            "reteach",
            "--from",
            "data",
            "--features",
            "small/transform.json",
            "--policy",
            "linucb-ind",
            "--data",
            data,
            "--quiet",
        ]
    };
    let printed = done(folder, &args("new"));
    assert!(printed.contains("4 rewards of 2 users"), "{printed}");
    let server = Server::start(&folder.join("new"), &[]);
    let written = fs::read_to_string(folder.join("small/items.csv")).unwrap();
    let mut vectors = Vec::new();
    for line in written.lines().skip(1) {
        let (id, numbers) = line.split_once(',').unwrap();
        let numbers: Vec<f64> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
        let card = server.ok("GET", &format!("/v1/items/{id}"), "");
        assert_eq!(card["features"], json!(numbers), "{id}");
        vectors.push(numbers);
    }
    // With one reward of 1 for b and d less, the estimate of u is (I + Σ x xᵀ)⁻¹ x of a.
    let estimate = server.ok("GET", "/v1/users/u", "")["estimate"].clone();
    let estimate: Vec<f64> = serde_json::from_value(estimate).unwrap();
    let (a, c) = (&vectors[0], &vectors[2]);
    let dot = |x: &[f64], y: &[f64]| -> f64 { x.iter().zip(y).map(|(x, y)| x * y).sum() };
    // (I + a aᵀ + c cᵀ) θ = a
    for at in 0..4 {
        let left = estimate[at] + a[at] * dot(a, &estimate) + c[at] * dot(c, &estimate);
        assert!((left - a[at]).abs() < 1e-9, "{left} {}", a[at]);
    }
    server.stop();

    // A vector that was sent by hand is in no other space of features.
    let server = Server::start(&folder.join("data"), &[]);
    let own = json!({"id": "own", "features": [0, 0, 0, 0, 1]});
    server.ok("PUT", "/v1/items", &own.to_string());
    server.stop();
    let error = refused(folder, &args("third"));
    assert!(
        error.contains("item 'own'") && error.contains("sclub import --items"),
        "{error}"
    );
    assert!(!folder.join("third").exists());
}

#[test]
fn reteaching_vectors_without_a_transform_refuses_one() {
    let folder = folder_with_files();
    let folder = folder.path();
    fs::write(folder.join("shop.csv"), SHOP).unwrap();
    fit(folder, "shop.csv", "3", "made");
    done(folder, &IMPORT);
    let args = [
        "reteach",
        "--from",
        "shop",
        "--features",
        "made/transform.json",
        "--data",
        "new",
    ];
    let error = refused(folder, &args);
    assert!(error.contains("sclub import --items"), "{error}");
    assert!(!folder.join("new").exists());
}

#[test]
fn files_without_a_header_that_is_understood_say_which_flags_name_the_columns() {
    let folder = folder_with_files();
    let folder = folder.path();
    let lines = "customer,sku,clicked,when\nu1,i1,1,2024-01-01\nu2,i2,0,2024-01-02\n";
    fs::write(folder.join("rows.csv"), lines).unwrap();
    let error = refused(folder, &IMPORT);
    for part in [
        "rows.csv:1: ",
        "no header",
        "--user-column",
        "--item-column",
        "--reward-column",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let named = [
        "--user-column",
        "customer",
        "--item-column",
        "sku",
        "--reward-column",
        "clicked",
        "--time-column",
        "when",
    ];
    done(folder, &[&IMPORT[..], &named].concat());

    // The ratings of `sclub features` have a flag of another name.
    let args = [
        "features",
        "--ratings",
        "rows.csv",
        "--all",
        "--dim",
        "2",
        "--like-from",
        "1",
    ];
    let error = refused(folder, &args);
    assert!(
        error.contains("no header") && error.contains("--rating-column"),
        "{error}"
    );

    // A catalogue without a header would lose its first item.
    let headless = SHOP.lines().skip(1).collect::<Vec<_>>().join("\n");
    fs::write(folder.join("plain.csv"), headless).unwrap();
    let output = run(
        folder,
        &["features", "--items", "plain.csv", "--dim", "3", "--quiet"],
    );
    let warning = text(&output.stderr);
    assert!(
        warning.contains("first line of plain.csv") && warning.contains("--columns"),
        "{warning}"
    );
    fs::write(folder.join("shop.csv"), SHOP).unwrap();
    let output = run(
        folder,
        &[
            "features", "--items", "shop.csv", "--dim", "3", "--out", "good", "--quiet",
        ],
    );
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_time_for_assumed_rewards_needs_their_value() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(
        folder.path(),
        &["serve", "--after", "30m", "--print-config"],
    );
    assert!(
        error.contains("after") && error.contains("--unanswered 0"),
        "{error}"
    );
    done(
        folder.path(),
        &[
            "serve",
            "--after",
            "30m",
            "--unanswered",
            "0",
            "--print-config",
        ],
    );
}
