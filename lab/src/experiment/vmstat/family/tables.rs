//! The tables about all workloads: one row for each workload of the vmstat experiment on each
//! machine.

use super::Family;
use super::member::{COMPARED, Member, published, published_ratio};
use crate::experiment::vmstat::likeness;
use crate::experiment::vmstat::setup::{
    CONTENTIONS, DECAY_CONTENTIONS, PER_DECAYED, PER_RETURNED, RETURNED,
};
use crate::experiment::vmstat::workloads::{FAMILY, MAIN};
use crate::experiment::vmstat::{BASELINE, OURS, PATCH, PHASED_WHEEL, SLOWED};
use crate::measure::metric::{Metric, Unit};
use crate::report::misses::Beside as Figure;
use crate::report::value::{NOTHING, human, ratio_of};
use crate::report::{Table, tabulate};

/// A row of a table. It has the published figures for a machine, or our results of one workload on
/// this machine.
#[derive(Clone, Copy)]
enum Line<'a> {
    /// The published figures for a machine.
    Published(&'a str, &'a [Figure]),
    Measured(&'a Member, &'a [Figure]),
}

impl Family {
    pub(in crate::experiment::vmstat) fn tables(&self) -> [Table; 5] {
        [
            workloads(),
            self.levels(),
            self.patch(),
            self.ours(),
            self.causes(),
        ]
    }

    /// All rows, machine by machine. The first row of each machine has the figures that were
    /// published for this machine.
    fn lines<'a>(&'a self) -> Vec<Line<'a>> {
        let figures = &self.figures;
        let of_machine = |machine: &'a String| {
            let members = self.members.iter();
            let members = members.filter(move |member| member.machine == *machine);
            [Line::Published(machine, figures)]
                .into_iter()
                .chain(members.map(move |member| Line::Measured(member, figures)))
        };
        self.machines.iter().flat_map(of_machine).collect()
    }

    fn levels(&self) -> Table {
        let table = tabulate!(
            "The family with Linux",
            format!(
                "Waits at free_pcppages_bulk that perf shows. For {MAIN}, the runs are those of \
                 the report's rows; runs of the other workloads last {} s of virtual time, with \
                 seeds 1 to {}. `by decays`: the share of all contentions in which a decay waited; \
                 in the rest, a spill or a drain did.",
                self.seconds, self.seeds
            ),
            &self.lines(),
            |line| {
                "workload" => line.workload(),
                "machine" => line.machine(),
            }
        );
        let lines = self.lines();
        let table = table.with_each(&lines, COMPARED, |line, metric| line.level(metric));
        table
            .with_each(&lines, [("pages returned", RETURNED)], Line::level)
            .with_each(&lines, [("by decays", ())], |line, ()| line.by_decays())
    }

    fn patch(&self) -> Table {
        let lines = self.lines();
        self.ratios(
            "What the patch is worth, by workload",
            "The patch's figures divided by Linux's, beside the published ones. `apart`: the typical \
             factor between the four ratios and the published four. `within 2 ×`: whether each of \
             the four is between half and twice the published one. No ratio if Linux's median is 0.",
            PATCH,
        )
        .with_each(&lines, [("apart", ())], |line, ()| line.apart())
        .with_each(&lines, [("within 2 ×", ())], |line, ()| line.within_two())
    }

    fn ours(&self) -> Table {
        self.ratios(
            "What our schedule and shepherd are worth, by workload",
            "Our figures divided by Linux's, beside the published ones of the patch.",
            OURS,
        )
    }

    fn ratios(&self, title: &str, note: &str, design: &str) -> Table {
        let lines = self.lines();
        tabulate!(
            title,
            note,
            &lines,
            |line| {
                "workload" => line.workload(),
                "machine" => line.machine(),
            }
        )
        .with_each(&lines, COMPARED, |line, metric| line.ratio(design, metric))
        .with_each(
            &lines,
            [("per page returned", PER_RETURNED)],
            |line, metric| line.ratio(design, metric),
        )
    }

    fn causes(&self) -> Table {
        tabulate!(
            format!(
                "What the patch's gain is due to, by workload on {}",
                self.machines[0]
            ),
            "Ratios of contentions to Linux. `per page`: only contentions of decays, per page that \
             decays returned. The patch's changelog names one cause: the phases.",
            &self.separated().collect::<Vec<_>>(),
            |member| {
                "workload" => member.workload.name,
                "patch" => member.show(PATCH, &CONTENTIONS),
                "interval alone" => member.show(SLOWED, &CONTENTIONS),
                "phases alone" => member.show(PHASED_WHEEL, &CONTENTIONS),
                "interval per page" => member.show(SLOWED, &PER_DECAYED),
                "phases per page" => member.show(PHASED_WHEEL, &PER_DECAYED),
                "gain due to" => member.cause().words(),
            }
        )
    }
}

/// The table of the workloads, with the purpose of each.
fn workloads() -> Table {
    tabulate!("The workloads", "", &FAMILY, |mix| {
        "workload" => mix.name,
        "stands for" => mix.stands_for,
        "parameters" => mix.parameters,
    })
}

impl Line<'_> {
    fn workload(&self) -> &'static str {
        match self {
            Self::Published(..) => "(published)",
            Self::Measured(member, _) => member.workload.name,
        }
    }

    fn machine(&self) -> &str {
        match self {
            Self::Published(machine, _) => machine,
            Self::Measured(member, _) => &member.machine,
        }
    }

    /// The value of `metric` with the design of Linux: the published value in a row of published
    /// figures, otherwise the median of our runs.
    fn level(&self, metric: &Metric) -> String {
        let value = match self {
            Self::Published(machine, figures) => published(figures, machine, BASELINE, metric),
            Self::Measured(member, _) => Some(member.results.median(BASELINE, metric)),
        };
        value.map_or_else(|| NOTHING.to_owned(), |value| human(value, metric.unit))
    }

    fn by_decays(&self) -> String {
        let Self::Measured(member, _) = self else {
            return NOTHING.to_owned();
        };
        let [all, decays] =
            [CONTENTIONS, DECAY_CONTENTIONS].map(|metric| member.results.mean(BASELINE, &metric));
        if all == 0.0 {
            return NOTHING.to_owned();
        }
        human(100.0 * decays / all, Unit::Percent)
    }

    /// The value of `metric` with `design`, divided by its value with Linux. A row of published
    /// figures shows the published ratio of the patch, whatever `design` is.
    fn ratio(&self, design: &str, metric: &Metric) -> String {
        match self {
            Self::Published(machine, figures) => {
                let ratio = published_ratio(figures, machine, metric);
                ratio.map_or_else(|| NOTHING.to_owned(), |ratio| ratio_of(1.0, ratio))
            }
            Self::Measured(member, _) => member.show(design, metric),
        }
    }

    fn apart(&self) -> String {
        let apart = match self {
            Self::Published(..) => return NOTHING.to_owned(),
            Self::Measured(member, figures) => likeness::times_apart(&member.beside(figures)),
        };
        if apart.is_finite() {
            format!("{apart:.1} ×")
        } else {
            NOTHING.to_owned()
        }
    }

    fn within_two(&self) -> String {
        let Self::Measured(member, figures) = self else {
            return NOTHING.to_owned();
        };
        let pairs = member.beside(figures);
        if pairs.len() < COMPARED.len() {
            return NOTHING.to_owned();
        }
        let pairs = pairs.into_iter().zip(COMPARED);
        let far = pairs.filter(|(pair, _)| !pair.is_within_two());
        let far: Vec<&str> = far.map(|(_, (name, _))| name).collect();
        match far.len() {
            0 => "yes".to_owned(),
            4 => "no: none of them".to_owned(),
            _ => format!("no: not {}", far.join(", ").replace(" wait", "")),
        }
    }
}
