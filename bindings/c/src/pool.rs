//! Pools for C.
#![expect(
    unsafe_code,
    reason = "exported names are unsafe attributes, and C passes pointers"
)]

use std::ffi::c_void;

use plimsoll_host::Host;
use plimsoll_host::pool::{BuildError, Pool};
use plimsoll_mm::counter::{Batch, Counting, Plan};
use plimsoll_mm::design::Design;
use plimsoll_mm::units::{Pages, Pfn};

use crate::raw;
use crate::status::{Failure, guard, plimsoll_status};

/// The pool uses Plimsoll's own algorithms.
pub const PLIMSOLL_DESIGN_OURS: u32 = 0;
/// The pool uses the algorithms of Linux 6.18.
pub const PLIMSOLL_DESIGN_LINUX: u32 = 1;

/// The settings of a pool. A field that is 0 has its default, so `{0}` is a valid value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct plimsoll_options {
    /// The number of pages of 4 KiB. Default: 16384, which is 64 MiB.
    pub pages: u32,
    /// The number of nodes among which the pages are divided, 1 to 1024. There must be more than
    /// 1024 pages for each node except the last. Default: 1.
    pub nodes: u32,
    /// The number of CPUs of the pool, 1 to 65536. A thread that uses the pool acts as one of these
    /// CPUs. The pool starts a thread for each of them. Default: the CPUs of this computer.
    pub cpus: u32,
    /// One of the constants `PLIMSOLL_DESIGN_…`.
    pub design: u32,
    /// Must be 0.
    pub reserved: [u32; 4],
}

/// Memory for pages, with its manager and the manager's threads.
#[derive(Debug)]
#[expect(non_camel_case_types, reason = "this is the name in C")]
pub struct plimsoll_pool {
    pub(crate) pool: Pool,
    pub(crate) counters: Plan<Host>,
}

/// Makes a pool, and writes it to `*made`. `options` may be null, for the defaults.
///
/// # Safety
/// `options` must be null or point to a `plimsoll_options`; `made` must be null or valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_new(
    options: *const plimsoll_options,
    made: *mut *mut plimsoll_pool,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `made` is null or valid for a write.
        let made = unsafe { raw::out(made, "made") }?;
        // SAFETY: the caller guarantees that `options` is null or points to options.
        let options = unsafe { options.as_ref() }.copied().unwrap_or_default();
        let pool = build(&options)?;
        let counters = Plan::new(pool.host(), Counting::OneSided, 1, Batch::RSS);
        let counters = counters.map_err(Failure::invalid)?;
        made.put(raw::boxed(plimsoll_pool { pool, counters }));
        Ok(())
    })
}

fn build(options: &plimsoll_options) -> Result<Pool, Failure> {
    let plimsoll_options {
        pages,
        nodes,
        cpus,
        design,
        reserved,
    } = *options;
    if reserved != [0; 4] {
        return Err(Failure::invalid("`reserved` must be 0: start from `{0}`"));
    }
    let design = match design {
        PLIMSOLL_DESIGN_OURS => Design::OURS,
        PLIMSOLL_DESIGN_LINUX => Design::LINUX,
        other => {
            let text =
                format_args!("there is no design {other}: use PLIMSOLL_DESIGN_OURS or …_LINUX");
            return Err(Failure::invalid(text));
        }
    };
    let mut builder = Pool::builder().design(design);
    if pages > 0 {
        builder = builder.pages(Pages(pages));
    }
    if nodes > 0 {
        builder = builder.nodes(nodes);
    }
    if cpus > 0 {
        builder = builder.cpus(cpus);
    }
    builder.build().map_err(|why| {
        let status = match why {
            BuildError::Arena(_) | BuildError::Populate(_) | BuildError::Upkeep(_) => {
                plimsoll_status::PLIMSOLL_NO_MEMORY
            }
            _ => plimsoll_status::PLIMSOLL_INVALID,
        };
        Failure::new(status, why)
    })
}

/// Frees a pool. Does nothing for null. The memory remains until every CPU and counter of the pool
/// is freed too. After that, no pointer to a page is valid.
///
/// # Safety
/// `pool` must be null, or come from `plimsoll_pool_new` and not have been freed. No other thread
/// may be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_pool_free(pool: *mut plimsoll_pool) {
    guard(|| {
        // SAFETY: the caller guarantees that `pool` is null, or made by this library and not freed.
        drop(unsafe { raw::unbox(pool) });
        Ok(())
    });
}

/// Writes the address of a page's 4096 bytes to `*address`. The pages of a block are next to each
/// other in memory. Only the owner of the page may use these bytes.
///
/// # Safety
/// `pool` must be null or a pool; `address` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_page(
    pool: *const plimsoll_pool,
    pfn: u32,
    address: *mut *mut c_void,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `pool` is null or a live object.
        let pool = &unsafe { raw::get(pool, "pool") }?.pool;
        // SAFETY: the caller guarantees that `address` is null or valid for a write.
        let address = unsafe { raw::out(address, "address") }?;
        let Pages(pages) = pool.arena().pages();
        if pfn >= pages {
            let text = format_args!(
                "there is no page {pfn}: the pool has pages 0 to {}",
                pages - 1
            );
            return Err(Failure::invalid(text));
        }
        address.put(pool.page(Pfn(pfn)).as_ptr().cast());
        Ok(())
    })
}

/// Writes the number of free pages to `*pages`, including the pages on the lists of CPUs. The
/// number can be wrong by the pages that other threads, or the pool's own threads, move between
/// lists during the call.
///
/// # Safety
/// `pool` must be null or a pool; `pages` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_free_count(
    pool: *const plimsoll_pool,
    pages: *mut u64,
) -> plimsoll_status {
    guard(|| {
        // SAFETY: the caller guarantees that `pool` is null or a live object.
        let pool = &unsafe { raw::get(pool, "pool") }?.pool;
        // SAFETY: the caller guarantees that `pages` is null or valid for a write.
        let pages = unsafe { raw::out(pages, "pages") }?;
        let zones = pool.pages().view(pool.host());
        let free = zones
            .iter()
            .map(|zone| u64::from((zone.free + zone.listed).0));
        pages.put(free.sum());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_uses_the_algorithms_that_its_options_name() {
        let shepherd = |design| {
            let options = plimsoll_options {
                design,
                cpus: 1,
                ..plimsoll_options::default()
            };
            let Ok(pool) = build(&options) else {
                panic!("a small pool can be built");
            };
            format!("{:?}", pool.manager())
        };
        assert!(shepherd(PLIMSOLL_DESIGN_OURS).contains("Phased"));
        assert!(shepherd(PLIMSOLL_DESIGN_LINUX).contains("RoundJiffies"));
    }
}
