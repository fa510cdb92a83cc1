/* Shards of parameters on ranks that are threads: tensors gathered for a file, and the checks of data parallelism. */

#include "ranks.h"
#include "temp_folder.h"

#include "lather/data_parallel.h"
#include "lather/ext/fail.h"
#include "lather/weights.h"

enum { RANKS = 6, ROWS = 6, COLUMNS = 5, COUNT = ROWS * COLUMNS };

/* Ways to shard [6,5] over six ranks. */
typedef enum way { WHOLE, HALVES, GRID, THIRDS, WAYS } way;

typedef struct player {
    test_rank at;
    way way;
    const char *path; /* weight file */
    bool averages;    /* open data parallelism over all ranks instead */
    int64_t odd;      /* columns of a different logical shape on rank 1; 0: the same shape */
} player;

static lt_shard_spec place_of(way w, int rank)
{
    const lt_shape s = LT_SHAPE(ROWS, COLUMNS);
    lt_shard_spec spec = lt_shard_spec_whole(s);
    if (w == HALVES) /* ranks 0, 2, 4 are replicas, and 1, 3, 5 */
        lt_shard_spec_split(&spec, 1, 2, rank % 2);
    if (w == THIRDS) /* ranks 0 and 1 are replicas, 2 and 3, 4 and 5; in reverse order */
        lt_shard_spec_split(&spec, 0, 3, 2 - rank / 2);
    if (w == GRID) {
        lt_shard_spec_split(&spec, 0, 3, rank / 2);
        lt_shard_spec_split(&spec, 1, 2, rank % 2);
    }
    return spec;
}

/* Element i is i on the lowest rank with the shard, -1 on the others, which must not be used. */
static double value_of(const player *p, int64_t logical)
{
    const lt_shard_spec own = place_of(p->way, p->at.rank);
    for (int r = 0; r < p->at.rank; r++) {
        const lt_shard_spec other = place_of(p->way, r);
        if (lt_shard_spec_equal(&own, &other))
            return -1;
    }
    return (double)logical;
}

static lt_status fill(const player *p, lt_param *param)
{
    double own[COUNT];
    const lt_shard_spec spec = lt_param_shard_spec(param);
    for (int64_t i = 0; i < lt_shard_spec_count(&spec); i++)
        own[i] = value_of(p, lt_shard_spec_index(&spec, i));
    return lt_tensor_write(param->value, own, lt_tensor_bytes(param->value));
}

static lt_status gather(const player *p, const lt_params *params, lt_param *param)
{
    lt_safetensors *file = NULL;
    LT_TRY(fill(p, param));
    LT_TRY(lt_weights_save_ranks(p->path, params, NULL, 0, p->at.comm));
    LT_TRY(lt_safetensors_open(&file, p->path));
    const float *whole = lt_safetensors_find(file, "w")->data;
    lt_status st = LT_OK;
    for (int i = 0; i < COUNT && !st; i++)
        if (fabsf(whole[i] - (float)i) > 0)
            st = lt_fail(LT_E_FORMAT, "element %d is %g", i, (double)whole[i]);
    lt_safetensors_close(&file);
    return st;
}

static lt_status average(const player *p, const lt_params *params)
{
    lt_tape *tape = NULL;
    lt_data_parallel *dp = NULL;
    LT_TRY(lt_tape_new(&tape, p->at.device));
    lt_status st = lt_data_parallel_new(&dp, p->at.comm, params, tape, NULL);
    lt_data_parallel_free(&dp);
    lt_tape_free(&tape);
    return st;
}

static lt_status run(void *context)
{
    player *p = context;
    lt_param param = {0}, other = {0}, *list[] = {&other, &param};
    const lt_params params = {list, 2};
    lt_shard_spec spec = place_of(p->way, p->at.rank);
    if (p->odd && p->at.rank == 1)
        spec = lt_shard_spec_even(LT_SHAPE(ROWS, p->odd), LT_SHAPE(ROWS, p->odd), 1, 2, 1);
    const lt_shape shape = LT_SHAPE(lt_shard_spec_count(&spec));
    lt_status st = lt_param_init(&param, p->at.device, "", "w", shape, 0);
    if (!st)
        st = lt_param_init(&other, p->at.device, "", "b", LT_SHAPE(3), 0);
    if (!st)
        st = lt_param_set_shard_spec(&param, &spec);
    if (!st)
        st = p->averages ? average(p, &params) : gather(p, &params, &param);
    lt_param_clear(&param);
    lt_param_clear(&other);
    return st;
}

/* fail_at: allocation that fails, over all ranks; 0: none. */
static void play_failing(player *p, int ranks, player what, int64_t fail_at)
{
    for (int r = 0; r < ranks; r++)
        p[r] = what;
    play_ranks(&(rank_group){RANKS_OF(p, ranks), .f64 = true, .fail_at = fail_at, .run = run});
}

static void play_all(player *p, int ranks, player what)
{
    play_failing(p, ranks, what, 0);
}

static void each_element_comes_from_the_lowest_rank_that_holds_it(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    temp_path(path, folder, "w.safetensors");
    for (way w = WHOLE; w < WAYS; w++) {
        player p[RANKS];
        play_all(p, RANKS, (player){.way = w, .path = path});
        for (int r = 0; r < RANKS; r++)
            if (p[r].at.status)
                fail_msg("way %d, rank %d: %s", (int)w, r, p[r].at.message);
    }
}

static void check_all(const player *p, int ranks, lt_status status, const char *says)
{
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(p[r].at.status, status);
        if (!strstr(p[r].at.message, says))
            fail_msg("rank %d: '%s', want '%s'", r, p[r].at.message, says);
    }
}

static void incomplete_shards_are_rejected(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    player p[RANKS];
    temp_path(path, folder, "w.safetensors");
    play_all(p, 3, (player){.way = GRID, .path = path});
    check_all(p, 3, LT_E_SHAPE, "the shards of w on all ranks have 16 elements, it has 30");
    play_all(p, 2, (player){.way = HALVES, .odd = 4, .path = path});
    check_all(p, 2, LT_E_ARG, "w is a shard of [6,5] on rank 0, of [6,4] on rank 1");
}

static void data_parallel_ranks_have_the_same_shard(void **state)
{
    (void)state;
    player p[RANKS];
    play_all(p, 2, (player){.way = THIRDS, .averages = true}); /* control: equal shards */
    check_all(p, 2, LT_OK, "");
    play_all(p, 2, (player){.way = HALVES, .averages = true}); /* 18 and 12 elements */
    check_all(p, 2, LT_E_ARG,
              "parameter 1 is w [6,5], shard [0:6,0:3] of [6,5] on rank 0, "
              "w [6,5], shard [0:6,3:5] of [6,5] on rank 1");
    play_all(p, 3, (player){.way = THIRDS, .averages = true}); /* shards of the same shape */
    check_all(p, 3, LT_E_ARG, "[4:6,0:5] of [6,5] on rank 0, w [6,5], shard [2:4,0:5]");
}

/* Whichever allocation fails on whichever rank, no rank waits forever, and none succeeds alone. */
static void missing_memory_ends_all_ranks(void **state)
{
    (void)state;
    char path[TEMP_PATH];
    int64_t n = 0;
    int failed;
    temp_path(path, folder, "w.safetensors");
    do {
        player p[RANKS];
        failed = 0;
        play_failing(p, 2, (player){.way = HALVES, .path = path}, ++n);
        for (int r = 0; r < 2; r++)
            failed += p[r].at.status != LT_OK;
    } while (failed);
    assert_in_range(n, 40, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_element_comes_from_the_lowest_rank_that_holds_it,
                                        temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(incomplete_shards_are_rejected, temp_setup, temp_teardown),
        cmocka_unit_test(data_parallel_ranks_have_the_same_shard),
        cmocka_unit_test_setup_teardown(missing_memory_ends_all_ranks, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
