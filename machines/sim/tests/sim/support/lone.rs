//! `Lone`: a small machine with one address space, which tasks on several CPUs empty.

use std::rc::Rc;

use plimsoll_mm::design::Design;
use plimsoll_mm::laws::cast;
use plimsoll_mm::space::{AddressSpace, Flag, Memory, Spaces};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Sim;

use super::Small;

/// A machine with one address space, and the manager and counters that the space needs.
pub(crate) struct Lone {
    pub(crate) small: Small,
    spaces: Spaces<Sim>,
    pub(crate) space: AddressSpace<Sim>,
}

impl Lone {
    /// Creates an address space, lets `more` set it up (for example, add a listener), and runs
    /// `fill` on CPU 0.
    pub(crate) fn new(
        small: Small,
        design: &Design,
        more: impl FnOnce(AddressSpace<Sim>) -> AddressSpace<Sim>,
        fill: impl FnOnce(Memory<'_, Sim>, &AddressSpace<Sim>) + 'static,
    ) -> Rc<Self> {
        let spaces = Spaces::new(&small.sim, design, 0).expect("countable");
        Self::of(small, spaces, more, fill)
    }

    /// Like [`Lone::new`], but uses `spaces`, which the caller has created.
    pub(crate) fn of(
        small: Small,
        spaces: Spaces<Sim>,
        more: impl FnOnce(AddressSpace<Sim>) -> AddressSpace<Sim>,
        fill: impl FnOnce(Memory<'_, Sim>, &AddressSpace<Sim>) + 'static,
    ) -> Rc<Self> {
        let space = AddressSpace::new(Memory::new(&small.sim, &small.mm, &spaces));
        let space = more(space.expect("there is memory"));
        let lone = Rc::new(Self {
            small,
            spaces,
            space,
        });
        lone.after(0, 0, fill);
        lone.small.sim.run();
        lone
    }

    /// Starts `work` on a CPU, `delay` nanoseconds from now. The caller runs the machine.
    pub(crate) fn after(
        self: &Rc<Self>,
        cpu: u32,
        delay: u64,
        work: impl FnOnce(Memory<'_, Sim>, &AddressSpace<Sim>) + 'static,
    ) {
        let at = Nanos(self.small.sim.stats().now.0 + delay);
        let lone = Rc::clone(self);
        self.small.sim.spawn(CpuId(cpu), move |sim| {
            sim.sleep_until(at);
            work(lone.memory(sim), &lone.space);
        });
    }

    /// Ends the address space, if it has not ended, and frees it. Then all memory must be free.
    pub(crate) fn ends(self: Rc<Self>) {
        if !self.space.has(&self.small.sim, Flag::Ended) {
            self.after(0, 0, |memory, space| {
                space.exit(memory).expect("it was not ended before");
            });
            self.small.sim.run();
        }
        let lone = Rc::into_inner(self).expect("no task uses it");
        assert_eq!(lone.space.destroy(&lone.small.sim), Ok(()));
        cast::is_whole(Memory::new(&lone.small.sim, &lone.small.mm, &lone.spaces));
    }

    fn memory<'l>(&'l self, sim: &'l Sim) -> Memory<'l, Sim> {
        Memory::new(sim, &self.small.mm, &self.spaces)
    }
}
