//! Prepares the kernel for a recording: an instance with buffers, clock, events and probes.

use std::fs;
use std::num::NonZeroU32;

use plimsoll_recording::ring::Formats;
use plimsoll_recording::{Header, Kallsyms};

use super::{Holds, Options, RecordError, events, holds, kernel, reclaim};
use crate::tracefs::{Instance, NoProbe, Probe, Tracefs};

/// The largest default size of a CPU's ring buffer, in MiB. A buffer of this size holds about half
/// a million events.
const BUFFER_MIB: u64 = 16;

/// The default limit for all ring buffers together is the available memory divided by this number.
const MEMORY_PART: u64 = 8;

/// The prepared kernel; switching tracing on starts the recording. Rust drops the fields in their
/// order: first the instance, then the probes, which the kernel does not remove while the instance
/// uses them, and then tracefs.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) instance: Instance,
    _probes: [Option<Probe>; 3],
    _tracefs: Tracefs,
    pub(super) cpus: Vec<u32>,
    pub(super) sub_buffer_bytes: usize,
    pub(super) formats: Formats,
    pub(super) kallsyms: Kallsyms,
    pub(super) header: Header,
}

impl Setup {
    pub(super) fn new(options: &Options) -> Result<Self, RecordError> {
        let tracefs = Tracefs::find()?;
        let bulk_end = Probe::bulk(&tracefs);
        let kswapd_done = Probe::kswapd_done(&tracefs);
        let hold_end = (options.holds == Holds::Wanted).then(|| Probe::hold_end(&tracefs));
        let instance = Instance::create(&tracefs)?;
        let cpus = instance.cpus();
        let cpus =
            cpus.map_err(|error| RecordError::of_tracefs(instance.path("per_cpu"), error))?;
        let mut header = kernel::header();
        buffers(&instance, options.buffer_mib, cpus.len())?;
        instance.set("trace_clock", "mono")?;
        // When a buffer is full, the kernel drops new events instead of old ones, so the events
        // that it keeps have no gaps.
        instance.set("options/overwrite", "0")?;
        let kallsyms = kallsyms(&mut header);
        let chosen = events::enable(&instance, options.rss, &kallsyms);
        header.recorded = chosen.recorded;
        header.missing.extend(chosen.missing);
        bulk(&instance, bulk_end.as_ref(), &mut header);
        reclaim::enable(&instance, kswapd_done.as_ref(), &mut header);
        if let Some(probe) = &hold_end {
            holds::enable(&instance, probe.as_ref(), &kallsyms, &mut header);
        }
        header
            .texts
            .push(("trace_clock".to_owned(), "mono".to_owned()));
        let probes = [
            bulk_end.ok(),
            kswapd_done.ok(),
            hold_end.and_then(Result::ok),
        ];
        let (formats, sub_buffer_bytes) = formats(&tracefs, &probes)?;
        header.command = command(options);
        Ok(Self {
            instance,
            _probes: probes,
            _tracefs: tracefs,
            cpus,
            sub_buffer_bytes,
            formats,
            kallsyms,
            header,
        })
    }
}

fn buffers(
    instance: &Instance,
    wanted: Option<NonZeroU32>,
    cpus: usize,
) -> Result<(), RecordError> {
    let usual = || {
        let part = available_mib() / MEMORY_PART / (cpus.max(1) as u64);
        u32::try_from(part.clamp(1, BUFFER_MIB)).unwrap_or(1)
    };
    let mib = wanted.map_or_else(usual, NonZeroU32::get);
    let kib = u64::from(mib) * 1024;
    let written = instance.write("buffer_size_kb", &kib.to_string());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::OutOfMemory | std::io::ErrorKind::InvalidInput => {
            RecordError::Buffers { mib }
        }
        _ => RecordError::of_tracefs(instance.path("buffer_size_kb"), error),
    })
}

fn available_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib / 1024)
}

fn kallsyms(header: &mut Header) -> Kallsyms {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let kallsyms = Kallsyms::parse(&text);
    if kallsyms.is_empty() {
        header.missing.push(
            "Names of functions: /proc/kallsyms hides addresses; set kernel.kptr_restrict to 0 \
             or 1 (`sysctl kernel.kptr_restrict=1`)."
                .to_owned(),
        );
    }
    kallsyms
}

/// Switches on the probe that records bulk allocations. If this is not possible, adds the reason to
/// the header.
fn bulk(instance: &Instance, probe: Result<&Probe, &NoProbe>, header: &mut Header) {
    let consequence = "bulk allocations (alloc_pages_bulk has no tracepoint) are not recorded, \
                       and their pages appear as frees without an allocation";
    let why = match probe {
        Ok(probe) => match instance.write(&format!("events/{}/enable", probe.event()), "1") {
            Ok(()) => {
                header.recorded.push("plimsoll:bulkret".to_owned());
                return;
            }
            Err(error) => format!("the kernel did not enable the probe: {error}"),
        },
        Err(NoProbe::Unsupported) => {
            "this kernel has no probes, which need CONFIG_KPROBE_EVENTS".to_owned()
        }
        Err(NoProbe::Refused(error)) => format!("the kernel refused a probe: {error}"),
    };
    header
        .missing
        .push(format!("plimsoll:bulkret: {consequence} ({why})."));
}

/// Returns the formats of events, and the size of a sub-buffer in bytes.
fn formats(tracefs: &Tracefs, probes: &[Option<Probe>]) -> Result<(Formats, usize), RecordError> {
    let unknown = |error: &dyn ToString| RecordError::Formats(error.to_string());
    let mut formats = Formats::default();
    let events = events::formats().map(str::to_owned);
    for event in events.chain(probes.iter().flatten().map(Probe::event)) {
        // If there is no such file, the kernel lacks the event, and the header already lists the
        // event as missing.
        if let Ok(text) = tracefs.read(&format!("events/{event}/format")) {
            formats.add(&text).map_err(|error| unknown(&error))?;
        }
    }
    let page = tracefs.read("events/header_page");
    let page = page.map_err(|error| RecordError::of_tracefs("events/header_page", error))?;
    formats
        .header_page(&page)
        .map_err(|error| unknown(&error))?;
    let bytes = formats.sub_buffer_bytes();
    let bytes = bytes.ok_or_else(|| unknown(&"no size of a sub-buffer"))?;
    Ok((formats, bytes))
}

/// Returns the command as a person would type it.
fn command(options: &Options) -> String {
    let words = options.command.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}
