//! Matrices of NumPy as interactions.

use std::io::{self, BufRead};

use npyz::{DType, NpyHeader, Order, TypeChar};

use super::collect::RatingUse;
use super::names::Names;

/// The first bytes of such a file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes read at a time; whole numbers of every kind.
const PIECE: usize = 1 << 20;

/// The content of a matrix: users, items and pairs packed as `user << 32 | item`.
pub struct Pairs {
    pub users: Names,
    pub items: Names,
    pub pairs: Vec<u64>,
    /// The number of each pair; empty unless ratings are values.
    pub values: Vec<f64>,
}

/// Numbers of one kind, as bytes.
#[derive(Debug, Clone, Copy)]
struct Kind {
    bytes: usize,
    float: bool,
    signed: bool,
    big_endian: bool,
}

impl Kind {
    fn of(dtype: &DType) -> Option<Self> {
        let DType::Plain(plain) = dtype else {
            return None;
        };
        let bytes = plain.num_bytes()?;
        let float = match plain.type_char() {
            TypeChar::Bool | TypeChar::Int | TypeChar::Uint => false,
            TypeChar::Float if matches!(bytes, 2 | 4 | 8) => true,
            _ => return None,
        };
        Some(Self {
            bytes,
            float,
            signed: matches!(plain.type_char(), TypeChar::Int),
            big_endian: plain.endianness() == npyz::Endianness::Big,
        })
    }

    /// The bits of a number, the lowest first.
    #[inline]
    fn word(self, number: &[u8]) -> u64 {
        number.iter().enumerate().fold(0_u64, |word, (at, &byte)| {
            let place = if self.big_endian {
                self.bytes - 1 - at
            } else {
                at
            };
            word | u64::from(byte) << (8 * place)
        })
    }

    /// The value of a number of up to 8 bytes.
    fn value(self, number: &[u8]) -> f64 {
        let word = self.word(number);
        match (self.float, self.signed, self.bytes) {
            (true, _, 2) => half(word as u16),
            (true, _, 4) => f64::from(f32::from_bits(word as u32)),
            (true, ..) => f64::from_bits(word),
            (false, true, bytes) => {
                let unused = 64 - 8 * bytes as u32;
                ((word << unused) as i64 >> unused) as f64
            }
            (false, false, _) => word as f64,
        }
    }

    /// Neither 0 nor, among floats, negative 0 or a NaN, which stands for a missing rating.
    #[inline]
    fn is_taken(self, number: &[u8]) -> bool {
        if !self.float {
            return number.iter().any(|&byte| byte != 0);
        }
        let word = self.word(number);
        let infinity = match self.bytes {
            2 => 0x7c00,
            4 => 0x7f80_0000,
            _ => 0x7ff0_0000_0000_0000,
        };
        let size = word & (u64::MAX >> (65 - 8 * self.bytes));
        size != 0 && size <= infinity
    }
}

/// The value of a half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// Reads a matrix; calls `progress` with the number of bytes read after the header.
///
/// # Errors
/// The reason why it is not a supported matrix.
pub fn read(
    mut stream: impl BufRead,
    ratings: RatingUse,
    progress: &dyn Fn(u64),
) -> Result<Pairs, String> {
    let header = NpyHeader::from_reader(&mut stream)
        .map_err(|error| format!("its header cannot be read: {error}"))?;
    let &[rows, columns] = header.shape() else {
        return Err(format!("it has {} dimensions, not 2", header.shape().len()));
    };
    let dtype = header.dtype();
    let kind = Kind::of(&dtype)
        .ok_or_else(|| format!("it holds {}, not numbers or booleans", dtype.descr()))?;
    let small = |count: u64| {
        usize::try_from(count)
            .ok()
            .filter(|&n| n < u32::MAX as usize)
    };
    let (Some(users), Some(items)) = (small(rows), small(columns)) else {
        return Err(format!(
            "it has {rows} rows and {columns} columns; the maximum of each is {}",
            u32::MAX - 1
        ));
    };
    let inner = match header.order() {
        Order::C => items,
        Order::Fortran => users,
    };
    let (mut pairs, mut values) = (Vec::new(), Vec::new());
    let mut piece = vec![0; PIECE];
    let (mut at, mut other) = (0, 0);
    let whole = u128::from(rows) * u128::from(columns) * kind.bytes as u128;
    let mut done = 0;
    while done < whole {
        let count = (whole - done).min(PIECE as u128) as usize;
        stream
            .read_exact(&mut piece[..count])
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    format!("it ends early: {rows} by {columns} numbers would be {whole} bytes")
                }
                _ => error.to_string(),
            })?;
        for number in piece[..count].chunks_exact(kind.bytes) {
            if kind.is_taken(number) {
                let (user, item) = match header.order() {
                    Order::C => (at, other),
                    Order::Fortran => (other, at),
                };
                let keep = match ratings {
                    RatingUse::Ignored => true,
                    RatingUse::LikeFrom(least) => kind.value(number) >= least,
                    RatingUse::Values => {
                        let value = kind.value(number);
                        if !(value.is_finite() && value >= 0.0) {
                            return Err(format!(
                                "the rating in row {user} and column {item} is {value}; ratings that are used \
                                 as values must be 0 or more"
                            ));
                        }
                        values.push(value);
                        true
                    }
                };
                if keep {
                    pairs.push((user as u64) << 32 | item as u64);
                }
            }
            other += 1;
            if other == inner {
                (at, other) = (at + 1, 0);
            }
        }
        done += count as u128;
        progress(done as u64);
    }
    // A header can promise any number of rows without columns.
    let named = |count| Names::counted(if pairs.is_empty() { 0 } else { count });
    Ok(Pairs {
        users: named(users),
        items: named(items),
        pairs,
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if fortran { "True" } else { "False" };
        let mut text =
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
        while (10 + text.len() + 1) % 64 != 0 {
            text.push(' ');
        }
        text.push('\n');
        let mut bytes = [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes()].concat();
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn pairs(bytes: &[u8]) -> Result<Vec<(u64, u64)>, String> {
        let mut pairs = read(bytes, RatingUse::Ignored, &|_| {})?.pairs;
        pairs.sort_unstable();
        Ok(pairs
            .iter()
            .map(|&pair| (pair >> 32, pair & 0xffff_ffff))
            .collect())
    }

    /// A matrix of 2 by 3 in which (0, 1), (1, 0) and (1, 2) are taken.
    fn numbers(one: &[u8], fortran: bool) -> Vec<u8> {
        let taken = if fortran {
            [0, 1, 1, 0, 0, 1]
        } else {
            [0, 1, 0, 1, 0, 1]
        };
        let zero = vec![0; one.len()];
        taken
            .iter()
            .flat_map(|&n| if n == 1 { one } else { &zero })
            .copied()
            .collect()
    }

    #[test]
    fn every_kind_of_number_and_both_orders_are_read() {
        let kinds: [(&str, &[u8]); 12] = [
            ("'|b1'", &[1]),
            ("'|i1'", &[255]),
            ("'|u1'", &[7]),
            ("'<i2'", &[0, 1]),
            ("'>i4'", &[0, 0, 0, 9]),
            ("'<i8'", &[0, 0, 0, 0, 0, 0, 0, 128]),
            ("'<u4'", &[4, 0, 0, 0]),
            ("'<f2'", &[0, 0x3c]),
            ("'<f4'", &[0, 0, 0x80, 0x3f]),
            ("'>f4'", &[0, 0, 0, 1]),
            ("'<f8'", &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f]),
            ("'>f8'", &[0xbf, 0xf0, 0, 0, 0, 0, 0, 0]),
        ];
        for (descr, one) in kinds {
            for fortran in [false, true] {
                let bytes = file(descr, fortran, "(2, 3)", &numbers(one, fortran));
                assert_eq!(
                    pairs(&bytes).unwrap(),
                    [(0, 1), (1, 0), (1, 2)],
                    "{descr} {fortran}"
                );
            }
        }
    }

    #[test]
    fn rows_and_columns_run_on_from_piece_to_piece() {
        let (rows, columns) = (3, PIECE / 2 + 1);
        let mut data = vec![0; rows * columns];
        let taken = [(0, 0), (1, 5), (1, columns - 1), (2, 0), (2, columns - 1)];
        for (row, column) in taken {
            data[row * columns + column] = 1;
        }
        let bytes = file("'|u1'", false, &format!("({rows}, {columns})"), &data);
        let expected = taken.map(|(row, column)| (row as u64, column as u64));
        assert_eq!(pairs(&bytes).unwrap(), expected);
        let bytes = file("'|u1'", true, &format!("({columns}, {rows})"), &data);
        let mut turned = expected.map(|(row, column)| (column, row));
        turned.sort_unstable();
        assert_eq!(pairs(&bytes).unwrap(), turned);
    }

    #[test]
    fn a_negative_zero_and_a_nan_are_nothing_and_infinity_is_something() {
        let numbers = [
            -0.0,
            f64::NAN,
            -f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            5e-324,
        ];
        let little: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let big: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        let narrow: Vec<u8> = numbers
            .iter()
            .flat_map(|&n| (n as f32).to_le_bytes())
            .collect();
        for (descr, data) in [("'<f8'", &little), ("'>f8'", &big)] {
            let found = pairs(&file(descr, false, "(1, 6)", data)).unwrap();
            assert_eq!(found, [(0, 3), (0, 4), (0, 5)]);
        }
        let found = pairs(&file("'<f4'", false, "(1, 6)", &narrow)).unwrap();
        assert_eq!(found, [(0, 3), (0, 4)]);
    }

    #[test]
    fn what_is_no_matrix_of_numbers_is_refused() {
        let data = [1; 48];
        let reason = |bytes: &[u8]| pairs(bytes).unwrap_err();
        assert!(reason(&file("'<f8'", false, "(6,)", &data)).contains("1 dimensions"));
        assert!(reason(&file("'<U2'", false, "(2, 3)", &data)).contains("U2"));
        assert!(reason(&file("'<c16'", false, "(1, 3)", &data)).contains("not numbers"));
        assert!(reason(&file("'<f8'", false, "(2, 3)", &data[..47])).contains("ends early"));
        assert!(reason(&file("'<f8'", true, "(2, 3)", &data[..8])).contains("48 bytes"));
        assert!(
            reason(&file("'|u1'", false, "(9999999999, 1)", &data))
                .contains("the maximum of each is")
        );
        let empty = file("'|u1'", false, "(4000000000, 0)", &[]);
        assert!(pairs(&empty).unwrap().is_empty());
        let promise = file("'|u1'", false, "(4000000000, 4000000000)", &data);
        assert!(reason(&promise).contains("ends early"));
        assert!(reason(b"\x93NUMPY\x01\x00\x10").contains("header"));
        assert!(reason(b"userId,movieId").contains("header"));
    }

    #[test]
    fn numbers_have_the_values_that_numpy_gives_them() {
        // As `numpy.array([-2.5, 3], dtype)` writes them.
        let kinds: [(&str, &[u8], &[f64]); 6] = [
            ("'<f2'", &[0, 0xc1, 0, 0x42], &[-2.5, 3.0]),
            ("'<f4'", &[0, 0, 0x20, 0xc0, 0, 0, 0x40, 0x40], &[-2.5, 3.0]),
            ("'|i1'", &[0xfe, 3], &[-2.0, 3.0]),
            ("'>i2'", &[0xff, 0xfe, 0, 3], &[-2.0, 3.0]),
            ("'|u1'", &[0xfe, 3], &[254.0, 3.0]),
            ("'|b1'", &[1, 1], &[1.0, 1.0]),
        ];
        for (descr, data, expected) in kinds {
            let bytes = file(descr, false, "(1, 2)", data);
            let taken = |least| {
                let read = read(&bytes[..], RatingUse::LikeFrom(least), &|_| {}).unwrap();
                read.pairs.len()
            };
            let count = |least: f64| expected.iter().filter(|&&value| value >= least).count();
            for value in expected {
                for least in [value - 0.01, *value, value + 0.01] {
                    assert_eq!(taken(least), count(least), "{descr} {least}");
                }
            }
        }
        let bytes = file("'|i1'", false, "(1, 2)", &[3, 0xfe]);
        let error = read(&bytes[..], RatingUse::Values, &|_| {}).err().unwrap();
        assert!(error.contains("row 0 and column 1 is -2"), "{error}");
    }
}
