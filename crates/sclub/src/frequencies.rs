//! The counts of a cluster's users, as a multiset.

/// Users by number of appearances, in ascending order.
///
/// The split test needs the lowest and the highest count of a cluster, not the users they belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frequencies {
    /// (appearances, users with as many), users > 0.
    entries: Vec<(u64, u64)>,
}

impl Frequencies {
    pub fn lowest(&self) -> Option<u64> {
        self.entries.first().map(|&(count, _)| count)
    }

    pub fn highest(&self) -> Option<u64> {
        self.entries.last().map(|&(count, _)| count)
    }

    pub fn entries(&self) -> &[(u64, u64)] {
        &self.entries
    }

    /// From its entries; `None` if they are not in order.
    pub fn from_entries(entries: Vec<(u64, u64)>) -> Option<Self> {
        let in_order = entries.is_sorted_by(|(a, _), (b, _)| a < b);
        let has_empty = entries.iter().any(|&(_, users)| users == 0);
        (in_order && !has_empty).then_some(Self { entries })
    }

    pub fn add(&mut self, count: u64, users: u64) {
        if users == 0 {
            return;
        }
        match self.find(count) {
            Ok(at) => self.entries[at].1 += users,
            Err(at) => self.entries.insert(at, (count, users)),
        }
    }

    /// One user with `count` appearances leaves.
    pub fn remove(&mut self, count: u64) {
        let at = self
            .find(count)
            .expect("a user's count is among the cluster's");
        self.entries[at].1 -= 1;
        if self.entries[at].1 == 0 {
            self.entries.remove(at);
        }
    }

    /// One user with `count` appearances appears once more.
    pub fn raise(&mut self, count: u64) {
        let at = self
            .find(count)
            .expect("a user's count is among the cluster's");
        let has_next = self
            .entries
            .get(at + 1)
            .is_some_and(|&(next, _)| next == count + 1);
        match (self.entries[at].1, has_next) {
            (1, false) => self.entries[at].0 += 1,
            (1, true) => {
                self.entries.remove(at);
                self.entries[at].1 += 1;
            }
            (_, true) => {
                self.entries[at].1 -= 1;
                self.entries[at + 1].1 += 1;
            }
            (_, false) => {
                self.entries[at].1 -= 1;
                self.entries.insert(at + 1, (count + 1, 1));
            }
        }
    }

    /// The union with another cluster's.
    pub fn absorb(&mut self, other: &Frequencies) {
        for &(count, users) in &other.entries {
            self.add(count, users);
        }
    }

    fn find(&self, count: u64) -> Result<usize, usize> {
        self.entries
            .binary_search_by_key(&count, |&(count, _)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0u8..4, 0usize..1000), 1..300)) {
            let mut list: Vec<u64> = vec![0];
            let mut frequencies = Frequencies::default();
            frequencies.add(0, 1);
            for (step, pick) in steps {
                match step {
                    0 => {
                        let count = pick as u64 % 7;
                        list.push(count);
                        frequencies.add(count, 1);
                    }
                    1 if !list.is_empty() => {
                        let count = list.swap_remove(pick % list.len());
                        frequencies.remove(count);
                    }
                    2 => {
                        let other: Vec<u64> = (0..pick as u64 % 5).map(|v| v * 2).collect();
                        let mut more = Frequencies::default();
                        other.iter().for_each(|&count| more.add(count, 1));
                        frequencies.absorb(&more);
                        list.extend(other);
                    }
                    _ if !list.is_empty() => {
                        let at = pick % list.len();
                        frequencies.raise(list[at]);
                        list[at] += 1;
                    }
                    _ => {}
                }
                list.sort_unstable();
                let flat: Vec<u64> = frequencies
                    .entries()
                    .iter()
                    .flat_map(|&(count, users)| std::iter::repeat_n(count, users as usize))
                    .collect();
                prop_assert_eq!(&flat, &list);
                prop_assert_eq!(frequencies.lowest(), list.first().copied());
                prop_assert_eq!(frequencies.highest(), list.last().copied());
            }
        }
    }
}
