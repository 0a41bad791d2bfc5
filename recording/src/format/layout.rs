//! The columns of each kind of event, listed once for both writing and reading.

use super::columns::{Column, Side};
use super::guess::{Deed, Role};
use super::varint::{fold, unfold};
use crate::event::{Symbol, What};

/// Returns the number that stands for a kind of event in the format. A new kind must get a new
/// number.
pub(super) const fn kind(what: &What) -> u64 {
    match what {
        What::Alloc { .. } => 1,
        What::AllocFailed { .. } => 2,
        What::Free { .. } => 3,
        What::FreeBatched { .. } => 4,
        What::PcpuDrain { .. } => 5,
        What::ZoneLocked { .. } => 6,
        What::ExtFrag { .. } => 7,
        What::BulkAlloc { .. } => 8,
        What::WorkQueued { .. } => 9,
        What::WorkStart { .. } => 10,
        What::WorkEnd { .. } => 11,
        What::TimerStart { .. } => 12,
        What::TimerExpire { .. } => 13,
        What::ContentionBegin { .. } => 14,
        What::ContentionEnd { .. } => 15,
        What::RssStat { .. } => 16,
        What::CounterAdd { .. } => 17,
        What::MarkVictim { .. } => 18,
        What::WakeReaper { .. } => 19,
        What::StartReaping { .. } => 20,
        What::FinishReaping { .. } => 21,
        What::SkipReaping { .. } => 22,
        What::ExitMmap => 23,
        What::Unmap { .. } => 24,
        What::Mark(_) => 25,
        What::KswapdWake { .. } => 26,
        What::KswapdDone => 27,
        What::KswapdSleep { .. } => 28,
        What::WakeupKswapd { .. } => 29,
        What::DirectReclaimBegin { .. } => 30,
        What::DirectReclaimEnd { .. } => 31,
    }
}

/// Returns an event of this kind with empty fields, for the reader to fill; `None` for an unknown
/// kind.
#[rustfmt::skip]
pub(super) fn blank(kind: u64) -> Option<What> {
    let function = Symbol(0);
    Some(match kind {
        1 => What::Alloc { pfn: 0, order: 0, mobility: None, gfp: None },
        2 => What::AllocFailed { order: 0, mobility: None },
        3 => What::Free { pfn: 0, order: 0 },
        4 => What::FreeBatched { pfn: 0 },
        5 => What::PcpuDrain { pfn: 0, order: 0, mobility: None },
        6 => What::ZoneLocked { pfn: 0, order: 0, mobility: 0, percpu_refill: false },
        7 => What::ExtFrag { pfn: 0, order: 0, fallback_order: 0, mobility: 0, fallback: 0, claimed: false },
        8 => What::BulkAlloc { pages: 0 },
        9 => What::WorkQueued { work: 0, function },
        10 => What::WorkStart { work: 0, function },
        11 => What::WorkEnd { work: 0, function },
        12 => What::TimerStart { timer: 0, function, expires: 0, bucket: None, now: 0, flags: 0 },
        13 => What::TimerExpire { timer: 0, function, now: 0 },
        14 => What::ContentionBegin { lock: 0, flags: 0, stack: Vec::new() },
        15 => What::ContentionEnd { lock: 0, result: 0 },
        16 => What::RssStat { mm: 0, current: false, member: 0, bytes: 0 },
        17 => What::CounterAdd { counter: 0, amount: 0, batch: 0 },
        18 => What::MarkVictim { victim: 0 },
        19 => What::WakeReaper { victim: 0 },
        20 => What::StartReaping { victim: 0 },
        21 => What::FinishReaping { victim: 0 },
        22 => What::SkipReaping { victim: 0 },
        23 => What::ExitMmap,
        24 => What::Unmap { start: 0, end: 0 },
        25 => What::Mark(String::new()),
        26 => What::KswapdWake { node: 0, zone: 0, order: 0 },
        27 => What::KswapdDone,
        28 => What::KswapdSleep { node: 0 },
        29 => What::WakeupKswapd { node: 0, zone: 0, order: 0, gfp: 0 },
        30 => What::DirectReclaimBegin { order: 0, gfp: 0 },
        31 => What::DirectReclaimEnd { pages: 0 },
        _ => return None,
    })
}

/// Passes every field of `what` through `side`, which writes the field to a column or reads it from
/// a column. Returns `None` if a column ends early or a number does not fit its field.
pub(super) fn layout(what: &mut What, side: &mut impl Side) -> Option<()> {
    match what {
        What::Alloc {
            pfn,
            order,
            mobility,
            gfp,
        } => {
            let mut known = gfp.is_some();
            class(side, [byte(order), maybe(mobility), flag(&mut known)])?;
            page(side, Role::Alloc, (*order, *mobility), pfn)?;
            if !known {
                return Some(());
            }
            side.number(Column::Gfp, gfp.get_or_insert(0))
        }
        What::AllocFailed { order, mobility } => class(side, [byte(order), maybe(mobility)]),
        What::Free { pfn, order } => {
            class(side, [byte(order)])?;
            page(side, Role::Free, (*order, None), pfn)
        }
        What::FreeBatched { pfn } => page(side, Role::Batched, (0, None), pfn),
        What::PcpuDrain {
            pfn,
            order,
            mobility,
        } => {
            class(side, [byte(order), maybe(mobility)])?;
            page(side, Role::Drain, (*order, *mobility), pfn)
        }
        What::ZoneLocked {
            pfn,
            order,
            mobility,
            percpu_refill,
        } => {
            class(side, [byte(order), byte(mobility), flag(percpu_refill)])?;
            page(side, Role::Zone, (*order, Some(*mobility)), pfn)
        }
        What::ExtFrag {
            pfn,
            order,
            fallback_order,
            mobility,
            fallback,
            claimed,
        } => {
            side.number(Column::ZonePfn, pfn)?;
            let sizes = [byte(order), byte(fallback_order)];
            let types = [byte(mobility), byte(fallback), flag(claimed)];
            class(side, sizes)?;
            class(side, types)
        }
        What::BulkAlloc { pages } => narrow(side, Column::Count, pages),
        What::ExitMmap => Some(()),
        What::Mark(text) => side.text(Column::Text, text),
        _ => of_time_and_locks(what, side),
    }
}

fn of_time_and_locks(what: &mut What, side: &mut impl Side) -> Option<()> {
    match what {
        What::WorkQueued { work, function }
        | What::WorkStart { work, function }
        | What::WorkEnd { work, function } => {
            side.number(Column::Address, work)?;
            narrow(side, Column::Symbol, &mut function.0)
        }
        What::TimerStart {
            timer,
            function,
            expires,
            bucket,
            now,
            flags,
        } => {
            side.number(Column::Address, timer)?;
            narrow(side, Column::Symbol, &mut function.0)?;
            narrow(side, Column::Flags, flags)?;
            side.number(Column::Jiffy, now)?;
            ahead(side, *now, expires)?;
            let mut known = u64::from(bucket.is_some());
            side.number(Column::Ahead, &mut known)?;
            if known == 0 {
                return Some(());
            }
            ahead(side, *now, bucket.get_or_insert(0))
        }
        What::TimerExpire {
            timer,
            function,
            now,
        } => {
            side.number(Column::Address, timer)?;
            narrow(side, Column::Symbol, &mut function.0)?;
            side.number(Column::Jiffy, now)
        }
        What::ContentionBegin { lock, flags, stack } => {
            side.number(Column::Address, lock)?;
            narrow(side, Column::Flags, flags)?;
            frames(side, stack)
        }
        What::ContentionEnd { lock, result } => {
            side.number(Column::Address, lock)?;
            signed(side, Column::Flags, result)
        }
        _ => of_processes(what, side),
    }
}

fn of_processes(what: &mut What, side: &mut impl Side) -> Option<()> {
    match what {
        What::RssStat {
            mm,
            current,
            member,
            bytes,
        } => {
            narrow(side, Column::Address, mm)?;
            let mut small = [u64::from(*current), u64::from(*member)];
            let [first, second] = &mut small;
            side.number(Column::Flags, first)?;
            side.number(Column::Flags, second)?;
            *current = small[0] != 0;
            *member = u32::try_from(small[1]).ok()?;
            signed(side, Column::Amount, bytes)
        }
        What::CounterAdd {
            counter,
            amount,
            batch,
        } => {
            side.number(Column::Address, counter)?;
            signed(side, Column::Flags, batch)?;
            signed(side, Column::Amount, amount)
        }
        What::MarkVictim { victim }
        | What::WakeReaper { victim }
        | What::StartReaping { victim }
        | What::FinishReaping { victim }
        | What::SkipReaping { victim } => narrow(side, Column::Victim, victim),
        What::Unmap { start, end } => {
            side.number(Column::Range, start)?;
            side.number(Column::Range, end)
        }
        _ => of_reclaim(what, side),
    }
}

fn of_reclaim(what: &mut What, side: &mut impl Side) -> Option<()> {
    match what {
        What::KswapdWake { node, zone, order } => {
            narrow(side, Column::Node, node)?;
            class(side, [byte(zone), byte(order)])
        }
        What::KswapdDone => Some(()),
        What::KswapdSleep { node } => narrow(side, Column::Node, node),
        What::WakeupKswapd {
            node,
            zone,
            order,
            gfp,
        } => {
            narrow(side, Column::Node, node)?;
            class(side, [byte(zone), byte(order)])?;
            side.number(Column::Gfp, gfp)
        }
        What::DirectReclaimBegin { order, gfp } => {
            class(side, [byte(order)])?;
            side.number(Column::Gfp, gfp)
        }
        What::DirectReclaimEnd { pages } => side.number(Column::Count, pages),
        // `blank` and this file's tests list every kind, so a test fails if this function lacks a
        // new kind.
        _ => None,
    }
}

/// Lets `side` (the writer or the reader) process a page frame number. The file has the index of
/// the right guess or, if no guess was right, the number itself.
fn page(
    side: &mut impl Side,
    role: Role,
    (order, mobility): (u8, Option<u8>),
    pfn: &mut u64,
) -> Option<()> {
    let deed = Deed {
        role,
        order,
        mobility,
    };
    let (guessed, number) = match role {
        Role::Alloc => (Some(Column::AllocGuess), Column::AllocPfn),
        Role::Free => (Some(Column::FreeGuess), Column::FreePfn),
        Role::Batched => (Some(Column::BatchedGuess), Column::BatchedPfn),
        Role::Drain => (Some(Column::DrainGuess), Column::DrainPfn),
        Role::Zone => (None, Column::ZonePfn),
    };
    let mut place = side.place(deed, *pfn);
    if let Some(guessed) = guessed {
        side.number(guessed, &mut place)?;
    }
    if place == 0 {
        side.number(number, pfn)?;
    } else if guessed.is_some() {
        side.page(deed, place, pfn)?;
    }
    side.memory().guesser.learn(deed, *pfn, place);
    Some(())
}

/// One of the small fields that [`class`] packs into one number.
enum Part<'a> {
    Byte(&'a mut u8),
    Maybe(&'a mut Option<u8>),
    Flag(&'a mut bool),
}

fn byte(value: &mut u8) -> Part<'_> {
    Part::Byte(value)
}

fn maybe(value: &mut Option<u8>) -> Part<'_> {
    Part::Maybe(value)
}

fn flag(value: &mut bool) -> Part<'_> {
    Part::Flag(value)
}

/// Passes up to three small fields through `side` (the writer or the reader) as one number, with 16
/// bits for each field. The column of this number is encoded with a table of the numbers seen so
/// far. This table stays small, because few combinations of values occur.
fn class<const N: usize>(side: &mut impl Side, parts: [Part<'_>; N]) -> Option<()> {
    const BITS: usize = 16;
    let number = |part: &Part<'_>| match part {
        Part::Byte(value) => u64::from(**value),
        Part::Maybe(value) => value.map_or(0, |value| u64::from(value) + 1),
        Part::Flag(value) => u64::from(**value),
    };
    let mut class = 0;
    for (nth, part) in parts.iter().enumerate() {
        class |= number(part) << (nth * BITS);
    }
    side.number(Column::Class, &mut class)?;
    for (nth, part) in parts.into_iter().enumerate() {
        let number = class >> (nth * BITS) & 0xffff;
        match part {
            Part::Byte(value) => *value = u8::try_from(number).ok()?,
            Part::Maybe(value) => {
                *value = match number.checked_sub(1) {
                    Some(number) => Some(u8::try_from(number).ok()?),
                    None => None,
                }
            }
            Part::Flag(value) => *value = number != 0,
        }
    }
    Some(())
}

fn narrow(side: &mut impl Side, column: Column, value: &mut u32) -> Option<()> {
    let mut wide = u64::from(*value);
    side.number(column, &mut wide)?;
    *value = u32::try_from(wide).ok()?;
    Some(())
}

fn signed<T>(side: &mut impl Side, column: Column, value: &mut T) -> Option<()>
where
    T: Copy + Into<i64> + TryFrom<i64>,
{
    let mut wide = (*value).into().cast_unsigned();
    side.number(column, &mut wide)?;
    *value = T::try_from(wide.cast_signed()).ok()?;
    Some(())
}

/// Encodes or decodes a time in jiffies, as its distance from `now`. `side` is the encoder or the
/// decoder.
fn ahead(side: &mut impl Side, now: u64, value: &mut u64) -> Option<()> {
    let mut distance = fold(value.wrapping_sub(now).cast_signed());
    side.number(Column::Ahead, &mut distance)?;
    *value = now.wrapping_add(unfold(distance).cast_unsigned());
    Some(())
}

fn frames(side: &mut impl Side, stack: &mut Vec<Symbol>) -> Option<()> {
    let mut length = stack.len() as u64;
    side.number(Column::StackLength, &mut length)?;
    let length = usize::try_from(length).ok()?;
    for nth in 0..length {
        // The vector grows only as numbers are read, so a wrong length costs no memory.
        if nth == stack.len() {
            stack.push(Symbol(0));
        }
        narrow(side, Column::Stack, &mut stack[nth].0)?;
    }
    Some(())
}
