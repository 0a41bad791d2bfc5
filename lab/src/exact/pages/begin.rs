//! The state in which the replay begins: the zones and lists that `/proc/zoneinfo` showed, and the
//! facts about the lists that later events reveal.

use std::collections::HashMap;

use plimsoll_mm::design::Design;
use plimsoll_mm::page::ZoneKind;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::units::Pages;
use plimsoll_recording::{Header, Recording, What};

use super::follow::{Follow, pages};
use super::infer::Inferred;
use super::lists::{LISTS, ListId, Place};
use super::marks::note;
use super::memory::kind_of;
use super::op::{Action, Kind, Op};
use super::stand_in::{Knobs, StandIn, Start};
use super::zoneinfo::{self, ListInfo, ZoneInfo};

/// The texts of a recording that hold `/proc/zoneinfo`, the best text first. Beside each text is
/// the name of a mark. The recorder wrote this mark into the recording right after it had read the
/// text.
const MOMENTS: [(&str, &str); 2] = [
    ("zoneinfo settled", "settled"),
    ("zoneinfo before", "read zoneinfo before"),
];

/// A moment of the recording at which the state of the zones is known.
pub(super) struct Moment {
    pub(super) zones: Vec<ZoneInfo>,
    /// The index of the event by which the recorder marked the moment, or 0 if the recording lacks
    /// this event.
    pub(super) event: usize,
}

impl Moment {
    /// Returns the moment of a recording at which the replay can best begin: the first of
    /// [`MOMENTS`] whose text has zones and whose mark is in the recording. If there is no such
    /// moment, returns the first whose text has zones. Returns `None` if no text has zones.
    pub(super) fn of(recording: &Recording) -> Option<Self> {
        let mark = |wanted: &str| {
            let is_it = |what: &What| matches!(what, What::Mark(text) if note(text) == wanted);
            recording.events.iter().position(|event| is_it(&event.what))
        };
        let known = MOMENTS.iter().filter_map(|(text, after)| {
            let zones = zoneinfo::parse(recording.header.text(text)?);
            (!zones.is_empty()).then(|| (zones, mark(after)))
        });
        let mut known: Vec<_> = known.collect();
        let best = known
            .iter()
            .position(|(_, event)| event.is_some())
            .unwrap_or(0);
        if known.is_empty() {
            return None;
        }
        let (zones, event) = known.swap_remove(best);
        Some(Self {
            zones,
            event: event.unwrap_or(0),
        })
    }
}

/// The state of zones and lists at the moment where the replay begins.
pub(crate) struct State {
    pub(crate) zones: Vec<ZoneState>,
    /// The index of the first operation at or after the moment where the replay begins.
    pub(crate) first: usize,
}

/// The state of one zone when the replay begins. All sizes are in pages.
pub(crate) struct ZoneState {
    pub(crate) kind: ZoneKind,
    pub(crate) managed: u64,
    pub(crate) free: u64,
    pub(crate) marks: Watermarks,
    pub(crate) sizes: Sizes,
    /// For each CPU, the state of its lists in the zone, or `None` if the CPU is offline.
    pub(crate) lists: Vec<Option<CpuState>>,
}

/// The state of one CPU's lists in a zone. Some pages were on the lists before the recording, and
/// no event shows them. The replay assumes that all such pages are on the list `home`.
pub(crate) struct CpuState {
    pub(crate) start: Start,
    batch: u32,
    home: ListId,
    /// The number of pages that were on the CPU's lists before the recording and that no event
    /// shows.
    never_seen: u32,
}

impl State {
    pub(super) fn of(header: &Header, moment: &Moment, inferred: &Inferred) -> Self {
        let is_before = |op: &&Op| (op.event as usize) < moment.event;
        let first = inferred.ops.iter().take_while(is_before).count();
        let mut until = Follow::default();
        for (place, frames) in &inferred.before {
            until.add_before(*place, frames.len());
        }
        inferred.ops[..first].iter().for_each(|op| until.note(op));
        let knobs = knobs(header, &moment.zones);
        let emptied = emptied(inferred, first);
        let of_cpu = |at: u8, cpu: u32, lists: &ListInfo| {
            let home = home((at, cpu), &emptied);
            let count = u32::try_from(lists.count).unwrap_or(u32::MAX);
            let seen = until.lens(at, cpu);
            CpuState {
                start: Start {
                    high: u32::try_from(lists.high).unwrap_or(u32::MAX),
                    blocks: with_rest(seen, count, home),
                    ..Start::default()
                },
                batch: u32::try_from(lists.batch).unwrap_or(63),
                home,
                never_seen: count.saturating_sub(pages(&seen)),
            }
        };
        let of_zone = |(at, zone): (u8, &ZoneInfo)| ZoneState {
            kind: kind_of(&zone.name),
            managed: zone.managed,
            free: zone.free,
            marks: marks(zone),
            sizes: sizes(zone, &knobs),
            lists: (0..)
                .zip(&zone.lists)
                .map(|(cpu, lists)| lists.as_ref().map(|lists| of_cpu(at, cpu, lists)))
                .collect(),
        };
        let zones = (0..).zip(&moment.zones).map(of_zone).collect();
        Self { zones, first }
    }
}

/// Plimsoll's allocator and the derived lists (our picture of the kernel's lists), ready for the
/// first operation.
pub(super) struct Beginning {
    pub(super) stand_in: StandIn,
    pub(super) follow: Follow,
    /// The index of the first operation to perform.
    pub(super) first: usize,
}

impl Beginning {
    pub(super) fn of(
        recording: &Recording,
        moment: &Moment,
        inferred: &Inferred,
        design: Design,
    ) -> Result<Self, String> {
        let state = State::of(&recording.header, moment, inferred);
        let knobs = knobs(&recording.header, &moment.zones);
        let mut stand_in = StandIn::new(design, &moment.zones, &knobs)?;
        let mut follow = Follow::default();
        for (at, zone) in (0..).zip(&state.zones) {
            stand_in.set_sizes(at, zone.marks, zone.sizes)?;
            for (cpu, lists) in (0..).zip(&zone.lists) {
                let Some(lists) = lists else { continue };
                stand_in.seed(at, cpu, &lists.start)?;
                let blocks = lists.start.blocks;
                follow.begin(
                    (at, cpu),
                    blocks,
                    (lists.batch, zone.sizes.high_max.0),
                    lists.home,
                );
                follow.set_never_seen((at, cpu), lists.never_seen);
                let node = knobs.nodes.get(cpu as usize);
                if node.is_some_and(|node| *node != moment.zones[usize::from(at)].node) {
                    follow.set_remote((at, cpu));
                }
            }
        }
        let lasts = |op: &&Op| {
            matches!(
                op.action,
                Action::Reclaim { .. } | Action::Sleep { .. } | Action::Boost { .. }
            )
        };
        for op in inferred.ops[..state.first].iter().filter(lasts) {
            stand_in.perform(op);
        }
        Ok(Self {
            stand_in,
            follow,
            first: state.first,
        })
    }
}

/// Adds blocks to the list `home` until all lists together have `count` pages, as `/proc/zoneinfo`
/// showed. The replay assumes that pages which no event shows are on the list `home`. `lens` has
/// the number of blocks on each list before the call.
fn with_rest(mut lens: [u32; LISTS], count: u32, home: ListId) -> [u32; LISTS] {
    lens[home.index()] += count.saturating_sub(pages(&lens)) / home.pages();
    lens
}

/// The lists that the kernel refills in operation `first` or later. The kernel refills a list only
/// when the list is empty.
fn emptied(inferred: &Inferred, first: usize) -> HashMap<Place, ()> {
    let refills = inferred.ops[first..].iter().flat_map(|op| {
        let refills = op
            .moves
            .iter()
            .filter(|transfer| transfer.kind == Kind::Refill);
        refills.flat_map(|transfer| {
            transfer.lists.iter().map(|&(list, _)| Place {
                cpu: op.cpu,
                zone: transfer.zone,
                list,
            })
        })
    });
    refills.map(|place| (place, ())).collect()
}

/// Returns the list on which the replay puts the CPU's listed pages that no event shows. This is
/// the first list for which no event shows that it was ever empty. The function tries the list of
/// movable single pages first, because most pages are movable. If events show that every list was
/// empty at some time, returns the list of reclaimable single pages.
fn home((zone, cpu): (u8, u32), emptied: &HashMap<Place, ()>) -> ListId {
    let single = [1, 0, 2].into_iter();
    let mut lists = single.chain(3..12).map(ListId);
    let never = |list: &ListId| {
        let place = Place {
            cpu,
            zone,
            list: *list,
        };
        !emptied.contains_key(&place)
    };
    lists.find(never).unwrap_or(ListId(2))
}

fn knobs(header: &Header, zones: &[ZoneInfo]) -> Knobs {
    let number = |name: &str| header.text(name)?.trim().parse().ok();
    let cpus = zones.iter().map(|zone| zone.lists.len()).max().unwrap_or(1);
    let offline = |cpu: &usize| {
        let listed = |zone: &ZoneInfo| zone.lists.get(*cpu).is_some_and(Option::is_some);
        !zones.iter().any(listed)
    };
    let cpu = |cpu: usize| u32::try_from(cpu).unwrap_or(u32::MAX);
    let nodes = header.text("nodes").unwrap_or_default();
    Knobs {
        min_free_kib: number("min_free_kbytes").unwrap_or(0),
        high_fraction: number("percpu_pagelist_high_fraction").unwrap_or(0),
        nodes: (0..cpu(cpus)).map(|cpu| node_of(cpu, nodes)).collect(),
        offline: (0..cpus).filter(offline).map(cpu).collect(),
        cache_slice: number("cache slice").map(Pages::from_bytes),
    }
}

/// The node of `cpu` according to `text`, in which each line lists a node and its CPUs, such as
/// `1 4-7`. Returns 0 if no line lists the CPU.
fn node_of(cpu: u32, text: &str) -> u32 {
    let has = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bound = |text: &str| text.trim().parse::<u32>().ok();
        let (first, last) = (bound(first), bound(last));
        first
            .zip(last)
            .is_some_and(|(first, last)| (first..=last).contains(&cpu))
    };
    let node = |line: &str| {
        let (node, cpus) = line.split_once(' ')?;
        cpus.split(',').any(has).then_some(node.parse().ok()?)
    };
    text.lines().find_map(node).unwrap_or(0)
}

fn count(value: u64) -> Pages {
    Pages(u32::try_from(value).unwrap_or(u32::MAX))
}

fn marks(zone: &ZoneInfo) -> Watermarks {
    let [min, low, high] = zone.marks.map(count);
    Watermarks { min, low, high }
}

/// Returns the sizes of a zone's lists as `/proc/zoneinfo` prints them. If that file omits the
/// bounds of `high`, this function computes the bounds from the zone's managed pages and from the
/// low watermark that the file prints. It does not recompute the low watermark, because Linux may
/// have computed the printed value when the zone had fewer pages.
fn sizes(zone: &ZoneInfo, knobs: &Knobs) -> Sizes {
    // The CPUs of a node share the node's memory. If the node has no CPUs, all CPUs share its
    // memory.
    let near = zone.lists.iter().zip(&knobs.nodes);
    let near = near.filter(|(lists, node)| lists.is_some() && **node == zone.node);
    let cpus = match u32::try_from(near.count()) {
        Ok(0) | Err(_) => zone.cpus().max(1),
        Ok(near) => near,
    };
    let sizes = Sizes::of(
        count(zone.managed),
        count(zone.marks[1]),
        cpus,
        knobs.high_fraction,
    );
    let Some(lists) = zone.lists.iter().flatten().next() else {
        return sizes;
    };
    let batch = count(lists.batch);
    match lists.bounds {
        Some((low, high)) => Sizes {
            batch,
            high_min: count(low),
            high_max: count(high),
        },
        None => {
            let high_max = shown_high_max(zone, &sizes).unwrap_or(sizes.high_max);
            Sizes {
                batch,
                high_max,
                ..sizes
            }
        }
    }
}

/// Derives the upper bound of `high` from the lists: it is the highest `high` of any CPU. Returns
/// `None` unless several CPUs have this `high` and it lies between the computed bounds. The derived
/// bound can be lower than the computed upper bound, because Linux may have computed its bound when
/// the zone had fewer pages.
fn shown_high_max(zone: &ZoneInfo, sizes: &Sizes) -> Option<Pages> {
    let highs = || zone.lists.iter().flatten().map(|lists| lists.high);
    let most = highs().max()?;
    let there = highs().filter(|high| *high == most).count();
    let bounds = u64::from(sizes.high_min.0) + 1..u64::from(sizes.high_max.0);
    (there > 1 && bounds.contains(&most)).then(|| count(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_cpu_is_read_from_lists() {
        let nodes = |text| [0, 1, 2, 3].map(|cpu| node_of(cpu, text));
        assert_eq!(nodes("0 0-1\n1 2-3\n"), [0, 0, 1, 1]);
        assert_eq!(nodes("0 0,2\n1 1,3"), [0, 1, 0, 1]);
        assert_eq!(nodes("2 \n1 0-3"), [1; 4]);
        assert_eq!(nodes(""), [0; 4]);
    }

    /// `high_min` is the zone's low watermark, divided by the number of online CPUs that share the
    /// zone.
    #[test]
    fn the_cpus_of_a_node_share_its_low_watermark() {
        let lists = ListInfo {
            batch: 63,
            ..ListInfo::default()
        };
        let zone = |node| ZoneInfo {
            node,
            managed: 1 << 17,
            marks: [800, 1000, 1200],
            lists: vec![Some(lists), Some(lists), None, Some(lists)],
            ..ZoneInfo::default()
        };
        let knobs = |text| knobs_of(text, &zone(0));
        let high_min = |node, text| sizes(&zone(node), &knobs(text)).high_min;
        // The cases are three CPUs on one node, two nodes with two CPUs and one CPU, and a node
        // without CPUs. All CPUs share the memory of the node without CPUs.
        assert_eq!(high_min(0, ""), Pages(333));
        assert_eq!(high_min(0, "0 0-1\n1 2-3"), Pages(500));
        assert_eq!(high_min(1, "0 0-1\n1 2-3"), Pages(1000));
        assert_eq!(high_min(1, "0 0-3\n1 "), Pages(333));
    }

    fn knobs_of(nodes: &str, zone: &ZoneInfo) -> Knobs {
        let mut header = Header::default();
        header.texts.push(("nodes".to_owned(), nodes.to_owned()));
        knobs(&header, std::slice::from_ref(zone))
    }

    #[test]
    fn several_cpus_at_the_same_highest_high_show_its_upper_bound() {
        let lists = |high| {
            Some(ListInfo {
                high,
                batch: 63,
                ..ListInfo::default()
            })
        };
        let high_max = |highs: [u64; 3]| {
            let zone = ZoneInfo {
                managed: 1 << 17,
                marks: [800, 1000, 1200],
                lists: highs.map(lists).to_vec(),
                ..ZoneInfo::default()
            };
            sizes(&zone, &knobs_of("", &zone)).high_max
        };
        let computed = Pages((1 << 17) / 8 / 3);
        assert_eq!(high_max([5000, 400, 5000]), Pages(5000));
        assert_eq!(
            high_max([5000, 400, 4000]),
            computed,
            "one may be on its way up"
        );
        assert_eq!(high_max([333; 3]), computed, "that is the lower bound");
        assert_eq!(high_max([9000; 3]), computed, "higher than it can be");
    }
}
