//! The cells of a table as numbers, before they become text. Such a table can be shown alone, or
//! side by side with the table of another recording.

use super::Table;
use super::value::{NOTHING, human, ratio_of};
use crate::measure::metric::Unit;

/// How many rows of a table are shown at most, if several tables are shown. `--table NAME` shows
/// only one table, with all its rows.
pub const ROWS_MAX: usize = 20;

/// One table of a recording, with its cells as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The name that `--table` accepts.
    pub name: &'static str,
    /// The table's title.
    pub title: &'static str,
    /// Advice on how to read the table, with a warning about data that the recording lacks. It can
    /// be empty.
    pub note: String,
    /// The heads of the key columns. The keys identify a row.
    pub keys: Vec<&'static str>,
    /// The number of key columns, from the first on, in which two rows of different recordings must
    /// agree to be compared. Keys that differ between recordings, such as process ids, are in later
    /// columns.
    pub same: usize,
    /// Says whether the key columns come before or after the numbers.
    pub keys_stand: Stand,
    /// The columns of numbers.
    pub measures: Vec<Measure>,
    /// The rows, in the order in which they are shown.
    pub lines: Vec<Line>,
}

/// The position of the key columns, relative to the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// The key columns come before the number columns.
    Before,
    /// The key columns come after the number columns, as in the output of `perf lock contention`.
    Behind,
}

/// One column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The head of the column.
    pub head: &'static str,
    /// The column's name for programs and in comparisons. If the numbers are times, the last word
    /// of the name is their unit.
    pub name: &'static str,
    /// The unit of the column's numbers.
    pub unit: Unit,
}

/// One row of a table of figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The keys of the row, one for each key column.
    pub keys: Vec<String>,
    /// The numbers of the row, one for each measure. `None` where the recording has no number.
    pub values: Vec<Option<f64>>,
}

impl Measure {
    /// Makes a column of numbers from its head, its name for programs, and the unit of its numbers.
    #[must_use]
    pub const fn new(head: &'static str, name: &'static str, unit: Unit) -> Self {
        Self { head, name, unit }
    }
}

impl Line {
    /// A row whose numbers are all known.
    #[must_use]
    pub fn full(keys: Vec<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().map(Some).collect();
        Self { keys, values }
    }

    fn cells(&self, measures: &[Measure]) -> Vec<String> {
        let numbers = self.values.iter().zip(measures);
        numbers.map(|(value, of)| cell(*value, of.unit)).collect()
    }
}

impl Figures {
    /// Makes a table from the figures of one recording, with at most `rows_max` rows.
    #[must_use]
    pub fn table(&self, rows_max: usize) -> Table {
        let in_order = |keys: Vec<String>, numbers: Vec<String>| match self.keys_stand {
            Stand::Before => [keys, numbers].concat(),
            Stand::Behind => [numbers, keys].concat(),
        };
        let heads = self.measures.iter().map(|measure| measure.head.to_owned());
        let keys = self.keys.iter().map(|key| (*key).to_owned());
        let lines = self.lines.iter().take(rows_max);
        let rows = lines.map(|line| in_order(line.keys.clone(), line.cells(&self.measures)));
        Table {
            title: self.title.to_owned(),
            note: self.note_of(self.lines.len(), rows_max),
            columns: in_order(keys.collect(), heads.collect()),
            rows: rows.collect(),
        }
    }

    /// Makes a table that compares the figures of this recording (A) with the figures of another
    /// recording (B). The table has one row for each number of a line. The lines of A come first,
    /// followed by the lines that only B has.
    #[must_use]
    pub fn beside(&self, other: &Self, rows_max: usize) -> Table {
        let here = self
            .lines
            .iter()
            .map(|line| (Some(line), other.line(&line.keys)));
        let only_there = other
            .lines
            .iter()
            .filter(|line| self.line(&line.keys).is_none());
        let pairs = here.chain(only_there.map(|line| (None, Some(line))));
        let pairs: Vec<(Option<&Line>, Option<&Line>)> = pairs.collect();
        let shown = pairs.iter().take(rows_max);
        let rows = shown.flat_map(|&(a, b)| self.rows_beside(a, b)).collect();
        let heads = self.keys.iter().chain(&["what", "A", "B", "B / A"]);
        let columns = heads.map(|head| (*head).to_owned()).collect();
        let mut note = self.note_of(pairs.len(), rows_max);
        if other.note != self.note && !other.note.is_empty() {
            note = format!("{note} B: {}", other.note);
        }
        Table {
            title: self.title.to_owned(),
            note: note.trim_start().to_owned(),
            columns,
            rows,
        }
    }

    /// Makes the rows that compare one line of A with one line of B. There is a row for each
    /// number. Only the first row shows the keys.
    fn rows_beside(&self, a: Option<&Line>, b: Option<&Line>) -> Vec<Vec<String>> {
        let key = |nth: usize| {
            let [a, b] = [a, b].map(|line| line.map_or("", |line| line.keys[nth].as_str()));
            match (a, b) {
                (a, b) if a == b || b.is_empty() => a.to_owned(),
                ("", b) => b.to_owned(),
                (a, b) => format!("{a} / {b}"),
            }
        };
        let row = |(nth, measure): (usize, &Measure)| {
            let [a, b] = [a, b].map(|line| line.and_then(|line| line.values[nth]));
            let named = |of: usize| if nth == 0 { key(of) } else { String::new() };
            let mut row: Vec<String> = (0..self.keys.len()).map(named).collect();
            row.push(measure.name.trim_end_matches("_ns").replace('_', " "));
            row.extend([a, b].map(|value| cell(value, measure.unit)));
            row.push(match a.zip(b) {
                Some((a, b)) => ratio_of(a, b),
                None => NOTHING.to_owned(),
            });
            row
        };
        self.measures.iter().enumerate().map(row).collect()
    }

    /// The row whose keys agree with `keys` in the first [`Figures::same`] columns.
    #[must_use]
    pub fn line(&self, keys: &[String]) -> Option<&Line> {
        let same = |line: &&Line| line.keys[..self.same] == keys[..self.same];
        self.lines.iter().find(same)
    }

    fn note_of(&self, rows: usize, rows_max: usize) -> String {
        if rows <= rows_max {
            return self.note.clone();
        }
        let left_out = rows - rows_max;
        let rows = if left_out == 1 { "row" } else { "rows" };
        let more = format!("{left_out} more {rows}: `--table {}`.", self.name);
        if self.note.is_empty() {
            more
        } else {
            format!("{} {more}", self.note)
        }
    }
}

fn cell(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| human(value, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(lines: &[(&str, f64, Option<f64>)]) -> Figures {
        let line = |&(key, count, wait): &(&str, f64, Option<f64>)| Line {
            keys: vec![key.to_owned()],
            values: vec![Some(count), wait],
        };
        Figures {
            name: "waits",
            title: "Waits",
            note: String::new(),
            keys: vec!["caller"],
            same: 1,
            keys_stand: Stand::Behind,
            measures: vec![
                Measure::new("waits", "waits", Unit::Count),
                Measure::new("max", "max_wait_ns", Unit::Nanos),
            ],
            lines: lines.iter().map(line).collect(),
        }
    }

    #[test]
    fn a_long_table_says_how_to_see_the_rest() {
        let table = figures(&[("a", 2.0, Some(1500.0)), ("b", 1.0, None)]).table(1);
        assert_eq!(table.columns, ["waits", "max", "caller"]);
        assert_eq!(table.rows, [["2", "1.50 µs", "a"]]);
        assert_eq!(table.note, "1 more row: `--table waits`.");
    }

    #[test]
    fn rows_of_the_same_may_have_other_ids() {
        let with_id = |id: &str| {
            let mut figures = figures(&[("1", 1.0, None)]);
            figures.keys.push("victim");
            figures.lines[0].keys.push(id.to_owned());
            figures
        };
        let table = with_id("812").beside(&with_id("907"), ROWS_MAX);
        assert_eq!(
            table.rows[0],
            ["1", "812 / 907", "waits", "1", "1", "1.000"]
        );
    }

    #[test]
    fn beside_each_other_a_key_of_one_side_only_has_nothing_on_the_other() {
        let a = figures(&[("a", 4.0, Some(100.0)), ("b", 0.0, None)]);
        let b = figures(&[("c", 5.0, None), ("a", 2.0, Some(300.0))]);
        let table = a.beside(&b, ROWS_MAX);
        assert_eq!(table.columns, ["caller", "what", "A", "B", "B / A"]);
        assert_eq!(table.rows[0], ["a", "waits", "4", "2", "0.500"]);
        assert_eq!(table.rows[1], ["", "max wait", "100 ns", "300 ns", "3.000"]);
        assert_eq!(table.rows[2], ["b", "waits", "0", "–", "–"]);
        assert_eq!(table.rows[4], ["c", "waits", "–", "5", "–"]);
    }
}
