//! The change of a mutant, as `cargo mutants --list --json` describes it.

use std::ops::Range;

use serde_json::Value;

/// The kinds of changes that `cargo mutants` knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Genre {
    /// A function returns a fixed value and does nothing else.
    #[default]
    FnValue,
    /// An operator with two operands becomes another operator.
    BinaryOperator,
    /// An operator with one operand is deleted.
    UnaryOperator,
    /// An arm of a `match` is deleted.
    MatchArm,
    /// The guard of an arm becomes `true` or `false`.
    MatchArmGuard,
    /// A field of a struct literal is deleted, so that its value comes from the literal's base
    /// (`..base`).
    StructField,
}

/// A place in a file. Line and column are counted from 1, and each character is a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// One change of the text of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The path of the file, from the root of the repository.
    pub(crate) file: String,
    pub(crate) genre: Genre,
    pub(crate) start: Place,
    /// The place just after the text that is replaced.
    pub(crate) end: Place,
    pub(crate) replacement: String,
}

impl Change {
    /// Returns the bytes that the change replaces in `text`, which is the text of the file.
    pub(crate) fn span(&self, text: &str) -> Range<usize> {
        offset(text, self.start)..offset(text, self.end)
    }

    /// Returns `text`, the text of the file, with the change applied.
    pub(crate) fn apply(&self, text: &str) -> String {
        let span = self.span(text);
        // Blanks keep the replacement apart from the text before it and after it.
        format!(
            "{} {} {}",
            &text[..span.start],
            self.replacement,
            &text[span.end..]
        )
    }
}

fn offset(text: &str, place: Place) -> usize {
    let lines = text.split_inclusive('\n').take(place.line - 1);
    let start: usize = lines.map(str::len).sum();
    let column = text[start..].char_indices().nth(place.column - 1);
    column.map_or(text.len(), |(at, _)| start + at)
}

/// Reads the mutants from the output of `cargo mutants --list --json`, each with its name.
pub(crate) fn parse(list: &str) -> Result<Vec<(String, Change)>, String> {
    // If there is no mutant in the lines that a diff changes, `cargo mutants` prints nothing.
    if list.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: Value = serde_json::from_str(list).map_err(|error| error.to_string())?;
    let list = list.as_array().ok_or("expected a list of mutants")?;
    list.iter().map(one).collect()
}

fn one(value: &Value) -> Result<(String, Change), String> {
    let text = |key: &str| {
        let text = value[key].as_str();
        text.ok_or_else(|| format!("a mutant without `{key}`: {value}"))
    };
    let place = |end: &str| {
        let number = |key: &str| {
            let number = value["span"][end][key].as_u64();
            let number = number.and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|number| *number > 0);
            number.ok_or_else(|| format!("a mutant without the {key} of its {end}: {value}"))
        };
        Ok::<_, String>(Place {
            line: number("line")?,
            column: number("column")?,
        })
    };
    let change = Change {
        file: text("file")?.to_owned(),
        genre: genre(text("genre")?)?,
        start: place("start")?,
        end: place("end")?,
        replacement: text("replacement")?.to_owned(),
    };
    Ok((text("name")?.to_owned(), change))
}

fn genre(name: &str) -> Result<Genre, String> {
    Ok(match name {
        "FnValue" => Genre::FnValue,
        "BinaryOperator" => Genre::BinaryOperator,
        "UnaryOperator" => Genre::UnaryOperator,
        "MatchArm" => Genre::MatchArm,
        "MatchArmGuard" => Genre::MatchArmGuard,
        "StructField" => Genre::StructField,
        _ => return Err(format!("a kind of change that is not known: {name}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"[{
        "file": "mm/src/a.rs",
        "function": null,
        "genre": "BinaryOperator",
        "name": "mm/src/a.rs:2:5: replace < with <=",
        "replacement": "<=",
        "span": {"start": {"line": 2, "column": 5}, "end": {"line": 2, "column": 6}}
    }]"#;

    #[test]
    fn a_change_is_read_and_applied_by_characters() {
        let list = parse(LIST).expect("a good list");
        assert_eq!(list[0].0, "mm/src/a.rs:2:5: replace < with <=");
        let changed = list[0].1.apply("// é\n'é' < 'b'\n");
        assert_eq!(changed, "// é\n'é'  <=  'b'\n");
    }

    #[test]
    fn a_list_of_another_form_is_refused() {
        for (now, then) in [
            ("\"genre\": \"B", "\"genre\": \"T"),
            ("\"name\"", "\"title\""),
            ("\"column\": 6", "\"column\": 0"),
        ] {
            parse(&LIST.replace(now, then)).expect_err(then);
        }
        parse("{}").expect_err("no list");
        assert_eq!(parse(""), Ok(Vec::new()));
    }
}
