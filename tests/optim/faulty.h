/* Shampoo on a backend whose eigendecomposition fails on demand, and access to its state. */
#ifndef LT_TESTS_OPTIM_FAULTY_H
#define LT_TESTS_OPTIM_FAULTY_H

#include "fixture.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/detail/shampoo_report.h"
#include "lather/log.h"

#include <stdio.h>
#include <string.h>

typedef enum fault_kind { NONE, ALL, ALL_BUT_ONE, FIRST, ONE_SIZE, SINGLE_PRECISION } fault_kind;

enum { ROWS = 3, COLUMNS = 4, ENTRIES = ROWS * COLUMNS, MOST = 72 }; /* elements */

static fault_kind current;
static int calls_f64, calls_f32;

static inline bool must_fail(const lt_eigh_job *job, size_t index)
{
    switch (current) {
    case ALL:
        return true;
    case ALL_BUT_ONE:
        return index > 0;
    case FIRST:
        return index == 0;
    case ONE_SIZE:
        return job->a.shape.dim[0] == ROWS;
    case SINGLE_PRECISION:
        return job->a.dtype == LT_F32;
    case NONE:
        break;
    }
    return false;
}

static inline lt_status faulty_eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ++*(job[i].a.dtype == LT_F64 ? &calls_f64 : &calls_f32);
        if (must_fail(&job[i], i))
            job[i].status = lt_fail(LT_E_DEVICE, "eigh: a fault of the test");
        else
            LT_TRY(lt_backend_ref()->eigh(ctx, &job[i], 1));
    }
    return LT_OK;
}

static lt_backend backend;

/* Last log message, and the number of messages. */
typedef struct heard {
    int count;
    char last[256];
} heard;

static inline void quiet(void *context, lt_log_level level, const char *area, const char *text)
{
    heard *h = context;
    (void)level;
    (void)area;
    h->count++;
    snprintf(h->last, sizeof h->last, "%s", text);
}

static inline void listen(heard *h)
{
    *h = (heard){0};
    lt_log_set(quiet, h);
}

static inline lt_shampoo_config usual(void)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-3;
    c.max_preconditioner_dim = 8; /* no dimensions merge */
    return c;
}

static inline void open_shapes(fixture *f, bool f64, const lt_shampoo_config *config,
                               const lt_shape *shape, int count)
{
    static const char *const names[] = {"layer.weight", "second", "third"};
    fixture_open(f, f64);
    backend = *lt_backend_ref();
    backend.eigh = faulty_eigh;
    f->device->backend = &backend;
    for (int i = 0; i < count; i++)
        fixture_add(f, names[i], shape[i]);
    assert_ok(lt_optim_shampoo(&f->optim, &f->list, config));
    current = NONE;
    calls_f32 = calls_f64 = 0;
}

static inline void open_faulty(fixture *f, bool f64, const lt_shampoo_config *config)
{
    open_shapes(f, f64, config, &LT_SHAPE(ROWS, COLUMNS), 1);
}

static inline void give(fixture *f, double factor)
{
    double g[MOST];
    for (int i = 0; i < MOST; i++)
        g[i] = factor * sin(1 + (double)f->attempt + 1.7 * i * i);
    for (size_t k = 0; k < f->list.count; k++)
        put_grad(&f->param[k], g);
}

static inline lt_status try_step(fixture *f, fault_kind fault)
{
    if (current != fault) /* a thread may be reading it */
        current = fault;
    give(f, 1);
    const lt_step step = {.lr = 0.1, .attempt = ++f->attempt};
    return lt_optim_step(f->optim, &step);
}

typedef struct roots {
    double value[2][COLUMNS * COLUMNS], factor[2][COLUMNS * COLUMNS], power[2][COLUMNS];
    int64_t block_failures, failures[2];
} roots;

static inline lt_status copy_root(void *context, const lt_state_entry *entry)
{
    roots *r = context;
    for (int d = 0; d < 2; d++) {
        const struct {
            const char *name;
            double *to;
        } kept[] = {{"root", r->value[d]},
                    {"basis", r->value[d]},
                    {"power", r->power[d]},
                    {"factor", r->factor[d]}};
        for (size_t i = 0; i < COUNT_OF(kept); i++) {
            char name[16];
            snprintf(name, sizeof name, "%s.%d", kept[i].name, d);
            if (!strcmp(entry->name, name))
                get(entry->tensor, kept[i].to);
        }
    }
    return LT_OK;
}

static inline lt_status copy_number(void *context, const char *name, int64_t *value)
{
    roots *r = context;
    if (!strcmp(name, "failures.0.layer.weight"))
        r->block_failures = *value;
    if (!strcmp(name, "failures.0.0.layer.weight"))
        r->failures[0] = *value;
    if (!strcmp(name, "failures.0.1.layer.weight"))
        r->failures[1] = *value;
    return LT_OK;
}

static inline roots roots_of(fixture *f)
{
    roots r = {.block_failures = -1, .failures = {-1, -1}};
    lt_state_visitor visitor = {copy_root, copy_number, &r};
    assert_ok(lt_optim_visit(f->optim, &visitor));
    return r;
}

#endif
