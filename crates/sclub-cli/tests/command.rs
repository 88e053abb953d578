//! The command as a user meets it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sclub_lab::policies::{Knowledge, Name, Preset, choose};
use serde_json::Value;

fn sclub() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sclub"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn small_run(folder: &Path, more: &[&str]) -> Output {
    sclub()
        .current_dir(folder)
        .args([
            "run",
            "--users",
            "30",
            "--clusters",
            "3",
            "--dim",
            "5",
            "--items",
            "8",
        ])
        .args(["--rounds", "2000", "--seeds", "2"])
        .args(more)
        .output()
        .unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn alone_it_says_what_to_type_next() {
    let output = sclub().output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("sclub run"));
}

#[test]
fn help_teaches() {
    let help = text(&sclub().args(["run", "--help"]).output().unwrap().stdout);
    for word in [
        "All policies face the same",
        "(1a)",
        "(1b)",
        "(1c)",
        "Examples:",
        "linucb-ind",
        "sclub-soft",
        "--half-life",
        "oracle",
        "2^20-2",
        "theory",
        "sclub-soft without clusters: one Gaussian prior for all users",
        "--constant-clusters",
        "average-frequency",
    ] {
        assert!(help.contains(word), "{word} is missing from:\n{help}");
    }
}

#[test]
fn every_constant_is_a_flag_and_experts_alone_see_all() {
    let [short, long] = ["-h", "--help"].map(|flag| {
        let output = sclub().args(["run", flag]).output().unwrap();
        text(&output.stdout)
    });
    for constant in sclub::registry().iter().flat_map(|spec| spec.constants) {
        let flag = format!("{} <", constant.name.replace('_', "-"));
        assert!(
            long.contains(&format!("--{flag}")) || long.contains(&format!("--constant-{flag}"))
        );
        let is_short = short.contains(&format!("--{flag}"));
        // Some have the names of other flags.
        let is_other = long.contains(&format!("--constant-{flag}"));
        assert_eq!(is_short, is_other || !constant.advanced, "{flag}");
    }
}

#[test]
fn a_run_prints_a_table_and_writes_json_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let output = small_run(folder.path(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let policies = choose(None, Knowledge::Clusters).unwrap();
    for name in &policies {
        assert!(
            table.contains(&format!(" {name} ")),
            "{name} is missing from:\n{table}"
        );
    }
    assert!(table.contains("\nsclub-soft: ") && table.contains("\ngaussian: one prior after "));
    let document = read(&folder.path().join("results/run.json"));
    assert_eq!(document["complete"], true);
    assert_eq!(document["config"]["frequencies"], "uniform");
    assert_eq!(document["config"]["preset"], "tuned");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * policies.len());
    for run in runs {
        for key in [
            "regret",
            "reward",
            "random_regret",
            "policy_seconds",
            "adjusted_rand",
        ] {
            assert!(run[key].is_number(), "{key} of {run}");
        }
        assert_eq!(run["rounds"], 2000);
        assert!(run["clusters"].is_u64() && run["seed"].is_u64());
        let curve = run["curve"].as_array().unwrap();
        assert_eq!(curve[0][0], 1);
        assert_eq!(curve.last().unwrap()[0], 2000);
        assert_eq!(curve.last().unwrap()[1], run["regret"]);
        assert!(run["regret"].as_f64() < Some(1.2 * run["random_regret"].as_f64().unwrap()));
        let policy = run["policy"].as_str().unwrap();
        let spec = policy.parse::<Name>().unwrap().spec();
        assert_eq!(run["preset"], spec.preset(Preset::Tuned).as_str());
        assert_eq!(run["clustering"].is_object(), spec.can.fit, "{run}");
        if spec.can.fit {
            let clustering = &run["clustering"];
            assert_eq!(clustering["clusters"], run["clusters"]);
            let history = clustering["history"].as_array().unwrap();
            assert_eq!(history.last().unwrap()[1], run["clusters"]);
            assert!(clustering["fits"].as_u64() >= Some(history.len() as u64));
            assert!((0.0..=1.0).contains(&clustering["unplaced"].as_f64().unwrap()));
            for key in ["effective_parameters", "noise", "gain"] {
                assert!(clustering[key].is_number(), "{key} of {run}");
            }
            assert!(clustering["used"].is_boolean());
            assert!(clustering.as_object().unwrap().contains_key("warning"));
        }
    }
    let svg = std::fs::read_to_string(folder.path().join("results/run.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("cumulative regret"));
    let png = std::fs::read(folder.path().join("results/run.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
}

#[test]
fn a_world_off_the_papers_track_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "--sizes",
        "unequal",
        "--spread",
        "0.3",
        "--reward-scale",
        "0.5",
    ];
    let more = ["--newcomers-every", "12.5", "--change-at", "2^10"];
    let output = small_run(folder.path(), &[&flags[..], &more[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = "sizes unequal, spread 0.3, reward-scale 0.5, newcomers-every 12.5, change-at 1024";
    assert!(text(&output.stdout).contains(said));
    let config = read(&folder.path().join("results/run.json"))["config"].clone();
    assert_eq!(config["sizes"], "unequal");
    assert_eq!(config["change_at"], 1024);
    for (name, value) in [
        ("spread", 0.3),
        ("reward_scale", 0.5),
        ("newcomers_every", 12.5),
    ] {
        assert_eq!(config[name], value);
    }
    for (flag, value, message) in [
        ("--spread", "-1", "spread is -1"),
        ("--reward-scale", "2", "reward-scale is 2"),
        ("--newcomers-every", "0", "newcomers-every is 0"),
    ] {
        let output = small_run(folder.path(), &[flag, value]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(message), "{message}");
    }
}

#[test]
fn settings_of_other_papers_are_named_in_the_title_and_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let said_and_config = |flags: &[&str]| {
        let flags = [flags, &["--policies", "linucb-one,oracle,random"]].concat();
        let output = small_run(folder.path(), &flags);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let config = read(&folder.path().join("results/run.json"))["config"].clone();
        (text(&output.stdout), config)
    };
    let (said, config) = said_and_config(&[
        "--items-fixed",
        "40",
        "--item-clusters",
        "2",
        "--cascade",
        "3",
        "--misspecified",
        "0.05",
        "--corrupted",
        "0.2",
        "--corrupted-rounds",
        "2^9",
    ]);
    let title = "reward-scale 0.2, misspecified 0.05, corrupted 0.2, corrupted-rounds 512, items-fixed 40, \
                 item-clusters 2, cascade 3";
    assert!(said.contains(title), "{said}");
    assert!(
        said.contains("the best lists would have brought more"),
        "{said}"
    );
    for (name, value) in [
        ("items_fixed", 40),
        ("item_clusters", 2),
        ("cascade", 3),
        ("corrupted_rounds", 512),
    ] {
        assert_eq!(config[name], value);
    }
    assert_eq!(config["misspecified"], 0.05);
    assert_eq!(config["reward_scale"], 0.2, "the default with --cascade");
    let (said, config) =
        said_and_config(&["--overlap", "0.8", "--smoothed", "0.1", "--servers", "5"]);
    assert!(
        said.contains("overlap 0.8, smoothed 0.1, servers 5"),
        "{said}"
    );
    assert_eq!(config["overlap"], 0.8);
    assert_eq!(config["smoothed"], 0.1);
    assert_eq!(config["servers"], 5);
    let (_, config) = said_and_config(&[]);
    for name in ["misspecified", "corrupted_rounds", "cascade", "servers"] {
        assert!(config.get(name).is_none(), "{name}");
    }
    for (flags, message) in [
        (
            &["--item-clusters", "2"][..],
            "item-clusters needs items-fixed",
        ),
        (
            &["--corrupted-rounds", "9"],
            "--corrupted-rounds goes with --corrupted",
        ),
        (
            &["--cascade", "9"],
            "cascade is 9; it must be between 1 and",
        ),
        (
            &["--cascade", "2", "--rewards", "gaussian"],
            "cascade and rewards gaussian cannot be combined",
        ),
        (
            &["--overlap", "0.5", "--spread", "0.2"],
            "overlap and spread cannot be combined",
        ),
        (
            &["--world", "catalogue", "--cascade", "2"],
            "--cascade does not apply to --world catalogue",
        ),
    ] {
        let output = sclub()
            .current_dir(folder.path())
            .arg("run")
            .args(flags)
            .args(["--items", "8"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let said = text(&output.stderr);
        assert!(said.contains(message), "{said}");
    }
    let output = sclub()
        .args(["simulate", "--cascade", "3"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(
        said.contains("--cascade does not apply to a server"),
        "{said}"
    );
}

#[test]
fn a_reader_who_goes_away_is_no_reason_to_fail() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = sclub()
        .current_dir(folder.path())
        .args([
            "run",
            "--users",
            "9",
            "--clusters",
            "3",
            "--dim",
            "1",
            "--items",
            "1",
        ])
        .args(["--rounds", "500", "--seeds", "1", "--no-figure"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert!(folder.path().join("results/run.json").exists());
}

#[test]
fn one_thread_and_two_write_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let strip = |name: &str| {
        let mut document = read(&folder.path().join(name));
        for run in document["runs"].as_array_mut().unwrap() {
            run.as_object_mut().unwrap().remove("policy_seconds");
        }
        document["runs"].clone()
    };
    for (threads, name) in [("1", "one.json"), ("2", "two.json")] {
        let more = [
            "--threads",
            threads,
            "--json",
            name,
            "--no-figure",
            "--frequencies",
            "users",
        ];
        assert!(small_run(folder.path(), &more).status.success());
    }
    assert_eq!(strip("one.json"), strip("two.json"));
    assert!(!folder.path().join("one.svg").exists());
}

#[test]
fn a_mistake_is_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    for (more, expected) in [
        (&["--alpha-theta", "-2"][..], "alpha_theta"),
        (&["--policies", "sclub,linucb"], "unknown policy 'linucb'"),
        (&["--policies", "sclub,sclub"], "named twice"),
        (&["--clusters", "31"], "at most the number of users, 30"),
        (&["--rounds", "many"], "not a whole number"),
        (&["--rewards", "gaussian", "--noise", "-1"], "noise"),
        (&["--threads", "0"], "threads"),
        (&["--threads", "100000"], "threads"),
        (&["--noise", "0.3"], "--rewards gaussian"),
        (&["--users", "-3"], "not a whole number"),
        (&["--half-life", "0.5"], "half_life: it is 0.5"),
        (
            &["--policies", "sclub", "--half-life", "50"],
            "sclub-soft or gaussian",
        ),
        (
            &["--beta", "1", "--beta-scale", "1"],
            "beta: it cannot be given together with beta_scale",
        ),
        (&["--index", "cubed"], "use one of norm, squared"),
        (&["--preset", "default"], "tuned, released, theory"),
        (&["--constant-seeds", "1.5"], "seeds: it is 1.5"),
        (&["--json", "run.svg"], "overwritten"),
        (&["--json", "/dev/null"], "not a plain file"),
        (&["--json", "."], "not a plain file"),
    ] {
        let output = small_run(folder.path(), more);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{}",
            text(&output.stderr)
        );
    }
    let written = walk(folder.path());
    assert!(written.is_empty(), "{written:?}");
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(walk(&path))
        } else {
            files.push(path)
        }
    }
    files
}

/// Starts a run that would take minutes and interrupts it after the given time.
#[cfg(unix)]
fn interrupted(folder: &Path, rounds: &str, seeds: &str, after: Duration) -> Output {
    let child = sclub()
        .current_dir(folder)
        .args([
            "run",
            "--users",
            "20",
            "--clusters",
            "2",
            "--dim",
            "4",
            "--items",
            "4",
        ])
        .args([
            "--policies",
            "linucb-ind",
            "--threads",
            "1",
            "--rounds",
            rounds,
            "--seeds",
            seeds,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    child.wait_with_output().unwrap()
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_seeds_that_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let output = interrupted(folder.path(), "20000", "10^6", Duration::from_secs(3));
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document = read(&folder.path().join("results/run.json"));
    let runs = document["runs"].as_array().unwrap();
    assert!(!runs.is_empty());
    assert_eq!(document["complete"], false);
    for (place, run) in runs.iter().enumerate() {
        assert_eq!(run["seed"], place + 1, "the first seeds are kept, in order");
    }
    assert!(runs.iter().all(|run| run["rounds"] == 20_000));
    assert!(text(&output.stderr).contains(&format!("{} of 1000000 seeds", runs.len())));
}

#[cfg(unix)]
#[test]
fn ctrl_c_before_any_seed_is_complete_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = interrupted(folder.path(), "10^10", "1", Duration::from_secs(1));
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("nothing written"));
    assert!(walk(folder.path()).is_empty());
}

/// People with some taste, in the format `user,item`.
fn ratings(folder: &Path) {
    let mut csv = String::from("user,item\n");
    for user in 1..=130u64 {
        for item in 1..=90u64 {
            let hash = (user * 7919 + item * 104_729) * 2_654_435_761 % 1000;
            if hash < if user % 5 == item % 5 { 550 } else { 120 } {
                csv.push_str(&format!("{user},{item}\n"));
            }
        }
    }
    std::fs::write(folder.join("clicks.csv"), csv).unwrap();
}

#[test]
fn arguments_of_another_world_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    ratings(folder.path());
    for (args, name) in [
        (vec!["--placebo"], "--placebo"),
        (vec!["--feature-scale", "2"], "--feature-scale"),
        (vec!["--ratings", "clicks.csv"], "--ratings"),
        (
            vec![
                "--world",
                "ratings",
                "--ratings",
                "clicks.csv",
                "--users",
                "500",
            ],
            "--users",
        ),
        (
            vec![
                "--world",
                "ratings",
                "--ratings",
                "clicks.csv",
                "--rewards",
                "gaussian",
            ],
            "--rewards",
        ),
        (
            vec![
                "--world",
                "vectors",
                "--ratings",
                "clicks.csv",
                "--clusters",
                "3",
            ],
            "--clusters",
        ),
        (vec!["--world", "catalogue", "--dim", "3"], "--dim"),
        (vec!["--tastes", "3"], "--tastes"),
    ] {
        let output = sclub()
            .current_dir(folder.path())
            .arg("run")
            .args(&args)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&format!("{name} does not apply")), "{said}");
        assert!(!folder.path().join("results").exists());
    }
    let output = small_run(folder.path(), &["--deviations", "all,stale-marks"]);
    assert!(text(&output.stderr).contains("'all' must stand alone"));
    let output = small_run(folder.path(), &["--deviations", "bogus"]);
    assert!(text(&output.stderr).contains("running-estimate"));
}

#[test]
fn worlds_from_ratings_say_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    ratings(folder.path());
    let run = |args: &[&str]| {
        let output = sclub()
            .current_dir(folder.path())
            .args([
                "run",
                "--ratings",
                "clicks.csv",
                "--seeds",
                "2",
                "--dim",
                "6",
            ])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = run(&["--world", "ratings", "--placebo", "--beta-scale", "0.05"]);
    for words in [
        "Held-out choices from clicks.csv",
        "PLACEBO",
        "constants tuned but beta-scale 0.05",
        "1–5",
    ] {
        assert!(said.contains(words), "{words} is missing from:\n{said}");
    }
    let results = read(&folder.path().join("results/run.json"));
    assert_eq!(results["config"]["file"], "clicks.csv");
    assert_eq!(results["config"]["placebo"], true);
    let first = &results["runs"][0];
    let by_age: f64 = first["by_age"]
        .as_array()
        .unwrap()
        .iter()
        .map(|age| age[0].as_f64().unwrap())
        .sum();
    assert_eq!(by_age, first["served"].as_f64().unwrap());

    let said = run(&["--world", "vectors", "--rounds", "300"]);
    assert!(said.contains("Tastes from clicks.csv"), "{said}");
    assert!(
        !said.contains("Rand") && !said.contains("to oracle"),
        "{said}"
    );
}

#[test]
fn the_released_preset_is_the_published_code_and_can_be_taken_apart() {
    let folder = tempfile::tempdir().unwrap();
    let regret = |args: &[&str]| {
        let mut all = vec!["--policies", "sclub", "--preset", "released"];
        all.extend(args);
        assert!(small_run(folder.path(), &all).status.success());
        let results = read(&folder.path().join("results/run.json"));
        results["runs"][0]["regret"].as_f64().unwrap()
    };
    let published = regret(&[]);
    assert_eq!(regret(&["--deviations", "all"]), published);
    let every = "shared-arrays,marks-cleared,stale-estimates,stale-marks,running-estimate,average-frequency";
    assert_eq!(regret(&["--deviations", every]), published);
    assert_ne!(regret(&["--deviations", "none"]), published);
}

#[test]
fn many_users_a_round_are_as_many_recommendations() {
    let folder = tempfile::tempdir().unwrap();
    let output = small_run(
        folder.path(),
        &["--users-a-round", "5", "--policies", "sclub"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = &read(&folder.path().join("results/run.json"))["runs"][0];
    let served = run["served"].as_f64().unwrap();
    assert_eq!(run["rounds"], 2000);
    assert!((served - 10_000.0).abs() < 500.0, "{served}");
    let output = small_run(folder.path(), &["--users-a-round", "31"]);
    assert!(text(&output.stderr).contains("users-a-round is 31"));
}

#[test]
fn a_catalogue_is_told_by_stages_beside_its_yardsticks() {
    let folder = tempfile::tempdir().unwrap();
    let output = sclub()
        .current_dir(folder.path())
        .args([
            "run",
            "--world",
            "catalogue",
            "--items",
            "50",
            "--rounds",
            "2500",
        ])
        .args([
            "--slots", "2", "--delay", "10", "--link", "linear", "--visits", "zipf",
        ])
        .args(["--policies", "linucb-one", "--seeds", "2", "-q"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for word in [
        "A catalogue of 50 items: 2,000 users of 6 tastes, d = 16",
        "linear link of 0.08θᵀx + 0.3, visits zipf 1, rewards 10 rounds late, 2 items shown",
        " 0–2k ",
        " 2k–2500 ",
        " best-item ",
    ] {
        assert!(said.contains(word), "'{word}' is missing from:\n{said}");
    }
    let document = read(&folder.path().join("results/run.json"));
    let config = &document["config"];
    assert_eq!(config["world"], "catalogue");
    assert_eq!([&config["users"], &config["slots"]], [2000, 2]);
    let policies = ["linucb-one", "informed", "best-item", "random"];
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * policies.len());
    for (run, policy) in runs.iter().zip(policies.iter().cycle()) {
        assert_eq!(run["policy"], *policy);
        assert_eq!(run["served"], 5000);
        assert_eq!(run["stages"][1]["from"], 2000);
        assert_eq!(run["stages"][1]["shown"], 1000);
        assert!(run["distinct_items"].as_u64().unwrap() >= 2);
        let clicks: f64 = (0..2)
            .map(|stage| run["stages"][stage]["clicks"].as_f64().unwrap())
            .sum();
        assert_eq!(run["reward"], clicks);
    }
    let output = sclub()
        .current_dir(folder.path())
        .args(["run", "--policies", "best-item"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(
        said.contains("'best-item' plays only in a catalogue"),
        "{said}"
    );
}
