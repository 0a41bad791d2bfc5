//! The kernel's ring buffers as they are read from `per_cpu/cpuN/trace_pipe_raw`: sub-buffers of
//! binary events. The `format` files of tracefs say what each event is.
//!
//! ```text
//! sub-buffer  timestamp (8)  commit (8 or 4)  data: entry entry …      events/header_page
//! entry       type and length (5 bits)  time step (27 bits)  payload   events/header_event
//! payload     event's number (2) …                                     events/*/*/format
//! ```
//!
//! A [`Decoder`] takes the sub-buffers of each CPU in the order in which they were read. The
//! decoder trusts no byte of a sub-buffer. A sub-buffer that cannot be decoded is an error, but the
//! decoder can still decode later sub-buffers.

mod entries;
mod fields;
mod formats;
mod layout;
mod meaning;

use std::collections::BTreeMap;
use std::error;
use std::fmt;

use rustc_hash::FxHashMap;

use self::entries::{Entries, SubBuffer};
use self::fields::Record;
use self::meaning::Meaning;
use crate::Recording;
use crate::event::{Event, Symbol, What};
use crate::header::{Header, LOST_MAX};
use crate::symbols::{Kallsyms, Symbols};

pub use self::formats::{FormatError, Formats};

/// Decodes sub-buffers into events.
#[derive(Debug)]
pub struct Decoder {
    formats: Formats,
    kallsyms: Kallsyms,
    symbols: Symbols,
    by_address: FxHashMap<u64, Symbol>,
    lost: BTreeMap<u32, u64>,
    unknown: BTreeMap<String, u64>,
}

/// The reason why a sub-buffer could not be decoded to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingError {
    /// The CPU to which the sub-buffer belongs.
    pub cpu: u32,
    /// The offset of the error in the sub-buffer, in bytes.
    pub at: usize,
    /// A description of the error.
    pub what: &'static str,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, at, what } = self;
        write!(
            f,
            "a ring buffer page of CPU {cpu} makes no sense at byte {at}: {what}"
        )
    }
}

impl error::Error for RingError {}

impl Decoder {
    /// Creates a decoder that uses `formats` to decode events and `kallsyms` to name functions.
    #[must_use]
    pub fn new(formats: Formats, kallsyms: Kallsyms) -> Self {
        Self {
            formats,
            kallsyms,
            symbols: Symbols::default(),
            by_address: FxHashMap::default(),
            lost: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// Appends the events of one sub-buffer of `cpu` to `out`, in the order in which the kernel
    /// wrote them.
    ///
    /// # Errors
    /// If the sub-buffer cannot be decoded; the events before the error are in `out`.
    pub fn sub_buffer(
        &mut self,
        cpu: u32,
        bytes: &[u8],
        out: &mut Vec<Event>,
    ) -> Result<(), RingError> {
        let wrong = |(at, what)| RingError { cpu, at, what };
        let sub_buffer = SubBuffer::read(bytes, self.formats.page()).map_err(wrong)?;
        if sub_buffer.lost > 0 {
            let lost = self.lost.entry(cpu).or_default();
            *lost = lost.saturating_add(sub_buffer.lost).min(LOST_MAX);
        }
        let begin = out.len();
        for entry in Entries::new(&sub_buffer) {
            let entry = entry.map_err(wrong)?;
            let what = "an event is shorter than its fields";
            let at = entry.at;
            self.event(cpu, entry.time_ns, entry.payload, out, begin)
                .ok_or(RingError { cpu, at, what })?;
        }
        Ok(())
    }

    /// Decodes one payload; returns `None` if the payload is too short or a number does not fit its
    /// field.
    fn event(
        &mut self,
        cpu: u32,
        time_ns: u64,
        payload: &[u8],
        out: &mut Vec<Event>,
        begin: usize,
    ) -> Option<()> {
        let (number, _) = payload.split_first_chunk::<2>()?;
        let number = u16::from_le_bytes(*number);
        let Some((format, meaning)) = self.formats.event(number) else {
            self.count_unknown(&format!("event {number}"));
            return Some(());
        };
        let record = Record::new(format, payload);
        let pid = u32::try_from(record.signed("common_pid")?).unwrap_or(0);
        let (addresses, what) = match meaning {
            Meaning::Unknown => {
                let name = format.name.clone();
                self.count_unknown(&name);
                return Some(());
            }
            Meaning::Stack => (record.addresses("caller")?, None),
            Meaning::What(read) => {
                let what = read(&record)?;
                let function = record.number("function");
                (function.into_iter().collect(), Some(what))
            }
        };
        let stack: Vec<Symbol> = addresses
            .into_iter()
            .map(|address| self.name(address))
            .collect();
        let Some(mut what) = what else {
            attach(&mut out[begin..], pid, stack);
            return Some(());
        };
        if let (Some(function), Some(symbol)) = (function_of(&mut what), stack.first()) {
            *function = *symbol;
        }
        out.push(Event {
            time_ns,
            cpu,
            pid,
            what,
        });
        Some(())
    }

    fn name(&mut self, address: u64) -> Symbol {
        if let Some(&known) = self.by_address.get(&address) {
            return known;
        }
        let symbol = self.symbols.symbol(&self.kallsyms.name(address));
        self.by_address.insert(address, symbol);
        symbol
    }

    fn count_unknown(&mut self, name: &str) {
        match self.unknown.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.unknown.insert(name.to_owned(), 1)),
        }
    }

    /// Returns the names to which the events decoded so far refer.
    #[must_use]
    pub fn symbols(&self) -> &[String] {
        self.symbols.names()
    }

    /// Returns the number of events that the kernel reports as dropped, by CPU. If the kernel does
    /// not report the number of events in a gap, the gap counts as one event.
    #[must_use]
    pub fn lost(&self) -> &BTreeMap<u32, u64> {
        &self.lost
    }

    /// Returns the number of events of unknown kinds, by name.
    #[must_use]
    pub fn unknown(&self) -> &BTreeMap<String, u64> {
        &self.unknown
    }
}

/// Decodes the sub-buffers of all ring buffers. `sub_buffers` yields pairs of a CPU and one
/// sub-buffer, for each CPU in the order of reading. Returns the recording, and the errors of
/// sub-buffers that cannot be decoded.
#[must_use]
pub fn decode<'a, I>(
    mut header: Header,
    formats: Formats,
    kallsyms: Kallsyms,
    sub_buffers: I,
) -> (Recording, Vec<RingError>)
where
    I: IntoIterator<Item = (u32, &'a [u8])>,
{
    let mut decoder = Decoder::new(formats, kallsyms);
    let mut events = Vec::new();
    let mut wrong = Vec::new();
    for (cpu, bytes) in sub_buffers {
        wrong.extend(decoder.sub_buffer(cpu, bytes, &mut events).err());
    }
    header.symbols = decoder.symbols().to_vec();
    header.lost = decoder
        .lost()
        .iter()
        .map(|(cpu, lost)| (*cpu, *lost))
        .collect();
    let mut recording = Recording { header, events };
    recording.sort();
    (recording, wrong)
}

/// Adds a call chain to the preceding contention event, because the kernel writes the chain right
/// after that event.
fn attach(events: &mut [Event], pid: u32, chain: Vec<Symbol>) {
    let Some(last) = events.last_mut().filter(|event| event.pid == pid) else {
        return;
    };
    if let What::ContentionBegin { stack, .. } = &mut last.what
        && stack.is_empty()
    {
        *stack = chain;
    }
}

fn function_of(what: &mut What) -> Option<&mut Symbol> {
    match what {
        What::WorkQueued { function, .. }
        | What::WorkStart { function, .. }
        | What::WorkEnd { function, .. }
        | What::TimerStart { function, .. }
        | What::TimerExpire { function, .. } => Some(function),
        _ => None,
    }
}
