//! The sides of an answer: the heads by which an answer calls its designs, such as A and B.

use super::words::list;
use super::{Answer, COLUMNS_MAX};

/// The heads of `designs` designs: A and B, or A, B1, B2 and so on.
pub(crate) fn letters(designs: usize) -> Vec<String> {
    let letter = |nth: usize| match (nth, designs) {
        (0, _) => "A".to_owned(),
        (_, 2) => "B".to_owned(),
        (nth, _) => format!("B{nth}"),
    };
    (0..designs).map(letter).collect()
}

/// The designs of a comparison as a question names them: `ours` (B) instead of `linux` (A).
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

/// A design with its head, as a question names them.
fn named_in(design: &str, head: &str) -> String {
    format!("`{design}` ({head})")
}

impl Answer {
    /// Whether the table of this answer has a row for each side, because it has more sides than
    /// [`COLUMNS_MAX`].
    pub(crate) fn has_rows_of_sides(&self) -> bool {
        self.sides.len() > COLUMNS_MAX
    }

    /// The names of the designs of the side at index `nth`, each once. A side has several designs
    /// if it shows one design for one metric and another design for another metric.
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
        names
    }

    /// Says which design each side is: `A is ...; B is ...`.
    pub(crate) fn legend(&self) -> String {
        let of_side = |(nth, side): (usize, &String)| {
            let names = self.designs_of(nth).into_iter();
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            format!("{side} is {}", list(&names))
        };
        let sides: Vec<String> = self.sides.iter().enumerate().map(of_side).collect();
        sides.join("; ")
    }

    /// Whether a reader needs more than the question to know the sides: their heads are letters,
    /// and the question does not say which design each letter is.
    pub(crate) fn needs_legend(&self) -> bool {
        let is_letter = self.sides.first().is_some_and(|side| side == "A");
        let is_named = |(nth, side): (usize, &String)| {
            let mut designs = self.designs_of(nth).into_iter();
            designs.all(|design| self.question.contains(&named_in(design, side)))
        };
        is_letter && !self.rows.is_empty() && !self.sides.iter().enumerate().all(is_named)
    }

    /// The heads of the sides. If the answer [needs a legend](Self::needs_legend), each head has
    /// the name of its design too: `A: linux`.
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
        answer.question.clear();
        answer.sides = ["Linux", "ours"].map(str::to_owned).to_vec();
        assert!(!answer.needs_legend());
    }
}
