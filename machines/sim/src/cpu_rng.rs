//! The random numbers that code on a simulated machine draws (for example a workload).

use std::convert::Infallible;

use rand::{Rng, TryRng};

use crate::engine::state::Sim;

/// A source of random numbers. Each number comes from the stream of the CPU on which the caller
/// runs when it draws.
#[derive(Debug)]
pub struct CpuRng<'sim>(pub(crate) &'sim Sim);

impl TryRng for CpuRng<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.0.cpu().rng.borrow_mut().next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.0.cpu().rng.borrow_mut().next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.0.cpu().rng.borrow_mut().fill_bytes(bytes);
        Ok(())
    }
}
