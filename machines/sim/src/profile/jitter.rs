//! The table `[jitter]` of a profile: how often something disturbs a CPU, and for how long.
//!
//! A disturbance is an interrupt, a softirq, or a steal; only virtual machines have steals. For
//! each kind, the table has the mean time between two disturbances of a busy CPU, and the mean
//! length of a disturbance. Both are ranges with a source, like a price. The low end of each range
//! is the cheapest: the longest time between disturbances, and the shortest length.

use super::cost::Range;
use super::error::ProfileError;
use super::read::Section;
use super::{Card, check};

/// Something that takes a CPU away from its work for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Disturbance {
    /// An interrupt: a tick, a device, or a request by another CPU.
    Interrupt,
    /// The deferred part of interrupts, which runs when an interrupt returns (Linux: softirqs).
    Softirq,
    /// The hypervisor takes the virtual CPU away (Linux: steal time).
    Steal,
}

impl Disturbance {
    /// Every kind of disturbance, in declaration order.
    pub const ALL: [Self; 3] = [Self::Interrupt, Self::Softirq, Self::Steal];

    /// The name of this kind. The keys of the kind in a profile begin with it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Softirq => "softirq",
            Self::Steal => "steal",
        }
    }

    /// Returns whether the disturbance is work of the guest's own kernel. Such work waits while
    /// the CPU masks interrupts, is slower with KASAN, and depends on the speed of the core.
    #[must_use]
    pub const fn is_kernel_work(self) -> bool {
        !matches!(self, Self::Steal)
    }

    const fn every_key(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt_every_us",
            Self::Softirq => "softirq_every_us",
            Self::Steal => "steal_every_us",
        }
    }

    const fn length_key(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt_ns",
            Self::Softirq => "softirq_ns",
            Self::Steal => "steal_ns",
        }
    }
}

/// One kind of disturbance, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// The kind of the disturbances.
    pub kind: Disturbance,
    /// The mean time from the end of one disturbance to the next on a busy CPU, in microseconds.
    /// The low end of the range is the longest time.
    pub every_us: Range,
    /// The source of the times between disturbances.
    pub every_source: String,
    /// The mean length of a disturbance, in nanoseconds.
    pub length_ns: Range,
    /// The source of the lengths.
    pub length_source: String,
}

/// How often each kind of disturbance comes, and how long it lasts, at one card (low, middle or
/// high).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// For each kind, indexed by `Disturbance as usize`: the mean time between two disturbances and
    /// the mean length, both in nanoseconds. `None` if the machine has no disturbances of the kind.
    pub rates: [Option<Rate>; Disturbance::ALL.len()],
}

/// How often disturbances of one kind come, and how long they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The mean time from the end of one disturbance to the next, in nanoseconds.
    pub every_ns: u64,
    /// The mean length of a disturbance, in nanoseconds.
    pub length_ns: u64,
}

/// Reads the table `[jitter]`. A file without this table describes a machine without disturbances.
pub(super) fn read(root: &Section<'_>) -> Result<Vec<Disturbed>, ProfileError> {
    let Some(value) = root.get("jitter") else {
        return Ok(Vec::new());
    };
    let table = value.section("write a [jitter] table")?;
    let keys = Disturbance::ALL.map(|kind| [kind.every_key(), kind.length_key()]);
    table.only(keys.as_flattened())?;
    let mut kinds = Vec::new();
    for kind in Disturbance::ALL {
        let keys = [kind.every_key(), kind.length_key()];
        if keys.iter().any(|key| table.get(key).is_some()) {
            kinds.push(one(&table, kind)?);
        }
    }
    Ok(kinds)
}

fn one(table: &Section<'_>, kind: Disturbance) -> Result<Disturbed, ProfileError> {
    let (every_us, every_source) = span(table, kind.every_key(), "us")?;
    let (length_ns, length_source) = span(table, kind.length_key(), "ns")?;
    let every = table.get(kind.every_key());
    let rarer = |near: u32, far: u32| near >= far;
    if !rarer(every_us.low, every_us.mid) || !rarer(every_us.mid, every_us.high) {
        let why = "the low card is the cheapest, so its disturbances are the rarest";
        let why = format!("order low, mid, high from long to short; {why}");
        return Err(table.absurd(kind.every_key(), why));
    }
    let lengths = table
        .need(kind.length_key(), SHAPE)?
        .section(SHAPE)
        .expect("it was read as one");
    check::in_order(&lengths, length_ns)?;
    for card in Card::ALL {
        let every_ns = u64::from(every_us.at(card)) * 1000;
        if u64::from(length_ns.at(card)) >= every_ns {
            let why = format!("as long as the time between two of them at the card {card}");
            let value = every.as_ref().expect("it was read");
            return Err(value.absurd(format!("a {} is {why}; write a longer time", kind.name())));
        }
    }
    Ok(Disturbed {
        kind,
        every_us,
        every_source,
        length_ns,
        length_source,
    })
}

const SHAPE: &str = "write { low = …, mid = …, high = …, source = \"…\" }";

/// Reads a range of times, in the unit `unit`, and its source.
fn span(table: &Section<'_>, key: &str, unit: &str) -> Result<(Range, String), ProfileError> {
    const LONGEST: u32 = 1_000_000_000;
    let span = table.need(key, SHAPE)?.section(SHAPE)?;
    span.only(&["low", "mid", "high", "source"])?;
    let end = |card: Card| {
        let value = span.need(card.name(), SHAPE)?;
        let number = value.number()?;
        if (1..=LONGEST).contains(&number) {
            return Ok(number);
        }
        Err(value.absurd(format!(
            "{number} is out of range; write 1 to {LONGEST} {unit}"
        )))
    };
    let range = Range {
        low: end(Card::Low)?,
        mid: end(Card::Mid)?,
        high: end(Card::High)?,
    };
    let source = "write where the numbers come from, or \"estimate: …\" and why";
    let source = span.need("source", source)?.text(source)?.to_owned();
    Ok((range, source))
}

/// The rates of `kinds` at `card` (low, middle or high); `None` if there are no disturbances.
pub(super) fn at(kinds: &[Disturbed], card: Card) -> Option<Jitter> {
    let mut jitter = Jitter::default();
    for of in kinds {
        jitter.rates[of.kind as usize] = Some(Rate {
            every_ns: u64::from(of.every_us.at(card)) * 1000,
            length_ns: u64::from(of.length_ns.at(card)),
        });
    }
    (!kinds.is_empty()).then_some(jitter)
}

/// Lengthens the disturbances that are kernel work, for the variant `name`. `slower` computes the
/// length of a disturbance in this variant. Its arguments are the length without the variant, and
/// the card (low, middle or high).
pub(super) fn slow_down(kinds: &mut [Disturbed], name: &str, slower: impl Fn(u32, Card) -> u32) {
    for of in kinds.iter_mut().filter(|of| of.kind.is_kernel_work()) {
        for card in Card::ALL {
            let length_ns = of.length_ns.at_mut(card);
            *length_ns = slower(*length_ns, card);
        }
        of.length_source = format!("times the {name} factor: {}", of.length_source);
    }
}
