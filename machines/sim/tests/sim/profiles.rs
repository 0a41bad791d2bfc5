//! Tests the sizes and costs of the built-in machines, and that loading refuses an invalid profile
//! with a message.

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Distance;
use plimsoll_mm::units::{CpuId, Hz};
use plimsoll_sim::profile::{Card, CostKey, Profile, ProfileText, Provenance};

#[test]
fn every_listed_machine_loads_at_every_card_and_cheaper_cards_cost_less() {
    let names: Vec<String> = Profile::list()
        .into_iter()
        .map(|listed| listed.name)
        .collect();
    let expected = "grace-72 grace-72+kasan bergamo-176 turin-316 epyc-9654-2s epyc-9654-256 phone-8 laptop-2 many-1024";
    assert_eq!(names.join(" "), expected);
    for name in names {
        let cards = Card::ALL.map(|card| Profile::load(&name, card).expect("is built in"));
        assert!(cards.iter().all(|profile| profile.name == name));
        for key in CostKey::all() {
            let prices = cards.each_ref().map(|profile| price_ns(profile, key));
            assert!(prices.is_sorted(), "{name} {key}: {prices:?}");
        }
        assert!(
            cards
                .iter()
                .all(|profile| profile.costs.transfer_ns.is_sorted()),
            "{name}"
        );
        assert!(
            cards
                .iter()
                .all(|profile| profile.costs.work_ns[Work::Think as usize] == 1)
        );
    }
}

fn price_ns(profile: &Profile, key: CostKey) -> u32 {
    match key {
        CostKey::Work(work) => profile.costs.work_ns[work as usize],
        CostKey::Transfer(distance) => profile.costs.transfer_ns[distance as usize],
        CostKey::LockOwn => profile.costs.lock_own_ns,
        CostKey::LockRemoteExtra => profile.costs.lock_remote_extra_ns,
        CostKey::LockHandoverExtra => profile.costs.lock_handover_extra_ns,
        CostKey::WordOwn => profile.costs.word_own_ns,
    }
}

#[test]
fn the_machines_have_the_shape_of_the_real_ones() {
    // Each entry has the machine's name; the counts of its CPUs, cores, last-level caches and
    // nodes; its HZ; and its total memory in bytes.
    let shapes = [
        ("grace-72", [72, 72, 1, 1, 1000], 480_000_000_000),
        ("bergamo-176", [176, 88, 11, 1, 1000], 249_999_998_976),
        ("turin-316", [316, 158, 10, 1, 1000], 1_000_000_000_000),
        ("epyc-9654-2s", [384, 192, 24, 2, 250], 1_536_000_000_000),
        ("epyc-9654-256", [256, 128, 16, 2, 250], 1_024_000_000_000),
        ("phone-8", [8, 8, 2, 1, 250], 8 << 30),
        ("laptop-2", [2, 2, 1, 1, 250], 8 << 30),
        ("many-1024", [1024, 512, 64, 8, 1000], 4_096_000_000_000),
    ];
    for (name, shape, bytes) in shapes {
        let profile = Profile::load(name, Card::Mid).expect("is built in");
        let topology = &profile.topology;
        let places = || topology.ids().map(|cpu| topology.place(cpu));
        let cores = places().map(|place| place.core + 1).max().unwrap_or(0);
        let llcs = places().map(|place| place.llc + 1).max().unwrap_or(0);
        let hz = profile.hz.get();
        assert_eq!(
            [topology.cpus(), cores, llcs, topology.nodes(), hz],
            shape,
            "{name}"
        );
        assert_eq!(profile.node_bytes.len(), shape[3] as usize, "{name}");
        assert_eq!(profile.node_bytes.iter().sum::<u64>(), bytes, "{name}");
    }
}

#[test]
fn cpus_are_numbered_cores_first_then_their_siblings() {
    let epyc = Profile::load("epyc-9654-2s", Card::Mid)
        .expect("is built in")
        .topology;
    let from_0 = |cpu| epyc.distance(CpuId(0), CpuId(cpu));
    assert_eq!(from_0(192), Distance::Core);
    assert_eq!((from_0(7), from_0(8)), (Distance::Llc, Distance::Socket));
    assert_eq!(
        (from_0(95), from_0(96)),
        (Distance::Socket, Distance::Remote)
    );
    assert_eq!(
        (from_0(287), from_0(288)),
        (Distance::Socket, Distance::Remote)
    );

    let turin = Profile::load("turin-316", Card::Mid)
        .expect("is built in")
        .topology;
    let in_last = turin.ids().filter(|cpu| turin.place(*cpu).llc == 9).count();
    assert_eq!(in_last, 28, "14 cores are left for the last cache");
}

/// The steps of unmapping a page, except those of the page allocator.
const UNMAP: [Work; 4] = [Work::Zap, Work::Rmap, Work::LruRemove, Work::Release];

/// Returns the total cost of a page from fault to unmap, in nanoseconds. It includes the allocation
/// and the free of the page.
fn page_ns(name: &str, card: Card) -> u32 {
    use Work::{BuddyAlloc, BuddyFree, Fault, PcpAlloc, PcpFree};
    let lists = [PcpAlloc, PcpFree, BuddyAlloc, BuddyFree];
    let costs = Profile::load(name, card).expect("is built in").costs;
    [Fault]
        .into_iter()
        .chain(UNMAP)
        .chain(lists)
        .map(|step| costs.work_ns[step as usize])
        .sum()
}

#[test]
fn the_steps_of_a_page_add_up_to_the_published_totals() {
    // The totals that follow from published results of the benchmark will-it-scale page_fault1, in
    // nanoseconds per page:
    // * EPYC 9654: 1627
    // * Ice Lake: 1612
    // * Sapphire Rapids: 1947
    // * Cascade Lake: 2471
    // * Comet Lake: 1258
    assert_eq!(page_ns("epyc-9654-2s", Card::Low), 1258);
    assert_eq!(page_ns("epyc-9654-2s", Card::Mid), 1627);
    for server in ["epyc-9654-2s", "epyc-9654-256", "turin-316", "bergamo-176"] {
        // The published totals are of one task on an idle machine. The tables `[clock]` and
        // `[bandwidth]` of a profile describe how load slows the machine down, so the prices must
        // not include effects of load.
        assert_eq!(page_ns(server, Card::High), 2471, "{server}");
    }
    assert_eq!(page_ns("grace-72", Card::Low), 1258);
    assert_eq!(
        page_ns("grace-72", Card::Mid),
        (1627 + 1612 + 1947 + 2471 + 1258) / 5
    );
    assert_eq!(page_ns("grace-72", Card::High), 2471);
    assert_eq!(page_ns("bergamo-176", Card::Low), 1627);
    assert_eq!(page_ns("bergamo-176", Card::Mid), 1785);
    assert_eq!(page_ns("turin-316", Card::Mid), 1627);
    // On the laptop that `laptop-2` describes, we measured 1460 ns (middle) and 990 ns (low) for a
    // fault, and 124 ns (middle) and 86 ns (low) for each page of a munmap.
    assert_eq!(page_ns("laptop-2", Card::Mid), 1460 + 124);
    assert_eq!(page_ns("laptop-2", Card::Low), 990 + 86);
    assert_eq!(page_ns("laptop-2", Card::High), 1947);
}

#[test]
fn the_steps_of_unmapping_add_up_to_what_a_page_was_measured_to_take() {
    let unmap_ns = [
        ("grace-72", [40, 80, 150]),
        ("bergamo-176", [40, 80, 170]),
        ("turin-316", [40, 70, 170]),
        ("epyc-9654-2s", [40, 70, 150]),
        ("phone-8", [60, 200, 600]),
        ("laptop-2", [41, 67, 130]),
        ("many-1024", [40, 70, 250]),
    ];
    for (name, by_card) in unmap_ns {
        for (card, expected) in Card::ALL.into_iter().zip(by_card) {
            let costs = Profile::load(name, card).expect("is built in").costs;
            let sum: u32 = UNMAP.map(|step| costs.work_ns[step as usize]).iter().sum();
            assert_eq!(sum, expected, "{name} {card:?}");
        }
    }
}

#[test]
fn kasan_makes_kernel_work_dearer_and_leaves_the_hardware_alone() {
    for (card, kasan_factor) in Card::ALL.into_iter().zip([2, 3, 4]) {
        let plain = Profile::load("grace-72", card).expect("is built in");
        let kasan = Profile::load("grace-72+kasan", card).expect("is built in");
        for key in CostKey::all() {
            let factor = if key.is_kernel_work() {
                kasan_factor
            } else {
                1
            };
            assert_eq!(
                price_ns(&kasan, key),
                factor * price_ns(&plain, key),
                "{key} at {card}"
            );
        }
    }
    assert_eq!(
        CostKey::all().filter(|key| key.is_kernel_work()).count(),
        26
    );
}

#[test]
fn a_sensitivity_run_changes_one_price() {
    let plain = Profile::load("grace-72", Card::Mid).expect("is built in");
    for key in CostKey::all() {
        let dearer = plain.with_scaled(key, 200);
        for other in CostKey::all() {
            let factor = if other == key { 2 } else { 1 };
            assert_eq!(
                price_ns(&dearer, other),
                factor * price_ns(&plain, other),
                "{key} {other}"
            );
        }
        assert_eq!(
            price_ns(&plain.with_scaled(key, 0), key),
            1,
            "time passes at any price"
        );
    }
    assert_eq!(
        plain.with_scaled(CostKey::Work(Work::Think), 200).costs,
        plain.costs
    );
    let hz = Hz::new(100).expect("in range");
    assert_eq!(plain.with_hz(hz).hz, hz);
}

#[test]
fn every_cost_has_a_source_and_a_distance_the_machine_lacks_costs_as_the_nearer_one() {
    for listed in Profile::list() {
        let text = Profile::describe(&listed.name).expect("is built in");
        for cost in &text.costs {
            assert!(cost.provenance().is_some(), "{}", cost.source);
        }
        let works = text
            .costs
            .iter()
            .filter(|cost| matches!(cost.key, CostKey::Work(_)));
        assert_eq!(works.count(), 31, "{}", listed.name);
    }
    let text = Profile::describe("grace-72").expect("is built in");
    assert!(text.cost(CostKey::Transfer(Distance::Core)).is_none());
    assert_eq!(text.at(Card::Mid).costs.transfer_ns, [1, 1, 46, 46, 46]);
    let kasan = Profile::describe("grace-72+kasan").expect("is built in");
    let fault = kasan
        .cost(CostKey::Work(Work::Fault))
        .expect("every machine has faults");
    assert!(
        fault
            .source
            .starts_with("times the kasan factor: estimate: "),
        "{}",
        fault.source
    );
    assert_eq!(fault.provenance(), Some(Provenance::Estimate));
    let epyc = Profile::describe("epyc-9654-2s").expect("is built in");
    let fault = epyc
        .cost(CostKey::Work(Work::Fault))
        .expect("every machine has faults");
    assert_eq!(fault.provenance(), Some(Provenance::Fitted));
}

#[test]
fn only_the_fault_of_an_epyc_is_fitted() {
    let mut all = Vec::new();
    for listed in Profile::list() {
        let text = Profile::describe(&listed.name).expect("is built in");
        let costs = text.costs.into_iter();
        let fitted = costs.filter(|cost| cost.provenance() == Some(Provenance::Fitted));
        all.extend(fitted.map(|cost| format!("{} {}", listed.name, cost.key)));
    }
    assert_eq!(all, ["epyc-9654-2s work.fault", "epyc-9654-256 work.fault"]);
}

#[test]
fn a_source_that_begins_with_another_word_has_no_provenance() {
    let text = include_str!("mine.toml");
    let mine = ProfileText::parse("mine.toml", text).expect("is good");
    assert!(mine.costs.iter().all(|cost| cost.provenance().is_none()));
}
