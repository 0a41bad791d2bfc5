//! The load `mixed`: random operations of many kinds, with random sizes, orders and CPUs.

use std::io;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Guest, Load, Parameter, Values};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

/// The number of pages in a huge page.
const HUGE_PAGES: usize = 512;

pub(super) const LOAD: Load = Load {
    name: "mixed",
    about: "Every CPU does random things: mappings of all sizes, huge pages, pipes, messages over \
            sockets, programs, files, moves to another CPU",
    parameters: &[
        Parameter::number("steps", "random steps of each CPU", 60, (1, 100_000)),
        Parameter::number(
            "largest",
            "pages of the largest mapping",
            1024,
            (1, 1 << 16),
        ),
        Parameter::number("seed", "seed of the random steps", 1, (0, u64::MAX)),
    ],
    modules: &[],
    settles: true,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    let program = |cpu| random_program(guest, cpu, values);
    Crew::ready(&guest.programs(program))?.together()
}

fn random_program(guest: &Guest, cpu: u32, values: &Values) -> Vec<Op> {
    // The generator scrambles its seed, so similar seeds give unrelated sequences.
    let seed = values.number("seed").wrapping_add(u64::from(cpu) << 32);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut mappings = 0_u32;
    let mut program = Vec::new();
    for nth in 0..values.number("steps") {
        match random.random_range(0..100) {
            0..35 => {
                // The upper bound of the mapping's size is a random power of two; all powers have
                // the same probability. So small mappings are not rarer than large ones.
                let bits = values.count("largest").ilog2();
                let most = 1 << random.random_range(0..=bits);
                program.push(Op::Map(random.random_range(1..=most)));
                mappings += 1;
            }
            35..40 => {
                program.push(Op::MapHuge(HUGE_PAGES * random.random_range(2..=4)));
                mappings += 1;
            }
            40..70 if mappings > 0 => {
                let newest = random.random_bool(0.5);
                program.push(if newest {
                    Op::UnmapNewest
                } else {
                    Op::UnmapOldest
                });
                mappings -= 1;
            }
            40..75 => program.push(Op::Sleep(random.random_range(1..=20))),
            75..80 => program.push(Op::Pipes(random.random_range(1..=4))),
            80..85 => program.push(Op::Messages(random.random_range(1..=8))),
            85..88 => program.push(Op::Exec(1)),
            88..94 => {
                let file = format!("/tmp/mixed-{cpu}-{nth}");
                let pages = random.random_range(1..=128);
                program.push(Op::WriteFile(file.clone(), pages));
                program.push(Op::ReadFile(file.clone(), pages));
                program.push(Op::DeleteFile(file));
            }
            _ => program.push(Op::Cpu(
                random.random_range(u32::from(guest.cpus > 1)..guest.cpus),
            )),
        }
    }
    program.push(Op::UnmapAll);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_program_and_every_unmapping_has_a_mapping() {
        let guest = Guest { cpus: 8 };
        let values = LOAD.values(&["steps=2000".to_owned()]).unwrap();
        let program = random_program(&guest, 3, &values);
        assert_eq!(program, random_program(&guest, 3, &values));
        assert_ne!(program, random_program(&guest, 4, &values));
        let mut mappings = 0;
        for step in &program {
            match step {
                Op::Map(pages) => {
                    assert!((1..=1024).contains(pages));
                    mappings += 1;
                }
                Op::MapHuge(_) => mappings += 1,
                Op::UnmapOldest | Op::UnmapNewest => {
                    assert!(mappings > 0, "an unmapping without a mapping");
                    mappings -= 1;
                }
                Op::Cpu(cpu) => assert!((1..8).contains(cpu)),
                _ => {}
            }
        }
    }
}
