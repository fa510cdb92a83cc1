/* Layout of shards, parts and owner buffers in stored order. */

#include "sharded.h"

/* Returns the logical dimension that is dimension d of the stored order. */
static int stored_dim(bool channels_last, int d)
{
    static const int order[] = {0, 2, 3, 1};
    return channels_last ? order[d] : d;
}

static lt_shape to_stored_order(lt_shape shape, bool channels_last)
{
    lt_shape out = shape;
    for (int d = 0; d < shape.ndim; d++)
        out.dim[d] = shape.dim[stored_dim(channels_last, d)];
    return out;
}

static bool is_whole_dim(const lt_shape *whole, const lt_shape *extent, int d)
{
    return extent->dim[d] == whole->dim[d];
}

/* Merges the last dimension into the one before it. */
static void join_last(lt_shape *whole, lt_shape *offset, lt_shape *extent)
{
    const int last = --whole->ndim, into = last - 1;
    offset->ndim = extent->ndim = last;
    offset->dim[into] *= whole->dim[last];
    extent->dim[into] *= whole->dim[last];
    whole->dim[into] *= whole->dim[last];
}

/* Turns a scalar into one dimension, and merges trailing dimensions that the shard spans completely. */
static void merge_spanned_dims(lt_shape *whole, lt_shape *offset, lt_shape *extent)
{
    if (!whole->ndim) {
        *whole = *extent = LT_SHAPE(1);
        *offset = LT_SHAPE(0);
    }
    while (whole->ndim > 1 && is_whole_dim(whole, extent, whole->ndim - 1))
        join_last(whole, offset, extent);
}

lt_shard_spec lt_sharded_stored_spec(const lt_shard_spec *spec, bool channels_last)
{
    lt_shard_spec p = *spec;
    p.logical = to_stored_order(spec->logical, channels_last);
    p.view = to_stored_order(spec->view, channels_last);
    p.offset = to_stored_order(spec->offset, channels_last);
    p.extent = to_stored_order(spec->extent, channels_last);
    merge_spanned_dims(&p.view, &p.offset, &p.extent);
    return p;
}

/* If the parameter has other elements between two contiguous runs of a part, its owner buffer has a gap of one
 * element: kernels that sum run by run then use the same order in both. */
int64_t lt_sharded_owner_strides(lt_optim *o, size_t i, int64_t stride[LT_MAX_DIMS])
{
    const lt_slot *slot = o->shard->part[i].slot;
    const lt_shape whole = lt_tensor_shape(slot->param->value);
    const bool channels_last = lt_sharded_of(o)->channels_last[slot - o->slot];
    lt_shape offset, extent;
    int64_t step = 1, span = 1;
    lt_shard_part_region(o, i, &offset, &extent);
    for (int k = extent.ndim - 1; k >= 0; k--) {
        const int d = stored_dim(channels_last, k);
        stride[d] = step;
        span += (extent.dim[d] - 1) * step;
        step *= extent.dim[d];
        step += !is_whole_dim(&whole, &extent, d);
    }
    return span;
}

lt_view lt_sharded_owner_view(lt_optim *o, size_t i, const lt_tensor *flat)
{
    lt_view v = lt_tensor_view(flat);
    lt_shape offset;
    v.data = (char *)v.data + (size_t)o->shard->part[i].at * lt_dtype_size(v.dtype);
    v.version = 0;
    lt_shard_part_region(o, i, &offset, &v.shape);
    lt_sharded_owner_strides(o, i, v.stride);
    return v;
}

lt_part_layout lt_sharded_part_layout(lt_optim *o, size_t i)
{
    const lt_slot *slot = o->shard->part[i].slot;
    const bool channels_last = lt_sharded_of(o)->channels_last[slot - o->slot];
    int64_t stride[LT_MAX_DIMS] = {1};
    lt_part_layout b = {.whole =
                            to_stored_order(lt_tensor_shape(slot->param->value), channels_last)};
    lt_shard_part_region(o, i, &b.offset, &b.extent);
    lt_sharded_owner_strides(o, i, stride);
    b.offset = to_stored_order(b.offset, channels_last);
    b.extent = to_stored_order(b.extent, channels_last);
    for (int d = 0; d < b.extent.ndim; d++)
        b.stride[d] = stride[stored_dim(channels_last, d)];
    merge_spanned_dims(&b.whole, &b.offset, &b.extent);
    b.stride[b.whole.ndim - 1] = 1; /* also after merging */
    return b;
}
