/* Which blocks of Shampoo got new roots in a step, seen from outside: through their state. */
#ifndef LT_TESTS_OPTIM_REFRESHES_H
#define LT_TESTS_OPTIM_REFRESHES_H

#include "makers.h"

#include "lather/detail/shampoo_report.h"

#include <string.h>

enum { MAX_BLOCKS = 64, SIDE = 4 };

typedef struct seen_block {
    double root[SIDE * SIDE]; /* root of the first dimension that has one */
    double cost;              /* n^3, summed over the dimensions */
    bool changed;
} seen_block;

typedef struct seen {
    seen_block block[MAX_BLOCKS];
    int count, last; /* last: block that the visitor was at */
    const char *param;
} seen;

static inline lt_status see_entry(void *context, const lt_state_entry *entry)
{
    seen *s = context;
    double value[SIDE * SIDE] = {0};
    if (strncmp(entry->name, "root.", 5) != 0)
        return LT_OK;
    bool again = s->param && !strcmp(s->param, entry->param) && s->last == entry->block;
    const double n = (double)entry->extent.dim[0];
    s->param = entry->param;
    s->last = entry->block;
    s->count += !again;
    assert_true(s->count <= MAX_BLOCKS);
    seen_block *b = &s->block[s->count - 1];
    b->cost = again ? b->cost + n * n * n : n * n * n;
    if (again)
        return LT_OK;
    get(entry->tensor, value);
    b->changed = memcmp(value, b->root, sizeof value) != 0;
    memcpy(b->root, value, sizeof value);
    return LT_OK;
}

/* Marks the blocks whose root changed since the last call. */
static inline void look(seen *s, lt_optim *optim)
{
    lt_state_visitor visitor = {see_entry, ignore_number, s};
    s->count = 0;
    s->param = NULL;
    assert_ok(lt_optim_visit(optim, &visitor));
}

/* Nine blocks of several sizes in three parameters. */
static inline void open_blocks(fixture *f, const lt_shampoo_config *config)
{
    fixture_open(f, true);
    fixture_add(f, "large", LT_SHAPE(7, 6));
    fixture_add(f, "vector", LT_SHAPE(13));
    fixture_add(f, "small", LT_SHAPE(3, 2));
    assert_ok(lt_optim_shampoo(&f->optim, &f->list, config));
}

static inline lt_shampoo_config small_blocks(lt_refresh_timing timing, int64_t f)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-3;
    c.max_preconditioner_dim = SIDE;
    c.precondition_frequency = f;
    c.refresh_timing = timing;
    return c;
}

static inline void step_blocks(fixture *f)
{
    for (size_t k = 0; k < f->list.count; k++) {
        double g[64];
        for (int i = 0; i < 64; i++)
            g[i] = sin(1 + 7.0 * (double)f->attempt + 3.0 * (double)k + 1.7 * i * i);
        put_grad(f->list.item[k], g);
    }
    fixture_step(f, 0.05);
}

/* Values of all parameters. */
typedef struct values {
    double value[3][64];
} values;

static inline values values_of(const fixture *f)
{
    values v = {{{0}}};
    for (size_t k = 0; k < f->list.count; k++)
        get(f->param[k].value, v.value[k]);
    return v;
}

#endif
