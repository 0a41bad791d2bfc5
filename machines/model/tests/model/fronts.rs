//! Checks, with both model checkers, the laws of runs of pages that move directly between a CPU's
//! front (its stack of free pages) and the zone, and other laws on machines with fronts.

use plimsoll_mm::laws::{self, fronts};
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{Fronts, loom, shuttle};

/// The number of random interleavings that shuttle tries for each law.
const SCHEDULES: u32 = 4000;

const KINDS: [Fronts; 2] = [Fronts::Exchanging, Fronts::Storing];

#[test]
fn loom_runs_to_and_from_the_zone() {
    in_own_process(|| {
        let exchanging = Fronts::Exchanging;
        loom::run_law_with(exchanging, &fronts::giving_against_taking(), 2, 3);
        loom::run_law_with(exchanging, &fronts::runs_freed_twice(), 2, 3);
        loom::run_law_with(Fronts::Storing, &fronts::runs_freed_twice(), 2, 2);
    });
}

#[test]
fn shuttle_runs_to_and_from_the_zone() {
    for kind in KINDS {
        shuttle::run_law_with(kind, &fronts::giving_against_taking(), 2, SCHEDULES);
        shuttle::run_law_with(kind, &fronts::runs_against_drains(), 3, SCHEDULES);
    }
}

/// With fronts that store tags, the store of one CPU may come only after the other CPU has moved the
/// page to the zone. The zone notices this.
#[test]
fn shuttle_runs_freed_twice() {
    let law = fronts::runs_freed_twice();
    for kind in KINDS {
        shuttle::run_law_with(kind, &law, 2, SCHEDULES);
    }
}

#[test]
fn shuttle_laws_of_lists_with_fronts() {
    for kind in KINDS {
        shuttle::run_law_with(kind, &laws::drain_against_local(), 2, SCHEDULES);
        shuttle::run_law_with(kind, &laws::churn_against_churn(), 2, SCHEDULES);
        shuttle::run_law_with(kind, &laws::double_free_is_refused(), 2, SCHEDULES);
    }
}
