//! The one thread that writes.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::fit::Fits;
use super::journal::Journal;
use super::{Refusal, Shared, lock, now};
use crate::decision::Features;
use crate::event::{Event, Item, Reward, Stamped};
use crate::state::{Effect, State};

/// Most rounds that share a trip to the disk.
const MOST: usize = 1024;

/// Something to be written, and whom to tell.
#[derive(Debug)]
pub(super) struct Job {
    pub want: Want,
    pub reply: oneshot::Sender<Result<Done, Refusal>>,
}

/// What is to be written.
#[derive(Debug)]
pub(super) enum Want {
    Learn(Vec<Answer>),
    Upsert(Vec<Item>),
    Remove(String),
    Forget(String),
    Expect(u64),
    /// What came of the fit that was begun; nothing if it broke.
    Fit(Option<Vec<u8>>),
    /// The decisions that wait, and nothing else.
    Flush,
    Stop,
}

/// A reward, its features perhaps still in the catalogue.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub number: u64,
    pub user: String,
    pub item: String,
    pub features: Features,
    pub score: f64,
    pub cluster: u64,
    pub decided: u64,
    pub reward: f64,
}

/// What was written.
#[derive(Debug)]
pub(super) enum Done {
    /// For each reward, whether it was new.
    Applied(Vec<bool>),
    /// How many things are different now.
    Changed(usize),
}

/// What to do about a job.
struct Prepared {
    event: Option<Event>,
    done: Done,
}

impl Prepared {
    fn nothing(done: Done) -> Result<Self, Refusal> {
        Ok(Self { event: None, done })
    }

    fn event(event: Event, done: Done) -> Result<Self, Refusal> {
        let event = Some(event);
        Ok(Self { event, done })
    }
}

type Waiting = (Done, oneshot::Sender<Result<Done, Refusal>>);

impl Shared {
    /// Writes what comes until told to stop.
    pub(super) fn write(&self, mut jobs: mpsc::Receiver<Job>, mut fits: Fits) {
        let mut held = None;
        let mut journal = Journal::default();
        loop {
            self.begin_fit(&mut fits);
            let Some(first) = held.take().or_else(|| jobs.blocking_recv()) else {
                return;
            };
            if matches!(first.want, Want::Stop) {
                return;
            }
            // Rounds share a commit; everything else, and the first round of all, has its own.
            let shares = |job: &Job| matches!(job.want, Want::Learn(_));
            let mut batch = vec![first];
            if shares(&batch[0]) && self.read().dim().is_some() {
                while batch.len() < MOST
                    && let Ok(next) = jobs.try_recv()
                {
                    if !shares(&next) {
                        held = Some(next);
                        break;
                    }
                    batch.push(next);
                }
            }
            self.write_batch(batch, &mut journal, &mut fits);
        }
    }

    fn write_batch(&self, batch: Vec<Job>, journal: &mut Journal, fits: &mut Fits) {
        let at = now();
        let mut events = Vec::with_capacity(batch.len());
        let mut waiting: Vec<Waiting> = Vec::with_capacity(batch.len());
        {
            let state = self.read();
            let mut taken = HashSet::new();
            for Job { want, reply } in batch {
                match self.prepare(&state, &mut taken, fits, want) {
                    Err(refusal) => drop(reply.send(Err(refusal))),
                    Ok(Prepared { event, done }) => {
                        events.extend(event.map(|event| Stamped { at, event }));
                        waiting.push((done, reply));
                    }
                }
            }
        }
        std::mem::swap(journal, &mut *lock(&self.journal));
        let outcome = self
            .log(&events, journal)
            .and_then(|()| self.apply(&events, fits));
        journal.clear();
        for (done, reply) in waiting {
            // Whoever asked may have gone.
            let _ = reply.send(outcome.clone().map(|()| done));
        }
    }

    /// Appends events, and the decisions that wait, to the store.
    fn log(&self, events: &[Stamped], journal: &Journal) -> Result<(), Refusal> {
        if events.is_empty() && journal.is_empty() {
            return Ok(());
        }
        let encoded: Vec<Vec<u8>> = events.iter().map(Stamped::encode).collect();
        let encoded: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
        let before = self.read().events();
        if lock(&self.read_only).is_some() {
            // It failed the last time: perhaps it works again.
            match self.store.recover() {
                Ok(last) if last == before => {}
                Ok(_) => return Err(self.refuse("the log has gone on without the state")),
                Err(error) => return Err(self.refuse_for(&error)),
            }
        }
        let begun = Instant::now();
        match self.store.append(&encoded, &journal.decisions()) {
            Ok(()) => {
                self.meters.commit(begun.elapsed(), events.len());
                if lock(&self.read_only).take().is_some() {
                    tracing::info!("writing works again");
                }
                Ok(())
            }
            Err(error) => {
                let refusal = self.refuse_for(&error);
                // It may have become durable after all; then it counts.
                match self.store.recover() {
                    Ok(last) if last == before + events.len() as u64 => {
                        lock(&self.read_only).take();
                        Ok(())
                    }
                    _ => Err(refusal),
                }
            }
        }
    }

    fn refuse_for(&self, error: &crate::store::StoreError) -> Refusal {
        tracing::error!(%error, "nothing can be written");
        let refusal = Refusal::from(error);
        if let Refusal::ReadOnly(reason) = &refusal {
            *lock(&self.read_only) = Some(reason.clone());
        }
        refusal
    }

    fn refuse(&self, reason: &str) -> Refusal {
        tracing::error!(reason, "nothing can be written");
        *lock(&self.read_only) = Some(reason.to_owned());
        Refusal::ReadOnly(reason.to_owned())
    }

    /// Applies events that are in the log.
    fn apply(&self, events: &[Stamped], fits: &mut Fits) -> Result<(), Refusal> {
        if events.is_empty() {
            return Ok(());
        }
        let mut effect = Effect::default();
        let rounds = {
            let _gate = lock(&self.gate);
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            for stamped in events {
                if let Err(error) = state.apply(stamped, &mut effect) {
                    // The state no longer follows the log. A restart makes it from the log.
                    tracing::error!(%error, "an accepted event cannot be applied");
                    std::process::abort();
                }
            }
            state.rounds()
        };
        fits.applied(&effect, rounds);
        for stamped in events {
            self.meters.event(&stamped.event);
            if matches!(stamped.event, Event::Fit { .. }) && effect.fit_refused.is_none() {
                self.meters.fitted();
            }
        }
        self.meters.changes(&effect.changes);
        for record in effect.changes {
            let _ = self.changes.send(record);
        }
        Ok(())
    }

    /// Checks a job against the state and what else is about to be written.
    fn prepare(
        &self,
        state: &State,
        taken: &mut HashSet<u64>,
        fits: &mut Fits,
        want: Want,
    ) -> Result<Prepared, Refusal> {
        match want {
            Want::Learn(answers) => self.prepare_round(state, taken, answers),
            Want::Upsert(items) => prepare_items(state, items),
            Want::Remove(item) => {
                let there = state
                    .catalogue()
                    .is_some_and(|catalogue| catalogue.slot(&item).is_some());
                if there {
                    Prepared::event(Event::Remove { item }, Done::Changed(1))
                } else {
                    Prepared::nothing(Done::Changed(0))
                }
            }
            Want::Forget(user) => {
                let known = state.users().number(&user).is_some();
                Prepared::event(Event::Forget { user }, Done::Changed(usize::from(known)))
            }
            Want::Expect(users) => match state.rounds() {
                0 if state.expected() == users => Prepared::nothing(Done::Changed(0)),
                0 => Prepared::event(Event::Expect { users }, Done::Changed(1)),
                rounds => Err(Refusal::Begun(rounds)),
            },
            Want::Fit(fit) => match fits.arrived(fit, state.rounds()) {
                Some(fit) => Prepared::event(Event::Fit { fit }, Done::Changed(1)),
                None => Prepared::nothing(Done::Changed(0)),
            },
            Want::Flush | Want::Stop => Prepared::nothing(Done::Changed(0)),
        }
    }

    fn prepare_round(
        &self,
        state: &State,
        taken: &mut HashSet<u64>,
        answers: Vec<Answer>,
    ) -> Result<Prepared, Refusal> {
        let mut applied = Vec::with_capacity(answers.len());
        let mut round = Vec::with_capacity(answers.len());
        let mut dim = state.dim();
        let (alone, is_idle) = (answers.len() == 1, answers.is_empty());
        for (index, answer) in answers.into_iter().enumerate() {
            let number = answer.number;
            if self.is_forgotten(state, &answer) {
                return Err(match alone {
                    true => Refusal::Forgotten,
                    false => Refusal::Forgotten.within("feedback", index),
                });
            }
            if state.answered().contains(number)
                || taken.contains(&number)
                || round.iter().any(|reward: &Reward| reward.number == number)
            {
                applied.push(false);
                continue;
            }
            let reward = self
                .reward(state, &mut dim, answer)
                .map_err(|refusal| match alone {
                    true => refusal,
                    false => refusal.within("feedback", index),
                })?;
            applied.push(true);
            round.push(reward);
        }
        taken.extend(round.iter().map(|reward| reward.number));
        if round.is_empty() && !is_idle {
            return Prepared::nothing(Done::Applied(applied));
        }
        Prepared::event(Event::Learn { round }, Done::Applied(applied))
    }

    /// Whether the user was forgotten after she was shown this.
    fn is_forgotten(&self, state: &State, answer: &Answer) -> bool {
        state.has_forgotten() && state.is_forgotten(self.sealer.print(&answer.user), answer.decided)
    }

    /// The reward with its features.
    fn reward(
        &self,
        state: &State,
        dim: &mut Option<usize>,
        answer: Answer,
    ) -> Result<Reward, Refusal> {
        if answer.decided < state.horizon() {
            return Err(Refusal::Expired);
        }
        let features = match answer.features {
            Features::Inline(features) => features,
            Features::Catalogue(revision) => state
                .catalogue()
                .and_then(|catalogue| catalogue.features_of(&answer.item, revision))
                .ok_or(Refusal::Expired)?,
        };
        let expected = *dim.get_or_insert(features.len());
        if features.len() != expected {
            let message = format!(
                "the item shown has {} features, and {expected} are expected",
                features.len()
            );
            return Err(Refusal::invalid("decision", message));
        }
        Ok(Reward {
            number: answer.number,
            user: answer.user,
            item: answer.item,
            features,
            score: answer.score,
            cluster: answer.cluster,
            decided: answer.decided,
            reward: answer.reward,
        })
    }
}

fn prepare_items(state: &State, mut items: Vec<Item>) -> Result<Prepared, Refusal> {
    let mut dim = state.dim();
    for item in &items {
        let expected = *dim.get_or_insert(item.features.len());
        if item.features.len() != expected {
            let message = format!(
                "item '{}' has {} features, and {expected} are expected",
                item.id,
                item.features.len()
            );
            return Err(Refusal::invalid("features", message));
        }
    }
    if let Some(catalogue) = state.catalogue() {
        // What is named twice counts as given last.
        let mut seen = HashSet::new();
        let twice = items.iter().any(|item| !seen.insert(item.id.clone()));
        if !twice {
            items.retain(|item| !catalogue.has(&item.id, &item.features));
        }
    }
    let changed = items.len();
    if changed == 0 {
        return Prepared::nothing(Done::Changed(0));
    }
    Prepared::event(Event::Upsert { items }, Done::Changed(changed))
}
