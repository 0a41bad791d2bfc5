//! A report as Markdown, for a cover letter, an issue or a page of the book.

use super::Report;
use super::answer::remarks::caveats;
use super::layout::{self, Align, Block, Grid, blocks, title};
use super::pick::Detail;
use super::summary;
use super::visible::visible;

/// The width of tables, in characters. It is wider than a terminal, because rendered Markdown can
/// scroll.
const WIDTH: usize = 120;

/// Renders `report` with a newline at the end. First comes the answer. Then come the metrics that
/// `detail` names or, if `detail` names none, everything else in the report.
#[must_use]
pub fn render(report: &Report, detail: Detail<'_>) -> String {
    let answer = &report.answer;
    let mut parts = vec![
        format!("## {}", escape(&title(report))),
        format!("**{}**", escape(&answer.question)),
        visible(&answer.sentence).into_owned(),
    ];
    let table = summary::of_answer(answer);
    if !table.rows.is_empty() {
        parts.push(render_tables(&[table]).trim_end().to_owned());
    }
    let caveats = caveats(answer, report.seeds.len());
    parts.extend(caveats.iter().map(|text| visible(text).into_owned()));
    let identical = answer.identical.iter().map(ToString::to_string);
    parts.extend(identical.map(|text| visible(&text).into_owned()));
    let rest = match detail {
        Detail::Answer | Detail::Whole => blocks(report, WIDTH),
        Detail::Metrics(_) => layout::rows_and_verdicts(&detail.of_report(report), WIDTH),
    };
    parts.retain(|part| !part.is_empty() && part != "****");
    parts.push(render_blocks(rest));
    parts.join("\n\n")
}

/// Renders tables without a report around them.
#[must_use]
pub fn render_tables(tables: &[super::Table]) -> String {
    render_blocks(layout::tables(tables))
}

fn render_blocks(blocks: Vec<Block>) -> String {
    let mut parts = Vec::new();
    for block in blocks {
        match block {
            Block::Text(text) => parts.push(visible(&text).into_owned()),
            Block::Grid(grid) => {
                if !grid.caption.is_empty() {
                    parts.push(format!("**{}**", escape(&grid.caption)));
                }
                parts.push(draw(&grid));
            }
        }
    }
    parts.join("\n\n") + "\n"
}

fn draw(grid: &Grid) -> String {
    let heads: Vec<String> = grid
        .columns
        .iter()
        .map(|column| escape(&column.head))
        .collect();
    let marks: Vec<String> = grid
        .columns
        .iter()
        .map(|column| {
            if column.align == Align::Right {
                "--:"
            } else {
                "---"
            }
            .to_owned()
        })
        .collect();
    let rows = grid.drawn_rows();
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|cell| escape(cell)).collect());
    let lines = [heads, marks].into_iter().chain(rows);
    let lines: Vec<String> = lines
        .map(|cells| format!("| {} |", cells.join(" | ")))
        .collect();
    lines.join("\n")
}

/// Escapes characters in the text of a cell that would otherwise end the cell or the row. Control
/// characters become visible.
fn escape(text: &str) -> String {
    visible(text).replace('|', "\\|").replace('\n', "<br>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_report_is_pipe_tables_and_prose() {
        insta::assert_snapshot!(render(&sample(), Detail::Whole), @r"
        ## vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde

        **What do phases of the vmstat work gain?**

        Compared with `aligned`, `phased+shepherd-phased` lowers contentions (better), raises total wait (worse) and shows no difference in pages per s.

        | what | A: aligned | B: phased+shepherd-phased | published | verdict |
        | --- | --: | --: | --- | --- |
        | contentions | 872 | 117 | ×0.134 | better |
        | total wait | 199.43 ms | 761 ns | – | worse |
        | pages per s | 12,345,678 | 12,345,999 | – | no difference seen |

        | design | contentions | published | total_wait | published |
        | --- | --: | --: | --: | --: |
        | aligned | 872 [784.8–959.2] | 872 | 199.43 ms [179.49–219.37] | 199.43 ms |
        | phased+shepherd-phased | 117 [105.3–128.7] | – | 761 ns [684.9–837.1] | – |

        | design | pages_per_s |
        | --- | --: |
        | aligned | 12,345,678 [11,111,110–13,580,246] |
        | phased+shepherd-phased | 12,345,999 [11,111,399–13,580,599] |

        **A is aligned**

        | B | metric | B / A | verdict |
        | --- | --- | --: | --- |
        | phased+shepherd-phased | contentions | 0.134 [0.121–0.147] | B is lower (better) |
        |  | total_wait | ∞ [∞–∞] | B is higher (worse) |
        |  | pages_per_s | 1.000 [0.900–1.100] | no difference seen |

        Where no difference is seen, run again with `--seeds 16` to detect smaller differences.

        **The longest waits**

        | caller | max wait |
        | --- | --: |
        | free_pcppages_bulk | 35.76 ms |
        | rmqueue\|bulk | 4.19 ms |

        One row per caller.

        Most of the gain is due to the phase: with the same period and the shepherd left alone, contentions fall as far as with all three changes together.
        ");
    }
}
