//! A thread of a process. The thread maps, unmaps and touches memory in its part of the address
//! space, in which no other thread maps or unmaps. It also touches pages of other threads' parts.
//! Neighbouring parts may share page tables.

use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::space::{
    Access, Backing, FaultError, Faulted, Flag, MapError, MapRequest, MappingKind, Place,
};
use plimsoll_mm::units::{CpuId, Nanos, Pfn, Vpn};
use plimsoll_sim::Sim;

use super::check_tables;
use super::dice::Dice;
use super::space_shared::{Process, Shared};

/// The number of pages in each thread's part. It is not a multiple of 512, the number of pages that
/// a page table maps, so neighbouring parts share a page table.
const PART: u64 = 3000;
/// The number of pages in a huge page.
const HUGE: u64 = 512;
/// The page number at which the first thread's part of the address space begins. It is 4000 pages
/// below the end of an upper page table (Linux: PMD page), so the second thread's part crosses into
/// the next upper table.
const BASE: u64 = (1 << 20) - 4000;

/// One thread of a process: its part of the address space, and the mappings that it owns there.
pub(crate) struct User {
    shared: Shared,
    process: usize,
    part: u64,
    dice: Dice,
    owned: Vec<Owned>,
}

/// Pages that the thread has mapped, from `start` to before `end`: a mapping, or the part of a
/// mapping that an unmapping has left.
#[derive(Clone, Copy, Debug)]
struct Owned {
    start: u64,
    end: u64,
    kind: MappingKind,
}

/// The result of a step. After an error, the thread performs no further step.
type Goes = Result<(), Leaves>;

/// The thread leaves because its process has been told to die.
pub(crate) struct Leaves;

impl User {
    pub(crate) fn new(shared: &Shared, sim: &Sim, process: usize, number: u32) -> Self {
        let who = 100 + 10 * process as u64 + u64::from(number);
        let users = &shared.processes[process].users;
        users.set(users.get() + 1);
        Self {
            shared: Shared::clone(shared),
            process,
            part: BASE + u64::from(number) * PART,
            dice: Dice::new(sim.seed(), who),
            owned: Vec::new(),
        }
    }

    fn process(&self) -> &Process {
        &self.shared.processes[self.process]
    }

    /// Does all steps of the thread, or fewer if its process is killed in the meantime.
    pub(crate) fn act(&mut self, sim: &Sim) {
        for _ in 0..self.shared.plan.steps {
            sim.spend(Work::Think, self.dice.below(3000));
            if self.process().is_killed(sim) && self.dice.chance(50) {
                return;
            }
            let goes = self.step(sim);
            let process = self.process();
            process.shadow.compare(sim, &process.space);
            check_tables::check_reaped(sim, process);
            if let Err(Leaves) = goes {
                return;
            }
        }
    }

    /// Does all steps of the thread, or fewer if its process is killed in the meantime. Then leaves
    /// the process.
    pub(crate) fn act_and_leave(mut self, sim: &Sim) {
        self.act(sim);
        self.process().leave(&self.shared, sim);
    }

    fn step(&mut self, sim: &Sim) -> Goes {
        match self.dice.below(20) {
            0..4 => self.map(sim),
            4..6 => self.unmap(sim),
            6..12 => self.touch(sim),
            12..16 => self.populate(sim),
            16..18 => self.swap_out(sim),
            18 => {
                sim.migrate(CpuId(self.dice.below(sim.topology().cpus())));
                Ok(())
            }
            _ => {
                sim.sleep(Nanos(u64::from(self.dice.below(300_000))));
                Ok(())
            }
        }
    }

    fn backing(&mut self) -> Backing<Sim> {
        let object = Arc::clone(self.dice.pick(&self.shared.objects));
        let offset = u64::from(self.dice.below(50));
        match self.dice.below(8) {
            0..3 => Backing::Anonymous { huge: false },
            3 => Backing::Anonymous { huge: true },
            4 => Backing::PrivateFile {
                file: object,
                offset,
            },
            5 => Backing::Shared { object, offset },
            6 => Backing::Reserved,
            _ => Backing::Frames {
                first: Pfn(1 << 30),
            },
        }
    }

    /// Maps random memory: at a random place in this thread's part of the address space, or
    /// wherever the address space finds room.
    fn map(&mut self, sim: &Sim) -> Goes {
        let backing = self.backing();
        let reserved = matches!(backing, Backing::Reserved);
        let kind = kind_of(&backing);
        let mut pages = u64::from(self.dice.between(1, self.shared.plan.span));
        let mut start = self.part + self.draw(PART);
        if reserved || self.dice.chance(30) {
            pages = pages.next_multiple_of(HUGE);
            start = start.next_multiple_of(HUGE);
        }
        let inside = start + pages <= self.part + PART;
        let is_free = |owned: &Owned| owned.end <= start || start + pages <= owned.start;
        let place = match self.dice.below(4) {
            _ if !inside => *self.dice.pick(&[Place::Lowest, Place::Highest]),
            0 if self
                .owned
                .iter()
                .all(|owned| owned.kind != MappingKind::Reserved) =>
            {
                Place::Replace(Vpn(start))
            }
            _ if self.owned.iter().all(is_free) => Place::Fixed(Vpn(start)),
            _ => *self.dice.pick(&[Place::Lowest, Place::Highest]),
        };
        let request = MapRequest {
            place,
            pages,
            backing,
        };
        let process = self.process();
        let memory = self.shared.memory(sim);
        match process.changing(|| process.space.map(memory, request)) {
            Ok(vma) => {
                assert!(vma.pages() >= pages, "it may be a part of its like");
                self.check(sim);
                if let Place::Fixed(Vpn(start)) | Place::Replace(Vpn(start)) = place {
                    let end = start + pages;
                    self.own(Owned { start, end, kind });
                }
                Ok(())
            }
            Err(MapError::TooMany(_) | MapError::NoRoom(_)) => Ok(()),
            Err(MapError::Killed) => self.was_killed(sim),
            Err(why) => panic!("{why:?} to {place:?} of {pages} {kind:?}"),
        }
    }

    /// Records that the thread owns the mapping `new`, which replaced any mappings in its range.
    fn own(&mut self, new: Owned) {
        let meets = |owned: &mut Owned| owned.start < new.end && new.start < owned.end;
        let met: Vec<Owned> = self.owned.extract_if(.., meets).collect();
        for old in met {
            self.keep(old, [(old.start, new.start), (new.end, old.end)]);
        }
        self.owned.push(new);
    }

    /// Records the `parts` that remain of the mapping `owned`, except empty parts.
    fn keep(&mut self, owned: Owned, parts: [(u64, u64); 2]) {
        let parts = parts.into_iter().filter(|(start, end)| start < end);
        self.owned.extend(parts.map(|(start, end)| Owned {
            start,
            end,
            ..owned
        }));
    }

    fn was_killed(&self, sim: &Sim) -> Goes {
        assert!(self.process().is_killed(sim));
        self.shared.note(|met| met.killed_waiting += 1);
        Err(Leaves)
    }

    /// Unmaps a mapping or only a piece of it. Reserved huge pages are always unmapped as a whole.
    fn unmap(&mut self, sim: &Sim) -> Goes {
        if self.owned.is_empty() {
            return Ok(());
        }
        let owned = self.owned.swap_remove(self.dice.index(self.owned.len()));
        let (mut start, mut end) = (owned.start, owned.end);
        if owned.kind != MappingKind::Reserved && self.dice.chance(60) {
            start += self.draw(end - start);
            end = start + 1 + self.draw(end - start);
        }
        let process = self.process();
        let memory = self.shared.memory(sim);
        let unmapped = process.changing(|| process.space.unmap(memory, Vpn(start), end - start));
        match unmapped {
            Ok(()) => {
                check_tables::check_unmapped(sim, process, Vpn(start)..Vpn(end));
                self.check(sim);
                self.keep(owned, [(owned.start, start), (end, owned.end)]);
                Ok(())
            }
            Err(MapError::Killed) => self.was_killed(sim),
            Err(MapError::TooMany(_)) => {
                self.owned.push(owned);
                Ok(())
            }
            Err(why) => panic!("{why:?} of {start} to {end} of {owned:?}"),
        }
    }

    fn draw(&mut self, end: u64) -> u64 {
        u64::from(self.dice.below(u32::try_from(end).expect("few pages")))
    }

    fn touch(&mut self, sim: &Sim) -> Goes {
        if self.owned.is_empty() || self.dice.chance(3) {
            return self.touch_nowhere(sim);
        }
        if self.dice.chance(25) {
            return self.touch_elsewhere(sim);
        }
        let owned = *self.dice.pick(&self.owned);
        let page = owned.start + self.draw(owned.end - owned.start);
        let access = *self.dice.pick(&[Access::Read, Access::Write]);
        let process = self.process();
        let was_unstable = process.space.has(sim, Flag::Unstable);
        let memory = self.shared.memory(sim);
        let fault = || process.space.fault(memory, Vpn(page), access);
        let faulted = process.steps.during(fault);
        if faulted.is_ok() {
            process.shadow.learn(sim, &process.space, Vpn(page));
        }
        let appeared = matches!(faulted, Ok(Faulted::Huge | Faulted::Mapped { .. }));
        let private = owned.kind.is_reapable();
        assert!(
            !(appeared && private && was_unstable),
            "no private page appears in a space that is being reaped"
        );
        self.shared.note(|met| {
            met.huge += u64::from(faulted == Ok(Faulted::Huge));
            met.swapped_in += u64::from(faulted == Ok(Faulted::Mapped { swapped: true }));
        });
        faulted.map_or_else(|why| self.missed(sim, why), |_| Ok(()))
    }

    /// Touches a page that no thread maps. The page is below the parts of the address space that
    /// threads use, and no mapping is placed there.
    fn touch_nowhere(&self, sim: &Sim) -> Goes {
        let (memory, page) = (self.shared.memory(sim), Vpn(BASE - 1));
        let process = self.process();
        let fault = || process.space.fault(memory, page, Access::Write);
        let faulted = process.steps.during(fault);
        if faulted == Err(FaultError::Killed) {
            return self.was_killed(sim);
        }
        assert_eq!(faulted, Err(FaultError::NotMapped(page)));
        Ok(())
    }

    /// Touches a page in another thread's part of the address space. That thread may be about to
    /// unmap the page.
    fn touch_elsewhere(&mut self, sim: &Sim) -> Goes {
        let part = BASE + u64::from(self.dice.below(self.shared.plan.users)) * PART;
        let page = Vpn(part + self.draw(PART));
        let access = *self.dice.pick(&[Access::Read, Access::Write]);
        let (process, memory) = (self.process(), self.shared.memory(sim));
        let fault = || process.space.fault(memory, page, access);
        let faulted = process.steps.during(fault);
        let missed = faulted == Err(FaultError::NotMapped(page));
        self.shared.note(|met| {
            met.elsewhere[0] += 1;
            met.elsewhere[1] += u64::from(missed);
        });
        match faulted {
            Ok(_) => {
                process.shadow.learn(sim, &process.space, page);
                Ok(())
            }
            Err(FaultError::NotMapped(_)) => Ok(()),
            Err(why) => self.missed(sim, why),
        }
    }

    /// Checks that page tables have entries only for pages of mappings. If no operation is in
    /// progress, also checks that the counters agree with the entries.
    fn check(&self, sim: &Sim) {
        let compared = check_tables::check(sim, self.process());
        self.shared
            .note(|met| met.compared[0] += u64::from(compared));
    }

    fn populate(&mut self, sim: &Sim) -> Goes {
        let plain = |owned: &&Owned| owned.kind != MappingKind::Reserved;
        let owned: Vec<Owned> = self.owned.iter().filter(plain).copied().collect();
        if owned.is_empty() {
            return Ok(());
        }
        let owned = *self.dice.pick(&owned);
        let start = owned.start + self.draw(owned.end - owned.start);
        let pages = Vpn(start)..Vpn(owned.end);
        let (process, memory) = (self.process(), self.shared.memory(sim));
        let populated = process
            .steps
            .during(|| process.space.populate(memory, pages));
        populated.or_else(|why| self.missed(sim, why))
    }

    fn missed(&self, sim: &Sim, why: FaultError) -> Goes {
        let space = &self.process().space;
        match why {
            FaultError::Unstable(_) => {
                assert!(space.has(sim, Flag::Unstable));
                self.shared.note(|met| met.unstable += 1);
                Err(Leaves)
            }
            FaultError::Killed => self.was_killed(sim),
            FaultError::OverBudget(over) => {
                assert!(space.budget().is_some());
                assert!(over.limit < u64::MAX);
                self.shared.note(|met| met.over_budget += 1);
                Ok(())
            }
            FaultError::OutOfMemory(_) => {
                self.shared.note(|met| met.out_of_memory += 1);
                Ok(())
            }
            FaultError::NotMapped(_) | FaultError::NoMemory | FaultError::Ended => {
                panic!("{why:?} in a mapping of its own")
            }
        }
    }

    fn swap_out(&mut self, sim: &Sim) -> Goes {
        let start = self.part + self.draw(PART);
        let pages = Vpn(start)..Vpn(start + 1 + self.draw(800));
        let (process, memory) = (self.process(), self.shared.memory(sim));
        let swap_out = || process.space.swap_out(memory, pages.clone());
        let went = process.steps.during(swap_out);
        assert!(went <= pages.end.0 - pages.start.0);
        Ok(())
    }
}

fn kind_of(backing: &Backing<Sim>) -> MappingKind {
    match backing {
        Backing::Anonymous { .. } => MappingKind::Anonymous,
        Backing::PrivateFile { .. } => MappingKind::PrivateFile,
        Backing::Shared { .. } => MappingKind::Shared,
        Backing::Reserved => MappingKind::Reserved,
        Backing::Frames { .. } => MappingKind::Frames,
    }
}
