//! Address spaces on real threads. Two threads use each address space: they fault, map and unmap. A
//! third thread reaps the address space, a fourth releases its memory (`process_mrelease`), and the
//! last of the two users ends it. In every reaping design, no page is lost or freed twice. Freed
//! pages are returned to the kernel.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
use plimsoll_host::arena::{Arena, HugePages};
use plimsoll_host::discard::ToKernel;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::laws::cast;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{
    Access, AddressSpace, Backing, FaultError, Flag, MapError, MapRequest, Memory, Place, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CPUS: u32 = 4;
const USERS: u32 = 2;
const PAGES: Pages = Pages(1 << 14);
/// The distance between the starts of mappings, in pages. Some mappings cross the end of a page
/// table.
const APART: u64 = 300;
const MAPPINGS: u64 = 24;
const LENGTH: Duration = Duration::from_millis(500);

/// The machine and its memory, on which one address space after the other is created and ended.
struct Fixture {
    host: Host,
    manager: Manager<Host>,
    spaces: Spaces<Host>,
    to_kernel: ToKernel,
}

/// The lifetime of one address space: a barrier for its start, and the number of threads that still
/// use it.
struct Life {
    space: AddressSpace<Host>,
    begun: Barrier,
    users: AtomicU32,
    seed: u64,
}

impl Fixture {
    fn new(reaping: Reaping) -> Self {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        let host = Host::with_topology(Topology::flat(CPUS));
        let arena = Arena::new(PAGES, HugePages::Refuse).expect("64 MiB can be mapped");
        // SAFETY: nothing refers to the arena's memory.
        #[expect(unsafe_code, reason = "no thread has a pointer to a frame")]
        let to_kernel = unsafe { ToKernel::new(&host, Arc::new(arena)) };
        let mut config = Config::new(Layout::arena(PAGES));
        config.design = design;
        let manager = Manager::new(&host, config).expect("an arena is a layout");
        let spaces = Spaces::new(&host, &design, 0).expect("countable");
        Self {
            host,
            manager,
            spaces: spaces.discarding(to_kernel.clone()),
            to_kernel,
        }
    }

    fn memory(&self) -> Memory<'_, Host> {
        Memory::new(&self.host, &self.manager, &self.spaces)
    }

    /// Checks that all pages are free and merged into whole blocks, and that every count is zero.
    fn check_empty(&self) {
        cast::is_whole(self.memory());
        let blocks = self.manager.pages().view(&self.host)[0].blocks[10];
        assert_eq!(blocks, PAGES.0 >> 10, "all are whole blocks again");
    }

    fn live(&self, seed: u64) {
        let life = Life {
            space: AddressSpace::new(self.memory()).expect("there is memory"),
            begun: Barrier::new(CPUS as usize),
            users: AtomicU32::new(USERS),
            seed,
        };
        thread::scope(|scope| {
            for cpu in 0..CPUS {
                let life = &life;
                scope.spawn(move || {
                    let _entered = self.host.enter(CpuId(cpu));
                    life.begun.wait();
                    match cpu {
                        ..USERS => self.use_and_leave(life, cpu),
                        USERS => self.reap(life),
                        _ => self.release(life),
                    }
                });
            }
        });
        let space = life.space;
        assert!(
            space.has(&self.host, Flag::Ended),
            "the last walker has ended it"
        );
        assert_eq!(space.table_pages(&self.host), 0);
        assert_eq!(space.rss().precise(&self.host, RssKind::Anon), 0);
        assert_eq!(space.destroy(&self.host), Ok(()));
    }

    /// Maps, touches and unmaps pages until the address space is reaped. Then the last of the two
    /// threads that use the address space ends it.
    fn use_and_leave(&self, life: &Life, cpu: u32) {
        let seed = life.seed * u64::from(CPUS) + u64::from(cpu);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        while !life.space.has(&self.host, Flag::Unstable) {
            self.step(&life.space, &mut random);
        }
        // AcqRel: everything that the other user did to the address space happens before this
        // thread calls `exit`.
        if life.users.fetch_sub(1, AcqRel) == 1 {
            life.space.exit(self.memory()).expect("it ends once");
        }
    }

    fn step(&self, space: &AddressSpace<Host>, random: &mut Xoshiro256PlusPlus) {
        let (memory, slot) = (self.memory(), random.random_range(0..MAPPINGS));
        let start = Vpn(512 + slot * APART);
        let pages = random.random_range(1..APART);
        match random.random_range(0..8) {
            0 => {
                let request = MapRequest {
                    place: Place::Fixed(start),
                    pages,
                    backing: Backing::Anonymous {
                        huge: random.random_bool(0.3),
                    },
                };
                match space.map(memory, request) {
                    Ok(_) | Err(MapError::Overlaps(_)) => {}
                    Err(why) => panic!("{why}"),
                }
            }
            1 => space.unmap(memory, start, pages).expect("a range"),
            2 => self.touched(space.populate(memory, start..Vpn(start.0 + pages))),
            _ => {
                let page = Vpn(start.0 + pages);
                self.touched(space.fault(memory, page, Access::Write).map(|_| ()));
            }
        }
    }

    fn touched(&self, outcome: Result<(), FaultError>) {
        match outcome {
            Ok(()) | Err(FaultError::NotMapped(_) | FaultError::Unstable(_)) => {}
            Err(why) => panic!("{why}; {:?} went back", self.to_kernel.given()),
        }
    }

    /// Lets the threads that use the address space run for a while, then tries up to three times to
    /// reap it.
    fn reap(&self, life: &Life) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(life.seed);
        thread::sleep(Duration::from_micros(random.random_range(100..2500)));
        for _ in 0..random.random_range(1..4) {
            let _reaped = life.space.try_reap(self.memory());
        }
        // Set the flag that makes the users leave. An attempt to reap sets this flag too, but not
        // if the mappings were just being changed.
        life.space.raise(&self.host, Flag::Unstable);
    }

    /// Releases the memory of the address space again and again, as callers of `process_mrelease`
    /// do, from the time when its users begin to leave.
    fn release(&self, life: &Life) {
        while !life.space.has(&self.host, Flag::Unstable) {
            thread::yield_now();
        }
        // Relaxed is enough: only the duration of this loop depends on it.
        while life.users.load(Relaxed) > 0 {
            let _released = life.space.release(self.memory(), || false);
        }
        let _released = life.space.release(self.memory(), || false);
    }
}

#[test]
fn lives_end_with_nothing_lost_however_they_are_reaped() {
    for reaping in Reaping::ALL {
        let fixture = Fixture::new(reaping);
        let started = Instant::now();
        let mut lives = 0;
        while started.elapsed() < LENGTH {
            fixture.live(lives);
            fixture.check_empty();
            lives += 1;
        }
        let (given, name) = (fixture.to_kernel.given(), reaping.name());
        let pages = given.pages + given.refused;
        assert!(pages > lives * 10, "{name}: {lives} lives, {given:?}");
        let refused = fixture.to_kernel.take_error();
        assert!(
            refused.is_none() || cfg!(not(target_os = "linux")),
            "{name}: {refused:?}"
        );
    }
}
