//! The designs that experiments compare, by name. A design chooses one variant of each mechanism.

use std::fmt;

use plimsoll_mm::counter::Counting;
use plimsoll_mm::design::{BadName, Design, HOLDS, SCHEDULES, SHEPHERDS};
use plimsoll_mm::oom::Selecting;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::space::reap::Reaping;

use crate::error::Error;
use crate::report::Table;

/// A design, with the name by which the user selected the design.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name as it appears in reports and options.
    pub name: String,
    /// The design: one variant for each mechanism.
    pub design: Design,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Finds the design called `name`. A name is a base (a named design), variants of mechanisms, or a
/// base followed by variants. Its parts are joined by `+`. A variant after a base replaces the
/// base's variant of the same mechanism.
///
/// # Errors
/// [`Error::Unknown`] for the first unknown part, with the nearest names. [`Error::Invalid`] if a
/// base is not the first part, or if two parts are variants of one mechanism.
pub fn find(name: &str) -> Result<Named, Error> {
    match Design::named(name) {
        Ok(design) => Ok(Named {
            name: name.to_owned(),
            design,
        }),
        Err(BadName::Unknown(part)) if !part.is_empty() => {
            Err(Error::unknown("variant", &part, &Design::names()))
        }
        Err(bad) => Err(Error::Invalid(format!("`{name}` is no design: {bad}"))),
    }
}

/// Finds the designs called `names`. The caller compares the designs, so two names must not mean
/// the same design.
///
/// # Errors
/// The errors of [`find`]. Also [`Error::Invalid`] if two names mean one design.
pub fn find_different(names: &[&str]) -> Result<Vec<Named>, Error> {
    let mut all: Vec<Named> = Vec::new();
    for name in names {
        let named = find(name)?;
        let is_same = |other: &&Named| other.design.variants() == named.design.variants();
        if let Some(other) = all.iter().find(is_same) {
            return Err(Error::Invalid(format!(
                "`{}` and `{name}` are the same design: name two that differ",
                other.name
            )));
        }
        all.push(named);
    }
    Ok(all)
}

/// Returns two tables. The first lists the bases (named designs), each with its variants of the
/// mechanisms. The second describes every variant in one line.
#[must_use]
pub fn list() -> Vec<Table> {
    let bases = Design::BASES
        .iter()
        .map(|(name, design)| vec![(*name).to_owned(), design.variants().join(" + ")]);
    let schedules = SCHEDULES.iter().map(|variant| variant.name());
    let shepherds = SHEPHERDS.iter().map(|variant| variant.name());
    let holds = HOLDS.iter().map(|variant| variant.name());
    let owning = Owning::ALL.iter().map(|variant| variant.name());
    let counting = Counting::ALL.iter().map(|variant| variant.name());
    let reaping = Reaping::ALL.iter().map(|variant| variant.name());
    let selecting = Selecting::ALL.iter().map(|variant| variant.name());
    let groups = [
        ("when vmstat work fires", schedules.collect::<Vec<_>>()),
        ("when dormant CPUs are kicked", shepherds.collect()),
        ("pages per zone-lock hold", holds.collect()),
        ("which blocks have an owner", owning.collect()),
        ("how resident pages are counted", counting.collect()),
        ("how a dying address space is emptied", reaping.collect()),
        (
            "how the victim is chosen when memory is out",
            selecting.collect(),
        ),
    ];
    let variants = groups.iter().flat_map(|(mechanism, names)| {
        names.iter().map(|name| {
            let row = [*name, *mechanism, about(name)];
            row.map(str::to_owned).to_vec()
        })
    });
    vec![
        Table {
            title: "Designs".to_owned(),
            note: "Join names with `+` to replace a variant: `linux+phased`. Without a base, \
                   other variants are ours."
                .to_owned(),
            columns: ["design", "is"].map(str::to_owned).to_vec(),
            rows: bases.collect(),
        },
        Table {
            title: "Variants".to_owned(),
            note: String::new(),
            columns: ["variant", "mechanism", "about"]
                .map(str::to_owned)
                .to_vec(),
            rows: variants.collect(),
        },
    ]
}

fn about(variant: &str) -> &'static str {
    match variant {
        "aligned" => "all CPUs on one tick, as the thread assumed",
        "round-jiffies" => "Linux: three jiffies apart, then regrouped by the timer wheel",
        "slowed" => "control: Linux's phases at the stretched patch's mean rate",
        "stretched" => "the patch: the interval grows with the CPU's number",
        "phased" => "ours: equal intervals, a phase for each CPU, exact timers",
        "phased-wheel" => "the same phases put through the timer wheel",
        "shepherd-at-once" => "Linux: all dormant CPUs in the same instant",
        "shepherd-phased" => "ours: each at its phase; cached pages are a reason too",
        "unbatched" => "before the change: one hold per operation, up to 2016 pages",
        "unbatched-all-drain" => {
            "control: as unbatched, but allocations drain although another CPU drains"
        }
        "lists-6.12" => "Linux 6.12: decays by batch, and a flush after a batch freed in a row",
        "lists-6.18" => "Linux 6.18: decays by batch, spills of up to 2016 pages in one hold",
        "batched-zone-lock" => {
            "posted in August 2025: one batch per zone-lock hold when freeing; the pcp lock stays held"
        }
        "batched-drains" => "the posted second patch alone: only drains move one batch per hold",
        "batched" => "Linux from 6.19: one batch per hold when freeing",
        "bounded" => "ours: one batch and a time limit per hold, everywhere; moved as whole blocks",
        "bounded-pages" => "control: the same bound, page by page",
        "bounded-one-drain" => "control: as bounded, but one CPU at a time drains, as in Linux",
        "block-unowned" => "Linux: a freed page goes onto the list of the CPU that frees it",
        "block-owned-rfc" => {
            "proposed in April 2026: to the CPU that owns the block, under the lock of its lists"
        }
        "block-owned" => "ours: into the owner's inbox, without a lock; whole blocks return first",
        "shared" => "control: one atomic integer, exact",
        "flat" => "Linux: a part per CPU, folded at 2 x CPUs",
        "tree" => "the patch: carries of 32 up a tree, error bounded both ways",
        "one-sided" => "ours: a tree along the topology, half the bound, grown when needed",
        "ascending" => "Linux to 6.17: the reaper goes up from the lowest mapping, as exit does",
        "descending-by-vma" => {
            "Linux from 6.18: down from the highest mapping, each from its start"
        }
        "descending-chunks" => "proposed in 2026: down by 1 GiB, and giving way to writers",
        "meet-in-the-middle" => "ours: tables claimed upwards and downwards until all meet",
        "select-approximate" => {
            "Linux to 6.17: the largest estimate, wrong by the error of counters"
        }
        "select-precise" => "Linux from 6.18: a precise sum of every process",
        "select-two-pass" => {
            "the patch (development version): estimates, then 16 precise sums at most"
        }
        "select-bounded" => {
            "ours: the fewest precise sums that prove which process has the most points"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_offers_the_variant_that_was_meant() {
        let error = find("linux+phasd").expect_err("a slip");
        assert!(error.is_bad_input());
        assert_eq!(
            error.to_string(),
            "no variant is called `phasd`; did you mean `phased`, `shared`?"
        );
    }

    #[test]
    fn every_variant_is_described() {
        assert!(list()[1].rows.iter().all(|row| !row[2].is_empty()));
    }
}
