//! Files as people have them, read back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    ColumnNames, Format, Interactions, Options, RatingUse, Read, ReadError, Table, read, read_table,
};

const NO_NAMES: ColumnNames = ColumnNames {
    user: None,
    item: None,
    rating: None,
    time: None,
};
const STRICT: Options = Options {
    format: None,
    skip_bad_lines: false,
    columns: NO_NAMES,
    ratings: RatingUse::Ignored,
};
const LENIENT: Options = Options {
    skip_bad_lines: true,
    ..STRICT
};

fn file(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn read_bytes(name: &str, bytes: &[u8], options: &Options) -> Result<Read, ReadError> {
    let (_folder, path) = file(name, bytes);
    read(&path, options, &|_, _| {})
}

/// The error, with the name of the file alone in place of its path.
fn error(name: &str, bytes: &[u8]) -> String {
    error_with(name, bytes, &STRICT)
}

/// The error and its causes.
fn error_with(name: &str, bytes: &[u8], options: &Options) -> String {
    let (folder, path) = file(name, bytes);
    let error = read(&path, options, &|_, _| {}).unwrap_err();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.replace(&format!("{}/", folder.path().display()), "")
}

/// Every pair by name.
fn pairs(interactions: &Interactions) -> BTreeSet<(String, String)> {
    let user_items = |user| {
        let items = interactions.of_user(user);
        assert!(items.is_sorted_by(|a, b| a < b));
        items.iter().map(move |&item| {
            let item = interactions.item_name(item as usize);
            (interactions.user_name(user).to_string(), item.to_string())
        })
    };
    (0..interactions.users()).flat_map(user_items).collect()
}

fn set(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    pairs
        .iter()
        .map(|&(user, item)| (user.into(), item.into()))
        .collect()
}

#[test]
fn every_format_is_recognised_and_read() {
    let expected = set(&[("7", "20"), ("7", "10"), ("3", "20")]);
    let json = |user, item| {
        format!(
            "{{\"review_id\":\"r\",\"user_id\":\"{user}\",\"business_id\":\"{item}\",\"stars\":4.0,\"text\":\"a, b::c\\n\"}}"
        )
    };
    let json = [json(7, 20), json(7, 10), json(3, 20), json(7, 20)].join("\n");
    let cases = [
        (
            Format::MovieLensCsv,
            "userId,movieId,rating,timestamp\n7,20,3.5,1112486027\n7,10,5,1\n3,20,0.5,2\n7,20,1.0,3\n",
        ),
        (
            Format::MovieLensCsv,
            "userId,movieId\n7,20\n7,10\n3,20\n7,20",
        ),
        (
            Format::MovieLensDat,
            "7::20::5::978300760\n7::10::3::1\n3::20::4::2\n7::20::1::3\n",
        ),
        (Format::YelpJson, json.as_str()),
        (
            Format::Separated,
            "7\t20\t4\n7\t10\t4\n3\t20\t1\n7\t20\t4\n",
        ),
        (Format::Separated, "7;20;4,5\n7;10;4\n3;20;1\n7;20;4\n"),
        (Format::Separated, "7|20\n7|10\n3|20\n7|20\n"),
        (Format::Separated, "7 20 4\n7 10 4\n3 20 1\n7  20 2\n"),
        (
            Format::Separated,
            "user_id,item_id,rating\n7,20,4\n7,10,4\n3,20,1\n7,20,5\n",
        ),
        (
            Format::Separated,
            "item_id\tuser_id\n20\t7\n10\t7\n20\t3\n20\t7\n",
        ),
    ];
    for (format, text) in cases {
        let crlf = text.replace('\n', "\r\n");
        let marked = format!("\u{feff}{text}\n\n  \n");
        for text in [text, &crlf, &marked] {
            let Read {
                interactions,
                rows,
                below: 0,
                bad_lines,
                first_bad: None,
                odd_first_line: false,
                format: found,
            } = read_bytes("ratings", text.as_bytes(), &STRICT).unwrap()
            else {
                panic!("nothing is odd here: {text}");
            };
            assert_eq!((found, rows, bad_lines), (format, 4, 0), "{text}");
            assert_eq!((interactions.users(), interactions.items()), (2, 2));
            assert_eq!(pairs(&interactions), expected, "{text}");
            assert_eq!(interactions.user_name(0).to_string(), "7");
            assert_eq!(interactions.item_name(0).to_string(), "20");
        }
    }
}

#[test]
fn quoted_fields_are_read() {
    let text = "\"userId\",\"movieId\",\"rating\"\n\"7\",\"a, \"\"b\"\"\",\"4.5\"\n7,\"20\",1\n";
    let interactions = read_bytes("r.csv", text.as_bytes(), &STRICT)
        .unwrap()
        .interactions;
    assert_eq!(pairs(&interactions), set(&[("7", "a, \"b\""), ("7", "20")]));
}

#[test]
fn a_bad_line_is_named_or_counted() {
    let text = "userId,movieId,rating\n1,2,3\n\n4\n5,6,x\n7,8,9\n";
    assert_eq!(
        error("ratings.csv", text.as_bytes()),
        "ratings.csv:4: there is no item"
    );
    let text = text.replace("4\n", "4,4,4\n");
    assert_eq!(
        error("ratings.csv", text.as_bytes()),
        "ratings.csv:5: the rating 'x' (column 3) is not a number"
    );
    let text = text.replace("4,4,4\n", "4\n");
    let Read {
        interactions,
        rows,
        bad_lines,
        ..
    } = read_bytes("ratings.csv", text.as_bytes(), &LENIENT).unwrap();
    assert_eq!((rows, bad_lines), (2, 2));
    assert_eq!(pairs(&interactions), set(&[("1", "2"), ("7", "8")]));
}

#[test]
fn a_name_over_the_limit_is_refused_with_its_length() {
    let text = format!(
        "userId,movieId,rating\n1,2,3\n4,{},5\n",
        "x".repeat(1 << 20)
    );
    assert_eq!(
        error("ratings.csv", text.as_bytes()),
        "ratings.csv:3: the item's name has 1048576 bytes; it must have at most 1048575"
    );
}

#[test]
fn a_bad_first_line_is_skipped_when_the_format_is_given() {
    let options = Options {
        format: Some(Format::Separated),
        ..LENIENT
    };
    let read = read_bytes("r", b"nonsense\n1\t2\n", &options).unwrap();
    assert_eq!((read.rows, read.bad_lines), (1, 1));
}

#[test]
fn a_given_format_is_not_guessed() {
    let options = Options {
        format: Some(Format::Separated),
        ..STRICT
    };
    let read = read_bytes("r", b"a::b,c::d\n", &options).unwrap();
    assert_eq!(pairs(&read.interactions), set(&[("a::b", "c::d")]));
    let options = Options {
        format: Some(Format::MovieLensCsv),
        ..STRICT
    };
    let read = read_bytes("r", b"1,2,3.5,9\n", &options).unwrap();
    assert_eq!(pairs(&read.interactions), set(&[("1", "2")]));
}

#[test]
fn what_cannot_be_read_is_said_plainly() {
    assert_eq!(error("r.csv", b""), "r.csv is empty");
    assert_eq!(error("r.csv", b"\n \r\n"), "r.csv holds no interactions");
    assert_eq!(
        error("r.csv", b"userId,movieId\n"),
        "r.csv holds no interactions"
    );
    assert!(error("r.csv", b"alone\n").contains("no format known"));
    assert!(error("r.zip", b"PK\x03\x04rest").contains("unzip"));
    assert!(error("r.csv", b"\xff\xfeu\0s\0").contains("UTF-16"));
    assert!(error("r.bin", b"abc\0def").contains("no text"));
    assert!(error("r.npy", b"userId,movieId\n").contains("r.npy is no matrix of NumPy"));
    let bad = read_bytes("r", b"a,b,x\n,b\n", &LENIENT)
        .unwrap_err()
        .to_string();
    assert!(
        bad.ends_with("holds no interactions; 2 lines are bad"),
        "{bad}"
    );

    let folder = tempfile::tempdir().unwrap();
    let read = |path| read(path, &STRICT, &|_, _| {}).unwrap_err();
    assert!(matches!(read(folder.path()), ReadError::Folder { .. }));
    let missing = folder.path().join("missing.csv");
    let error = read(&missing);
    assert!(matches!(error, ReadError::Io { .. }));
    assert!(error.to_string().contains("missing.csv"), "{error}");
}

#[test]
fn progress_ends_with_the_whole_file() {
    let text = "1\t2\t3\n".repeat(500_000);
    let (_folder, path) = file("r", text.as_bytes());
    let calls = RefCell::new(Vec::new());
    read(&path, &STRICT, &|done, total| {
        calls.borrow_mut().push((done, total))
    })
    .unwrap();
    let calls = calls.into_inner();
    assert!(calls.len() >= 3 && calls.is_sorted());
    let whole = text.len() as u64;
    assert_eq!(calls.last(), Some(&(whole, whole)));
}

#[test]
fn a_matrix_without_anything_in_it_holds_no_interactions() {
    let bytes = npy(&[(0, 0)], 3, 3, false);
    let mut none = bytes.clone();
    let at = none.len() - 9;
    none[at..].fill(0);
    assert_eq!(read_bytes("m.npy", &bytes, &STRICT).unwrap().rows, 1);
    assert_eq!(error("m.npy", &none), "m.npy holds no interactions");
    assert!(error("m.npy", &bytes[..bytes.len() - 1]).contains("ends early"));
}

/// A matrix of bytes.
fn npy(pairs: &[(usize, usize)], users: usize, items: usize, fortran: bool) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header =
        format!("{{'descr': '|u1', 'fortran_order': {order}, 'shape': ({users}, {items}), }}");
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    let mut data = vec![0; users * items];
    for &(user, item) in pairs {
        data[if fortran {
            item * users + user
        } else {
            user * items + item
        }] = 1;
    }
    bytes.extend_from_slice(&data);
    bytes
}

/// Interactions by the definition: first come, first numbered.
fn expected(rows: &[(String, String)]) -> (Vec<String>, Vec<String>, BTreeSet<(usize, usize)>) {
    fn number(name: &str, names: &mut Vec<String>, known: &mut BTreeMap<String, usize>) -> usize {
        *known.entry(name.to_owned()).or_insert_with(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
    }
    let (mut users, mut items) = (Vec::new(), Vec::new());
    let (mut known_users, mut known_items) = (BTreeMap::new(), BTreeMap::new());
    let pairs = rows
        .iter()
        .map(|(user, item)| {
            let user = number(user, &mut users, &mut known_users);
            (user, number(item, &mut items, &mut known_items))
        })
        .collect();
    (users, items, pairs)
}

fn assert_same(interactions: &Interactions, rows: &[(String, String)]) {
    let (users, items, pairs) = expected(rows);
    let names = |count, name: &dyn Fn(usize) -> String| (0..count).map(name).collect::<Vec<_>>();
    assert_eq!(
        names(interactions.users(), &|u| interactions
            .user_name(u)
            .to_string()),
        users
    );
    assert_eq!(
        names(interactions.items(), &|i| interactions
            .item_name(i)
            .to_string()),
        items
    );
    let found: Vec<(usize, usize)> = (0..interactions.users())
        .flat_map(|user| {
            interactions
                .of_user(user)
                .iter()
                .map(move |&item| (user, item as usize))
        })
        .collect();
    assert_eq!(found, pairs.into_iter().collect::<Vec<_>>());
    assert_eq!(interactions.len(), found.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn numbers_written_in_any_format_are_read_back(
        rows in prop::collection::vec((0_u32..40, 0_u32..40, 0_u8..10), 1..200),
        crlf: bool,
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let names: Vec<(String, String)> =
            rows.iter().map(|(user, item, _)| (user.to_string(), item.to_string())).collect();
        let write = |line: &dyn Fn(&str, &str, f64) -> String| -> String {
            let lines = names.iter().zip(&rows).map(|((user, item), row)| {
                line(user, item, f64::from(row.2) / 2.0) + end
            });
            lines.collect()
        };
        let header = format!("userId,movieId,rating,timestamp{end}");
        let texts = [
            (Format::MovieLensCsv, header + &write(&|u, i, r| format!("{u},{i},{r},1112486027"))),
            (Format::MovieLensDat, write(&|u, i, r| format!("{u}::{i}::{r}::978300760"))),
            (Format::YelpJson, write(&|u, i, r| {
                format!("{{\"stars\": {r}, \"business_id\": \"{i}\", \"user_id\": \"{u}\"}}")
            })),
            (Format::Separated, write(&|u, i, r| format!("{u}\t{i}\t{r}"))),
            (Format::Separated, write(&|u, i, _| format!("{u};{i}"))),
            (Format::Separated, write(&|u, i, r| format!("{u}|{i}|{r}"))),
            (Format::Separated, write(&|u, i, r| format!("{u}   {i} {r}"))),
        ];
        for (format, text) in texts {
            let read = read_bytes("r", text.as_bytes(), &STRICT).unwrap();
            prop_assert_eq!(read.format, format);
            prop_assert_eq!(read.rows, rows.len() as u64);
            assert_same(&read.interactions, &names);
        }
        let taken: Vec<(usize, usize)> =
            rows.iter().map(|&(user, item, _)| (user as usize, item as usize)).collect();
        let by_name: BTreeSet<(String, String)> = names.into_iter().collect();
        for fortran in [false, true] {
            let read = read_bytes("r", &npy(&taken, 40, 40, fortran), &STRICT).unwrap();
            prop_assert_eq!(read.format, Format::Npy);
            prop_assert_eq!(read.interactions.users(), 40);
            prop_assert_eq!(pairs(&read.interactions), by_name.clone());
        }
    }

    #[test]
    fn any_names_are_read_back_from_csv_and_json(
        rows in prop::collection::vec(("[^\r\n]{1,12}", "[^\r\n]{1,12}"), 1..60),
    ) {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let csv: String =
            rows.iter().map(|(u, i)| format!("{},{}\n", quoted(u), quoted(i))).collect();
        let csv = format!("userId,movieId\n{csv}");
        let json: String = rows
            .iter()
            .map(|(user, item)| {
                serde_json::json!({"user_id": user, "business_id": item, "stars": 1}).to_string() + "\n"
            })
            .collect();
        for (format, text) in [(Format::MovieLensCsv, csv), (Format::YelpJson, json)] {
            let options = Options { format: Some(format), ..STRICT };
            // A zero byte would make a text look like none.
            if text.contains('\0') {
                continue;
            }
            let read = read_bytes("r", text.as_bytes(), &options).unwrap();
            assert_same(&read.interactions, &rows);
        }
    }
}

#[test]
fn what_looks_like_a_header_but_is_not_known_as_one_is_pointed_out() {
    for (text, odd) in [
        ("uid\tthing\n1\t10\n2\t11\n", true),
        ("ann\t7\n1\t10\n2\t11\n", false),
        ("ann\tmilk\nbob\tmilk\n", false),
        ("1\t10\n2\t11\n", false),
    ] {
        let read = read_bytes("clicks.tsv", text.as_bytes(), &STRICT).unwrap();
        assert_eq!(read.odd_first_line, odd, "{text}");
    }
}

#[test]
fn the_first_bad_line_skipped_is_named() {
    let lax = Options {
        skip_bad_lines: true,
        ..STRICT
    };
    let text = "userId,movieId,rating\n1,2,3\n\n4\n5,6,x\n7,8,9\n";
    let read = read_bytes("ratings.csv", text.as_bytes(), &lax).unwrap();
    assert_eq!(read.first_bad, Some((4, "there is no item".into())));
}

/// A file made by another program; `fixtures/make.py` says how.
fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/data/fixtures");
    folder.join(name)
}

fn columns(user: &str, item: &str, rating: &str) -> ColumnNames {
    let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    ColumnNames {
        user: some(user),
        item: some(item),
        rating: some(rating),
        time: None,
    }
}

/// The content of the fixtures.
const ROWS: [(&str, &str, f64); 6] = [
    ("7", "tea", 5.0),
    ("7", "mate", 2.0),
    ("ann", "tea", 4.0),
    ("3", "mate", 3.5),
    ("3", "tea", 1.0),
    ("ann", "tea", 4.5),
];

fn rows_from(least: f64) -> Vec<(String, String)> {
    let rows = ROWS.iter().filter(|row| row.2 >= least);
    rows.map(|row| (row.0.into(), row.1.into())).collect()
}

#[test]
fn files_of_other_programs_are_read_whatever_they_are_called() {
    let names = columns("who", "what", "how_much");
    for name in [
        "plain.csv",
        "gzip.csv.gz",
        "gzip-in-two-parts.csv.gz",
        "zstd.csv.zst",
        "packed-without-a-name",
        "fields.jsonl",
        "fields.jsonl.gz",
        "snappy.parquet",
        "zstd.parquet",
        "gzip.parquet",
        "lz4.parquet",
        "plain-in-small-groups.parquet",
    ] {
        for (ratings, least) in [
            (RatingUse::Ignored, 0.0),
            (RatingUse::LikeFrom(4.0), 4.0),
            (RatingUse::LikeFrom(4.01), 4.01),
        ] {
            let options = Options {
                columns: names.clone(),
                ratings,
                ..STRICT
            };
            let read = read(&fixture(name), &options, &|_, _| {});
            let read = read.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            let rows = rows_from(least);
            assert_eq!(read.rows, rows.len() as u64, "{name}");
            assert_eq!(read.below, (ROWS.len() - rows.len()) as u64, "{name}");
            assert_same(&read.interactions, &rows);
        }
    }
}

#[test]
fn ratings_can_be_values() {
    let names = columns("who", "what", "how_much");
    for name in [
        "plain.csv",
        "zstd.csv.zst",
        "fields.jsonl",
        "snappy.parquet",
    ] {
        let options = Options {
            columns: names.clone(),
            ratings: RatingUse::Values,
            ..STRICT
        };
        let all = read(&fixture(name), &options, &|_, _| {})
            .unwrap()
            .interactions;
        assert_same(&all, &rows_from(0.0));
        // Users 7, ann and 3; items tea and mate. Ann rated tea twice.
        let values = |user| all.values_of_user(user).unwrap().to_vec();
        assert_eq!(values(0), [1.0, 0.4], "{name}");
        assert_eq!(values(1), [0.9], "{name}");
        assert_eq!(values(2), [0.2, 0.7], "{name}");
    }
}

#[test]
fn a_table_in_memory_is_read_as_its_file() {
    let (users, items) = (
        ["7", "ann", "3"].map(String::from),
        ["tea", "mate"].map(String::from),
    );
    let rows = [(0, 0), (0, 1), (1, 0), (2, 1), (2, 0), (1, 0)];
    let ratings = ROWS.map(|row| row.2);
    let table = Table {
        name: "frame",
        users: &users,
        items: &items,
        rows: &rows,
        ratings: &ratings,
    };
    for ratings in [
        RatingUse::Ignored,
        RatingUse::LikeFrom(4.0),
        RatingUse::Values,
    ] {
        let options = Options {
            columns: columns("who", "what", "how_much"),
            ratings,
            ..STRICT
        };
        let file = read(&fixture("plain.csv"), &options, &|_, _| {}).unwrap();
        let memory = read_table(&table, &options).unwrap();
        assert_eq!(memory, file);
    }
    let missing = [1.0, f64::NAN, 1.0, 1.0, 1.0, 1.0];
    let table = Table {
        ratings: &missing,
        ..table
    };
    let options = Options {
        ratings: RatingUse::Values,
        ..STRICT
    };
    assert_eq!(
        read_table(&table, &options).unwrap_err().to_string(),
        "frame, row 2: there is no rating"
    );
}

#[test]
fn columns_that_are_missing_are_named_with_those_there_are() {
    let of = |name: &str, names: ColumnNames| {
        let options = Options {
            columns: names,
            ..STRICT
        };
        let error = read(&fixture(name), &options, &|_, _| {}).unwrap_err();
        let text = error.to_string();
        let at = text.find(name).unwrap();
        text[at + name.len()..].to_owned()
    };
    for name in ["plain.csv", "gzip.csv.gz", "fields.jsonl", "snappy.parquet"] {
        assert_eq!(
            of(name, columns("whom", "what", "")),
            ": there is no column 'whom'; the columns are who, what, how_much, when"
        );
        assert_eq!(
            of(name, columns("who", "", "")),
            ": no column is called item or the like; the columns are who, what, how_much, when; name the column of items"
        );
    }
    assert_eq!(
        of("snappy.parquet", columns("how_much", "what", "who")),
        ": column 'how_much' holds floating-point numbers; strings or whole numbers are expected"
    );
    assert_eq!(
        of("snappy.parquet", columns("who", "when", "")),
        ": column 'when' holds lists or objects; strings or whole numbers are expected"
    );
    let options = Options {
        columns: columns("who", "what", ""),
        ratings: RatingUse::Values,
        ..STRICT
    };
    for name in ["plain.csv", "fields.jsonl", "snappy.parquet"] {
        let error = read(&fixture(name), &options, &|_, _| {}).unwrap_err();
        assert!(
            error.to_string().contains("name the column of ratings"),
            "{error}"
        );
    }
    let matrix = npy(&[(0, 0)], 3, 3, false);
    assert_eq!(
        error_with("m.npy", &matrix, &options),
        "m.npy: a matrix of NumPy has no column 'who'; its columns are items"
    );
}

#[test]
fn damaged_files_are_told_from_bad_lines() {
    let bytes = |name| fs::read(fixture(name)).unwrap();
    let options = Options {
        columns: columns("who", "what", ""),
        ..STRICT
    };
    let error = |name: &str, bytes: &[u8]| error_with(name, bytes, &options);
    let gzip = bytes("gzip.csv.gz");
    assert_eq!(
        error("r.csv.gz", &gzip[..gzip.len() - 9]),
        "cannot read r.csv.gz: the gzip data end early: the file is truncated"
    );
    let mut damaged = gzip.clone();
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    assert!(
        error("r.csv.gz", &damaged)
            .starts_with("cannot read r.csv.gz: the gzip data are damaged: ")
    );
    let zstd = bytes("zstd.csv.zst");
    assert_eq!(
        error("r.csv.zst", &zstd[..zstd.len() - 9]),
        "cannot read r.csv.zst: the zstd data end early: the file is truncated"
    );
    let parquet = bytes("snappy.parquet");
    assert!(
        error("r.parquet", &parquet[..parquet.len() - 9])
            .starts_with("r.parquet is no Parquet file to read: ")
    );
    assert_eq!(error("r.csv.gz", &bytes("empty.gz")), "r.csv.gz is empty");
    assert!(error("r.gz.gz", &bytes("twice.gz.gz")).contains("compressed twice"));
}

#[test]
fn missing_values_of_a_table_make_bad_rows() {
    let path = fixture("holes.parquet");
    let error = read(&path, &STRICT, &|_, _| {}).unwrap_err().to_string();
    assert!(
        error.ends_with("holes.parquet, row 2: there is no user (column 'user')"),
        "{error}"
    );
    let found = read(&path, &LENIENT, &|_, _| {}).unwrap();
    let big = "9223372036854775813";
    assert_eq!(
        pairs(&found.interactions),
        set(&[("a", "1"), ("b", big), ("c", "4")])
    );
    assert_eq!(found.first_bad.map(|bad| bad.0), Some(2));
    let likes = Options {
        ratings: RatingUse::LikeFrom(3.0),
        ..LENIENT
    };
    let found = read(&path, &likes, &|_, _| {}).unwrap();
    assert_eq!(pairs(&found.interactions), set(&[("a", "1"), ("b", big)]));
    assert_eq!((found.rows, found.below, found.bad_lines), (2, 0, 2));
}

#[test]
fn ratings_below_the_threshold_do_not_make_users() {
    let like = |least| Options {
        ratings: RatingUse::LikeFrom(least),
        ..STRICT
    };
    let text = b"userId,movieId,rating\n1,2,3\n4,5,4\n1,5,\n";
    assert_eq!(
        error_with("r.csv", text, &like(4.0)),
        "r.csv:4: there is no rating"
    );
    let text = &text[..text.len() - 5];
    let read = read_bytes("r.csv", text, &like(4.0)).unwrap();
    assert_eq!(pairs(&read.interactions), set(&[("4", "5")]));
    assert_eq!((read.interactions.users(), read.below), (1, 1));
    assert_eq!(
        error_with("r.csv", text, &like(9.0)),
        "r.csv: none of 2 ratings is 9 or more"
    );
    let negative = Options {
        ratings: RatingUse::Values,
        ..STRICT
    };
    assert_eq!(
        error_with("r.csv", b"user,item,rating\n1,2,-3\n", &negative),
        "r.csv:2: the rating is -3; ratings that are used as values must be 0 or more"
    );
}

#[test]
fn progress_of_a_compressed_file_counts_its_own_bytes() {
    let path = fixture("gzip.csv.gz");
    let whole = fs::metadata(&path).unwrap().len();
    let calls = RefCell::new(Vec::new());
    let options = Options {
        columns: columns("who", "what", ""),
        ..STRICT
    };
    read(&path, &options, &|done, total| {
        calls.borrow_mut().push((done, total));
    })
    .unwrap();
    assert_eq!(calls.into_inner().last(), Some(&(whole, whole)));
}
