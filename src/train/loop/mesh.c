/* Replicas of a model, each sharded over a mesh of ranks. */

#include "mesh.h"

#include "lather/detail/mesh_cost.h"
#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, SIZES = 3, NAME = 48 };

/* --- The flag --tensor-parallel --- */

static int ranks_per_replica(const lt_mesh_config *c)
{
    return c->depth * c->rows * c->columns;
}

/* Parses "4", "2x2" or "2x2x2"; returns how many numbers, 0 if invalid. */
static int read_sizes(const char *text, int size[SIZES])
{
    for (int i = 0; i < SIZES; i++) {
        char *end;
        const long value = strtol(text, &end, 10);
        if (end == text || *text < '0' || *text > '9' || value < 1 || value > MOST)
            return 0;
        size[i] = (int)value;
        if (!*end)
            return i + 1;
        if (*end != 'x')
            return 0;
        text = end + 1;
    }
    return 0;
}

lt_status lt_mesh_flag_parse(const ranks_options *o, lt_mesh_config *out)
{
    int size[SIZES] = {1, 1, 1};
    const char *text = o->tensor_parallel ? o->tensor_parallel : "1";
    const int count = read_sizes(text, size);
    *out = (lt_mesh_config){.data = 1, .depth = 1, .rows = 1, .columns = size[0]};
    if (count == 1)
        return LT_OK;
    if (!count || size[0] != size[1] || size[0] < 2)
        return lt_fail(
            LT_E_ARG,
            "--tensor-parallel %s: expected a number of ranks T, or a grid of ranks, QxQ or "
            "QxQxD, with Q of at least 2",
            text);
    *out = (lt_mesh_config){
        .data = 1, .depth = size[2], .rows = size[0], .columns = size[1], .force = o->force};
    if (size[2] > size[0] && !o->force)
        return lt_fail(
            LT_E_ARG,
            "--tensor-parallel %s: the depth %d exceeds the grid's side %d; --force allows it",
            text, size[2], size[0]);
    return LT_OK;
}

bool lt_mesh_flag_is_on(const ranks_options *o)
{
    return o->tensor_parallel && strcmp(o->tensor_parallel, "1") != 0;
}

static bool is_switched_on(const char *text)
{
    return text && strcmp(text, "off") != 0;
}

lt_status lt_mesh_flag_check(const ranks_options *o, const lt_options *flags)
{
    lt_mesh_config c;
    LT_TRY(lt_mesh_flag_parse(o, &c));
    if (ranks_per_replica(&c) == 1)
        return LT_OK;
    if (c.rows > 1 && lt_options_is_typed(flags, "sequence-parallel"))
        return lt_fail(
            LT_E_ARG,
            "--sequence-parallel: --tensor-parallel %s is a grid, which always shards the "
            "sequence",
            o->tensor_parallel);
    const struct {
        bool given;
        const char *flag, *why;
    } rows[] = {
        {o->share_device != NULL, "share-device", "a time slice ends with a rank's own products"},
        {o->local_steps, "local-steps", "each group holds a whole model"},
        {is_switched_on(o->compress), "compress", "its residuals belong to whole gradients"},
        {o->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "the ranks of a node hold different shards"},
        {o->shard_gradients, "shard-gradients", "gradients already go to their owners only"},
        {o->shard_params, "shard-params",
         "the ranks of a replica already hold shards of the parameters"},
        {lt_ranks_has_groups(o), "num-trainers-per-group", "the state is sharded over all ranks"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s and --tensor-parallel %s contradict each other: %s",
                           rows[i].flag, o->tensor_parallel, rows[i].why);
    return LT_OK;
}

/* --- The mesh --- */

static void format_mesh_shape(const lt_mesh_config *c, char text[NAME])
{
    if (c->rows == 1)
        snprintf(text, NAME, "%d", c->columns);
    else if (c->depth == 1)
        snprintf(text, NAME, "%dx%d", c->rows, c->columns);
    else
        snprintf(text, NAME, "%dx%dx%d", c->rows, c->columns, c->depth);
}

static bool is_nearer(const lt_mesh_config *a, const lt_mesh_config *b, int wanted)
{
    return !b->rows || abs(ranks_per_replica(a) - wanted) < abs(ranks_per_replica(b) - wanted);
}

/* Returns the mesh of the same kind that divides the ranks and is nearest in size; one-dimensional if no grid
 * does. */
static lt_mesh_config find_nearest_mesh(const lt_mesh_config *wanted, int ranks)
{
    lt_mesh_config best = {0};
    const int size = ranks_per_replica(wanted);
    for (int q = 2; wanted->rows > 1 && q * q <= ranks; q++)
        for (int d = 1; d <= q && q * q * d <= ranks; d++) {
            const lt_mesh_config c = {.depth = d, .rows = q, .columns = q};
            if (ranks % ranks_per_replica(&c) == 0 && is_nearer(&c, &best, size))
                best = c;
        }
    const bool has_grid = best.rows;
    for (int t = 1; t <= ranks && !has_grid; t++) {
        const lt_mesh_config c = {.depth = 1, .rows = 1, .columns = t};
        if (ranks % t == 0 && is_nearer(&c, &best, size))
            best = c;
    }
    return best;
}

static lt_status check_ranks(const lt_mesh_config *c, int ranks)
{
    char want[NAME], other[NAME];
    const int size = ranks_per_replica(c);
    if (ranks % size == 0)
        return LT_OK;
    format_mesh_shape(c, want);
    const lt_mesh_config near = find_nearest_mesh(c, ranks);
    format_mesh_shape(&near, other);
    if (ranks == 1)
        return lt_fail(
            LT_E_ARG,
            "--tensor-parallel %s: a replica of the model takes %d ranks, but this is one process "
            "alone: start %d with mpirun or srun, without --dist off",
            want, size, size);
    return lt_fail(
        LT_E_ARG,
        "--tensor-parallel %s: %d ranks are not a multiple of the %d of a replica of the model; "
        "nearest: --tensor-parallel %s, or %d ranks",
        want, ranks, size, other, ranks < size ? size : (ranks + size / 2) / size * size);
}

static void store_mesh_groups(lt_ranks *r, const ranks_options *o)
{
    const bool grid = lt_mesh_config_of(r->mesh).rows > 1;
    r->parallel = (lt_tensor_parallel){
        .row = lt_mesh_group(r->mesh, LT_MESH_ROW),
        .column = grid ? lt_mesh_group(r->mesh, LT_MESH_COLUMN) : NULL,
        .depth = grid ? lt_mesh_group(r->mesh, LT_MESH_DEPTH) : NULL,
        .model = lt_mesh_group(r->mesh, LT_MESH_MODEL),
        .sequence = o->sequence_parallel == SWITCH_ON,
        .overlap = o->tp_overlap == SWITCH_ON,
    };
    r->data = lt_mesh_comm(r->mesh, LT_MESH_DATA);
    r->data_rank = lt_comm_rank(r->data);
    r->data_count = lt_comm_size(r->data);
    r->is_counted = !r->parallel.model->rank;
}

lt_status lt_ranks_open_mesh(lt_ranks *r, const ranks_options *o)
{
    lt_mesh_config c;
    LT_TRY(lt_mesh_flag_parse(o, &c));
    const int size = ranks_per_replica(&c);
    if (size == 1)
        return LT_OK;
    lt_status st = check_ranks(&c, r->count);
    c.data = r->count / size;
    if (!st)
        st = lt_mesh_new(&r->mesh, r->comm, &c);
    r->same_failure = st == LT_E_ARG;
    if (!st)
        store_mesh_groups(r, o);
    return st;
}

/* --- Communication volume --- */

lt_status lt_mesh_compute_traffic(const lt_mesh_config *config, double rows, double features,
                                  double passes, lt_mesh_traffic *out)
{
    const double weights = 12 * features * features; /* per layer */
    const lt_mesh_config *c = config;
    const double ranks = (double)c->data * ranks_per_replica(c), copies = c->data;
    LT_TRY(lt_mesh_cost_layer(&out->mesh, c, rows, features));
    out->mesh *= passes;
    out->mesh += 2 * (copies - 1) / copies * weights / ((double)c->rows * c->columns);
    out->data_parallel = 2 * (ranks - 1) / ranks * weights;
    out->sharded_params = 3 * (ranks - 1) / ranks * weights;
    return LT_OK;
}
