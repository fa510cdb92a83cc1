/* Ranks within a test's process: each a thread with a device, on the threads communicator. */
#ifndef LT_TESTS_THREAD_RANKS_H
#define LT_TESTS_THREAD_RANKS_H

#include "near.h"

#include "lather/comm.h"
#include "lather/device.h"

#include <pthread.h>

enum { THREAD_RANKS = 8 };

typedef struct thread_ranks {
    int count;
    lt_device *device[THREAD_RANKS]; /* ref, f64 */
    lt_comm *comm[THREAD_RANKS];     /* NULL if there is one rank */
} thread_ranks;

static inline void open_ranks(thread_ranks *r, int count)
{
    const lt_device_config config = {.f64 = true, .threads = 1};
    *r = (thread_ranks){.count = count};
    assert_in_range(count, 1, THREAD_RANKS);
    for (int i = 0; i < count; i++)
        assert_ok(lt_device_open(&r->device[i], "ref", &config));
    if (count > 1)
        assert_ok(lt_comm_open_threads(r->comm, r->device, count));
}

/* Calls play(&rank[i]) on a thread for each rank, and waits for all; ranks lie `bytes` apart. */
static inline void play_ranks(const thread_ranks *r, void *(*play)(void *), void *rank,
                              size_t bytes)
{
    pthread_t thread[THREAD_RANKS];
    for (int i = 0; i < r->count; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, play, (char *)rank + (size_t)i * bytes),
                         0);
    for (int i = 0; i < r->count; i++)
        pthread_join(thread[i], NULL);
}

static inline void close_ranks(thread_ranks *r)
{
    for (int i = 0; i < r->count; i++)
        lt_comm_close(&r->comm[i]);
    for (int i = 0; i < r->count; i++)
        lt_device_close(&r->device[i]);
}

#endif
