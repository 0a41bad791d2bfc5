//! Faults that kill a process to make room under a budget, instead of failing (Linux:
//! `try_charge_memcg`).
//!
//! This file itself takes no lock.

use super::kill::Signals;
use super::out_of_memory::{OutOfMemory, Owner};
use crate::machine::Machine;
use crate::page::Relief;
use crate::space::{Access, AddressSpace, FaultError, Faulted, Memory};
use crate::units::Vpn;

impl<M: Machine, S: Signals<M>, O: Owner<M>> OutOfMemory<M, S, O> {
    /// Does what [`AddressSpace::fault`] does, unless a budget has no room for the page. In that
    /// case, this call kills a process under that budget, and waits until the budget has room.
    ///
    /// # Errors
    /// The errors of [`AddressSpace::fault`], with two differences. [`FaultError::OverBudget`] is
    /// returned only if no process under the budget may be killed. [`FaultError::Killed`] is also
    /// returned if the caller's own process is dying.
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
                // Try once more: the last process that could be killed may have been dying during
                // the selection. That process may have left its address space since.
                Some(Relief::GiveUp(_)) if !gave_up => gave_up = true,
                Some(Relief::GiveUp(_)) | None => return Err(FaultError::OverBudget(over)),
            }
        }
    }
}
