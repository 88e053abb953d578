//! The account finds what must not be, and lets pass what may be.

use super::*;

const MADE: Tick = 1;

fn sent(decision: DecisionId, reward: f64) -> SentReward {
    SentReward {
        decision,
        user: "u".to_owned(),
        made: MADE,
        item: "i".to_owned(),
        reward,
    }
}

/// Counts up, and keeps account.
#[derive(Default)]
struct Book {
    model: Model,
    now: Tick,
}

impl Book {
    fn new() -> Self {
        let mut book = Book {
            model: Model::default(),
            now: MADE,
        };
        book.model.recommended("u", MADE);
        book
    }

    fn begin(&mut self, ask: Ask) -> CallId {
        self.now += 1;
        self.model.begin(ask, self.now)
    }

    fn end(&mut self, call: CallId, end: End) -> Result<(), String> {
        self.now += 1;
        self.model.end(call, &end, self.now)
    }

    fn give(&mut self, decision: DecisionId, reward: f64) -> CallId {
        self.begin(Ask::Feedback(vec![sent(decision, reward)]))
    }

    fn forget(&mut self) {
        let call = self.begin(Ask::Forget("u".to_owned()));
        self.end(call, End::Changed(1)).unwrap();
    }

    fn die(&mut self) {
        self.now += 1;
        self.model.settle_calls(self.now);
    }

    fn tally(&self) -> (u64, u64) {
        let tallies = self.model.tallies();
        let tally = tallies.get("u").copied().unwrap_or_default();
        (tally.least, tally.most)
    }

    fn check(&self, count: u64, sum: f64) -> Result<(), String> {
        let users = match count {
            0 => BTreeMap::new(),
            _ => BTreeMap::from([("u".to_owned(), (count, sum))]),
        };
        self.model.check_users(&users, None)
    }
}

fn applied(is_new: bool) -> End {
    End::Applied(vec![is_new])
}

#[test]
fn acknowledged_rewards_count_once_and_others_may_count() {
    let mut book = Book::new();
    let first = book.give(0, 0.5);
    book.end(first, applied(true)).unwrap();
    let lost = book.give(1, 0.25);
    book.die();
    assert_eq!(book.tally(), (1, 2));
    book.check(1, 0.5).unwrap();
    book.check(2, 0.75).unwrap();
    for (count, sum) in [(0, 0.0), (3, 0.75), (1, 0.4), (2, 0.8)] {
        assert!(book.check(count, sum).is_err());
    }
    let again = book.give(1, 0.25);
    assert!(lost < again);
    book.end(again, applied(false)).unwrap();
    assert_eq!(book.tally(), (2, 2));
    assert!(book.check(1, 0.5).is_err());
}

#[test]
fn a_reward_that_is_applied_twice_is_found() {
    let mut book = Book::new();
    for is_first in [true, false] {
        let call = book.give(0, 0.5);
        assert_eq!(book.end(call, applied(true)).is_ok(), is_first);
    }
}

#[test]
fn rewards_that_were_never_sent_or_always_refused_cannot_be_applied() {
    let mut book = Book::new();
    let refused = book.give(0, 0.5);
    book.end(refused, End::Refused).unwrap();
    assert_eq!(book.tally(), (0, 0));
    let call = book.give(0, 0.5);
    assert!(book.end(call, applied(false)).is_err());
}

#[test]
fn of_two_calls_at_once_one_applies_a_reward() {
    let mut book = Book::new();
    let (one, other) = (book.give(0, 0.5), book.give(0, 0.25));
    book.end(one, applied(false)).unwrap();
    assert!(book.check(1, 0.5).is_err());
    book.check(1, 0.25).unwrap();
    let late = book.give(0, 0.125);
    assert!(book.end(late, applied(true)).is_err());
    book.end(other, applied(true)).unwrap();
    book.check(1, 0.25).unwrap();
}

#[test]
fn a_reward_said_to_be_there_is_not_refused_afterwards() {
    let mut book = Book::new();
    let (one, other) = (book.give(0, 0.5), book.give(0, 0.5));
    book.end(one, applied(false)).unwrap();
    assert!(book.end(other, End::Refused).is_err());
}

#[test]
fn a_forgotten_user_is_gone_with_all_that_was_shown_before() {
    let mut book = Book::new();
    let call = book.give(0, 0.5);
    book.end(call, applied(true)).unwrap();
    let refused = book.model.refused_as_forgotten(&sent(0, 0.5), Tick::MAX);
    assert!(refused.is_err());
    book.forget();
    assert_eq!(book.tally(), (0, 0));
    assert!(book.check(1, 0.5).is_err());
    let call = book.give(1, 0.5);
    assert!(book.end(call, applied(true)).is_err());
    book.model
        .refused_as_forgotten(&sent(2, 0.5), Tick::MAX)
        .unwrap();
}

#[test]
fn an_answer_that_comes_late_is_of_the_time_when_it_was_asked() {
    let mut book = Book::new();
    book.begin(Ask::Forget("u".to_owned()));
    book.die();
    let early = book.give(0, 0.5);
    book.now += 1;
    let refused = book.model.refused_as_forgotten(&sent(0, 0.5), book.now);
    refused.unwrap();
    book.end(early, applied(true)).unwrap();
    let late = book.give(0, 0.25);
    assert!(book.end(late, applied(true)).is_err());
}

#[test]
fn an_unanswered_request_to_forget_leaves_both_until_an_answer_shows_which() {
    let mut book = Book::new();
    for decision in [0, 1] {
        let call = book.give(decision, 0.5);
        book.end(call, applied(true)).unwrap();
    }
    book.begin(Ask::Forget("u".to_owned()));
    book.die();
    assert_eq!(book.tally(), (0, 2));
    let call = book.give(0, 0.5);
    book.end(call, applied(false)).unwrap();
    assert_eq!(book.tally(), (1, 2));
    assert_eq!(book.model.life(1, "u", MADE), Life::Unsure);
    book.model
        .refused_as_forgotten(&sent(1, 0.5), Tick::MAX)
        .unwrap();
    assert_eq!(book.tally(), (1, 1));
}

/// A request to forget whose outcome is unknown may be found in the log at the next start, before decisions
/// that were made since.
#[test]
fn an_unknown_request_to_forget_may_have_effect_until_the_next_start() {
    let mut book = Book::new();
    let call = book.begin(Ask::Forget("u".to_owned()));
    book.end(call, End::Unknown).unwrap();
    book.now += 5;
    let made = book.now;
    assert_eq!(book.model.life(7, "u", made), Life::Unsure);
    book.now += 1;
    book.model.restarted(book.now);
    assert_eq!(book.model.life(7, "u", made), Life::Unsure);
    assert_eq!(book.model.life(8, "u", book.now), Life::Alive);
}

#[test]
fn nothing_of_a_user_may_be_left_after_a_compaction_until_she_is_named_again() {
    let mut book = Book::new();
    let gone = |book: &Book| book.model.gone().count();
    book.forget();
    assert_eq!(gone(&book), 0);
    book.now += 1;
    book.model.compacted(book.now);
    assert_eq!(gone(&book), 1);
    let late = book.give(0, 0.5);
    assert_eq!(gone(&book), 0);
    book.end(late, End::Refused).unwrap();
    assert_eq!(gone(&book), 1);
    book.now += 1;
    book.model.recommended("u", book.now);
    assert_eq!(gone(&book), 0);
}

#[test]
fn the_catalogue_is_as_the_last_write_left_it() {
    let mut book = Book::new();
    let put = |value: f64| Ask::Upsert(vec![("i".to_owned(), vec![value])]);
    let has = |value: f64| BTreeMap::from([("i".to_owned(), vec![value])]);
    let call = book.begin(put(1.0));
    book.end(call, End::Changed(1)).unwrap();
    book.model.check_catalogue(&has(1.0)).unwrap();
    assert!(book.model.check_catalogue(&BTreeMap::new()).is_err());
    let (one, other) = (book.begin(put(2.0)), book.begin(put(3.0)));
    book.end(one, End::Changed(1)).unwrap();
    book.end(other, End::Changed(1)).unwrap();
    assert!(book.model.check_catalogue(&has(1.0)).is_err());
    book.model.check_catalogue(&has(2.0)).unwrap();
    book.model.check_catalogue(&has(3.0)).unwrap();
    let call = book.begin(Ask::Remove("i".to_owned()));
    assert!(book.clone_end(call, End::Changed(0)).is_err());
    book.end(call, End::Changed(1)).unwrap();
    book.model.check_catalogue(&BTreeMap::new()).unwrap();
    book.begin(put(4.0));
    book.die();
    assert_eq!(book.model.may_be("i"), (true, true));
    assert_eq!(book.model.unsure_items(), ["i"]);
    let refused = book.begin(put(5.0));
    book.end(refused, End::Refused).unwrap();
    assert!(book.model.check_catalogue(&has(5.0)).is_err());
}

#[test]
fn of_two_removals_at_once_either_may_find_the_item() {
    let mut book = Book::new();
    let call = book.begin(Ask::Upsert(vec![("i".to_owned(), vec![1.0])]));
    book.end(call, End::Changed(1)).unwrap();
    let one = book.begin(Ask::Remove("i".to_owned()));
    let other = book.begin(Ask::Remove("i".to_owned()));
    book.end(one, End::Changed(0)).unwrap();
    book.end(other, End::Changed(1)).unwrap();
    let late = book.begin(Ask::Remove("i".to_owned()));
    assert!(book.clone_end(late, End::Changed(1)).is_err());
}

impl Book {
    /// The verdict of the model if a call ended so.
    fn clone_end(&self, call: CallId, end: End) -> Result<(), String> {
        self.model.clone().end(call, &end, self.now + 1)
    }
}

#[test]
fn a_copy_may_have_what_happened_while_it_was_taken() {
    let mut book = Book::new();
    let before = book.give(0, 0.5);
    book.end(before, applied(true)).unwrap();
    let running = book.give(1, 0.5);
    let begun = book.model.clone();
    book.end(running, applied(true)).unwrap();
    let meanwhile = book.give(2, 0.5);
    book.end(meanwhile, applied(true)).unwrap();
    let forget = book.begin(Ask::Forget("v".to_owned()));
    book.end(forget, End::Changed(0)).unwrap();
    book.now += 1;
    let copy = begun.into_copy(&book.model, book.now);
    let tally = copy.tallies()["u"];
    assert_eq!((tally.least, tally.most), (1, 3));
    assert_eq!(book.tally(), (3, 3));
    assert_eq!(copy.life(9, "v", MADE), Life::Unsure);
    assert_eq!(copy.in_flight(), 0);
}
