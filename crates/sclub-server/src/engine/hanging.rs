//! Finds out that an append to the log hangs. A disk on the network, or one that is being frozen, may not answer for minutes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{oneshot, watch};

use super::owner::Done;
use super::{Engine, Refusal, Shared, lock};

/// The time after which an append hangs, in milliseconds.
const PATIENCE: u64 = 10_000;
/// No append is under way.
const NONE: u64 = u64::MAX;

/// The append that is under way.
#[derive(Debug)]
pub(super) struct Appending {
    /// The time when it began, of the monotonic clock.
    since: AtomicU64,
    /// True if it hung at the last look. It is sent at each look.
    hangs: watch::Sender<bool>,
}

impl Default for Appending {
    fn default() -> Self {
        Self {
            since: AtomicU64::new(NONE),
            hangs: watch::Sender::new(false),
        }
    }
}

impl Appending {
    pub fn begin(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.since.store(NONE, Ordering::Relaxed);
    }

    /// The time when it began; `None` if there is none.
    fn since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Relaxed)).filter(|since| *since != NONE)
    }
}

impl Shared {
    /// The reason why the log cannot be written, if an append hangs.
    pub(super) fn hangs(&self) -> Option<String> {
        let since = self.appending.since()?;
        let age = self.env().clock.monotonic().saturating_sub(since);
        (age > PATIENCE).then(|| format!("the disk has not answered for {} s", age / 1000))
    }

    /// The reason why the engine is read-only, if it is.
    pub(super) fn not_writable(&self) -> Option<String> {
        let failed = lock(&self.read_only).clone();
        failed.or_else(|| self.hangs())
    }

    /// Waits for the answer of the owner, unless an append hangs: then nobody knows whether it is written.
    pub(super) async fn answered(
        &self,
        mut answer: oneshot::Receiver<Result<Done, Refusal>>,
    ) -> Result<Done, Refusal> {
        let mut looks = self.appending.hangs.subscribe();
        let gone = || Refusal::Unknown("the server is shutting down".to_owned());
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer.unwrap_or_else(|_| Err(gone())),
                // The append of the last look may have ended since.
                _ = looks.changed() => if let Some(reason) = self.hangs() {
                    return Err(Refusal::Unknown(reason));
                },
            }
        }
    }
}

impl Engine {
    /// Looks whether an append hangs, and answers all that wait for it. The server calls this once a second.
    pub(crate) fn check_append(&self) {
        let appending = &self.shared.appending;
        let reason = self.shared.hangs();
        let changed = appending.hangs.send_replace(reason.is_some()) != reason.is_some();
        match reason {
            Some(reason) if changed => {
                tracing::error!(reason, "the log cannot be written; the server is read-only");
            }
            None if changed && self.shared.not_writable().is_none() => {
                tracing::info!("the log is writable again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::engine::common::clock::Moved;
    use crate::engine::common::disk::Faults;
    use crate::engine::common::new_folder;
    use crate::engine::{Feedback, FoldError, RecommendQuery};
    use crate::env::Env;
    use crate::event::Item;
    use crate::settings::Settings;
    use crate::state::Scratch;

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_are_answered_while_an_append_hangs() {
        let folder = new_folder();
        let (faults, env) = Faults::new(Env::real());
        let (clock, env) = Moved::new(env);
        let engine = Engine::open(env, folder.path(), &Settings::default()).unwrap();
        let item = Item {
            id: "a".to_owned(),
            features: vec![1.0, 0.0],
        };
        assert_eq!(engine.upsert(vec![item]).await, Ok(1));
        let asked = RecommendQuery::new("u", 1);
        let shown = engine.recommend(&asked, &mut Scratch::default()).unwrap();
        let click = Feedback::of_item(&shown.decision, Some("a"), 1.0);

        faults.hang("log");
        let waiting = engine.feedback(&click);
        tokio::pin!(waiting);
        while engine.shared.appending.since().is_none() {
            tokio::select! {
                answer = &mut waiting => panic!("{answer:?}"),
                () = sleep(Duration::from_millis(2)) => {}
            }
        }
        engine.check_append();
        assert_eq!(engine.read_only(), None);
        clock.pass(PATIENCE + 1000);
        engine.check_append();
        let reason = "the disk has not answered for 11 s".to_owned();
        assert_eq!(engine.read_only(), Some(reason.clone()));
        assert!(engine.render_metrics().contains("\nsclub_writable 0\n"));
        // It may be written; later requests are not.
        assert_eq!(waiting.await, Err(Refusal::Unknown(reason.clone())));
        assert_eq!(engine.remove("a").await, Err(Refusal::ReadOnly(reason)));
        assert!(engine.recommend(&asked, &mut Scratch::default()).is_ok());
        let snapshot = engine.snapshot().await;
        assert!(matches!(
            snapshot,
            Err(FoldError::Refused(Refusal::ReadOnly(_)))
        ));

        faults.go_on();
        while engine.read_only().is_some() {
            sleep(Duration::from_millis(2)).await;
        }
        // At once, before the next look.
        assert_eq!(engine.feedback(&click).await, Ok(false));
        assert_eq!(engine.state().rewards().0, 1);
    }
}
