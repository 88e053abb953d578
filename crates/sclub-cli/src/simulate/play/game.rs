//! A game: rounds of a world, played over one or more connections.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use sclub_lab::run::Counts;
use sclub_lab::summary::thousands;
use sclub_lab::world::{Block, Blocks, World};
use sclub_server::client::Connection;

use crate::remote::body_of;
use crate::simulate::Sent;
use crate::simulate::latency::Latencies;
use crate::simulate::wire::{
    Decision, Decisions, read, separate, write_clicks, write_request, write_rewards,
};

/// Number of rewards that the shown rate is the mean of.
const RECENT: usize = 1000;

/// The rounds that no player has taken yet.
struct Feed<'w> {
    world: &'w dyn World,
    blocks: Blocks<'w>,
    block: Rc<Block>,
    round: usize,
}

impl<'w> Feed<'w> {
    pub fn new(world: &'w dyn World, rounds: u64) -> Self {
        Self {
            world,
            blocks: Blocks::new(world, rounds),
            block: Rc::new(world.new_block()),
            round: 0,
        }
    }

    /// The users of the next round, in their block.
    fn next(&mut self) -> Option<(Rc<Block>, Range<usize>)> {
        if self.round == self.block.rounds() {
            // Others may still be playing the last one.
            if Rc::get_mut(&mut self.block).is_none() {
                self.block = Rc::new(self.world.new_block());
            }
            let block = Rc::get_mut(&mut self.block)?;
            if self.blocks.draw(block).is_none() {
                block.clear(0);
                self.round = 0;
                return None;
            }
            self.round = 0;
        }
        let users = self.block.users_of(self.round);
        self.round += 1;
        Some((Rc::clone(&self.block), users))
    }
}

/// A decision, with the rewards of the items shown.
struct Rewarded {
    decision: String,
    items: Vec<usize>,
    rewards: Vec<f64>,
}

/// A game under way.
pub struct Game<'w> {
    feed: Feed<'w>,
    pub counts: Counts,
    pub rounds: u64,
    /// Rewards that have not been sent, the oldest first.
    waiting: VecDeque<Rewarded>,
    recent: VecDeque<f64>,
    pub recommend: Latencies,
    pub feedback: Latencies,
    pub clusters: Option<u64>,
}

impl<'w> Game<'w> {
    /// A game before its first round.
    pub fn new(world: &'w dyn World, rounds: u64) -> Self {
        Self {
            feed: Feed::new(world, rounds),
            counts: Counts::default(),
            rounds: 0,
            waiting: VecDeque::new(),
            recent: VecDeque::with_capacity(RECENT),
            recommend: Latencies::default(),
            feedback: Latencies::default(),
            clusters: None,
        }
    }

    /// Shows the items of a decision to the `at`-th user of a block, and draws their rewards.
    fn show(&mut self, block: &Block, at: usize, decision: Decision<'_>) -> Result<Rewarded> {
        let choices = decision.choices(block.slots, block.candidates)?;
        self.counts.begin(block, at);
        let mut rewards = Vec::with_capacity(choices.len());
        for (slot, &choice) in choices.iter().enumerate() {
            let reward = self.counts.count(block, at, slot, choice);
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(reward);
            rewards.push(reward);
        }
        Ok(Rewarded {
            decision: decision.decision.into_owned(),
            items: choices,
            rewards,
        })
    }

    /// Keeps the rewards of a round. Returns those that are to be sent after it: the rewards of `delay` rounds before,
    /// if there were as many.
    fn delay(&mut self, rewarded: Rewarded, delay: u64) -> Option<Rewarded> {
        self.waiting.push_back(rewarded);
        let is_due = self.waiting.len() as u64 > delay;
        is_due.then(|| self.waiting.pop_front()).flatten()
    }

    /// The current results, in a few words.
    pub fn status(&self) -> String {
        let mut text = format!(
            "regret {} (random {})",
            thousands(self.counts.tally.regret),
            thousands(self.counts.tally.random_regret)
        );
        if !self.recent.is_empty() {
            let rate = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
            text.push_str(&format!(", reward {rate:.3}"));
        }
        if let Some(clusters) = self.clusters {
            let many = if clusters == 1 { "" } else { "s" };
            text.push_str(&format!(", {} cluster{many}", thousands(clusters as f64)));
        }
        text
    }
}

/// Plays rounds over a connection of its own.
pub struct Player<'g, 'w> {
    pub game: &'g RefCell<Game<'w>>,
    pub connection: Connection,
    pub prefix: &'g str,
    pub sent: Sent,
    pub cancelled: &'g AtomicBool,
    pub body: Vec<u8>,
}

impl Player<'_, '_> {
    pub async fn play(mut self) -> Result<()> {
        while !self.cancelled.load(Ordering::Relaxed) {
            let next = self.game.borrow_mut().feed.next();
            let Some((block, users)) = next else {
                break;
            };
            if block.ends.is_empty() {
                self.play_one(&block, users.start).await?;
            } else {
                self.play_together(&block, users).await?;
            }
            self.game.borrow_mut().rounds += 1;
        }
        Ok(())
    }

    /// Serves a user, and sends the rewards that are due.
    async fn play_one(&mut self, block: &Block, at: usize) -> Result<()> {
        self.body.clear();
        write_request(&mut self.body, self.prefix, block, at)?;
        let start = Instant::now();
        let response = self
            .connection
            .request("POST", "/v1/recommend", &self.body)
            .await?;
        let took = start.elapsed();
        let decision: Decision<'_> = read(body_of(&response)?)?;
        let due = {
            let mut game = self.game.borrow_mut();
            game.recommend.add(took);
            let rewarded = game.show(block, at, decision)?;
            game.delay(rewarded, block.delay)
        };
        let Some(due) = due else {
            return Ok(());
        };
        let path = match self.sent {
            Sent::All => {
                self.body.clear();
                write_rewards(&mut self.body, &due.decision, &due.rewards)?;
                "/v1/feedback"
            }
            Sent::Clicks | Sent::Others => {
                if self.write_batch(&[due])? == 0 {
                    return Ok(());
                }
                "/v1/feedback/batch"
            }
        };
        let start = Instant::now();
        let response = self.connection.request("POST", path, &self.body).await?;
        body_of(&response)?;
        self.game.borrow_mut().feedback.add(start.elapsed());
        Ok(())
    }

    /// Writes the rewards of a round as a batch. Returns the length of its entries.
    fn write_batch(&mut self, all: &[Rewarded]) -> Result<usize> {
        let body = &mut self.body;
        body.clear();
        body.extend_from_slice(b"{\"feedback\":[");
        let begun = body.len();
        for Rewarded {
            decision,
            items,
            rewards,
        } in all
        {
            match self.sent {
                Sent::All => {
                    separate(body);
                    write_rewards(body, decision, rewards)?;
                }
                sent => write_clicks(body, decision, items, rewards, sent == Sent::Others)?,
            }
        }
        let length = body.len() - begun;
        body.extend_from_slice(b"]}");
        Ok(length)
    }

    /// One time slot: all users are served on the same history. A slot without users is played too.
    async fn play_together(&mut self, block: &Block, users: Range<usize>) -> Result<()> {
        let mut rewarded = Vec::new();
        if !users.is_empty() {
            self.body.clear();
            self.body.extend_from_slice(b"{\"requests\":[");
            for at in users.clone() {
                separate(&mut self.body);
                write_request(&mut self.body, self.prefix, block, at)?;
            }
            self.body.extend_from_slice(b"]}");
            let start = Instant::now();
            let response = self
                .connection
                .request("POST", "/v1/recommend/batch", &self.body)
                .await?;
            let took = start.elapsed();
            let Decisions { decisions } = read(body_of(&response)?)?;
            if decisions.len() != users.len() {
                let (got, asked) = (decisions.len(), users.len());
                bail!("the server answered {got} of {asked} requests");
            }
            let mut game = self.game.borrow_mut();
            game.recommend.add(took);
            for (at, decision) in users.zip(decisions) {
                rewarded.push(game.show(block, at, decision)?);
            }
        }
        let length = self.write_batch(&rewarded)?;
        let start = Instant::now();
        let path = "/v1/feedback/batch";
        let response = match length == 0 {
            // Without rewards it is a round each time that it arrives.
            true => {
                self.connection
                    .request_once("POST", path, &self.body)
                    .await?
            }
            false => self.connection.request("POST", path, &self.body).await?,
        };
        body_of(&response)?;
        self.game.borrow_mut().feedback.add(start.elapsed());
        Ok(())
    }
}
