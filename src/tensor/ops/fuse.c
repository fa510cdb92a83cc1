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

/* uses: of this convolution alone; grad: nobody gave one before it. */
static bool is_only_reader(const lt_tensor *x)
{
    return x->uses == 1 && !x->grad[0];
}

lt_node *lt_fuse_norm_before(const lt_node *conv)
{
    const lt_tensor *x = conv->in[0];
    lt_node *norm = x->producer;
    if (!conv->tape->device->backend->conv2d_grad_x_sums || groups(conv) != 1 || !norm
        || norm->op != &lt_op_batchnorm2d || norm->tape != conv->tape)
        return NULL;
    const lt_batchnorm2d_config *c = norm->config;
    return c->relu && is_only_reader(x) ? norm : NULL;
}
