//! Encodes matrices as the bytes of files.

use std::fmt::Display;
use std::io::{self, Write};

use npyz::WriterBuilder;

use super::matrix::Matrix;

/// A matrix as a file of NumPy: float64, row by row.
///
/// # Errors
/// Never in practice: writing to memory does not fail.
pub fn npy(matrix: &Matrix) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(128 + 8 * matrix.values().len());
    let shape = [matrix.rows() as u64, matrix.columns() as u64];
    let mut writer = npyz::WriteOptions::new()
        .default_dtype()
        .shape(&shape)
        .writer(&mut bytes)
        .begin_nd()?;
    writer.extend(matrix.values().iter().copied())?;
    writer.finish()?;
    Ok(bytes)
}

/// A matrix as a table: a header, then the name of each row and its numbers, written so that they
/// are read back the same.
///
/// # Errors
/// Never in practice: writing to memory does not fail.
pub fn csv<N: Display>(
    first: &str,
    names: impl IntoIterator<Item = N>,
    matrix: &Matrix,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write!(bytes, "{first}")?;
    for column in 1..=matrix.columns() {
        write!(bytes, ",x{column}")?;
    }
    bytes.push(b'\n');
    for (row, name) in names.into_iter().enumerate() {
        let name = name.to_string();
        if name.contains([',', '"', '\n', '\r']) || name.trim_ascii() != name {
            write!(bytes, "\"{}\"", name.replace('"', "\"\""))?;
        } else {
            write!(bytes, "{name}")?;
        }
        for value in matrix.row(row) {
            write!(bytes, ",{value}")?;
        }
        bytes.push(b'\n');
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpy_files_are_read_back_the_same() {
        let columns = [vec![1.0, -0.5, 1e-300], vec![0.1, f64::MAX, 3.0]];
        let matrix = Matrix::from_columns(3, &columns);
        let bytes = npy(&matrix).unwrap();
        let file = npyz::NpyFile::new(&bytes[..]).unwrap();
        assert_eq!(file.shape(), [3, 2]);
        assert_eq!(file.dtype().descr(), "'<f8'");
        assert_eq!(file.order(), npyz::Order::C);
        assert_eq!(file.into_vec::<f64>().unwrap(), matrix.values());
    }

    #[test]
    fn tables_keep_every_digit_and_every_name() {
        let matrix = Matrix::from_columns(3, &[vec![0.1, 1.0 / 3.0, 0.0]]);
        let names = ["7", "a,\"b\"", " c"];
        let text = String::from_utf8(csv("user", names, &matrix).unwrap()).unwrap();
        let expected = "user,x1\n7,0.1\n\"a,\"\"b\"\"\",0.3333333333333333\n\" c\",0\n";
        assert_eq!(text, expected);
    }
}
