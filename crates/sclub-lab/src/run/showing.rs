//! The items that a policy has shown of a catalogue.

use serde::Serialize;

use crate::world::{Block, age_class};

/// The ends of the first stages. Each later stage ends at twice the round of the last.
const STAGE_ENDS: [u64; 5] = [2000, 5000, 12_000, 25_000, 40_000];

/// Some consecutive rounds, which count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stage {
    /// The first round.
    pub from: u64,
    /// The round after the last.
    pub to: u64,
    /// Items shown.
    pub shown: u64,
    /// The sum of their click probabilities.
    pub expected_clicks: f64,
    /// The clicks.
    pub clicks: f64,
}

impl Stage {
    /// The mean click probability of an item shown.
    pub fn click_probability(&self) -> f64 {
        self.expected_clicks / self.shown as f64
    }
}

/// Counts what is shown, by stage and by item, and the users' visits.
#[derive(Debug, Clone, Default)]
pub(super) struct Showing {
    pub stages: Vec<Stage>,
    /// True for items that have been shown.
    has_been_shown: Vec<bool>,
    pub distinct_items: u64,
    /// Rounds so far.
    rounds: u64,
    /// Rounds of each user so far.
    visits: Vec<u32>,
}

impl Showing {
    /// Begins a round for a user. Returns the index of the user's age in [`AGES`](crate::world::AGES).
    pub fn begin(&mut self, user: u64) -> usize {
        let round = self.rounds;
        self.rounds += 1;
        match self.stages.last_mut() {
            Some(stage) if STAGE_ENDS.contains(&stage.to) || is_late_end(stage.to) => {
                self.start_stage(round);
            }
            Some(stage) => stage.to = round + 1,
            None => self.start_stage(round),
        }
        let user = user as usize;
        if user >= self.visits.len() {
            self.visits.resize(user + 1, 0);
        }
        self.visits[user] = self.visits[user].saturating_add(1);
        age_class(self.visits[user])
    }

    fn start_stage(&mut self, round: u64) {
        self.stages.push(Stage {
            from: round,
            to: round + 1,
            shown: 0,
            expected_clicks: 0.0,
            clicks: 0.0,
        });
    }

    /// Counts an item shown in the round that was begun last.
    pub fn count(&mut self, block: &Block, at: usize, choice: usize, reward: f64) {
        if let Some(stage) = self.stages.last_mut() {
            stage.shown += 1;
            stage.expected_clicks += block.mean(at, choice);
            stage.clicks += reward;
        }
        if self.has_been_shown.is_empty() {
            self.has_been_shown.resize(block.candidates, false);
        }
        if !std::mem::replace(&mut self.has_been_shown[choice], true) {
            self.distinct_items += 1;
        }
    }
}

/// True for twice, four times, … the last of [`STAGE_ENDS`].
fn is_late_end(round: u64) -> bool {
    let last = STAGE_ENDS[STAGE_ENDS.len() - 1];
    round > last && round.is_multiple_of(last) && (round / last).is_power_of_two()
}
