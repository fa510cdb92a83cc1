/* Ranks of a mesh on threads, and their blocks of matrices with known elements. */

#include "mesh_ranks.h"

#include <stdlib.h>

static lt_status run(void *context)
{
    mesh_rank *r = context;
    const lt_mesh_config *c = r->config;
    LT_TRY(lt_tape_new(&r->tape, r->at.device));
    if (c) {
        const int n = lt_comm_rank(r->at.comm);
        LT_TRY(lt_mesh_new(&r->mesh, r->at.comm, c));
        const lt_mesh_config full = lt_mesh_config_of(r->mesh);
        const int grid = full.rows * full.columns;
        r->j = n % full.columns;
        r->i = n / full.columns % full.rows;
        r->k = n / grid % full.depth;
        r->copy = n / grid / full.depth;
        r->bytes = lt_mesh_bytes(r->mesh);
    }
    LT_TRY(r->fn(r));
    if (c)
        r->bytes = lt_mesh_bytes(r->mesh) - r->bytes;
    return LT_OK;
}

static void finish(void *context)
{
    mesh_rank *r = context;
    lt_tape_free(&r->tape);
    lt_mesh_free(&r->mesh);
}

lt_status play_mesh(int ranks, bool f64, mesh_rank model, uint64_t *bytes, char *why)
{
    static mesh_rank rank[MOST_RANKS];
    const rank_group g = {RANKS_OF(rank, ranks), .f64 = f64, .run = run, .end = finish};
    uint64_t sum = 0;
    for (int n = 0; n < ranks; n++)
        rank[n] = model;
    play_ranks(&g);
    for (int n = 0; n < ranks; n++)
        sum += rank[n].bytes;
    if (bytes)
        *bytes = sum;
    const test_rank *failed = failed_rank(&g);
    if (failed)
        snprintf(why, MESH_WHY, "rank %d: %s", failed->rank % 1000, failed->message);
    return failed ? failed->status : LT_OK;
}

void cut(int64_t whole, int parts, int index, int64_t *first, int64_t *extent)
{
    int64_t at = 0;
    for (int p = 0; p <= index; p++) { /* by definition: the first ones have one more element */
        *first = at;
        *extent = whole / parts + (p < whole % parts ? 1 : 0);
        at += *extent;
    }
}

blocks blocks_of(const mesh_rank *r, int64_t rows, int64_t in, int64_t out)
{
    const lt_mesh_config g = lt_mesh_config_of(r->mesh);
    const int h = (r->copy * g.depth + r->k) * g.rows + r->i;
    blocks o;
    cut(rows, g.data * g.depth * g.rows, h, &o.x.row, &o.x.rows);
    cut(in, g.columns, r->j, &o.x.column, &o.x.columns);
    cut(out, g.columns, r->j, &o.w.row, &o.w.rows);
    cut(in, g.columns, r->i, &o.w.column, &o.w.columns);
    o.b = (box){0, 1, o.w.row, o.w.rows};
    o.y = (box){o.x.row, o.x.rows, o.w.row, o.w.rows};
    return o;
}

static uint32_t hash(int matrix, int64_t row, int64_t column)
{
    uint32_t h = (uint32_t)row * 2654435761U + (uint32_t)column * 40503U + (uint32_t)matrix * 977U;
    h = (h ^ h >> 15) * 2246822519U;
    return h ^ h >> 13;
}

double whole_number(int matrix, int64_t row, int64_t column)
{
    return (int)(hash(matrix, row, column) % 9) - 4;
}

double fraction(int matrix, int64_t row, int64_t column)
{
    return (int)(hash(matrix, row, column) % 20001) / 10000.0 - 1;
}

lt_status make_box(const mesh_rank *r, lt_tensor **out, box b, int matrix, element_fn *value,
                   bool vector)
{
    const lt_shape shape = vector ? LT_SHAPE(b.columns) : LT_SHAPE(b.rows, b.columns);
    const size_t count = (size_t)(b.rows * b.columns);
    LT_TRY(lt_tensor_new(out, r->at.device, lt_device_master_dtype(r->at.device), shape));
    double *wide = malloc(count * sizeof *wide);
    for (int64_t m = 0; m < b.rows; m++)
        for (int64_t n = 0; n < b.columns; n++)
            wide[m * b.columns + n] = value(matrix, b.row + m, b.column + n);
    lt_status st = write_doubles(*out, wide);
    free(wide);
    return st;
}
