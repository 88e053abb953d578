//! docs/openapi.json is the description that the code generates.

use std::path::Path;

#[test]
fn the_description_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = sclub_server::api::document();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "docs/openapi.json is not what the code makes; BLESS=1 cargo test -p sclub-server --test openapi writes it"
    );
}
