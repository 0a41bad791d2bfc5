//! The answer of a report as lines of text, for terminals and for mails.

use super::grid;
pub(crate) use super::grid::published;
use super::remarks::remarks;
use crate::report::Report;
use crate::report::layout::title;
use crate::report::paint::Paint;
use crate::report::wrap::wrap;

/// The largest number of lines with which a report begins, if the answer compares at most three
/// designs. A legend and remarks about identical runs are not counted. There are more lines if the
/// question, the sentence and the remarks alone are longer.
pub const LINES_MAX: usize = 12;

/// The first lines of `report`: its title, its question, its answer, and the table of the answer.
/// Each line has at most `width` characters, unless a single word is longer.
///
/// If the table has a row for each metric, the function keeps to [`LINES_MAX`] lines, not counting
/// a legend and remarks about identical runs. If there is too little room, it leaves out blank
/// lines first, and then the last rows of the table; a line says how many. It never shortens the
/// question, the sentence or the remarks. If the table has a row for each compared design, all of
/// its rows are printed.
#[must_use]
pub fn lines(report: &Report, width: usize, paint: Paint) -> Vec<String> {
    let title = wrap(&title(report), width).into_iter();
    let title: Vec<String> = title.map(|line| paint.bold(&line)).collect();
    let lines_max = if report.answer.has_rows_of_sides() {
        usize::MAX
    } else {
        LINES_MAX
    };
    let table = grid::draw(&report.answer, width, paint);
    below(title, table, report, width, lines_max)
}

/// The first lines of `report`, as in [`lines`], but without the title and without colours. The
/// table has all its rows.
pub(crate) fn untitled(report: &Report, width: usize) -> Vec<String> {
    let table = grid::draw(&report.answer, width, Paint::Plain);
    below(Vec::new(), table, report, width, usize::MAX)
}

/// Puts these parts below `title`: the question of `report`, the legend if the table needs one, the
/// answer, the lines of `table`, and remarks. Rows of the table are left out if there would be more
/// than `lines_max` lines, not counting the legend and remarks about identical runs.
fn below(
    title: Vec<String>,
    table: grid::Drawn,
    report: &Report,
    width: usize,
    lines_max: usize,
) -> Vec<String> {
    let answer = &report.answer;
    let question = wrap(&answer.question, width);
    let sentence = wrap(&answer.sentence, width);
    let wrapped = |texts: Vec<String>| -> Vec<String> {
        texts.iter().flat_map(|text| wrap(text, width)).collect()
    };
    let identical = wrapped(answer.identical.iter().map(ToString::to_string).collect());
    let remarks = wrapped(remarks(answer, report.seeds.len()));
    let fixed = title.len() + question.len() + sentence.len() + remarks.len();
    let table = within(table, lines_max.saturating_sub(fixed), width);
    let legend = if answer.needs_legend() && !table.names_designs {
        wrap(&format!("{}.", answer.legend()), width)
    } else {
        Vec::new()
    };
    let lines_max = lines_max.saturating_add(legend.len() + identical.len());
    let parts = [
        [title, question, legend].concat(),
        sentence,
        [table.head, table.rows.concat(), remarks, identical].concat(),
    ];
    let parts: Vec<Vec<String>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let filled: usize = parts.iter().map(Vec::len).sum();
    let blank = if filled + parts.len() <= lines_max.saturating_add(1) {
        vec![String::new()]
    } else {
        Vec::new()
    };
    parts.join(&blank[..])
}

/// Leaves out the last rows of `table` if it has more than `room` lines. In this case, the table
/// ends with a line that says how many rows are left out. If no row fits, the head is left out too.
fn within(mut table: grid::Drawn, room: usize, width: usize) -> grid::Drawn {
    let count = table.rows.len();
    let lines = table.rows.iter().map(Vec::len);
    if table.head.len() + lines.sum::<usize>() <= room {
        return table;
    }
    let mut used = table.head.len() + 1;
    let fits = |row: &&Vec<String>| {
        used += row.len();
        used <= room
    };
    let shown = table.rows.iter().take_while(fits).count();
    if shown == 0 {
        table.head.clear();
        table.names_designs = false;
    }
    let left_out = format!(
        "Left out here: {} of {count} metrics; `--verbose` shows all.",
        count - shown
    );
    table.rows.truncate(shown);
    table.rows.push(wrap(&left_out, width));
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Answer, AnswerCell, AnswerRow, Identical};
    use super::*;
    use crate::measure::metric::{Metric, Unit};
    use crate::measure::stats::{Comparison, Estimate, Verdict};
    use crate::report::{many_designs, sample};

    #[test]
    fn the_sample_begins_with_its_answer() {
        let text = lines(&sample(), 80, Paint::Plain).join("\n");
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde
        What do phases of the vmstat work gain?

        Compared with `aligned`, `phased+shepherd-phased` lowers contentions (better),
        raises total wait (worse) and shows no difference in pages per s.

                     A: aligned  B: phased+shepherd-phased  published
        -------------------------------------------------------------
        contentions         872                 117 better     ×0.134
        total wait    199.43 ms              761 ns worse           –
        pages per s  12,345,678          12,345,999                 –
        No difference seen: pages per s (B).
        ");
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_sentences() {
        let text = lines(&sample(), 50, Paint::Plain).join("\n");
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) ·
        hash 00123456789abcde
        What do phases of the vmstat work gain?
        A is `aligned`; B is `phased+shepherd-phased`.
        Compared with `aligned`, `phased+shepherd-phased`
        lowers contentions (better), raises total wait
        (worse) and shows no difference in pages per s.
        contentions: A 872, B 117 (better), published
        ×0.134
        total wait: A 199.43 ms, B 761 ns (worse)
        pages per s: A 12,345,678, B 12,345,999
        No difference seen: pages per s (B).
        ");
    }

    #[test]
    fn many_designs_have_a_row_each() {
        let text = lines(&many_designs(), 80, Paint::Plain).join("\n");
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde
        Which of these designs is best?

        Compared with `design-0`, contentions: lower (better) with B1, B2, B3 and B4;
        total wait: lower (better) with B1, B2, B3 and B4; pages per s: lower (worse)
        with B1, B2, B3 and B4.

                      contentions        total wait       pages per s
        -------------------------------------------------------------
        A: design-0    872         199.43 ms         12,345,678
        B1: design-1     1 better       1 ns better           1 worse
        B2: design-2     2 better       2 ns better           2 worse
        B3: design-3     3 better       3 ns better           3 worse
        B4: design-4     4 better       4 ns better           4 worse
        ");
        for width in [40, 72, 80, 160] {
            let text = lines(&many_designs(), width, Paint::Plain).join("\n");
            for nth in 0..5 {
                assert!(text.contains(&format!("design-{nth}")), "{nth} in\n{text}");
            }
            for line in text.lines().skip(1) {
                assert!(line.chars().count() <= width, "{line}");
            }
        }
    }

    #[test]
    fn a_line_says_which_runs_were_identical_and_takes_no_room_of_the_table() {
        let mut report = sample();
        let before = lines(&report, 80, Paint::Plain);
        report.answer.identical = vec![Identical {
            a: "aligned".to_owned(),
            b: "phased+shepherd-phased".to_owned(),
            why: "nothing depends on it".to_owned(),
        }];
        let after = lines(&report, 80, Paint::Plain);
        assert_eq!(after[..before.len()], before);
        assert_eq!(
            after[before.len()..].join(" "),
            "`phased+shepherd-phased` and `aligned` ran identically on every seed: nothing depends \
             on it."
        );
    }

    #[test]
    fn a_line_says_how_many_rows_are_left_out_and_nothing_else_is_cut() {
        let mut report = sample();
        let mut of = |question: usize, sentence: usize| {
            report.answer.question = vec!["question"; question].join(" ");
            report.answer.sentence = vec!["sentence"; sentence].join(" ");
            lines(&report, 80, Paint::Plain)
        };
        let some = of(24, 24);
        assert_eq!(some.len(), LINES_MAX);
        assert_eq!(
            some[LINES_MAX - 2..],
            [
                "Left out here: 2 of 3 metrics; `--verbose` shows all.",
                "No difference seen: pages per s (B)."
            ]
        );
        let none = of(80, 80);
        let text = none.join(" ");
        assert_eq!(text.matches("sentence").count(), 80);
        assert!(text.contains("A is `aligned`"), "no legend in {text}");
        assert!(!text.contains("---"), "a table without rows in {text}");
        assert!(
            text.ends_with(
                "Left out here: 3 of 3 metrics; `--verbose` shows all. No difference seen: pages \
                 per s (B)."
            ),
            "{text}"
        );
    }

    #[test]
    fn colours_do_not_move_a_column() {
        let plain = lines(&sample(), 80, Paint::Plain).join("\n");
        let coloured = lines(&sample(), 80, Paint::Colour).join("\n");
        assert_ne!(plain, coloured);
        let mut stripped = String::new();
        let mut parts = coloured.split('\x1b');
        stripped.push_str(parts.next().unwrap_or(""));
        for part in parts {
            stripped.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
        }
        assert_eq!(stripped, plain);
    }

    const VERDICTS: [Verdict; 5] = [
        Verdict::Lower,
        Verdict::Higher,
        Verdict::NoDifference,
        Verdict::Equal,
        Verdict::TooFewSeeds,
    ];

    prop_compose! {
        /// Generates rows with values of every size, any unit and any verdict.
        fn any_row()(
            what in "[a-z]{1,12}( [a-z]{1,7}){0,1}",
            values in prop::collection::vec(0.0..1e13, 3),
            unit in prop::sample::select(vec![
                Unit::Count, Unit::Nanos, Unit::Pages, Unit::Bytes, Unit::Percent, Unit::PerSecond,
            ]),
            verdicts in prop::collection::vec(prop::sample::select(VERDICTS.to_vec()), 2),
            missing in any::<bool>(),
            pairs in 1..40_usize,
            published_ratio in prop::option::of(0.0..5000.0),
        ) -> AnswerRow {
            let cell = |nth: usize| (nth != 1 || !missing).then(|| AnswerCell {
                design: format!("design-{nth}"),
                estimate: Estimate::exactly(values[nth]),
                seeds: pairs,
                is_zero: values[nth] == 0.0,
                compared: (nth > 0).then(|| Comparison {
                    ratio: Estimate::exactly(values[nth] / values[0].max(1.0)),
                    verdict: verdicts[nth - 1],
                }),
                pairs,
            });
            AnswerRow {
                what,
                metric: Metric::lower("waits", unit),
                cells: (0..3).map(cell).collect(),
                published_ratio,
            }
        }
    }

    proptest! {
        #[test]
        fn any_answer_fits_its_width_and_its_lines(
            rows in prop::collection::vec(any_row(), 0..4),
            question in "[a-z]{1,9}( [a-z]{1,9}){1,11}",
            sentence in "[a-z]{1,9}( [a-z]{1,9}){1,26}",
            seeds in 1..40_usize,
            width in 72..161_usize,
        ) {
            let mut report = sample();
            report.seeds = (0..seeds as u64).collect();
            report.answer = Answer {
                question,
                sentence: sentence.clone(),
                sides: ["Linux", "patch", "ours"].map(str::to_owned).to_vec(),
                rows,
                ..Answer::default()
            };
            let lines = lines(&report, width, Paint::Plain);
            let text = lines.join(" ");
            let count = report.answer.rows.len();
            let all = format!("Left out here: {count} of {count} metrics");
            prop_assert!(lines.len() <= LINES_MAX || text.contains(&all), "{lines:?}");
            for remark in remarks(&report.answer, seeds) {
                prop_assert!(text.contains(&remark), "{remark} is cut in {lines:?}");
            }
            prop_assert!(text.contains(&sentence), "the sentence is cut in {lines:?}");
            for line in &lines {
                prop_assert!(line.chars().count() <= width, "{line}");
            }
            let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            for word in sentence.split_whitespace() {
                prop_assert!(words.contains(&word), "{word} is lost or broken");
            }
        }
    }
}
