//! The table of policies at the top of the library's documentation is the registry's.

use std::fmt::Write as _;
use std::path::Path;

use sclub::{Abilities, Partitions, Spec, registry};

/// The abilities of a policy in words.
fn abilities(can: &Abilities) -> String {
    let all = [
        (can.save, "save"),
        (can.inspect, "inspect"),
        (can.forget, "forget"),
        (can.fit, "fit in the background"),
        (can.lists, "lists"),
        (can.item_ids, "item ids"),
    ];
    let some = all.into_iter().filter(|(has, _)| *has);
    let mut names: Vec<String> = some.map(|(_, name)| name.into()).collect();
    names.extend(match can.partitions {
        Partitions::Any => Some("partitions".into()),
        Partitions::Gathered => Some("partitions, by fits over all of them".into()),
        Partitions::One => None,
    });
    names.join(", ")
}

/// A row of the table.
fn row(spec: &Spec) -> String {
    let presets: Vec<String> = spec.presets.iter().map(|p| format!("`{p}`")).collect();
    format!(
        "| `{}` | {} | {} | {} | {} | {} |",
        spec.name,
        spec.title,
        spec.summary,
        spec.citation,
        abilities(&spec.can),
        presets.join(", ")
    )
}

#[test]
fn the_table_of_policies_is_up_to_date() {
    let mut table = String::from(
        "| name | policy | summary | citation | abilities | presets, the default first |\n\
         |---|---|---|---|---|---|\n",
    );
    for spec in registry() {
        writeln!(table, "{}", row(spec)).unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policies.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &table).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == table,
        "src/policies.md is not what the registry makes; run BLESS=1 cargo test -p sclub --test policies_table to write it"
    );
}
