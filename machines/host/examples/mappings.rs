//! The mappings of an address space: one thread maps and unmaps, while another looks mappings up
//! without a lock.
//!
//! `cargo run --release -p plimsoll-host --example mappings`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::space::vma_tree::{Busy, Cursor, Vma, VmaTree};
use plimsoll_mm::units::Vpn;

/// The range of pages in which the program may map.
const ALLOWED: std::ops::Range<Vpn> = Vpn(16)..Vpn(1 << 35);

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::new();
    // Only the holder of the editor can change the tree. A real program protects the editor with a
    // lock, such as the `mmap_lock` of Linux.
    let (tree, mut editor) = VmaTree::new(&host).map_err(|_| "no memory for a tree")?;
    let code = Vma {
        start: Vpn(16),
        end: Vpn(48),
        id: 0,
    };
    tree.insert(&host, &mut editor, code)?;

    let (found, busy) = thread::scope(|scope| {
        let reader = scope.spawn(|| look(&tree, Vpn(20)));
        for id in 1..10_000 {
            // New mappings are placed in the highest gap of 64 pages, as in Linux.
            let Some(start) = tree.highest_gap(&editor, 64, ALLOWED) else {
                break;
            };
            let end = Vpn(start.0 + 64);
            let new = Vma { start, end, id };
            tree.insert(&host, &mut editor, new)
                .expect("the gap is free");
        }
        reader.join().expect("the reader does not panic")
    });
    println!(
        "found the code {found} times while 9,999 mappings were added, met changes {busy} times"
    );

    // Unmap the middle of a mapping, which splits the mapping in two.
    let last = tree
        .prev(Vpn(u64::MAX))
        .map_err(|_| "another thread writes")?;
    let last = last.ok_or("there are mappings")?;
    let middle = Vpn(last.start.0 + 16)..Vpn(last.start.0 + 32);
    tree.clear(&host, &mut editor, middle, |gone| {
        println!("unmapped {} pages from {} on", gone.pages(), gone.start);
    })?;

    // Walk down from the highest mapping, as a reaper does.
    let mut cursor = Cursor::end(&tree);
    let mut pages = 0;
    while let Some(vma) = cursor.backward().map_err(|_| "another thread writes")? {
        pages += vma.pages();
    }
    println!("{} mappings, {pages} pages", editor.mappings());
    assert_eq!(pages, 32 + 9_999 * 64 - 16);
    Ok(())
}

/// Looks up, again and again, the mapping that contains `page`. Returns how often the mapping was
/// found, and how often a concurrent change of the tree prevented an answer.
fn look(tree: &VmaTree<Host>, page: Vpn) -> (u32, u32) {
    let (mut found, mut busy) = (0, 0);
    for _ in 0..100_000 {
        match tree.find(page) {
            Ok(vma) => found += u32::from(vma.is_some_and(|vma| vma.id == 0)),
            // A real page fault handler would now take the lock of the mappings, and look again.
            Err(Busy) => busy += 1,
        }
    }
    assert_eq!(found + busy, 100_000, "every mapping is found");
    (found, busy)
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
