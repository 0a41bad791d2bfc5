//! Records the ends of kswapd's rounds of reclaim. Linux has a tracepoint at the beginning of a
//! round, and another tracepoint where kswapd goes to sleep, a tenth of a second after the end of a
//! round. Linux has no tracepoint at the end of a round, so the recorder sets a probe.

use plimsoll_recording::Header;

use crate::tracefs::{Instance, NoProbe, Probe};

/// The filter with which only calls by kswapd threads are recorded. Other threads may call the
/// probed function too.
const OF_KSWAPD: &str = "comm ~ \"kswapd*\"";

/// Switches the probe on, or adds to the header why the recording lacks the ends of kswapd's rounds
/// of reclaim.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tracefs::Tracefs;

    #[test]
    fn only_kswapd_triggers_the_probe() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("kprobe_events"), "").expect("it can be written");
        let probe = Probe::kswapd_done(&Tracefs::at(root.path())).expect("a file takes every line");
        let instance = Instance::at(root.path());
        let folder = root.path().join("events").join(probe.event());
        fs::create_dir_all(&folder).expect("a folder");
        for file in ["filter", "enable"] {
            fs::write(folder.join(file), "").expect("it can be written");
        }
        let mut header = Header::default();
        enable(&instance, Ok(&probe), &mut header);
        let text = |file| fs::read_to_string(folder.join(file)).expect("it can be read");
        assert_eq!(text("filter"), "comm ~ \"kswapd*\"");
        assert_eq!(text("enable"), "1");
        assert_eq!(header.recorded, ["plimsoll:kswapddone"]);
        assert!(header.missing.is_empty());
    }

    #[test]
    fn an_unfiltered_probe_stays_off_and_it_is_told_what_follows() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("kprobe_events"), "").expect("it can be written");
        let probe = Probe::kswapd_done(&Tracefs::at(root.path())).expect("a file takes every line");
        let instance = Instance::at(root.path());
        let folder = root.path().join("events").join(probe.event());
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("enable"), "0").expect("it can be written");
        let mut header = Header::default();
        enable(&instance, Ok(&probe), &mut header);
        enable(&instance, Err(&NoProbe::Unsupported), &mut header);
        let on = fs::read_to_string(folder.join("enable")).expect("it can be read");
        assert_eq!(on, "0", "the filter could not be set");
        assert!(header.recorded.is_empty());
        let [refused, unsupported] = &header.missing[..] else {
            panic!("{:?}", header.missing);
        };
        assert!(refused.contains("the kernel did not enable the probe"));
        assert!(unsupported.contains("CONFIG_KPROBE_EVENTS"));
    }
}
