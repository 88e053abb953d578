//! Traces, and collectors that do not answer. `deploy/check` exports to a real collector.

use std::fs;
use std::net::TcpListener;

use crate::keeping::{fails_with, run, serve_rounds};
use crate::server::{Server, items, sclub};

/// Serves more spans than fit into the queue, and returns the log.
fn serve_with(endpoint: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = sclub();
    command.args([
        "serve",
        "--addr",
        "127.0.0.1:0",
        "--otel-sample-ratio",
        "1",
        "--data",
    ]);
    command.arg(folder.path().join("data"));
    command.args(["--otel-endpoint", endpoint]);
    command.env("OTEL_BSP_SCHEDULE_DELAY", "50");
    command.env("OTEL_BSP_MAX_QUEUE_SIZE", "64");
    command.env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16");
    command.stderr(fs::File::create(&log).unwrap());
    let server = Server::from_logged(command);
    server.ok("PUT", "/v1/items", &items(9, 4));
    serve_rounds(&server, 150, &["a", "b", "c"]);
    assert_eq!(server.state()["rounds"], 150);
    // Each request and each commit is a span, and none of them arrives.
    let metrics = server.ok("GET", "/metrics", "");
    let metrics = metrics.as_str().unwrap();
    let count = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    };
    assert!(count("sclub_spans_total ") >= 450, "{metrics}");
    assert_eq!(count("sclub_spans_exported_total "), 0);
    assert!(server.stop().success());
    fs::read_to_string(&log).unwrap()
}

#[test]
fn a_dead_collector_neither_stops_the_server_nor_fills_its_log() {
    // Nothing listens there any more.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let log = serve_with(&format!("http://{port}"));
    assert_eq!(log.matches("traces cannot be exported").count(), 1, "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_collector_that_never_answers_does_not_hold_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = serve_with(&format!("http://{}", listener.local_addr().unwrap()));
    assert!(log.contains("closed") && !log.contains("panicked"), "{log}");
}

#[test]
fn the_endpoint_comes_from_the_standard_variable_unless_it_is_set() {
    let print = |arguments: &[&str], off: &str| {
        let mut command = sclub();
        command.args(["serve", "--print-config"]).args(arguments);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4318");
        let output = command.env("OTEL_SDK_DISABLED", off).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("otel-endpoint"));
        line.unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let standard =
        "otel-endpoint = \"http://standard:4318\" # environment OTEL_EXPORTER_OTLP_ENDPOINT";
    assert_eq!(print(&[], "false"), standard);
    let own = "otel-endpoint = \"http://own:1\" # flag --otel-endpoint";
    assert_eq!(print(&["--otel-endpoint", "http://own:1"], "false"), own);
    assert!(print(&[], "true").starts_with("# otel-endpoint ="));
}

/// The line of a setting in what `serve --print-config` prints with these variables; the error if it fails.
fn printed(setting: &str, variables: &[(&str, &str)]) -> String {
    let mut command = sclub();
    command.args(["serve", "--print-config"]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = match output.status.success() {
        true => String::from_utf8(output.stdout),
        false => String::from_utf8(output.stderr),
    };
    let text = text.unwrap();
    let line = text.lines().find(|line| line.contains(setting));
    let words = line.unwrap_or(&text).split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn standard_variables_are_used_or_refused() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4318");
    let own = "http://own:4318/x/v1/traces";
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own);
    let line = printed("otel-endpoint", &[endpoint, traces]);
    assert!(
        line.starts_with(&format!("otel-endpoint = \"{own}\"")),
        "{line}"
    );
    let off = ("OTEL_TRACES_EXPORTER", "none");
    let line = printed("otel-endpoint", &[endpoint, off]);
    assert!(line.starts_with("# otel-endpoint ="), "{line}");
    let sampler = |name| ("OTEL_TRACES_SAMPLER", name);
    let share = ("OTEL_TRACES_SAMPLER_ARG", "0.25");
    for (name, ratio) in [
        ("parentbased_always_on", "1.0"),
        ("parentbased_always_off", "0.0"),
        ("parentbased_traceidratio", "0.25"),
    ] {
        let line = printed("otel-sample-ratio", &[endpoint, sampler(name), share]);
        assert!(
            line.starts_with(&format!("otel-sample-ratio = {ratio} ")),
            "{line}"
        );
    }
    for refused in [
        &[endpoint, sampler("always_on")][..],
        &[
            endpoint,
            sampler("parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ],
        &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
        &[endpoint, ("OTEL_TRACES_EXPORTER", "console")],
        &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:4318/x")],
    ] {
        let (name, value) = refused[refused.len() - 1];
        let line = printed("sclub: ", refused);
        assert!(
            line.contains(&format!("environment {name} is '{value}'")),
            "{line}"
        );
    }
    // Without traces they do not matter.
    let line = printed("otel-endpoint", &[sampler("always_on")]);
    assert!(line.starts_with("# otel-endpoint ="), "{line}");
}

#[test]
fn invalid_settings_of_traces_are_refused() {
    let bad = run(&["serve", "--otel-endpoint", "localhost:4318"]);
    fails_with(
        &bad,
        "flag --otel-endpoint: 'localhost:4318' is not the URL",
    );
    let bad = run(&["serve", "--otel-sample-ratio", "1.5"]);
    fails_with(&bad, "otel-sample-ratio is 1.5; it must be from 0 to 1");
}

#[test]
fn commands_without_traces_do_not_look_at_the_variables_of_traces() {
    let output = sclub()
        .args(["import", "--interactions", "none.csv", "--data", "none"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .output()
        .unwrap();
    fails_with(&output, "none has no catalogue");
}
