//! The sides of an answer, which are the compared designs, and their heads. A head is the short
//! name of a side in an answer, such as A or B.

use super::words::list;
use super::{Answer, COLUMNS_MAX};

/// The heads (short names) for `designs` designs: A and B for two, and A, B1, B2 and so on for
/// more.
pub(crate) fn letters(designs: usize) -> Vec<String> {
    let letter = |nth: usize| match (nth, designs) {
        (0, _) => "A".to_owned(),
        (_, 2) => "B".to_owned(),
        (nth, _) => format!("B{nth}"),
    };
    (0..designs).map(letter).collect()
}

/// The designs of a comparison, as they are named in a question: `ours` (B) instead of `linux` (A).
#[must_use]
pub fn instead_of(designs: &[String]) -> String {
    let heads = letters(designs.len());
    let named = designs.iter().zip(&heads);
    let named: Vec<String> = named.map(|(design, head)| named_in(design, head)).collect();
    match (&named[..], &heads[..]) {
        ([], _) => String::new(),
        ([a], _) => a.to_owned(),
        ([a, ..], [_, first, .., last]) if designs.len() > COLUMNS_MAX => {
            format!("{first} to {last} instead of {a}")
        }
        ([a, others @ ..], _) => format!("{} instead of {a}", list(others)),
    }
}

/// The text by which a question names a design: the design's name, and in parentheses the head of
/// the design's column.
fn named_in(design: &str, head: &str) -> String {
    format!("`{design}` ({head})")
}

impl Answer {
    /// Returns whether the table of this answer has a row for each side (each compared design).
    /// This is so if there are more sides than [`COLUMNS_MAX`].
    pub(crate) fn has_rows_of_sides(&self) -> bool {
        self.sides.len() > COLUMNS_MAX
    }

    /// The names of all designs of the side at index `nth`, without duplicates. A side has several
    /// designs if it shows different designs for different metrics. A side that has measured none
    /// of the metrics has a name, too.
    fn designs_of(&self, nth: usize) -> Vec<&str> {
        let cells = self
            .rows
            .iter()
            .filter_map(|row| row.cells.get(nth)?.as_ref());
        let mut names: Vec<&str> = Vec::new();
        for cell in cells {
            if !names.contains(&&*cell.design) {
                names.push(&cell.design);
            }
        }
        if names.is_empty() {
            names.extend(self.designs.get(nth).map(String::as_str));
        }
        names
    }

    /// Says which design each column head stands for, as in `A is ...; B is ...`.
    pub(crate) fn legend(&self) -> String {
        let of_side = |(nth, side): (usize, &String)| {
            let names = self.designs_of(nth).into_iter();
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            format!("{side} is {}", list(&names))
        };
        let sides: Vec<String> = self.sides.iter().enumerate().map(of_side).collect();
        sides.join("; ")
    }

    /// Returns whether a reader needs to be told which design each side of the comparison is. This
    /// is so if the sides are named by letters, and the question does not name the design of each
    /// letter.
    pub(crate) fn needs_legend(&self) -> bool {
        let is_letter = self.sides.first().is_some_and(|side| side == "A");
        let is_named = |(nth, side): (usize, &String)| {
            let mut designs = self.designs_of(nth).into_iter();
            designs.all(|design| self.question.contains(&named_in(design, side)))
        };
        is_letter && !self.rows.is_empty() && !self.sides.iter().enumerate().all(is_named)
    }

    /// The heads (short names) of the compared designs. If the answer
    /// [needs a legend](Self::needs_legend), each head also has the name of its design, as in
    /// `A: linux`.
    pub(crate) fn named_sides(&self) -> Vec<String> {
        let of_side = |(nth, side): (usize, &String)| match self.designs_of(nth)[..] {
            [] => side.clone(),
            ref names => format!("{side}: {}", names.join(", ")),
        };
        if self.needs_legend() {
            self.sides.iter().enumerate().map(of_side).collect()
        } else {
            self.sides.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_question_names_each_design_with_the_head_of_its_column() {
        let text = |designs: &[&str]| {
            let designs: Vec<String> = designs.iter().map(|design| (*design).to_owned()).collect();
            instead_of(&designs)
        };
        assert_eq!(text(&[]), "");
        assert_eq!(text(&["linux"]), "`linux` (A)");
        assert_eq!(
            text(&["linux", "ours"]),
            "`ours` (B) instead of `linux` (A)"
        );
        assert_eq!(
            text(&["a", "b", "c"]),
            "`b` (B1) and `c` (B2) instead of `a` (A)"
        );
        assert_eq!(text(&["a", "b", "c", "d"]), "B1 to B3 instead of `a` (A)");
    }

    #[test]
    fn the_legend_names_the_design_of_each_side_unless_the_question_does() {
        let mut answer = sample().answer;
        assert_eq!(
            answer.legend(),
            "A is `aligned`; B is `phased+shepherd-phased`"
        );
        assert!(answer.needs_legend());
        assert_eq!(
            answer.named_sides(),
            ["A: aligned", "B: phased+shepherd-phased"]
        );
        answer.question =
            "What changes with `phased+shepherd-phased` (B) instead of `aligned` (A)?".to_owned();
        assert!(!answer.needs_legend());
        assert_eq!(answer.named_sides(), ["A", "B"]);
        for row in &mut answer.rows {
            row.cells[0] = None;
        }
        assert_eq!(
            answer.legend(),
            "A is `aligned`; B is `phased+shepherd-phased`",
            "a side without data has its name"
        );
        answer.question = "`phased+shepherd-phased` (B)?".to_owned();
        assert!(answer.needs_legend(), "the question does not name A");
        answer.question.clear();
        answer.sides = ["Linux", "ours"].map(str::to_owned).to_vec();
        assert!(!answer.needs_legend());
    }
}
