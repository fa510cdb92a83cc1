/* The table of fusions: which operations may compute part of one another. */

#include "tensor/ops/fuse.h"

#include "tensor/tape.h"

#include <stddef.h>
#include <string.h>

const char lt_name_conv2d[] = "conv2d", lt_name_batchnorm2d[] = "batchnorm2d",
           lt_name_maxpool2d[] = "maxpool2d", lt_name_normalize[] = "normalize";

static bool has_groups(const lt_node *conv)
{
    return ((const lt_conv2d_config *)conv->config)->groups != 1;
}

/* A recorded convolution without bias, in a pass with batch statistics, precedes a batch norm: that is why
 * it has no bias. */
static bool is_before_norm(const lt_node *conv)
{
    return conv->tape->pass.batch_stats && !conv->in[LT_CONV_B] && !has_groups(conv)
           && lt_node_is_recorded(conv);
}

/* True for a convolution without bias in inference, which no backward will visit. */
static bool is_inference_conv(const lt_node *conv)
{
    const lt_pass *pass = &conv->tape->pass;
    return !pass->record && !pass->batch_stats && !conv->in[LT_CONV_B];
}

/* True for a trainable batch norm with relu; not with a residual, as such a norm cannot be a producer. */
static bool is_norm_with_relu(const lt_node *norm)
{
    const lt_batchnorm2d_config *c = norm->config;
    return c->relu && !c->frozen && !norm->in[LT_NORM_RESIDUAL];
}

static bool is_deferrable_norm(const lt_node *norm)
{
    return is_norm_with_relu(norm) && norm->tape->pass.batch_stats && lt_node_is_recorded(norm);
}

/* True for a batch norm without relu, whose output another norm may add as its residual. */
static bool is_residual_norm(const lt_node *norm)
{
    const lt_batchnorm2d_config *c = norm->config;
    return !c->relu && !c->frozen && !norm->in[LT_NORM_RESIDUAL] && norm->tape->pass.batch_stats
           && lt_node_is_recorded(norm);
}

static bool accepts_any(const lt_node *norm)
{
    (void)norm;
    return true;
}

/* True in training in 16 bits: only then do backends have a convolution that reads pixels. */
static bool is_trained_in_16_bits(const lt_node *normalize)
{
    const lt_pass *pass = &normalize->tape->pass;
    return pass->record && pass->batch_stats && lt_dtype_size(lt_tape_dtype(normalize->tape)) == 2;
}

static bool has_freed_conv_input(const lt_node *conv)
{
    return conv->in[0]->freed && !has_groups(conv);
}

static bool has_freed_residual(const lt_node *norm)
{
    return norm->in[LT_NORM_RESIDUAL]->freed;
}

static bool has_freed_pool_input(const lt_node *pool)
{
    return pool->in[0]->freed;
}

static bool has_deferred_input(const lt_node *norm)
{
    return norm->in[LT_NORM_X]->deferred;
}

/* True if the convolution is the last reader of its input and the first to add to its gradient: it computes
 * all of it. */
static bool is_conv_only_reader(const lt_node *conv)
{
    const lt_tensor *x = conv->in[0];
    return !has_groups(conv) && x->uses == 1 && !x->grad[0];
}

static bool is_fusable_residual_norm(const lt_node *norm)
{
    return is_residual_norm(norm) && lt_batchnorm2d_can_fuse_grad(norm);
}

static bool is_fusable_norm(const lt_node *norm)
{
    return is_norm_with_relu(norm) && lt_batchnorm2d_can_fuse_grad(norm);
}

static bool is_pool_only_reader(const lt_node *pool)
{
    return pool->in[0]->uses == 1 && !pool->in[0]->grad[0];
}

/* True if the norm computes all of its residual's gradient, and shares no parameter with the residual's
 * norm, since that parameter would get two contributions at once. */
static bool is_norm_only_reader(const lt_node *norm)
{
    const lt_batchnorm2d_config *c = norm->config;
    const lt_tensor *r = norm->in[LT_NORM_RESIDUAL];
    for (int i = LT_NORM_GAMMA; i <= LT_NORM_BETA; i++)
        for (int k = LT_NORM_GAMMA; k <= LT_NORM_BETA; k++)
            if (norm->in[i] == r->producer->in[k])
                return false;
    return r->uses == 1 && !r->grad[0] && !c->frozen && lt_node_needs_grad(norm, LT_NORM_X);
}

static const struct pattern {
    const char *producer, *consumer; /* names */
    /* Offset of the kernel in lt_backend; NULL there means that the backend cannot fuse the pair. */
    size_t entry;
    bool (*offers)(const lt_node *producer);
    bool (*accepts)(const lt_node *consumer);
    int input; /* consumer's input that is the producer's output */
} patterns[LT_FUSIONS] = {
#define ENTRY(name) offsetof(lt_backend, name)
    [LT_FUSE_STATS] = {lt_name_conv2d, lt_name_batchnorm2d, ENTRY(conv2d_stats), is_before_norm,
                       accepts_any, 0},
    [LT_FUSE_APPLY] = {lt_name_batchnorm2d, lt_name_conv2d, ENTRY(conv2d_norm_stats),
                       is_deferrable_norm, has_freed_conv_input, 0},
    [LT_FUSE_APPLY_GRAD_W] = {lt_name_batchnorm2d, lt_name_conv2d, ENTRY(conv2d_norm_grad_w),
                              is_norm_with_relu, has_freed_conv_input, 0},
    [LT_FUSE_GRAD_SUMS] = {lt_name_batchnorm2d, lt_name_conv2d, ENTRY(conv2d_grad_x_sums),
                           is_norm_with_relu, is_conv_only_reader, 0},
    [LT_FUSE_ADD] = {lt_name_batchnorm2d, lt_name_batchnorm2d, ENTRY(batchnorm_add),
                     is_residual_norm, has_freed_residual, LT_NORM_RESIDUAL},
    [LT_FUSE_POOL] = {lt_name_batchnorm2d, lt_name_maxpool2d, ENTRY(maxpool2d_norm),
                      is_deferrable_norm, has_freed_pool_input, 0},
    [LT_FUSE_ADD_GRAD] = {lt_name_batchnorm2d, lt_name_batchnorm2d, ENTRY(batchnorm_add_grad),
                          is_fusable_residual_norm, is_norm_only_reader, LT_NORM_RESIDUAL},
    [LT_FUSE_POOL_GRAD] = {lt_name_batchnorm2d, lt_name_maxpool2d, ENTRY(maxpool2d_norm_grad),
                           is_fusable_norm, is_pool_only_reader, 0},
    [LT_FUSE_AFFINE] = {lt_name_conv2d, lt_name_batchnorm2d, ENTRY(conv2d_affine),
                        is_inference_conv, has_deferred_input, 0},
    [LT_FUSE_PIXELS] = {lt_name_normalize, lt_name_conv2d, ENTRY(conv2d_pixels_stats),
                        is_trained_in_16_bits, has_freed_conv_input, 0},
};

static bool has_backend_kernel(const lt_node *node, size_t entry)
{
    void (*function)(void);
    memcpy(&function, (const char *)node->tape->device->backend + entry, sizeof function);
    return function;
}

bool lt_fuse_can_produce(const lt_node *producer, lt_fusion fusion)
{
    const struct pattern *p = &patterns[fusion];
    return producer->op->name == p->producer && has_backend_kernel(producer, p->entry)
           && p->offers(producer);
}

lt_node *lt_fuse_find_producer(const lt_node *consumer, lt_fusion fusion)
{
    const struct pattern *p = &patterns[fusion];
    const lt_tensor *input = consumer->in[p->input];
    lt_node *producer = input ? input->producer : NULL;
    LT_ASSERT(consumer->op->name == p->consumer);
    if (!producer || producer->tape != consumer->tape || !lt_fuse_can_produce(producer, fusion))
        return NULL;
    return p->accepts(consumer) ? producer : NULL;
}
