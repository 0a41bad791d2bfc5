//! Allocating and freeing pages, as a CPU of a pool.
#![expect(
    unsafe_code,
    reason = "exported names are unsafe attributes, and C passes pointers"
)]

use std::ptr;

use plimsoll_host::cpu::Entered;
use plimsoll_host::pool::Pool;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{BulkError, FreeError, Request};
use plimsoll_mm::units::{CpuId, Order, Pfn};

use crate::pool::plimsoll_pool;
use crate::raw;
use crate::status::{Failure, guard, plimsoll_status};

/// How many page numbers one step converts between C and Rust.
const TOGETHER: usize = 64;

/// The right of a thread to use a pool as one of the pool's CPUs.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "this is the name in C")]
pub struct plimsoll_cpu {
    _entered: Entered,
    thread: usize,
    pool: Pool,
}

/// Returns a number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| ptr::from_ref(here).addr())
}

/// Returns the handle if it belongs to the calling thread.
///
/// # Safety
/// `cpu` must be null or a handle that was not passed to `plimsoll_leave`.
unsafe fn own<'a>(cpu: *const plimsoll_cpu) -> Result<&'a plimsoll_cpu, Failure> {
    // SAFETY: the caller guarantees that `cpu` is null or a live object.
    let cpu = unsafe { raw::get(cpu, "cpu") }?;
    if cpu.thread == this_thread() {
        Ok(cpu)
    } else {
        let text = "this handle belongs to another thread: each thread makes its own";
        Err(Failure::new(plimsoll_status::PLIMSOLL_WRONG_THREAD, text))
    }
}

fn order(order: u8) -> Result<Order, Failure> {
    let text = || {
        Failure::invalid(format_args!(
            "there is no order {order}: orders are 0 to 10"
        ))
    };
    Order::new(order).ok_or_else(text)
}

/// Makes the calling thread act as CPU `cpu` of the pool, and writes a handle to `*entered`.
///
/// # Safety
/// `pool` must be null or a pool; `entered` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_enter(
    pool: *const plimsoll_pool,
    cpu: u32,
    entered: *mut *mut plimsoll_cpu,
) -> plimsoll_status {
    // SAFETY: the caller guarantees what `enter` requires.
    guard(|| unsafe { enter(pool, Some(cpu), entered) })
}

/// Makes the calling thread act as the CPU on which the kernel runs it at the moment, and writes a
/// handle to `*entered`. If the thread already acts as a CPU of the pool, it continues to act as
/// that CPU.
///
/// # Safety
/// `pool` must be null or a pool; `entered` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_bind(
    pool: *const plimsoll_pool,
    entered: *mut *mut plimsoll_cpu,
) -> plimsoll_status {
    // SAFETY: the caller guarantees what `enter` requires.
    guard(|| unsafe { enter(pool, None, entered) })
}

/// # Safety
/// `pool` must be null or a pool; `entered` must be null or valid for a write.
unsafe fn enter(
    pool: *const plimsoll_pool,
    cpu: Option<u32>,
    entered: *mut *mut plimsoll_cpu,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees that `pool` is null or a live object.
    let pool = unsafe { raw::get(pool, "pool") }?.pool.clone();
    // SAFETY: the caller guarantees that `entered` is null or valid for a write.
    let entered = unsafe { raw::out(entered, "entered") }?;
    let cpu = cpu.map_or_else(|| pool.host().this_cpu(), CpuId);
    let cpus = pool.host().topology().cpus();
    if cpu.0 >= cpus {
        let text = format_args!("there is no CPU {cpu}: the pool has CPUs 0 to {}", cpus - 1);
        return Err(Failure::invalid(text));
    }
    entered.put(raw::boxed(plimsoll_cpu {
        _entered: pool.host().enter(cpu),
        thread: this_thread(),
        pool,
    }));
    Ok(())
}

/// Ends the right of the calling thread to use the pool as a CPU, and frees the handle. Does
/// nothing for null.
///
/// # Safety
/// `cpu` must be null, or come from `plimsoll_enter` or `plimsoll_bind` and not have been passed to
/// `plimsoll_leave` before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_leave(cpu: *mut plimsoll_cpu) -> plimsoll_status {
    guard(|| {
        if cpu.is_null() {
            return Ok(());
        }
        // SAFETY: the caller guarantees that `cpu` is null or a valid handle.
        unsafe { own(cpu) }?;
        // SAFETY: the caller guarantees that the handle was not passed to `plimsoll_leave` before.
        drop(unsafe { raw::unbox(cpu) });
        Ok(())
    })
}

/// Allocates a block of `1 << order` pages, which is aligned to its size, and writes the number of
/// its first page to `*pfn`. The largest order is 10.
///
/// # Safety
/// `cpu` must be null or a handle; `pfn` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_alloc(
    cpu: *const plimsoll_cpu,
    order: u8,
    pfn: *mut u32,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `cpu` is null or a valid handle.
        let pool = &unsafe { own(cpu) }?.pool;
        // SAFETY: the caller guarantees that `pfn` is null or valid for a write.
        let pfn = unsafe { raw::out(pfn, "pfn") }?;
        let request = Request::new(self::order(order)?);
        let Pfn(first) = pool.pages().alloc(pool.host(), request)?;
        pfn.put(first);
        Ok(())
    })
}

/// Frees a block, which must have been allocated with this order. A thread may also free a block
/// that another thread has allocated.
///
/// # Safety
/// `cpu` must be null or a handle. Nothing may use the block's memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_free(
    cpu: *const plimsoll_cpu,
    pfn: u32,
    order: u8,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `cpu` is null or a valid handle.
        let pool = &unsafe { own(cpu) }?.pool;
        let order = self::order(order)?;
        pool.pages().free(pool.host(), Pfn(pfn), order)?;
        Ok(())
    })
}

/// Allocates `count` single pages and writes their numbers to `pfns`. Writes to `*got` the number
/// of pages that the caller has got, even if memory runs out before all pages are allocated
/// (`PLIMSOLL_NO_MEMORY`). Does not change the entries of `pfns` from index `*got` on.
///
/// # Safety
/// `cpu` must be null or a handle; `pfns` must be null or valid for `count` initialised numbers;
/// `got` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_alloc_pages(
    cpu: *const plimsoll_cpu,
    pfns: *mut u32,
    count: usize,
    got: *mut usize,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `cpu` is null or a valid handle.
        let pool = &unsafe { own(cpu) }?.pool;
        // SAFETY: the caller guarantees that `pfns` is null or valid for `count` numbers.
        let pfns = unsafe { raw::list_mut(pfns, count, "pfns") }?;
        // SAFETY: the caller guarantees that `got` is null or valid for a write.
        let got = unsafe { raw::out(got, "got") }?;
        let (owned, outcome) = fill(pool, pfns);
        got.put(owned);
        outcome
    })
}

/// Allocates single pages and writes their numbers to `pfns`. Returns the number of allocated
/// pages, and an error if memory ran out before `pfns` was full.
fn fill(pool: &Pool, pfns: &mut [u32]) -> (usize, Result<(), Failure>) {
    let request = Request::new(Order::ZERO);
    let mut owned = 0;
    for some in pfns.chunks_mut(TOGETHER) {
        let mut pages = [Pfn(0); TOGETHER];
        let pages = &mut pages[..some.len()];
        let outcome = pool.pages().alloc_pages(pool.host(), request, pages);
        let got = match outcome {
            Ok(()) => some.len(),
            Err(BulkError { got, .. }) => got,
        };
        for (number, page) in some.iter_mut().zip(&pages[..got]) {
            *number = page.0;
        }
        owned += got;
        if let Err(error) = outcome {
            return (owned, Err(error.why.into()));
        }
    }
    (owned, Ok(()))
}

/// Frees `count` single pages. Stops at the first page that was not allocated as a single page:
/// frees the pages before it, but neither this page nor the pages after it. Writes the number of
/// freed pages to `*freed`, even if it stops early. In that case `pfns[*freed]` is the page at
/// which it stopped. `freed` may be null.
///
/// # Safety
/// `cpu` must be null or a handle; `pfns` must be null or valid for `count` numbers; `freed` must
/// be null or valid for a write. Nothing may use the pages' memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_free_pages(
    cpu: *const plimsoll_cpu,
    pfns: *const u32,
    count: usize,
    freed: *mut usize,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `cpu` is null or a valid handle.
        let pool = &unsafe { own(cpu) }?.pool;
        // SAFETY: the caller guarantees that `pfns` is null or valid for `count` numbers.
        let pfns = unsafe { raw::list(pfns, count, "pfns") }?;
        let mut done = 0;
        let outcome = free_all(pool, pfns, &mut done);
        if !freed.is_null() {
            // SAFETY: the caller guarantees that `freed` is null or valid for a write.
            unsafe { raw::out(freed, "freed") }?.put(done);
        }
        Ok(outcome?)
    })
}

/// Frees pages, and adds the number of freed pages to `done`. Stops at a page that cannot be freed;
/// `done` then counts the pages before it.
fn free_all(pool: &Pool, pfns: &[u32], done: &mut usize) -> Result<(), FreeError> {
    for some in pfns.chunks(TOGETHER) {
        let mut pages = [Pfn(0); TOGETHER];
        for (page, &number) in pages.iter_mut().zip(some) {
            *page = Pfn(number);
        }
        let pages = &pages[..some.len()];
        pool.pages().free_pages_counting(pool.host(), pages, done)?;
    }
    Ok(())
}
