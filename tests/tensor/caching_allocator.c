/* src/tensor/caching_allocator.c against a list of the expected chunks, with random programs. */

#include "tensor/caching_allocator.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "near.h"

#include "lather/ext/fail.h"

#include <stdlib.h>
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

static void step(lt_allocator *allocator, live *l, lt_rng *rng)
{
    if (l->chunk) {
        assert_true(is_intact(l));
        lt_chunk_free(allocator, l->chunk);
        l->chunk = NULL;
        return;
    }
    l->bytes = 1 + lt_rng_below(rng, 1U << (1 + lt_rng_below(rng, 20)));
    l->tag = (unsigned char)lt_rng_u32(rng);
    assert_ok(lt_allocator_alloc(allocator, l->bytes, &l->chunk));
    assert_int_equal((uintptr_t)lt_chunk_data(l->chunk) % 64, 0);
    memset(lt_chunk_data(l->chunk), l->tag, l->bytes);
}

static lt_allocator *open_pool(void **ctx)
{
    lt_allocator *allocator = NULL;
    const lt_device_config config = {0};
    assert_ok(lt_backend_ref()->open(ctx, 0, &config));
    assert_ok(lt_allocator_new(&allocator, lt_backend_ref(), *ctx));
    return allocator;
}

static void chunks_never_overlap(void **state)
{
    (void)state;
    void *ctx;
    lt_allocator *allocator = open_pool(&ctx);
    live list[SLOTS] = {{0}};
    lt_rng rng = {.key = 7};
    for (int i = 0; i < STEPS; i++)
        step(allocator, &list[lt_rng_below(&rng, SLOTS)], &rng);
    for (int i = 0; i < SLOTS; i++)
        if (list[i].chunk)
            step(allocator, &list[i], &rng);
    assert_int_equal(lt_allocator_memory(allocator).used, 0);
    assert_true(lt_allocator_memory(allocator).peak <= (size_t)SLOTS * MAX_BYTES);

    /* After freeing everything, the largest segment is one chunk. */
    size_t reserved = lt_allocator_memory(allocator).reserved;
    lt_chunk *all;
    assert_ok(lt_allocator_alloc(allocator, (size_t)16 << 20, &all));
    assert_int_equal(lt_allocator_memory(allocator).reserved, reserved);
    lt_chunk_free(allocator, all);
    lt_allocator_free(&allocator);
    lt_backend_ref()->close(ctx);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    void *ctx;
    lt_allocator *allocator = open_pool(&ctx);
    lt_chunk *chunk = NULL;
    for (int64_t n = 1;; n++) {
        lt_alloc_fail_at(n);
        lt_status st = lt_allocator_alloc(allocator, 1000, &chunk);
        lt_alloc_fail_at(0);
        if (!st)
            break;
        assert_int_equal(st, LT_E_NOMEM);
        assert_int_equal(lt_allocator_memory(allocator).used, 0);
        assert_true(n < 10);
    }
    lt_chunk_free(allocator, chunk);
    lt_allocator_free(&allocator);
    lt_backend_ref()->close(ctx);
}

/* A device with 40 MiB of host memory. */
static size_t device_bytes;

static lt_status little_alloc(void *ctx, size_t bytes, void **out)
{
    (void)ctx;
    if (device_bytes + bytes > (size_t)40 << 20)
        return lt_fail(LT_E_NOMEM, "no more than 40 MiB");
    *out = malloc(bytes);
    device_bytes += bytes;
    return *out ? LT_OK : LT_E_NOMEM;
}

static void little_free(void *ctx, void *data, size_t bytes)
{
    (void)ctx;
    device_bytes -= bytes;
    free(data);
}

static lt_allocator *open_little(lt_backend *table)
{
    lt_allocator *allocator = NULL;
    *table = (lt_backend){.alloc = little_alloc, .free = little_free};
    device_bytes = 0;
    assert_ok(lt_allocator_new(&allocator, table, NULL));
    return allocator;
}

static void a_reserve_that_does_not_fit_is_replaced_by_steps(void **state)
{
    lt_backend table;
    lt_chunk *a;
    (void)state;
    lt_allocator_free(&(lt_allocator *){open_little(&table)});
    table.reserve = (size_t)2 << 30;
    lt_allocator *allocator = NULL;
    assert_ok(lt_allocator_new(&allocator, &table, NULL));
    assert_ok(lt_allocator_alloc(allocator, 1, &a));
    assert_int_equal(lt_allocator_memory(allocator).reserved, (size_t)16 << 20);
    lt_chunk_free(allocator, a);
    lt_allocator_free(&allocator);
}

static void free_segments_are_released_for_a_large_one(void **state)
{
    lt_backend table;
    lt_chunk *a, *b, *large;
    lt_allocator *allocator = open_little(&table);
    (void)state;
    assert_ok(lt_allocator_alloc(allocator, (size_t)10 << 20, &a));
    /* 32 MiB would be too many: 20. */
    assert_ok(lt_allocator_alloc(allocator, (size_t)20 << 20, &b));
    assert_int_equal(lt_allocator_memory(allocator).reserved, (size_t)36 << 20);
    lt_chunk_free(allocator, b);
    assert_status(lt_allocator_alloc(allocator, (size_t)35 << 20, &large), LT_E_NOMEM);
    lt_chunk_free(allocator, a);
    assert_ok(lt_allocator_alloc(allocator, (size_t)35 << 20, &large));
    assert_int_equal(lt_allocator_memory(allocator).reserved, (size_t)35 << 20);
    lt_chunk_free(allocator, large);
    lt_allocator_free(&allocator);
    assert_int_equal(device_bytes, 0);
}

/* Recorded steps use their addresses. */
static void segments_of_scopes_are_not_released(void **state)
{
    lt_backend table;
    lt_chunk *a, *large;
    lt_allocator *allocator = open_little(&table);
    (void)state;
    const uint64_t scope = lt_allocator_new_scope(allocator),
                   before = lt_allocator_enter_scope(allocator, scope);
    assert_ok(lt_allocator_alloc(allocator, (size_t)10 << 20, &a));
    lt_chunk_free(allocator, a);
    lt_allocator_enter_scope(allocator, before);
    assert_status(lt_allocator_alloc(allocator, (size_t)35 << 20, &large), LT_E_NOMEM);
    assert_int_equal(device_bytes, (size_t)16 << 20);
    lt_allocator_end_scope(allocator, scope);
    assert_ok(lt_allocator_alloc(allocator, (size_t)35 << 20, &large));
    lt_chunk_free(allocator, large);
    lt_allocator_free(&allocator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_never_overlap),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
        cmocka_unit_test(a_reserve_that_does_not_fit_is_replaced_by_steps),
        cmocka_unit_test(free_segments_are_released_for_a_large_one),
        cmocka_unit_test(segments_of_scopes_are_not_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
