/* Muon's matrices: weights of 2 and more dimensions that the config does not leave to AdamW, or their parts. */

#include "muon_matrix.h"

#include "base/alloc.h"
#include "optim/registry/names.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

int lt_muon_outputs_dim(const lt_param *param)
{
    return lt_optim_weight_is_in_by_out(param);
}

int64_t lt_muon_outputs(const lt_muon_matrix *x)
{
    return lt_muon_outputs_dim(x->slot->param) ? x->cols : x->rows;
}

lt_shape lt_muon_matrix_shape(const lt_muon_matrix *x)
{
    return lt_split_shape(x->split, lt_tensor_shape(x->slot->param->value));
}

lt_view lt_muon_matrix_of(const lt_muon_matrix *x, const lt_tensor *tensor)
{
    const lt_view whole = lt_tensor_view(tensor);
    return lt_split_view(x->split, x->part, &whole);
}

static lt_muon_matrix matrix_of_part(lt_slot *slot, lt_split split, int part)
{
    lt_muon_matrix x = {.slot = slot, .split = split, .part = part};
    const lt_shape shape = lt_muon_matrix_shape(&x);
    const double last = (double)shape.dim[shape.ndim - 1],
                 other = (double)shape.dim[shape.ndim - 2];
    x.rows = shape.dim[0];
    x.cols = lt_shape_count(shape) / x.rows;
    x.tall = lt_optim_weight_is_in_by_out(slot->param) ? last / other : other / last;
    x.dim = x.rows > x.cols;
    x.small = x.dim ? x.cols : x.rows;
    return x;
}

/* Sets adamw, and the number of matrices of the other parameters. */
static lt_status choose_adamw(const lt_muon_config *c, const lt_optim *optim, const lt_split *split,
                              bool *adamw, size_t *count)
{
    LT_TRY(lt_name_regex_match(&c->adamw_params, "muon: adamw_params", optim, adamw));
    *count = 0;
    for (size_t i = 0; i < optim->count; i++) {
        const lt_param *param = optim->slot[i].param;
        const lt_shape shape = lt_tensor_shape(param->value);
        adamw[i] =
            adamw[i] || shape.ndim < 2 || param->role != LT_PARAM_WEIGHT || !lt_shape_count(shape);
        *count += adamw[i] ? 0 : (size_t)split[i].parts;
    }
    return LT_OK;
}

static lt_status list_matrices(const lt_muon_config *c, const lt_optim *optim, lt_split *split,
                               bool *adamw, lt_muon_matrix **matrix, size_t *count)
{
    size_t n = 0;
    LT_TRY(lt_splits_match(c->split, "muon", optim, split));
    LT_TRY(choose_adamw(c, optim, split, adamw, count));
    LT_TRY(LT_ALLOC(matrix, *count));
    for (size_t i = 0; i < optim->count; i++)
        for (int k = 0; k < split[i].parts && !adamw[i]; k++)
            (*matrix)[n++] = matrix_of_part(&optim->slot[i], split[i], k);
    return LT_OK;
}

lt_status lt_muon_list_matrices(const lt_muon_config *config, const lt_optim *optim, bool *adamw,
                                lt_muon_matrix **matrix, size_t *count)
{
    lt_split *split = NULL;
    LT_TRY(LT_ALLOC(&split, optim->count));
    lt_status st = list_matrices(config, optim, split, adamw, matrix, count);
    lt_free(split);
    return st;
}
