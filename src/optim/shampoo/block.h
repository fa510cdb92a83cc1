/* Cutting parameters into blocks: arithmetic on shapes and strides. */
#ifndef LT_OPTIM_SHAMPOO_BLOCK_H
#define LT_OPTIM_SHAMPOO_BLOCK_H

#include "lather/detail/view.h"
#include "lather/shampoo.h"

/* A shape after merging neighbouring dimensions. */
typedef struct lt_merged {
    lt_shape from, shape; /* before and after */
    int group
        [LT_MAX_DIMS]; /* dimension of `shape` that holds a dimension of `from`; -1: extent 1 */
} lt_merged;

/* limit: dimensions merge while their product is at most this; LT_NO_LIMIT: infinite. target:
 * backward merging stops at this many dimensions; LT_NO_LIMIT: nothing merges. */
lt_merged lt_merge_shape(lt_shape shape, int64_t limit, int target, lt_merge_order order);

/* A part of a merged shape: at most limit long in each dimension. */
typedef struct lt_region {
    lt_shape offset, shape;
} lt_region;

/* How many boxes a merged shape is cut into, and the one of that index: dimension 0 outermost. */
int64_t lt_region_count(lt_shape merged, int64_t limit);
lt_region lt_region_at(lt_shape merged, int64_t limit, int64_t index);

/* Which box of the unmerged parameter it is. */
void lt_region_in_parameter(const lt_merged *merged, const lt_region *region, lt_shape *offset,
                            lt_shape *extent);

/* A box has two kinds of views with equal shapes, the extents of the unmerged parameter: the box
 * within the parameter's own memory, and any tensor of the box's merged shape. A box always spans
 * all of a dimension that was merged from several, so that both exist for any strides. */
lt_view lt_region_view(const lt_merged *merged, const lt_region *region, const lt_view *parameter);
lt_view lt_region_unmerged_view(const lt_merged *merged, const lt_region *region,
                                const lt_view *block);

#endif
