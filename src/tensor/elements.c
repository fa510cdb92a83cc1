/* Elements of views as numbers, and formulas over them, for operations without a backend kernel. Uses the
 * reference backend's conversions. */

#include "lather/ext/elements.h"

#include "base/parallel.h"
#include "tensor/backend/ref/ref.h"

#include "lather/ext/broadcast.h"

void lt_view_read(const lt_view *view, int64_t first, int64_t count, double *values)
{
    lt_ref_load_f64(view, first, count, values);
}

void lt_view_write(const lt_view *view, int64_t first, int64_t count, const double *values)
{
    lt_ref_store_f64(view, first, count, values);
}

typedef struct map {
    lt_map_fn *fn;
    const void *config;
    lt_view x[LT_MAX_MAPPED], y; /* same shape; dimensions in the storage order of y */
    int count;
} map;

enum { BLOCK = 256, GRAIN = 16 * BLOCK }; /* a block's values fit the first-level cache */

static void map_range(void *context, int64_t begin, int64_t end)
{
    const map *m = context;
    double in[LT_MAX_MAPPED][BLOCK], out[BLOCK];
    const double *x[LT_MAX_MAPPED];
    for (int k = 0; k < m->count; k++)
        x[k] = in[k];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t size = end - i < BLOCK ? end - i : BLOCK;
        for (int k = 0; k < m->count; k++)
            lt_view_read(&m->x[k], i, size, in[k]);
        m->fn(m->config, size, x, out);
        lt_view_write(&m->y, i, size, out);
    }
}

static void swap_dims(lt_view *v, int a, int b)
{
    int64_t dim = v->shape.dim[a], stride = v->stride[a];
    v->shape.dim[a] = v->shape.dim[b];
    v->stride[a] = v->stride[b];
    v->shape.dim[b] = dim;
    v->stride[b] = stride;
}

/* Sorts y's dimensions by falling stride, so that a 4-D view is traversed in storage order. */
static void sort_dims_by_stride(map *m)
{
    for (int d = 1; d < m->y.shape.ndim; d++)
        for (int at = d; at > 0 && m->y.stride[at - 1] < m->y.stride[at]; at--) {
            swap_dims(&m->y, at - 1, at);
            for (int k = 0; k < m->count; k++)
                swap_dims(&m->x[k], at - 1, at);
        }
}

lt_status lt_op_map(lt_node *node, lt_map_fn *fn, const lt_view *const *x, int count,
                    const lt_view *y)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    char small[LT_SHAPE_TEXT], large[LT_SHAPE_TEXT];
    map m = {.fn = fn, .config = node->config, .y = *y, .count = count};
    if (count < 0 || count > LT_MAX_MAPPED)
        return lt_fail(LT_E_ARG, "%s: got %d inputs, want 0 to %d", node->op->name, count,
                       LT_MAX_MAPPED);
    if (!be->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: its formula runs on the host, but %s has device memory", node->op->name,
                       be->name);
    for (int k = 0; k < count; k++)
        if (!lt_view_broadcast(x[k], y->shape, &m.x[k]))
            return lt_fail(LT_E_SHAPE, "%s: input %d %s does not broadcast to %s", node->op->name,
                           k, lt_shape_text(x[k]->shape, small), lt_shape_text(y->shape, large));
    sort_dims_by_stride(&m);
    lt_parallel_range(lt_shape_count(y->shape), GRAIN, map_range, &m);
    return LT_OK;
}
