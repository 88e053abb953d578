//! `sclub serve` as far as it goes before it serves.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use sclub_server::settings::Settings;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command in a folder, with no environment variables of ours but these.
fn sclub(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sclub"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SCLUB_") {
            command.env_remove(name);
        }
    }
    command
        .current_dir(folder)
        .envs(variables.iter().copied())
        .args(args)
        .output()
        .unwrap()
}

fn print_config(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> String {
    let args = [&["serve", "--print-config"], args].concat();
    let output = sclub(folder, variables, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Why it does not start.
fn refused(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> String {
    let args = [&["serve", "--print-config"], args].concat();
    let output = sclub(folder, variables, &args);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(output.stdout.is_empty());
    text(&output.stderr)
}

/// The value and the comment of a setting.
fn line(config: &str, key: &str) -> (String, String) {
    let start = format!("{key} = ");
    let line = config.lines().find_map(|line| line.strip_prefix(&start));
    let line = line.unwrap_or_else(|| panic!("{key} is missing from:\n{config}"));
    let (value, comment) = line.split_once('#').unwrap();
    (value.trim().into(), comment.trim().into())
}

#[test]
fn a_flag_beats_the_environment_that_beats_the_file_that_beats_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let file = "max-k = 1\nmax-id = 1\nmax-dim = 1\nreward-min = -3\njournal-days = 7\n";
    fs::write(folder.path().join("some.toml"), file).unwrap();
    let variables = [
        ("SCLUB_MAX_ID", "2"),
        ("SCLUB_MAX_DIM", "2"),
        ("SCLUB_INSECURE", "yes"),
        ("SCLUB_CONFIG", "some.toml"),
    ];
    let config = print_config(folder.path(), &variables, &["--max-dim", "3"]);
    let file = "file some.toml";
    for (key, value, origin) in [
        ("max-batch", "1000", "default"),
        ("max-k", "1", file),
        ("max-id", "2", "environment SCLUB_MAX_ID"),
        ("max-dim", "3", "flag --max-dim"),
        ("reward-min", "-3", file),
        ("reward-max", "1.0", "default"),
        ("journal-days", "7", file),
        ("insecure", "true", "environment SCLUB_INSECURE"),
        ("data", "\"sclub-data\"", "default"),
        ("addr", "\"127.0.0.1:8080\"", "default"),
    ] {
        assert_eq!(line(&config, key), (value.into(), origin.into()), "{key}");
    }
    let other = "max-k = 9\n";
    fs::write(folder.path().join("other.toml"), other).unwrap();
    let config = print_config(folder.path(), &variables, &["--config", "other.toml"]);
    assert_eq!(line(&config, "max-k").0, "9");
    assert_eq!(line(&config, "reward-min").0, "0.0");
}

#[test]
fn what_is_printed_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "--data",
        "a folder \"quoted\"",
        "--addr",
        "[::1]:90",
        "--policy",
        "linucb-ind",
        "--alpha-theta",
        "0.1",
        "--beta-scale",
        "1e-3",
        "--dim",
        "2^5",
        "--reward-min",
        "-1.5",
        "--propensities",
        "10000",
        "--journal-days",
        "0",
        "--keep-log",
        "7d",
        "--insecure",
        "--keys",
        "keys.txt",
        "--host",
        "a.example",
        "--host",
        "b.example",
        "--audit",
        "audit.jsonl",
        "--max-connections-per-address",
        "0",
        "--log",
        "info,sclub=debug",
    ];
    let first = print_config(folder.path(), &[], &args);
    fs::write(folder.path().join("kept.toml"), &first).unwrap();
    let second = print_config(folder.path(), &[], &["--config", "kept.toml"]);
    let values = |config: &str| {
        let lines = config.lines().filter(|line| !line.starts_with('#'));
        let values = lines.map(|line| line.rsplit_once('#').unwrap().0.trim().to_owned());
        values.collect::<Vec<_>>()
    };
    assert_eq!(values(&first), values(&second));
    assert!(values(&first).contains(&"dim = 32".into()), "{first}");
    assert!(values(&first).contains(&"insecure = true".into()));
    let hosts = "host = [\"a.example\", \"b.example\"]";
    assert!(values(&first).contains(&hosts.into()), "{first}");
    // The same names in the environment.
    let variables = [("SCLUB_HOST", "a.example,b.example")];
    let third = print_config(folder.path(), &variables, &[]);
    assert!(values(&third).contains(&hosts.into()), "{third}");
    assert_eq!(line(&third, "host").1, "environment SCLUB_HOST");
    assert_eq!(line(&second, "beta-scale").1, "file kept.toml");
    assert!(!folder.path().join("sclub-data").exists());
}

#[test]
fn keys_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [
        ("SCLUB_API_KEYS", "admin me open-sesame"),
        ("SCLUB_KEY", "another-secret"),
    ];
    let config = print_config(folder.path(), &variables, &[]);
    assert!(config.contains("SCLUB_API_KEYS"), "{config}");
    let helps = ["serve", "simulate", "backup", "export"].map(|command| {
        let output = sclub(folder.path(), &variables, &[command, "--help"]);
        assert!(output.status.success());
        text(&output.stdout)
    });
    for shown in helps.iter().chain([&config]) {
        assert!(!shown.contains("sesame"), "{shown}");
        assert!(!shown.contains("another-secret"), "{shown}");
    }
}

#[test]
fn what_is_wrong_is_named_with_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let in_file = |content: &str| {
        fs::write(folder.path().join("bad.toml"), content).unwrap();
        refused(folder.path(), &[], &["--config", "bad.toml"])
    };
    for (content, words) in [
        ("max_k = 3", &["bad.toml", "'max_k'", "'max-k'"][..]),
        ("colour = 3", &["bad.toml", "'colour'"]),
        ("max-k = \"ten\"", &["bad.toml", "max-k", "\"ten\""]),
        ("max-k = -1", &["bad.toml", "max-k", "-1"]),
        ("max-k = 0", &["bad.toml", "max-k", "0", "at least 1"]),
        ("rate = 5000000000", &["bad.toml", "rate", "5000000000"]),
        (
            "policy = \"club\"",
            &["bad.toml", "policy", "\"club\"", "linucb-ind"],
        ),
        ("addr = \"here\"", &["bad.toml", "addr", "\"here\""]),
        (
            "reward-min = 1.0",
            &["bad.toml", "reward-min", "1.0", "reward-max"],
        ),
        ("beta = nan", &["bad.toml", "beta", "nan"]),
        ("half-life = 0.5", &["bad.toml", "half-life", "0.5", "1e12"]),
        ("tls-cert = \"c.pem\"", &["tls-key", "tls-cert"]),
        (
            "host = [\"a.example\", \"http://a\"]",
            &["bad.toml", "'http://a'", "without http://"],
        ),
        ("host = \"a.example\"", &["bad.toml", "host", "a.example"]),
        ("audit = \"\"", &["bad.toml", "audit", "name of a file"]),
        (
            "max-connections-per-address = -1",
            &["bad.toml", "max-connections-per-address", "-1"],
        ),
        ("max-k == 3", &["bad.toml", "line 1"]),
        (
            "[serve]\nmax-k = 3",
            &["bad.toml", "'serve'", "in no section"],
        ),
        ("polcy = \"sclub\"", &["bad.toml", "'polcy'", "'policy'"]),
        ("max-k = -1", &["bad.toml", "max-k", "-1", "a whole number"]),
    ] {
        let error = in_file(content);
        for word in words {
            assert!(error.contains(word), "{content}: {word} not in {error}");
        }
        assert!(error.starts_with("sclub: "), "{error}");
    }
    let error = refused(folder.path(), &[("SCLUB_DIM", "many")], &[]);
    assert!(
        error.contains("SCLUB_DIM") && error.contains("'many'"),
        "{error}"
    );
    let error = refused(folder.path(), &[("SCLUB_DIM", "5000")], &[]);
    assert!(
        error.contains("SCLUB_DIM") && error.contains("512"),
        "{error}"
    );
    let error = refused(folder.path(), &[("SCLUB_PROPENSITIES", "10001")], &[]);
    assert!(
        error.contains(
            "environment SCLUB_PROPENSITIES: propensities is 10001; it must be at most 10000"
        ),
        "{error}"
    );
    for (name, value, must) in [
        ("SCLUB_EXPLORE_SHARE", "2", "from 0 to 1"),
        ("SCLUB_THREADS", "1000", "at most 256"),
        ("SCLUB_FIT_THREADS", "1000", "at most 256"),
        ("SCLUB_CONTEXT", "hour=1|", "from 1 to 64 bytes"),
    ] {
        let error = refused(folder.path(), &[(name, value)], &[]);
        assert!(
            error.contains(&format!("environment {name}: ")) && error.contains(must),
            "{error}"
        );
    }
    let error = refused(folder.path(), &[], &["--dim", "many"]);
    assert!(
        error.contains("--dim") && !error.contains("environment"),
        "{error}"
    );
    let error = refused(folder.path(), &[("SCLUB_MAX_DIM", "5000")], &[]);
    assert!(
        error.contains("max-dim is 5000; it must be at most 512"),
        "{error}"
    );
    let error = refused(folder.path(), &[("SCLUB_HOST", "a:80")], &[]);
    assert!(
        error.contains("SCLUB_HOST") && error.contains("'a:80'"),
        "{error}"
    );
    let error = refused(folder.path(), &[], &["--beta", "1", "--beta-scale", "1"]);
    assert!(error.contains("--beta-scale"), "{error}");
    let error = refused(folder.path(), &[], &["--config", "nowhere.toml"]);
    assert!(error.contains("nowhere.toml"), "{error}");
}

#[test]
fn a_mistyped_variable_is_refused_with_the_nearest_name() {
    let folder = tempfile::tempdir().unwrap();
    for (mistyped, nearest) in [
        ("SCLUB_POLCY", "SCLUB_POLICY"),
        ("SCLUB_MAXK", "SCLUB_MAX_K"),
        ("SCLUB_REWARDMIN", "SCLUB_REWARD_MIN"),
        ("SCLUB_API_KEY", "SCLUB_API_KEYS"),
        ("SCLUB_CONFG", "SCLUB_CONFIG"),
        ("SCLUB_ALPHA_THETTA", "SCLUB_ALPHA_THETA"),
        ("sclub_policy", "SCLUB_POLICY"),
        ("SCLUB_max_k", "SCLUB_MAX_K"),
    ] {
        let error = refused(folder.path(), &[(mistyped, "x")], &[]);
        let expected =
            format!("environment {mistyped}: there is no such variable; the nearest is {nearest},");
        assert!(error.contains(&expected), "{error}");
    }
    // By every command.
    for (mistyped, nearest) in [("SCLUB_KE", "SCLUB_KEY"), ("SCLUB_ULR", "SCLUB_URL")] {
        let output = sclub(folder.path(), &[(mistyped, "x")], &["explain"]);
        let error = text(&output.stderr);
        let expected =
            format!("environment {mistyped}: there is no such variable; the nearest is {nearest},");
        assert!(
            !output.status.success() && error.contains(&expected),
            "{error}"
        );
    }
    // Those of other commands, of tests, and those that Kubernetes sets for a service called sclub.
    let others = [
        "SCLUB_BIN",
        "SCLUB_KEY",
        "SCLUB_URL",
        "SCLUB_KILLS",
        "SCLUB_NATS_SERVER",
        "SCLUB_SIM_SEEDS",
        "SCLUB_QUICK",
        "SCLUB_SERVICE_HOST",
        "SCLUB_PORT",
        "SCLUB_PORT_8080_TCP_ADDR",
        "SCLUBBY",
    ];
    let value = "tcp://10.0.0.1:8080";
    print_config(folder.path(), &others.map(|name| (name, value)), &[]);
    let error = refused(folder.path(), &[("SCLUB_PORT", "8080")], &[]);
    assert!(error.contains("the port is in SCLUB_ADDR"), "{error}");
}

/// Every setting is a flag, a variable and a line, and the help has its true default.
#[test]
fn the_help_names_every_setting() {
    let folder = tempfile::tempdir().unwrap();
    let config = print_config(folder.path(), &[], &[]);
    let output = sclub(folder.path(), &[], &["serve", "--help"]);
    let help = text(&output.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let mut settings = 0;
    for shown in config.lines().skip(1) {
        let (key, rest) = shown.trim_start_matches("# ").split_once(" =").unwrap();
        settings += 1;
        let variable = format!("SCLUB_{}", key.replace('-', "_").to_uppercase());
        assert!(help.contains(&format!("--{key} ")), "{key}");
        assert!(help.contains(&format!("[env: {variable}=]")), "{variable}");
        let value = rest.split('#').next().unwrap().trim().trim_matches('"');
        let value = value.strip_suffix(".0").unwrap_or(value);
        let value = if value == "[]" { "none" } else { value };
        if !value.is_empty() {
            let at = help.find(&format!("--{key} ")).unwrap();
            let own = &help[at..at + help[at..].find("[env:").unwrap()];
            assert!(own.contains(&format!("[default: {value}")), "{key}: {own}");
        }
    }
    let constants = sclub_server::settings::constants();
    assert_eq!(settings, Settings::names().len() + constants.len());
}
