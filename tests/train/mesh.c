/* --tensor-parallel: parsing of the flag, assignment of ranks to replicas, and the traffic compared with data
 * parallelism. */

#include "train/loop/mesh.h"

#include "ranks.h"
#include "temp_folder.h"

#include <math.h>
#include <string.h>

/* --- The flag --- */

typedef struct flag {
    const char *name, *text;
    bool force;
    lt_mesh_config mesh; /* rows 0: expect an error with the text in `says` */
    const char *says;
} flag;

static const flag flags[] = {
    {"1 is a whole model on each rank", "1", false, {1, 1, 1, 1, false}, NULL},
    {"a number is one dimension", "6", false, {1, 1, 1, 6, false}, NULL},
    {"QxQ is a grid", "3x3", false, {1, 1, 3, 3, false}, NULL},
    {"QxQxD is a grid in depth", "4x4x2", false, {1, 2, 4, 4, false}, NULL},
    {"a depth above Q is refused",
     "2x2x3",
     false,
     {0},
     "the depth 3 exceeds the grid's side 2; --force"},
    {"a depth above Q may be forced", "2x2x3", true, {1, 3, 2, 2, true}, NULL},
    {"a grid must be square", "2x3", false, {0}, "2x3: expected a number of ranks T"},
    {"a grid must be 2x2 or larger", "1x1", false, {0}, "1x1: expected"},
    {"0 ranks are rejected", "0", false, {0}, "0: expected"},
    {"a negative number is rejected", "-2", false, {0}, "-2: expected"},
    {"four numbers are too many", "2x2x2x2", false, {0}, "2x2x2x2: expected"},
    {"a missing second number is rejected", "2x", false, {0}, "2x: expected"},
    {"an empty text is rejected", "", false, {0}, "expected a number"},
};

static void check_flag(void **state)
{
    const flag *f = *state;
    const ranks_options o = {.tensor_parallel = f->text, .force = f->force};
    lt_mesh_config c;
    if (f->says) {
        assert_int_equal(lt_mesh_flag_parse(&o, &c), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), f->says));
        return;
    }
    assert_int_equal(lt_mesh_flag_parse(&o, &c), LT_OK);
    assert_memory_equal(&c, &f->mesh, sizeof c);
}

/* --- Ranks --- */

typedef struct ranks_row {
    const char *name, *text;
    int count;        /* ranks */
    int copies, size; /* replicas of the model, ranks of each; 0: expect the error in `says` */
    const char *says;
} ranks_row;

static const ranks_row meshes[] = {
    {"four ranks are two replicas of two", "2", 4, 2, 2, NULL},
    {"eight ranks are one replica of 2x2x2", "2x2x2", 8, 1, 8, NULL},
    {"eight ranks are two replicas of 2x2", "2x2", 8, 2, 4, NULL},
    {"four ranks are not a multiple of three", "3", 4, 0, 0,
     "4 ranks are not a multiple of the 3 of a replica of the model; nearest: --tensor-parallel 2, or 3 ranks"},
    {"five ranks are not a multiple of two", "2", 5, 0, 0,
     "nearest: --tensor-parallel 1, or 6 ranks"},
    {"four ranks are not 3x3", "3x3", 4, 0, 0, "nearest: --tensor-parallel 2x2, or 9 ranks"},
    {"eight ranks are not 3x3", "3x3", 8, 0, 0, "nearest: --tensor-parallel 2x2x2, or 9 ranks"},
    {"six ranks are not a grid", "2x2", 6, 0, 0, "nearest: --tensor-parallel 3, or 8 ranks"},
};

typedef struct rank {
    test_rank at;
    const ranks_row *row;
    lt_ranks ranks;
    double counted; /* sum over all ranks */
} rank;

static lt_status open_mesh(void *context)
{
    rank *r = context;
    const ranks_options o = {.tensor_parallel = r->row->text};
    r->ranks = LT_RANKS_ALONE;
    lt_ranks_join(&r->ranks, r->at.comm);
    return lt_ranks_open_mesh(&r->ranks, &o);
}

static void close_mesh(void *context)
{
    rank *r = context;
    if (r->ranks.mesh)
        lt_mesh_free(&r->ranks.mesh);
}

/* Checks a rank's numbers before the communicators close. */
static void check_rank(const rank *r, int index)
{
    const ranks_row *row = r->row;
    if (row->says) {
        assert_int_equal(r->at.status, LT_E_ARG);
        assert_non_null(strstr(r->at.message, row->says));
        assert_true(r->ranks.same_failure);
        return;
    }
    assert_int_equal(r->at.status, LT_OK);
    assert_int_equal(r->ranks.data_count, row->copies);
    assert_int_equal(r->ranks.data_rank, index / row->size);
    assert_int_equal(r->ranks.is_counted, index % row->size == 0);
    assert_int_equal(r->ranks.parallel.column != NULL, row->text[1] == 'x');
}

static void check_ranks(void **state)
{
    const ranks_row *row = *state;
    rank ranks[8] = {0};
    const rank_group g = {RANKS_OF(ranks, row->count), .same_refusal = true, .run = open_mesh,
                          .end = close_mesh};
    for (int i = 0; i < row->count; i++)
        ranks[i].row = row;
    open_ranks(&g);
    run_ranks(&g);
    for (int i = 0; i < row->count; i++)
        check_rank(&ranks[i], i);
    close_ranks(&g);
}

static void one_process_alone_is_rejected(void **state)
{
    const ranks_options o = {.tensor_parallel = "2"};
    lt_ranks r = LT_RANKS_ALONE;
    (void)state;
    assert_int_equal(lt_ranks_open_mesh(&r, &o), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "one process alone: start 2 with mpirun"));
}

/* --- Traffic --- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* With equal rows T: [4,4,4] moves 9 (7Th/64 + 12h^2/16) + 72h^2/64 = 63/64 Th + 63/8 h^2, data parallelism 2
 * 63/64 12h^2, ZeRO-3 3 63/64 12h^2; equal at T = 24h - 8h and 36h - 8h. */
static void at_64_ranks_depth_is_cheaper_below_16_widths_of_tokens(void **state)
{
    const lt_mesh_config c = {.data = 1, .depth = 4, .rows = 4, .columns = 4};
    const double h = 512;
    lt_mesh_traffic at, below, above;
    (void)state;
    assert_int_equal(lt_mesh_compute_traffic(&c, 16 * h, h, 1, &at), LT_OK);
    assert_true(near(at.mesh, at.data_parallel));
    assert_int_equal(lt_mesh_compute_traffic(&c, 15 * h, h, 1, &below), LT_OK);
    assert_true(below.mesh < below.data_parallel);
    assert_int_equal(lt_mesh_compute_traffic(&c, 28 * h, h, 1, &above), LT_OK);
    assert_true(near(above.mesh, above.sharded_params) && above.mesh > above.data_parallel);
}

/* T is the tokens of a replica: 8 1/2 Th, and 2 1/2 6 h^2 for gradients between replicas; data parallelism alone
 * moves 2 3/4 12 h^2. */
static void replicas_reduce_gradients_of_their_shards(void **state)
{
    const lt_mesh_config c = {.data = 2, .depth = 1, .rows = 1, .columns = 2};
    lt_mesh_traffic t;
    (void)state;
    assert_int_equal(lt_mesh_compute_traffic(&c, 100, 10, 3, &t), LT_OK);
    assert_true(near(t.mesh, 3 * 4 * 100 * 10 + 6 * 100));
    assert_true(near(t.data_parallel, 18 * 100));
}

enum { FLAGS = sizeof flags / sizeof *flags, MESHES = sizeof meshes / sizeof *meshes, OTHERS = 3 };

int main(void)
{
    struct CMUnitTest tests[FLAGS + MESHES + OTHERS] = {
        cmocka_unit_test(one_process_alone_is_rejected),
        cmocka_unit_test(at_64_ranks_depth_is_cheaper_below_16_widths_of_tokens),
        cmocka_unit_test(replicas_reduce_gradients_of_their_shards),
    };
    for (int i = 0; i < FLAGS; i++)
        tests[OTHERS + i] = (struct CMUnitTest){flags[i].name, check_flag, NULL, NULL,
                                                (void *)(uintptr_t)&flags[i]};
    for (int i = 0; i < MESHES; i++)
        tests[OTHERS + FLAGS + i] = (struct CMUnitTest){meshes[i].name, check_ranks, NULL, NULL,
                                                        (void *)(uintptr_t)&meshes[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
