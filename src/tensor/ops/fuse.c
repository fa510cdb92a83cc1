/* The table of what operations may take over from each other. */

#include "tensor/ops/fuse.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include <stddef.h>
#include <string.h>

enum { BIAS = 2 }; /* a convolution's input */

static bool has_groups(const lt_node *conv)
{
    return ((const lt_conv2d_config *)conv->config)->groups != 1;
}

/* A convolution without bias, in a pass with statistics of the batch, has a batch norm behind it: that is
 * why it has no bias. */
static bool is_before_norm(const lt_node *conv)
{
    return conv->tape->pass.batch_stats && !conv->in[BIAS] && !has_groups(conv)
           && lt_node_is_recorded(conv);
}

static bool is_plain_norm(const lt_node *norm)
{
    const lt_batchnorm2d_config *c = norm->config;
    return c->relu && !c->frozen;
}

static bool is_deferrable_norm(const lt_node *norm)
{
    return is_plain_norm(norm) && norm->tape->pass.batch_stats && lt_node_is_recorded(norm);
}

static bool takes_all(const lt_node *norm)
{
    (void)norm;
    return true;
}

static bool lacks_input(const lt_node *conv)
{
    return conv->in[0]->given_back && !has_groups(conv);
}

/* One use is left, this convolution's, and no gradient came before: its gradient is all of it. */
static bool is_only_reader(const lt_node *conv)
{
    const lt_tensor *x = conv->in[0];
    return !has_groups(conv) && x->uses == 1 && !x->grad[0];
}

/* batchnorm2d as a consumer is also that with a residual: they share their functions. */
static const struct pattern {
    const lt_op *producer, *consumer;
    size_t entry; /* of lt_backend: NULL where the backend cannot fuse this */
    bool (*offers)(const lt_node *producer);
    bool (*accepts)(const lt_node *consumer);
} patterns[LT_FUSIONS] = {
#define ENTRY(name) offsetof(lt_backend, name)
    [LT_FUSE_STATS] = {&lt_op_conv2d, &lt_op_batchnorm2d, ENTRY(conv2d_stats), is_before_norm,
                       takes_all},
    [LT_FUSE_APPLY] = {&lt_op_batchnorm2d, &lt_op_conv2d, ENTRY(conv2d_norm_stats),
                       is_deferrable_norm, lacks_input},
    [LT_FUSE_APPLY_GRAD_W] = {&lt_op_batchnorm2d, &lt_op_conv2d, ENTRY(conv2d_norm_grad_w),
                              is_plain_norm, lacks_input},
    [LT_FUSE_GRAD_SUMS] = {&lt_op_batchnorm2d, &lt_op_conv2d, ENTRY(conv2d_grad_x_sums),
                           is_plain_norm, is_only_reader},
};

static bool has_entry(const lt_node *node, size_t entry)
{
    void (*function)(void);
    memcpy(&function, (const char *)node->tape->device->backend + entry, sizeof function);
    return function;
}

bool lt_fuse_offers(const lt_node *producer, lt_fusion fusion)
{
    const struct pattern *p = &patterns[fusion];
    return producer->op == p->producer && has_entry(producer, p->entry) && p->offers(producer);
}

lt_node *lt_fuse_producer(const lt_node *consumer, lt_fusion fusion)
{
    const struct pattern *p = &patterns[fusion];
    lt_node *producer = consumer->in[0]->producer;
    LT_ASSERT(consumer->op->forward == p->consumer->forward);
    if (!producer || producer->tape != consumer->tape || !lt_fuse_offers(producer, fusion))
        return NULL;
    return p->accepts(consumer) ? producer : NULL;
}
