//! Counters for C, to which many threads add without sharing a cache line.
#![expect(
    unsafe_code,
    reason = "exported names are unsafe attributes, and C passes pointers"
)]

use plimsoll_host::pool::Pool;
use plimsoll_mm::counter::{AnyCounters, Counters};

use plimsoll_host::Host;

use crate::pool::plimsoll_pool;
use crate::raw;
use crate::status::{Failure, guard, plimsoll_status};

/// A counter: a signed 64-bit sum, which wraps around on overflow.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "this is the name in C")]
pub struct plimsoll_counter {
    counters: AnyCounters<Host>,
    pool: Pool,
}

/// The index of the counter. Each counter is the only one in its group of counters.
const ONLY: usize = 0;

/// Makes a counter at 0 for the CPUs of a pool, and writes it to `*made`.
///
/// # Safety
/// `pool` must be null or a pool; `made` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_counter_new(
    pool: *const plimsoll_pool,
    made: *mut *mut plimsoll_counter,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `pool` is null or a live object.
        let of = unsafe { raw::get(pool, "pool") }?;
        // SAFETY: the caller guarantees that `made` is null or valid for a write.
        let made = unsafe { raw::out(made, "made") }?;
        let counters = of.counters.init_many(of.pool.host());
        let no_memory = |why| Failure::new(plimsoll_status::PLIMSOLL_NO_MEMORY, why);
        made.put(raw::boxed(plimsoll_counter {
            counters: counters.map_err(no_memory)?,
            pool: of.pool.clone(),
        }));
        Ok(())
    })
}

/// Frees a counter. Does nothing for null.
///
/// # Safety
/// `counter` must be null, or come from `plimsoll_counter_new` and not have been freed. No other
/// thread may be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_counter_free(counter: *mut plimsoll_counter) {
    guard(|| {
        // SAFETY: the caller guarantees that `counter` is null, or made by this library and not
        // freed.
        let counter = unsafe { raw::unbox(counter) };
        if let Some(counter) = counter {
            let plimsoll_counter { counters, pool } = *counter;
            counters.destroy_many(pool.host());
        }
        Ok(())
    });
}

/// Adds `delta`. A thread that has entered a CPU of the pool adds to the part of this CPU. Any
/// other thread asks the kernel on which CPU it runs, which is slower.
///
/// # Safety
/// `counter` must be null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_counter_add(
    counter: *const plimsoll_counter,
    delta: i64,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `counter` is null or a live object.
        let counter = unsafe { raw::get(counter, "counter") }?;
        let host = counter.pool.host();
        counter.counters.add_growing(host, ONLY, delta);
        Ok(())
    })
}

/// Writes to `*sum` the sum of all additions whose calls have returned. Reads the part of every
/// CPU.
///
/// # Safety
/// `counter` must be null or a counter; `sum` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_counter_sum(
    counter: *const plimsoll_counter,
    sum: *mut i64,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `counter` is null or a live object.
        let counter = unsafe { raw::get(counter, "counter") }?;
        // SAFETY: the caller guarantees that `sum` is null or valid for a write.
        let sum = unsafe { raw::out(sum, "sum") }?;
        sum.put(counter.counters.precise_sum(counter.pool.host(), ONLY));
        Ok(())
    })
}

/// Writes to `*min` and `*max` the ends of a range that contains the sum. Does not read the part of
/// every CPU.
///
/// # Safety
/// `counter` must be null or a counter; `min` and `max` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_counter_range(
    counter: *const plimsoll_counter,
    min: *mut i64,
    max: *mut i64,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `counter` is null or a live object.
        let counter = unsafe { raw::get(counter, "counter") }?;
        // SAFETY: the caller guarantees that `min` is null or valid for a write.
        let min = unsafe { raw::out(min, "min") }?;
        // SAFETY: the caller guarantees that `max` is null or valid for a write.
        let max = unsafe { raw::out(max, "max") }?;
        let range = counter.counters.min_max(counter.pool.host(), ONLY);
        min.put(range.min);
        max.put(range.max);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use plimsoll_mm::units::CpuId;

    use crate::pool::{plimsoll_options, plimsoll_pool_free, plimsoll_pool_new};

    #[test]
    fn a_counter_that_is_freed_leaves_no_memory_in_use() {
        let options = plimsoll_options {
            cpus: 4,
            ..plimsoll_options::default()
        };
        let mut pool = ptr::null_mut();
        // SAFETY: the options live during the call, and `pool` is valid for a write.
        let made = unsafe { plimsoll_pool_new(&raw const options, &raw mut pool) };
        assert_eq!(made, plimsoll_status::PLIMSOLL_OK);
        // SAFETY: the pool was just made, and lives until the end of this test.
        let of = unsafe { &*pool };
        let (host, area) = (of.pool.host(), of.counters.area());
        let mut counter = ptr::null_mut();
        // SAFETY: the pool is live, and `counter` is valid for a write.
        let made = unsafe { plimsoll_counter_new(pool, &raw mut counter) };
        assert_eq!(made, plimsoll_status::PLIMSOLL_OK);
        // Additions by different CPUs make the counter allocate a part for each CPU.
        for turn in 0..10_000 {
            let _entered = host.enter(CpuId(turn % 4));
            // SAFETY: the counter is live.
            let added = unsafe { plimsoll_counter_add(counter, 1) };
            assert_eq!(added, plimsoll_status::PLIMSOLL_OK);
        }
        let (mut sum, mut min, mut max) = (0, 0, 0);
        // SAFETY: the counter is live, and `sum` is valid for a write.
        unsafe { plimsoll_counter_sum(counter, &raw mut sum) };
        // SAFETY: the counter is live, and `min` and `max` are valid for writes.
        unsafe { plimsoll_counter_range(counter, &raw mut min, &raw mut max) };
        assert_eq!(sum, 10_000);
        assert!(min <= sum && sum <= max && min < max, "{min} to {max}");
        assert_eq!(area.groups(host), 1);
        // SAFETY: the counter is live, and is not used afterwards.
        unsafe { plimsoll_counter_free(counter) };
        assert_eq!(area.groups(host), 0);
        // SAFETY: the pool is live, and is not used afterwards.
        unsafe { plimsoll_pool_free(pool) };
    }
}
