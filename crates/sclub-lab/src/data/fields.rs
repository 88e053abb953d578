//! A line cut into fields.

use std::borrow::Cow;

use memchr::memchr;

/// The separator between two fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// One byte; a field may be in quotes, a quote inside it doubled.
    Byte(u8),
    /// `::`
    Colons,
    /// Any number of spaces and tabs.
    Spaces,
}

/// The fields of a line, one after the other.
pub struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
}

impl<'a> Fields<'a> {
    pub fn new(line: &'a [u8], separator: Separator) -> Self {
        let rest = match separator {
            Separator::Spaces => line.trim_ascii(),
            _ => line,
        };
        Self {
            rest: Some(rest),
            separator,
        }
    }

    /// The next field, `None` behind the last one.
    ///
    /// # Errors
    /// The error in its quotes.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Cow<'a, [u8]>>, &'static str> {
        let Some(rest) = self.rest else {
            return Ok(None);
        };
        let (field, rest) = match self.separator {
            Separator::Byte(byte) => {
                let text = rest.trim_ascii_start();
                if text.first() == Some(&b'"') {
                    match self.take_quoted(text, byte) {
                        // Fields between tabs need no quotes: quotes belong to the name.
                        Err(_) if byte == b'\t' => {}
                        field => return field.map(Some),
                    }
                }
                cut(rest, memchr(byte, rest), 1)
            }
            Separator::Colons => cut(rest, colons(rest), 2),
            Separator::Spaces => {
                let (field, rest) = cut(rest, rest.iter().position(u8::is_ascii_whitespace), 1);
                (field, rest.map(<[u8]>::trim_ascii_start))
            }
        };
        self.rest = rest;
        Ok(Some(Cow::Borrowed(field.trim_ascii())))
    }

    fn take_quoted(
        &mut self,
        text: &'a [u8],
        separator: u8,
    ) -> Result<Cow<'a, [u8]>, &'static str> {
        let text = &text[1..];
        let mut doubled = false;
        let mut from = 0;
        let end = loop {
            let end = from + memchr(b'"', &text[from..]).ok_or("a quote is not closed")?;
            if text.get(end + 1) != Some(&b'"') {
                break end;
            }
            doubled = true;
            from = end + 2;
        };
        let (between, rest) = cut(&text[end + 1..], memchr(separator, &text[end + 1..]), 1);
        if !between.trim_ascii().is_empty() {
            return Err("there is something between a closing quote and the end of its field");
        }
        self.rest = rest;
        let field = &text[..end];
        if !doubled {
            return Ok(Cow::Borrowed(field));
        }
        let mut plain = Vec::with_capacity(field.len());
        let mut bytes = field.iter();
        while let Some(&byte) = bytes.next() {
            plain.push(byte);
            if byte == b'"' {
                bytes.next();
            }
        }
        Ok(Cow::Owned(plain))
    }
}

/// The text before a place and the text `width` bytes behind it, if there is such a place.
#[inline]
fn cut(text: &[u8], at: Option<usize>, width: usize) -> (&[u8], Option<&[u8]>) {
    match at {
        Some(at) => (&text[..at], Some(&text[at + width..])),
        None => (text, None),
    }
}

#[inline]
fn colons(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr(b':', &text[from..])?;
        if text.get(at + 1) == Some(&b':') {
            return Some(at);
        }
        from = at + 1;
    }
}

/// True for a finite number. The fraction stands behind a point or, where a comma separates no fields,
/// behind a comma.
#[inline]
pub fn is_number(field: &[u8], separator: Separator) -> bool {
    let plain = field.strip_prefix(b"-").unwrap_or(field);
    let digits = plain.iter().filter(|byte| byte.is_ascii_digit()).count();
    let marks = plain
        .iter()
        .filter(|&&byte| byte == b'.' || (byte == b',' && separator != Separator::Byte(b',')))
        .count();
    if digits > 0 && marks <= 1 && digits + marks == plain.len() {
        return true;
    }
    std::str::from_utf8(field).is_ok_and(|text| text.parse().is_ok_and(f64::is_finite))
}

/// The number of a field; `None` if [`is_number`] says no.
pub fn number(field: &[u8], separator: Separator) -> Option<f64> {
    if !is_number(field, separator) {
        return None;
    }
    let text = std::str::from_utf8(field).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => text.replacen(',', ".", 1).parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, separator: Separator) -> Result<Vec<String>, &'static str> {
        let mut fields = Fields::new(line.as_bytes(), separator);
        let mut all = Vec::new();
        while let Some(field) = fields.take()? {
            all.push(String::from_utf8(field.into_owned()).unwrap());
        }
        Ok(all)
    }

    const COMMA: Separator = Separator::Byte(b',');

    #[test]
    fn fields_end_at_separators_outside_quotes() {
        let cut = |line| fields(line, COMMA).unwrap();
        assert_eq!(cut("1,2,3.5,9"), ["1", "2", "3.5", "9"]);
        assert_eq!(cut(" 1 , 2,"), ["1", "2", ""]);
        assert_eq!(
            cut(r#""a,b", "c ""d""" ,"","x""#),
            ["a,b", "c \"d\"", "", "x"]
        );
        assert_eq!(
            fields("1::2:3::4", Separator::Colons).unwrap(),
            ["1", "2:3", "4"]
        );
        assert_eq!(
            fields("  1   2 \t3 ", Separator::Spaces).unwrap(),
            ["1", "2", "3"]
        );
    }

    #[test]
    fn between_tabs_a_quote_may_be_a_part_of_a_name() {
        let cut = |line| fields(line, Separator::Byte(b'\t')).unwrap();
        assert_eq!(cut("1\t\"The\" Band\t5"), ["1", "\"The\" Band", "5"]);
        assert_eq!(cut("1\t7\" single\t\"5\""), ["1", "7\" single", "5"]);
        assert_eq!(cut("1\t\"open\t5"), ["1", "\"open", "5"]);
    }

    #[test]
    fn bad_quotes_are_told() {
        assert!(fields(r#"1,"2"#, COMMA).unwrap_err().contains("not closed"));
        assert!(
            fields(r#""1"x,2"#, COMMA)
                .unwrap_err()
                .contains("closing quote")
        );
    }

    #[test]
    fn numbers_are_told_from_other_things() {
        for good in ["5", "3.5", "-1", "4.", ".5", "1e3", "+2", "0"] {
            assert!(is_number(good.as_bytes(), COMMA), "{good}");
        }
        for bad in [
            "", "-", ".", "x", "1.2.3", "3,5", "NaN", "inf", "1e999", "5 stars", "\u{663}",
        ] {
            assert!(!is_number(bad.as_bytes(), COMMA), "{bad}");
        }
        assert!(is_number(b"3,5", Separator::Byte(b';')));
        for (text, value) in [
            ("3,5", 3.5),
            ("-1", -1.0),
            ("4.", 4.0),
            (".5", 0.5),
            ("1e3", 1000.0),
        ] {
            assert_eq!(
                number(text.as_bytes(), Separator::Byte(b';')),
                Some(value),
                "{text}"
            );
        }
        assert_eq!(number(b"3,5", COMMA), None);
    }
}
