//! Words and pieces of words of a text, as numbers of buckets.

/// The number of buckets.
pub const BUCKETS: u32 = 4096;
/// The numbers of neighbouring words that count as one thing.
const WORDS: std::ops::RangeInclusive<usize> = 1..=2;
/// The lengths of pieces of words, in characters. A word begins and ends with a space.
const PIECES: std::ops::RangeInclusive<usize> = 3..=5;
/// Words of a text that count; the rest is left out.
const MAX_WORDS: usize = 2000;

/// The buckets of a text and how often each occurs, ascending.
pub fn buckets(text: &str) -> Vec<(u32, u32)> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS)
        .collect();
    let mut all = Vec::new();
    for size in WORDS {
        for group in words.windows(size) {
            all.push(bucket(b'w', group.iter().flat_map(|word| [word, " "])));
        }
    }
    let mut padded = String::new();
    let mut starts = Vec::new();
    for word in &words {
        padded.clear();
        padded.extend([" ", word, " "]);
        starts.clear();
        starts.extend(padded.char_indices().map(|(at, _)| at));
        starts.push(padded.len());
        for size in PIECES {
            for ends in starts.windows(size + 1) {
                all.push(bucket(b'c', [&padded[ends[0]..ends[size]]]));
            }
        }
    }
    all.sort_unstable();
    let mut counted: Vec<(u32, u32)> = Vec::new();
    for bucket in all {
        match counted.last_mut() {
            Some((last, count)) if *last == bucket => *count += 1,
            _ => counted.push((bucket, 1)),
        }
    }
    counted
}

/// The bucket of a thing: FNV-1a over a byte for its kind and its text, then a mix of the bits.
fn bucket<'a>(kind: u8, parts: impl IntoIterator<Item = &'a str>) -> u32 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let start = step(0xcbf2_9ce4_8422_2325, kind);
    let bytes = parts.into_iter().flat_map(str::bytes);
    let hash = bytes.fold(start, step);
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 40) as u32 % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> u32 {
        buckets(text).iter().map(|(_, count)| count).sum()
    }

    #[test]
    fn a_text_has_its_words_pairs_of_words_and_pieces_of_words() {
        // " ab " has two pieces of 3 characters and one of 4.
        assert_eq!(count("ab"), 1 + 3);
        assert_eq!(count("ab ab"), 2 + 1 + 6);
        // " ünï " counts characters, not bytes.
        assert_eq!(count("ünï"), 1 + 3 + 2 + 1);
        assert_eq!(count(" -- "), 0);
    }

    #[test]
    fn case_and_punctuation_do_not_matter() {
        assert_eq!(buckets("Toy Story, (1995)"), buckets("toy story 1995"));
        assert_ne!(buckets("toy story"), buckets("story toy"));
    }

    /// Files of transforms name buckets: a text must keep its buckets for ever.
    #[test]
    fn the_buckets_of_a_text_stay() {
        assert_eq!(buckets("ab"), [(683, 1), (736, 1), (2262, 1), (2541, 1)]);
    }
}
