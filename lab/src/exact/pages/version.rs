//! Chooses the design (one variant of each mechanism) that stands for the recorded kernel.

use plimsoll_mm::design::Design;

/// The kernel versions whose page lists Plimsoll reproduces, oldest first, each with its design.
const KNOWN: [(u32, u32, &str); 3] = [
    (6, 12, "linux-6.12"),
    (6, 18, "linux-6.18"),
    (6, 19, "linux-6.19"),
];

/// The design (one variant of each mechanism) that was chosen for a kernel. A warning comes with it
/// if the kernel's version is not known.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) design: Design,
    /// A warning that the design belongs to another version than the recorded kernel's. `None` if
    /// the kernel's version is known.
    pub(super) warning: Option<String>,
}

/// Chooses the design (one variant of each mechanism) for a release as `uname -r` prints it. If the
/// version is known, returns its design. Otherwise returns a warning and this design:
///
/// - for a version that is newer than the oldest known version: the design of the last known
///   version before it
/// - for a version that is older than all known versions: the oldest design
/// - for a release without a version: the newest design
pub(super) fn of_release(release: &str) -> Chosen {
    let version = version(release);
    let known =
        version.and_then(|version| KNOWN.iter().find(|known| (known.0, known.1) == version));
    if let Some((_, _, name)) = known {
        return chosen(name, None);
    }
    let before = |version| {
        KNOWN
            .iter()
            .rev()
            .find(move |known| (known.0, known.1) <= version)
    };
    let (_, _, name) = match version {
        Some(version) => before(version).unwrap_or(&KNOWN[0]),
        None => &KNOWN[KNOWN.len() - 1],
    };
    let names = KNOWN.map(|(_, _, name)| name).join(", ");
    let of = if release.is_empty() {
        "of unknown version"
    } else {
        release
    };
    let warning = format!(
        "The kernel ({of}) is not one of those whose page lists are known ({names}); {name} was \
         used, and --design names another."
    );
    chosen(name, Some(warning))
}

fn chosen(name: &str, warning: Option<String>) -> Chosen {
    Chosen {
        design: Design::named(name).unwrap_or(Design::LINUX),
        warning,
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(release: &str) -> (&'static str, bool) {
        let chosen = of_release(release);
        (chosen.design.holds.name(), chosen.warning.is_some())
    }

    #[test]
    fn a_known_kernel_has_its_design_and_another_the_nearest_before_it_with_a_warning() {
        assert_eq!(holds("6.12.117+deb12-cloud-amd64"), ("lists-6.12", false));
        assert_eq!(holds("6.18.44"), ("lists-6.18", false));
        assert_eq!(holds("6.15.2"), ("lists-6.12", true));
        assert_eq!(holds("7.1.0-rc1"), ("batched", true));
        assert_eq!(holds("5.10.0"), ("lists-6.12", true));
        assert_eq!(holds(""), ("batched", true));
    }

    #[test]
    fn every_known_kernel_has_a_design() {
        for (_, _, name) in KNOWN {
            Design::named(name).expect("a base");
        }
    }
}
