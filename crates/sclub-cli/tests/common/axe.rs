//! axe-core, which finds what makes a page hard to use for some people.

use std::path::Path;

/// The source of axe-core, which `./test` installs. None where it is not, which CI does not accept.
pub fn axe() -> Option<String> {
    let target = Path::new(env!("CARGO_BIN_EXE_sclub")).ancestors().nth(2)?;
    let source = std::fs::read_to_string(target.join("axe/node_modules/axe-core/axe.min.js")).ok();
    if source.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI has axe-core");
        eprintln!("no axe-core here: ./test installs it");
    }
    source
}
