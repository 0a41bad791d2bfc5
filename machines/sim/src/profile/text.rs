//! A profile as written in the file: every cost with its range and source, before a card (the low
//! end, the middle or the high end of the ranges) is chosen.

use std::io;
use std::path::Path;

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::Hz;

use super::cost::{Cost, Range};
use super::error::{Problem, ProfileError};
use super::jitter::{self, Disturbed};
use super::key::CostKey;
use super::read::{Section, Source};
use super::speed::{self, Cluster};
use super::{
    Bandwidth, Card, Clock, Costs, Load, Profile, Slope, Slopes, bandwidth, check, clock, shape,
};

/// The name of the variant in which nothing disturbs the CPUs: no interrupts, softirqs or steals.
/// Every machine has this variant.
pub const NO_JITTER: &str = "no-jitter";

/// The message for a file that does not exist, which says how to make one.
const MISSING: &str = "there is no such file; `plimsoll machines grace-72 --copy FILE` writes a \
                       copy of the profile of grace-72, which you can change";

/// The parsed contents of one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileText {
    /// The name, with `+variant` if a variant is applied.
    pub name: String,
    /// A description of the machine in one line.
    pub about: String,
    /// The architecture, as Linux distributions spell it.
    pub arch: String,
    /// The number of ticks per second.
    pub hz: Hz,
    /// The CPUs, and which caches, nodes and sockets they share.
    pub topology: Topology,
    /// The kinds of cores; empty if the file describes the CPUs by counts, such as `cores_per_llc`.
    pub clusters: Vec<Cluster>,
    /// The memory of each node in bytes, rounded down to whole pages.
    pub node_bytes: Vec<u64>,
    /// Every cost of the machine, in the order of [`CostKey::all`]. The cost of a line transfer
    /// over a distance can be absent if no two CPUs are that far apart.
    pub costs: Vec<Cost>,
    /// The disturbances of busy CPUs, such as interrupts; empty if the file has no `[jitter]`.
    pub jitter: Vec<Disturbed>,
    /// The speeds of busy cores; `None` if the file does not give them.
    pub clock: Option<Clock>,
    /// The memory bandwidth of each node; `None` if the file does not give it.
    pub bandwidth: Option<Bandwidth>,
    /// The variants. A variant's name can be appended to the machine's name after `+`.
    pub variants: Vec<Variant>,
}

/// A kernel configuration that makes the same hardware slower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name of the variant, without the `+`.
    pub name: String,
    /// A description in a few words.
    pub about: String,
    /// The factor for the costs of kernel work, in percent, at each card (low, middle and high).
    pub factor_percent: Range,
    /// The source of `factor_percent`.
    pub source: String,
}

impl ProfileText {
    /// Parses a profile in TOML. Error messages call the file `file`.
    ///
    /// # Errors
    /// If the profile is invalid: the first mistake, with file, line and key.
    pub fn parse(file: &str, toml: &str) -> Result<Self, ProfileError> {
        let source = Source { file, text: toml };
        let table = source.parse()?;
        let root = source.root(&table);
        root.only(&[
            "name",
            "about",
            "arch",
            "hz",
            "node_memory",
            "topology",
            "work",
            "transfer",
            "lock",
            "word",
            "jitter",
            "clock",
            "bandwidth",
            "variant",
        ])?;
        let topology = root.need("topology", "write a [topology] table")?;
        let (topology, clusters) = shape::read(&topology.section("write a [topology] table")?)?;
        Ok(Self {
            name: name(&root)?,
            about: root.need("about", ABOUT)?.text(ABOUT)?.to_owned(),
            arch: root.need("arch", ARCH)?.text(ARCH)?.to_owned(),
            hz: hz(&root)?,
            node_bytes: check::node_bytes(&root, topology.nodes())?,
            costs: costs(&root, &topology)?,
            jitter: jitter::read(&root)?,
            clock: clock::read(&root, &topology)?,
            bandwidth: bandwidth::read(&root)?,
            variants: variants(&root)?,
            topology,
            clusters,
        })
    }

    /// Parses the file at `path`. For `path+variant`, the variant is applied.
    ///
    /// # Errors
    /// If the file cannot be read or the profile is invalid.
    pub fn from_path(path: &Path) -> Result<Self, ProfileError> {
        let whole = path.to_string_lossy();
        // The name of a file may contain a `+` too. So the variant may begin after any `+` in
        // `path`.
        let splits = whole.match_indices('+').map(|(at, _)| whole.split_at(at));
        let is_file = |(file, _): &(&str, &str)| Path::new(file).exists();
        let (file, variant) = if path.exists() {
            (whole.as_ref(), None)
        } else if let Some((file, variant)) = splits.clone().find(is_file) {
            (file, Some(&variant[1..]))
        } else {
            let split = whole.rsplit_once('+');
            split.map_or((whole.as_ref(), None), |(file, variant)| {
                (file, Some(variant))
            })
        };
        let toml = std::fs::read_to_string(file).map_err(|error| ProfileError {
            file: file.to_owned(),
            line: None,
            key: None,
            problem: Problem::Unreadable(match error.kind() {
                io::ErrorKind::NotFound => MISSING.to_owned(),
                _ => format!("cannot be read: {error}"),
            }),
        })?;
        let text = Self::parse(file, &toml)?;
        variant.map_or(Ok(text.clone()), |variant| text.variant(variant))
    }

    /// Returns this machine with the variant `name` applied. Every machine has the variant
    /// [`NO_JITTER`], which may also follow another variant after a `+`.
    ///
    /// # Errors
    /// If the machine has no such variant; the error holds the names of its variants.
    pub fn variant(&self, name: &str) -> Result<Self, ProfileError> {
        if name == NO_JITTER {
            return Ok(Self {
                name: format!("{}+{name}", self.name),
                jitter: Vec::new(),
                ..self.clone()
            });
        }
        if let Some((first, NO_JITTER)) = name.rsplit_once('+') {
            return self.variant(first)?.variant(NO_JITTER);
        }
        let Some(variant) = self.variants.iter().find(|variant| variant.name == name) else {
            let known = self
                .variants
                .iter()
                .map(|variant| variant.name.clone())
                .collect();
            return Err(ProfileError {
                file: self.name.clone(),
                line: None,
                key: Some(name.to_owned()),
                problem: Problem::UnknownVariant(known),
            });
        };
        let mut text = self.clone();
        text.name = format!("{}+{name}", self.name);
        text.about = format!("{}, {}", self.about, variant.about);
        text.variants.clear();
        for cost in text
            .costs
            .iter_mut()
            .filter(|cost| cost.key.is_kernel_work())
        {
            for card in Card::ALL {
                let factor = variant.factor_percent.at(card);
                let then = cost.then.as_mut().map(|then| &mut then.range);
                for range in [Some(&mut cost.range), then].into_iter().flatten() {
                    *range.at_mut(card) = percent(range.at(card), factor);
                }
            }
            cost.source = format!("times the {name} factor: {}", cost.source);
        }
        jitter::slow_down(&mut text.jitter, name, |length_ns, card| {
            percent(length_ns, variant.factor_percent.at(card))
        });
        Ok(text)
    }

    /// The machine with the prices of one card (low, middle or high).
    #[must_use]
    pub fn at(&self, card: Card) -> Profile {
        // These prices are placeholders: every entry is overwritten below. A distance that the file
        // does not list gets the price of the next shorter distance.
        let mut costs = Costs {
            work_ns: [1; Work::ALL.len()],
            slopes: Slopes::default(),
            transfer_ns: [1; 5],
            lock_own_ns: 1,
            lock_remote_extra_ns: 0,
            lock_handover_extra_ns: 0,
            word_own_ns: 1,
        };
        for cost in &self.costs {
            let ns = cost.range.at(card);
            if let CostKey::Transfer(distance) = cost.key {
                costs.transfer_ns[distance as usize..].fill(ns);
            } else if let Some(price_ns) = cost.key.slot(&mut costs) {
                *price_ns = ns;
            }
            if let (CostKey::Work(work), Some(then)) = (cost.key, cost.then)
                && let Some(slope) = costs.slopes.of(work)
            {
                *slope = Some(Slope {
                    at: then.at,
                    pages: then.pages,
                    ns: then.range.at(card),
                });
            }
        }
        Profile {
            name: self.name.clone(),
            card,
            topology: self.topology.clone(),
            hz: self.hz,
            node_bytes: self.node_bytes.clone(),
            costs,
            speed_percent: speed::of_cpus(&self.clusters, self.topology.cpus(), card),
            jitter: jitter::at(&self.jitter, card),
            load: Load {
                clock: self.clock.as_ref().map(|clock| clock.at(card)),
                bandwidth: self.bandwidth.as_ref().map(|bandwidth| bandwidth.at(card)),
            },
        }
    }

    /// The cost with this key. `None` if the key is that of a distance whose cost the file does not
    /// give.
    #[must_use]
    pub fn cost(&self, key: CostKey) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.key == key)
    }
}

impl Range {
    /// Returns the low, the middle or the high value, as `card` says.
    #[must_use]
    pub const fn at(self, card: Card) -> u32 {
        match card {
            Card::Low => self.low,
            Card::Mid => self.mid,
            Card::High => self.high,
        }
    }

    pub(super) const fn at_mut(&mut self, card: Card) -> &mut u32 {
        match card {
            Card::Low => &mut self.low,
            Card::Mid => &mut self.mid,
            Card::High => &mut self.high,
        }
    }
}

/// Returns `factor` percent of `value`, rounded, and at most `u32::MAX`, the highest price that a
/// profile can hold. The result is at least 1 unless `value` is 0: if a price became 0, a CPU could
/// loop without time passing.
pub(super) fn percent(value: u32, factor: u32) -> u32 {
    let scaled = (u64::from(value) * u64::from(factor) + 50) / 100;
    u32::try_from(scaled).unwrap_or(u32::MAX).max(value.min(1))
}

const ABOUT: &str = "write one line about the machine";
const ARCH: &str = "write its architecture, such as \"x86_64\" or \"arm64\"";

fn name(root: &Section<'_>) -> Result<String, ProfileError> {
    const NAME: &str = "write a short name without spaces, such as \"my-laptop\"";
    let value = root.need("name", NAME)?;
    let name = value.text(NAME)?;
    if name.contains(|c: char| c.is_whitespace() || c == '+') {
        return Err(value.absurd(format!("{name:?} has a space or a +; {NAME}")));
    }
    Ok(name.to_owned())
}

fn hz(root: &Section<'_>) -> Result<Hz, ProfileError> {
    const HZ: &str = "write the ticks per second, such as 250 (Linux: CONFIG_HZ)";
    let value = root.need("hz", HZ)?;
    let number = value.number()?;
    let out = || {
        value.absurd(format!(
            "{number} is out of range; ticks per second are 1 to 10000"
        ))
    };
    Hz::new(number).ok_or_else(out)
}

fn costs(root: &Section<'_>, topology: &Topology) -> Result<Vec<Cost>, ProfileError> {
    let had = check::distances(topology);
    let mut costs = Vec::new();
    for name in ["work", "transfer", "lock", "word"] {
        let keys: Vec<CostKey> = CostKey::all().filter(|key| key.section() == name).collect();
        let write_this = format!("write a [{name}] table");
        let section = root.need(name, &write_this)?.section(&write_this)?;
        if let Some(think) = section.get("think").filter(|_| name == "work") {
            let fixed = "is always 1 ns, the program's own time; leave it out";
            return Err(think.absurd(fixed.to_owned()));
        }
        section.only(&keys.iter().map(|key| key.name()).collect::<Vec<_>>())?;
        let start = costs.len();
        for key in keys {
            let needed = !matches!(key, CostKey::Transfer(distance) if !had.contains(&distance));
            if needed || section.get(key.name()).is_some() {
                costs.push(check::cost(&section, key)?);
            }
        }
        if name == "transfer" {
            check::nearer_is_cheaper(&section, &costs[start..])?;
        }
    }
    Ok(costs)
}

fn variants(root: &Section<'_>) -> Result<Vec<Variant>, ProfileError> {
    const SHAPE: &str = "write factor = { low = …, mid = …, high = …, source = \"…\" }";
    const PERCENT: std::ops::RangeInclusive<u32> = 100..=10_000;
    let Some(all) = root.get("variant") else {
        return Ok(Vec::new());
    };
    let all = all.section("write a [variant.NAME] table")?;
    let read = |name: &str| {
        let value = all.need(name, SHAPE)?.section(SHAPE)?;
        value.only(&["about", "factor"])?;
        let about = "write a few words about it";
        let factor = value.need("factor", SHAPE)?.section(SHAPE)?;
        factor.only(&["low", "mid", "high", "source"])?;
        let end = |card: Card| {
            let value = factor.need(card.name(), SHAPE)?;
            let percent = value.hundredths()?;
            if !PERCENT.contains(&percent) {
                return Err(value.absurd("is out of range; a factor is 1 to 100".to_owned()));
            }
            Ok(percent)
        };
        let range = Range {
            low: end(Card::Low)?,
            mid: end(Card::Mid)?,
            high: end(Card::High)?,
        };
        check::in_order(&factor, range)?;
        let source = "write where the factor comes from";
        Ok(Variant {
            name: name.to_owned(),
            about: value.need("about", about)?.text(about)?.to_owned(),
            factor_percent: range,
            source: factor.need("source", source)?.text(source)?.to_owned(),
        })
    };
    all.keys().into_iter().map(read).collect()
}
