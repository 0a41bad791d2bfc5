//! The system calls of restartable sequences, and the areas that threads share with the kernel:
//! where glibc has them, and how this module registers its own.

#![expect(unsafe_code, reason = "an area is shared with the kernel")]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_long};
use std::sync::atomic::Ordering::Relaxed;

use super::{Area, Registration, leave};

/// The flag of the system call that ends a registration (Linux: `RSEQ_FLAG_UNREGISTER`).
const UNREGISTER: i32 = 1;

/// The distance from the thread pointer to the area (Linux: `struct rseq`) that glibc has
/// registered for each thread. `None` if the C library has not registered one.
pub(super) fn libc_offset() -> Option<isize> {
    let size = symbol(c"__rseq_size")?.cast::<u32>();
    let offset = symbol(c"__rseq_offset")?.cast::<isize>();
    // SAFETY: glibc documents `__rseq_size` as a constant of type `unsigned int`, which it sets
    // before the program starts.
    let size = unsafe { *size };
    // SAFETY: glibc documents `__rseq_offset` as a constant of type `ptrdiff_t`, which it sets
    // before the program starts.
    let offset = unsafe { *offset };
    (size > 0).then_some(offset)
}

fn symbol(name: &CStr) -> Option<*const u8> {
    // SAFETY: the name ends with a zero byte, and the call changes nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const().cast())
}

/// The registered area of the calling thread.
pub(super) fn area_of_this_thread(registration: Registration) -> Option<&'static Area> {
    match registration {
        Registration::Libc { offset } => {
            let area = thread_pointer().wrapping_offset(offset).cast::<Area>();
            // SAFETY: glibc keeps the area at this address for as long as the thread lives. All
            // fields of the area are atomics, and the kernel changes them only while the thread
            // does not run. The reference is only used by this thread: it stays in this thread's
            // `MINE`, and in values of functions that this thread runs.
            Some(unsafe { &*area })
        }
        Registration::Own => OWN.try_with(Own::registered).ok().flatten(),
    }
}

/// The thread pointer, from which glibc counts the distance to the area of restartable sequences.
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: in the ABI of x86-64, the word at address 0 of the segment `fs` is the address of
    // this word.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every thread may read this register, in which the ABI of AArch64 keeps the thread
    // pointer.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

thread_local! {
    static OWN: Own = const { Own(UnsafeCell::new(Area::new())) };
}

/// An area that this module registers with the kernel. Before the memory of the area is freed,
/// `drop` ends the registration.
struct Own(UnsafeCell<Area>);

impl Own {
    fn registered(&self) -> Option<&'static Area> {
        let area = self.0.get();
        // SAFETY: the area is in thread-local storage and consists of atomics. The reference is
        // used by this thread alone, and not after `drop`, which makes the thread forget it.
        let area: &'static Area = unsafe { &*area };
        if area.cpu().is_some() {
            return Some(area);
        }
        // SAFETY: the area stays where it is until `drop` ends the registration.
        (unsafe { call(area, 0) } == 0).then_some(area)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        leave();
        let area = self.0.get_mut();
        if area.cpu().is_some() {
            // SAFETY: the area was registered by this thread. If the call fails, the kernel may
            // write to the area until the thread has ended. The thread's storage is freed after
            // that.
            let _ended = unsafe { call(area, UNREGISTER) };
            area.cpu_id.store(super::NO_CPU, Relaxed);
        }
    }
}

/// Registers this thread's area for restartable sequences, or ends the registration.
///
/// # Safety
/// A registered area must stay in place until its registration ends.
unsafe fn call(area: &Area, flags: i32) -> c_long {
    let bytes = size_of::<Area>();
    // SAFETY: the kernel writes only to the area, which has `bytes` bytes and the alignment that
    // the kernel requires. The caller guarantees that the area stays in place.
    unsafe {
        libc::syscall(
            libc::SYS_rseq,
            std::ptr::from_ref(area),
            bytes,
            flags,
            super::ops::SIGNATURE,
        )
    }
}

/// Makes every restartable sequence that another thread of this process runs on `cpu` start again,
/// and acts as a full barrier on that CPU. Returns whether the kernel has done so.
pub(super) fn abort_sequences_on(cpu: u32) -> bool {
    /// Linux: `MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`.
    const ABORT_SEQUENCES: i32 = 1 << 7;
    /// Linux: `MEMBARRIER_CMD_FLAG_CPU`.
    const ON_ONE_CPU: u32 = 1;
    // SAFETY: the call changes no memory of this process. If a thread runs a sequence, the kernel
    // makes the thread continue at the place that the sequence's description names.
    let outcome = unsafe { libc::syscall(libc::SYS_membarrier, ABORT_SEQUENCES, ON_ONE_CPU, cpu) };
    outcome == 0
}

#[cfg(test)]
#[path = "../../../tests/shared/own_areas.rs"]
mod own_areas;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::io;
    use std::ptr;
    use std::sync::Barrier;
    use std::sync::mpsc::{self, Sender};
    use std::thread;

    use super::super::{NONE, is_available, mine, ops, registration, set_up};
    use super::*;

    /// Returns whether threads of this process use areas that this module registers.
    fn areas_are_own() -> bool {
        matches!(registration(), Some(Registration::Own))
    }

    /// glibc registers no areas if the environment says so. All tests of fronts must hold then too.
    #[test]
    fn the_tests_of_fronts_pass_without_the_areas_of_glibc() {
        if own_areas::is_second_run() {
            assert_eq!(libc_offset(), None, "glibc has no areas");
            assert!(areas_are_own());
        } else if is_available() {
            own_areas::run_again("fronts::");
        }
    }

    /// Asks the kernel to register `area`, and returns the number of the error. The kernel refuses a
    /// thread that has an area, and gives another reason if the area, its size or the signature is
    /// not the same as before.
    fn refusal(area: &Area) -> Option<i32> {
        // SAFETY: if the kernel registers the area, the registration ends before the area does.
        if unsafe { call(area, 0) } != 0 {
            return io::Error::last_os_error().raw_os_error();
        }
        // SAFETY: the area was registered by this thread.
        assert_eq!(unsafe { call(area, UNREGISTER) }, 0);
        None
    }

    #[test]
    fn the_kernel_knows_the_area_and_the_signature_of_the_sequences() {
        if !areas_are_own() {
            return;
        }
        thread::spawn(|| {
            let other = Area::new();
            assert_eq!(refusal(&other), None, "the thread has no area yet");
            let area = set_up().expect("it is available");
            assert_eq!(refusal(&other), Some(libc::EINVAL), "it has another area");
            let bytes = size_of::<Area>();
            let known = ptr::from_ref(area);
            let signature = ops::SIGNATURE;
            // SAFETY: the kernel does not register the area a second time.
            let again = unsafe { libc::syscall(libc::SYS_rseq, known, bytes, 0, signature) };
            let why = io::Error::last_os_error().raw_os_error();
            assert_eq!((again, why), (-1, Some(libc::EBUSY)), "it is registered");
            // In the child of a fork, the thread leaves its area, which stays registered.
            leave();
            let same = set_up().is_some_and(|again| ptr::eq(again, area));
            assert!(same, "the thread finds its area again");
        })
        .join()
        .expect("no panic");
    }

    /// When it is dropped, sends whether its thread still has an area, whether the thread can get
    /// one, and why the kernel refuses another area for the thread.
    struct AtTheEnd(Sender<(bool, bool, Option<i32>)>);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let has = !ptr::eq(mine(), &raw const NONE);
            let gets = set_up().is_some();
            let _received = self.0.send((has, gets, refusal(&Area::new())));
        }
    }

    thread_local! {
        static AT_THE_END: RefCell<Option<AtTheEnd>> =
            const { RefCell::new(None) };
    }

    /// Thread-local values are dropped in the reverse order of their first use. So a value that was
    /// used before the area is dropped after the registration has ended.
    #[test]
    fn the_registration_ends_before_the_storage_of_the_thread() {
        if !areas_are_own() {
            return;
        }
        let (sender, receiver) = mpsc::channel();
        for early in [true, false] {
            let end = AtTheEnd(sender.clone());
            thread::spawn(move || {
                let mut end = Some(end);
                let mut keep = || AT_THE_END.set(end.take());
                if early {
                    keep();
                    assert!(set_up().is_some());
                } else {
                    assert!(set_up().is_some());
                    keep();
                }
            })
            .join()
            .expect("no panic");
        }
        let ends: Vec<_> = receiver.try_iter().collect();
        assert_eq!(ends[0], (false, false, None), "the registration has ended");
        let not_yet = (true, true, Some(libc::EINVAL));
        assert_eq!(ends[1], not_yet, "the registration has not ended");
    }

    /// The storage of threads that have ended is used again by new threads. Each area is registered
    /// afresh, and no two threads that live at the same time share an area.
    #[test]
    fn threads_that_come_and_go_have_areas_of_their_own() {
        if !areas_are_own() {
            return;
        }
        for _round in 0..50 {
            let gate = Barrier::new(4);
            let areas = thread::scope(|scope| {
                let threads = [(); 4].map(|()| {
                    scope.spawn(|| {
                        let area = set_up().expect("it is available");
                        gate.wait();
                        let cpu = area.cpu();
                        gate.wait();
                        assert!(cpu.is_some(), "the kernel keeps the number of the CPU");
                        ptr::from_ref(area).addr()
                    })
                });
                threads.map(|thread| thread.join().expect("no panic"))
            });
            let different = BTreeSet::from(areas);
            assert_eq!(different.len(), areas.len());
        }
    }
}
