//! Bodies of requests: whatever they are, they are refused or answered.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use sclub_server::api::{App, probe};
use sclub_server::engine::Engine;
use sclub_server::env::Env;
use sclub_server::settings::Settings;

static APP: LazyLock<Arc<App>> = LazyLock::new(|| {
    let settings = Settings {
        dim: Some(2),
        journal_days: 0,
        ..Settings::default()
    };
    let folder = std::env::temp_dir().join(format!("sclub-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let engine = Engine::open(Env::real(), &folder, &settings).expect("an engine");
    let app = App::new(settings);
    app.begin(engine);
    app
});

fuzz_target!(|bytes: &[u8]| probe(&APP, bytes));
