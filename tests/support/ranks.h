/* Ranks within a test's process: threads, each with a device and a communicator. */
#ifndef LT_TESTS_RANKS_H
#define LT_TESTS_RANKS_H

#include "base/alloc.h"
#include "near.h"

#include "lather/comm.h"
#include "lather/device.h"

#include <pthread.h>
#include <stdio.h>

enum { MOST_RANKS = 64, RANK_TEXT = 1024 };

/* A test's struct of a rank begins with one. */
typedef struct test_rank {
    int rank, ranks;
    lt_device *device; /* one that is set before open_ranks() is used, and is the test's to close */
    lt_comm *comm;
    bool owns_device;
    lt_status status; /* run()'s, and its message */
    char message[RANK_TEXT];
} test_rank;

typedef struct rank_group {
    void *rank; /* [count], of `bytes` each */
    size_t bytes;
    int count;
    const char *device; /* NULL: ref */
    bool f64;
    bool without_comm; /* comm is NULL */
    bool same_refusal; /* LT_E_ARG comes on all ranks, so none aborts the others with it */
    int64_t fail_at;   /* this allocation fails, counted over all ranks while they run; 0: none */
    lt_status (*run)(void *rank); /* on a thread; a failure aborts the communicator */
    void (*end)(void *rank);      /* after it, on the same thread; or NULL */
} rank_group;

/* The first fields of a rank_group: an array of structs that begin with a test_rank. */
#define RANKS_OF(array, size) .rank = (array), .bytes = sizeof *(array), .count = (size)

static inline test_rank *rank_at(const rank_group *g, int index)
{
    return (test_rank *)(void *)((char *)g->rank + (size_t)index * g->bytes);
}

static inline void open_ranks(const rank_group *g)
{
    const lt_device_config config = {.f64 = g->f64, .threads = 1};
    lt_device *device[MOST_RANKS];
    lt_comm *comm[MOST_RANKS] = {NULL};
    assert_in_range(g->count, 1, MOST_RANKS);
    for (int i = 0; i < g->count; i++) {
        test_rank *r = rank_at(g, i);
        r->rank = i;
        r->ranks = g->count;
        r->owns_device = !r->device;
        if (r->owns_device)
            assert_ok(lt_device_open(&r->device, g->device ? g->device : "ref", &config));
        device[i] = r->device;
    }
    if (!g->without_comm)
        assert_ok(lt_comm_open_threads(comm, device, g->count));
    for (int i = 0; i < g->count; i++)
        rank_at(g, i)->comm = comm[i];
}

typedef struct rank_thread {
    const rank_group *group;
    test_rank *rank;
    pthread_t id;
} rank_thread;

static inline void *run_rank(void *context)
{
    const rank_thread *t = context;
    test_rank *r = t->rank;
    lt_device_set_threads(r->device, 1);
    r->status = t->group->run(r);
    snprintf(r->message, RANK_TEXT, "%s", r->status ? lt_error_message() : "");
    if (r->status && r->comm && !(t->group->same_refusal && r->status == LT_E_ARG))
        lt_comm_abort(r->comm);
    if (t->group->end)
        t->group->end(r);
    return NULL;
}

/* Calls run() and end() on a thread for each rank, and waits for all. */
static inline void run_ranks(const rank_group *g)
{
    rank_thread thread[MOST_RANKS];
    if (g->fail_at)
        lt_alloc_fail_at(g->fail_at);
    for (int i = 0; i < g->count; i++) {
        thread[i] = (rank_thread){.group = g, .rank = rank_at(g, i)};
        assert_int_equal(pthread_create(&thread[i].id, NULL, run_rank, &thread[i]), 0);
    }
    for (int i = 0; i < g->count; i++)
        assert_int_equal(pthread_join(thread[i].id, NULL), 0);
    if (g->fail_at)
        lt_alloc_fail_at(0);
}

static inline void close_ranks(const rank_group *g)
{
    for (int i = 0; i < g->count; i++)
        lt_comm_close(&rank_at(g, i)->comm);
    for (int i = 0; i < g->count; i++)
        if (rank_at(g, i)->owns_device)
            lt_device_close(&rank_at(g, i)->device);
}

static inline void play_ranks(const rank_group *g)
{
    open_ranks(g);
    run_ranks(g);
    close_ranks(g);
}

/* The first rank that failed, preferably by itself: not because another one aborted. NULL: none. */
static inline const test_rank *failed_rank(const rank_group *g)
{
    const test_rank *failed = NULL;
    for (int i = 0; i < g->count; i++) {
        const test_rank *r = rank_at(g, i);
        if (r->status && (!failed || (failed->status == LT_E_COMM && r->status != LT_E_COMM)))
            failed = r;
    }
    return failed;
}

static inline void expect_ranks(const rank_group *g)
{
    const test_rank *r = failed_rank(g);
    if (r)
        fail_msg("rank %d of %d: %s", r->rank, r->ranks, r->message);
}

/* play_ranks(), and no rank fails. */
static inline void play_ranks_well(const rank_group *g)
{
    play_ranks(g);
    expect_ranks(g);
}

#endif
