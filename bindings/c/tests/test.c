// Uses each part of libplimsoll, and ends with status 0 only if each behaves as plimsoll.h says.

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll.h"

static void check(int holds, const char *what, int line) {
    if (!holds) {
        char why[256];
        plimsoll_last_error(why, sizeof why);
        fprintf(stderr, "test.c:%d: %s\nlast error: %s\n", line, what, why);
        exit(1);
    }
}
#define CHECK(what) check((what), #what, __LINE__)

enum { CPUS = 2, PAGES = 2048, HELD = 300, ADDITIONS = 100000 };

// Each thread plays one CPU: it writes to its pages, and checks that no other thread did.
struct worker {
    const plimsoll_pool *pool;
    plimsoll_counter *counter;
    uint32_t number;
};

static void *work(void *argument) {
    const struct worker *me = argument;
    plimsoll_cpu *cpu = NULL;
    CHECK(plimsoll_enter(me->pool, me->number, &cpu) == PLIMSOLL_OK);
    uint32_t pfns[HELD] = {0};
    size_t got = 0;
    CHECK(plimsoll_alloc_pages(cpu, pfns, HELD, &got) == PLIMSOLL_OK && got == HELD);
    for (size_t i = 0; i < HELD; i++) {
        void *page = NULL;
        CHECK(plimsoll_page(me->pool, pfns[i], &page) == PLIMSOLL_OK);
        memset(page, (int)me->number + 1, 4096);
    }
    for (size_t i = 0; i < HELD; i++) {
        void *page = NULL;
        CHECK(plimsoll_page(me->pool, pfns[i], &page) == PLIMSOLL_OK);
        CHECK(((unsigned char *)page)[4095] == me->number + 1);
    }
    size_t freed = 0;
    CHECK(plimsoll_free_pages(cpu, pfns, HELD, &freed) == PLIMSOLL_OK && freed == HELD);
    for (int i = 0; i < ADDITIONS; i++) {
        CHECK(plimsoll_counter_add(me->counter, 1) == PLIMSOLL_OK);
    }
    CHECK(plimsoll_leave(cpu) == PLIMSOLL_OK);
    return NULL;
}

static void threads(const plimsoll_pool *pool) {
    plimsoll_counter *counter = NULL;
    CHECK(plimsoll_counter_new(pool, &counter) == PLIMSOLL_OK);
    pthread_t running[CPUS];
    struct worker workers[CPUS];
    for (uint32_t i = 0; i < CPUS; i++) {
        workers[i] = (struct worker){pool, counter, i};
        CHECK(pthread_create(&running[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < CPUS; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
    }
    int64_t sum = 0, min = 0, max = 0;
    CHECK(plimsoll_counter_sum(counter, &sum) == PLIMSOLL_OK);
    CHECK(sum == (int64_t)CPUS * ADDITIONS);
    CHECK(plimsoll_counter_range(counter, &min, &max) == PLIMSOLL_OK);
    CHECK(min <= sum && sum <= max);
    plimsoll_counter_free(counter);
}

static void pages(const plimsoll_pool *pool) {
    plimsoll_cpu *cpu = NULL;
    CHECK(plimsoll_bind(pool, &cpu) == PLIMSOLL_OK);
    uint64_t free_before = 0, free_after = 0;
    CHECK(plimsoll_free_count(pool, &free_before) == PLIMSOLL_OK && free_before == PAGES);
    uint32_t block = 0;
    CHECK(plimsoll_alloc(cpu, 9, &block) == PLIMSOLL_OK && block % 512 == 0);
    CHECK(plimsoll_free_count(pool, &free_after) == PLIMSOLL_OK);
    CHECK(free_after == PAGES - 512);

    // A refused call returns an error and changes nothing.
    char why[256];
    CHECK(plimsoll_free(cpu, block, 3) == PLIMSOLL_WRONG_ORDER);
    CHECK(plimsoll_free(cpu, block + 1, 0) == PLIMSOLL_NOT_ALLOCATED);
    CHECK(plimsoll_free(cpu, block, 9) == PLIMSOLL_OK);
    CHECK(plimsoll_free(cpu, block, 9) == PLIMSOLL_NOT_ALLOCATED);
    CHECK(plimsoll_last_error(why, sizeof why) == strlen(why) && strstr(why, "allocated"));
    CHECK(plimsoll_free(cpu, 1000000, 0) == PLIMSOLL_NOT_ALLOCATED);
    CHECK(plimsoll_alloc(cpu, 11, &block) == PLIMSOLL_INVALID);
    CHECK(plimsoll_alloc(NULL, 0, &block) == PLIMSOLL_NULL);
    CHECK(plimsoll_alloc(cpu, 0, NULL) == PLIMSOLL_NULL);
    void *page = NULL;
    CHECK(plimsoll_page(pool, PAGES, &page) == PLIMSOLL_INVALID && page == NULL);

    // Memory runs out half-way: exactly the pages that were counted are the caller's.
    static uint32_t all[PAGES + 1];
    memset(all, 0xff, sizeof all);
    size_t got = 0;
    CHECK(plimsoll_alloc_pages(cpu, all, PAGES + 1, &got) == PLIMSOLL_NO_MEMORY);
    CHECK(got > 0 && got <= PAGES && all[got] == UINT32_MAX && all[got - 1] < PAGES);
    CHECK(plimsoll_free_pages(cpu, all, got, NULL) == PLIMSOLL_OK);
    size_t freed = 1;
    CHECK(plimsoll_free_pages(cpu, all, 1, &freed) == PLIMSOLL_NOT_ALLOCATED && freed == 0);
    // A page that is in the list twice is freed once.
    CHECK(plimsoll_alloc_pages(cpu, all, 100, &got) == PLIMSOLL_OK && got == 100);
    const uint32_t last = all[99];
    all[99] = all[70];
    CHECK(plimsoll_free_pages(cpu, all, 100, &freed) == PLIMSOLL_NOT_ALLOCATED && freed == 99);
    CHECK(plimsoll_free(cpu, last, 0) == PLIMSOLL_OK);
    CHECK(plimsoll_free_count(pool, &free_after) == PLIMSOLL_OK && free_after == PAGES);
    CHECK(plimsoll_alloc_pages(cpu, NULL, 0, &got) == PLIMSOLL_OK && got == 0);
    CHECK(plimsoll_alloc_pages(cpu, NULL, 1, &got) == PLIMSOLL_NULL);
    CHECK(plimsoll_leave(cpu) == PLIMSOLL_OK);
}

// A handle is refused on another thread.
static void *misuse(void *argument) {
    plimsoll_cpu *cpu = argument;
    uint32_t pfn = 0;
    CHECK(plimsoll_alloc(cpu, 0, &pfn) == PLIMSOLL_WRONG_THREAD);
    CHECK(plimsoll_leave(cpu) == PLIMSOLL_WRONG_THREAD);
    return NULL;
}

static void wrong_thread(const plimsoll_pool *pool) {
    plimsoll_cpu *cpu = NULL;
    CHECK(plimsoll_enter(pool, CPUS, &cpu) == PLIMSOLL_INVALID && cpu == NULL);
    CHECK(plimsoll_enter(pool, 0, &cpu) == PLIMSOLL_OK);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, misuse, cpu) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(plimsoll_leave(cpu) == PLIMSOLL_OK);
}

// The candidates are tenants. A cheap look gives a range of 100 numbers that contains a tenant's
// number of pages.
static int16_t adj_of_3 = -1000;
static uint32_t dying = UINT32_MAX;

static int32_t look(void *context, uint32_t tenant, plimsoll_look *seen) {
    const int64_t *held = context;
    if (held[tenant] < 0) {
        return 0;
    }
    seen->min = held[tenant] / 100 * 100;
    seen->max = seen->min + 99;
    seen->adj = tenant == 3 ? adj_of_3 : 0;
    seen->is_dying = tenant == dying;
    return 1;
}

static int32_t sum(void *context, uint32_t tenant, int64_t *held) {
    *held = ((const int64_t *)context)[tenant];
    return *held >= 0;
}

static void selector(void) {
    // Tenant 1 is the largest of those that may be killed; tenant 3 is protected, and 4 has exited.
    int64_t held[] = {910, 1090, 370, 5000, -1};
    plimsoll_candidates tenants = {held, 5, look, sum};
    plimsoll_victim victim = {0};
    CHECK(plimsoll_select(&tenants, 1 << 20, &victim) == PLIMSOLL_OK);
    CHECK(victim.candidate == 1 && victim.sums <= 1);
    CHECK(plimsoll_select(&tenants, 0, &victim) == PLIMSOLL_INVALID);
    dying = 2;
    CHECK(plimsoll_select(&tenants, 1 << 20, &victim) == PLIMSOLL_NOBODY);
    dying = UINT32_MAX;
    adj_of_3 = 2000;
    CHECK(plimsoll_select(&tenants, 1 << 20, &victim) == PLIMSOLL_INVALID);
    adj_of_3 = -1000;
    tenants.count = 0;
    CHECK(plimsoll_select(&tenants, 1 << 20, &victim) == PLIMSOLL_NOBODY);
    tenants.sum = NULL;
    CHECK(plimsoll_select(&tenants, 1 << 20, &victim) == PLIMSOLL_NULL);
}

int main(void) {
    plimsoll_options options = {.pages = PAGES, .cpus = CPUS};
    plimsoll_pool *pool = NULL;
    CHECK(plimsoll_pool_new(&options, &pool) == PLIMSOLL_OK);
    pages(pool);
    threads(pool);
    wrong_thread(pool);
    selector();
    uint64_t left = 0;
    CHECK(plimsoll_free_count(pool, &left) == PLIMSOLL_OK && left == PAGES);
    plimsoll_pool_free(pool);

    plimsoll_pool_free(NULL);
    plimsoll_counter_free(NULL);
    CHECK(plimsoll_leave(NULL) == PLIMSOLL_OK);
    CHECK(plimsoll_pool_new(&options, NULL) == PLIMSOLL_NULL);
    options.nodes = 9;
    CHECK(plimsoll_pool_new(&options, &pool) == PLIMSOLL_INVALID);
    options = (plimsoll_options){.cpus = UINT32_MAX};
    CHECK(plimsoll_pool_new(&options, &pool) == PLIMSOLL_INVALID);
    options = (plimsoll_options){.design = 2};
    CHECK(plimsoll_pool_new(&options, &pool) == PLIMSOLL_INVALID);
    options = (plimsoll_options){.reserved = {1}};
    CHECK(plimsoll_pool_new(&options, &pool) == PLIMSOLL_INVALID);
    CHECK(strcmp(plimsoll_message(PLIMSOLL_NO_MEMORY), "out of memory") == 0);
    puts("libplimsoll behaves as its header says");
    return 0;
}
