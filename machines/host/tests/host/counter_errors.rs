//! Counters refuse areas (per-CPU memory), shapes (forms of the tree) and items (memory for the
//! tree above its leaves) that do not fit together. The error says what is wrong, and nothing is
//! written. If an address space ends while pages of it are still counted, the error names the kind
//! of these pages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::counter::{
    AnyCounters, Area, Batch, Counters, Counting, Flat, InitError, Items, OneSidedTree, Plan,
    Shape, ShapeError, Shared, Tree,
};
use plimsoll_mm::space::rss::{BadRss, Rss, RssKind};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

const CPUS: u32 = 64;

/// A machine, and the memory and the shape with which counter trees are created on it.
struct Parts {
    host: Host,
    area: Arc<Area<Host>>,
    shape: Arc<Shape>,
}

impl Parts {
    fn new(width: usize) -> Self {
        let host = Host::with_topology(Topology::flat(CPUS));
        let area = Arc::new(Area::new(&host, width).expect("a width in bounds"));
        let shape = Arc::new(Shape::published(CPUS, Batch::RSS).expect("in the table"));
        Self { host, area, shape }
    }

    fn items(&self, lines: usize) -> Items<Host> {
        Items::new(&self.host, lines).expect("there is memory")
    }

    /// Checks, after a counter was refused, that no group of counters occupies memory of the area.
    fn is_untouched(&self) {
        assert_eq!(self.area.groups(&self.host), 0);
    }
}

fn add_on_each_cpu(host: &Host, counters: &impl Counters<Host>) {
    for cpu in 0..CPUS {
        let _entered = host.enter(CpuId(cpu));
        counters.add_growing(host, 0, 1000 + i64::from(cpu));
    }
}

#[test]
fn a_batch_is_a_power_of_two_from_two_on() {
    for size in [0, 1, 3, 6, 33, u32::MAX] {
        assert_eq!(Batch::new(size), Err(ShapeError::Batch(size)));
    }
    for log in 1..32 {
        assert_eq!(Batch::new(1 << log).map(Batch::get), Ok(1 << log));
    }
}

#[test]
fn a_shape_needs_a_cpu_and_has_a_limit() {
    let shape = |cpus| Shape::published(cpus, Batch::RSS).map(|shape| shape.cpus());
    assert_eq!(shape(0), Err(ShapeError::NoCpus));
    let (cpus, max) = ((1 << 20) + 1, 1 << 20);
    assert_eq!(shape(cpus), Err(ShapeError::TooManyCpus { cpus, max }));
    assert_eq!(shape(1), Ok(1));
    assert_eq!(shape(max), Ok(max));
    for fan_in in [0, 1] {
        let shape = Shape::of_topology(&Topology::flat(4), Batch::RSS, fan_in);
        assert_eq!(shape, Err(ShapeError::FanIn(fan_in)));
    }
}

#[test]
fn a_group_has_one_to_eight_counters_and_in_our_tree_six() {
    let host = Host::with_topology(Topology::flat(CPUS));
    let _entered = host.enter(CpuId(0));
    let max = 8;
    for counters in [0, 9, usize::MAX] {
        let error = InitError::Width { counters, max };
        assert_eq!(Area::new(&host, counters).err(), Some(error));
        assert_eq!(Shared::init_many(&host, counters).err(), Some(error));
        for counting in Counting::ALL {
            let plan = Plan::new(&host, counting, counters, Batch::RSS);
            assert_eq!(plan.err(), Some(error), "{counting:?}");
        }
    }
    let parts = Parts::new(7);
    let tree = OneSidedTree::init_many(&parts.host, &parts.area, &parts.shape);
    let (counters, max) = (7, 6);
    assert_eq!(tree.err(), Some(InitError::Width { counters, max }));
    let lines = OneSidedTree::<Host>::items_lines(&parts.shape);
    let items = parts.items(lines);
    let tree = OneSidedTree::init_many_grown(&parts.host, &parts.area, &parts.shape, items);
    assert_eq!(tree.err(), Some(InitError::Width { counters, max }));
    parts.is_untouched();
    for width in 1..=8 {
        let parts = Parts::new(width);
        let flat = Flat::init_many(&parts.host, &parts.area).expect("a width in bounds");
        assert_eq!(flat.width(), width);
    }
}

#[test]
fn a_plan_for_more_counters_than_a_tree_has_is_refused_when_a_group_is_made() {
    let host = Host::with_topology(Topology::flat(CPUS));
    let _entered = host.enter(CpuId(0));
    let plan = Plan::new(&host, Counting::OneSided, 7, Batch::RSS).expect("an area has room");
    let (counters, max) = (7, 6);
    let error = InitError::Width { counters, max };
    assert_eq!(plan.init_many(&host).err(), Some(error));
}

#[test]
fn too_few_items_are_refused() {
    let parts = Parts::new(2);
    let Parts { host, area, shape } = &parts;
    let _entered = host.enter(CpuId(0));
    let needed = Tree::<Host>::items_lines(shape, 2);
    for given in [0, 1, needed - 1] {
        let made = Tree::init_many(host, area, shape, parts.items(given));
        assert_eq!(made.err(), Some(InitError::Items { needed, given }));
    }
    let needed = OneSidedTree::<Host>::items_lines(shape);
    for given in [0, 1, needed - 1] {
        let made = OneSidedTree::init_many_grown(host, area, shape, parts.items(given));
        assert_eq!(made.err(), Some(InitError::Items { needed, given }));
    }
    parts.is_untouched();
}

#[test]
fn a_shape_for_other_cpus_is_refused() {
    let parts = Parts::new(1);
    let Parts { host, area, .. } = &parts;
    let _entered = host.enter(CpuId(0));
    for shape in [1, CPUS - 1, CPUS + 1] {
        let machine = CPUS;
        let error = Some(InitError::Cpus { shape, machine });
        let shape = Arc::new(Shape::published(shape, Batch::RSS).expect("in the table"));
        let made = Tree::init_many(host, area, &shape, parts.items(1000));
        assert_eq!(made.err(), error);
        let made = OneSidedTree::init_many(host, area, &shape);
        assert_eq!(made.err(), error);
        let made = OneSidedTree::init_many_grown(host, area, &shape, parts.items(1000));
        assert_eq!(made.err(), error);
    }
    parts.is_untouched();
}

#[test]
fn items_are_lent_to_one_group_after_the_other() {
    let parts = Parts::new(1);
    let Parts { host, area, shape } = &parts;
    let _entered = host.enter(CpuId(0));
    let lines = Tree::<Host>::items_lines(shape, 1).max(OneSidedTree::<Host>::items_lines(shape));
    let mut items = parts.items(lines);
    for _ in 0..3 {
        let tree = Tree::init_many(host, area, shape, items).expect("enough lines");
        assert_eq!(
            (tree.precise_sum(host, 0), tree.approximate_sum(host, 0)),
            (0, 0)
        );
        assert_eq!(area.groups(host), 1);
        add_on_each_cpu(host, &tree);
        items = tree.destroy_many(host);
        let tree = OneSidedTree::init_many_grown(host, area, shape, items).expect("enough lines");
        assert_eq!(
            (tree.precise_sum(host, 0), tree.approximate_sum(host, 0)),
            (0, 0)
        );
        assert!(tree.is_grown());
        add_on_each_cpu(host, &tree);
        items = tree.destroy_many(host).expect("there was a tree");
        assert_eq!(items.lines(), lines);
        parts.is_untouched();
    }
}

#[test]
fn errors_say_what_to_do() {
    assert!(ShapeError::Batch(3).to_string().contains("power of two"));
    let (counters, max) = (9, 8);
    let told = InitError::Width { counters, max }.to_string();
    assert!(told.contains("1 to 8") && told.contains('9'), "{told}");
    let (needed, given) = (21, 3);
    let told = InitError::Items { needed, given }.to_string();
    assert!(told.contains("21") && told.contains('3'), "{told}");
}

#[test]
fn an_address_space_that_ends_with_pages_says_of_which_kind() {
    for counting in Counting::ALL {
        let host = Host::with_topology(Topology::flat(CPUS));
        let _entered = host.enter(CpuId(0));
        let plan = Plan::new(&host, counting, Rss::<Host>::WIDTH, Batch::RSS).expect("a plan");
        let rss = || Rss::new(&host, &plan).expect("there is memory");
        for kind in RssKind::ALL {
            for pages in [1, -1, 5000] {
                let bad = rss();
                for cpu in 0..CPUS {
                    let _entered = host.enter(CpuId(cpu));
                    for each in RssKind::ALL {
                        bad.add_growing(&host, each, 100);
                    }
                }
                for each in RssKind::ALL {
                    let left = if each == kind { pages } else { 0 };
                    bad.add_growing(&host, each, left - 100 * i64::from(CPUS));
                }
                let told = bad.destroy(&host);
                assert_eq!(told, Err(BadRss { kind, pages }), "{counting:?}");
                assert!(BadRss { kind, pages }.to_string().contains(kind.name()));
            }
        }
        assert_eq!(rss().destroy(&host), Ok(()), "{counting:?}");
        assert_eq!(
            plan.area().groups(&host),
            0,
            "{counting:?} gives places back"
        );
    }
}

#[test]
fn resident_pages_are_all_but_those_in_swap() {
    for counting in Counting::ALL {
        let host = Host::with_topology(Topology::flat(CPUS));
        let _entered = host.enter(CpuId(0));
        let plan = Plan::new(&host, counting, Rss::<Host>::WIDTH, Batch::RSS).expect("a plan");
        let rss = Rss::new(&host, &plan).expect("there is memory");
        for cpu in 0..CPUS {
            let _entered = host.enter(CpuId(cpu));
            for (kind, pages) in RssKind::ALL.into_iter().zip([1, 20, 300, 4000]) {
                rss.add_growing(&host, kind, pages);
            }
        }
        let resident = 4021 * u64::from(CPUS);
        assert_eq!(rss.resident_precise(&host), resident, "{counting:?}");
        let range = rss.resident_range(&host);
        assert!(
            range.contains(4021 * i64::from(CPUS)),
            "{counting:?}: {range:?}"
        );
        let off = rss.resident(&host).abs_diff(resident);
        assert!(off <= range.width(), "{counting:?} is off by {off}");
        assert_eq!(rss.precise(&host, RssKind::Swap), 300 * u64::from(CPUS));
    }
}

#[test]
fn resident_pages_need_a_plan_for_four_counters() {
    let host = Host::with_topology(Topology::flat(2));
    let _entered = host.enter(CpuId(0));
    let plan = Plan::new(&host, Counting::Flat, 3, Batch::RSS).expect("a plan");
    let (counters, area) = (4, 3);
    let error = InitError::AreaWidth { counters, area };
    assert_eq!(Rss::new(&host, &plan).err(), Some(error));
}

#[test]
fn a_counter_that_there_is_not_panics_in_every_way_to_ask_for_it() {
    const WAYS: [fn(&AnyCounters<Host>, &Host, usize); 6] = [
        |counters, host, nth| counters.add_growing(host, nth, 1),
        |counters, host, nth| {
            let _sum = counters.approximate_sum(host, nth);
        },
        |counters, host, nth| {
            let _sum = counters.precise_sum(host, nth);
        },
        |counters, host, nth| {
            let _sum = counters.accuracy(host, nth);
        },
        |counters, host, nth| {
            let _sum = counters.min_max(host, nth);
        },
        |counters, host, nth| counters.set(host, nth, 1),
    ];
    let host = Host::with_topology(Topology::flat(CPUS));
    let _entered = host.enter(CpuId(0));
    for (counting, grown) in Counting::ALL
        .map(|counting| (counting, false))
        .into_iter()
        .chain([(Counting::OneSided, true)])
    {
        let plan = Plan::new(&host, counting, 2, Batch::RSS).expect("two counters fit");
        let counters = plan.init_many(&host).expect("memory");
        if let (AnyCounters::OneSided(tree), true) = (&counters, grown) {
            tree.grow(&host).expect("memory");
        }
        for (nth, way) in WAYS.iter().enumerate() {
            way(&counters, &host, 1);
            for counter in [2, 6, 7, 8, usize::MAX] {
                let asked = catch_unwind(AssertUnwindSafe(|| way(&counters, &host, counter)));
                assert!(asked.is_err(), "{counting:?}, way {nth}, counter {counter}");
            }
        }
    }
}
