//! `sclub paper` as a user meets it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "common/axe.rs"]
mod axe;
use axe::axe;

fn sclub(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sclub"));
    command.current_dir(folder).arg("paper").args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let output = sclub(folder, args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// The measured results, without times and without the origin of the report.
fn measured(folder: &Path) -> Value {
    let bytes = std::fs::read(folder.join("report/results.json")).unwrap();
    let mut report: Value = serde_json::from_slice(&bytes).unwrap();
    report["origin"] = Value::Null;
    for panel in report["panels"].as_array_mut().unwrap() {
        for cell in panel["cells"].as_array_mut().unwrap() {
            cell["seconds"] = Value::Null;
        }
    }
    report
}

/// Ratings of people with some taste, in the format of MovieLens 20M.
fn ratings(folder: &Path) -> PathBuf {
    let mut csv = String::from("userId,movieId,rating,timestamp\n");
    for user in 1..=130u64 {
        for item in 1..=90u64 {
            let hash = (user * 7919 + item * 104_729) * 2_654_435_761 % 1000;
            let chance = if user % 5 == item % 5 { 550 } else { 120 };
            if hash < chance {
                writeln!(csv, "{user},{item},3.5,1112486027").unwrap();
            }
        }
    }
    let path = folder.join("ratings.csv");
    std::fs::write(&path, csv).unwrap();
    path
}

const SMALL: [&str; 4] = ["--rounds", "400", "--seeds", "2"];

#[test]
fn without_data_everything_else_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &SMALL);
    let output = text(&output.stdout);
    assert!(output.contains("(1a)") && output.contains("(1c)") && !output.contains("(2a)"));
    assert!(output.contains("Open report/index.html"), "{output}");
    assert!(output.contains("Not to be compared with the paper"));
    let report = folder.path().join("report");
    let page = std::fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("sclub paper --movielens"), "how to get it");
    assert!(
        page.contains("sclub paper --rounds 400 --seeds 2"),
        "the command"
    );
    for name in [
        "figure-1a",
        "figure-1b",
        "figure-1c",
        "theorem-1",
        "many-users",
    ] {
        let svg = std::fs::read_to_string(report.join(format!("figures/{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg"), "{name}");
        let png = std::fs::read(report.join(format!("figures/{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"), "{name}");
    }
    let results = measured(folder.path());
    let panels = results["panels"].as_array().unwrap();
    assert_eq!(panels.len(), 7);
    for (at, panel) in panels.iter().enumerate() {
        let cells = panel["cells"].as_array().unwrap();
        assert_eq!(cells.len(), if at < 3 { 5 } else { 0 });
        assert_eq!(panel["missing"].is_string(), at >= 3);
    }
    assert_eq!(panels[0]["cells"][3]["published_regret"], 68_238.0);
    assert_eq!(panels[0]["cells"][4]["policy"], "sclub-soft");
    assert!(panels[0]["cells"][4]["published_regret"].is_null());
    assert!(page.contains("no bound on its regret is proven"));
    assert_eq!(results["audit"]["variants"].as_array().unwrap().len(), 17);
    assert_eq!(results["held_out"].as_array().unwrap().len(), 0);
}

#[test]
fn a_second_run_runs_nothing_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &SMALL);
    let first = measured(folder.path());
    let output = run(folder.path(), &SMALL);
    assert!(text(&output.stdout).contains(" 0 results run"));
    assert!(measured(folder.path()) == first, "other results");
    // One seed more: only that is run. Other rounds: everything.
    let more = run(folder.path(), &["--rounds", "400", "--seeds", "3"]);
    let again = text(&more.stdout);
    let kept = |said: &str| -> usize {
        let (_, rest) = said.split_once("results run, ").unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(kept(&again) > 50, "{again}");
    let other = run(folder.path(), &["--rounds", "900", "--seeds", "2"]);
    assert_eq!(kept(&text(&other.stdout)), 0);
    let fresh = run(
        folder.path(),
        &["--rounds", "400", "--seeds", "2", "--fresh"],
    );
    assert_eq!(kept(&text(&fresh.stdout)), 0);
    assert!(measured(folder.path()) == first, "other results");
}

#[test]
fn killed_at_any_time_it_goes_on_where_it_was() {
    let whole = tempfile::tempdir().unwrap();
    let args = [
        "--rounds",
        "6000",
        "--seeds",
        "3",
        "--parts",
        "panels,theorems",
        "-q",
    ];
    run(whole.path(), &args);

    let folder = tempfile::tempdir().unwrap();
    let cells = folder.path().join("report/cells.jsonl");
    let mut killed = 0;
    for lines in [4, 12, 20] {
        let mut child = sclub(folder.path(), &args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            let there =
                std::fs::read(&cells).map_or(0, |b| b.iter().filter(|&&c| c == b'\n').count());
            if there >= lines {
                // SIGKILL: no handler gets to run.
                child.kill().unwrap();
                killed += 1;
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "it hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.wait().unwrap();
    }
    assert!(killed >= 1, "it was too fast to be killed even once");
    let before = std::fs::read_to_string(&cells).unwrap();
    let output = run(folder.path(), &args);
    assert!(!text(&output.stdout).contains(" 0 kept"));
    let after = std::fs::read_to_string(&cells).unwrap();
    assert!(
        after.starts_with(&before),
        "what was kept was not run again"
    );
    assert!(
        measured(folder.path()) == measured(whole.path()),
        "other results than without a stop"
    );
}

#[cfg(unix)]
#[test]
fn stopped_in_order_it_says_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--rounds", "40000", "--seeds", "6", "--threads", "1", "-q"];
    let child = sclub(folder.path(), &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let cells = folder.path().join("report/cells.jsonl");
    let start = Instant::now();
    while std::fs::metadata(&cells).map_or(0, |file| file.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(120), "it hangs");
        std::thread::sleep(Duration::from_millis(2));
    }
    let stop = ["-INT", &child.id().to_string()].map(String::from);
    assert!(Command::new("kill").args(stop).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Run the same command again"));
    let output = text(&output.stdout);
    assert!(output.contains("of 6 seeds"), "{output}");
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    for words in [
        "Not complete.",
        "of 6 seeds so far",
        "Still to come: the audit",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn real_data_make_the_other_panels() {
    let folder = tempfile::tempdir().unwrap();
    let path = ratings(folder.path());
    let path = path.to_str().unwrap();
    let args = ["--quick", "--rounds", "300", "--seeds", "2"];
    let mut all = args.to_vec();
    all.extend(["--movielens", path, "--yelp", path]);
    let output = run(folder.path(), &all);
    assert!(text(&output.stdout).contains("Not the paper's data"));
    let results = measured(folder.path());
    for panel in results["panels"].as_array().unwrap() {
        assert_eq!(panel["cells"].as_array().unwrap().len(), 5);
        let is_real = panel["id"].as_str().unwrap().starts_with('2');
        assert_eq!(panel["note"].is_string(), is_real);
    }
    let held_out = results["held_out"].as_array().unwrap();
    assert_eq!(held_out.len(), 2);
    for data in held_out {
        assert!(
            data["note"]
                .as_str()
                .unwrap()
                .contains("Not the paper's data")
        );
        for table in data["tables"].as_array().unwrap() {
            let rows = table["rows"].as_array().unwrap();
            let rate = |at: usize| rows[at]["rate"]["mean"].as_f64().unwrap();
            assert!((rate(0) - 0.05).abs() < 0.02, "random: {}", rate(0));
            assert!(rows[1]["over_one"].is_null() && rows[3]["over_tuned_ind"].is_null());
            let constants = |row: &&Value| row["constants"] == "no constants to choose";
            let own: Vec<&Value> = rows
                .iter()
                .filter(constants)
                .map(|r| &r["policy"])
                .collect();
            assert_eq!(own, ["gaussian", "sclub-soft"]);
        }
    }
}

/// The rows of the paper are as without the others, whose rows have the results of `sclub run`.
#[test]
fn policies_are_added_to_the_panels_and_choices() {
    let folder = tempfile::tempdir().unwrap();
    let path = ratings(folder.path());
    let mut args = vec!["--quick", "--rounds", "300", "--seeds", "1", "--parts"];
    args.extend([
        "panels,choices",
        "--movielens",
        path.to_str().unwrap(),
        "--fresh",
    ]);
    run(folder.path(), &args);
    let without = measured(folder.path());
    args.extend(["--policies", "ts:club,gaussian,dynucb"]);
    run(folder.path(), &args);
    let mut with = measured(folder.path());
    let out = folder.path().join("run.json");
    let output = Command::new(env!("CARGO_BIN_EXE_sclub"))
        .current_dir(folder.path())
        .args(["run", "--rounds", "300", "--seeds", "1", "--no-figure"])
        .args(["--policies", "ts:club,gaussian,dynucb", "--json"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let of_run: Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    for (at, run) in of_run["runs"].as_array().unwrap().iter().enumerate() {
        let cell = &with["panels"][0]["cells"][5 + at];
        assert_eq!(cell["policy"], run["policy"]);
        assert_eq!(cell["regret"]["mean"], run["regret"]);
    }
    for panel in with["panels"].as_array_mut().unwrap() {
        let cells = panel["cells"].as_array_mut().unwrap();
        assert!(cells.is_empty() || cells.len() == 8);
        cells.truncate(5);
    }
    for table in with["held_out"][0]["tables"].as_array_mut().unwrap() {
        let rows = table["rows"].as_array_mut().unwrap();
        // The Gaussian prior has its row anyway.
        let added: Vec<Value> = rows.drain(9..11).collect();
        let labels: Vec<&Value> = added.iter().map(|row| &row["label"]).collect();
        assert_eq!(labels, ["TS of CLUB", "DynUCB"]);
        assert!(
            added
                .iter()
                .all(|row| row["constants"] == "default constants")
        );
    }
    assert!(with == without, "other results of the paper's policies");
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("DynUCB is not in the paper."));
}

#[test]
fn wrong_arguments_are_told_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    for (args, message) in [
        (vec!["--rounds", "0"], "rounds is 0"),
        (vec!["--seeds", "0"], "seeds is 0"),
        (vec!["--threads", "0"], "threads is 0"),
        (
            vec!["--movielens", "nowhere.csv"],
            "cannot read nowhere.csv",
        ),
        (vec!["--parts", "choices"], "--movielens"),
        (vec!["--policies", "oracle"], "'oracle' is a yardstick"),
        (vec!["--policies", "random"], "'random' is a yardstick"),
        (vec!["--policies", "club-cascade"], "is for lists"),
        (vec!["--policies", "club"], "'club' is in every report"),
        (vec!["--policies", "cab,cab"], "'cab' is named twice"),
    ] {
        let output = sclub(folder.path(), &args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let output = text(&output.stderr);
        assert!(output.contains(message), "{output}");
        assert!(!folder.path().join("report").exists());
    }
    let foreign = folder.path().join("site");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("index.html"), "mine").unwrap();
    let output = sclub(folder.path(), &["--out", "site"]).output().unwrap();
    assert!(text(&output.stderr).contains("did not write"));
    assert_eq!(std::fs::read(foreign.join("index.html")).unwrap(), b"mine");
    std::fs::write(folder.path().join("report"), "a file").unwrap();
    let output = sclub(folder.path(), &[]).output().unwrap();
    assert!(text(&output.stderr).contains("report is not a folder"));
    std::fs::write(folder.path().join("tiny.csv"), "userId,movieId\n1,2\n").unwrap();
    let args = ["--movielens", "tiny.csv", "--out", "other"];
    let output = sclub(folder.path(), &args).output().unwrap();
    let output = text(&output.stderr);
    assert!(
        output.contains("tiny.csv cannot be used as MovieLens"),
        "{output}"
    );
}

/// A browser of the Chromium family, if there is one.
fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    names.into_iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    })
}

/// Says what the page looks like from inside, in a place where the test finds it.
const PROBE: &str = "<script>
const style = getComputedStyle(document.body);
const wide = [...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width < 50);
document.documentElement.setAttribute('data-probe', JSON.stringify({
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  figures: document.querySelectorAll('svg').length, collapsed: wide.length,
  text: style.color, ground: getComputedStyle(document.documentElement).backgroundColor + style.backgroundColor,
  loaded: performance.getEntriesByType('resource').length,
  colours: new Set([...document.querySelectorAll('.common .sample')].map(s => getComputedStyle(s).borderTopColor)).size,
}));
</script></body>";

/// Says which rules of axe-core the page breaks.
const RUN_AXE: &str = "<script>
axe.run(document, { resultTypes: ['violations'] }).then(found => document.documentElement.setAttribute('data-axe',
  found.violations.map(rule => rule.id + ' ' + rule.nodes[0].target).join('; ')));
</script>";

#[test]
fn the_page_works_in_a_real_browser() {
    let Some(browser) = chromium() else {
        assert!(std::env::var_os("CI").is_none(), "CI has a browser");
        eprintln!("no Chromium here: the page is not looked at");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let more = ["--policies", "ts:club,dynucb,gaussian"];
    run(folder.path(), &[&SMALL[..], &more].concat());
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    let probed = folder.path().join("probed.html");
    let axe = axe().map(|source| format!("<script>{source}</script>{RUN_AXE}"));
    let probe = format!("{}{PROBE}", axe.as_deref().unwrap_or_default());
    std::fs::write(&probed, page.replace("</body>", &probe)).unwrap();
    let mut seen = Vec::new();
    for (width, scheme) in [(1280, 1), (500, 0)] {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .arg(format!("--window-size={width},900"))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg("--virtual-time-budget=60000")
            .arg(format!("file://{}", probed.display()))
            .output()
            .unwrap();
        let dom = text(&output.stdout);
        let (_, rest) = dom
            .split_once("data-probe=\"")
            .expect("the page's script ran");
        let probe = rest.split('"').next().unwrap().replace("&quot;", "\"");
        let probe: Value = serde_json::from_str(&probe).unwrap();
        assert_eq!(probe["overflow"], 0, "nothing sticks out at {width}");
        assert!(probe["figures"].as_u64().unwrap() >= 5, "{probe}");
        assert_eq!(probe["collapsed"], 0, "{probe}");
        assert_eq!(probe["loaded"], 0, "nothing else is fetched");
        assert_eq!(probe["colours"], 8, "a colour for each policy");
        if axe.is_some() {
            let (_, rest) = dom.split_once("data-axe=\"").expect("axe-core has run");
            assert_eq!(rest.split('"').next(), Some(""), "axe-core at {width}");
        }
        seen.push(format!("{}{}", probe["text"], probe["ground"]));
    }
    assert_ne!(seen[0], seen[1], "light and dark differ");
}
