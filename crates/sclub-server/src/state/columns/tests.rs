//! Columns against conditions that are evaluated on the JSON of each item.

use serde_json::{Map, Value, json};

use super::*;
use crate::description::Description;
use crate::filter::Filter;

/// Pseudo-random numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }

    /// Whole numbers about 2^53 and 2^63, where floating-point numbers have gaps, and others.
    fn number(&mut self) -> Value {
        let small = self.below(4);
        match self.below(4) {
            0 => json!((1u64 << 53) + small),
            1 => json!(-(1i64 << 53) - small as i64),
            2 => json!((1u64 << 63) + small),
            _ => json!(small as f64 / 2.0),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(4) {
            0 => self.number(),
            1 => json!(self.below(2) == 0),
            _ => json!(format!("v{}", self.below(6))),
        }
    }

    fn values(&mut self, count: u64) -> Value {
        (0..count).map(|_| self.value()).collect()
    }

    /// Some common fields, one with long lists, and one of many rare ones.
    fn data(&mut self) -> Map<String, Value> {
        let mut data = Map::new();
        for field in ["a", "b"] {
            if self.below(3) > 0 {
                data.insert(field.to_owned(), self.value());
            }
        }
        let count = self.below(2 * MAX_LAYERS as u64);
        data.insert("list".to_owned(), self.values(count));
        let rare = format!("rare{}", self.below(60));
        data.insert(rare, self.value());
        data
    }

    fn filter(&mut self) -> Map<String, Value> {
        let mut filter = Map::new();
        let rare = format!("rare{}", self.below(60));
        for field in ["a", "b", "list", &rare, "id"] {
            if self.below(2) == 0 {
                continue;
            }
            let count = self.below(4);
            let test = match self.below(5) {
                0 => json!({"any": self.values(count)}),
                1 => json!({"all": self.values(count)}),
                2 => json!({"none": self.values(count)}),
                3 => json!({"min": self.number()}),
                _ => json!({"max": self.number()}),
            };
            filter.insert(field.to_owned(), test);
        }
        filter
    }
}

/// Numbers are equal if their values are.
fn number(value: &Value) -> Option<(i128, f64)> {
    let whole = value.as_i64().map(i128::from);
    let whole = whole.or(value.as_u64().map(i128::from));
    match whole {
        Some(whole) => Some((whole, 0.0)),
        None => value.as_f64().map(|n| (n.floor() as i128, n - n.floor())),
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn passes(data: &Map<String, Value>, filter: &Map<String, Value>) -> bool {
    filter.iter().all(|(field, test)| {
        let own = data.get(field).unwrap_or(&Value::Null);
        let list = own
            .as_array()
            .map_or(std::slice::from_ref(own), Vec::as_slice);
        let has = |value: &Value| list.iter().any(|own| is_same(own, value));
        let mut parts = test.as_object().unwrap().iter();
        parts.all(|(name, given)| match (&**name, given.as_array()) {
            ("any", Some(values)) => values.iter().any(has),
            ("all", Some(values)) => values.iter().all(has),
            ("none", Some(values)) => !values.iter().any(has),
            ("min", _) => number(own).is_some_and(|own| own >= number(given).unwrap()),
            _ => number(own).is_some_and(|own| own <= number(given).unwrap()),
        })
    })
}

#[test]
fn columns_pass_the_items_whose_json_passes() {
    let mut random = Random(7);
    let mut columns = Columns::default();
    let mut items: Vec<(Map<String, Value>, bool)> = Vec::new();
    let mut passed = [0; 2];
    for step in 0..3000 {
        let place = random.below(items.len() as u64 + 1) as usize;
        if step > 500 && random.below(4) == 0 && place < items.len() {
            items.swap_remove(place);
            columns.swap_remove(place);
        } else {
            // Fewer new items than changes, in the end some 600.
            let slot = match step < 500 || random.below(3) == 0 {
                true => items.len(),
                false => place,
            };
            let data = random.data();
            let is_unavailable = random.below(10) == 0;
            let description = Description {
                is_unavailable,
                data: Value::Object(data.clone()).to_string(),
                ..Description::default()
            };
            columns.set(slot, Facts::new("x", &description));
            match items.get_mut(slot) {
                Some(item) => *item = (data, !is_unavailable),
                None => items.push((data, !is_unavailable)),
            }
        }
        let unavailable = items.iter().filter(|(_, is_available)| !is_available);
        assert_eq!(columns.unavailable(), unavailable.count());
        if step % 5 > 0 {
            continue;
        }
        let given = random.filter();
        let filter = Filter::parse(&given).unwrap();
        let bits = columns.matching(filter.conditions());
        assert_eq!(bits.len(), items.len().div_ceil(64));
        for (slot, (data, is_available)) in items.iter().enumerate() {
            let mut with_id = data.clone();
            with_id.insert("id".to_owned(), json!("x"));
            let expected = passes(&with_id, &given);
            let own = |condition| columns.passes(slot, condition);
            assert_eq!(
                filter.conditions().iter().all(own),
                expected,
                "{given:?}: {data:?}"
            );
            assert_eq!(
                bit(&bits, slot),
                expected && *is_available,
                "{given:?}: {data:?}"
            );
            passed[usize::from(expected)] += 1;
        }
        let beyond = bits.last().map_or(0, |last| {
            last.checked_shr(items.len() as u32 % 64).unwrap_or(0)
        });
        assert!(items.len().is_multiple_of(64) || beyond == 0);
    }
    assert!(passed.iter().all(|&count| count > 5000), "{passed:?}");
    let all =
        ["list", "a", "rare1"].map(|name| columns.has_field(crate::description::field_hash(name)));
    assert_eq!(all, [true; 3]);
    assert!(!columns.has_field(crate::description::field_hash("none")));
}
