//! Encodes a heat map (a value for each CPU and bin of time) as a short text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::bins::{BINS, Grid};
use super::course::{Map, Unit};

/// If a value doubles, the byte that encodes the value grows by this number.
const STEPS: f64 = 6.0;
/// One pair of bytes stands for successive empty cells of a heat map. This is the largest number of
/// these cells.
const RUN_MAX: usize = 256;

/// The byte that stands for `value`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the rounded step lies between 0 and 254"
)]
fn byte(value: u64) -> u8 {
    if value == 0 {
        return 0;
    }
    let step = (value as f64).log2() * STEPS;
    1 + step.round().min(254.0) as u8
}

/// `value`, which is not negative, rounded to a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a value of a map is less than 2^43"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Replaces each run of zeros by a zero and a byte with the length of the run minus 1.
fn shorten(bytes: impl Iterator<Item = u8>) -> Vec<u8> {
    let (mut short, mut empty) = (Vec::new(), 0_usize);
    let end = |empty: &mut usize, short: &mut Vec<u8>| {
        while *empty > 0 {
            let run = (*empty).min(RUN_MAX);
            short.extend([0, u8::try_from(run - 1).expect("a run is at most 256 long")]);
            *empty -= run;
        }
    };
    for byte in bytes {
        if byte == 0 {
            empty += 1;
        } else {
            end(&mut empty, &mut short);
            short.push(byte);
        }
    }
    end(&mut empty, &mut short);
    short
}

/// Makes a heat map from the first `columns` bins of `grid`.
pub(super) fn map(grid: &Grid, name: String, unit: Unit, columns: usize) -> Map {
    let rows = grid.cells.chunks_exact(BINS).map(|row| &row[..columns]);
    let cells = rows.clone().flatten().map(|value| byte(*value));
    Map {
        name,
        unit,
        rows: rows.len(),
        cpus_per_row: grid.cpus_per_row,
        bins_per_column: 1,
        columns,
        max: rows.flatten().copied().max().unwrap_or(0),
        cells: STANDARD.encode(shorten(cells)),
    }
}

impl Map {
    /// Joins each pair of columns, so that the heat map needs about half the room. If the values
    /// are numbers of pages, the larger of two values is kept. Otherwise, the two values are added,
    /// with the limited precision of the byte that encodes a value.
    pub(crate) fn halve(&mut self) {
        let cells = self.values();
        let columns = self.columns.div_ceil(2);
        let mut halved = Vec::with_capacity(self.rows * columns);
        for row in cells.chunks_exact(self.columns) {
            halved.extend(row.chunks(2).map(|pair| match self.unit {
                Unit::Pages => pair.iter().copied().fold(0.0, f64::max),
                Unit::Nanos | Unit::Count => pair.iter().sum(),
            }));
        }
        let halved: Vec<u64> = halved.into_iter().map(whole).collect();
        self.max = halved.iter().copied().max().unwrap_or(0);
        let bytes = halved.iter().map(|value| byte(*value));
        self.cells = STANDARD.encode(shorten(bytes));
        self.columns = columns;
        self.bins_per_column *= 2;
    }

    /// The values of all cells, row by row, decoded as an HTML page decodes them.
    #[must_use]
    pub fn values(&self) -> Vec<f64> {
        let short = STANDARD.decode(&self.cells).unwrap_or_default();
        let mut values = Vec::with_capacity(self.rows * self.columns);
        let mut bytes = short.into_iter();
        while let Some(byte) = bytes.next() {
            if byte == 0 {
                let run = usize::from(bytes.next().unwrap_or(0)) + 1;
                values.resize(values.len() + run, 0.0);
            } else {
                values.push(f64::exp2((f64::from(byte) - 1.0) / STEPS));
            }
        }
        values.resize(self.rows * self.columns, 0.0);
        values
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bins::Join;
    use super::*;

    fn sample(values: &[(u32, usize, u64)]) -> Map {
        let mut grid = Grid::new(7, Join::Sum);
        for (cpu, bin, value) in values {
            grid.add(*cpu, *bin, *value);
        }
        map(&grid, "waits".to_owned(), Unit::Nanos, 200)
    }

    proptest! {
        #[test]
        fn a_map_has_each_value_to_within_six_percent(
            values in prop::collection::btree_map((0..7_u32, 0..200_usize), 1..1_u64 << 42, 0..90),
        ) {
            let list: Vec<_> = values.iter().map(|((cpu, bin), value)| (*cpu, *bin, *value)).collect();
            let map = sample(&list);
            let decoded = map.values();
            prop_assert_eq!(decoded.len(), 7 * 200);
            for (nth, decoded) in decoded.into_iter().enumerate() {
                let place = (u32::try_from(nth / 200).unwrap(), nth % 200);
                match values.get(&place) {
                    None => prop_assert_eq!(decoded, 0.0),
                    Some(value) => {
                        let ratio = decoded / *value as f64;
                        prop_assert!((0.94..1.063).contains(&ratio), "{value} became {decoded}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_halved_map_has_the_same_sums_in_half_the_columns() {
        let mut map = sample(&[(0, 0, 64), (0, 1, 64), (6, 199, 512)]);
        map.halve();
        assert_eq!((map.columns, map.bins_per_column), (100, 2));
        let values = map.values();
        assert_eq!(values[0].round(), 128.0);
        assert_eq!(values[7 * 100 - 1].round(), 512.0);
        assert_eq!(map.max, 512);
    }

    #[test]
    fn an_empty_map_is_short() {
        assert!(sample(&[]).cells.len() < 20);
    }
}
