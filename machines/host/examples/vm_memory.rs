//! A virtual machine that uses more memory than the host has for it. Pages move to swap and back,
//! and keep their contents.
//!
//! The hypervisor supplies three things. It *stores the contents* of pages in swap (`Contents`),
//! here in other memory. It keeps *translations* of guest pages to frames, and drops them when they
//! become invalid (`Notified`). It returns *unused frames* to the kernel (`ToKernel`).
//!
//! `cargo run --release -p plimsoll-host --example vm_memory`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(unsafe_code, reason = "the guest's memory is behind raw pointers")]

use std::collections::HashMap;
use std::error::Error;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_host::Host;
use plimsoll_host::arena::{Arena, HugePages};
use plimsoll_host::discard::ToKernel;
use plimsoll_host::pool::Pool;
use plimsoll_mm::design::Design;
use plimsoll_mm::space::swap::SwapSlot;
use plimsoll_mm::space::{
    Access, AddressSpace, Contents, FaultError, MapRequest, Memory, NotStored, Notified, Place,
    Refused, Spaces,
};
use plimsoll_mm::units::{CpuId, Order, PAGE_SIZE, Pages, Pfn, Vpn};

/// The memory of the host: 4 MiB.
const HOST: Pages = Pages(1024);
/// The page numbers of the guest's memory, which is 6 MiB.
const GUEST: Range<u64> = 512..512 + 1536;
/// The largest number of pages in swap.
const SLOTS: u32 = 1024;
/// The number of pages that are moved to swap together. The number of the guest's pages is a
/// multiple of this constant.
const TOGETHER: u64 = 64;
/// The hypervisor moves pages to swap while more guest pages than this are in memory.
const RESIDENT_MAX: u64 = 700;
const VCPUS: u32 = 2;
const WRITES: u64 = 20_000;

const BYTES: usize = 4096;

/// The contents of pages in swap. This memory is set aside in advance, because pages move to swap
/// when no other memory is left.
struct Store {
    arena: Arc<Arena>,
    slots: Box<[Mutex<[u8; BYTES]>]>,
}

impl Store {
    fn slot(&self, SwapSlot(slot): SwapSlot) -> MutexGuard<'_, [u8; BYTES]> {
        let slot = &self.slots[slot as usize];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents<Host> for Store {
    fn clear(&self, _: &Host, pfn: Pfn, order: Order) {
        let bytes = order.pages().index() * BYTES;
        // SAFETY: the frames are allocated and not mapped yet, so nothing else uses them.
        unsafe { self.arena.page(pfn).write_bytes(0, bytes) };
    }

    fn copy(&self, _: &Host, _: Pfn, _: Pfn) {
        unreachable!("the guest maps no file");
    }

    fn write_out(&self, _: &Host, pfn: Pfn, slot: SwapSlot) -> Result<(), NotStored> {
        let from = self.arena.page(pfn).cast::<[u8; BYTES]>();
        // SAFETY: the pointer is to a whole frame. The guest was notified before, so it does not
        // write to the frame any more.
        *self.slot(slot) = unsafe { from.read() };
        Ok(())
    }

    fn read_in(&self, _: &Host, slot: SwapSlot, pfn: Pfn) {
        let to = self.arena.page(pfn).cast::<[u8; BYTES]>();
        // SAFETY: the pointer is to a whole frame that is not mapped yet, so nothing else uses it.
        unsafe { to.write(*self.slot(slot)) };
    }
}

/// The translations of the guest's pages that its virtual CPUs may use: a shadow page table.
#[derive(Clone, Default)]
struct Shadow(Arc<Mutex<Translations>>);

#[derive(Default)]
struct Translations {
    frames: HashMap<Vpn, Pfn>,
    /// The number of times that the guest was notified that translations become invalid. A
    /// notification counts from its beginning.
    told: u64,
    /// The ranges whose notification has begun and has not ended.
    open: Vec<Range<Vpn>>,
    /// The number of translations that became invalid.
    dropped: u64,
}

impl Shadow {
    fn lock(&self) -> MutexGuard<'_, Translations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notified<Host> for Shadow {
    fn start(&self, _: &Host, pages: &Range<Vpn>, _may_wait: bool) -> Result<(), Refused> {
        // A virtual CPU uses a translation only under this lock, and this call removes the
        // translations under the same lock. So no virtual CPU uses them when this call returns.
        let mut known = self.lock();
        known.told += 1;
        known.open.push(pages.clone());
        let before = known.frames.len();
        known.frames.retain(|page, _| !pages.contains(page));
        known.dropped += (before - known.frames.len()) as u64;
        Ok(())
    }

    fn end(&self, _: &Host, pages: &Range<Vpn>) {
        let mut known = self.lock();
        let at = known.open.iter().position(|open| open == pages);
        known.open.swap_remove(at.expect("it has begun"));
    }

    fn release(&self, _: &Host) {
        let mut known = self.lock();
        known.told += 1;
        known.frames.clear();
    }
}

/// A guest, and everything that its virtual CPUs need.
struct Guest<'m> {
    memory: Memory<'m, Host>,
    space: AddressSpace<Host>,
    shadow: Shadow,
    arena: Arc<Arena>,
    /// The page at which the next search for pages to move to swap begins.
    hand: AtomicU64,
    /// The number of pages that were moved to swap.
    moved: AtomicU64,
    /// For each page, the number of times that it was written to. The first bytes of the page hold
    /// this number too.
    written: Vec<AtomicU64>,
}

impl Guest<'_> {
    /// Adds 1 to the number in the first bytes of `page`, as an instruction of the guest would.
    fn increment(&self, page: Vpn) -> Result<(), Box<dyn Error>> {
        loop {
            let told = {
                let known = self.shadow.lock();
                if let Some(&frame) = known.frames.get(&page) {
                    self.increment_in(frame, page);
                    return Ok(());
                }
                known.told
            };
            // The page has no translation: take a fault, and look the frame up.
            match self.space.fault(self.memory, page, Access::Write) {
                Ok(_) => {}
                Err(FaultError::OutOfMemory(_)) => {
                    self.make_room();
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let frame = self.space.frame_of(self.memory.machine, page);
            let mut known = self.shadow.lock();
            // If a notification has begun since `told` was read, the page may be in another frame
            // by now.
            let is_valid = known.told == told && !known.open.iter().any(|o| o.contains(&page));
            if let (Some(frame), true) = (frame, is_valid) {
                known.frames.insert(page, frame);
            }
        }
    }

    /// Moves some pages to swap. A hypervisor would choose pages that are seldom used. This
    /// hypervisor takes the pages in turn.
    fn make_room(&self) {
        let all = GUEST.end - GUEST.start;
        let start = GUEST.start + self.hand.fetch_add(TOGETHER, Relaxed) % all;
        let pages = Vpn(start)..Vpn(start + TOGETHER);
        let moved = self.space.swap_out(self.memory, pages);
        self.moved.fetch_add(moved, Relaxed);
    }

    /// Adds 1 to the number in `frame`, which holds `page`. The caller holds the lock of the
    /// translations.
    fn increment_in(&self, frame: Pfn, page: Vpn) {
        let number = self.arena.page(frame).cast::<u64>();
        let written = &self.written[usize::try_from(page.0 - GUEST.start).expect("few pages")];
        // SAFETY: the translation is valid while the lock is held, so the frame is the guest's, and
        // no other virtual CPU writes to it. A frame is aligned to its size.
        let before = unsafe { number.read() };
        assert_eq!(
            before,
            written.load(Relaxed),
            "page {page} keeps its contents"
        );
        // SAFETY: the translation is valid while the lock is held, so the frame is the guest's, and
        // no other virtual CPU writes to it.
        unsafe { number.write(before + 1) };
        written.store(before + 1, Relaxed);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder()
        .pages(HOST)
        .cpus(VCPUS + 1)
        .huge(HugePages::Refuse);
    let pool = pool.build()?;
    assert_eq!(PAGE_SIZE, BYTES as u64);
    let slots = (0..SLOTS).map(|_| Mutex::new([0; BYTES])).collect();
    let store = Store {
        arena: Arc::clone(pool.arena()),
        slots,
    };
    // SAFETY: only `spaces` hands frames to `to_kernel`. No virtual CPU uses a frame after the
    // guest was notified that the frame's page is unmapped.
    let to_kernel = unsafe { ToKernel::new(pool.host(), Arc::clone(pool.arena())) };
    let spaces = Spaces::new(pool.host(), &Design::OURS, SLOTS)?
        .with_contents(store)
        .discarding(to_kernel.clone());
    let memory = Memory::new(pool.host(), pool.manager(), &spaces);
    let shadow = Shadow::default();
    let space = AddressSpace::new(memory)?.notifying(shadow.clone());
    let pages = GUEST.end - GUEST.start;
    space.map(
        memory,
        MapRequest::anonymous(Place::Fixed(Vpn(GUEST.start)), pages),
    )?;
    let guest = Guest {
        memory,
        space,
        shadow,
        arena: Arc::clone(pool.arena()),
        hand: AtomicU64::new(0),
        moved: AtomicU64::new(0),
        written: (0..pages).map(|_| AtomicU64::new(0)).collect(),
    };

    run(&pool, &guest)?;
    let swapped = guest.moved.load(Relaxed);
    let total: u64 = guest.written.iter().map(|page| page.load(Relaxed)).sum();
    assert_eq!(total, u64::from(VCPUS) * WRITES, "no write is lost");
    let dropped = guest.shadow.lock().dropped;
    println!("{total} writes; {swapped} pages moved to swap; {dropped} translations dropped");
    println!("returned to the kernel: {:?}", to_kernel.given());
    assert!(
        swapped > 0 && dropped > 0,
        "the host has less memory than the guest"
    );

    guest.space.exit(memory)?;
    guest.space.destroy(pool.host())?;
    pool.pages().drain_all_sync(pool.host());
    assert_eq!(
        pool.pages().view(pool.host())[0].free,
        HOST,
        "every page is back"
    );
    assert_eq!(spaces.swap().used(pool.host()), 0, "and every slot");
    Ok(())
}

/// Runs the virtual CPUs. Meanwhile this thread moves pages to swap. If this thread is too slow, a
/// virtual CPU that finds no memory moves some pages itself.
fn run(pool: &Pool, guest: &Guest<'_>) -> Result<(), Box<dyn Error>> {
    thread::scope(|scope| {
        let vcpus: Vec<_> = (0..VCPUS)
            .map(|number| {
                scope.spawn(move || -> Result<(), String> {
                    let _here = pool
                        .enter(CpuId(number))
                        .map_err(|error| error.to_string())?;
                    let mut random = u64::from(number) + 1;
                    for _ in 0..WRITES {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        let page = GUEST.start + (random >> 33) % (GUEST.end - GUEST.start);
                        guest
                            .increment(Vpn(page))
                            .map_err(|error| error.to_string())?;
                    }
                    Ok(())
                })
            })
            .collect();
        let _here = pool.enter(CpuId(VCPUS))?;
        while vcpus.iter().any(|vcpu| !vcpu.is_finished()) {
            let resident = guest.space.rss().resident_precise(pool.host());
            if resident > RESIDENT_MAX {
                guest.make_room();
            } else {
                thread::yield_now();
            }
        }
        for vcpu in vcpus {
            vcpu.join().map_err(|_| "a virtual CPU panicked")??;
        }
        Ok(())
    })
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
