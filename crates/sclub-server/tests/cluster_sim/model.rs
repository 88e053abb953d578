//! The account of what clients were promised.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::RngExt;
use sclub_server::decision::DecisionContents;
use sclub_server::event::{Batch, Event};

use crate::plan::Plan;
use crate::seed::{Rng, stream};

/// The length of the seal of a decision in bytes.
const SEAL: usize = 16;

/// The prefix and the length of every user id, so that ids are easily found among bytes.
pub const USER_PREFIX: &str = "user-";
pub const USER_LENGTH: usize = 17;

/// The milliseconds by which the clocks of two owners may differ. Decisions may expire that much earlier.
pub const CLOCK_SLACK: u64 = 15_000;

/// The milliseconds after the last request of a user during which requests may still be on their way.
const IN_FLIGHT: u64 = 25_000;

/// A decision that a client has received.
#[derive(Debug, Clone)]
pub struct Decision {
    pub text: String,
    pub user: String,
    pub items: Vec<String>,
    /// The number of the first item; the others have the numbers after it.
    pub number: u64,
    /// The time at which it was received.
    pub at: u64,
}

/// The reward of an item shown.
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub user: String,
    pub item: String,
    /// Some answer said that it is learned.
    pub is_acknowledged: bool,
    /// The number of answers that said that it was new.
    pub times_new: u32,
}

/// A request to forget a user.
#[derive(Debug, Clone)]
pub struct Forget {
    pub is_acknowledged: bool,
    /// No request of the user can have been on its way.
    pub is_clean: bool,
}

pub struct Model {
    lifetime: u64,
    pub decisions: Vec<Decision>,
    /// The numbers of items shown: the end, and the decision.
    numbers: BTreeMap<u64, (u64, usize)>,
    pub given: BTreeMap<u64, Given>,
    pub forgets: BTreeMap<String, Forget>,
    /// The users of clients.
    pub users: Vec<String>,
    /// Users who are no longer served, and will be forgotten.
    pub retired: Vec<String>,
    last_asked: BTreeMap<String, u64>,
}

/// The reward of an item shown: always the same one.
pub fn reward_of(number: u64) -> f64 {
    (number % 97) as f64 / 97.0
}

pub fn new_user(rng: &mut Rng) -> String {
    let letters = 0..USER_LENGTH - USER_PREFIX.len();
    let letters = letters.map(|_| char::from(rng.random_range(b'a'..=b'z')));
    format!("{USER_PREFIX}{}", letters.collect::<String>())
}

impl Model {
    pub fn new(plan: &Plan) -> Self {
        let rng = &mut stream(plan.seed, "users");
        Self {
            lifetime: plan.settings.lifetime * 1000,
            decisions: Vec::new(),
            numbers: BTreeMap::new(),
            given: BTreeMap::new(),
            forgets: BTreeMap::new(),
            users: (0..plan.users).map(|_| new_user(rng)).collect(),
            retired: Vec::new(),
            last_asked: BTreeMap::new(),
        }
    }

    /// A client asks for a recommendation.
    pub fn asks(&mut self, user: &str, now: u64) {
        self.last_asked.insert(user.to_owned(), now);
    }

    /// A client has received a decision.
    pub fn hand_out(
        &mut self,
        decision: &serde_json::Value,
        user: &str,
        now: u64,
    ) -> Result<usize, String> {
        let text = decision["decision"]
            .as_str()
            .ok_or("no decision")?
            .to_owned();
        let items = decision["items"].as_array().ok_or("no items")?;
        let items = items.iter().filter_map(|item| item["id"].as_str());
        let bytes = URL_SAFE_NO_PAD.decode(&text).map_err(|e| e.to_string())?;
        let contents = DecisionContents::decode(&bytes[..bytes.len() - SEAL]);
        let number = contents.ok_or("a malformed decision")?.number;
        let decision = Decision {
            text,
            user: user.to_owned(),
            items: items.map(str::to_owned).collect(),
            number,
            at: now,
        };
        let end = number + decision.items.len() as u64;
        let before = self.numbers.range(..end).next_back();
        if let Some((_, &(other_end, other))) = before
            && other_end > number
        {
            return Err(format!(
                "two decisions have the same number: {:?} and {decision:?}",
                self.decisions[other]
            ));
        }
        self.numbers.insert(number, (end, self.decisions.len()));
        self.decisions.push(decision);
        Ok(self.decisions.len() - 1)
    }

    /// A client sends the reward of an item.
    pub fn gives(&mut self, decision: usize, place: usize) -> u64 {
        let decision = &self.decisions[decision];
        let number = decision.number + place as u64;
        self.given.entry(number).or_insert_with(|| Given {
            user: decision.user.clone(),
            item: decision.items[place].clone(),
            ..Given::default()
        });
        number
    }

    /// A client was told that a reward is learned.
    pub fn acknowledged(&mut self, number: u64, is_new: bool) -> Result<(), String> {
        let given = self.given.get_mut(&number).ok_or("never sent")?;
        given.is_acknowledged = true;
        given.times_new += u32::from(is_new);
        match given.times_new > 1 {
            true => Err(format!("the reward {number} was new twice")),
            false => Ok(()),
        }
    }

    /// Returns true if a decision may have expired.
    pub fn may_be_expired(&self, decision: usize, now: u64) -> bool {
        now - self.decisions[decision].at + CLOCK_SLACK >= self.lifetime
    }

    /// Returns true if someone has asked to forget the user of a decision.
    pub fn may_be_forgotten(&self, decision: usize) -> bool {
        self.forgets.contains_key(&self.decisions[decision].user)
    }

    /// Takes a user out of use.
    pub fn retire(&mut self, rng: &mut Rng) {
        let place = rng.random_range(0..self.users.len());
        let new = new_user(rng);
        let old = std::mem::replace(&mut self.users[place], new);
        self.retired.push(old);
    }

    /// An operator asks to forget a user.
    pub fn forgets(&mut self, user: &str, now: u64) {
        let asked = self.last_asked.get(user);
        let is_clean = asked.is_none_or(|&asked| now > asked + IN_FLIGHT);
        let forget = Forget {
            is_acknowledged: false,
            is_clean,
        };
        self.forgets.entry(user.to_owned()).or_insert(forget);
    }
}

/// A count and a sum of the rewards of each user, folded from the batches of a stream.
#[derive(Debug, Default, PartialEq)]
pub struct Fold {
    pub users: BTreeMap<String, (u64, f64)>,
    /// How often each number was learned, with its user, item and reward.
    pub learned: BTreeMap<u64, Vec<(String, String, f64)>>,
}

impl Fold {
    pub fn apply(&mut self, batch: &Batch) {
        for event in &batch.events {
            match event {
                Event::Learn { round } => {
                    for reward in round {
                        let user = self.users.entry(reward.user.clone()).or_default();
                        user.0 += 1;
                        user.1 += reward.reward;
                        let learned = self.learned.entry(reward.number).or_default();
                        learned.push((reward.user.clone(), reward.item.clone(), reward.reward));
                    }
                }
                Event::Forget { user } => drop(self.users.remove(user)),
                _ => {}
            }
        }
    }
}
