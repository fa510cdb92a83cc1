/* Top-1 and top-5 counts of rows whose classes are sharded. The label's logit is sent to all ranks; then
 * each counts the logits that rank before it. */

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/sharded.h"
#include "lather/ext/fail.h"
#include "lather/ops/loss.h"

#include <math.h>

enum { TOP = 5 };                   /* as for lt_topk_hits() */
enum { FIRST, AMONG, COUNT, HITS }; /* elements of hits; COUNT is optional */

typedef struct rows {
    const lt_sharded_xent_config *to;
    lt_view x, labels;
    int64_t count, classes, first;
    double *own; /* [count]: logit of each row's label, from the rank that has it */
    double *
        /* [count]: number of logits that rank before it, or at least `to->classes` if the row counts as
         * wrong. */
        before;
} rows;

static double get_logit(const rows *r, int64_t row, int64_t k)
{
    const int64_t i = row * r->x.stride[0] + k * r->x.stride[1];
    return r->x.dtype == LT_F64 ? ((const double *)r->x.data)[i]
                                : (double)((const float *)r->x.data)[i];
}

static int64_t row_label(const rows *r, int64_t row)
{
    return ((const int32_t *)r->labels.data)[row * r->labels.stride[0]];
}

static lt_status sum_over_ranks(lt_process_group *group, double *x, int64_t count)
{
    const lt_view v = {.data = x, .dtype = LT_F64, .shape = LT_SHAPE(count), .stride = {1}};
    if (!group)
        return LT_OK;
    return lt_collective_run(group,
                             &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE, .out = v});
}

/* Returns the logit of the row's label, or 0 if another rank has it. */
static double local_label_logit(const rows *r, int64_t row)
{
    const int64_t k = row_label(r, row) - r->first;
    return k >= 0 && k < r->classes ? get_logit(r, row, k) : 0;
}

/* Counts this rank's logits that rank before the label's: larger ones, and equal ones of smaller index. */
static double count_higher_ranked(const rows *r, int64_t row)
{
    const int64_t label = row_label(r, row);
    const double z = r->own[row];
    double n = 0;
    if (label < 0 || label >= r->to->classes || isnan(z))
        return (double)r->to->classes;
    for (int64_t k = 0; k < r->classes; k++) {
        const double other = get_logit(r, row, k);
        if (isnan(other))
            return (double)r->to->classes;
        n += other > z || (r->first + k < label && other == z);
    }
    return n;
}

static lt_status count_hits(rows *r, double hits[HITS])
{
    for (int64_t m = 0; m < r->count; m++)
        r->own[m] = local_label_logit(r, m);
    LT_TRY(sum_over_ranks(r->to->row, r->own, r->count));
    for (int64_t m = 0; m < r->count; m++)
        r->before[m] = count_higher_ranked(r, m);
    LT_TRY(sum_over_ranks(r->to->row, r->before, r->count));
    for (int64_t m = 0; m < r->count; m++) {
        hits[FIRST] += r->before[m] < 1;
        hits[AMONG] += r->before[m] < TOP && r->before[m] < (double)r->to->classes;
        hits[COUNT] += row_label(r, m) != LT_IGNORED_LABEL;
    }
    LT_TRY(sum_over_ranks(r->to->column, hits, HITS));
    return sum_over_ranks(r->to->depth, hits, HITS);
}

static lt_status check_arguments(const lt_tensor *x, const lt_tensor *labels, const lt_tensor *hits,
                                 const lt_sharded_xent_config *c)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    const int64_t own = lt_even_shard_size(c->classes, c->row->size, c->row->rank);
    const bool counts = hits->dtype == LT_I64 && hits->shape.ndim == 1
                        && (hits->shape.dim[0] == COUNT || hits->shape.dim[0] == HITS);
    if (x->shape.ndim != 2 || x->shape.dim[1] != own || labels->dtype != LT_I32 || !counts
        || !lt_shape_equal(labels->shape, LT_SHAPE(x->shape.dim[0])))
        return lt_fail(LT_E_SHAPE,
                       "topk_hits_sharded: logits %s, labels %s on rank %d of %d, want [M,%lld] of "
                       "the %lld classes, i32 [M], i64 [2] or [3]",
                       lt_shape_text(x->shape, a), lt_shape_text(labels->shape, b), c->row->rank,
                       c->row->size, (long long)own, (long long)c->classes);
    if ((x->dtype != LT_F32 && x->dtype != LT_F64) || !x->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "topk_hits_sharded: logits are %s on %s; want f32 or f64 in host "
                       "memory",
                       lt_dtype_name(x->dtype), lt_device_name(x->device));
    return LT_OK;
}

lt_status lt_topk_hits_sharded(const lt_tensor *logits, const lt_tensor *labels, lt_tensor *hits,
                               lt_sharded_xent_config config)
{
    double found[HITS] = {0};
    LT_TRY(check_arguments(logits, labels, hits, &config));
    LT_TRY(lt_tensor_materialize(logits));
    rows r = {.to = &config, .x = lt_tensor_view(logits), .labels = lt_tensor_view(labels)};
    if (!r.x.data)
        return lt_fail(LT_E_ARG,
                       "topk_hits_sharded: the logits were freed; lt_tape_keep() keeps them");
    r.count = logits->shape.dim[0];
    r.classes = logits->shape.dim[1];
    r.first = lt_even_shard_offset(config.classes, config.row->size, config.row->rank);
    r.own = lt_alloc((size_t)r.count, sizeof *r.own);
    r.before = lt_alloc((size_t)r.count, sizeof *r.before);
    lt_status st = r.own && r.before ? count_hits(&r, found) : LT_E_NOMEM;
    lt_free(r.own);
    lt_free(r.before);
    if (st)
        return st;
    const lt_view h = lt_tensor_view(hits);
    for (int64_t i = 0; i < h.shape.dim[0]; i++)
        ((int64_t *)h.data)[i * h.stride[0]] += (int64_t)found[i];
    return LT_OK;
}
