/* Access of fused operations to each other's nodes. */

#include "tensor/ops/fused_nodes.h"

#include "tensor/tape.h"

lt_tensor *lt_conv2d_take_stats(lt_node *conv, bool *sums)
{
    *sums = conv->saved[LT_CONV_SUMS];
    lt_tensor *stats = conv->saved[*sums ? LT_CONV_SUMS : LT_CONV_STATS];
    conv->saved[LT_CONV_STATS] = conv->saved[LT_CONV_SUMS] = NULL;
    return stats;
}

lt_status lt_conv2d_get_views(lt_node *conv, lt_view *x, lt_view *w)
{
    LT_TRY(lt_node_in(conv, LT_CONV_X, x));
    return lt_node_in(conv, LT_CONV_W, w);
}

bool lt_batchnorm2d_uses_batch_stats(const lt_node *node)
{
    const lt_batchnorm2d_config *c = node->config;
    return lt_tape_pass(node->tape).batch_stats && !c->frozen;
}

double lt_batchnorm2d_values_per_channel(const lt_node *node)
{
    lt_shape x = node->in[LT_NORM_X]->shape;
    const int64_t values = lt_shape_count(x) / x.dim[1];
    return lt_batchnorm2d_uses_batch_stats(node) ? (double)values : 0;
}

bool lt_batchnorm2d_has_local_sums(const lt_node *node)
{
    return lt_node_needs_grad(node, LT_NORM_X) && !node->tape->norm_reduce;
}

lt_status lt_batchnorm2d_get_views(lt_node *norm, lt_fuse_views *v, lt_batchnorm_before *out)
{
    LT_TRY(lt_node_in(norm, LT_NORM_X, &v->x));
    LT_TRY(lt_node_in(norm, LT_NORM_GAMMA, &v->gamma));
    LT_TRY(lt_node_in(norm, LT_NORM_BETA, &v->beta));
    LT_TRY(lt_node_saved(norm, LT_NORM_COEF, &v->coef));
    *out = (lt_batchnorm_before){&v->x, &v->coef, &v->gamma, &v->beta, NULL};
    if (!norm->saved[LT_NORM_ROUNDED])
        return LT_OK;
    out->rounded = &v->rounded;
    return lt_node_saved(norm, LT_NORM_ROUNDED, &v->rounded);
}

lt_status lt_batchnorm2d_alloc_grad_sums(lt_node *norm, lt_view *sums)
{
    return lt_node_save(norm, LT_NORM_SUMS, lt_device_master_dtype(lt_tape_device(norm->tape)),
                        LT_SHAPE(2, norm->in[LT_NORM_X]->shape.dim[1]), sums);
}

bool lt_batchnorm2d_can_fuse_grad(const lt_node *norm)
{
    bool first = lt_batchnorm2d_has_local_sums(norm);
    for (int i = LT_NORM_X; i <= LT_NORM_BETA; i++)
        first = first && (!lt_node_needs_grad(norm, i) || lt_node_is_first_grad(norm, i));
    return first;
}

lt_status lt_batchnorm2d_fused_grad_args(lt_node *norm, lt_fused_grad_views *v,
                                         lt_batchnorm_fused_grad *out)
{
    static const int input[] = {LT_NORM_BETA, LT_NORM_GAMMA};
    *out = (lt_batchnorm_fused_grad){
        &v->x, &v->coef, &v->sums, &v->dx, lt_batchnorm2d_values_per_channel(norm), {{0}}};
    LT_TRY(lt_node_in(norm, LT_NORM_X, &v->x));
    LT_TRY(lt_node_saved(norm, LT_NORM_COEF, &v->coef));
    LT_TRY(lt_batchnorm2d_alloc_grad_sums(norm, &v->sums));
    for (int i = 0; i < 2; i++)
        if (lt_node_needs_grad(norm, input[i]))
            LT_TRY(lt_node_grad_out_early(norm, input[i], &out->affine[i]));
    return lt_node_grad_out_early(norm, LT_NORM_X, &v->dx);
}
