//! A page of HTML with the reports of a command: first the answer to the question of each
//! experiment, then charts of one run of each design, then all tables.
//!
//! The page is one file. It contains its style, its scripts and its data, and loads nothing. Texts
//! and tables are HTML, so they can be read without scripts. The scripts draw the charts. The
//! scripts are in `lab/assets/page`, and the chart library is `lab/assets/charts.min.js`.

mod data;
mod report;
mod text;

use self::text::{code, escape, fill};
use crate::catalog::machines;
use crate::report::{Report, Table, summary};
use crate::watch::Course;

const TEMPLATE: &str = include_str!("../../assets/page/page.html");
const STYLE: &str = include_str!("../../assets/page/page.css");
const CHARTS: &str = include_str!("../../assets/charts.min.js");
const LICENCES: &str = include_str!("../../assets/charts.licences.txt");
/// The scripts, in the order in which the browser reads them.
const SCRIPTS: [&str; 8] = [
    include_str!("../../assets/page/base.js"),
    include_str!("../../assets/page/figure.js"),
    include_str!("../../assets/page/heat.js"),
    include_str!("../../assets/page/waits.js"),
    include_str!("../../assets/page/lines.js"),
    include_str!("../../assets/page/spans.js"),
    include_str!("../../assets/page/flame.js"),
    include_str!("../../assets/page/main.js"),
];

/// The contents of a page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The command that made the results.
    pub command: &'a str,
    /// Facts about the program, such as its version, as pairs of a name and a value.
    pub facts: &'a [(String, String)],
    /// The reports.
    pub reports: &'a [Report],
    /// The table of the published figures beside ours. `None` if the run has no such table.
    pub figures: Option<&'a Table>,
    /// The courses (what happened in a run, over time) of the runs that were watched. Empty if no
    /// run was watched.
    pub courses: &'a [Course],
    /// The simulated machines whose prices (the times of single steps) the page shows: names of
    /// built-in machines, or paths of profile files.
    pub machines: &'a [String],
}

/// Renders the page. A part for which the run has no data is left out.
#[must_use]
pub fn render(page: &Page<'_>) -> String {
    let title = match page.reports {
        [only] => format!("{} on {} · Plimsoll", only.experiment, only.machine),
        _ => format!("{} reports · Plimsoll", page.reports.len()),
    };
    let parts = [
        ("title", escape(&title)),
        ("style", STYLE.to_owned()),
        ("body", body(page)),
        ("data", data::json(page.reports, page.courses)),
        ("charts", CHARTS.to_owned()),
        ("script", SCRIPTS.concat()),
    ];
    fill(TEMPLATE, &parts)
}

fn body(page: &Page<'_>) -> String {
    let mut html = format!(
        "<header class=\"top\"><strong>Plimsoll</strong><code class=\"command\">{}</code>\
         <button type=\"button\" id=\"theme\" hidden></button></header>\n<main id=\"main\">\n",
        escape(page.command)
    );
    if page.reports.len() > 1 {
        html.push_str(&index(page));
    }
    let several = page.reports.len() > 1;
    for (nth, report) in page.reports.iter().enumerate() {
        html.push_str(&report::article(nth, report, several));
    }
    html.push_str(&prices(page.machines));
    html.push_str("</main>\n<footer class=\"foot\">\n");
    let facts = page
        .facts
        .iter()
        .map(|(name, value)| format!("{name} {value}"));
    let facts: Vec<String> = facts.collect();
    html.push_str(&format!("<p>{}</p>\n", escape(&facts.join(" · "))));
    html.push_str(&format!(
        "<details><summary>Licences of the chart library</summary><div><pre>{}</pre></div></details>\n\
         </footer>",
        escape(LICENCES)
    ));
    html
}

/// Makes the list of the answers of all reports, with a link to each report.
fn index(page: &Page<'_>) -> String {
    let mut html = "<section class=\"report index\"><h2>All answers</h2>\n".to_owned();
    html.push_str(&report::table(&summary::table(page.reports)));
    html.push_str("<nav aria-label=\"Reports\"><ul>");
    for (nth, report) in page.reports.iter().enumerate() {
        html.push_str(&format!(
            "<li><a href=\"#report-{nth}\">{}</a></li>",
            escape(&format!("{} on {}", report.experiment, report.machine))
        ));
    }
    html.push_str("</ul></nav>\n");
    if let Some(figures) = page.figures {
        html.push_str(&report::folded(
            "Published figures, and ours",
            &report::table(figures),
        ));
    }
    html.push_str("</section>\n");
    html
}

/// Makes tables of the prices of the simulated machines, that is, of the times that single steps
/// take. Each price has its source.
fn prices(names: &[String]) -> String {
    let mut html = String::new();
    for name in names {
        // A variant of a machine has the same prices as the machine itself. So the description of
        // the machine itself shows all prices.
        let plain = name.split(['@', '+']).next().unwrap_or(name);
        let described = machines::describe(name).or_else(|_| machines::describe(plain));
        let Ok(tables) = described else {
            continue;
        };
        let tables: Vec<String> = tables.iter().map(report::table).collect();
        let title = format!("The machine {}: its prices and their sources", code(name));
        html.push_str(&report::folded(&title, &tables.concat()));
    }
    if html.is_empty() {
        return html;
    }
    format!("<section class=\"report\"><h3>Machines</h3>\n{html}</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn page(reports: &[Report], courses: &[Course]) -> String {
        render(&Page {
            command: "plimsoll compare x --b 'a<b>'",
            facts: &[("version".to_owned(), "0.1.0".to_owned())],
            reports,
            figures: None,
            courses,
            machines: &["grace-72+kasan".to_owned(), "no-such".to_owned()],
        })
    }

    #[test]
    fn a_page_has_the_answer_before_everything_else() {
        let html = page(&[sample()], &[]);
        let place = |text: &str| {
            html.find(text)
                .unwrap_or_else(|| panic!("{text} is missing"))
        };
        let order = [
            "<h2>What do phases of the vmstat work gain?</h2>",
            "lowers contentions (better)",
            "<table class=\"answers\">",
            "All metrics",
            "The longest waits",
            "its prices and their sources",
            "work.fault",
        ];
        let places: Vec<usize> = order.iter().map(|text| place(text)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(html.contains("a&lt;b&gt;") && !html.contains("a<b>"));
        assert!(
            !html.contains("{{"),
            "every place of the template is filled"
        );
    }

    /// The page works without a network: the browser loads no part of the page from elsewhere.
    #[test]
    fn a_page_loads_nothing() {
        let html = page(&[sample(), sample()], &[]);
        let without_scripts: String = html
            .split("<script")
            .map(|part| part.split_once("</script>").map_or(part, |(_, rest)| rest))
            .collect();
        for loads in ["src=", "href=\"http", "@import", "url("] {
            assert!(!without_scripts.contains(loads), "{loads}");
        }
        assert!(html.contains("default-src 'none'"));
        assert!(html.contains("href=\"#report-1\""));
    }

    #[test]
    fn an_unknown_machine_has_no_prices() {
        assert_eq!(prices(&["no-such".to_owned()]), "");
    }
}
