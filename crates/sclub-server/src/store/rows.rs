//! Lists of byte strings as one byte string.

/// Appends `items` to `out`: how many, then each with its length before it.
pub(super) fn put<'a>(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = &'a [u8]>) {
    out.extend_from_slice(&(items.len() as u32).to_le_bytes());
    for item in items {
        out.extend_from_slice(&(item.len() as u32).to_le_bytes());
        out.extend_from_slice(item);
    }
}

/// What [`put`] wrote at the start of `bytes`, and what follows it. None where it is not such a list.
pub(super) fn take(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (count, mut rest) = number(bytes)?;
    // Every item takes four bytes at least: a wrong count does not ask for much memory.
    if count > rest.len() / 4 {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, after) = number(rest)?;
        let (item, after) = after.split_at_checked(length)?;
        items.push(item);
        rest = after;
    }
    Some((items, rest))
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}

/// Says why `events` and `notes` cannot be appended, if that is so.
pub(super) fn refusal(events: &[&[u8]], notes: &[&[u8]]) -> Option<String> {
    if events.iter().any(|e| e.is_empty()) {
        return Some("an event must have at least one byte".into());
    }
    let long = events.iter().chain(notes).find(|r| r.len() > MAX_ROW)?;
    Some(format!(
        "an event or note of {} bytes is more than {MAX_ROW}",
        long.len()
    ))
}

/// The longest event or note.
const MAX_ROW: usize = 1 << 28;

#[cfg(test)]
mod tests {
    use super::{put, take};

    #[test]
    fn lists_come_back_and_cut_ones_do_not() {
        let items: [&[u8]; 3] = [b"one", b"", b"three"];
        let mut bytes = Vec::new();
        put(&mut bytes, items.iter().copied());
        bytes.push(9);
        assert_eq!(take(&bytes), Some((items.to_vec(), &[9][..])));
        for cut in 0..bytes.len() - 1 {
            assert_eq!(take(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(take(&[255; 64]), None);
    }
}
