use std::io::Write;

use serde_json::json;

use super::*;

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn read(name: &str, bytes: &[u8], options: &ItemOptions) -> Result<ReadItems, ReadError> {
    let (_folder, path) = file(name, bytes);
    read_items(&path, options, &|_, _| ())
}

fn items(name: &str, bytes: &[u8], options: &ItemOptions) -> Value {
    json!(read(name, bytes, options).unwrap().items)
}

fn named(columns: &[&str]) -> ItemOptions {
    ItemOptions {
        columns: columns.iter().map(|&name| name.to_owned()).collect(),
        ..ItemOptions::default()
    }
}

#[test]
fn tables_and_objects_are_the_same_items() {
    let plain = ItemOptions::default();
    let expected = json!([
        {"id": "1", "title": "Tea, \"green\"", "price": "3.5"},
        {"id": "2", "title": "two\nlines", "price": ""},
    ]);
    let csv = b"id,title,price\n1,\"Tea, \"\"green\"\"\",3.5\r\n\n2,\"two\nlines\",\n";
    assert_eq!(items("a.csv", csv, &plain), expected);
    let tabs = b"id\ttitle\tprice\n1\tTea, \"green\"\t3.5\n";
    assert_eq!(items("a.tsv", tabs, &plain)[0], expected[0]);
    let json = b"{\"id\": \"1\", \"title\": \"Tea, \\\"green\\\"\", \"price\": \"3.5\"}\n";
    assert_eq!(items("a.jsonl", json, &plain)[0], expected[0]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(csv).unwrap();
    assert_eq!(
        items("a.csv.gz", &packed.finish().unwrap(), &plain),
        expected
    );
}

#[test]
fn a_file_without_a_header_in_latin_1_needs_names() {
    let dat = b"1::L\xe9on (1994)::Crime|Drama\n2::Heat::Crime\n";
    let options = named(&["id", "title", "genres"]);
    let read = read("movies.dat", dat, &options).unwrap();
    assert!(read.has_latin1);
    let expected = json!([
        {"id": "1", "title": "Léon (1994)", "genres": "Crime|Drama"},
        {"id": "2", "title": "Heat", "genres": "Crime"},
    ]);
    assert_eq!(json!(read.items), expected);
}

#[test]
fn rows_with_the_same_id_can_be_one_item() {
    let options = ItemOptions {
        gather: Some("artist".into()),
        ..named(&["artist", "tag"])
    };
    assert_eq!(
        items("tags.tsv", b"7\trock\n9\tpop\n7\told\n", &options),
        json!([{"artist": "7", "tag": ["rock", "old"]}, {"artist": "9", "tag": ["pop"]}])
    );
    let missing = ItemOptions {
        gather: Some("x".into()),
        ..named(&["artist", "tag"])
    };
    let error = read("tags.tsv", b"7\trock\n", &missing)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("there is no column 'x'; the columns are artist, tag"),
        "{error}"
    );
}

#[test]
fn a_bad_line_has_its_number_or_is_counted() {
    let csv = b"id,title\n1,a\n2\n3,c,d\n4,d\n";
    let error = read("a.csv", csv, &ItemOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("a.csv:3: there are 1 fields, and 2 columns"),
        "{error}"
    );
    let skipping = ItemOptions {
        skip_bad_lines: true,
        ..ItemOptions::default()
    };
    let read_all = read("a.csv", csv, &skipping).unwrap();
    assert_eq!((read_all.items.len(), read_all.bad_lines), (2, 2));
    assert_eq!(read_all.first_bad.unwrap().0, 3);
    assert_eq!(read_all.lines, [2, 5]);
    for (bytes, reason) in [
        (&b"id,id\n1,2\n"[..], "two columns are called 'id'"),
        (b"id,title\n", "it has no items"),
        (b"{\"id\": 1}\n[2]\n", "no object in JSON"),
    ] {
        let error = read("a", bytes, &ItemOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(reason), "{error}");
    }
}
