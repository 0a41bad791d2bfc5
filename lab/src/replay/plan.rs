//! The operations of each CPU of a recording, with page frame numbers replaced by slots.
//!
//! A slot stands for one block from its allocation to its free. A recorded frame number means
//! nothing on another machine, but the slot still shows which free belongs to which allocation.

use std::collections::BTreeMap;

use plimsoll_mm::page::Mobility;
use plimsoll_mm::units::Order;

use crate::trace::{Event, Recording};

/// The operations (steps) of each recorded CPU, with their times.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The recorded numbers (ids) of the CPUs in the plan.
    pub(super) ids: Vec<u32>,
    /// The steps of each CPU in `ids`, in order of time.
    pub(super) streams: Vec<Vec<PlannedOp>>,
    /// The number of slots that the steps use. A slot stands for one block from its allocation to
    /// its free.
    pub(super) slots: u32,
    pub(super) allocs: u64,
    pub(super) frees: u64,
    /// The number of frees of blocks that were allocated before the recording began. If the
    /// recording does not show the state at its beginning, the plan omits these frees.
    pub(super) unmatched: u64,
}

/// One operation of a CPU, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedOp {
    /// The time since the beginning of the plan, in nanoseconds.
    pub(super) at_ns: u64,
    /// The slot that stands for the block. For [`What::Bulk`], this is the slot of the first block.
    /// For [`What::FreeOld`], this field has no meaning.
    pub(super) slot: u32,
    pub(super) what: What,
}

/// The operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Allocates a block. Later steps refer to the block by the slot of this step.
    Alloc(ZoneRequest),
    /// Allocates this number of single pages at once. The pages get consecutive slots, beginning
    /// with the slot of the step.
    Bulk(ZoneRequest, u32),
    /// Frees the block that an earlier step allocated, to the page list of this migrate type.
    /// `None` if the type is unknown.
    Free(Option<Mobility>),
    /// Frees a block that was in use before the recording and therefore has no slot.
    FreeOld(ZoneRequest),
    /// Splits the slot's block into blocks of this order. The new blocks get consecutive slots,
    /// beginning with the slot that the second field names.
    Split(Order, u32),
}

/// A request for a block: the order, the migrate type and, if it is known, the recorded zone of the
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZoneRequest {
    /// The recorded zone. `None` if it is unknown.
    pub(super) zone: Option<u8>,
    pub(super) order: Order,
    pub(super) mobility: Mobility,
}

impl ZoneRequest {
    /// The request for a block of which the recording shows only the order.
    pub(super) const fn of(order: Order) -> Self {
        Self {
            zone: None,
            order,
            mobility: Mobility::Unmovable,
        }
    }
}

impl Plan {
    /// Makes the plan to replay a recording that does not show the contents of the page lists.
    pub(super) fn of(recording: &Recording) -> Self {
        let start = recording.records.first().map_or(0, |record| record.time_ns);
        let mut live: BTreeMap<u64, u32> = BTreeMap::new();
        let mut streams: BTreeMap<u32, Vec<PlannedOp>> = BTreeMap::new();
        let mut plan = Self::default();
        for record in &recording.records {
            let stream = streams.entry(record.cpu).or_default();
            let at_ns = record.time_ns - start;
            let mut step = |slot, what| stream.push(PlannedOp { at_ns, slot, what });
            match record.event {
                Event::Alloc { pfn, order } => {
                    let slot = plan.slots;
                    plan.slots += 1;
                    plan.allocs += 1;
                    // The recording lost a free of this block, so the plan frees the block before
                    // the block is allocated again.
                    if let Some(lost) = live.insert(pfn, slot) {
                        step(lost, What::Free(None));
                    }
                    step(slot, What::Alloc(ZoneRequest::of(order)));
                }
                Event::Free { pfn, .. } => match live.remove(&pfn) {
                    Some(slot) => {
                        plan.frees += 1;
                        step(slot, What::Free(None));
                    }
                    None => plan.unmatched += 1,
                },
                _ => {}
            }
        }
        (plan.ids, plan.streams) = streams.into_iter().unzip();
        plan
    }

    /// The number of CPUs in the plan.
    pub(super) fn cpus(&self) -> u32 {
        u32::try_from(self.streams.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Record, Summary};

    fn plan(events: &[(u64, u32, Event)]) -> Plan {
        let record = |&(time_ns, cpu, event): &(u64, u32, Event)| Record {
            time_ns,
            cpu,
            pid: 1,
            event,
        };
        let records: Vec<Record> = events.iter().map(record).collect();
        let summary = Summary::of(&records);
        Plan::of(&Recording {
            records,
            summary,
            warnings: Vec::new(),
        })
    }

    #[test]
    fn a_free_finds_its_allocation_on_another_cpu_and_a_reused_frame_is_another_block() {
        let order = Order::ZERO;
        let plan = plan(&[
            (100, 0, Event::Alloc { pfn: 7, order }),
            (200, 3, Event::Free { pfn: 7, order }),
            (300, 0, Event::Free { pfn: 9, order }),
            (400, 0, Event::Alloc { pfn: 7, order }),
            (500, 3, Event::Alloc { pfn: 7, order }),
        ]);
        assert_eq!((plan.allocs, plan.frees, plan.unmatched), (3, 1, 1));
        let step = |at_ns, slot, what| PlannedOp { at_ns, slot, what };
        assert_eq!(
            plan.streams,
            [
                vec![
                    step(0, 0, What::Alloc(ZoneRequest::of(order))),
                    step(300, 1, What::Alloc(ZoneRequest::of(order)))
                ],
                vec![
                    step(100, 0, What::Free(None)),
                    step(400, 1, What::Free(None)),
                    step(400, 2, What::Alloc(ZoneRequest::of(order)))
                ],
            ]
        );
    }
}
