//! The items that the catalogue may have.

use std::collections::BTreeMap;

use super::{CallId, End, Tick};

/// Features of an item; none if it is not there.
type Value = Option<Vec<f64>>;

/// For each item the writes that may be the last one.
#[derive(Debug, Clone, Default)]
pub struct Items(BTreeMap<String, Vec<Write>>);

#[derive(Debug, Clone)]
struct Write {
    call: CallId,
    value: Value,
    begin: Tick,
    /// None while it may still have effect.
    end: Option<Tick>,
    is_certain: bool,
    /// True if it may have found the item there, and true if it may have found it absent.
    found: (bool, bool),
}

impl Items {
    pub fn begin(&mut self, call: CallId, item: &str, value: Value, now: Tick) {
        let writes = self.0.entry(item.to_owned()).or_insert_with(|| {
            // Before everything else it was not there.
            vec![Write {
                call: 0,
                value: None,
                begin: 0,
                end: Some(0),
                is_certain: true,
                found: (false, false),
            }]
        });
        let found = may_be(writes);
        for other in writes.iter_mut().filter(|other| other.end.is_none()) {
            other.found.0 |= value.is_some();
            other.found.1 |= value.is_none();
        }
        writes.push(Write {
            call,
            value,
            begin: now,
            end: None,
            is_certain: false,
            found,
        });
    }

    pub fn end(&mut self, call: CallId, item: &str, end: &End, now: Tick) {
        let writes = self.0.get_mut(item).expect("it was begun");
        if *end == End::Refused {
            return writes.retain(|write| write.call != call);
        }
        let Some(write) = writes.iter_mut().rfind(|write| write.call == call) else {
            return;
        };
        write.end = Some(now);
        write.is_certain = *end != End::Unknown;
        let (begin, is_certain) = (write.begin, write.is_certain);
        // Another call that is still in flight may have seen the state before this one.
        let is_alone = !writes.iter().any(|write| write.end.is_none());
        // Of several in one call only the last can remain.
        let last = writes.iter().rposition(|write| write.call == call);
        let mut index = 0;
        writes.retain(|write| {
            let is_over = is_certain && is_alone && write.end.is_some_and(|end| end < begin);
            let is_same = write.call == call && Some(index) != last;
            index += 1;
            !is_over && !is_same
        });
    }

    /// Checks what the removal of an item found.
    pub fn check_removed(&self, call: CallId, item: &str, was_there: bool) -> Result<(), String> {
        let mut writes = self.0.get(item).into_iter().flatten();
        let write = writes.find(|write| write.call == call);
        let (there, absent) = write.expect("it was begun").found;
        match if was_there { there } else { absent } {
            true => Ok(()),
            false => Err(format!(
                "removal of item {item} reported that it was there: {was_there}"
            )),
        }
    }

    pub fn check(&self, catalogue: &BTreeMap<String, Vec<f64>>) -> Result<(), String> {
        for (item, writes) in &self.0 {
            let there = catalogue.get(item);
            if !writes.iter().any(|write| write.value.as_ref() == there) {
                let may: Vec<_> = writes.iter().map(|write| &write.value).collect();
                return Err(format!(
                    "item {item} is {there:?}, and must be one of {may:?}"
                ));
            }
        }
        match catalogue.keys().find(|item| !self.0.contains_key(*item)) {
            Some(item) => Err(format!("item {item} was never inserted")),
            None => Ok(()),
        }
    }

    /// True if an item may be there, and true if it may be absent.
    pub fn may_be(&self, item: &str) -> (bool, bool) {
        match self.0.get(item) {
            None => (false, true),
            Some(writes) => may_be(writes),
        }
    }

    /// Items that may be one thing or another.
    pub fn unsure(&self) -> Vec<String> {
        let unsure = self.0.iter().filter(|(_, writes)| {
            let mut values = writes.iter().map(|write| &write.value);
            let first = values.next();
            values.any(|value| Some(value) != first)
        });
        unsure.map(|(item, _)| item.clone()).collect()
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

fn may_be(writes: &[Write]) -> (bool, bool) {
    (
        writes.iter().any(|write| write.value.is_some()),
        writes.iter().any(|write| write.value.is_none()),
    )
}
