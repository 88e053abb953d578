//! Bodies of requests: whatever they are, they are refused or answered.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use sclub_server::api::{App, probe};
use sclub_server::engine::Engine;
use sclub_server::settings::Settings;
use sclub_server::store::memory::Memory;

static APP: LazyLock<Arc<App>> = LazyLock::new(|| {
    let settings = Settings {
        dim: Some(2),
        journal: false,
        ..Settings::default()
    };
    let engine = Engine::open(Arc::new(Memory::new()), &settings).expect("an engine");
    let app = App::new(settings);
    app.begin(engine);
    app
});

fuzz_target!(|bytes: &[u8]| probe(&APP, bytes));
