//! Faults that make room under a budget instead of being refused (Linux: `try_charge_memcg`).
//!
//! Locks: none here.

use super::kill::Signals;
use super::out_of_memory::{OutOfMemory, Owner};
use crate::machine::Machine;
use crate::page::Relief;
use crate::space::{Access, AddressSpace, FaultError, Faulted, Memory};
use crate::units::Vpn;

impl<M: Machine, S: Signals<M>, O: Owner<M>> OutOfMemory<M, S, O> {
    /// [`AddressSpace::fault`], but where a budget is too full for the page, somebody under that budget
    /// is killed for it, and the fault waits until there is room.
    ///
    /// # Errors
    /// As those of the fault. [`FaultError::OverBudget`] if nobody under the budget may be killed;
    /// [`FaultError::Killed`] if it is the caller's process that is dying.
    pub fn fault_or_kill(
        &self,
        memory: Memory<'_, M>,
        space: &AddressSpace<M>,
        page: Vpn,
        access: Access,
    ) -> Result<Faulted, FaultError> {
        let mut gave_up = false;
        loop {
            let over = match space.fault(memory, page, access) {
                Err(FaultError::OverBudget(over)) => over,
                done => return done,
            };
            let full = space.budget().and_then(|budget| budget.above(over.level));
            let relief = full.map(|full| self.relieve_group(memory.machine, full, 1));
            match relief {
                Some(Relief::Retry | Relief::Allocated(_)) => gave_up = false,
                Some(Relief::Reserves) => return Err(FaultError::Killed),
                // Once more: who was dying meanwhile, and the last that could be killed, has left.
                Some(Relief::GiveUp(_)) if !gave_up => gave_up = true,
                Some(Relief::GiveUp(_)) | None => return Err(FaultError::OverBudget(over)),
            }
        }
    }
}
