//! `sclub features` as a user meets it.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn sclub(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sclub"))
        .current_dir(folder)
        .arg("features")
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As good as at random.
fn is_taken(user: u32, movie: u32) -> bool {
    (user * 37 + movie * 101 + 7) * (user * 53 + movie * 29 + 3) % 97 % 5 < 2
}

/// Forty users and thirty movies; user 100 + n took some by a rule.
fn ratings() -> String {
    let mut text = String::from("userId,movieId,rating,timestamp\n");
    for user in 0..40 {
        for movie in (0..30).filter(|movie| is_taken(user, *movie)) {
            writeln!(text, "{},{},3.5,1112486027", 100 + user, 9000 + movie).unwrap();
        }
    }
    text
}

/// The shape and the numbers of a file of NumPy with float64, row by row.
fn npy(path: &Path) -> (String, Vec<f64>) {
    let bytes = fs::read(path).unwrap();
    let length = usize::from(bytes[8]) + 256 * usize::from(bytes[9]);
    let header = text(&bytes[10..10 + length]);
    assert!(
        header.contains("'<f8'") && header.contains("False"),
        "{header}"
    );
    let numbers = bytes[10 + length..].chunks_exact(8);
    let numbers = numbers.map(|number| f64::from_le_bytes(number.try_into().unwrap()));
    (header, numbers.collect())
}

#[test]
fn vectors_are_written_as_numpy_files_and_tables() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ratings.csv"), ratings()).unwrap();
    let args = [
        "--ratings",
        "ratings.csv",
        "--dim",
        "5",
        "--users",
        "20",
        "--items",
        "10",
    ];
    let output = sclub(
        folder.path(),
        &[&args[..], &["--out", "new/vectors"]].concat(),
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let said = text(&output.stdout);
    for words in [
        "(movielens-csv)",
        "of 40 users and 30 items",
        "Taken: 20 users and 10 items",
        "Singular values: ",
        "% of the squared mass",
        "20 x 5 float64",
        "10 x 5 float64",
    ] {
        assert!(said.contains(words), "{words} is missing from:\n{said}");
    }
    let out = folder.path().join("new/vectors");
    for (kind, count, first) in [("user", 20, 100), ("item", 10, 9000)] {
        let (header, numbers) = npy(&out.join(format!("{kind}s.npy")));
        assert!(header.contains(&format!("({count}, 5")), "{header}");
        let table = fs::read_to_string(out.join(format!("{kind}s.csv"))).unwrap();
        let mut lines = table.lines();
        assert_eq!(
            lines.next(),
            Some(format!("{kind},x1,x2,x3,x4,x5").as_str())
        );
        let lines: Vec<Vec<f64>> = lines
            .map(|line| {
                line.split(',')
                    .map(|field| field.parse().unwrap())
                    .collect()
            })
            .collect();
        assert_eq!(lines.len(), count);
        for (line, row) in lines.iter().zip(numbers.chunks_exact(5)) {
            assert!((first..first + 40).contains(&(line[0] as i32)));
            assert_eq!(&line[1..], row);
            assert!((row[4] - 0.5_f64.sqrt()).abs() < 1e-15);
            let squared = row.iter().map(|value| value * value).sum::<f64>();
            assert!(squared <= 1.0 + 1e-14);
            assert!(
                kind == "item" || (squared - 1.0).abs() < 1e-14,
                "tastes have length 1"
            );
        }
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 4);
}

#[test]
fn all_takes_everybody_in_the_order_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.csv"), ratings()).unwrap();
    let output = sclub(
        folder.path(),
        &["--ratings", "r.csv", "--dim", "3", "--all"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Taken: 40 users and 30 items"));
    let table = fs::read_to_string(folder.path().join("features/users.csv")).unwrap();
    let names: Vec<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap())
        .collect();
    let expected: Vec<String> = (100..140).map(|user| user.to_string()).collect();
    assert_eq!(names, expected);
}

#[test]
fn every_format_can_be_asked_for_and_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let csv = ratings();
    let rows: Vec<Vec<&str>> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();
    let lines = |line: &dyn Fn(&[&str]) -> String| -> String {
        rows.iter().map(|row| line(row) + "\n").collect()
    };
    let json = lines(&|row| {
        format!(
            "{{\"user_id\":\"{}\",\"stars\":{},\"business_id\":\"{}\"}}",
            row[0], row[2], row[1]
        )
    });
    let mut tables = Vec::new();
    for (format, text_of_it) in [
        ("movielens-csv", csv.clone()),
        ("movielens-dat", lines(&|row| row.join("::"))),
        ("yelp-json", json),
        ("separated", lines(&|row| row[..3].join(";"))),
    ] {
        fs::write(folder.path().join(format), text_of_it).unwrap();
        for asked in [format, "auto"] {
            let args = [
                "--ratings",
                format,
                "--format",
                asked,
                "--dim",
                "4",
                "--all",
                "-q",
            ];
            let output = sclub(folder.path(), &args);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(text(&output.stdout).contains(&format!("({format})")));
            tables.push(fs::read(folder.path().join("features/items.csv")).unwrap());
        }
    }
    // What was written is a matrix of NumPy as well.
    let args = [
        "--ratings",
        "features/users.npy",
        "--format",
        "npy",
        "--dim",
        "2",
        "--all",
    ];
    let output = sclub(folder.path(), &[&args[..], &["--out", "again"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn mistakes_are_told_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("good.csv"), ratings()).unwrap();
    fs::write(path.join("bad.csv"), ratings() + "17\n").unwrap();
    fs::write(path.join("empty.csv"), "").unwrap();
    fs::write(path.join("taken"), "").unwrap();
    fs::create_dir_all(path.join("odd/users.npy")).unwrap();
    let lines = ratings().lines().count() + 1;
    for (args, words) in [
        (&["--ratings", "missing.csv"][..], "cannot read missing.csv"),
        (&["--ratings", "."], ". is a folder"),
        (&["--ratings", "empty.csv"], "empty.csv is empty"),
        (
            &["--ratings", "bad.csv"],
            &format!("bad.csv:{lines}: there is no item"),
        ),
        (&["--ratings", "good.csv", "--dim", "1"], "dim is 1"),
        (
            &["--ratings", "good.csv", "--dim", "513"],
            "between 2 and 512",
        ),
        (&["--ratings", "good.csv", "--users", "5"], "users is 5"),
        (
            &["--ratings", "good.csv", "--dim", "35"],
            "35 features need at least 35 items; there are 30",
        ),
        (
            &["--ratings", "good.csv", "--all", "--users", "30"],
            "cannot be used with",
        ),
        (
            &["--ratings", "good.csv", "--format", "npy"],
            "is no matrix of NumPy",
        ),
        (
            &["--ratings", "good.csv", "--out", "taken"],
            "taken is not a folder",
        ),
        (
            &["--ratings", "good.csv", "--out", "odd"],
            "is not a plain file",
        ),
        (&[], "--ratings"),
    ] {
        let output = sclub(path, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = text(&output.stderr);
        assert!(error.contains(words), "{words} is missing from:\n{error}");
        assert!(error.matches("os error").count() <= 1, "{error}");
        assert!(!path.join("features").exists(), "{args:?}");
    }
}

#[test]
fn shortages_and_bad_lines_are_told_and_the_rest_is_done() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.csv"), ratings() + "17\n18,1,good\n").unwrap();
    let output = sclub(folder.path(), &["--ratings", "r.csv", "--skip-bad-lines"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("2 bad lines skipped, first"));
    let warnings = text(&output.stderr);
    assert!(
        warnings.contains("there are 40 users, not 1000"),
        "{warnings}"
    );
    assert!(
        warnings.contains("there are 30 items, not 1000"),
        "{warnings}"
    );
    assert!(folder.path().join("features/items.npy").exists());
}

#[test]
fn a_reader_who_goes_away_is_no_reason_to_fail() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r.csv"), ratings()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sclub"))
        .current_dir(folder.path())
        .args(["features", "--ratings", "r.csv", "--dim", "3", "--all"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert!(folder.path().join("features/users.csv").exists());
}

#[test]
fn help_teaches() {
    let folder = tempfile::tempdir().unwrap();
    let help = text(&sclub(folder.path(), &["--help"]).stdout);
    for word in [
        "Examples:",
        "movielens-dat",
        "yelp-json",
        "--skip-bad-lines",
        "--all",
        "NumPy",
    ] {
        assert!(help.contains(word), "{word} is missing from:\n{help}");
    }
}

/// The features made from a file, or the error.
fn features_of(folder: &Path, file: &str, flags: &[&str]) -> Result<Vec<f64>, String> {
    let args = ["--ratings", file, "--all", "--dim", "4", "--out", "vectors"];
    let output = sclub(folder, &[&args[..], flags].concat());
    match output.status.success() {
        true => Ok(npy(&folder.join("vectors/users.npy")).1),
        false => Err(text(&output.stderr)),
    }
}

#[test]
fn ratings_from_a_threshold_on_are_likes() {
    let folder = tempfile::tempdir().unwrap();
    let rating = |user: u32, movie: u32| 1 + (user + movie) % 5;
    let (mut all, mut liked) = (String::from("viewer,film,points\n"), String::new());
    for user in 0..40 {
        for movie in (0..30).filter(|movie| is_taken(user, *movie)) {
            let rating = rating(user, movie);
            writeln!(all, "{user},{movie},{rating}").unwrap();
            if rating >= 4 {
                writeln!(liked, "{user},{movie}").unwrap();
            }
        }
    }
    fs::write(folder.path().join("all.csv"), all).unwrap();
    fs::write(folder.path().join("liked.csv"), liked).unwrap();
    let columns = ["--user-column", "viewer", "--rating-column", "points"];
    let of = |file: &str, flags: &[&str]| features_of(folder.path(), file, flags);
    let likes = of("all.csv", &[&columns[..], &["--like-from", "4"]].concat()).unwrap();
    assert_eq!(likes, of("liked.csv", &[]).unwrap());
    let values = of("all.csv", &[&columns[..], &["--rating-values"]].concat()).unwrap();
    assert_ne!(values, of("all.csv", &columns).unwrap());
    for (flags, words) in [
        (
            &["--user-column", "viewers"][..],
            "there is no column 'viewers'; the columns are viewer, film, points",
        ),
        (
            &["--user-column", "viewer", "--like-from", "4"],
            "no column is called rating or the like",
        ),
        (&["--like-from", "inf"], "like-from is inf"),
        (
            &["--like-from", "4", "--rating-values"],
            "cannot be used with",
        ),
    ] {
        let error = of("all.csv", flags).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

/// Thirty movies with a title, one of three genres and a price.
fn catalogue() -> String {
    let mut text = String::from("movieId,title,genres,price\n");
    for movie in 0..30 {
        let genre = ["crime", "space", "love"][movie % 3];
        let title = ["The end of", "A story of", "Return to"][movie / 3 % 3];
        writeln!(
            text,
            "{},{title} {genre},{genre}|{},{}",
            9000 + movie,
            title.len(),
            movie * 3 % 7
        )
        .unwrap();
    }
    text
}

#[test]
fn a_catalogue_becomes_vectors_a_transform_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("catalogue.csv"), catalogue()).unwrap();
    let output = sclub(
        path,
        &["--items", "catalogue.csv", "--dim", "6", "--out", "made"],
    );
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in [
        "title   text ",
        "genres  tags ",
        "price   number ",
        "The vectors explain ",
    ] {
        assert!(printed.contains(line), "{line}:\n{printed}");
    }
    let (header, numbers) = npy(&path.join("made/items.npy"));
    assert!(header.contains("(30, 6"), "{header}");
    let table = fs::read_to_string(path.join("made/items.csv")).unwrap();
    let rows = table.lines().skip(1).zip(numbers.chunks(6)).zip(9000..);
    for ((line, row), id) in rows {
        let mut fields = line.split(',');
        assert_eq!(fields.next(), Some(&*id.to_string()));
        let same: Vec<f64> = fields.map(|field| field.parse().unwrap()).collect();
        assert_eq!(same, row);
        assert!(row.iter().map(|x| x * x).sum::<f64>() < 1.0 + 1e-9);
    }
    // The same bytes again, and from another format.
    let first = fs::read(path.join("made/transform.json")).unwrap();
    let mut json = String::new();
    for line in catalogue().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [id, title, genres, price] = fields[..] else {
            panic!("{line}")
        };
        writeln!(
            json,
            r#"{{"movieId": {id}, "title": "{title}", "genres": "{genres}", "price": {price}}}"#
        )
        .unwrap();
    }
    fs::write(path.join("catalogue.jsonl"), json).unwrap();
    for file in ["catalogue.csv", "catalogue.jsonl"] {
        let output = sclub(path, &["--items", file, "--dim", "6", "--out", "again"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            fs::read(path.join("again/transform.json")).unwrap() == first,
            "{file}"
        );
    }
}

#[test]
fn a_catalogue_and_ratings_make_one_transform() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(
        path.join("catalogue.csv"),
        catalogue() + "1,Something new,space|9,3\n",
    )
    .unwrap();
    fs::write(
        path.join("ratings.csv"),
        ratings() + "100,77,3,1112486027\n",
    )
    .unwrap();
    let args = [
        "--items",
        "catalogue.csv",
        "--ratings",
        "ratings.csv",
        "--dim",
        "5",
    ];
    let output = sclub(path, &args);
    let (printed, warned) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{warned}");
    assert!(
        printed.contains("40 users") && printed.contains("30 items were taken by 5 users or more"),
        "{printed}"
    );
    assert!(
        warned.contains("1 of 31 items in ratings.csv are not in the catalogue"),
        "{warned}"
    );
    assert!(npy(&path.join("features/items.npy")).0.contains("(31, 5"));
}

#[test]
fn a_bad_catalogue_is_refused_with_the_line_and_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let refused = |args: &[&str]| {
        let output = sclub(path, args);
        assert!(!output.status.success(), "{}", text(&output.stdout));
        assert!(!path.join("features").exists());
        text(&output.stderr)
    };
    fs::write(path.join("a.csv"), "id,title,price\n1,a b,2\n\n1,c d,3\n").unwrap();
    let error = refused(&["--items", "a.csv"]);
    assert!(
        error.contains(
            "a.csv:4: its id '1' is that of item 1; --skip-bad-lines skips such lines, and --gather with --id-column makes one \
             item of them"
        ),
        "{error}"
    );
    fs::write(path.join("b.csv"), "id,title,price\n1,a b,2\n2,c d,much\n").unwrap();
    let error = refused(&["--items", "b.csv", "--number", "price"]);
    assert!(
        error.contains(
            "b.csv:3: the field 'price' is \"much\"; a number is expected; --skip-bad-lines skips such lines"
        ),
        "{error}"
    );
    let error = refused(&["--items", "b.csv", "--text", "name"]);
    assert!(
        error.contains("there is no column 'name'; the columns are id, price, title"),
        "{error}"
    );
    let error = refused(&["--items", "20"]);
    assert!(
        error.contains("name a file of ratings with --ratings"),
        "{error}"
    );
    let error = refused(&["--items", "missing.csv"]);
    assert!(error.contains("cannot read missing.csv"), "{error}");
}

/// A shop's catalogue with 60 items, whose prices are given.
fn shop(price: impl Fn(usize) -> String) -> String {
    let mut text = String::from("id,kind,code,price\n");
    for item in 0..60 {
        let kind = ["tea", "coffee"][item % 2];
        writeln!(text, "k{item},{kind},AX-{item},\"{}\"", price(item)).unwrap();
    }
    text
}

#[test]
fn a_column_that_seems_to_be_availability_is_told_about() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = String::from("id,kind,in_stock,price\n");
    for item in 0..60 {
        let kind = ["tea", "coffee", "milk"][item % 3];
        let stock = ["yes", "no"][item / 7 % 2];
        writeln!(table, "k{item},{kind},{stock},{}.50", item % 9).unwrap();
    }
    fs::write(folder.path().join("shop.csv"), table).unwrap();
    let warned = |more: &[&str]| {
        let args = ["--items", "shop.csv", "--dim", "4"];
        let output = sclub(folder.path(), &[&args, more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(
        warned(&[]),
        "sclub: warning: column 'in_stock': is this availability? It becomes a feature, and does not keep an item from being \
         recommended: only the field 'available' (true or false) does: shop.csv:2 'yes', shop.csv:3 'yes', shop.csv:4 'yes', \
         and 57 more; name the column with ignore to leave it out\n"
    );
    assert_eq!(warned(&["--ignore", "in_stock"]), "");
}

#[test]
fn a_price_that_is_missing_does_not_cost_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let cents = |item: usize| 150 + item * 7919 % 2000;
    let plain = |item: usize| format!("{}.{:02}", cents(item) / 100, cents(item) % 100);
    let made = |price: &dyn Fn(usize) -> String| {
        fs::write(path.join("shop.csv"), shop(price)).unwrap();
        let output = sclub(path, &["--items", "shop.csv", "--dim", "4"]);
        let (printed, warned) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{warned}");
        assert!(printed.contains("price   number "), "{printed}");
        let left = "Left out: code (codes of one word that hardly repeat)\n";
        assert!(printed.contains(left), "{printed}");
        (fs::read(path.join("features/items.csv")).unwrap(), warned)
    };
    let with = |other: &'static str| {
        move |item: usize| match item {
            10 => other.to_owned(),
            item => plain(item),
        }
    };
    let (expected, warned) = made(&with(""));
    assert_eq!(warned, "");
    for other in ["n/a", "-", "NA", "TBD", "null", "None", "call us"] {
        let (vectors, warned) = made(&with(other));
        assert!(vectors == expected, "{other}");
        assert!(
            warned.starts_with(&format!(
                "sclub: warning: column 'price': of 60 values 1 is no number and counts as missing: shop.csv:12 '{other}'"
            )),
            "{warned}"
        );
    }
    // Prices as they are written elsewhere.
    let (expected, _) = made(&plain);
    let comma = |item: usize| plain(item).replace('.', ",");
    assert_eq!(made(&comma), (expected.clone(), String::new()));
    let euro = |item: usize| comma(item) + if item == 3 { " €" } else { "" };
    assert_eq!(made(&euro), (expected.clone(), String::new()));
    let one_comma = |item: usize| if item == 4 { comma(item) } else { plain(item) };
    assert_eq!(made(&one_comma), (expected, String::new()));
    let (expected, _) = made(&|item| format!("{}.25", item * 100));
    let thousands = |item: usize, between: char, point: char| match item * 100 {
        all if all >= 1000 => format!("{}{between}{:03}{point}25", all / 1000, all % 1000),
        all => format!("{all}{point}25"),
    };
    for (between, point) in [(',', '.'), ('.', ','), (' ', ','), ('\'', '.')] {
        let made = made(&|item| thousands(item, between, point));
        assert_eq!(made, (expected.clone(), String::new()), "{between}");
    }
    // A named column reads the same.
    fs::write(path.join("shop.csv"), shop(comma)).unwrap();
    let args = ["--items", "shop.csv", "--dim", "4", "--number", "price"];
    assert!(sclub(path, &args).status.success());
}

#[test]
fn bad_lines_of_a_catalogue_are_skipped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let rows = "1,a b,2\n2,c d,much\n3,e f,4\n1,a c,3\n5,x\n,y z,5\n";
    fs::write(path.join("a.csv"), format!("id,title,price\n{rows}")).unwrap();
    let args = ["--items", "a.csv", "--dim", "2", "--number", "price"];
    let output = sclub(path, &[&args[..], &["--skip-bad-lines"]].concat());
    let warned = text(&output.stderr);
    assert!(output.status.success(), "{warned}");
    let expected = "sclub: warning: bad lines skipped: 4, first a.csv:3: the field 'price' is \"much\"; a number is expected\n";
    assert!(warned.contains(expected), "{warned}");
    assert!(text(&output.stdout).contains("Read a.csv: 2 items\n"));
    let table = fs::read_to_string(path.join("features/items.csv")).unwrap();
    let ids: Vec<&str> = table.lines().skip(1).map(|line| &line[..1]).collect();
    assert_eq!(ids, ["1", "3"]);
    // Nothing is left.
    fs::write(path.join("b.csv"), "id,price\n1,x\n2,y\n").unwrap();
    let args = ["--items", "b.csv", "--number", "price", "--skip-bad-lines"];
    let output = sclub(path, &args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("there are 0 items"), "{error}");
}

#[test]
fn a_column_of_numbers_stays_one_when_rows_are_gathered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut rows = String::from("id,tag,price\n");
    let mut once = String::from("id,tag,price\n");
    for item in 0..30 {
        let tags = [["x", "y"], ["y", "z"], ["z", "x"]][item % 3];
        let price = item * 17 % 10;
        for tag in tags {
            let other = usize::from(item == 7 && tag == "z");
            writeln!(rows, "{item},{tag},{}", price + other).unwrap();
        }
        writeln!(once, "{item},{},{price}", tags.join("|")).unwrap();
    }
    fs::write(path.join("rows.csv"), rows).unwrap();
    fs::write(path.join("once.csv"), once).unwrap();
    let gather = ["--gather", "--id-column", "id"];
    let made = |file: &str, flags: &[&str]| {
        let args = ["--items", file, "--dim", "5"];
        let output = sclub(path, &[&args[..], flags].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let vectors = fs::read(path.join("features/items.csv")).unwrap();
        (vectors, text(&output.stdout), text(&output.stderr))
    };
    let (expected, printed, _) = made("once.csv", &[]);
    assert!(printed.contains("price   number "), "{printed}");
    let (vectors, printed, warned) = made("rows.csv", &gather);
    assert!(printed.contains("price   number "), "{printed}");
    assert!(vectors == expected);
    assert_eq!(
        warned,
        "sclub: warning: column 'price': 1 item has different numbers, of which the first counts: rows.csv:16 [\"9\",\"10\"]; to \
         take them as tags, name the column with tags\n"
    );
    let (_, printed, warned) = made("rows.csv", &[&gather[..], &["--tags", "price"]].concat());
    assert!(printed.contains("price   tags "), "{printed}");
    assert_eq!(warned, "");
}
