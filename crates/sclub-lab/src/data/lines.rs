//! A stream cut into lines, without holding more of it than one piece and one line.

use std::io::{self, Read};

use memchr::memchr;

/// Bytes asked for at a time.
const PIECE: usize = 1 << 20;
/// The maximum length of a line. A file with a longer one is not a text file.
const MAX_LINE_BYTES: usize = 64 << 20;

/// The lines of a stream, their ends removed.
pub struct Lines<R> {
    stream: R,
    buffer: Vec<u8>,
    /// The part of the buffer that was read from the file but not yet returned.
    start: usize,
    end: usize,
    done: u64,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            done: 0,
            number: 0,
        }
    }

    /// Bytes taken from the stream.
    pub fn bytes(&self) -> u64 {
        self.done
    }

    /// Number of the line given out last; the first is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line, without `\n` or `\r\n` at its end; a mark of UTF-8 before the first line is
    /// removed as well.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = 0;
        let (mut from, mut to) = loop {
            if let Some(at) = memchr(b'\n', &self.buffer[self.start + searched..self.end]) {
                let from = self.start;
                self.start = from + searched + at + 1;
                break (from, self.start - 1);
            }
            searched = self.end - self.start;
            if self.more()? == 0 {
                if searched == 0 {
                    return Ok(None);
                }
                let from = self.start;
                self.start = self.end;
                break (from, self.end);
            }
        };
        self.number += 1;
        if self.number == 1 && self.buffer[from..to].starts_with(b"\xef\xbb\xbf") {
            from += 3;
        }
        if to > from && self.buffer[to - 1] == b'\r' {
            to -= 1;
        }
        Ok(Some(&self.buffer[from..to]))
    }

    /// Reads more bytes to the end of the buffer. Returns their number.
    fn more(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.end >= MAX_LINE_BYTES {
                let reason = format!(
                    "line {} is longer than {} MiB; this is not a text file",
                    self.number + 1,
                    MAX_LINE_BYTES >> 20
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    self.done += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out a few bytes at a time, as a pipe may.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn lines(text: &[u8], step: usize) -> Vec<String> {
        let mut lines = Lines::new(Drops(text, step));
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(lines.number(), all.len() as u64);
        assert_eq!(lines.bytes(), text.len() as u64);
        all
    }

    #[test]
    fn lines_come_out_whole_however_the_stream_is_cut() {
        let long = "x".repeat(3 * PIECE + 17);
        let text = format!("\u{feff}one\r\n\ntwo\n{long}\r\n{long}\nend\r");
        for step in [5_001, PIECE - 1, usize::MAX] {
            assert_eq!(
                lines(text.as_bytes(), step),
                ["one", "", "two", &long, &long, "end"]
            );
        }
        assert_eq!(lines(b"a\r\nb\n", 1), ["a", "b"]);
        assert!(lines(b"", 1).is_empty());
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut lines = Lines::new(io::repeat(b'x'));
        let error = lines.next_line().unwrap_err();
        assert!(
            error.to_string().contains("line 1 is longer than 64 MiB"),
            "{error}"
        );
    }
}
