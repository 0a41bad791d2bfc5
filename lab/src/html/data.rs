//! The data of the charts. The page contains them as JSON.

use serde::Serialize;

use super::text::in_script;
use crate::report::Report;
use crate::watch::{Course, Map, Span};

/// How many bytes all heat maps of a page can have together.
const MAPS_MAX: usize = 2_500_000;
/// How many bytes the longest lists of a page (phases of tasks, longest waits) can have.
const LISTS_MAX: usize = 1_200_000;
/// For how many designs of a report a page shows courses (what happened in a run, over time).
const DESIGNS_MAX: usize = 6;
/// How many columns a heat map has at least. A heat map with fewer columns would show too little.
const COLUMNS_MIN: usize = 32;

#[derive(Serialize)]
struct Data {
    reports: Vec<OfReport>,
}

/// The courses (what happened in single runs, over time) that belong to one report.
#[derive(Serialize)]
struct OfReport {
    courses: Vec<Course>,
    /// The number of designs that the HTML page leaves out where it shows what happened in the
    /// runs.
    left_out: usize,
}

/// Returns the data of `reports`. If the data are too large, heat maps get fewer columns, and lists
/// get shorter.
pub(super) fn json(reports: &[Report], courses: &[Course]) -> String {
    let mut data = Data {
        reports: reports
            .iter()
            .map(|report| of_report(report, courses))
            .collect(),
    };
    shrink(&mut data);
    let json = serde_json::to_string(&data).expect("a course always serialises");
    in_script(&json)
}

/// The courses (what happened in single runs, over time) that belong to `report`. The designs in
/// the report's answer come first. All other designs follow, in the order of the rows of `report`.
fn of_report(report: &Report, courses: &[Course]) -> OfReport {
    let of_machine = |course: &&Course| {
        // In the report, suffixes that the user wrote, such as `@work.fault=50`, can follow the
        // machine's name. In `course`, the data about one run, the name has no suffix.
        let rest = report.machine.strip_prefix(&course.machine);
        course.experiment == report.experiment && rest.is_some_and(is_added)
    };
    let cells = report.answer.rows.iter().flat_map(|row| &row.cells);
    let answered = cells.flatten().map(|cell| &cell.design);
    let mut designs: Vec<&String> = Vec::new();
    for design in answered.chain(report.rows.iter().map(|row| &row.design)) {
        if !designs.contains(&design) {
            designs.push(design);
        }
    }
    let find = |design: &&String| {
        let mut of_report = courses.iter().filter(of_machine);
        of_report.find(|course| course.design == **design).cloned()
    };
    let mut found: Vec<Course> = designs.iter().filter_map(find).collect();
    let left_out = found.len().saturating_sub(DESIGNS_MAX);
    found.truncate(DESIGNS_MAX);
    OfReport {
        courses: found,
        left_out,
    }
}

/// Returns whether `rest`, the text after the name of a machine, is empty or a suffix such as
/// `+kasan` or `@work.fault=50`.
fn is_added(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['+', '@'])
}

/// Makes heat maps and lists shorter until their data are small enough.
fn shrink(data: &mut Data) {
    let courses = || data.reports.iter().flat_map(|report| &report.courses);
    let cells = |course: &Course| course.maps.iter().map(|map| map.cells.len()).sum::<usize>();
    let lists = |course: &Course| 90 * course.spans.len() + 180 * course.longest.len();
    let mut size: usize = courses().map(cells).sum();
    let list_size: usize = courses().map(lists).sum();
    let each = |data: &mut Data, f: &dyn Fn(&mut Course)| {
        let all = data.reports.iter_mut().flat_map(|of| &mut of.courses);
        all.for_each(f);
    };
    // The loop ends because each iteration halves every heat map that is not yet as short as
    // possible.
    while size > MAPS_MAX {
        each(data, &|course| {
            let long = course.maps.iter_mut();
            long.filter(|map| map.columns >= 2 * COLUMNS_MIN)
                .for_each(Map::halve);
        });
        let courses = data.reports.iter().flat_map(|report| &report.courses);
        let halved: usize = courses.map(cells).sum();
        if halved == size {
            break;
        }
        size = halved;
    }
    if list_size > LISTS_MAX {
        let keep = |length: usize| length * LISTS_MAX / list_size;
        each(data, &|course| {
            course.longest.truncate(keep(course.longest.len()));
            let most = keep(course.spans.len());
            keep_outer(&mut course.spans, most);
        });
    }
}

/// Keeps `most` of `spans`, the phases of tasks. Spans that no other span encloses are kept first.
/// Of all other spans, the longest are kept first.
fn keep_outer(spans: &mut Vec<Span>, most: usize) {
    spans.sort_by_key(|span| {
        let length_ns = span.until_ns - span.from_ns;
        (span.depth > 0, std::cmp::Reverse(length_ns))
    });
    spans.truncate(most);
    spans.sort_by_key(|span| (span.from_ns, span.task, span.depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::watch::Unit;

    fn course(design: &str, machine: &str) -> Course {
        Course {
            experiment: "vmstat".to_owned(),
            machine: machine.to_owned(),
            design: design.to_owned(),
            ..Course::default()
        }
    }

    #[test]
    fn a_report_has_the_courses_of_its_machine_in_the_order_of_its_answer() {
        let mut report = sample();
        report.machine = "grace-72+no-jitter".to_owned();
        let courses = [
            course("phased+shepherd-phased", "grace-72"),
            course("aligned", "grace-7"),
            course("aligned", "grace-72"),
            course("not in the report", "grace-72"),
        ];
        let of = of_report(&report, &courses);
        let designs: Vec<&str> = of.courses.iter().map(|course| &*course.design).collect();
        assert_eq!(designs, ["aligned", "phased+shepherd-phased"]);
        assert_eq!(of.courses[0].machine, "grace-72");
        assert_eq!(of.left_out, 0);
    }

    #[test]
    fn too_much_data_is_made_smaller_but_no_design_is_lost() {
        let map = || {
            // The heat map of 512 CPUs is full: its cells are bytes that are not 0, in base 64.
            let cells = "ZGRk".repeat(512 * 256 / 3 + 1);
            Map {
                name: "waits".to_owned(),
                unit: Unit::Nanos,
                rows: 512,
                cpus_per_row: 1,
                bins_per_column: 1,
                columns: 256,
                max: 90_000,
                cells,
            }
        };
        let mut full = course("aligned", "grace-72");
        full.maps = (0..8).map(|_| map()).collect();
        full.spans = (0..4000)
            .map(|nth| Span {
                phase: "exit_mmap".to_owned(),
                task: nth,
                cpu: 0,
                from_ns: u64::from(nth),
                until_ns: u64::from(nth) + 10,
                depth: nth % 2,
            })
            .collect();
        let mut data = Data {
            reports: (0..5)
                .map(|_| OfReport {
                    courses: vec![full.clone()],
                    left_out: 0,
                })
                .collect(),
        };
        shrink(&mut data);
        let text = serde_json::to_string(&data).unwrap();
        assert!(text.len() < 4_300_000, "{}", text.len());
        for report in &data.reports {
            let [course] = &report.courses[..] else {
                panic!("one course stays");
            };
            assert_eq!(course.maps.len(), 8);
            assert!(course.maps[0].columns >= COLUMNS_MIN);
            assert!(!course.spans.is_empty());
            assert!(course.spans.is_sorted_by_key(|span| span.from_ns));
        }
    }
}
