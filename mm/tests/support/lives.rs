//! The lives of address spaces in the tests of the heap: each space maps memory of every kind,
//! touches it, and has parts of it swapped out, unmapped and replaced.

use plimsoll_mm::space::{Access, AddressSpace, Backing, FaultError, MapError};
use plimsoll_mm::units::{Pfn, Vpn};

use super::machine::Plain;
use super::world::World;

/// Touches a page. If there is no memory, or no mapping, nothing happens.
pub(crate) fn touch(world: &World, space: &AddressSpace<Plain>, page: u64, access: Access) {
    match space.fault(world.memory(), Vpn(page), access) {
        Ok(_)
        | Err(FaultError::NoMemory | FaultError::OutOfMemory(_) | FaultError::NotMapped(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Maps and touches memory of every kind in an address space.
pub(crate) fn fill(world: &World, space: &AddressSpace<Plain>) {
    let (file, shared) = (&world.file, &world.shared);
    world.map(space, 1000, 700, Backing::Anonymous { huge: false });
    world.map(space, 2048, 1024, Backing::Anonymous { huge: true });
    world.map(
        space,
        4096,
        40,
        Backing::PrivateFile {
            file: file.clone(),
            offset: 5,
        },
    );
    world.map(
        space,
        4300,
        40,
        Backing::Shared {
            object: shared.clone(),
            offset: 1 << 40,
        },
    );
    world.map(space, 5120, 512, Backing::Reserved);
    world.map(space, 6000, 9, Backing::Frames { first: Pfn(99) });
    for page in (1000..1060).chain([1400, 2050, 2600, 5130, 6001]) {
        world.machine.on(u32::try_from(page % 3).expect("small"));
        touch(world, space, page, Access::Write);
    }
    for page in 0..20 {
        touch(world, space, 4096 + page, Access::Read);
        touch(world, space, 4110 + page, Access::Write);
        touch(world, space, 4300 + page, Access::Write);
    }
    let _filled = space.populate(world.memory(), Vpn(1000)..Vpn(1690));
}

/// Changes an address space that [`fill`] has filled: swaps pages out, unmaps parts, replaces
/// mappings, and maps more memory.
pub(crate) fn change(world: &World, space: &AddressSpace<Plain>) {
    let memory = world.memory();
    world.machine.on(1);
    space.swap_out(memory, Vpn(1000)..Vpn(1200));
    world.machine.on(2);
    (1100..1150).for_each(|page| touch(world, space, page, Access::Read));
    for (start, pages) in [
        (1010, 3),
        (1300, 200),
        (2100, 60),
        (4100, 10),
        (4310, 4),
        (5120, 512),
    ] {
        world.machine.on(u32::try_from(start % 5).expect("small"));
        match space.unmap(memory, Vpn(start), pages) {
            Ok(()) | Err(MapError::NoMemory) => {}
            Err(other) => panic!("{other}"),
        }
    }
    for nth in 0..40 {
        world.map(space, 8000 + 4 * nth, 3, Backing::Frames { first: Pfn(7) });
        world.map(space, 4098 + nth, 1, Backing::Anonymous { huge: false });
    }
}
