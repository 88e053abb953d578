//! Matrices: dense ones row by row, sparse ones by their nonzero entries.

/// A dense matrix, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// All zero.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        let values = vec![0.0; rows * columns];
        Self {
            rows,
            columns,
            values,
        }
    }

    /// 1 on the diagonal, else 0.
    pub fn identity(size: usize) -> Self {
        let mut matrix = Self::zeros(size, size);
        (0..size).for_each(|at| matrix.row_mut(at)[at] = 1.0);
        matrix
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Every entry, row by row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// One row, to be changed.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// A row and the one behind it, to be changed.
    pub fn row_and_next(&mut self, row: usize) -> (&mut [f64], &mut [f64]) {
        let both = &mut self.values[row * self.columns..(row + 2) * self.columns];
        both.split_at_mut(self.columns)
    }

    /// One entry.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn get(&self, row: usize, column: usize) -> f64 {
        self.row(row)[column]
    }

    /// The columns, each by itself.
    pub fn to_columns(&self) -> Vec<Vec<f64>> {
        let column = |at| (0..self.rows).map(|row| self.get(row, at)).collect();
        (0..self.columns).map(column).collect()
    }

    /// From its columns, each `rows` long.
    pub fn from_columns(rows: usize, columns: &[Vec<f64>]) -> Self {
        let mut matrix = Self::zeros(rows, columns.len());
        for row in 0..rows {
            for (value, column) in matrix.row_mut(row).iter_mut().zip(columns) {
                *value = column[row];
            }
        }
        matrix
    }

    /// `selfᵀ · other`.
    pub fn transposed_times(&self, other: &Matrix) -> Matrix {
        let mut product = Matrix::zeros(self.columns, other.columns);
        for row in 0..self.rows {
            for (at, &factor) in self.row(row).iter().enumerate() {
                add_scaled(product.row_mut(at), factor, other.row(row));
            }
        }
        product
    }

    /// Adds `sign · left · right`.
    pub fn add_product(&mut self, sign: f64, left: &Matrix, right: &Matrix) {
        for row in 0..self.rows {
            for (at, &factor) in left.row(row).iter().enumerate() {
                add_scaled(self.row_mut(row), sign * factor, right.row(at));
            }
        }
    }
}

#[inline]
fn add_scaled(sum: &mut [f64], factor: f64, row: &[f64]) {
    for (sum, &value) in sum.iter_mut().zip(row) {
        *sum += factor * value;
    }
}

/// A matrix of which few entries are not zero, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Sparse {
    rows: usize,
    columns: usize,
    /// The start of each row in `at`, and the end of the last one.
    offsets: Vec<usize>,
    /// The columns of the entries.
    at: Vec<u32>,
    /// The entries; `None` if all are 1.
    values: Option<Vec<f64>>,
}

impl Sparse {
    /// A matrix of ones and zeros: the columns of the ones, row by row.
    ///
    /// # Panics
    /// If a row names a column that is not there.
    pub fn pattern<'a>(columns: usize, rows: impl IntoIterator<Item = &'a [u32]>) -> Self {
        let (mut offsets, mut at) = (vec![0], Vec::new());
        for row in rows {
            at.extend_from_slice(row);
            offsets.push(at.len());
        }
        Self::new(columns, offsets, at, None)
    }

    /// A matrix of any numbers: for each row, the columns and the values.
    ///
    /// # Panics
    /// If a row names a column that is not there.
    pub fn with_values(columns: usize, rows: &[Vec<(u32, f64)>]) -> Self {
        let (mut offsets, mut at, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            at.extend(row.iter().map(|entry| entry.0));
            values.extend(row.iter().map(|entry| entry.1));
            offsets.push(at.len());
        }
        Self::new(columns, offsets, at, Some(values))
    }

    fn new(columns: usize, offsets: Vec<usize>, at: Vec<u32>, values: Option<Vec<f64>>) -> Self {
        assert!(
            at.iter().all(|&column| (column as usize) < columns),
            "a row names a column that is not there"
        );
        Self {
            rows: offsets.len() - 1,
            columns,
            offsets,
            at,
            values,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of entries kept.
    pub fn entries(&self) -> usize {
        self.at.len()
    }

    /// The sum of the squares of all entries.
    pub fn squared_mass(&self) -> f64 {
        match &self.values {
            Some(values) => values.iter().map(|value| value * value).sum(),
            None => self.at.len() as f64,
        }
    }

    /// The columns of a row's entries.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.at[self.offsets[row]..self.offsets[row + 1]]
    }

    /// Rows turned into columns.
    pub fn transposed(&self) -> Self {
        let mut offsets = vec![0; self.columns + 1];
        for &column in &self.at {
            offsets[column as usize + 1] += 1;
        }
        for column in 0..self.columns {
            offsets[column + 1] += offsets[column];
        }
        let mut next = offsets.clone();
        let mut at = vec![0; self.at.len()];
        let mut values = self.values.as_ref().map(|values| vec![0.0; values.len()]);
        for row in 0..self.rows {
            for entry in self.offsets[row]..self.offsets[row + 1] {
                let place = &mut next[self.at[entry] as usize];
                at[*place] = row as u32;
                if let (Some(turned), Some(given)) = (&mut values, &self.values) {
                    turned[*place] = given[entry];
                }
                *place += 1;
            }
        }
        Self {
            rows: self.columns,
            columns: self.rows,
            offsets,
            at,
            values,
        }
    }

    /// The product with a dense matrix.
    ///
    /// # Panics
    /// If that has not as many rows as this has columns.
    pub fn times(&self, dense: &Matrix) -> Matrix {
        assert_eq!(self.columns, dense.rows, "the shapes must fit");
        let mut product = Matrix::zeros(self.rows, dense.columns);
        for row in 0..self.rows {
            let entries = self.offsets[row]..self.offsets[row + 1];
            let sum = product.row_mut(row);
            match &self.values {
                Some(values) => {
                    for entry in entries {
                        add_scaled(sum, values[entry], dense.row(self.at[entry] as usize));
                    }
                }
                None => {
                    for &column in &self.at[entries] {
                        for (sum, &value) in sum.iter_mut().zip(dense.row(column as usize)) {
                            *sum += value;
                        }
                    }
                }
            }
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_dense_matrices() {
        let rows = vec![
            vec![(0, 2.0), (2, -1.0)],
            vec![],
            vec![(1, 3.0)],
            vec![(2, 0.5)],
        ];
        let sparse = Sparse::with_values(3, &rows);
        let mut dense = Matrix::zeros(4, 3);
        for (row, entries) in rows.iter().enumerate() {
            for &(column, value) in entries {
                dense.row_mut(row)[column as usize] = value;
            }
        }
        assert_eq!(sparse.times(&Matrix::identity(3)), dense);
        let dense_rows: Vec<Vec<f64>> = dense.values().chunks(3).map(<[f64]>::to_vec).collect();
        let turned = Matrix::from_columns(3, &dense_rows);
        assert_eq!(sparse.transposed().times(&Matrix::identity(4)), turned);
        assert_eq!(dense.transposed_times(&dense), turned_product(&dense));
        assert_eq!(sparse.squared_mass(), 4.0 + 1.0 + 9.0 + 0.25);
        let ones = Sparse::pattern(3, [&[0_u32, 2][..], &[], &[1]]);
        assert_eq!(ones.transposed().transposed(), ones);
        assert_eq!(
            (ones.row(0), ones.entries(), ones.squared_mass()),
            (&[0, 2][..], 3, 3.0)
        );
    }

    fn turned_product(dense: &Matrix) -> Matrix {
        let mut product = Matrix::zeros(dense.columns(), dense.columns());
        for i in 0..dense.columns() {
            for j in 0..dense.columns() {
                product.row_mut(i)[j] = (0..dense.rows())
                    .map(|r| dense.get(r, i) * dense.get(r, j))
                    .sum();
            }
        }
        product
    }
}
