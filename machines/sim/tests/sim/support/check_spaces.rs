//! Promise: the counters of an address space agree with its memory. When all address spaces have
//! ended, their counters are zero and all memory has been freed.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::space::Flag;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::vma_tree::Cursor;
use plimsoll_mm::units::Vpn;
use plimsoll_mm::vmstat::counters::{NodeItem, ZoneItem};
use plimsoll_sim::Sim;

use super::check_owners::Owners;
use super::check_tables;
use super::space_shared::{Process, SpaceShared};

/// For each phase of the work on dying address spaces, how many times it began and how many times
/// it ended.
#[derive(Debug, Default)]
pub(crate) struct Phases(BTreeMap<Phase, [u64; 2]>);

impl Phases {
    pub(crate) fn note(&mut self, event: &Event) {
        match *event {
            Event::Begin(phase) => self.0.entry(phase).or_default()[0] += 1,
            Event::End(phase) => self.0.entry(phase).or_default()[1] += 1,
            _ => {}
        }
    }

    /// Checks that each phase ended as often as it began, and that page tables were freed once for
    /// each of `processes`. No operation may be in progress.
    pub(crate) fn check(&self, processes: usize) {
        for (phase, [begun, ended]) in &self.0 {
            assert_eq!(begun, ended, "{phase:?} ends as often as it begins");
        }
        let finished = |phase| self.0.get(&phase).map_or(0, |times| times[0]);
        assert_eq!(
            finished(Phase::FreeTables),
            processes as u64,
            "every space is finished once"
        );
        assert!(finished(Phase::Exit) >= processes as u64);
    }
}

/// Compares all counters with the memory of the address spaces. No operation may be in progress,
/// and no address space may have been emptied by a helper such as the reaper.
pub(crate) fn check_quiet(sim: &Sim, shared: &SpaceShared, owners: &Owners) {
    let of = |kind| -> u64 {
        let pages = |process: &Process| process.space.rss().precise(sim, kind);
        shared.processes.iter().map(pages).sum()
    };
    let anonymous = of(RssKind::Anon);
    let mm = &shared.mm;
    assert_eq!(mm.counted_on_nodes(sim, NodeItem::AnonMapped), anonymous);
    assert_eq!(mm.pages().counted(sim, ZoneItem::Anon), anonymous);
    let swapped = u64::from(shared.spaces.swap().used(sim));
    assert_eq!(swapped, of(RssKind::Swap));
    let tables: u64 = shared
        .processes
        .iter()
        .map(|process| process.space.table_pages(sim))
        .sum();
    assert_eq!(mm.counted_on_nodes(sim, NodeItem::PageTables), tables);
    let reserved: u64 = shared
        .processes
        .iter()
        .map(|process| 512 * check_tables::reserved(sim, &process.space))
        .sum();
    let in_objects: u64 = shared
        .objects
        .iter()
        .map(|object| object.present(sim))
        .sum();
    let owned: u64 = shared
        .layout
        .zones
        .iter()
        .map(|zone| u64::from(owners.owned(zone)))
        .sum();
    assert_eq!(
        owned,
        anonymous + tables + reserved + in_objects,
        "every page is known: {tables} of tables, {reserved} reserved, {in_objects} in objects"
    );
    let aged = shared.spaces.lru().total(sim);
    assert!(aged >= 0 && aged.cast_unsigned() <= anonymous + shared.cached(sim));
    for process in &shared.processes {
        assert!(check_tables::check(sim, process), "nothing is under way");
        let own = process.space.rss().precise(sim, RssKind::Anon);
        if let Some(budget) = process.space.budget() {
            assert_eq!(budget.used(sim), own);
            assert!(own <= budget.limit());
        }
    }
}

/// Checks that no address space has pages any more, and that only pages of files are still on the
/// lists by which pages are aged. All address spaces must have ended.
pub(crate) fn check_ended(sim: &Sim, shared: &SpaceShared) {
    for process in &shared.processes {
        let space = &process.space;
        assert_eq!((process.exits.get(), process.users.get()), (1, 0));
        for flag in [Flag::Exiting, Flag::Ended, Flag::Skip] {
            assert!(space.has(sim, flag), "{flag:?}");
        }
        assert_eq!(space.table_pages(sim), 0);
        assert_eq!(Cursor::at(space.mappings(), Vpn(0)).forward(), Ok(None));
        for kind in RssKind::ALL {
            assert_eq!(space.rss().precise(sim, kind), 0, "{kind:?}");
        }
    }
    for budget in &shared.budgets {
        assert_eq!(budget.used(sim), 0, "{budget:?}");
    }
    assert_eq!(shared.spaces.swap().used(sim), 0);
    let aged = shared.spaces.lru().total(sim);
    assert_eq!(aged, shared.cached(sim).cast_signed(), "only of files");
    for item in [NodeItem::PageTables, NodeItem::AnonMapped] {
        assert_eq!(shared.mm.counted_on_nodes(sim, item), 0, "{item:?}");
    }
    assert_eq!(shared.mm.pages().counted(sim, ZoneItem::Anon), 0);
    assert_eq!(shared.listeners.open.load(Relaxed), 0);
}
