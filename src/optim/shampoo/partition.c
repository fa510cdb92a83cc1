/* Splits parameters into blocks: first a joined parameter into its parts, then dimensions merge,
 * then long ones are split or left without a factor. One-sided tables: Vyas et al., "SOAP:
 * Improving and Stabilizing Shampoo using Adam", 2024, section 7.1; one-sided tables and long
 * dimensions: Anil et al., "Scalable second order optimization for deep learning", 2020, section
 * 3. */

#include "optim/shampoo/partition.h"

#include "base/alloc.h"
#include "optim/registry/names.h"
#include "tensor/tensor.h"

/* --- Merging --- */

/* Merges all dimensions but the last; returns false if the shape is not a table of rows. */
static bool merge_all_but_last_dim(lt_shape shape, lt_merged *out)
{
    const int last = shape.ndim - 1;
    if (shape.ndim < 2 || shape.dim[last] < 2 || lt_shape_count(shape) == shape.dim[last])
        return false;
    *out = (lt_merged){.from = shape};
    out->shape = LT_SHAPE(lt_shape_count(shape) / shape.dim[last], shape.dim[last]);
    for (int d = 0; d <= last; d++)
        out->group[d] = shape.dim[d] == 1 ? -1 : d == last;
    return true;
}

static void merge_dims(const lt_shampoo_config *c, lt_partition *partition, lt_shape shape,
                       bool one_sided)
{
    partition->limit = c->max_preconditioner_dim;
    if (one_sided && merge_all_but_last_dim(shape, &partition->merged)) {
        partition->whole[0] = true;
        return;
    }
    partition->merged =
        lt_merge_shape(shape, c->max_preconditioner_dim, c->target_dimensionality, c->merge_order);
    for (int d = 0; d < partition->merged.shape.ndim; d++)
        partition->whole[d] = c->large_dims == LT_LARGE_DIMS_WHOLE
                              && partition->limit != LT_NO_LIMIT
                              && partition->merged.shape.dim[d] > partition->limit;
}

/* Returns true for a diagonal preconditioner: on request, for vectors, and where no dimension may have a factor. */
static bool has_diagonal(const lt_shampoo_config *c, const lt_partition *partition, bool asked)
{
    return asked || (partition->merged.shape.ndim && !lt_partition_count_factor_dims(partition))
           || (c->diagonal_vectors && partition->merged.shape.ndim == 1);
}

/* Computes the partition of each slot. one_sided, diagonal: workspace, one flag per slot. */
static lt_status partition_all(const lt_shampoo_config *c, const lt_optim *optim,
                               lt_partition *partition, bool *one_sided, bool *diagonal)
{
    LT_TRY(lt_name_regex_match(&c->one_sided, "shampoo: one_sided", optim, one_sided));
    LT_TRY(lt_name_regex_match(&c->diagonal, "shampoo: diagonal", optim, diagonal));
    for (size_t i = 0; i < optim->count; i++) {
        const lt_shape shape =
            lt_split_shape(partition[i].split, lt_tensor_shape(optim->slot[i].param->value));
        merge_dims(c, &partition[i], shape, one_sided[i] && !diagonal[i]);
        partition[i].diagonal = has_diagonal(c, &partition[i], diagonal[i]);
    }
    return LT_OK;
}

lt_status lt_partition_params(const lt_shampoo_config *config, const lt_optim *optim,
                              lt_partition *partition)
{
    bool *match = lt_alloc(2 * optim->count, sizeof *match);
    lt_split *split = lt_alloc(optim->count, sizeof *split);
    lt_status st =
        match && split ? lt_splits_match(config->split, "shampoo", optim, split) : LT_E_NOMEM;
    for (size_t i = 0; i < optim->count && !st; i++)
        partition[i] = (lt_partition){.split = split[i]};
    if (!st)
        st = partition_all(config, optim, partition, match, match + optim->count);
    lt_free(split);
    lt_free(match);
    return st;
}

/* --- Blocks --- */

/* Returns the merged shape with extent 1 for dimensions that are never split. */
static lt_shape shape_to_split(const lt_partition *partition)
{
    lt_shape shape = partition->merged.shape;
    for (int d = 0; d < shape.ndim; d++)
        if (partition->whole[d])
            shape.dim[d] = 1;
    return shape;
}

static int64_t regions_of_part(const lt_partition *partition)
{
    return lt_region_count(shape_to_split(partition), partition->limit);
}

int64_t lt_partition_count_blocks(const lt_partition *partition)
{
    return partition->split.parts * regions_of_part(partition);
}

lt_partition_block lt_partition_block_at(const lt_partition *partition, int64_t index)
{
    const int64_t regions = regions_of_part(partition);
    lt_partition_block b = {
        .part = (int)(index / regions),
        .region = lt_region_at(shape_to_split(partition), partition->limit, index % regions)};
    for (int d = 0; d < b.region.shape.ndim; d++)
        if (partition->whole[d])
            b.region.shape.dim[d] = partition->merged.shape.dim[d];
    return b;
}

lt_shape lt_partition_offset(const lt_partition *partition, int part, const lt_region *region)
{
    const int group = partition->merged.group[partition->split.dim], d = group < 0 ? 0 : group;
    lt_shape offset = region->offset;
    offset.dim[d] += part * partition->merged.shape.dim[d];
    return offset;
}

int lt_partition_count_factor_dims(const lt_partition *partition)
{
    int order = 0;
    for (int d = 0; d < partition->merged.shape.ndim; d++)
        order += !partition->whole[d];
    return order;
}
