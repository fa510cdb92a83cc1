/* The table of what operations may take over from each other. */

#include "tensor/ops/fuse.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include <stddef.h>
#include <string.h>

enum { BIAS = 2 };                            /* a convolution's input */
enum { X, GAMMA, BETA, RESIDUAL = BETA + 3 }; /* a batch norm's */

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

/* A convolution without bias that evaluates, and nothing will come back to. */
static bool is_evaluated(const lt_node *conv)
{
    const lt_pass *pass = &conv->tape->pass;
    return !pass->record && !pass->batch_stats && !conv->in[BIAS];
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

/* As a residual it is a term of the sum before the relu. */
static bool is_term(const lt_node *norm)
{
    const lt_batchnorm2d_config *c = norm->config;
    return !c->relu && !c->frozen && norm->tape->pass.batch_stats && lt_node_is_recorded(norm);
}

static bool takes_all(const lt_node *norm)
{
    (void)norm;
    return true;
}

/* The backend knows only then a convolution that would read pixels. */
static bool is_trained_in_16_bits(const lt_node *normalize)
{
    const lt_pass *pass = &normalize->tape->pass;
    return pass->record && pass->batch_stats && lt_dtype_size(lt_tape_dtype(normalize->tape)) == 2;
}

static bool lacks_input(const lt_node *conv)
{
    return conv->in[0]->given_back && !has_groups(conv);
}

static bool lacks_residual(const lt_node *norm)
{
    return norm->in[RESIDUAL]->given_back;
}

static bool lacks_image(const lt_node *pool)
{
    return pool->in[0]->given_back;
}

static bool lacks_deferred(const lt_node *norm)
{
    return norm->in[X]->deferred;
}

/* One use is left, this convolution's, and no gradient came before: its gradient is all of it. */
static bool is_only_reader(const lt_node *conv)
{
    const lt_tensor *x = conv->in[0];
    return !has_groups(conv) && x->uses == 1 && !x->grad[0];
}

static bool is_term_along(const lt_node *norm)
{
    return is_term(norm) && lt_batchnorm2d_goes_along(norm);
}

static bool is_plain_along(const lt_node *norm)
{
    return is_plain_norm(norm) && lt_batchnorm2d_goes_along(norm);
}

static bool is_only_pool(const lt_node *pool)
{
    return pool->in[0]->uses == 1 && !pool->in[0]->grad[0];
}

/* Of its residual; and the two share no parameter, which would get two contributions at once. */
static bool is_only_sum(const lt_node *norm)
{
    const lt_batchnorm2d_config *c = norm->config;
    const lt_tensor *r = norm->in[RESIDUAL];
    for (int i = GAMMA; i <= BETA; i++)
        for (int k = GAMMA; k <= BETA; k++)
            if (norm->in[i] == r->producer->in[k])
                return false;
    return r->uses == 1 && !r->grad[0] && !c->frozen && lt_node_wants(norm, X);
}

/* batchnorm2d as a consumer is also that with a residual: they share their functions. */
static const struct pattern {
    const lt_op *producer, *consumer;
    size_t entry; /* of lt_backend: NULL where the backend cannot fuse this */
    bool (*offers)(const lt_node *producer);
    bool (*accepts)(const lt_node *consumer);
    int input; /* of the consumer: the producer's output */
} patterns[LT_FUSIONS] = {
#define ENTRY(name) offsetof(lt_backend, name)
    [LT_FUSE_STATS] = {&lt_op_conv2d, &lt_op_batchnorm2d, ENTRY(conv2d_stats), is_before_norm,
                       takes_all, X},
    [LT_FUSE_APPLY] = {&lt_op_batchnorm2d, &lt_op_conv2d, ENTRY(conv2d_norm_stats),
                       is_deferrable_norm, lacks_input, X},
    [LT_FUSE_APPLY_GRAD_W] = {&lt_op_batchnorm2d, &lt_op_conv2d, ENTRY(conv2d_norm_grad_w),
                              is_plain_norm, lacks_input, X},
    [LT_FUSE_GRAD_SUMS] = {&lt_op_batchnorm2d, &lt_op_conv2d, ENTRY(conv2d_grad_x_sums),
                           is_plain_norm, is_only_reader, X},
    [LT_FUSE_ADD] = {&lt_op_batchnorm2d, &lt_op_batchnorm2d, ENTRY(batchnorm_add), is_term,
                     lacks_residual, RESIDUAL},
    [LT_FUSE_POOL] = {&lt_op_batchnorm2d, &lt_op_maxpool2d, ENTRY(maxpool2d_norm),
                      is_deferrable_norm, lacks_image, X},
    [LT_FUSE_ADD_GRAD] = {&lt_op_batchnorm2d, &lt_op_batchnorm2d, ENTRY(batchnorm_add_grad),
                          is_term_along, is_only_sum, RESIDUAL},
    [LT_FUSE_POOL_GRAD] = {&lt_op_batchnorm2d, &lt_op_maxpool2d, ENTRY(maxpool2d_norm_grad),
                           is_plain_along, is_only_pool, X},
    [LT_FUSE_AFFINE] = {&lt_op_conv2d, &lt_op_batchnorm2d, ENTRY(conv2d_affine), is_evaluated,
                        lacks_deferred, X},
    [LT_FUSE_PIXELS] = {&lt_op_normalize, &lt_op_conv2d, ENTRY(conv2d_pixels_stats),
                        is_trained_in_16_bits, lacks_input, X},
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
    const lt_tensor *input = consumer->in[p->input];
    lt_node *producer = input ? input->producer : NULL;
    LT_ASSERT(consumer->op->forward == p->consumer->forward);
    if (!producer || producer->tape != consumer->tape || !lt_fuse_offers(producer, fusion))
        return NULL;
    return p->accepts(consumer) ? producer : NULL;
}
