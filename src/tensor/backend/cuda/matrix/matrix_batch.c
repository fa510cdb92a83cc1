/* Batches of Shampoo's jobs, unfoldings, and parts of workspaces. */

#include "matrices.h"
#include "tensor/backend/cuda/strided_iter.h"

#include <stdlib.h>

enum { MOST_TOGETHER = 65535 }; /* blocks in a grid's second dimension */

/* Appends an innermost dimension. */
static void append_inner_dim(lt_unfolding *f, int *last, int64_t size, int64_t stride)
{
    if (size == 1)
        return;
    if (*last >= 0 && f->stride[*last] == size * stride)
        f->size[*last] *= size;
    else
        f->size[++*last] = size;
    f->stride[*last] = stride;
}

static bool is_innermost(const lt_view *v, const int order[LT_MAX_DIMS], int dim)
{
    int last = v->shape.ndim - 1;
    while (last > 0 && v->shape.dim[order[last]] == 1)
        last--;
    return order[last] == dim;
}

lt_unfolding lt_unfold(const lt_view *view, int dim, const lt_view *first)
{
    lt_unfolding f = {.data = view->data, .n = view->shape.dim[dim]};
    int last = -1, order[LT_MAX_DIMS];
    lt_iter_sort_dims(first, order);
    for (int d = 0; d < LT_MAX_DIMS; d++)
        f.size[d] = 1;
    f.rest = lt_shape_count(view->shape) / f.n;
    f.by_columns = is_innermost(first, order, dim);
    if (!f.by_columns)
        append_inner_dim(&f, &last, f.n, view->stride[dim]);
    for (int i = 0; i < view->shape.ndim; i++)
        if (order[i] != dim || f.by_columns)
            append_inner_dim(&f, &last, view->shape.dim[order[i]], view->stride[order[i]]);
    return f;
}

/* Unfolds along the innermost dimension: the order of memory. */
lt_norm lt_make_norm_record(const lt_view *x, double *out, int64_t first_block)
{
    int order[LT_MAX_DIMS];
    lt_view flat = *x;
    if (!flat.shape.ndim) {
        flat.shape = LT_SHAPE(1);
        flat.stride[0] = 1;
    }
    lt_iter_sort_dims(&flat, order);
    int last = flat.shape.ndim - 1;
    while (!is_innermost(&flat, order, order[last]))
        last--;
    lt_norm n = {.unfolding = lt_unfold(&flat, order[last], &flat),
                 .first_block = first_block,
                 .out = out,
                 .wide = x->dtype == LT_F64};
    n.elements = n.unfolding.n * n.unfolding.rest;
    n.blocks = (n.elements + LT_NORM_BLOCK - 1) / LT_NORM_BLOCK;
    return n;
}

void lt_gather_append(lt_gather *list, int *count, int64_t *blocks, const lt_unfolding *f,
                      void *matrix)
{
    const int64_t elements = f->n * f->rest;
    list[(*count)++] = (lt_gather){
        .unfolding = *f, .matrix = matrix, .elements = elements, .first_block = *blocks};
    *blocks += (elements + LT_GATHER_BLOCK - 1) / LT_GATHER_BLOCK;
}

bool lt_short_try_append(lt_short *list, size_t *count, const lt_short *job)
{
    const lt_unfolding *f = &job->from;
    lt_short *last = &list[*count];
    if (f->n > LT_SHORT || f->by_columns || f->rest < LT_SHORT_COLUMNS)
        return false;
    *last = *job;
    last->from_step = lt_unfolding_offset(f, f->rest);
    last->to_step = job->to.data ? lt_unfolding_offset(&job->to, f->rest) : 0;
    last->blocks = (f->rest + LT_SHORT_COLUMNS - 1) / LT_SHORT_COLUMNS;
    last->first_block = *count ? last[-1].first_block + last[-1].blocks : 0;
    ++*count;
    return true;
}

/* -1, 0, 1. */
static int compare_keys(const lt_batch_key *a, const lt_batch_key *b)
{
    if (a->n != b->n)
        return a->n < b->n ? 1 : -1; /* large ones first */
    if (a->rest != b->rest)
        return a->rest < b->rest ? 1 : -1;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    if (a->transpose != b->transpose)
        return a->transpose ? 1 : -1;
    if (a->by_columns != b->by_columns)
        return a->by_columns ? 1 : -1;
    if (a->alpha < b->alpha || a->alpha > b->alpha)
        return a->alpha < b->alpha ? -1 : 1;
    return a->beta < b->beta ? -1 : a->beta > b->beta;
}

bool lt_batch_key_same(const lt_batch_key *a, const lt_batch_key *b)
{
    return compare_keys(a, b) == 0;
}

/* qsort() has no context, so elements have pointers to their keys. */
typedef struct element {
    const lt_batch_key *key;
    size_t index;
} element;

static int compare_elements(const void *x, const void *y)
{
    const element *a = x, *b = y;
    int order = compare_keys(a->key, b->key);
    return order ? order : a->index < b->index ? -1 : a->index > b->index;
}

lt_status lt_batch_sort(const lt_batch_key *key, size_t count, size_t *order)
{
    element *e = calloc(count ? count : 1, sizeof *e);
    if (!e)
        return lt_fail(LT_E_NOMEM, "cuda: no memory for %zu jobs", count);
    for (size_t i = 0; i < count; i++)
        e[i] = (element){&key[i], i};
    qsort(e, count, sizeof *e, compare_elements);
    for (size_t i = 0; i < count; i++)
        order[i] = e[i].index;
    free(e);
    return LT_OK;
}

size_t lt_batch_end(const lt_batch_key *key, const size_t *order, size_t begin, size_t count,
                    size_t bytes, size_t limit)
{
    size_t end = begin + 1;
    while (end < count && lt_batch_key_same(&key[order[begin]], &key[order[end]])
           && (end + 1 - begin) * bytes <= limit && end - begin < MOST_TOGETHER)
        end++;
    return end;
}

void *lt_carve(lt_carver *c, size_t bytes)
{
    size_t at = c->used;
    c->used += lt_cuda_pad_bytes(bytes);
    return c->begin ? c->begin + at : NULL;
}
