//! Last resorts for simulated machines. A last resort is the function that an allocation calls when
//! nothing else can free memory. It calls a closure that is stored in a thread-local variable of
//! its machine's thread, so the closure need not be `Send`.

use plimsoll_mm::page::{LastResort, PageAllocator, Relief, Request};

use crate::Sim;
use crate::kept::Kept;

type Ask = Box<dyn Fn(&Sim, &PageAllocator<Sim>, Request) -> Relief>;

struct Asks(Kept<Ask>);

/// Returns a last resort that calls `ask`. The closure is stored on the calling thread, which a
/// simulated machine never leaves.
///
/// The values that `ask` captures live as long as the page allocator. If such a value keeps the
/// allocator alive, `ask` must hold only a weak reference to it. Otherwise neither would ever be
/// dropped.
///
/// # Panics
/// If the last resort is called on another thread.
pub fn last_resort(
    ask: impl Fn(&Sim, &PageAllocator<Sim>, Request) -> Relief + 'static,
) -> Box<dyn LastResort<Sim>> {
    Box::new(Asks(Kept::new(Box::new(ask))))
}

impl LastResort<Sim> for Asks {
    fn out_of_memory(&self, sim: &Sim, pages: &PageAllocator<Sim>, request: Request) -> Relief {
        self.0.get()(sim, pages, request)
    }
}
