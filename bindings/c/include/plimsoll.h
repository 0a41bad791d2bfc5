#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stddef.h>
#include <stdint.h>

// libplimsoll: Plimsoll's page allocator, counters and victim selection.
//
// Errors. A function that can fail returns a plimsoll_status. If it is not PLIMSOLL_OK, the
// function has written none of its results, unless its comment says otherwise, and
// plimsoll_last_error has a message. No function unwinds into C. A null pointer is an error value;
// any other pointer that is not as "Safety" in the function's comment says is undefined behaviour.
//
// Threads. A pool and a counter may be used by all threads at once. A plimsoll_cpu belongs to the
// thread that has made it, and must be left before this thread ends. Any other thread that lives at
// the same time gets PLIMSOLL_WRONG_THREAD. A thread may hold several; the one made last says which
// CPU the thread plays, and must be left first. A thread plays a CPU of one pool at a time: while
// it holds a newer plimsoll_cpu of another pool, its calls with the older one are slower, and use
// the CPU on which the kernel runs it.
//
// Signals. A signal handler must call no function of this library. A call may hold a lock of the
// pool when the signal interrupts it; a handler that needs this lock then waits for ever.
//
// Forks. A pool belongs to the process that has created it. On Linux, a forked child has no memory at
// the addresses of the pool's pages, and aborts with a message if it allocates or frees a page of
// the pool. It may free the pool, or leave it, create pools of its own, or call exec. The library
// does not notice a child that a system call created instead of the C library's fork.
//
// This file is generated from the Rust code: change that, and run `cargo xtask c-header`.


// The pool uses Plimsoll's own algorithms.
#define PLIMSOLL_DESIGN_OURS 0

// The pool uses the algorithms of Linux 6.18.
#define PLIMSOLL_DESIGN_LINUX 1

// The result of a call.
typedef enum plimsoll_status {
  // The call was successful.
  PLIMSOLL_OK = 0,
  // A pointer that must not be null is null.
  PLIMSOLL_NULL = 1,
  // A number is out of bounds, or a setting is impossible; the message says which.
  PLIMSOLL_INVALID = 2,
  // There is not enough memory.
  PLIMSOLL_NO_MEMORY = 3,
  // The page is not the first page of an allocated block: it is free already (a double free),
  // inside a block, or in no zone. Nothing was freed.
  PLIMSOLL_NOT_ALLOCATED = 4,
  // The block was allocated with another order. Nothing was freed.
  PLIMSOLL_WRONG_ORDER = 5,
  // The handle belongs to another thread.
  PLIMSOLL_WRONG_THREAD = 6,
  // The selection found no process that it is allowed to kill, or a process that was chosen
  // before is still dying and will free its memory soon.
  PLIMSOLL_NOBODY = 7,
  // The library has a bug, and stopped in the middle of the call. The objects of the call must
  // not be used any more.
  PLIMSOLL_PANIC = 8,
} plimsoll_status;

// A counter: a signed 64-bit sum, which wraps around on overflow.
typedef struct plimsoll_counter plimsoll_counter;

// The right of a thread to use a pool as one of the pool's CPUs.
typedef struct plimsoll_cpu plimsoll_cpu;

// Memory for pages, with its manager and the manager's threads.
typedef struct plimsoll_pool plimsoll_pool;

// The settings of a pool. A field that is 0 has its default, so `{0}` is a valid value.
typedef struct plimsoll_options {
  // The number of pages of 4 KiB. Default: 16384, which is 64 MiB.
  uint32_t pages;
  // The number of nodes among which the pages are divided, 1 to 1024. There must be more than
  // 1024 pages for each node except the last. Default: 1.
  uint32_t nodes;
  // The number of CPUs of the pool, 1 to 65536. A thread that uses the pool acts as one of these
  // CPUs. The pool starts a thread for each of them. Default: the CPUs of this computer.
  uint32_t cpus;
  // One of the constants `PLIMSOLL_DESIGN_…`.
  uint32_t design;
  // Must be 0.
  uint32_t reserved[4];
} plimsoll_options;

// The result of a cheap look at a candidate, a process that can be killed to free memory.
typedef struct plimsoll_look {
  // The least number of pages that the candidate may have.
  int64_t min;
  // The greatest number of pages that the candidate may have.
  int64_t max;
  // The points that the candidate has in addition to its pages, in thousandths of all pages;
  // −1000 to 1000. A candidate with −1000 is never chosen.
  int16_t adj;
  // Not 0 if the candidate was chosen before and is still dying. In this case, no candidate is
  // chosen.
  uint8_t is_dying;
} plimsoll_look;

// The candidates (the processes that can be killed), which are numbered from 0, and the functions
// that the selection calls on the calling thread. These functions must not unwind or jump out of
// the selection.
typedef struct plimsoll_candidates {
  // The pointer that is passed to `look` and `sum`.
  void *context;
  // The number of candidates.
  uint32_t count;
  // Takes a cheap look at a candidate. Returns 0 if the candidate has exited, and otherwise
  // another number.
  int32_t (*look)(void*, uint32_t, struct plimsoll_look*);
  // Writes the exact number of pages of the candidate; may be slow. Returns 0 if the candidate
  // has exited, and otherwise another number.
  int32_t (*sum)(void*, uint32_t, int64_t*);
} plimsoll_candidates;

// The result of a selection.
typedef struct plimsoll_victim {
  // The number of the candidate with the most points.
  uint32_t candidate;
  // The number of candidates whose pages the selection counted by a call of the function `sum`.
  uint64_t sums;
} plimsoll_victim;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a counter at 0 for the CPUs of a pool, and writes it to `*made`.
//
// # Safety
// `pool` must be null or a pool; `made` must be null or valid for a write.
enum plimsoll_status plimsoll_counter_new(const struct plimsoll_pool *pool,
                                          struct plimsoll_counter **made);

// Frees a counter. Does nothing for null.
//
// # Safety
// `counter` must be null, or come from `plimsoll_counter_new` and not have been freed. No other
// thread may be using it.
void plimsoll_counter_free(struct plimsoll_counter *counter);

// Adds `delta`. A thread that has entered a CPU of the pool adds to the part of this CPU. Any
// other thread asks the kernel on which CPU it runs, which is slower.
//
// # Safety
// `counter` must be null or a counter.
enum plimsoll_status plimsoll_counter_add(const struct plimsoll_counter *counter, int64_t delta);

// Writes to `*sum` the sum of all additions whose calls have returned. Reads the part of every
// CPU.
//
// # Safety
// `counter` must be null or a counter; `sum` must be null or valid for a write.
enum plimsoll_status plimsoll_counter_sum(const struct plimsoll_counter *counter, int64_t *sum);

// Writes to `*min` and `*max` the ends of a range that contains the sum. Does not read the part of
// every CPU.
//
// # Safety
// `counter` must be null or a counter; `min` and `max` must be null or valid for a write.
enum plimsoll_status plimsoll_counter_range(const struct plimsoll_counter *counter,
                                            int64_t *min,
                                            int64_t *max);

// Makes the calling thread act as CPU `cpu` of the pool, and writes a handle to `*entered`.
//
// # Safety
// `pool` must be null or a pool; `entered` must be null or valid for a write.
enum plimsoll_status plimsoll_enter(const struct plimsoll_pool *pool,
                                    uint32_t cpu,
                                    struct plimsoll_cpu **entered);

// Makes the calling thread act as the CPU on which the kernel runs it at the moment, and writes a
// handle to `*entered`. If the thread already acts as a CPU of the pool, it continues to act as
// that CPU.
//
// # Safety
// `pool` must be null or a pool; `entered` must be null or valid for a write.
enum plimsoll_status plimsoll_bind(const struct plimsoll_pool *pool, struct plimsoll_cpu **entered);

// Ends the right of the calling thread to use the pool as a CPU, and frees the handle. Does
// nothing for null.
//
// # Safety
// `cpu` must be null, or come from `plimsoll_enter` or `plimsoll_bind` and not have been passed to
// `plimsoll_leave` before.
enum plimsoll_status plimsoll_leave(struct plimsoll_cpu *cpu);

// Allocates a block of `1 << order` pages, which is aligned to its size, and writes the number of
// its first page to `*pfn`. The largest order is 10.
//
// # Safety
// `cpu` must be null or a handle; `pfn` must be null or valid for a write.
enum plimsoll_status plimsoll_alloc(const struct plimsoll_cpu *cpu, uint8_t order, uint32_t *pfn);

// Frees a block, which must have been allocated with this order. A thread may also free a block
// that another thread has allocated.
//
// # Safety
// `cpu` must be null or a handle. Nothing may use the block's memory any more.
enum plimsoll_status plimsoll_free(const struct plimsoll_cpu *cpu, uint32_t pfn, uint8_t order);

// Allocates `count` single pages and writes their numbers to `pfns`. Writes to `*got` the number
// of pages that the caller has got, even if memory runs out before all pages are allocated
// (`PLIMSOLL_NO_MEMORY`). Does not change the entries of `pfns` from index `*got` on.
//
// # Safety
// `cpu` must be null or a handle; `pfns` must be null or valid for `count` initialised numbers;
// `got` must be null or valid for a write.
enum plimsoll_status plimsoll_alloc_pages(const struct plimsoll_cpu *cpu,
                                          uint32_t *pfns,
                                          size_t count,
                                          size_t *got);

// Frees `count` single pages. Stops at the first page that was not allocated as a single page:
// frees the pages before it, but neither this page nor the pages after it. Writes the number of
// freed pages to `*freed`, even if it stops early. In that case `pfns[*freed]` is the page at
// which it stopped. `freed` may be null.
//
// # Safety
// `cpu` must be null or a handle; `pfns` must be null or valid for `count` numbers; `freed` must
// be null or valid for a write. Nothing may use the pages' memory any more.
enum plimsoll_status plimsoll_free_pages(const struct plimsoll_cpu *cpu,
                                         const uint32_t *pfns,
                                         size_t count,
                                         size_t *freed);

// Makes a pool, and writes it to `*made`. `options` may be null, for the defaults.
//
// # Safety
// `options` must be null or point to a `plimsoll_options`; `made` must be null or valid for a
// write.
enum plimsoll_status plimsoll_pool_new(const struct plimsoll_options *options,
                                       struct plimsoll_pool **made);

// Frees a pool. Does nothing for null. The memory remains until every CPU and counter of the pool
// is freed too. After that, no pointer to a page is valid.
//
// # Safety
// `pool` must be null, or come from `plimsoll_pool_new` and not have been freed. No other thread
// may be using it.
void plimsoll_pool_free(struct plimsoll_pool *pool);

// Writes the address of a page's 4096 bytes to `*address`. The pages of a block are next to each
// other in memory. Only the owner of the page may use these bytes.
//
// # Safety
// `pool` must be null or a pool; `address` must be null or valid for a write.
enum plimsoll_status plimsoll_page(const struct plimsoll_pool *pool, uint32_t pfn, void **address);

// Writes the number of free pages to `*pages`, including the pages on the lists of CPUs. The
// number can be wrong by the pages that other threads, or the pool's own threads, move between
// lists during the call.
//
// # Safety
// `pool` must be null or a pool; `pages` must be null or valid for a write.
enum plimsoll_status plimsoll_free_count(const struct plimsoll_pool *pool, uint64_t *pages);

// Chooses the candidate with the most points, and writes it to `*victim`. A candidate has a point
// for each of its pages, and `total / 1000` points more for each unit of its `adj`. The selection
// calls the function `sum` only for candidates whose exact number of pages can matter. If no
// candidate may be chosen now, the result is `PLIMSOLL_NOBODY`. `total` is the number of all
// pages, at least 1.
//
// # Safety
// `candidates` must be null or point to a `plimsoll_candidates` whose functions may be called with
// its context; `victim` must be null or valid for a write.
enum plimsoll_status plimsoll_select(const struct plimsoll_candidates *candidates,
                                     uint64_t total,
                                     struct plimsoll_victim *victim);

// Returns the meaning of a status, in English. The text is constant. `status` may be any number.
const char *plimsoll_message(int32_t status);

// Writes the message of this thread's last failed call into the `size` bytes of `buffer`. The
// message is UTF-8, is cut between two characters if it does not fit, and always ends with a zero
// byte. Returns the length of the whole message in bytes, without the zero byte. Writes nothing if
// `buffer` is null or `size` is 0.
//
// # Safety
// `buffer` must be null, or valid for writes of `size` bytes.
size_t plimsoll_last_error(char *buffer, size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLIMSOLL_H */
