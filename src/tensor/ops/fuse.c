/* What operations may take over from each other. */

#include "tensor/ops/fuse.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

static int64_t groups(const lt_node *conv)
{
    return ((const lt_conv2d_config *)conv->config)->groups;
}

bool lt_fuse_wants_stats(const lt_node *conv)
{
    const lt_device *d = conv->tape->device;
    return d->backend->conv2d_stats && conv->tape->pass.batch_stats && !conv->in[2]
           && groups(conv) == 1 && lt_node_is_recorded(conv);
}

bool lt_fuse_take_stats(lt_node *norm, int slot)
{
    lt_node *conv = norm->in[LT_BATCHNORM2D_X]->producer;
    if (!conv || conv->op != &lt_op_conv2d || conv->tape != norm->tape
        || !conv->saved[LT_CONV2D_STATS])
        return false;
    norm->saved[slot] = conv->saved[LT_CONV2D_STATS];
    conv->saved[LT_CONV2D_STATS] = NULL;
    return true;
}

static bool is_plain_norm(const lt_node *node)
{
    const lt_batchnorm2d_config *c = node ? node->config : NULL;
    return node && node->op == &lt_op_batchnorm2d && c->relu && !c->frozen;
}

bool lt_fuse_leaves_unwritten(const lt_node *norm)
{
    return norm->tape->device->backend->conv2d_norm_stats && norm->tape->pass.batch_stats
           && !lt_node_is_replay(norm) && is_plain_norm(norm) && lt_node_is_recorded(norm);
}

lt_node *lt_fuse_unwritten_before(const lt_node *conv)
{
    const lt_tensor *x = conv->in[0];
    return x->given_back && groups(conv) == 1 && is_plain_norm(x->producer)
                   && x->producer->tape == conv->tape
               ? x->producer
               : NULL;
}

lt_status lt_fuse_views_of(lt_node *norm, lt_fuse_views *v, lt_batchnorm_before *out)
{
    LT_TRY(lt_node_in(norm, LT_BATCHNORM2D_X, &v->x));
    LT_TRY(lt_node_in(norm, LT_BATCHNORM2D_GAMMA, &v->gamma));
    LT_TRY(lt_node_in(norm, LT_BATCHNORM2D_BETA, &v->beta));
    LT_TRY(lt_node_saved(norm, LT_BATCHNORM2D_COEF, &v->coef));
    *out = (lt_batchnorm_before){&v->x, &v->coef, &v->gamma, &v->beta};
    return LT_OK;
}

/* uses: of this convolution alone; grad: nobody gave one before it. */
static bool is_only_reader(const lt_tensor *x)
{
    return x->uses == 1 && !x->grad[0];
}

lt_node *lt_fuse_norm_before(const lt_node *conv)
{
    const lt_tensor *x = conv->in[0];
    lt_node *norm = x->producer;
    if (!conv->tape->device->backend->conv2d_grad_x_sums || groups(conv) != 1
        || !is_plain_norm(norm) || norm->tape != conv->tape)
        return NULL;
    return is_only_reader(x) ? norm : NULL;
}
