/* Rows of embeddings. */

#include "conform.h"

typedef struct embedding_row {
    const char *name;
    int64_t n, table, c;
    int64_t step; /* ids are step * n modulo the table's rows */
    layout w, y;
    bool large;
} embedding_row;

static const embedding_row rows[] = {
    {"one element", 1, 1, 1, 0, ROWS, ROWS, false},
    {"odd sizes", 13, 7, 33, 5, ROWS, ROWS, false},
    {"one row of the table for all", 70, 5, 17, 0, ROWS, ROWS, false},
    {"more rows than ids", 5, 200, 64, 37, ROWS, ROWS, false},
    {"many ids, few rows", 9000, 5, 3, 7, ROWS, ROWS, false},
    {"many ids, many rows", 9000, 600, 2, 7, ROWS, ROWS, false},
    {"blocks of two rows, alternating ids", 9000, 2050, 3, 2049, ROWS, ROWS, false},
    {"gaps", 13, 7, 9, 3, GAPS, GAPS, false},
    {"stored backwards", 13, 7, 9, 3, REVERSED, REVERSED, false},
    {"GPT-2", 1024, 50257, 768, 1237, ROWS, ROWS, true},
};

enum { IDS, W, Y, DY = W, DW = Y };

static bool is_gradient(const test *t)
{
    return t->operand[DW].kind == MASTER;
}

static void prepare(test *t)
{
    const int64_t table = t->operand[is_gradient(t) ? DW : W].shape.dim[0];
    for (int64_t n = 0; n < operand_count(&t->operand[IDS]); n++)
        t->operand[IDS].value[n] = (double)((n * t->config.dim + table / 2) % table);
}

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)absolute;
    return is_gradient(t) ? be->embedding_grad(ctx, &v[IDS], &v[DY], &v[DW])
                          : be->embedding(ctx, &v[IDS], &v[W], &v[Y]);
}

static void make(const embedding_row *r, bool gradient, kind table, test *t)
{
    const lt_shape all = LT_SHAPE(r->table, r->c), some = LT_SHAPE(r->n, r->c);
    *t = (test){.entry = gradient ? "embedding_grad" : "embedding", .name = r->name};
    t->call = call;
    t->prepare = prepare;
    t->exact = table == DATA && !gradient;
    t->terms = 2;
    t->large = r->large;
    t->config.dim = (int)r->step;
    t->operands = 3;
    t->operand[IDS] = (operand){IN, LABEL, LT_SHAPE(r->n), .absolute = KEEP};
    if (gradient) {
        t->operand[DY] = (operand){IN, DATA, some, r->y, .absolute = PLUS};
        t->operand[DW] = (operand){OUT, MASTER, all, r->w, .absolute = PLUS};
        t->terms = (double)r->n + 1;
        return;
    }
    t->operand[W] = (operand){IN, table, all, r->w, .absolute = PLUS};
    t->operand[Y] = (operand){OUT, DATA, some, r->y, .absolute = PLUS};
}

/* Three tests per row: a table in the pass's dtype, one in f32, and the gradient. */
bool embedding_tests(size_t i, test *t)
{
    if (i >= 3 * COUNT_OF(rows))
        return false;
    make(&rows[i / 3], i % 3 == 2, i % 3 == 1 ? MASTER : DATA, t);
    return true;
}
