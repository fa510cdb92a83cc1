/* Merging and splitting of parameters: arithmetic on shapes and strides. */
#ifndef LT_OPTIM_SHAMPOO_BLOCK_H
#define LT_OPTIM_SHAMPOO_BLOCK_H

#include "lather/detail/view.h"
#include "lather/shampoo.h"

/* A shape after merging adjacent dimensions. */
typedef struct lt_merged {
    lt_shape from, shape; /* shape before and after merging */
    int group
        /* dimension of `shape` that contains each dimension of `from`; -1: a dimension of size 1 */
        [LT_MAX_DIMS];
} lt_merged;

/* Merges dimensions. limit: largest product of merged dimensions, or LT_NO_LIMIT. target:
 * number of dimensions at which backward merging stops; LT_NO_LIMIT: merges nothing. */
lt_merged lt_merge_shape(lt_shape shape, int64_t limit, int target, lt_merge_order order);

/* A region of a merged shape, at most `limit` long in each dimension. */
typedef struct lt_region {
    lt_shape offset, shape;
} lt_region;

/* Returns the number of regions that a merged shape is split into, and region number index in row-major order. */
int64_t lt_region_count(lt_shape merged, int64_t limit);
lt_region lt_region_at(lt_shape merged, int64_t limit, int64_t index);

/* Computes the region's offset and extent in the unmerged parameter. */
void lt_region_map_to_param(const lt_merged *merged, const lt_region *region, lt_shape *offset,
                            lt_shape *extent);

/* Return two views of a region, both with the dimensions of the unmerged parameter: the region in the parameter's own
 * memory, and a tensor that has the region's merged shape. A region spans all of a dimension that was merged from
 * several, so both exist for any strides. */
lt_view lt_region_view(const lt_merged *merged, const lt_region *region, const lt_view *parameter);
lt_view lt_region_unmerged_view(const lt_merged *merged, const lt_region *region,
                                const lt_view *block);

#endif
