//! Predicts waits: two simulated CPUs run the load on a machine with the measured prices.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_host::measure::Prices;
use plimsoll_mm::machine::{Lock, Machine};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Distance;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::{Card, Profile};
use plimsoll_sim::{Sim, SimOptions};
use rand::RngExt;

use super::{QUANTILES, Real, Seen};
use crate::Error;
use crate::catalog::machines;

/// How many times each CPU acquires the lock. With this number, hundreds of waits lie above the
/// 99.9th percentile.
const ACQUISITIONS: u32 = 200_000;

/// Returns the machine `laptop-2` with the lock prices of two real CPUs. Each price is the mean
/// over `prices`.
///
/// The price of moving a cache line is the measured price, but at most the price of each of two
/// lock operations that include the move. These operations are a hand-over, and acquiring a free
/// lock that the other CPU held last. If the two CPUs are threads of one core, no cache line moves
/// between them. In this case, the measured price of a move only shows how much the threads disturb
/// each other, and can be higher than the price of a lock operation.
///
/// # Errors
/// If the built-in machine cannot be loaded.
pub fn profile(prices: &[Prices]) -> Result<Profile, Error> {
    let mean = |of: fn(&Prices) -> f64| prices.iter().map(of).sum::<f64>() / prices.len() as f64;
    let handover = nanos(mean(|spread| spread.handover.middle_ns));
    let remote = nanos(mean(|spread| spread.remote.middle_ns));
    let line = nanos(mean(|spread| spread.transfer.middle_ns))
        .min(handover)
        .min(remote);
    let mut profile = machines::load("laptop-2", Card::Mid)?;
    let costs = &mut profile.costs;
    costs.transfer_ns[Distance::Llc as usize] = line;
    costs.lock_handover_extra_ns = handover - line;
    costs.lock_remote_extra_ns = remote - line;
    // A measured wait ends at the first access to the value that the lock guards. So the price of
    // acquiring a free lock is the time from the request to that access. This price does not
    // include the time to release the lock.
    costs.lock_own_ns = nanos(mean(|spread| spread.entry.middle_ns));
    Ok(profile)
}

/// Returns the waits of two simulated CPUs of `profile`, which compute and hold the lock for as
/// long as the two real CPUs did in the measurement `real`.
#[must_use]
pub fn simulate(profile: &Profile, real: &Real, seed: u64) -> Seen {
    let options = SimOptions {
        seed,
        ..SimOptions::default()
    };
    let sim = Sim::new(profile, options);
    let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
    let waits = Rc::new(RefCell::new(Vec::new()));
    let mean_think_ns = f64::from(real.load.think_ns);
    let (late_ns, hold_ns) = (real.waits.late_ns, nanos(real.waits.hold_ns));
    for cpu in [0, 1].map(CpuId) {
        let (lock, waits) = (Rc::clone(&lock), Rc::clone(&waits));
        sim.spawn(cpu, move |sim| {
            for _ in 0..ACQUISITIONS {
                // `uniform` is in (0, 1], so that its logarithm is finite.
                let uniform = 1.0 - sim.rng().random::<f64>();
                let think_ns = nanos(late_ns - uniform.ln() * mean_think_ns);
                sim.spend(Work::Think, think_ns);
                let asked = sim.now();
                let got = lock.with(sim, Site::Control, |()| {
                    let got = sim.now();
                    sim.spend(Work::Think, hold_ns);
                    got
                });
                waits.borrow_mut().push(got.0 - asked.0);
            }
        });
    }
    sim.run();
    let zone = sim.stats().class(LockClass::Zone);
    let mut waits = waits.take();
    waits.sort_unstable();
    Seen {
        contended_share: zone.contentions as f64 / zone.acquisitions as f64,
        mean_ns: waits.iter().sum::<u64>() as f64 / waits.len() as f64,
        quantiles_ns: QUANTILES.map(|share| quantile(&waits, share)),
    }
}

/// Returns the quantile `share` (from 0 to 1) of `sorted`. At least this share of the values is not
/// larger than the quantile, which is the smallest such value.
fn quantile(sorted: &[u64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within a slice"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1] as f64
}

fn nanos(ns: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and no span here is near the limits"
    )]
    let nanos = ns.round() as u32;
    nanos
}
