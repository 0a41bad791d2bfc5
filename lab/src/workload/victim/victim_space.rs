//! A victim's address space, with its files and shared memory (its objects): how they are created
//! and emptied, and the check that all memory is freed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::{Access, AddressSpace, Backing, Flag, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::units::{CpuId, NodeId, Vpn};
use plimsoll_sim::Sim;

use super::layout::{Contents, Kind, Part};

/// The victim's address space, with the files, the shared memory and the swap that belong to it.
pub(super) struct VictimSpace {
    mm: Rc<Manager<Sim>>,
    spaces: Spaces<Sim>,
    pub(super) space: AddressSpace<Sim>,
    objects: RefCell<Vec<Arc<Object<Sim>>>>,
}

impl VictimSpace {
    /// Makes the address space of a victim that will have `contents`, with a swap area that is
    /// large enough for the victim. The address space has no mapping yet.
    pub(super) fn new(
        sim: &Sim,
        mm: &Rc<Manager<Sim>>,
        design: &Design,
        contents: &Contents,
    ) -> Self {
        let slots = u32::try_from(contents.swapped).expect("a victim is smaller than 16 TiB");
        let spaces = Spaces::new(sim, design, slots).expect("four counters fit");
        let memory = Memory::new(sim, mm, &spaces);
        let space = AddressSpace::new(memory).expect("the host has memory for it");
        Self {
            mm: Rc::clone(mm),
            spaces,
            space,
            objects: RefCell::default(),
        }
    }

    pub(super) fn memory<'a>(&'a self, sim: &'a Sim) -> Memory<'a, Sim> {
        Memory::new(sim, &self.mm, &self.spaces)
    }

    /// Maps and touches the parts of the victim's memory. One CPU of each node maps and touches the
    /// parts that belong to this node. For the node of `home`, this CPU is `home` itself.
    pub(super) fn build(self: &Rc<Self>, sim: &Sim, home: CpuId, parts: Vec<Part>) {
        let topology = sim.topology();
        let parts: Rc<[Part]> = parts.into();
        for node in 0..topology.nodes() {
            let near = |cpu: &CpuId| topology.place(*cpu).node == NodeId(node);
            let cpu = Some(home)
                .filter(near)
                .or_else(|| topology.ids().find(near));
            let Some(cpu) = cpu else { continue };
            // `Part::node` is relative to the node of `home`: 0 is the node of `home`, 1 is the
            // next node, and so on.
            let nth = (node + topology.nodes() - topology.place(home).node.0) % topology.nodes();
            let (victim_space, parts, nodes) =
                (Rc::clone(self), Rc::clone(&parts), topology.nodes());
            sim.spawn(cpu, move |sim| {
                let mine = parts.iter().filter(|part| part.node % nodes == nth);
                mine.for_each(|part| victim_space.make(sim, part));
            });
        }
        sim.run();
    }

    /// Maps one part of the victim's memory, touches its pages, and moves `part.swapped` of them to
    /// swap.
    pub(super) fn make(&self, sim: &Sim, part: &Part) {
        let memory = self.memory(sim);
        let (object, backing) = self.back(sim, part.kind);
        let request = MapRequest {
            place: Place::Fixed(part.start),
            pages: part.pages,
            backing,
        };
        let mapped = self.space.map(memory, request);
        mapped.expect("a layout's mappings are apart");
        let enough = "the machine has memory for its victim";
        let written = part.start..Vpn(part.start.0 + part.written);
        if object == Some(ObjectKind::File) {
            for page in written.start.0..written.end.0 {
                let faulted = self.space.fault(memory, Vpn(page), Access::Write);
                faulted.expect(enough);
            }
        } else {
            self.space.populate(memory, written.clone()).expect(enough);
        }
        for page in written.end.0..part.start.0 + part.touched {
            let faulted = self.space.fault(memory, Vpn(page), Access::Read);
            faulted.expect(enough);
        }
        if part.swapped > 0 {
            let pages = part.start..Vpn(part.start.0 + part.swapped);
            let went = self.space.swap_out(memory, pages);
            assert_eq!(went, part.swapped, "there is a slot for each page");
        }
    }

    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "mappings take objects that threads could share; those of this machine have none"
    )]
    fn back(&self, sim: &Sim, kind: Kind) -> (Option<ObjectKind>, Backing<Sim>) {
        let object = |kind| {
            let object = Arc::new(Object::new(sim, kind));
            self.objects.borrow_mut().push(Arc::clone(&object));
            object
        };
        match kind {
            Kind::Anonymous { huge } => (None, Backing::Anonymous { huge }),
            Kind::PrivateFile => {
                let (file, offset) = (object(ObjectKind::File), 0);
                (Some(file.kind()), Backing::PrivateFile { file, offset })
            }
            Kind::Shared => {
                let (object, offset) = (object(ObjectKind::Shared), 0);
                (Some(object.kind()), Backing::Shared { object, offset })
            }
        }
    }

    /// Kills the victim, and lets its last thread exit on the calling CPU.
    pub(super) fn exit(&self, sim: &Sim) {
        self.space.raise(sim, Flag::Killed);
        let exited = self.space.exit(self.memory(sim));
        exited.expect("a victim ends once");
    }

    /// Lets the OOM reaper empty the victim's address space while the victim's last thread exits.
    pub(super) fn reap(&self, sim: &Sim) {
        // The result does not matter: the thread that exits frees all memory that the reaper
        // leaves.
        let _ = self.space.try_reap(self.memory(sim));
    }

    /// Checks that the victim has left no page, page table or mapping, and that every count is
    /// right.
    ///
    /// # Panics
    /// If something remains, or a count is wrong.
    pub(super) fn end(self, sim: &Sim) {
        assert!(self.space.has(sim, Flag::Ended), "it has not ended");
        assert_eq!(self.space.table_pages(sim), 0, "a page table is left");
        assert_eq!(self.spaces.lru().total(sim), 0, "a page is still aged");
        assert_eq!(self.spaces.swap().used(sim), 0, "a slot is still taken");
        assert_eq!(self.space.destroy(sim), Ok(()), "a counter is off");
        for object in self.objects.take() {
            object.empty(sim, self.mm.pages());
        }
    }
}
