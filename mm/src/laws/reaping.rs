//! Laws (tests for threads, model checkers and the simulator) of several walkers (CPUs that empty
//! one dying address space together): every page is freed exactly once, and one walker ends the
//! space.

use super::dying::{Dying, Stubborn};
use super::{Body, Law};
use crate::machine::Machine;
use crate::space::AddressSpace;
use crate::space::reap::Reaping;

fn law<M: Machine>(
    name: &'static str,
    setup: fn(&M) -> Dying<M>,
    bodies: &[Body<M, Dying<M>>],
) -> Law<M, Dying<M>> {
    Law {
        name,
        setup,
        bodies: bodies.to_vec(),
        check: |machine, dying| dying.ends_whole(machine),
    }
}

fn meet<M: Machine>(machine: &M) -> Dying<M> {
    Dying::new(machine, Reaping::MeetInTheMiddle)
}

/// The last user of an address space and one helper (such as the reaper) empty it at the same time.
/// Each page is freed once.
#[must_use]
pub fn exit_against_reaper<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "every page is back once, however walkers share the work",
        meet,
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
        ],
    )
}

/// The last user of an address space empties it beside three helpers (such as the reaper), one of
/// which waits for the lock of the mappings. Each page is freed once.
#[must_use]
pub fn exit_against_helpers<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "every page is back once, however many helpers come",
        meet,
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.release(machine),
            |machine, dying| dying.reap(machine),
        ],
    )
}

/// The last user of an address space empties it beside two helpers (such as the reaper). As in
/// Linux, each of them goes through the whole space, and still each page is freed once.
#[must_use]
pub fn exit_past_helpers<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "every page is back once, though every walker goes through the whole space",
        |machine| Dying::new(machine, Reaping::DescendingChunks),
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.release(machine),
        ],
    )
}

/// Two CPUs both try to end the space as its last user, while a helper (such as the reaper) empties
/// it. One of the two gets an error.
#[must_use]
pub fn two_exits<M: Machine>() -> Law<M, Dying<M>> {
    let exit: Body<M, Dying<M>> = |machine, dying| dying.exit(machine);
    law(
        "of two CPUs that end an address space, one gets an error",
        meet,
        &[exit, exit, |machine, dying| dying.reap(machine)],
    )
}

/// A holder of translations (Linux: an MMU notifier) refuses to let helpers empty one table. In the
/// end, this table is emptied too.
#[must_use]
pub fn exit_against_refusal<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "tables that a helper was refused are emptied all the same",
        |machine| {
            let stubborn = |space: AddressSpace<M>| space.notifying(Stubborn);
            Dying::with(machine, Reaping::MeetInTheMiddle, stubborn)
        },
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.release(machine),
        ],
    )
}
