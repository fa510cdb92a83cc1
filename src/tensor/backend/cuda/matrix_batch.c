/* Which of Shampoo's jobs go together, and where their parts lie. */

#include "matrices.h"

#include <stdlib.h>

enum {
    PART_ALIGNMENT = 256,
    MOST_TOGETHER = 65535 /* matrices are a grid's second dimension */
};

lt_fold lt_fold_of(const lt_view *view, int dim)
{
    lt_fold f = {.data = view->data, .rest = 1};
    int at = 1;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        f.extent[d] = 1;
    f.extent[0] = view->shape.dim[dim];
    f.stride[0] = view->stride[dim];
    for (int d = 0; d < view->shape.ndim; d++) {
        if (d == dim)
            continue;
        f.extent[at] = view->shape.dim[d];
        f.stride[at++] = view->stride[d];
        f.rest *= view->shape.dim[d];
    }
    return f;
}

/* -1, 0, 1. */
static int compare(const lt_batch_key *a, const lt_batch_key *b)
{
    if (a->n != b->n)
        return a->n < b->n ? 1 : -1; /* large ones first */
    if (a->rest != b->rest)
        return a->rest < b->rest ? 1 : -1;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    if (a->transpose != b->transpose)
        return a->transpose ? 1 : -1;
    if (a->alpha < b->alpha || a->alpha > b->alpha)
        return a->alpha < b->alpha ? -1 : 1;
    return a->beta < b->beta ? -1 : a->beta > b->beta;
}

bool lt_batch_key_same(const lt_batch_key *a, const lt_batch_key *b)
{
    return compare(a, b) == 0;
}

/* qsort has no context: elements carry their keys. */
typedef struct element {
    const lt_batch_key *key;
    size_t index;
} element;

static int by_key(const void *x, const void *y)
{
    const element *a = x, *b = y;
    int order = compare(a->key, b->key);
    return order ? order : a->index < b->index ? -1 : a->index > b->index;
}

lt_status lt_batch_sort(const lt_batch_key *key, size_t count, size_t *order)
{
    element *e = calloc(count ? count : 1, sizeof *e);
    if (!e)
        return lt_fail(LT_E_NOMEM, "cuda: no memory for %zu jobs", count);
    for (size_t i = 0; i < count; i++)
        e[i] = (element){&key[i], i};
    qsort(e, count, sizeof *e, by_key);
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
    c->used += (bytes + PART_ALIGNMENT - 1) / PART_ALIGNMENT * PART_ALIGNMENT;
    return c->begin ? c->begin + at : NULL;
}
