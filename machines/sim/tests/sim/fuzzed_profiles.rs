//! Tests profiles with random edits. If a profile is refused, the error must name a place in the
//! file. All other profiles must give machines that have the properties of every machine and can be
//! simulated.

use plimsoll_sim::profile::{Card, CostKey, Problem, ProfileError, ProfileText};
use plimsoll_sim::{Sim, SimOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Four profiles: one gives the CPUs by counts and has a variant, one lists clusters of cores with
/// speeds, one has two sockets, and one has few keys.
const PROFILES: [&str; 4] = [
    include_str!("../../profiles/grace-72.toml"),
    include_str!("../../profiles/phone-8.toml"),
    include_str!("../../profiles/epyc-9654-2s.toml"),
    include_str!("mine.toml"),
];

/// The topology of the last of [`PROFILES`].
const COUNTS: &str = "sockets = 2\ncores_per_llc = 2\nllcs_per_node = 2\n";

/// The largest number of CPUs of a machine that is simulated here. The creation of larger machines
/// would take too long.
const SIMULATED_CPUS_MAX: u32 = 512;

/// The texts that replace a word of a profile. The first texts are numbers near a limit; the others
/// are words.
const PIECES: [&str; 46] = [
    "0",
    "1",
    "2",
    "3",
    "8",
    "64",
    "1024",
    "4096",
    "4097",
    "65535",
    "65536",
    "70000",
    "2147483648",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "1e400",
    "inf",
    "nan",
    "-1",
    "0x10",
    "1_000",
    "0.05",
    "0.5",
    "1.005",
    "\"\"",
    "\" \"",
    "\"1 B\"",
    "\"16 MiB\"",
    "\"8 TiB\"",
    "\"99999999999999999999 GB\"",
    "[\"8 GiB\", \"16 MiB\"]",
    "[]",
    "{}",
    "[topology]",
    "[[topology.cluster]]",
    "[variant.x]",
    "cluster = [{ name = \"a\", cores = 4096, llc = 70000, socket = 4294967295 }]",
    "sockets = 2147483648",
    "nodes_per_socket = 4294967295",
    "smt = 4294967295",
    "smt = 2",
    "=",
    "}",
    "#",
    "é\u{0}",
];

/// One random change to a profile file.
#[derive(Clone, Debug)]
enum Edit {
    /// Replaces a word, or a character that separates words.
    Word(Index, &'static str),
    /// Replaces a number anywhere in the profile.
    Number(Index, &'static str),
    /// Replaces a number in the part of the profile that describes the machine's memory and
    /// topology.
    Shape(Index, &'static str),
    Remove(Index),
    Repeat(Index, Index),
    Insert(Index, &'static str),
    Cut(Index),
}

/// Generates numbers, most of which are small enough for a topology, so that some topologies are
/// accepted.
fn number() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => select(PIECES[..5].to_vec()), 1 => select(PIECES[..22].to_vec())]
}

fn edit() -> impl Strategy<Value = Edit> {
    let (place, piece) = (any::<Index>, || select(PIECES.to_vec()));
    prop_oneof![
        2 => (place(), piece()).prop_map(|(at, to)| Edit::Word(at, to)),
        4 => (place(), select(PIECES[..25].to_vec())).prop_map(|(at, to)| Edit::Number(at, to)),
        8 => (place(), select(PIECES[..34].to_vec())).prop_map(|(at, to)| Edit::Shape(at, to)),
        1 => place().prop_map(Edit::Remove),
        1 => (place(), place()).prop_map(|(from, to)| Edit::Repeat(from, to)),
        2 => (place(), piece()).prop_map(|(at, new)| Edit::Insert(at, new)),
        1 => place().prop_map(Edit::Cut),
    ]
}

/// Replaces one of the `parts` with `to`. `at` selects the part to replace among the parts for
/// which `chosen` returns true.
fn exchange(parts: &mut [String], at: &Index, to: &str, chosen: impl Fn(&str) -> bool) {
    let places: Vec<usize> = (0..parts.len())
        .filter(|nth| chosen(&parts[*nth]))
        .collect();
    if !places.is_empty() {
        parts[places[at.index(places.len())]] = to.to_owned();
    }
}

/// Splits a text into words and single separators.
fn words(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || "_.".contains(c);
    let mut words: Vec<String> = Vec::new();
    let mut before = false;
    for c in text.chars() {
        match words.last_mut() {
            Some(last) if before && is_word(c) => last.push(c),
            _ => words.push(c.to_string()),
        }
        before = is_word(c);
    }
    words
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

fn apply(text: &str, edit: &Edit) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let count = lines.len();
    match edit {
        Edit::Word(at, to) | Edit::Number(at, to) => {
            let numbers = matches!(edit, Edit::Number(..));
            let mut words = words(text);
            exchange(&mut words, at, to, |word| !numbers || is_number(word));
            return words.concat();
        }
        Edit::Shape(at, to) => {
            // In the text of a profile, the memory and the topology come before the prices.
            let (shape, prices) = text.split_at(text.find("[work]").unwrap_or(text.len()));
            let mut words = words(shape);
            exchange(&mut words, at, to, is_number);
            return words.concat() + prices;
        }
        _ if count == 0 => {}
        Edit::Remove(at) => drop(lines.remove(at.index(count))),
        Edit::Repeat(from, to) => {
            let again = lines[from.index(count)].clone();
            lines.insert(to.index(count + 1), again);
        }
        Edit::Insert(at, new) => lines.insert(at.index(count + 1), format!("{new}\n")),
        Edit::Cut(at) => lines.truncate(at.index(count + 1)),
    }
    lines.concat()
}

/// Asserts what must hold for every profile that loads. CPUs and memory are within limits, and each
/// node has a CPU. Each price has a source, and the price does not fall from the low card to the
/// middle card, or from the middle card to the high card.
fn assert_sane(text: &ProfileText) {
    let (cpus, nodes) = (text.topology.cpus(), text.topology.nodes());
    assert!((1..=4096).contains(&cpus), "{cpus} CPUs");
    assert!(!text.name.is_empty() && !text.about.trim().is_empty());
    assert!(text.node_bytes.len() >= nodes as usize, "{nodes} nodes");
    let pages: u64 = text.node_bytes.iter().map(|bytes| bytes / 4096).sum();
    assert!(pages <= u64::from(u32::MAX), "{pages} pages");
    assert!(text.node_bytes.iter().all(|bytes| *bytes >= 16 << 20));
    for node in 0..nodes {
        let on_it = |cpu| text.topology.place(cpu).node.0 == node;
        assert!(text.topology.ids().any(on_it), "node {node} has no CPU");
    }
    for cost in &text.costs {
        let prices = Card::ALL.map(|card| cost.range.at(card));
        assert!(prices.is_sorted(), "{}: {prices:?}", cost.key);
        assert!(!cost.source.trim().is_empty(), "{}", cost.key);
    }
    let works = CostKey::all().filter(|key| matches!(key, CostKey::Work(_)));
    for key in works {
        assert!(
            text.cost(key).is_some_and(|cost| cost.range.low >= 1),
            "{key}"
        );
    }
}

/// Asserts that the machine and its variants can be created at each card, with the low, the middle
/// and the high prices.
fn assert_runs(text: &ProfileText) {
    for card in Card::ALL {
        let profile = text.at(card);
        assert!(profile.costs.transfer_ns.is_sorted(), "{:?}", profile.costs);
        assert!(profile.costs.work_ns.iter().all(|ns| *ns >= 1));
        let speeds = &profile.speed_percent;
        assert!(speeds.is_empty() || speeds.len() == profile.topology.cpus() as usize);
        assert!(speeds.iter().all(|percent| (5..=400).contains(percent)));
        if profile.topology.cpus() <= SIMULATED_CPUS_MAX {
            let under_load = SimOptions {
                under_load: true,
                ..SimOptions::default()
            };
            drop(Sim::new(&profile, under_load));
        }
    }
    for variant in &text.variants {
        let varied = text.variant(&variant.name).expect("it is listed");
        assert!(varied.variants.is_empty());
        assert_sane(&varied);
        assert_runs(&varied);
    }
}

/// Asserts that an error has a message and names a place that exists in the file.
fn assert_told(error: &ProfileError, toml: &str) {
    assert_eq!(error.file, "f.toml");
    let lines = toml.split('\n').count();
    assert!(
        error.line.is_none_or(|line| (1..=lines).contains(&line)),
        "{error}"
    );
    match &error.problem {
        Problem::Syntax(_) => assert!(error.key.is_none(), "{error}"),
        Problem::UnknownKey(_) | Problem::Missing(_) | Problem::Absurd(_) => {
            assert!(error.key.is_some(), "{error}");
        }
        other => panic!("not a mistake of a file: {other:?}"),
    }
    let told = error.to_string();
    assert!(
        told.starts_with("f.toml") && told.len() > "f.toml:1: ".len(),
        "{told}"
    );
}

fn assert_sane_or_refused(toml: &str) {
    match ProfileText::parse("f.toml", toml) {
        Ok(text) => {
            assert_sane(&text);
            assert_runs(&text);
        }
        Err(error) => assert_told(&error, toml),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_profile_with_random_edits(profile in select(PROFILES.to_vec()), edits in vec(edit(), 1..4)) {
        let changed = edits.iter().fold(profile.to_owned(), |text, edit| apply(&text, edit));
        assert_sane_or_refused(&changed);
    }

    #[test]
    fn a_topology_of_any_numbers(keys in vec((0..6_usize, number()), 1..7)) {
        const KEYS: [&str; 6] = [
            "sockets", "nodes_per_socket", "llcs_per_node", "cores_per_node", "cores_per_llc", "smt",
        ];
        let mut numbers = [None; KEYS.len()];
        for (key, number) in keys {
            numbers[key] = Some(number);
        }
        // A key that was not drawn is omitted, except for the key that every topology needs.
        numbers[4] = numbers[4].or(Some("2"));
        let line = |(key, number): (&&str, Option<&str>)| {
            number.map_or(String::new(), |number| format!("{key} = {number}\n"))
        };
        let topology: String = KEYS.iter().zip(numbers).map(line).collect();
        assert_sane_or_refused(&PROFILES[3].replace(COUNTS, &topology));
    }

    #[test]
    fn clusters_of_any_numbers(clusters in vec(vec((0..5_usize, number()), 0..5), 1..4)) {
        const KEYS: [&str; 5] = ["cores", "smt", "llc", "node", "socket"];
        let cluster = |numbers: Vec<(usize, &str)>| {
            // TOML refuses repeated keys, so the last number drawn for a key is used.
            let mut given = [Some("1"), None, Some("0"), None, None];
            for (key, number) in numbers {
                given[key] = Some(number);
            }
            let pairs = KEYS.iter().zip(given);
            let pairs = pairs.filter_map(|(key, number)| Some(format!(", {key} = {}", number?)));
            format!("{{ name = \"a\"{} }}", pairs.collect::<String>())
        };
        let clusters: Vec<String> = clusters.into_iter().map(cluster).collect();
        let topology = format!("cluster = [{}]\n", clusters.join(", "));
        assert_sane_or_refused(&PROFILES[3].replace(COUNTS, &topology));
    }

    #[test]
    fn a_text_of_any_characters(text: String, at: Index) {
        assert_sane_or_refused(&text);
        let lines: Vec<&str> = PROFILES[3].split_inclusive('\n').collect();
        let (before, after) = lines.split_at(at.index(lines.len() + 1));
        assert_sane_or_refused(&[&before.concat(), text.as_str(), &after.concat()].concat());
    }
}

#[test]
fn the_profiles_are_good_before_they_are_edited() {
    for profile in PROFILES {
        let text = ProfileText::parse("f.toml", profile).expect("a good profile");
        assert_sane(&text);
        assert_runs(&text);
        assert_eq!(words(profile).concat(), profile);
        assert!(profile.contains(COUNTS) == (profile == PROFILES[3]));
    }
}

#[test]
fn mistakes_that_edits_have_found_are_refused() {
    let cases = [
        // The product of the three numbers is 2⁶⁴, which would wrap to 0.
        (
            "sockets = 2147483648\ncores_per_llc = 2147483648\nsmt = 4\n",
            "f.toml:9: topology.cores_per_llc: makes 18446744073709551615 CPUs; a machine has 1 to 4096",
        ),
        (
            "cluster = [{ name = \"a\", cores = 1, llc = 65536 }]\n",
            "f.toml:8: topology.cluster[0].llc: 65536 is too high; number caches from 0 to 65535",
        ),
        (
            "cluster = [\n{ name = \"a\", cores = 4000, llc = 0 },\n{ name = \"b\", cores = 100, llc = 1 },\n]\n",
            "f.toml:10: topology.cluster[1].cores: makes 4100 CPUs; a machine has 1 to 4096",
        ),
    ];
    for (topology, told) in cases {
        let parsed = ProfileText::parse("f.toml", &PROFILES[3].replace(COUNTS, topology));
        assert_eq!(parsed.expect_err(topology).to_string(), told);
    }
}
