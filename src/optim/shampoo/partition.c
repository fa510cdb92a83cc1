/* How a parameter becomes blocks: joined ones fall into parts first, then dimensions merge, then long ones
 * are cut or left without a factor. One-sided tables: Vyas et al., "SOAP: Improving and Stabilizing Shampoo
 * using Adam", 2024, section 7.1; of them and of long dimensions also Anil et al., "Scalable second order
 * optimization for deep learning", 2020, section 3. */

#include "optim/shampoo/partition.h"

#include "base/alloc.h"
#include "optim/registry/names.h"
#include "tensor/tensor.h"

/* --- The parts of a joined parameter --- */

static lt_status split(const lt_shampoo_split *s, const lt_param *param, lt_cut *cut)
{
    const lt_shape shape = lt_tensor_shape(param->value);
    char text[LT_SHAPE_TEXT];
    const int dim = s->dim < 0 ? s->dim + shape.ndim : s->dim;
    if (dim < 0 || dim >= shape.ndim)
        return lt_fail(LT_E_ARG, "shampoo: split: dimension %d of %s, which is %s", s->dim,
                       param->name, lt_shape_text(shape, text));
    if (shape.dim[dim] % s->parts || !shape.dim[dim])
        return lt_fail(LT_E_ARG, "shampoo: split: dimension %d of %s, %s, is not %d equal parts",
                       dim, param->name, lt_shape_text(shape, text), s->parts);
    cut->dim = dim;
    cut->parts = s->parts;
    return LT_OK;
}

/* Later settings replace earlier ones. match: workspace. */
static lt_status split_all(const lt_shampoo_config *c, const lt_optim *optim, lt_cut *cut,
                           bool *match)
{
    for (int k = 0; k < LT_MAX_SPLITS; k++) {
        LT_TRY(lt_names_find(&c->split[k].names, "shampoo: split", optim, match));
        for (size_t i = 0; i < optim->count; i++)
            if (match[i])
                LT_TRY(split(&c->split[k], optim->slot[i].param, &cut[i]));
    }
    return LT_OK;
}

static lt_shape shape_of_part(const lt_cut *cut, lt_shape parameter)
{
    if (parameter.ndim)
        parameter.dim[cut->dim] /= cut->parts;
    return parameter;
}

/* --- Merging --- */

/* All dimensions but the last together; false: that is no table. */
static bool merge_rows(lt_shape shape, lt_merged *out)
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

static void merge(const lt_shampoo_config *c, lt_cut *cut, lt_shape shape, bool one_sided)
{
    cut->limit = c->max_preconditioner_dim;
    if (one_sided && merge_rows(shape, &cut->merged)) {
        cut->whole[0] = true;
        return;
    }
    cut->merged =
        lt_merge_shape(shape, c->max_preconditioner_dim, c->target_dimensionality, c->merge_order);
    for (int d = 0; d < cut->merged.shape.ndim; d++)
        cut->whole[d] = c->large_dims == LT_LARGE_DIMS_WHOLE && cut->limit != LT_NO_LIMIT
                        && cut->merged.shape.dim[d] > cut->limit;
}

/* Where no dimension may have a factor its elements have one each. */
static lt_status choose_diagonal(const lt_shampoo_config *c, lt_cut *cut, const lt_param *param,
                                 bool asked)
{
    cut->diagonal = asked || (cut->merged.shape.ndim && !lt_cut_order(cut))
                    || (c->diagonal_vectors && cut->merged.shape.ndim == 1);
    if (!cut->diagonal || c->preconditioner == LT_PRECONDITIONER_CORRECTED
        || (c->epsilon_rule != LT_EPSILON_PSEUDO_INVERSE && !(c->trace_scaling > 0)))
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "shampoo: %s keeps a diagonal, which contradicts %s: that is damped by epsilon "
                   "alone",
                   param->name,
                   c->trace_scaling > 0 ? "trace_scaling" : "epsilon_rule pseudo_inverse");
}

/* one_sided, diagonal: workspace. */
static lt_status cut_all(const lt_shampoo_config *c, const lt_optim *optim, lt_cut *cut,
                         bool *one_sided, bool *diagonal)
{
    for (size_t i = 0; i < optim->count; i++)
        cut[i] = (lt_cut){.parts = 1};
    LT_TRY(split_all(c, optim, cut, diagonal));
    LT_TRY(lt_names_find(&c->one_sided, "shampoo: one_sided", optim, one_sided));
    LT_TRY(lt_names_find(&c->diagonal, "shampoo: diagonal", optim, diagonal));
    for (size_t i = 0; i < optim->count; i++) {
        const lt_param *param = optim->slot[i].param;
        const lt_shape shape = shape_of_part(&cut[i], lt_tensor_shape(param->value));
        merge(c, &cut[i], shape, one_sided[i] && !diagonal[i]);
        LT_TRY(choose_diagonal(c, &cut[i], param, diagonal[i]));
    }
    return LT_OK;
}

lt_status lt_cut_all(const lt_shampoo_config *config, const lt_optim *optim, lt_cut *cut)
{
    bool *match = lt_alloc(2 * optim->count, sizeof *match);
    if (!match)
        return LT_E_NOMEM;
    lt_status st = cut_all(config, optim, cut, match, match + optim->count);
    lt_free(match);
    return st;
}

/* --- Blocks --- */

/* As if dimensions that stay whole were of extent 1, which no limit cuts. */
static lt_shape cut_shape(const lt_cut *cut)
{
    lt_shape shape = cut->merged.shape;
    for (int d = 0; d < shape.ndim; d++)
        if (cut->whole[d])
            shape.dim[d] = 1;
    return shape;
}

static int64_t boxes_of_part(const lt_cut *cut)
{
    return lt_box_count(cut_shape(cut), cut->limit);
}

int64_t lt_cut_count(const lt_cut *cut)
{
    return cut->parts * boxes_of_part(cut);
}

lt_cut_block lt_cut_at(const lt_cut *cut, int64_t index)
{
    const int64_t boxes = boxes_of_part(cut);
    lt_cut_block b = {.part = (int)(index / boxes),
                      .box = lt_box_at(cut_shape(cut), cut->limit, index % boxes)};
    for (int d = 0; d < b.box.shape.ndim; d++)
        if (cut->whole[d])
            b.box.shape.dim[d] = cut->merged.shape.dim[d];
    return b;
}

lt_shape lt_cut_offset(const lt_cut *cut, int part, const lt_box *box)
{
    const int group = cut->merged.group[cut->dim], d = group < 0 ? 0 : group;
    lt_shape offset = box->offset;
    offset.dim[d] += part * cut->merged.shape.dim[d];
    return offset;
}

lt_view lt_cut_part(const lt_cut *cut, int part, const lt_view *parameter)
{
    lt_view v = *parameter;
    if (cut->parts == 1)
        return v;
    v.shape = shape_of_part(cut, v.shape);
    const int64_t start = part * v.shape.dim[cut->dim] * v.stride[cut->dim];
    if (v.data) /* a tensor may be without memory */
        v.data = (char *)v.data + (size_t)start * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}

int lt_cut_order(const lt_cut *cut)
{
    int order = 0;
    for (int d = 0; d < cut->merged.shape.ndim; d++)
        order += !cut->whole[d];
    return order;
}
