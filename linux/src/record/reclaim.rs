//! When kswapd's rounds of reclaim end. Their beginning has a tracepoint, and so has kswapd's sleep a
//! tenth of a second later, but their end has none, so a probe is set there.

use plimsoll_recording::Header;

use crate::tracefs::{Instance, NoProbe, Probe};

/// Keeps to kswapd: the function that is probed may be one that other threads call too.
const OF_KSWAPD: &str = "comm ~ \"kswapd*\"";

/// Switches the probe on, or tells why there is none.
pub(super) fn enable(instance: &Instance, probe: Result<&Probe, &NoProbe>, header: &mut Header) {
    let why = match probe {
        Ok(probe) => {
            let folder = format!("events/{}", probe.event());
            let filtered = instance.write(&format!("{folder}/filter"), OF_KSWAPD);
            let on = filtered.and_then(|()| instance.write(&format!("{folder}/enable"), "1"));
            match on {
                Ok(()) => {
                    header.recorded.push("plimsoll:kswapddone".to_owned());
                    return;
                }
                Err(error) => format!("the kernel did not enable the probe: {error}"),
            }
        }
        Err(NoProbe::Unsupported) => {
            "this kernel has no probes, which need CONFIG_KPROBE_EVENTS".to_owned()
        }
        Err(NoProbe::Refused(error)) => format!("the kernel refused a probe: {error}"),
    };
    let missing = format!(
        "plimsoll:kswapddone: ends of kswapd's rounds are not recorded, and are taken to be at the \
         last page that kswapd frees ({why})."
    );
    header.missing.push(missing);
}
