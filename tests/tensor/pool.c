/* src/tensor/pool.c against a list of what must be there, driven by random programs. */

#include "tensor/pool.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "near.h"

#include <string.h>

enum { SLOTS = 40, STEPS = 4000, MAX_BYTES = 1 << 20 };

typedef struct live {
    lt_chunk *chunk;
    size_t bytes;
    unsigned char tag;
} live;

static bool is_intact(const live *l)
{
    const unsigned char *data = lt_chunk_data(l->chunk);
    return data[0] == l->tag && data[l->bytes / 2] == l->tag && data[l->bytes - 1] == l->tag;
}

static void step(lt_pool *pool, live *l, lt_rng *rng)
{
    if (l->chunk) {
        assert_true(is_intact(l));
        lt_pool_give_back(pool, l->chunk);
        l->chunk = NULL;
        return;
    }
    l->bytes = 1 + lt_rng_below(rng, 1U << (1 + lt_rng_below(rng, 20)));
    l->tag = (unsigned char)lt_rng_u32(rng);
    assert_ok(lt_pool_alloc(pool, l->bytes, &l->chunk));
    assert_int_equal((uintptr_t)lt_chunk_data(l->chunk) % 64, 0);
    memset(lt_chunk_data(l->chunk), l->tag, l->bytes);
}

static lt_pool *open_pool(void **ctx)
{
    lt_pool *pool = NULL;
    const lt_device_config config = {0};
    assert_ok(lt_backend_ref()->open(ctx, 0, &config));
    assert_ok(lt_pool_new(&pool, lt_backend_ref(), *ctx));
    return pool;
}

static void chunks_never_overlap(void **state)
{
    (void)state;
    void *ctx;
    lt_pool *pool = open_pool(&ctx);
    live list[SLOTS] = {{0}};
    lt_rng rng = {.key = 7};
    for (int i = 0; i < STEPS; i++)
        step(pool, &list[lt_rng_below(&rng, SLOTS)], &rng);
    for (int i = 0; i < SLOTS; i++)
        if (list[i].chunk)
            step(pool, &list[i], &rng);
    assert_int_equal(lt_pool_memory(pool).used, 0);
    assert_true(lt_pool_memory(pool).peak <= (size_t)SLOTS * MAX_BYTES);

    /* Everything coalesced again: the largest segment is one chunk. */
    size_t reserved = lt_pool_memory(pool).reserved;
    lt_chunk *all;
    assert_ok(lt_pool_alloc(pool, (size_t)16 << 20, &all));
    assert_int_equal(lt_pool_memory(pool).reserved, reserved);
    lt_pool_give_back(pool, all);
    lt_pool_free(&pool);
    lt_backend_ref()->close(ctx);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    void *ctx;
    lt_pool *pool = open_pool(&ctx);
    lt_chunk *chunk = NULL;
    for (int64_t n = 1;; n++) {
        lt_alloc_fail_at(n);
        lt_status st = lt_pool_alloc(pool, 1000, &chunk);
        lt_alloc_fail_at(0);
        if (!st)
            break;
        assert_int_equal(st, LT_E_NOMEM);
        assert_int_equal(lt_pool_memory(pool).used, 0);
        assert_true(n < 10);
    }
    lt_pool_give_back(pool, chunk);
    lt_pool_free(&pool);
    lt_backend_ref()->close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_never_overlap),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
