use std::collections::HashSet;

use super::sample::{HOSTILE, full, quick};
use super::*;
use crate::policies::Name;

/// The tags of a page in their order: (name, attributes, whether it closes, whether it stands alone).
fn tags(html: &str) -> Vec<(String, String, bool, bool)> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        if rest.starts_with("<!--") {
            rest = &rest[rest.find("-->").expect("a comment ends") + 3..];
            continue;
        }
        let end = rest.find('>').expect("a tag ends");
        let inside = &rest[1..end];
        rest = &rest[end + 1..];
        assert!(!inside.contains('<'), "a tag within a tag: {inside}");
        let (closes, inside) = match inside.strip_prefix('/') {
            Some(inside) => (true, inside),
            None => (false, inside),
        };
        let alone = inside.ends_with('/');
        let (name, attributes) = inside
            .split_once(char::is_whitespace)
            .unwrap_or((inside, ""));
        let name = name.trim_end_matches('/').to_owned();
        if name == "style" && !closes {
            rest = &rest[rest.find("</style>").expect("the style ends")..];
        }
        tags.push((name, attributes.to_owned(), closes, alone));
    }
    tags
}

fn assert_balanced(html: &str) {
    let mut open: Vec<String> = Vec::new();
    for (name, _, closes, alone) in tags(html) {
        if alone || ["!DOCTYPE", "meta", "br"].contains(&name.as_str()) {
            continue;
        }
        if closes {
            assert_eq!(
                open.pop().as_deref(),
                Some(name.as_str()),
                "closed within {open:?}"
            );
        } else {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "still open: {open:?}");
}

/// The values of an attribute, in their order.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let mark = format!(" {attribute}=\"");
    let pieces = html.split(mark.as_str()).skip(1);
    pieces.filter_map(|piece| piece.split('"').next()).collect()
}

/// The text that a reader sees: without tags, with single spaces, and with escapes undone.
fn text(html: &str) -> String {
    let body = &html[html.find("<body>").expect("there is a body")..];
    let mut text = String::new();
    for piece in body.split('<').skip(1) {
        let (tag, words) = piece.split_once('>').expect("a tag ends");
        if ["/td", "/th", "/dt", "/p", "/li", "/text"].contains(&tag) {
            text.push_str(" | ");
        }
        text.push_str(words);
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&#x2f;", "/")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&#x27;", "'")
        .replace("&amp;", "&")
}

fn assert_shows(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "'{expected}' is not in {text}");
    }
}

fn assert_sound(html: &str) {
    assert_balanced(html);
    let ids = values(html, "id");
    let unique: HashSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "ids are used twice: {ids:?}");
    let known: HashSet<&str> = ids.into_iter().collect();
    for reference in values(html, "href") {
        let id = reference.strip_prefix('#').expect("links stay on the page");
        assert!(known.contains(id), "nothing is at #{id}");
    }
    for id in values(html, "aria-labelledby") {
        assert!(known.contains(id), "nothing is named {id}");
    }
    for clip in html
        .split("url(#")
        .skip(1)
        .filter_map(|piece| piece.split(')').next())
    {
        assert!(known.contains(clip), "there is no clip path {clip}");
    }
    let outside = html.replace("http://www.w3.org/2000/svg", "");
    for forbidden in [
        "http://", "https://", "<script", "<link", "<img", "@import", "NaN", "inf%",
    ] {
        assert!(!outside.contains(forbidden), "'{forbidden}' is in the page");
    }
    assert!(html.starts_with("<!DOCTYPE html>"));
}

#[test]
fn a_full_page_is_sound_and_shows_every_section() {
    let rendered = render(&full()).unwrap();
    assert_sound(&rendered.html);
    let text = text(&rendered.html);
    assert_shows(
        &text,
        &[
            "The published SCLUB is compared with CLUB, LinUCB-Ind and LinUCB-One in 7 of the 7 panels of Figure 1, \
             with 1,048,574 rounds and 10 seeds.",
            "the lowest in 7 of these 7, +1.0% off the published one.",
            "(2d) Yelp, every user at their own rate",
            "Data made up by a formula, not the paper's.",
            "All deviations but one; difference from all",
            "Clusters keep the numpy arrays of their users.",
            "So it says nothing yet at T = 2^20",
            "More users a round cost little",
            "These data are not the paper's, but made up.",
            "sclub reproduce --movielens ml-20m.zip --yelp yelp.tar --out report",
            "2 h 1 min",
            "1–10 (10 in all)",
            "280 run, 12 reused from earlier",
        ],
    );
    assert!(!text.contains("A short run.") && !text.contains("Not complete."));
    assert!(!text.contains("left out"));
}

#[test]
fn a_full_page_shows_every_number() {
    let report = full();
    let text = text(&render(&report).unwrap().html);
    for cell in report.panels.iter().flat_map(|panel| &panel.cells) {
        let (measured, error) = numbers::mean(cell.regret, cell.regret.mean);
        assert_shows(
            &text,
            &[
                &format!(
                    "{} | {measured} {} | {} |",
                    numbers::whole(cell.published_regret.unwrap()),
                    error.unwrap(),
                    numbers::change(cell.regret.mean / cell.published_regret.unwrap() - 1.0)
                ),
                &format!(
                    "{} | {} ± {} | {} |",
                    numbers::whole(cell.published_seconds.unwrap()),
                    numbers::seconds(cell.seconds.mean),
                    numbers::seconds(cell.seconds.error),
                    numbers::speed_up(cell.published_seconds.unwrap(), cell.seconds.mean)
                ),
            ],
        );
    }
    // Spelled out once, so that the formats themselves are held.
    assert_shows(
        &text,
        &[
            // (1a), CLUB: 90,000 published, 0.98 of it here, error a fiftieth.
            "CLUB | 90,000 | 88,200 ± 1,764 | −2.0% |",
            "CLUB | 700 | 1.50 ± 0.25 | 467× |",
            // SCLUB's 60,000 over CLUB's 90,000, and 60,600 over 88,200.
            "SCLUB vs CLUB | −33.3% | −31.3% | |",
            "CLUB | 12.5 | 12.5 |",
            "published | 68,238 | | 54,672 | | 57,255 | |",
            "Algorithm 1, line by line. | 50,777 ± 111 | |",
            "51,554 ± 111 | −446 ± 55 |",
            "53,108 ± 111 | +1,108 ± 55 |",
            "0.0263 | smallest eigenvalue of E[xxᵀ]",
            "SCLUB, tuned | 10 | 100,000 | 1,000,000 | 68,000 ± 432 | 10.5 | 123,457 |",
            "LinUCB-Oneβ 0.0, λ 1 | 10.00% ± 0.11 | – | −19.7% ± 0.7 |",
            "SCLUB, tunedβ 0.4, λ 5 | 14.92% ± 0.11 | +49.2% ± 0.5 | +19.7% ± 0.7 |",
            "rounds | 98,765",
        ],
    );
}

#[test]
fn what_the_paper_has_not_stands_beside_and_changes_nothing() {
    let plain = text(&render(&full()).unwrap().html);
    let mut report = full();
    for panel in &mut report.panels {
        let mut cell = panel.cells[3].clone();
        cell.policy = Name::SCLUB_SOFT;
        cell.regret.mean = 12_345.0;
        (cell.published_regret, cell.published_seconds) = (None, None);
        panel.cells.push(cell);
    }
    let rendered = render(&report).unwrap();
    assert_sound(&rendered.html);
    let text = text(&rendered.html);
    let summary = "The published SCLUB";
    let sentence = |text: &str| text[text.find(summary).unwrap()..][..260].to_owned();
    assert_eq!(sentence(&text), sentence(&plain));
    assert_shows(
        &text,
        &[
            "SCLUB-soft is not in the paper. It assumes that users come from some tight clusters and one",
            "no bound on its regret is proven",
            "SCLUB-soft | – | 12,345 ± 1,212 | – |",
            "SCLUB vs CLUB | −33.3% | −31.3% | |",
            "SCLUB-soft | – | 7.50 ± 0.25 | – |",
        ],
    );
    assert!(!plain.contains("not in the paper."));
}

/// Also those whose names cannot be names in a style sheet.
#[test]
fn policies_that_were_added_have_colours_and_strokes_of_their_own() {
    let mut report = full();
    let added = ["ts:club", "dynucb", "gaussian"].map(|name| name.parse::<Name>().unwrap());
    for panel in &mut report.panels {
        for policy in added {
            let mut cell = panel.cells[3].clone();
            (cell.published_regret, cell.published_seconds) = (None, None);
            panel.cells.push(model::Cell { policy, ..cell });
        }
    }
    let html = render(&report).unwrap().html;
    assert_sound(&html);
    let used = html.split("var(--policy-").skip(1);
    let used: HashSet<&str> = used.map(|piece| piece.split(')').next().unwrap()).collect();
    assert!(used.contains("ts_3a_club") && used.len() >= 7, "{used:?}");
    for variable in used {
        let defined = html.matches(&format!("--policy-{variable}:#")).count();
        assert_eq!(defined, 2, "{variable}, light and dark");
    }
    let strokes = added.map(|policy| sections::panel_key(&report, policy).dash);
    assert_eq!(strokes, ["dashed", "dotted", "dashed"]);
    assert_eq!(sections::panel_key(&report, Name::SCLUB).dash, "solid");
}

#[test]
fn a_short_page_says_so_and_compares_nothing() {
    let rendered = render(&quick()).unwrap();
    assert_sound(&rendered.html);
    let text = text(&rendered.html);
    assert_shows(
        &text,
        &[
            "A short run. It has 20,000 rounds instead of 1,048,574.",
            "not to be compared with the paper’s",
            "Not complete.",
            "Differences are left out",
            "(2a), (2b), (2c) and (2d) have no results here",
            "(2c) has no results here. | Needs the data: sclub fetch movielens <dir>, then run again.",
            "published | measured | published",
            "CLUB | 90,000 | 88,200 | 91,000 |",
            HOSTILE,
            "sclub reproduce --quick && echo '<b>'",
            "with 20,000 rounds and 1 seed. Its regret at the end is the lowest in 3 of these 3.",
        ],
    );
    assert!(
        rendered
            .html
            .contains("<code>sclub fetch movielens &lt;dir&gt;</code>")
    );
    for absent in [
        "Theorem 1",
        "Held-out",
        "Many users",
        "Paper and code",
        "diff. |",
        "SCLUB vs CLUB",
        "speed-up",
    ] {
        assert!(!text.contains(absent), "'{absent}' is in {text}");
    }
}

#[test]
fn no_text_of_a_report_comes_through_as_a_tag() {
    let mut report = full();
    let hostile = || HOSTILE.to_owned();
    for panel in &mut report.panels {
        panel.title = hostile();
        panel.note = Some(hostile());
    }
    report.panels[6].cells.clear();
    report.panels[6].missing = Some(format!("`{HOSTILE}`"));
    let audit = report.audit.as_mut().unwrap();
    for variant in &mut audit.variants {
        (variant.group, variant.name, variant.meaning) = (hostile(), hostile(), hostile());
    }
    audit.settings[0].0 = hostile();
    audit.reading[0] = hostile();
    let theorem = report.theorem.as_mut().unwrap();
    theorem.terms[0] = (hostile(), hostile(), hostile());
    (theorem.reading[0], theorem.lines[0].label) = (hostile(), hostile());
    let many = report.many_users.as_mut().unwrap();
    (many.reading[0], many.lines[0].label) = (hostile(), hostile());
    let set = &mut report.held_out[0];
    (set.name, set.note, set.tuning) = (hostile(), Some(hostile()), hostile());
    set.sizes[0].0 = hostile();
    let table = &mut set.tables[0];
    (table.title, table.ages[0]) = (hostile(), hostile());
    (table.rows[0].label, table.rows[0].constants) = (hostile(), hostile());
    report.origin.machine[0] = (hostile(), hostile());
    report.origin.versions[0] = (hostile(), hostile());
    let rendered = render(&report).unwrap();
    assert_sound(&rendered.html);
    let shown = text(&rendered.html).matches(HOSTILE).count();
    assert!(shown >= 40, "shown {shown} times");
    for figure in rendered.figures {
        assert_balanced(&figure.svg);
        assert!(!figure.svg.contains("<script"), "{}", figure.name);
    }
}

#[test]
fn other_rounds_are_not_compared_either() {
    let mut report = full();
    report.origin.rounds = 1 << 20;
    let text = text(&render(&report).unwrap().html);
    assert_shows(
        &text,
        &["Differences are left out: the published values belong to 1,048,574 rounds"],
    );
    assert!(!text.contains("speed-up |"));
}

#[test]
fn a_report_of_nothing_is_still_a_page() {
    let mut report = quick();
    report.panels.clear();
    let rendered = render(&report).unwrap();
    assert_sound(&rendered.html);
    assert!(rendered.figures.is_empty());
    assert_shows(
        &text(&rendered.html),
        &["There are no results of SCLUB yet.", "How it was made"],
    );
}

/// serde_json reads the last digit of a number not always as it was written.
fn assert_same(one: &serde_json::Value, other: &serde_json::Value) {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Array(one), Array(other)) => {
            assert_eq!(one.len(), other.len());
            for (one, other) in one.iter().zip(other) {
                assert_same(one, other);
            }
        }
        (Object(one), Object(other)) => {
            assert!(one.keys().eq(other.keys()));
            for (one, other) in one.values().zip(other.values()) {
                assert_same(one, other);
            }
        }
        (Number(one), Number(other)) => {
            let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
            assert!(
                (one - other).abs() <= 1e-15 * one.abs(),
                "{one} is not {other}"
            );
        }
        (one, other) => assert_eq!(one, other),
    }
}

#[test]
fn the_json_is_the_report() {
    let report = full();
    let json = render(&report).unwrap().json;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_same(&value, &serde_json::to_value(&report).unwrap());
    let regret = report.panels[2].cells[3].regret.mean;
    assert!(json.contains(&format!("\"mean\": {regret:?},")));
    assert_eq!(value["panels"][2]["cells"][3]["policy"], "sclub");
    assert_eq!(value["origin"]["seeds"].as_array().map(Vec::len), Some(10));
}

#[test]
fn every_figure_is_named_once_and_stands_alone() {
    let rendered = render(&full()).unwrap();
    let names: Vec<&str> = rendered
        .figures
        .iter()
        .map(|figure| figure.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "figure-1a",
            "figure-1b",
            "figure-1c",
            "figure-2a",
            "figure-2b",
            "figure-2c",
            "figure-2d",
            "theorem-1",
            "many-users",
            "held-out-movielens-1",
            "held-out-movielens-2",
            "held-out-yelp-1",
            "held-out-yelp-2",
        ]
    );
    for figure in &rendered.figures {
        assert!(
            figure.svg.starts_with("<svg") && !figure.svg.contains("var("),
            "{}",
            figure.name
        );
        assert!(figure.png.starts_with(b"\x89PNG"), "{}", figure.name);
        assert_balanced(&figure.svg);
    }
}
