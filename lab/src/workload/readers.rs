//! Programs that read files from end to end, again and again, at a steady rate.
//!
//! The pages of the files stay in memory until reclaim drops them. The files together are larger
//! than the memory that is left for their pages. So nearly every read brings a page into memory,
//! and reclaim has to drop another page.

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::Request;
use plimsoll_mm::space::object::Object;
use plimsoll_mm::units::{CpuId, Nanos, Order};
use plimsoll_sim::Sim;

use super::about;
use crate::run::pressure::Pressure;
use crate::run::testbed::Testbed;

/// The number of pages that a reader reads at a time (Linux: a readahead of 128 KiB).
const AHEAD: u64 = 32;

/// The time to copy a page from memory to the reader. Estimate: 4 KiB at 8 GB/s.
const COPY: Nanos = Nanos(500);

/// The readers of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readers {
    /// The number of pages that all readers together read per second.
    pub(crate) pages_per_s: u64,
    /// The number of pages of all files together.
    pub(crate) pages: u64,
}

impl Readers {
    /// Starts a reader on each of `cpus`. Each reader has its own file. The readers stop at
    /// `until`. Before the readers start, the last pages of the files are put into memory, `cached`
    /// pages in total. This takes no virtual time.
    ///
    /// # Panics
    /// If `testbed` cannot reclaim memory (see `Testbed::with_pressure`), or has not enough memory
    /// for the `cached` pages.
    pub(crate) fn start(self, testbed: &Testbed, cpus: &[CpuId], cached: u64, until: Nanos) {
        let pressure = testbed.pressure.as_ref();
        let pressure = pressure.expect("the workload's testbed reclaims");
        let readers = cpus.len() as u64;
        let (each, cached) = (self.pages / readers, cached / readers);
        for &cpu in cpus {
            let file = pressure.file(&testbed.sim);
            for index in each - cached.min(each)..each {
                read(&testbed.sim, pressure, &file, index);
            }
            let pressure = Rc::clone(pressure);
            testbed.sim.spawn(cpu, move |sim| {
                let mean = Nanos(Nanos::SECOND.0 * AHEAD * readers / self.pages_per_s);
                let mut next = 0;
                while sim.now() < until {
                    for _ in 0..AHEAD {
                        read(sim, &pressure, &file, next);
                        sim.compute(COPY);
                        next = (next + 1) % each;
                    }
                    sim.sleep(about(sim, mean));
                }
            });
        }
    }
}

fn read(sim: &Sim, pressure: &Pressure, file: &Arc<Object<Sim>>, index: u64) {
    let request = Request::new(Order::ZERO);
    let read = pressure.with_memory(sim, |memory| memory.read_file(file, index, request));
    read.expect("pages of files can be dropped");
}
