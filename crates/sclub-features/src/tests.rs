//! Fits against dense arithmetic by another library, files, and bad input.

use faer::Mat;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::encode::rows;

fn item(value: Value) -> RawItem {
    serde_json::from_value(value).unwrap()
}

/// A catalogue whose items differ in words, tags, a category and a number.
fn catalogue(count: usize) -> Vec<RawItem> {
    let words = [
        "red", "blue", "old", "new", "small", "large", "round", "flat",
    ];
    let kinds = ["chair", "table", "lamp"];
    let one = |at: usize| {
        let word = |step: usize| words[(at * step + at / 5) % words.len()];
        item(json!({
            "id": format!("item {at}"),
            "title": format!("{} {} {} number {at}", word(3), word(5), kinds[at % 3]),
            "tags": [word(1), word(7), kinds[at / 2 % 3]],
            "kind": kinds[at % 3],
            "price": if at == 7 { 1e9 } else { (at * at % 97) as f64 },
        }))
    };
    (0..count).map(one).collect()
}

fn options(dim: usize) -> Options {
    Options {
        dim,
        ..Options::default()
    }
}

fn dense(rows: &[Vec<(u32, f64)>], width: usize) -> Mat<f64> {
    let mut dense = Mat::zeros(rows.len(), width);
    for (at, row) in rows.iter().enumerate() {
        for &(column, value) in row {
            dense[(at, column as usize)] += value;
        }
    }
    dense
}

#[test]
fn vectors_have_the_products_of_the_best_approximation_of_the_rows() {
    let items = catalogue(60);
    let fitted = fit(&items, &options(9), None).unwrap();
    let columns = &fitted.transform.columns;
    let width = columns.iter().map(|column| column.encoder.width()).sum();
    let dense = dense(&rows(columns, &items).unwrap(), width);
    let svd = dense.svd().unwrap();
    let vector = |item: usize, at: usize| svd.U()[(item, at)] * svd.S()[at];
    let product =
        |a: usize, b: usize| -> f64 { (0..8).map(|at| vector(a, at) * vector(b, at)).sum() };
    let longest = (0..60).map(|at| product(at, at)).fold(0.0, f64::max);
    for a in 0..60 {
        for b in 0..60 {
            let both = fitted.vectors.row(a).iter().zip(fitted.vectors.row(b));
            let got: f64 = both.map(|(x, y)| x * y).sum();
            let expected = (product(a, b) / longest + 1.0) / 2.0;
            assert!((got - expected).abs() < 1e-5, "{a} {b}: {got} {expected}");
        }
    }
    // What each part explains, by the reconstruction itself.
    let mut from = 0;
    let mut all = (0.0, 0.0);
    for part in &fitted.report.parts {
        let (mut mass, mut missed) = (0.0, 0.0);
        for row in 0..60 {
            for column in from..from + part.width {
                let guess: f64 = (0..8)
                    .map(|at| vector(row, at) * svd.V()[(column, at)])
                    .sum();
                mass += dense[(row, column)].powi(2);
                missed += (dense[(row, column)] - guess).powi(2);
            }
        }
        from += part.width;
        all = (all.0 + mass, all.1 + missed);
        let expected = 1.0 - missed / mass;
        let got = part.explained.unwrap();
        assert!(
            (got - expected).abs() < 1e-6,
            "{}: {got} {expected}",
            part.column
        );
    }
    let got = fitted.report.explained.unwrap();
    assert!((got - (1.0 - all.1 / all.0)).abs() < 1e-6, "{got} {all:?}");
}

#[test]
fn few_entries_are_features_of_their_own_names() {
    let films = [
        json!({"id": 1, "genre": "a|b", "price": 1}),
        json!({"id": 2, "genre": "b", "price": 3}),
        json!({"id": 3, "genre": "a", "price": null}),
        json!({"id": 4, "genre": "a|b", "price": 2}),
        json!({"id": 5, "genre": "", "price": 2}),
    ]
    .map(item);
    let named = Options {
        tags: vec!["genre".into()],
        ..options(5)
    };
    let fitted = fit(&films, &named, None).unwrap();
    let names = fitted.transform.feature_names();
    assert_eq!(names, ["genre=a", "genre=b", "price", "x4", "constant"]);
    // Both tags are in 3 of 5 items, so they weigh the same: 6 entries with a mean square of 1 for an item. Prices have
    // mean 2 and variance 1/2.
    let half = 0.5_f64.sqrt();
    let (tag, price) = ((5.0_f64 / 6.0).sqrt(), 1.0 / half);
    let longest = (2.0 * tag.powi(2) + price.powi(2)).sqrt();
    let expected = [
        [tag, tag, -price, 0.0, longest],
        [0.0, tag, price, 0.0, longest],
        [tag, 0.0, 0.0, 0.0, longest],
        [tag, tag, 0.0, 0.0, longest],
        [0.0, 0.0, 0.0, 0.0, longest],
    ];
    for (at, expected) in expected.iter().enumerate() {
        for (got, expected) in fitted.vectors.row(at).iter().zip(expected) {
            assert!((got - expected / longest * half).abs() < 1e-6, "{at}");
        }
    }
}

/// Users who like one kind of thing each, and a catalogue in which a tag tells the kind.
fn tastes() -> (Vec<RawItem>, Sparse) {
    let items: Vec<RawItem> = (0..60)
        .map(|at| item(json!({"id": at, "tags": [format!("kind{}", at % 3), format!("noise{}", at * 7 % 10)]})))
        .collect();
    let users: Vec<Vec<u32>> = (0..90_u32)
        .map(|user| {
            // The last six items are new: no one took them.
            let own = (0..54_u32).filter(|item| item % 3 == user % 3);
            own.filter(|item| (item + user) % 4 != 0).collect()
        })
        .collect();
    let taken = Sparse::pattern(60, users.iter().map(Vec::as_slice));
    (items, taken)
}

#[test]
fn an_item_that_no_one_took_stands_beside_those_with_its_tags() {
    let (items, taken) = tastes();
    let fitted = fit(&items, &options(6), Some(&taken)).unwrap();
    let known = fitted.report.taken.as_ref().unwrap();
    assert_eq!((known.users, known.known), (90, 54));
    assert!(known.predicted.unwrap() > 0.8, "{known:?}");
    let cosine = |a: &[f64], b: &[f64]| {
        let dot =
            |x: &[f64], y: &[f64]| -> f64 { x[..5].iter().zip(&y[..5]).map(|(x, y)| x * y).sum() };
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    for new in 54..60 {
        for old in 0..54 {
            let near = cosine(fitted.vectors.row(new), fitted.vectors.row(old));
            match new % 3 == old % 3 {
                true => assert!(near > 0.8, "{new} {old}: {near}"),
                false => assert!(near < 0.3, "{new} {old}: {near}"),
            }
        }
    }
    // A known item keeps its vector whatever its fields say now.
    let renamed = item(json!({"id": 0, "tags": ["kind1"]}));
    assert_eq!(
        fitted.transform.apply(&renamed).unwrap(),
        fitted.vectors.row(0)
    );
}

#[test]
fn known_vectors_are_those_of_the_decomposition_of_who_took_what() {
    let (items, taken) = tastes();
    let fitted = fit(&items, &options(4), Some(&taken)).unwrap();
    let mut dense = Mat::<f64>::zeros(90, 60);
    for user in 0..90 {
        taken
            .row(user)
            .iter()
            .for_each(|&item| dense[(user, item as usize)] = 1.0);
    }
    let svd = dense.svd().unwrap();
    let product = |a: usize, b: usize| -> f64 {
        (0..3)
            .map(|at| svd.V()[(a, at)] * svd.V()[(b, at)] * svd.S()[at].powi(2))
            .sum()
    };
    let longest = (0..54).map(|at| product(at, at)).fold(0.0, f64::max);
    for a in 0..54 {
        for b in 0..54 {
            let both = fitted.vectors.row(a)[..3].iter().zip(fitted.vectors.row(b));
            let got: f64 = both.map(|(x, y)| x * y).sum();
            assert!(
                (2.0 * got - product(a, b) / longest).abs() < 1e-5,
                "{a} {b}"
            );
        }
    }
}

#[test]
fn a_file_gives_the_same_bits() {
    let (items, taken) = tastes();
    for fitted in [
        fit(&catalogue(50), &options(12), None).unwrap(),
        fit(&items, &options(6), Some(&taken)).unwrap(),
    ] {
        let bytes = fitted.transform.encode();
        let loaded = Transform::decode(&bytes).unwrap();
        assert_eq!(loaded, fitted.transform);
        assert_eq!(loaded.digest(), fitted.transform.digest());
        let new = item(
            json!({"id": "new", "title": "old red lamp", "tags": ["kind2", "new"], "price": 4}),
        );
        assert_eq!(loaded.apply(&new), fitted.transform.apply(&new));
    }
}

#[test]
fn a_damaged_file_is_refused() {
    let bytes = fit(&catalogue(20), &options(5), None)
        .unwrap()
        .transform
        .encode();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(Transform::decode(&damaged).is_err(), "byte {at}");
    }
    for end in [0, 10, bytes.len() / 2, bytes.len() - 2] {
        assert!(Transform::decode(&bytes[..end]).is_err(), "{end} bytes");
    }
    let text = String::from_utf8(bytes).unwrap();
    let newer = text.replace("\"version\":1", "\"version\":2");
    assert_eq!(
        Transform::decode(newer.as_bytes()),
        Err(FileError::Version(2))
    );
    assert_eq!(Transform::decode(b"item,x1\n1,2\n"), Err(FileError::Format));
}

#[test]
fn parts_that_do_not_agree_are_refused_though_the_checksum_does() {
    let bytes = fit(&catalogue(20), &options(5), None)
        .unwrap()
        .transform
        .encode();
    let text = String::from_utf8(bytes).unwrap();
    let (_, body) = text.trim().split_once('\n').unwrap();
    let good: Value = serde_json::from_str(body).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = good.clone();
        change(&mut body);
        let body = body.to_string();
        let checksum = &blake3::hash(body.as_bytes()).to_hex()[..32];
        let head = json!({"format": "sclub-features", "version": 1, "checksum": checksum});
        Transform::decode(format!("{head}\n{body}\n").as_bytes())
    };
    assert!(with(&|_| ()).is_ok());
    let contents = |result: Result<Transform, FileError>| match result {
        Err(FileError::Contents(reason)) => reason,
        other => panic!("{other:?}"),
    };
    contents(with(&|body| body["dim"] = json!(6)));
    contents(with(&|body| body["dim"] = json!(1)));
    contents(with(&|body| body["projection"] = json!("AAAA")));
    contents(with(&|body| body["offset"] = json!("!")));
    contents(with(&|body| {
        body["columns"].as_array_mut().unwrap().reverse()
    }));
    contents(with(&|body| {
        let columns = body["columns"].as_array_mut().unwrap();
        let price = columns
            .iter_mut()
            .find(|column| column["kind"] == "number")
            .unwrap();
        price["deviation"] = json!(0.0);
    }));
}

#[test]
fn bad_input_names_the_item_and_the_field() {
    let error = |items: &[Value], options: &Options| {
        let items: Vec<RawItem> = items.iter().cloned().map(item).collect();
        fit(&items, options, None).unwrap_err().to_string()
    };
    let two = [json!({"id": 1, "price": 1}), json!({"id": 2, "price": "x"})];
    let numbers = Options {
        number: vec!["price".into()],
        ..options(4)
    };
    assert_eq!(
        error(&two, &numbers),
        "item 2: the field 'price' is \"x\"; a number is expected"
    );
    let same = [json!({"id": 1, "a": 1}), json!({"id": 1, "a": 2})];
    assert_eq!(
        error(&same, &options(4)),
        "item 2: its id '1' is that of item 1"
    );
    let none = [json!({"id": 1, "a": 1}), json!({"a": 2})];
    assert!(error(&none, &options(4)).starts_with("item 2: its id (column 'id') is missing"));
    assert_eq!(
        error(&two, &options(1)),
        "dim is 1; it must be between 2 and 512"
    );
    assert!(error(&two[..1], &options(4)).contains("at least 2"));
    let alike = [json!({"id": 1, "a": 1}), json!({"id": 2, "a": 1})];
    assert!(error(&alike, &options(4)).contains("left out: a (the same everywhere);"));

    let transform = fit(&catalogue(20), &options(5), None).unwrap().transform;
    let error = |value: Value| transform.apply(&item(value)).unwrap_err();
    assert_eq!(error(json!({"price": "cheap"})).column, "price");
    assert_eq!(error(json!({"tags": {"a": 1}})).column, "tags");
    assert_eq!(error(json!({"title": {"a": 1}})).column, "title");
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "\\PC{0,30}".prop_map(Value::from),
        prop::collection::vec("[a-c|,;]{0,4}", 0..4).prop_map(Value::from),
        Just(json!({"a": [1]})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the fields are, an item is refused, or its vector is finite and at most 1 long.
    #[test]
    fn any_item_has_a_short_vector_or_an_error(
        given in prop::collection::vec(prop::collection::btree_map("[a-d]", any_value(), 0..4), 2..12),
        other in prop::collection::btree_map("[a-e]", any_value(), 0..5),
        dim in 2..9_usize,
    ) {
        let items: Vec<RawItem> = given.into_iter().map(|fields| fields.into_iter().collect()).collect();
        let Ok(fitted) = fit(&items, &options(dim), None) else { return Ok(()) };
        let loaded = Transform::decode(&fitted.transform.encode()).unwrap();
        let new: RawItem = other.into_iter().collect();
        let vectors = fitted.vectors.values().chunks(dim).map(<[f64]>::to_vec);
        for vector in vectors.chain(loaded.apply(&new).ok()) {
            let length: f64 = vector.iter().map(|value| value * value).sum();
            prop_assert!(length < 1.0 + 1e-6 && vector.iter().all(|value| value.is_finite()));
            prop_assert_eq!(vector[dim - 1], std::f64::consts::FRAC_1_SQRT_2);
        }
    }
}

#[test]
fn availability_is_never_a_feature() {
    let plain = catalogue(40);
    let expected = fit(&plain, &options(9), None).unwrap();
    for [yes, no] in [
        [json!("yes"), json!("no")],
        [json!(true), json!(false)],
        [json!(1), json!(0)],
    ] {
        let mut items = plain.clone();
        for (at, item) in items.iter_mut().enumerate() {
            let available = if at % 3 == 0 { &no } else { &yes };
            item.insert("available".to_owned(), available.clone());
        }
        let fitted = fit(&items, &options(9), None).unwrap();
        assert_eq!(fitted.transform, expected.transform);
        let [left] = &fitted.report.ignored[..] else {
            panic!("{:?}", fitted.report.ignored)
        };
        assert_eq!(left.column, "available");

        let named = |change: fn(&mut Options, Vec<String>)| {
            let mut options = options(9);
            change(&mut options, vec!["available".to_owned()]);
            fit(&items, &options, None)
        };
        assert!(named(|options, names| options.ignore = names).is_ok());
        let error = named(|options, names| options.category = names).unwrap_err();
        let expected = "column 'available' says whether an item can be shown";
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A file of version 0.2.0, and the vectors that it made.
const EARLIER: &str = r#"{"format":"sclub-features","version":1,"checksum":"0b41289cd77b01cffbb7839d8f1c0936"}
{"dim":5,"id":"id","columns":[{"name":"cost","kind":"number","low":0.125,"high":10.0,"mean":2.6431666666666667,"deviation":3.363292058716017},{"name":"kind","kind":"tags","separator":null,"tags":["coffee","tea"],"idf":"faHHP32hxz8=","scale":0.6411835812949701},{"name":"price","kind":"number","low":-2.0,"high":1000.0,"mean":335.0833333333333,"deviation":470.1723679200593}],"offset":"AAAAAAAAAAAAAAAAAAAAAA==","projection":"m4G3PgAAAAAAAAAAAAAAAAAAAACbgbc+AAAAAAAAAAAAAAAAAAAAAJuBtz4AAAAAAAAAAAAAAAAAAAAAm4G3Pg=="}
"#;
const EARLIER_VECTORS: [[f64; 5]; 6] = [
    [
        -0.12381777243930263,
        0.0,
        0.25343462670028205,
        -0.17819265740200427,
        std::f64::consts::FRAC_1_SQRT_2,
    ],
    [
        -0.010788058274202348,
        0.0,
        0.25343462670028205,
        -0.17805790117003908,
        std::f64::consts::FRAC_1_SQRT_2,
    ],
    [
        -0.10618513702954697,
        0.25343462670028205,
        0.0,
        -0.17886643856183038,
        std::f64::consts::FRAC_1_SQRT_2,
    ],
    [
        0.5543605011376893,
        0.25343462148237084,
        0.0,
        0.358406650904329,
        std::f64::consts::FRAC_1_SQRT_2,
    ],
    [
        -0.18975177236894444,
        0.0,
        0.25343462670028205,
        0.3584066582834868,
        std::f64::consts::FRAC_1_SQRT_2,
    ],
    [
        -0.12381777243930263,
        0.25343462670028205,
        0.0,
        -0.1816963194330999,
        std::f64::consts::FRAC_1_SQRT_2,
    ],
];

fn earlier_items() -> Vec<RawItem> {
    [
        json!({"id": "a", "kind": "tea", "price": "$4.50", "cost": "1"}),
        json!({"id": "b", "kind": "tea", "price": "4,75 €", "cost": "2.5"}),
        json!({"id": "c", "kind": "coffee", "price": "3.25", "cost": "1.234"}),
        json!({"id": "d", "kind": "coffee", "price": "USD 1,000", "cost": "1e1"}),
        json!({"id": "e", "kind": "tea", "price": "1.000 €", "cost": "0.125"}),
        json!({"id": "f", "kind": "coffee", "price": "-2", "cost": "1.000"}),
    ]
    .map(item)
    .into()
}

#[test]
fn a_file_of_an_earlier_version_gives_the_same_bits_and_the_same_fit_the_same_file() {
    let transform = Transform::decode(EARLIER.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(transform.encode()).unwrap(), EARLIER);
    for (item, expected) in earlier_items().iter().zip(EARLIER_VECTORS) {
        assert_eq!(transform.apply(item).unwrap(), expected);
    }
    let category = Options {
        category: vec!["kind".into()],
        ..options(5)
    };
    let fitted = fit(&earlier_items(), &category, None).unwrap();
    assert_eq!(fitted.transform, transform);
    // What was an error before.
    let apply = |price: &str| transform.apply(&item(json!({"price": price})));
    assert_eq!(apply("n/a"), transform.apply(&item(json!({}))));
    assert_eq!(apply("4,50"), apply("4.50"));
    assert_eq!(apply("1,000"), apply("1000"));
    assert_eq!(apply("1.000"), apply("1"));
    assert!(apply("call us").is_err());
}

/// Prices as a German shop writes them, and two that are none.
fn german() -> Vec<RawItem> {
    let price = |at: usize| match at {
        7 => "auf Anfrage".to_owned(),
        9 => "n/a".to_owned(),
        at if at % 5 == 0 => format!("{}.{:03},00", at + 1, at * 7),
        at => format!("{},{:02}", at, at * 3),
    };
    (0..30)
        .map(|at| {
            item(json!({"id": at, "kind": if at % 2 == 0 { "a" } else { "b" }, "price": price(at)}))
        })
        .collect()
}

#[test]
fn a_loaded_transform_reads_numbers_as_the_fit_did() {
    let options = Options {
        category: vec!["kind".into()],
        ..options(4)
    };
    let fitted = fit(&german(), &options, None).unwrap();
    let part = &fitted.report.parts[1];
    assert_eq!((&*part.column, part.kind), ("price", "number"));
    assert!((part.filled - 28.0 / 30.0).abs() < 1e-12);
    // The same catalogue with plain numbers.
    let plain: Vec<RawItem> = german()
        .into_iter()
        .map(|mut item| {
            let price = item["price"].as_str().unwrap();
            let price = price.replace('.', "").replace(',', ".");
            item["price"] = price.parse::<f64>().map_or(Value::Null, Value::from);
            item
        })
        .collect();
    let expected = fit(&plain, &options, None).unwrap();
    assert_eq!(fitted.vectors, expected.vectors);
    assert_eq!(expected.report.hints, []);

    let loaded = Transform::decode(&fitted.transform.encode()).unwrap();
    assert_eq!(loaded, fitted.transform);
    for (at, item) in german().iter().enumerate() {
        assert_eq!(loaded.apply(item).unwrap(), fitted.vectors.row(at), "{at}");
    }
    let apply = |price: Value| loaded.apply(&item(json!({"price": price})));
    assert_eq!(apply(json!("1.250")), apply(json!(1250)));
    assert_eq!(apply(json!("1,250")), apply(json!(1.25)));
    assert_eq!(apply(json!("Auf Anfrage ")), apply(Value::Null));
    assert!(apply(json!("much")).is_err());
    // Filters see the same numbers.
    let typed = |price: Value| loaded.typed("price", &price).unwrap();
    assert_eq!(typed(json!("1.250")), json!(1250.0));
    assert_eq!(typed(json!("n/a")), json!("n/a"));
}

#[test]
fn a_named_column_of_numbers_takes_decimal_commas_and_words_for_missing() {
    let items: Vec<RawItem> = ["32,68", "n/a", "7,5", "-"]
        .iter()
        .enumerate()
        .map(|(at, price)| item(json!({"id": at, "price": price})))
        .collect();
    let named = Options {
        number: vec!["price".into()],
        ..options(3)
    };
    let fitted = fit(&items, &named, None).unwrap();
    assert_eq!(fitted.report.parts[0].filled, 0.5);
    assert_eq!(fitted.report.hints.len(), 1);
}

#[test]
fn every_column_that_is_left_out_has_a_reason() {
    let items: Vec<RawItem> = (0..40)
        .map(|at| {
            item(json!({
                "id": at, "available": true, "asked": at, "same": "x", "nothing": "", "shop_id": at,
                "code": format!("AX{at}"), "link": format!("http://x.y/{at}"), "object": {"a": at},
                "unique": [format!("tag{at}")], "zero": if at == 0 { "n/a" } else { "0" }, "rare": u8::from(at == 3) % 2,
                "price": at, "huge": if at % 2 == 0 { 1e308 } else { -1e308 },
            }))
        })
        .collect();
    let asked = Options {
        ignore: vec!["asked".into()],
        ..options(3)
    };
    let report = fit(&items, &asked, None).unwrap().report;
    let left = report.ignored.iter();
    let left: Vec<(&str, &str)> = left.map(|left| (&*left.column, left.reason)).collect();
    assert_eq!(
        left,
        [
            ("asked", "as asked"),
            (
                "available",
                "it says whether an item can be shown, and is never a feature"
            ),
            ("code", "codes of one word that hardly repeat"),
            ("huge", "its numbers are too large"),
            ("link", "addresses"),
            ("nothing", "empty"),
            ("object", "neither numbers, texts nor lists"),
            ("same", "the same everywhere"),
            ("shop_id", "an id, by its name"),
            ("unique", "no value is in two items"),
            ("zero", "the same everywhere"),
        ]
    );
}

#[test]
fn bad_items_are_those_without_which_the_catalogue_can_be_fitted() {
    let named = Options {
        number: vec!["price".into()],
        ..options(3)
    };
    let items: Vec<RawItem> = [
        json!({"id": 1, "price": 3}),
        json!({"id": 2, "price": "much"}),
        json!({"id": 2, "price": "n/a"}),
        json!({"id": 1, "price": 5}),
        json!({"price": 6}),
        json!({"id": 3, "price": 7}),
    ]
    .map(item)
    .into();
    let bad = bad_items(&items, &named).unwrap();
    let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
    assert_eq!(
        bad,
        [
            "item 2: the field 'price' is \"much\"; a number is expected",
            "item 4: its id '1' is that of item 1",
            "item 5: its id (column 'id') is missing, or neither a text nor a whole number",
        ]
    );
    let good = [0, 2, 5].map(|at| items[at].clone());
    assert!(fit(&good, &named, None).is_ok());
}

#[test]
fn gathered_numbers_are_one_number_also_for_a_loaded_transform() {
    let gathered = Options {
        gathered: true,
        ..options(5)
    };
    let lists: Vec<RawItem> = [
        json!({"id": 1, "tag": ["a", "b"], "price": ["3", "3"]}),
        json!({"id": 2, "tag": ["b", "c"], "price": ["", "4,50"]}),
        json!({"id": 3, "tag": ["a", "c"], "price": ["6", "7"]}),
    ]
    .map(item)
    .into();
    let fitted = fit(&lists, &gathered, None).unwrap();
    let kinds: Vec<&str> = fitted.report.parts.iter().map(|part| part.kind).collect();
    assert_eq!(kinds, ["number", "tags"]);
    let loaded = Transform::decode(&fitted.transform.encode()).unwrap();
    let apply = |price: Value| {
        loaded
            .apply(&item(json!({"tag": ["a"], "price": price})))
            .unwrap()
    };
    assert_eq!(apply(json!(["4,50", "9"])), apply(json!(4.5)));
    assert_eq!(
        loaded.typed("price", &json!(["4,50", "9"])),
        Some(json!(4.5))
    );
    // Lists are no numbers where the fit saw none.
    let single = fit(&german(), &options(4), None).unwrap().transform;
    assert!(single.apply(&item(json!({"price": [3]}))).is_err());
}
