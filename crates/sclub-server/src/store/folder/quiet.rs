//! Damage may make the database panic: here that becomes an error.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use super::files::damaged;
use crate::store::StoreError;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` on `file`. A panic in it says that the file is damaged, and prints nothing.
pub(super) fn quietly<T>(
    file: &Path,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    outcome.unwrap_or_else(|_| Err(damaged(file, "its parts do not fit together")))
}
