/* Merges small dimensions and splits large ones. Shi et al., "A Distributed Data-Parallel PyTorch Implementation of
 * the Distributed Shampoo Optimizer", 2023, section 3.2, merges from the first dimension to the last; the backward
 * order merges a convolution's window and leaves its channels apart. */

#include "optim/shampoo/block.h"

#include "lather/ext/fail.h"

/* Returns true if a * b <= limit, without overflow. */
static bool product_fits_limit(int64_t a, int64_t b, int64_t limit)
{
    return limit == LT_NO_LIMIT || b <= limit / a;
}

static void merge_nothing(lt_merged *m)
{
    m->shape = m->from;
    for (int d = 0; d < m->from.ndim; d++)
        m->group[d] = d;
}

static void merge_forward(lt_merged *m, int64_t limit)
{
    lt_shape *s = &m->shape;
    *s = LT_SHAPE(1);
    for (int d = 0; d < m->from.ndim; d++) {
        int64_t n = m->from.dim[d], *last = &s->dim[s->ndim - 1];
        if (*last == 1 || n == 1 || product_fits_limit(*last, n, limit))
            *last *= n;
        else
            s->dim[s->ndim++] = n;
        m->group[d] = s->ndim - 1;
    }
}

static void reverse_merged_dims(lt_merged *m)
{
    lt_shape *s = &m->shape;
    for (int i = 0, j = s->ndim - 1; i < j; i++, j--) {
        int64_t t = s->dim[i];
        s->dim[i] = s->dim[j];
        s->dim[j] = t;
    }
    for (int d = 0; d < m->from.ndim; d++)
        if (m->group[d] >= 0)
            m->group[d] = s->ndim - 1 - m->group[d];
}

static int count_dims_above_1(lt_shape shape)
{
    int count = 0;
    for (int d = 0; d < shape.ndim; d++)
        count += shape.dim[d] != 1;
    return count;
}

static void merge_backward(lt_merged *m, int64_t limit, int target)
{
    lt_shape *s = &m->shape;
    int left = count_dims_above_1(m->from); /* dimensions longer than 1 that are still to come */
    for (int d = m->from.ndim - 1; d >= 0; d--) {
        int64_t n = m->from.dim[d];
        m->group[d] = -1;
        if (n == 1)
            continue;
        if (s->ndim > 0 && s->ndim + left > target
            && product_fits_limit(s->dim[s->ndim - 1], n, limit))
            s->dim[s->ndim - 1] *= n;
        else
            s->dim[s->ndim++] = n;
        m->group[d] = s->ndim - 1;
        left--;
    }
    if (!s->ndim)
        *s = LT_SHAPE(1);
    reverse_merged_dims(m);
}

lt_merged lt_merge_shape(lt_shape shape, int64_t limit, int target, lt_merge_order order)
{
    lt_merged m = {.from = shape};
    if (lt_shape_count(shape) == 0)
        m.shape = LT_SHAPE(0);
    else if (order == LT_MERGE_FORWARD)
        merge_forward(&m, limit);
    else if (target == LT_NO_LIMIT)
        merge_nothing(&m);
    else
        merge_backward(&m, limit, target);
    return m;
}

static int64_t count_chunks(int64_t extent, int64_t limit)
{
    return limit == LT_NO_LIMIT ? 1 : (extent + limit - 1) / limit;
}

int64_t lt_region_count(lt_shape merged, int64_t limit)
{
    int64_t count = 1;
    for (int d = 0; d < merged.ndim; d++)
        count *= count_chunks(merged.dim[d], limit);
    return count;
}

lt_region lt_region_at(lt_shape merged, int64_t limit, int64_t index)
{
    lt_region region = {.offset.ndim = merged.ndim, .shape.ndim = merged.ndim};
    for (int d = merged.ndim - 1; d >= 0; d--) {
        int64_t n = count_chunks(merged.dim[d], limit);
        int64_t begin = n > 1 ? index % n * limit : 0;
        int64_t rest = merged.dim[d] - begin;
        region.offset.dim[d] = begin;
        region.shape.dim[d] = n > 1 && rest > limit ? limit : rest;
        index /= n;
    }
    return region;
}

/* Returns the region's extent along dimension d of the unmerged parameter and sets its offset. */
static int64_t region_extent(const lt_merged *m, const lt_region *region, int d, int64_t *offset)
{
    int g = m->group[d];
    int64_t n = m->from.dim[d];
    *offset = 0;
    if (g < 0 || n == 1 || region->shape.dim[g] == m->shape.dim[g])
        return n;
    LT_ASSERT(n == m->shape.dim[g]); /* merged dimensions are never split */
    *offset = region->offset.dim[g];
    return region->shape.dim[g];
}

void lt_region_map_to_param(const lt_merged *m, const lt_region *region, lt_shape *offset,
                            lt_shape *extent)
{
    *offset = *extent = (lt_shape){.ndim = m->from.ndim};
    for (int d = 0; d < m->from.ndim; d++)
        extent->dim[d] = region_extent(m, region, d, &offset->dim[d]);
}

lt_view lt_region_view(const lt_merged *m, const lt_region *region, const lt_view *parameter)
{
    lt_view v = *parameter;
    int64_t start = 0, offset;
    for (int d = 0; d < v.shape.ndim; d++) {
        v.shape.dim[d] = region_extent(m, region, d, &offset);
        start += offset * parameter->stride[d];
    }
    if (v.data) /* a tensor may have no memory */
        v.data = (char *)v.data + (size_t)start * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}

lt_view lt_region_unmerged_view(const lt_merged *m, const lt_region *region, const lt_view *block)
{
    lt_view v = *block;
    int64_t step[LT_MAX_DIMS], offset;
    for (int g = 0; g < block->shape.ndim; g++)
        step[g] = block->stride[g];
    v.shape.ndim = m->from.ndim;
    for (int d = m->from.ndim - 1; d >= 0; d--) {
        int64_t n = region_extent(m, region, d, &offset);
        int g = m->group[d];
        v.shape.dim[d] = n;
        v.stride[d] = g < 0 ? 0 : step[g];
        if (g >= 0)
            step[g] *= n;
    }
    v.version = 0;
    return v;
}
