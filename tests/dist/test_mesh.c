/* Meshes: axes, placements, invalid meshes, and the gradients of collectives. */

#include "mesh_ranks.h"
#include "near.h"

#include "lather/detail/mesh_cost.h"
#include "lather/ext/gradcheck.h"
#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

static lt_status want(bool good, const char *what)
{
    return good ? LT_OK : lt_fail(LT_E_ARG, "%s", what);
}

static void play(int ranks, bool f64, const lt_mesh_config *g, lt_status (*fn)(mesh_rank *),
                 const void *context)
{
    char why[MESH_WHY];
    if (play_mesh(ranks, f64, (mesh_rank){.config = g, .context = context, .fn = fn}, NULL, why))
        fail_msg("%d ranks: %s", ranks, why);
}

/* --- Axes --- */

/* Checks the members of an axis, by a gather of their ranks. */
static lt_status axis_is(mesh_rank *r, lt_mesh_axis axis, const int *rank, int count)
{
    lt_process_group *group = lt_mesh_group(r->mesh, axis);
    const double mine = lt_comm_rank(r->at.comm);
    double all[MOST_RANKS];
    int64_t bytes[MOST_RANKS];
    LT_TRY(want(group->size == count && rank[group->rank] == lt_comm_rank(r->at.comm),
                "this rank's index on an axis"));
    for (int i = 0; i < count; i++)
        bytes[i] = sizeof mine;
    LT_TRY(lt_comm_allgather_host(lt_mesh_comm(r->mesh, axis), &mine, bytes, all));
    for (int i = 0; i < count; i++)
        LT_TRY(want(all[i] == rank[i], "the ranks of an axis"));
    return LT_OK;
}

/* 2 replicas x depth 2 x 2 rows x 2 columns: rank = 8 replica + 4 k + 2 i + j. */
static lt_status axes(mesh_rank *r)
{
    const int n = lt_comm_rank(r->at.comm), c = n / 8, k = n / 4 % 2, i = n / 2 % 2, j = n % 2;
    const int copy = 8 * c, grid = 2 * i + j;
    LT_TRY(axis_is(r, LT_MESH_DATA, (int[]){n % 8, 8 + n % 8}, 2));
    LT_TRY(axis_is(r, LT_MESH_DEPTH, (int[]){copy + grid, copy + 4 + grid}, 2));
    LT_TRY(axis_is(r, LT_MESH_COLUMN, (int[]){copy + 4 * k + j, copy + 4 * k + 2 + j}, 2));
    LT_TRY(axis_is(r, LT_MESH_ROW, (int[]){copy + 4 * k + 2 * i, copy + 4 * k + 2 * i + 1}, 2));
    LT_TRY(axis_is(r, LT_MESH_REPLICAS, (int[]){grid, 4 + grid, 8 + grid, 12 + grid}, 4));
    return axis_is(
        r, LT_MESH_MODEL,
        (int[]){copy, copy + 1, copy + 2, copy + 3, copy + 4, copy + 5, copy + 6, copy + 7}, 8);
}

static void know_axes(void **state)
{
    const lt_mesh_config g = {2, 2, 2, 2, false};
    (void)state;
    play(16, false, &g, axes, NULL);
}

/* --- Invalid meshes --- */

typedef struct bad_mesh {
    int ranks;
    lt_mesh_config config[2]; /* rank 0's; that of the other ranks */
    const char *words;
} bad_mesh;

static lt_status refused(mesh_rank *r)
{
    const bad_mesh *b = r->context;
    lt_status st = lt_mesh_new(&r->mesh, r->at.comm, &b->config[lt_comm_rank(r->at.comm) > 0]);
    if (st == LT_E_ARG && strstr(lt_error_message(), b->words) && !r->mesh)
        return LT_OK;
    char why[MESH_WHY];
    snprintf(why, sizeof why, "%s", lt_error_message());
    return lt_fail(LT_E_ARG, "%s: '%s', want '%s'", lt_status_name(st), why, b->words);
}

static const bad_mesh bad_meshes[] = {
    {6, {{1, 1, 2, 2, false}, {1, 1, 2, 2, false}}, "needs 4 ranks, got 6"},
    {6, {{0, 0, 0, 0, false}, {0, 0, 0, 0, false}}, "1 x 1 x 1 x 1"},
    {2, {{1, 2, 1, 1, false}, {1, 2, 1, 1, false}}, "depth 2 exceeds the 1 rows"},
    {6, {{1, 1, 2, 3, false}, {1, 1, 2, 3, false}}, "2 rows and 3 columns"},
    {2, {{-1, 1, 1, 1, false}, {-1, 1, 1, 1, false}}, "-1, want 1 to"},
    {2,
     {{1 << 20, 1 << 20, 1 << 20, 1 << 20, true}, {1 << 20, 1 << 20, 1 << 20, 1 << 20, true}},
     "or more ranks"},
    {2,
     {{2, 1, 1, 1, false}, {1, 1, 1, 2, false}},
     "the mesh is 2 x 1 x 1 x 1 on rank 0, 1 x 1 x 1 x 2 on rank 1"},
};

static void refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_meshes); i++)
        play(bad_meshes[i].ranks, false, NULL, refused, &bad_meshes[i]);
    double cost;
    lt_mesh_cost linear;
    assert_status(lt_mesh_cost_layer(&cost, &(lt_mesh_config){1, 1, 2, 3, false}, 1, 1), LT_E_ARG);
    assert_status(lt_mesh_cost_linear(&linear, &(lt_mesh_config){0}, 0, 1, 1), LT_E_ARG);
    assert_status(lt_mesh_cost_linear(&linear, &(lt_mesh_config){0}, (double)NAN, 1, 1), LT_E_ARG);
}

/* --- Placements --- */

enum { EXTENT_0 = 7, EXTENT_1 = 5, EXTENT_2 = 6, WHOLE = EXTENT_0 * EXTENT_1 * EXTENT_2 };

static const lt_placement placements[] = {
    {LT_PLACE_REPLICATE, 0}, {LT_PLACE_SHARD, 0},   {LT_PLACE_SHARD, 1},
    {LT_PLACE_SHARD, 2},     {LT_PLACE_PARTIAL, 0},
};

static lt_shape shard(lt_placement p, int size, int rank, int64_t *first)
{
    lt_shape s = LT_SHAPE(EXTENT_0, EXTENT_1, EXTENT_2);
    *first = 0;
    if (p.kind == LT_PLACE_SHARD)
        cut(s.dim[p.dim], size, rank, first, &s.dim[p.dim]);
    return s;
}

/* Returns the value of an element of a shard: its index in the whole tensor. */
static double number(lt_placement p, lt_shape s, int64_t first, int64_t i)
{
    int64_t at[3] = {i / (s.dim[1] * s.dim[2]), i / s.dim[2] % s.dim[1], i % s.dim[2]};
    at[p.dim] += first;
    return (double)((at[0] * EXTENT_1 + at[1]) * EXTENT_2 + at[2]);
}

/* Makes a tensor in a placement. Partial: rank r > 0 has r, rank 0 the value minus their sum. */
static lt_status make_placed(const mesh_rank *r, lt_tensor **out, lt_placement p, bool fill)
{
    const int size = lt_comm_size(r->at.comm), rank = lt_comm_rank(r->at.comm);
    int64_t first;
    float data[WHOLE];
    const lt_shape s = shard(p, size, rank, &first);
    const bool term = p.kind == LT_PLACE_PARTIAL;
    const int others = size * (size - 1) / 2;
    LT_TRY(lt_tensor_new(out, r->at.device, LT_F32, s));
    for (int64_t i = 0; i < lt_shape_count(s); i++) {
        const double x = number(p, s, first, i);
        data[i] = (float)(!term ? x : rank ? rank : x - others);
    }
    return fill ? lt_tensor_write(*out, data, lt_tensor_bytes(*out)) : lt_tensor_fill(*out, -1);
}

static lt_status check_placed(const mesh_rank *r, const lt_tensor *t, lt_placement p)
{
    int64_t first;
    float data[WHOLE];
    const lt_shape s = shard(p, lt_comm_size(r->at.comm), lt_comm_rank(r->at.comm), &first);
    LT_TRY(lt_tensor_read(t, data, lt_tensor_bytes(t)));
    for (int64_t i = 0; i < lt_shape_count(s); i++)
        if (data[i] != (float)number(p, s, first, i))
            return lt_fail(LT_E_SHAPE, "to %d along %d: element %lld is %g, want %g", (int)p.kind,
                           p.dim, (long long)i, (double)data[i], number(p, s, first, i));
    return LT_OK;
}

static lt_status one_way(mesh_rank *r, lt_placement from, lt_placement to)
{
    const lt_placement all = {LT_PLACE_REPLICATE, 0};
    lt_tensor *a = NULL, *b = NULL, *whole = NULL;
    lt_status st = make_placed(r, &a, from, true);
    if (!st)
        st = make_placed(r, &b, to, false);
    if (!st)
        st = make_placed(r, &whole, all, false);
    if (!st)
        st = lt_redistribute(r->mesh, LT_MESH_ROW, a, from, b, to);
    if (!st && to.kind != LT_PLACE_PARTIAL)
        st = check_placed(r, b, to);
    if (!st)
        st = lt_redistribute(r->mesh, LT_MESH_ROW, b, to, whole, all);
    if (!st)
        st = check_placed(r, whole, all);
    lt_tensor_free(&a);
    lt_tensor_free(&b);
    lt_tensor_free(&whole);
    return st;
}

static lt_status all_ways(mesh_rank *r)
{
    for (size_t a = 0; a < COUNT_OF(placements); a++)
        for (size_t b = 0; b < COUNT_OF(placements); b++)
            LT_TRY(one_way(r, placements[a], placements[b]));
    return LT_OK;
}

static void redistribute(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        const lt_mesh_config g = {1, 1, 1, n, false};
        play(n, false, &g, all_ways, NULL);
    }
}

static lt_status fails_with(lt_status st, lt_status code, const char *part)
{
    return want(st == code && strstr(lt_error_message(), part), part);
}

/* Calls of an axis' group with a root, a view or a dtype that it does not take. */
static lt_status wrong_calls(mesh_rank *r)
{
    lt_tensor *a = NULL, *b = NULL;
    lt_process_group *row = lt_mesh_group(r->mesh, LT_MESH_ROW);
    LT_TRY(make_placed(r, &a, placements[0], true));
    LT_TRY(lt_tensor_new(&b, r->at.device, LT_I32, LT_SHAPE(2)));
    lt_collective_call call = {LT_COLLECTIVE_BROADCAST, 2, .out = lt_tensor_view(a)};
    LT_TRY(fails_with(lt_collective_run(row, &call), LT_E_ARG, "exchange: root 2, want 0 to 1"));
    call.root = -1;
    LT_TRY(fails_with(lt_collective_run(row, &call), LT_E_ARG, "exchange: root -1, want 0 to 1"));
    call.root = 0;
    call.out.data = NULL;
    LT_TRY(fails_with(lt_collective_run(row, &call), LT_E_ARG, "needs dense views with data"));
    call = (lt_collective_call){LT_COLLECTIVE_REDUCESCATTER, 0, lt_tensor_view(a),
                                lt_tensor_view(b), (int64_t[]){1, 1}};
    LT_TRY(fails_with(lt_collective_run(row, &call), LT_E_SHAPE,
                      " from f32 to i32, want equal dtypes"));
    lt_tensor_free(&a);
    lt_tensor_free(&b);
    return LT_OK;
}

static lt_status wrong_ways(mesh_rank *r)
{
    const lt_placement part = placements[1], all = placements[0];
    lt_tensor *a = NULL, *b = NULL;
    LT_TRY(make_placed(r, &a, part, true));
    LT_TRY(make_placed(r, &b, part, true));
    lt_status st =
        lt_redistribute(r->mesh, LT_MESH_ROW, a, all, b, (lt_placement){LT_PLACE_SHARD, 3});
    LT_TRY(fails_with(st, LT_E_ARG, "redistribute: dimension 3 of ["));
    LT_TRY(fails_with(st, LT_E_ARG, ",5,6] is out of range"));
    st = lt_redistribute(r->mesh, LT_MESH_ROW, a, part, b, all);
    LT_TRY(want(st == LT_E_SHAPE && strstr(lt_error_message(), "not shards"), "a shape"));
    st = lt_redistribute(r->mesh, LT_MESH_ROW, a, all, a, all);
    LT_TRY(want(st == LT_E_ARG, "the same memory"));
    lt_tensor_free(&a);
    LT_TRY(lt_tensor_new(&a, r->at.device, LT_F32, LT_SHAPE(1, 3)));
    st = lt_redistribute(r->mesh, LT_MESH_ROW, a, all, b, (lt_placement){LT_PLACE_SHARD, 0});
    LT_TRY(fails_with(st, LT_E_SHAPE, "dimension 0 of [1,3] is smaller than the 2 ranks"));
    lt_tensor_free(&a);
    lt_tensor_free(&b);
    return LT_OK;
}

static void refuse_ways(void **state)
{
    const lt_mesh_config g = {1, 1, 1, 2, false};
    (void)state;
    play(2, false, &g, wrong_ways, NULL);
    play(2, false, &g, wrong_calls, NULL);
}

/* --- Gradients --- */

/* x and the result are replicated; in between each rank computes something different, and the pairs of collectives make
 * it a function of x. Central differences on all ranks together give its derivative. */
typedef struct chain {
    mesh_rank *r;
    lt_tensor *own, *empty; /* [5,2] factors of this rank; zeros before and after its rows */
    bool wrong;             /* control: gradients are not summed */
} chain;

static lt_tensor *follow(lt_tape *tape, lt_tensor *const *in, void *context)
{
    const chain *c = context;
    lt_process_group *row = lt_mesh_group(c->r->mesh, LT_MESH_ROW);
    int64_t first, rows;
    cut(5, row->size, row->rank, &first, &rows);
    lt_tensor *x = c->wrong ? lt_scale(tape, in[0], 1) : lt_group_copy(tape, in[0], row);
    x = lt_slice(tape, x, 0, first, rows);
    x = lt_mul(tape, lt_group_allgather(tape, x, row, 5), c->own);
    x = lt_group_reducescatter(tape, lt_mul(tape, x, x), row);
    lt_tensor *parts[3];
    int count = 0;
    if (first)
        parts[count++] = lt_slice(tape, c->empty, 0, 0, first);
    parts[count++] = x;
    if (first + rows < 5)
        parts[count++] = lt_slice(tape, c->empty, 0, 0, 5 - first - rows);
    return lt_group_allreduce(tape, lt_concat(tape, parts, count, 0), row);
}

static lt_status check_chain(mesh_rank *r)
{
    chain c = {.r = r, .wrong = r->context != NULL};
    lt_tensor *x = NULL;
    const int rank = lt_comm_rank(r->at.comm);
    lt_status st = make_box(r, &x, (box){0, 5, 0, 2}, 1, fraction, false);
    if (!st)
        st = make_box(r, &c.own, (box){0, 5, 0, 2}, 10 + rank, fraction, false);
    if (!st)
        st = lt_tensor_new(&c.empty, r->at.device, LT_F64, LT_SHAPE(5, 2));
    if (!st)
        st = lt_gradcheck(r->at.device, follow, &c, &x, 1, NULL);
    lt_tensor_free(&x);
    lt_tensor_free(&c.own);
    lt_tensor_free(&c.empty);
    return st;
}

static void pairs_are_conjugate(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        const lt_mesh_config g = {1, 1, 1, n, false};
        play(n, true, &g, check_chain, NULL);
    }
}

static void wrong_pair_is_found(void **state)
{
    const lt_mesh_config g = {1, 1, 1, 3, false};
    char why[MESH_WHY] = "";
    (void)state;
    lt_status st =
        play_mesh(3, true, (mesh_rank){.config = &g, .context = &g, .fn = check_chain}, NULL, why);
    assert_int_equal(st, LT_E_ARG);
    if (!strstr(why, "gradcheck: "))
        fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"each axis has the ranks that differ in its coordinate only", know_axes, NULL, NULL, NULL},
        {"invalid meshes are rejected", refuse, NULL, NULL, NULL},
        {"redistribution from every placement to every other", redistribute, NULL, NULL, NULL},
        {"invalid redistributions are rejected", refuse_ways, NULL, NULL, NULL},
        {"copy and sum, gather and reduce-scatter are conjugate", pairs_are_conjugate, NULL, NULL,
         NULL},
        {"control: a gradient that is not summed over ranks is found", wrong_pair_is_found, NULL,
         NULL, NULL},
    };
    return _cmocka_run_group_tests("mesh", tests, COUNT_OF(tests), NULL, NULL);
}
