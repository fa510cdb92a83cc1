/* The list of cached casts. */

#include "cast_cache.h"

#include "strided_iter.h"

#include <stdlib.h>

static void free_casts(lt_cuda *c, void *data)
{
    for (lt_cached_cast *next, *w = data; w; w = next) {
        next = w->next;
        c->api->release(w->copy.data);
        free(w);
    }
}

lt_cached_cast *lt_cast_find(const lt_cuda *c, const void *data, lt_dtype dtype, size_t bytes)
{
    lt_cached_cast *w = c->part[LT_CUDA_CASTS].data;
    while (w && !(w->value.data == data && w->copy.dtype == dtype && w->bytes >= bytes))
        w = w->next;
    return w;
}

lt_status lt_cast_new(lt_cuda *c, size_t bytes, lt_cached_cast **out)
{
    lt_cuda_part *part = &c->part[LT_CUDA_CASTS];
    lt_cached_cast *w = calloc(1, sizeof *w);
    if (!w)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory", c->ordinal);
    lt_status st = lt_cuda_alloc(c, bytes, &w->copy.data);
    if (st) {
        free(w);
        return st;
    }
    w->bytes = bytes;
    w->next = part->data;
    part->data = w;
    part->close = free_casts;
    *out = w;
    return LT_OK;
}

void *lt_cast_element_address(const lt_cuda *c, const void *p, lt_dtype *dtype)
{
    for (const lt_cached_cast *w = c->part[LT_CUDA_CASTS].data; w; w = w->next) {
        const uintptr_t begin = (uintptr_t)w->value.data, at = (uintptr_t)p;
        const size_t size = lt_dtype_size(w->copy.dtype);
        /* The cast's memory may be larger than the weight: it may be reused from a larger one. */
        if (!w->follows || at < begin
            || at - begin >= (size_t)lt_shape_count(w->value.shape) * sizeof(float))
            continue;
        *dtype = w->copy.dtype;
        return (char *)w->copy.data + (at - begin) / sizeof(float) * size;
    }
    return NULL;
}

/* At most one cast, the newest, follows: an entry updates only one. */
void lt_cast_set_follow(void *ctx, const lt_view *value, bool on)
{
    lt_cuda *c = ctx;
    for (lt_cached_cast *w = c->part[LT_CUDA_CASTS].data; w; w = w->next) {
        if (w->value.data != value->data)
            continue;
        const bool can = w->same_order && w->value.dtype == LT_F32
                         && (w->copy.dtype == LT_BF16 || w->copy.dtype == LT_F16);
        w->follows = on && can;
        on = on && !can;
    }
}
