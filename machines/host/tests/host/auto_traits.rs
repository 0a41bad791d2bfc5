//! Programs share these types between threads, or move them to other threads. A field that is not
//! `Send` or `Sync` would take this away from a type without a change of its interface.

use plimsoll_host::Host;
use plimsoll_host::affinity::CpuMask;
use plimsoll_host::arena::{Arena, ArenaError};
use plimsoll_host::discard::ToKernel;
use plimsoll_host::pool::{Bound, BuildError, EnterError, Pool};
use plimsoll_host::return_free::ReturnFree;
use plimsoll_host::workers::Workers;
use plimsoll_mm::Manager;
use plimsoll_mm::counter::{AnyCounters, NamedCounters};
use plimsoll_mm::page::{AllocError, FreeError, PageAllocator};
use plimsoll_mm::space::AddressSpace;

const fn shared<T: Send + Sync>() {}

/// Has one implementation for a type that is not `Send`, and two for one that is. If there are two,
/// the compiler cannot choose between them, and refuses the call below.
trait UnlessSend<Kind> {
    fn stays() {}
}
impl<T: ?Sized> UnlessSend<()> for T {}
impl<T: ?Sized + Send> UnlessSend<u8> for T {}

#[test]
fn threads_share_the_types_of_an_embedder() {
    shared::<Host>();
    shared::<Arena>();
    shared::<Pool>();
    shared::<Workers>();
    shared::<ReturnFree>();
    shared::<ToKernel>();
    shared::<CpuMask>();
    shared::<Manager<Host>>();
    shared::<PageAllocator<Host>>();
    shared::<AnyCounters<Host>>();
    shared::<NamedCounters<Host>>();
    shared::<AddressSpace<Host>>();
}

#[test]
fn threads_pass_errors_on() {
    shared::<ArenaError>();
    shared::<BuildError>();
    shared::<EnterError>();
    shared::<AllocError>();
    shared::<FreeError>();
}

/// A thread plays a CPU while it has a `Bound`.
#[test]
fn a_bound_stays_on_its_thread() {
    <Bound<'_> as UnlessSend<_>>::stays();
}
