//! The error messages for invalid profiles.

use std::path::Path;

use plimsoll_mm::site::Work;
use plimsoll_sim::profile::{Card, CostKey, Profile, ProfileText};

const MINE: &str = include_str!("mine.toml");

/// For each case `(from, to, message)`, replaces the first `from` in the valid profile `MINE` with
/// `to`. Checks that the result is refused with exactly this message.
#[track_caller]
pub(crate) fn told(cases: &[(&str, &str, &str)]) {
    let mut surprises = Vec::new();
    for (from, to, expected) in cases {
        assert!(MINE.contains(from), "nothing to replace: {from}");
        let bad = MINE.replacen(from, to, 1);
        let told = match ProfileText::parse("mine.toml", &bad) {
            Ok(_) => "nothing; it loads".to_owned(),
            Err(error) => error.to_string(),
        };
        if told != *expected {
            surprises.push(format!(
                "{from:?} as {to:?}\n  expected {expected}\n  told     {told}"
            ));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn a_profile_of_ones_own_loads() {
    let text = ProfileText::parse("mine.toml", MINE).expect("is a good profile");
    assert_eq!((text.topology.cpus(), text.topology.nodes()), (8, 2));
    assert_eq!(text.at(Card::Low).costs.transfer_ns, [1, 1, 20, 80, 180]);
    let debug = text.variant("debug").expect("has it").at(Card::Mid);
    assert_eq!(
        (debug.name.as_str(), debug.costs.work_ns[0]),
        ("mine+debug", 50)
    );

    let file = format!("{}/tests/sim/mine.toml", env!("CARGO_MANIFEST_DIR"));
    let plain = Profile::from_path(Path::new(&file), Card::Mid).expect("is a good profile");
    assert_eq!(plain.costs, text.at(Card::Mid).costs);
    let debug = Profile::from_path(Path::new(&format!("{file}+debug")), Card::Mid);
    assert_eq!(debug.expect("has it").name, "mine+debug");
}

#[test]
fn unknown_names_get_the_nearest_ones() {
    let told = |name| {
        Profile::load(name, Card::Mid)
            .expect_err("is unknown")
            .to_string()
    };
    assert_eq!(
        told("grace-27"),
        "unknown machine \"grace-27\"; did you mean grace-72? `plimsoll machines` lists them"
    );
    assert_eq!(
        told("zzz"),
        "unknown machine \"zzz\"; did you mean grace-72, bergamo-176, turin-316, \
         epyc-9654-2s, epyc-9654-256, phone-8, laptop-2 or many-1024? `plimsoll machines` lists them"
    );
    assert_eq!(
        told("grace-72+kasn"),
        "grace-72 has no variant \"kasn\"; it has kasan"
    );
    assert_eq!(
        told("phone-8+kasan"),
        "phone-8 has no variants; leave out the part from +"
    );

    let card = "middle"
        .parse::<Card>()
        .expect_err("is unknown")
        .to_string();
    assert_eq!(card, "unknown card \"middle\"; write low, mid or high");
    assert_eq!("high".parse(), Ok(Card::High));
    let cost = "work.fualt"
        .parse::<CostKey>()
        .expect_err("is unknown")
        .to_string();
    assert_eq!(
        cost,
        "unknown cost \"work.fualt\"; did you mean work.fault, work.minor_fault or work.count?"
    );
    assert_eq!("work.fault".parse(), Ok(CostKey::Work(Work::Fault)));

    let missing = Profile::from_path(Path::new("no/such.toml"), Card::Mid);
    let missing = missing.expect_err("there is none").to_string();
    assert_eq!(
        missing,
        "no/such.toml: there is no such file; `plimsoll machines grace-72 --copy FILE` writes a \
         copy of the profile of grace-72, which you can change"
    );
}

#[test]
fn a_bad_key_is_named_with_file_and_line() {
    told(&[
        (
            "hz = 250",
            "hz = ",
            "mine.toml:4: string values must be quoted, expected literal string",
        ),
        (
            "hz = 250",
            "hertz = 250",
            "mine.toml:4: hertz: unknown key; docs/machines.md lists the keys",
        ),
        (
            "hz = 250\n",
            "",
            "mine.toml: hz: missing; write the ticks per second, such as 250 (Linux: CONFIG_HZ)",
        ),
        (
            "hz = 250",
            "hz = 20000",
            "mine.toml:4: hz: 20000 is out of range; ticks per second are 1 to 10000",
        ),
        (
            "hz = 250",
            "hz = 0",
            "mine.toml:4: hz: 0 is out of range; ticks per second are 1 to 10000",
        ),
        (
            "hz = 250",
            "hz = -1",
            "mine.toml:4: hz: -1 is not allowed here; write a whole number from 0 to 4294967295",
        ),
    ]);
}

#[test]
fn a_bad_name_section_or_variant_is_named_with_file_and_line() {
    told(&[
        (
            r#"name = "mine""#,
            r#"name = "my machine""#,
            r#"mine.toml:1: name: "my machine" has a space or a +; write a short name without spaces, such as "my-laptop""#,
        ),
        (
            r#"about = "for tests""#,
            r#"about = """#,
            "mine.toml:2: about: empty; write one line about the machine",
        ),
        (
            "[word]",
            "[wrod]",
            "mine.toml:56: wrod: unknown key; did you mean word?",
        ),
        (
            "fault =",
            "fualt =",
            "mine.toml:17: work.fualt: unknown key; did you mean fault?",
        ),
        (
            "release =",
            "think =",
            "mine.toml:23: work.think: is always 1 ns, the program's own time; leave it out",
        ),
        (
            "with everything on",
            " ",
            "mine.toml:60: variant.debug.about: empty; write a few words about it",
        ),
        (
            "mid = 2.5",
            "mid = 2.555",
            "mine.toml:61: variant.debug.factor.mid: 2.555 is not allowed here; write a number with at most two decimals, such as 2.5",
        ),
        (
            "high = 10,",
            "high = 1000,",
            "mine.toml:61: variant.debug.factor.high: is out of range; a factor is 1 to 100",
        ),
        (
            "mid = 2.5",
            "mid = 11",
            "mine.toml:61: variant.debug.factor.mid: is above high; order them low, mid, high",
        ),
        (
            "mid = 2.5, ",
            "",
            r#"mine.toml:61: variant.debug.factor.mid: missing; write factor = { low = …, mid = …, high = …, source = "…" }"#,
        ),
    ]);
}

#[test]
fn an_absurd_cost_is_named_with_what_to_write() {
    told(&[
        (
            r#"llc = { low = 20, mid = 30, high = 40, source = "s" }"#,
            "",
            r#"mine.toml:45: transfer.llc: missing; write { low = …, mid = …, high = …, source = "…" } in nanoseconds"#,
        ),
        (
            r#"llc = { low = 20, mid = 30, high = 40, source = "s" }"#,
            "llc = 30",
            r#"mine.toml:47: transfer.llc: 30 is not allowed here; write { low = …, mid = …, high = …, source = "…" } in nanoseconds"#,
        ),
        (
            "low = 20, mid = 30",
            "low = 0, mid = 30",
            "mine.toml:47: transfer.llc.low: 0 ns: every step takes time; write at least 1",
        ),
        (
            "low = 20, mid = 30",
            "low = 31, mid = 30",
            "mine.toml:47: transfer.llc.low: is above mid; order them low, mid, high",
        ),
        (
            "mid = 30, high = 40",
            "mid = 41, high = 40",
            "mine.toml:47: transfer.llc.mid: is above high; order them low, mid, high",
        ),
        (
            "mid = 30, high = 40",
            "mid = 30, high = 100",
            "mine.toml:47: transfer.llc: 100 ns at high, but socket is 99 ns; keep same ≤ core ≤ llc ≤ socket ≤ remote",
        ),
        (
            "mid = 30, high = 40",
            "mid = 30, high = 1000000001",
            "mine.toml:47: transfer.llc.high: 1000000001 ns is more than a second; prices are in ns",
        ),
        (
            "mid = 30, high = 40",
            "mid = 30.5, high = 40",
            "mine.toml:47: transfer.llc.mid: 30.5 is not allowed here; write a whole number from 0 to 4294967295",
        ),
        (
            "mid = 30, high = 40",
            r#"mid = "30", high = 40"#,
            r#"mine.toml:47: transfer.llc.mid: "30" is not allowed here; write a whole number from 0 to 4294967295"#,
        ),
        (
            "mid = 30, ",
            "",
            "mine.toml:47: transfer.llc.mid: missing; write the mid end of its range in ns",
        ),
        (
            r#"high = 40, source = "s""#,
            "high = 40",
            r#"mine.toml:47: transfer.llc.source: missing; write where the numbers come from, or "estimate: …" and why"#,
        ),
        (
            r#"high = 40, source = "s""#,
            r#"high = 40, source = " ""#,
            r#"mine.toml:47: transfer.llc.source: empty; write where the numbers come from, or "estimate: …" and why"#,
        ),
        (
            "high = 40, source",
            "high = 40, sauce",
            "mine.toml:47: transfer.llc.sauce: unknown key; did you mean source?",
        ),
    ]);
}

#[test]
fn memory_that_does_not_fit_is_refused() {
    told(&[
        (
            "8 GiB",
            "8 GiBi",
            r#"mine.toml:5: node_memory: "8 GiBi" is no size; write a whole number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB"#,
        ),
        (
            r#""8 GiB""#,
            "8",
            r#"mine.toml:5: node_memory: 8 is not allowed here; write a size such as "480 GB" or "8 GiB""#,
        ),
        (
            "8 GiB",
            "0 GB",
            "mine.toml:5: node_memory: 0 GB is too small; a node has at least 16 MiB",
        ),
        (
            "8 GiB",
            "15 MiB",
            "mine.toml:5: node_memory: 15 MiB is too small; a node has at least 16 MiB",
        ),
        (
            "8 GiB",
            "9 TiB",
            "mine.toml:5: node_memory: 9 TiB is too big; a node has at most 8 TiB",
        ),
        (
            "8 GiB",
            "8 TiB",
            "mine.toml:5: node_memory: 4294967296 pages in all; a machine has at most 4294967295 (16 TiB)",
        ),
        (
            r#""8 GiB""#,
            r#"["8 GiB"]"#,
            "mine.toml:5: node_memory: 1 sizes for 2 nodes; write one for each",
        ),
        (
            r#""8 GiB""#,
            r#"["8 GiB", "1 MB"]"#,
            "mine.toml:5: node_memory[1]: 1 MB is too small; a node has at least 16 MiB",
        ),
    ]);
    let memory_only_node = MINE.replacen("\"8 GiB\"", "[\"8 GiB\", \"8 GiB\", \"64 GiB\"]", 1);
    let profile = Profile::from_toml("mine.toml", &memory_only_node, Card::Mid);
    assert_eq!(
        profile.expect("a node may lack CPUs").node_bytes[2],
        64 << 30
    );
}

#[test]
fn a_topology_without_cpus_or_with_too_many_is_refused() {
    told(&[
        (
            "cores_per_llc = 2",
            "cores_per_llc = 0",
            "mine.toml:9: topology.cores_per_llc: 0 leaves no CPU; write at least 1",
        ),
        (
            "cores_per_llc = 2\n",
            "",
            "mine.toml:7: topology.cores_per_llc: missing; write how many, at least 1",
        ),
        (
            "cores_per_llc = 2",
            "cores_per_llc = 1025",
            "mine.toml:9: topology.cores_per_llc: makes 4100 CPUs; a machine has 1 to 4096",
        ),
        (
            "cores_per_llc = 2",
            "cores_per_llc = 4294967295",
            "mine.toml:9: topology.cores_per_llc: makes 8589934590 CPUs; a machine has 1 to 4096",
        ),
        (
            "sockets = 2\ncores_per_llc = 2\nllcs_per_node = 2",
            "sockets = 1025\ncores_per_llc = 1",
            "mine.toml:8: topology.sockets: makes 1025 nodes; a machine has at most 1024",
        ),
        (
            "llcs_per_node = 2",
            r#"llcs_per_node = 2
cores_per_node = 4"#,
            "mine.toml:11: topology.cores_per_node: give this or llcs_per_node, not both",
        ),
        (
            "llcs_per_node = 2",
            "llcs = 2",
            "mine.toml:10: topology.llcs: unknown key; did you mean llcs_per_node?",
        ),
        (
            "sockets = 2",
            r#"sockets = 2
cluster = []"#,
            "mine.toml:8: topology.sockets: counts and clusters cannot be mixed",
        ),
    ]);
}

#[test]
fn a_speed_that_cannot_be_is_refused() {
    const COUNTS: &str = "sockets = 2\ncores_per_llc = 2\nllcs_per_node = 2\n";
    const SHAPE: &str = r#"write speed = { low = …, mid = …, high = …, source = "…" }"#;
    let cases = [
        (
            "speed = 0.5",
            "",
            &*format!("0.5 is not allowed here; {SHAPE}"),
        ),
        (
            r#"speed = { low = 1, mid = 1, source = "s" }"#,
            ".high",
            &format!("missing; {SHAPE}"),
        ),
        (
            "speed = { low = 1, mid = 1, high = 1 }",
            ".source",
            r#"missing; write where the numbers come from, or "estimate: …" and why"#,
        ),
        (
            r#"speed = { low = 4.01, mid = 1, high = 1, source = "s" }"#,
            ".low",
            "is out of range; a speed is 0.05 to 4",
        ),
        (
            r#"speed = { low = 1, mid = 1, high = 0.04, source = "s" }"#,
            ".high",
            "is out of range; a speed is 0.05 to 4",
        ),
        (
            r#"speed = { low = 1, mid = 0.333, high = 0.2, source = "s" }"#,
            ".mid",
            "0.333 is not allowed here; write a number with at most two decimals, such as 2.5",
        ),
        (
            r#"speed = { low = 0.5, mid = 0.6, high = 0.2, source = "s" }"#,
            ".low",
            "is slower than mid; the low card is the cheapest, so its cores are the fastest",
        ),
        (
            r#"speed = { low = 0.5, mid = 0.4, high = 0.45, source = "s" }"#,
            ".mid",
            "is slower than high; the low card is the cheapest, so its cores are the fastest",
        ),
        (
            r#"speed = { low = 1, mid = 1, high = 1, sauce = "s" }"#,
            ".sauce",
            "unknown key; did you mean source?",
        ),
    ];
    for (speed, key, why) in cases {
        let cluster = format!("cluster = [{{ name = \"a\", cores = 2, llc = 0, {speed} }}]\n");
        let expected = format!("mine.toml:8: topology.cluster[0].speed{key}: {why}");
        told(&[(COUNTS, &cluster, &expected)]);
    }
    told(&[(
        "sockets = 2",
        "speed = 0.5",
        "mine.toml:8: topology.speed: unknown key; docs/machines.md lists the keys",
    )]);
}

#[test]
fn clusters_that_do_not_fit_together_are_refused() {
    told(&[
        (
            r#"sockets = 2
cores_per_llc = 2
llcs_per_node = 2
"#,
            "cluster = []\n",
            "mine.toml:8: topology.cluster: makes 0 CPUs; a machine has 1 to 4096",
        ),
        (
            r#"sockets = 2
cores_per_llc = 2
llcs_per_node = 2
"#,
            r#"cluster = [{ name = "a", cores = 2 }]
"#,
            "mine.toml:8: topology.cluster[0].llc: missing; write the number of its last-level cache",
        ),
        (
            r#"sockets = 2
cores_per_llc = 2
llcs_per_node = 2
"#,
            r#"cluster = [{ name = "a", cores = 5000, llc = 0 }]
"#,
            "mine.toml:8: topology.cluster[0].cores: makes 5000 CPUs; a machine has 1 to 4096",
        ),
        (
            r#"sockets = 2
cores_per_llc = 2
llcs_per_node = 2
"#,
            r#"cluster = [{ name = "a", cores = 1, llc = 0, node = 1 }]
"#,
            "mine.toml:8: topology.cluster: no core is on node 0; number nodes from 0 without holes",
        ),
        (
            r#"sockets = 2
cores_per_llc = 2
llcs_per_node = 2
"#,
            r#"cluster = [
    { name = "a", cores = 1, llc = 0 },
    { name = "b", cores = 1, llc = 0, socket = 1 },
]
"#,
            "mine.toml:8: topology.cluster: cache 0 is on two sockets; give each socket its own cache",
        ),
        (
            r#"sockets = 2
cores_per_llc = 2
llcs_per_node = 2
"#,
            r#"cluster = [
    { name = "a", cores = 1, llc = 0 },
    { name = "b", cores = 1, llc = 1, socket = 1 },
]
"#,
            "mine.toml:8: topology.cluster: node 0 is on two sockets; give each socket its own node",
        ),
    ]);
}
