//! Page lists: every refill, spill, decay and drain beside the kernel's.

mod compare;
mod follow;
mod future;
mod infer;
mod lists;
mod machine;
mod op;
mod stage;
mod zoneinfo;

use plimsoll_recording::Recording;
use plimsoll_mm::design::Design;
use self::compare::*;
use self::follow::Follow;
use self::stage::*;
use self::lists::*;
use self::op::*;

use super::{Judge, Judgement};

/// Judges page lists.
#[derive(Debug)]
pub struct PageLists;
impl PageLists { #[must_use] pub fn new(_: Option<()>) -> Self { Self } }

impl Judge for PageLists {
    fn name(&self) -> &'static str {
        "page-lists"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let zones = zoneinfo::parse(recording.header.text("zoneinfo before")?);
        let t = std::time::Instant::now();
        let inferred = infer::Inferred::of(recording, &zones);
        eprintln!("{:?} ops {} {:?}", inferred.tally, inferred.ops.len(), t.elapsed());
        let mut hist = std::collections::BTreeMap::new();
        for o in &inferred.ops { if let Action::Bulk { pfns, list, .. } = &o.action { *hist.entry((list.0, pfns.len(), o.moves.len())).or_insert(0) += 1; } }
        eprintln!("bulks {hist:?}");
        let env = |k: &str| std::env::var(k).ok().and_then(|x| x.parse::<u32>().ok());
        let knobs = Knobs { min_free_kib: zones.iter().map(|z| z.marks[0]).sum::<u64>() * 4 + 4, high_fraction: 0, cpus: zones.iter().map(|z| z.lists.len()).max()? as u32, offline: vec![] };
        let mark = recording.events.iter().position(|e| matches!(&e.what, plimsoll_recording::What::Mark(t) if t.contains("zoneinfo before end"))).unwrap_or(0);
        let mut at_mark = Follow::default();
        for (z, zone) in zones.iter().enumerate() { for cpu in 0..zone.lists.len() {
            let mut l = [0; LISTS];
            for i in 0..14 { l[i] = inferred.before.get(&Place { cpu: cpu as u32, zone: z as u8, list: ListId(i as u8) }).map_or(0, |x| x.len() as u32); }
            at_mark.begin((z as u8, cpu as u32), l, 63, ListId(1));
        }}
        for o in inferred.ops.iter().take_while(|o| (o.event as usize) < mark) { at_mark.note(o); }
        let first = inferred.ops.iter().position(|o| o.event as usize >= mark).unwrap_or(0);
        let mut follow = Follow::default();
        let design = Design::named(std::env::var("DESIGN").as_deref().unwrap_or("linux-6.18")).unwrap();
        let mut stage = Stage::new(design, &zones, &knobs).unwrap();
        for (z, zone) in zones.iter().enumerate() { for (cpu, info) in zone.lists.iter().enumerate() { if let Some(info) = info {
            let (z, cpu) = (z as u8, cpu as u32);
            let mut l = at_mark.lens(z, cpu);
            let residual = info.count as i64 - i64::from(follow::pages(&l));
            let home = [1, 0, 2].into_iter().find(|&x| !inferred.emptied.contains(&Place { cpu, zone: z, list: ListId(x) }));
            eprintln!("zone {z} cpu {cpu} count {} known {} residual {residual} home {home:?}", info.count, follow::pages(&l));
            if let Some(h) = home && residual > 0 { l[h as usize] += residual as u32; if z == 2 { l[h as usize] += env(&format!("D{cpu}")).unwrap_or(0); } }
            stage.seed(z, cpu, &Start { high: info.high as u32, alloc_factor: env("AF").unwrap_or(0), free_count: env("FC").unwrap_or(0), blocks: l }).unwrap(); follow.begin((z, cpu), l, info.batch as u32, ListId(home.unwrap_or(2)));
        }}}
        eprintln!("seeded {:?}", t.elapsed());
        let pairs = perform(&mut stage, &inferred.ops[first..], follow);
        eprintln!("performed {:?} refused {}", t.elapsed(), stage.refused);
        let same = pairs.iter().filter(|p| p.kernel == p.ours).count();
        let samep = pairs.iter().filter(|p| p.kernel.pages == p.ours.pages).count();
        eprintln!("unknown {} same {}", pairs.iter().filter(|p| p.unknown).count(), pairs.iter().filter(|p| p.unknown && p.is_same()).count());
        eprintln!("pairs {} same {} same pages {}", pairs.len(), same, samep);
        for k in Kind::ALL { let v: Vec<_> = pairs.iter().filter(|p| p.kind == k).collect(); eprintln!("{} {} same {} kernel {} pages, ours {}", k.name(), v.len(), v.iter().filter(|p| p.kernel == p.ours).count(), v.iter().map(|p| p.kernel.pages).sum::<u32>(), v.iter().map(|p| p.ours.pages).sum::<u32>()); }
        for p in pairs.iter().filter(|p| !p.unknown && p.kernel != p.ours).take(env("N").unwrap_or(30) as usize) { let o = &inferred.ops[first + p.op as usize]; eprintln!("{p:?} ev {} {}", o.event, format!("{:?}", o.action).chars().take(70).collect::<String>()); }
        Some(Judgement { compared: pairs.len() as u64, identical: same as u64, ..Judgement::default() })
    }
}
