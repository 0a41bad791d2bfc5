//! Page lists: compares each refill, spill, decay and drain of Plimsoll with the kernel's.
//!
//! ```text
//! events ──infer──> operations, and what the kernel moved for each
//!                        │ perform, on the page allocator of `mm`
//!                        v
//!              what Plimsoll moves for each ──compare──> identical or not
//! ```
//!
//! - `lists`, `future`, `rounds`, `boost`, `infer`: derive the kernel's lists, frame by frame, and
//!   the kernel's reclaim.
//! - `zoneinfo`, `begin`: set up the initial state.
//! - `machine`, `memory`, `stand_in`: perform operations.
//! - `pair`, `compare`, `follow`: compare Plimsoll's moves with the kernel's.
//! - `missing`: says which data the recording lacks.
//! - `report`: renders tables and notes.
//! - `marks`: reads the recorder's notes.
//! - `version`: chooses the design for the recorded kernel.

mod begin;
mod boost;
mod compare;
mod follow;
mod future;
mod infer;
pub(crate) mod lists;
mod machine;
mod marks;
pub(crate) mod memory;
mod missing;
pub(crate) mod op;
mod pair;
mod report;
mod rounds;
mod stand_in;
mod version;
mod zoneinfo;

use std::collections::BTreeMap;

use plimsoll_mm::design::Design;
use plimsoll_recording::{Recording, What};

pub(crate) use self::begin::State;
use self::begin::{Beginning, Moment};
use self::infer::Inferred;
use self::op::Op;
use super::{Judge, Judgement};

/// Compares the kernel's page lists with Plimsoll's.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageLists {
    /// The design (one variant of each mechanism) to compare with the kernel. `None` stands for the
    /// design of the recorded kernel's version.
    pub design: Option<Design>,
}

impl Judge for PageLists {
    fn name(&self) -> &'static str {
        "page-lists"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let moment = moment(recording)?;
        let mut judgement = Judgement {
            subject: "page lists".to_owned(),
            unit: "moves",
            ..Judgement::default()
        };
        let design = self.design.unwrap_or_else(|| {
            let chosen = version::of_release(&recording.header.release);
            judgement.notes.extend(chosen.warning);
            chosen.design
        });
        let inferred = Inferred::of(recording, &moment.zones, moment.event);
        match Beginning::of(recording, &moment, &inferred, design) {
            Ok(beginning) => fill(&mut judgement, recording, &moment, &inferred, beginning),
            Err(error) => judgement
                .notes
                .push(format!("Nothing was compared: {error}.")),
        }
        Some(judgement)
    }
}

/// The moment from which a recording shows the contents of the page lists. `None` if the recording
/// lacks `/proc/zoneinfo` or has no refills.
fn moment(recording: &Recording) -> Option<Moment> {
    let refills = |what: &What| matches!(what, What::ZoneLocked { .. });
    let shows_refills = recording.events.iter().any(|event| refills(&event.what));
    Moment::of(recording).filter(|_| shows_refills)
}

/// The state of zones and lists when `/proc/zoneinfo` was read, and the operations after it.
pub(crate) struct History {
    pub(crate) state: State,
    pub(crate) ops: Vec<Op>,
}

impl History {
    /// Derives from a recording the state at which the replay begins, and the operations after it.
    /// Returns `None` if the recording does not show the state of the lists.
    pub(crate) fn of(recording: &Recording) -> Option<Self> {
        let moment = moment(recording)?;
        let mut inferred = Inferred::of(recording, &moment.zones, moment.event);
        let state = State::of(&recording.header, &moment, &inferred);
        let ops = inferred.ops.split_off(state.first);
        Some(Self { state, ops })
    }
}

fn fill(
    judgement: &mut Judgement,
    recording: &Recording,
    moment: &Moment,
    inferred: &Inferred,
    beginning: Beginning,
) {
    let Beginning {
        mut stand_in,
        follow,
        first,
    } = beginning;
    let ops = &inferred.ops[first..];
    let mut pairs = compare::perform(&mut stand_in, ops, follow);
    let notes = &mut judgement.notes;
    notes.extend(missing::set_lossy_aside(recording, &mut pairs));
    notes.extend(missing::notes(&recording.header));
    let compared = || pairs.iter().filter(|pair| !pair.unknown);
    judgement.compared = compared().count() as u64;
    judgement.identical = compared().filter(|pair| pair.is_same()).count() as u64;
    judgement.set_aside = pairs.len() as u64 - judgement.compared;
    judgement.first_difference = report::first_difference(recording, &moment.zones, ops, &pairs);
    let kernel = report::left_at_end(recording);
    let ours = (0..)
        .take(stand_in.cpus())
        .map(|cpu| (cpu, stand_in.listed(cpu)));
    let left: BTreeMap<u32, (Option<u64>, u64)> = ours
        .map(|(cpu, ours)| (cpu, (kernel.get(&cpu).copied(), ours)))
        .collect();
    judgement.tables = report::tables(&pairs, &left);
    judgement
        .notes
        .extend(report::notes(&inferred.tally, &pairs, stand_in.refused));
}
