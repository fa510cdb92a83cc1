/* Splits parameters into blocks: first a joined parameter into its parts, then dimensions merge,
 * then long ones are split or left without a factor. One-sided tables: Vyas et al., "SOAP:
 * Improving and Stabilizing Shampoo using Adam", 2024, section 7.1; one-sided tables and long
 * dimensions: Anil et al., "Scalable second order optimization for deep learning", 2020, section
 * 3. */

#include "optim/shampoo/partition.h"

#include "base/alloc.h"
#include "optim/registry/names.h"
#include "tensor/tensor.h"

/* --- Parts of joined parameters --- */

static lt_status split_param(const lt_shampoo_split *s, const lt_param *param,
                             lt_partition *partition)
{
    const lt_shape shape = lt_tensor_shape(param->value);
    char text[LT_SHAPE_TEXT];
    const int dim = s->dim < 0 ? s->dim + shape.ndim : s->dim;
    if (dim < 0 || dim >= shape.ndim)
        return lt_fail(LT_E_ARG, "shampoo: split: no dimension %d in %s, which is %s", s->dim,
                       param->name, lt_shape_text(shape, text));
    if (shape.dim[dim] % s->parts || !shape.dim[dim])
        return lt_fail(LT_E_ARG,
                       "shampoo: split: dimension %d of %s, %s, cannot be split into %d "
                       "equal parts",
                       dim, param->name, lt_shape_text(shape, text), s->parts);
    partition->dim = dim;
    partition->parts = s->parts;
    return LT_OK;
}

/* Applies all `split` settings; later ones replace earlier ones. match: workspace. */
static lt_status apply_split_settings(const lt_shampoo_config *c, const lt_optim *optim,
                                      lt_partition *partition, bool *match)
{
    for (int k = 0; k < LT_MAX_SPLITS; k++) {
        LT_TRY(lt_name_regex_match(&c->split[k].names, "shampoo: split", optim, match));
        for (size_t i = 0; i < optim->count; i++)
            if (match[i])
                LT_TRY(split_param(&c->split[k], optim->slot[i].param, &partition[i]));
    }
    return LT_OK;
}

static lt_shape shape_of_part(const lt_partition *partition, lt_shape parameter)
{
    if (parameter.ndim)
        parameter.dim[partition->dim] /= partition->parts;
    return parameter;
}

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
    for (size_t i = 0; i < optim->count; i++)
        partition[i] = (lt_partition){.parts = 1};
    LT_TRY(apply_split_settings(c, optim, partition, diagonal));
    LT_TRY(lt_name_regex_match(&c->one_sided, "shampoo: one_sided", optim, one_sided));
    LT_TRY(lt_name_regex_match(&c->diagonal, "shampoo: diagonal", optim, diagonal));
    for (size_t i = 0; i < optim->count; i++) {
        const lt_shape shape =
            shape_of_part(&partition[i], lt_tensor_shape(optim->slot[i].param->value));
        merge_dims(c, &partition[i], shape, one_sided[i] && !diagonal[i]);
        partition[i].diagonal = has_diagonal(c, &partition[i], diagonal[i]);
    }
    return LT_OK;
}

lt_status lt_partition_params(const lt_shampoo_config *config, const lt_optim *optim,
                              lt_partition *partition)
{
    bool *match = NULL;
    LT_TRY(LT_ALLOC(&match, 2 * optim->count));
    lt_status st = partition_all(config, optim, partition, match, match + optim->count);
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
    return partition->parts * regions_of_part(partition);
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
    const int group = partition->merged.group[partition->dim], d = group < 0 ? 0 : group;
    lt_shape offset = region->offset;
    offset.dim[d] += part * partition->merged.shape.dim[d];
    return offset;
}

lt_view lt_partition_part_view(const lt_partition *partition, int part, const lt_view *parameter)
{
    lt_view v = *parameter;
    if (partition->parts == 1)
        return v;
    v.shape = shape_of_part(partition, v.shape);
    const int64_t start = part * v.shape.dim[partition->dim] * v.stride[partition->dim];
    if (v.data) /* a tensor may have no memory */
        v.data = (char *)v.data + (size_t)start * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}

int lt_partition_count_factor_dims(const lt_partition *partition)
{
    int order = 0;
    for (int d = 0; d < partition->merged.shape.ndim; d++)
        order += !partition->whole[d];
    return order;
}
