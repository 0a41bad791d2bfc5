//! Records when CPUs release the zone lock. Linux has no tracepoint there, so the recorder probes
//! the function that releases locks, and records only the calls in which the page allocator
//! releases a zone lock.

use plimsoll_recording::{Header, Kallsyms};

use crate::tracefs::{Instance, NoProbe, Probe};

/// Whether the moments at which CPUs release the zone lock are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Records every release of a zone lock. The probe slows every release of a lock that was taken
    /// with interrupts off.
    Wanted,
    /// The recorder does not record when a zone lock is released, so it slows no release.
    Spared,
}

/// The functions that may contain the return address of a zone-lock release. Some of these
/// functions release the lock after moving pages. A compiler may have inlined such a function into
/// its callers, so the list has the callers too. `free_pcppages_bulk` and `free_one_page` end with
/// the release. A compiler turns such a release into a tail call, whose return address lies in the
/// caller. So the list also has the callers of these two functions. None of the listed functions
/// releases any other lock through the probed function.
const FUNCTIONS: [&str; 19] = [
    "free_pcppages_bulk",
    "free_unref_page_commit",
    "free_unref_page",
    "free_unref_page_list",
    "free_unref_folios",
    "free_frozen_page_commit",
    "free_frozen_pages",
    "__free_frozen_pages",
    "__free_pages_ok",
    "decay_pcp_high",
    "drain_zone_pages",
    "rmqueue_bulk",
    "__rmqueue_pcplist",
    "rmqueue",
    "rmqueue_buddy",
    "get_page_from_freelist",
    "free_one_page",
    "drain_pages_zone",
    "zone_hold_next",
];

/// Switches the probe on, or adds to the header why releases of the zone lock are missing.
pub(super) fn enable(
    instance: &Instance,
    probe: Result<&Probe, &NoProbe>,
    kallsyms: &Kallsyms,
    header: &mut Header,
) {
    let why = match (probe, filter(kallsyms)) {
        (Ok(probe), Some(filter)) => {
            let folder = format!("events/{}", probe.event());
            let filtered = instance.write(&format!("{folder}/filter"), &filter);
            let on = filtered.and_then(|()| instance.write(&format!("{folder}/enable"), "1"));
            match on {
                Ok(()) => {
                    let recorded = "plimsoll:holdend of the page allocator";
                    header.recorded.push(recorded.to_owned());
                    return;
                }
                Err(error) => format!("the kernel did not enable the probe: {error}"),
            }
        }
        (Ok(_), None) => "names of functions are hidden".to_owned(),
        (Err(NoProbe::Unsupported), _) => {
            "it needs x86-64 and a kernel with CONFIG_KPROBE_EVENTS".to_owned()
        }
        (Err(NoProbe::Refused(error)), _) => format!("the kernel refused a probe: {error}"),
    };
    let missing = format!("plimsoll:holdend: ends of zone-lock holds are not recorded ({why}).");
    header.missing.push(missing);
}

/// Returns a filter that keeps a release of a lock if its return address is inside one of
/// [`FUNCTIONS`], so that only releases of zone locks remain. Returns `None` if the kernel hides
/// the addresses of functions.
fn filter(kallsyms: &Kallsyms) -> Option<String> {
    let extents = FUNCTIONS.iter().flat_map(|name| kallsyms.extents(name));
    let terms = extents.map(|(from, to)| format!("(caller > {from:#x} && caller < {to:#x})"));
    let terms: Vec<String> = terms.collect();
    (!terms.is_empty()).then(|| terms.join(" || "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_those_inside_of_the_functions() {
        let text =
            "1000 t free_pcppages_bulk\n2000 T other\n3000 t rmqueue_bulk.isra.0\n4000 T last\n";
        let filter = filter(&Kallsyms::parse(text));
        let expected =
            "(caller > 0x1000 && caller < 0x2000) || (caller > 0x3000 && caller < 0x4000)";
        assert_eq!(filter.as_deref(), Some(expected));
    }

    #[test]
    fn without_names_there_is_no_filter() {
        assert_eq!(filter(&Kallsyms::parse("")), None);
    }
}
