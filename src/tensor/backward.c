/* Backward: visits nodes in reverse order; each computes the gradients of its inputs.
 *
 * A gradient is a list of at most two addends. Operations that read it twice anyway sum while they read
 * (lt_node_grad_pair()), the others get the sum. A parameter's first contribution after zero_grad is written
 * directly to its gradient, later ones are added to it. */

#include "base/trace.h"
#include "tensor/memory_use.h"
#include "tensor/tape.h"

#include <string.h>

static lt_status add_views(lt_device *device, const lt_view *a, const lt_view *b, const lt_view *y)
{
    return device->backend->add(device->ctx, a, b, y);
}

/* Replaces two addends by their sum. */
static lt_status sum_grad_addends(lt_tensor *t)
{
    if (!t->grad[1])
        return LT_OK;
    lt_tensor *sum = lt_tape_new_handle_like(t->tape, t, t->grad[0]->dtype);
    if (!sum)
        return LT_E_NOMEM;
    LT_TRY(lt_handle_allocate(sum));
    lt_view a = lt_tensor_view(t->grad[0]), b = lt_tensor_view(t->grad[1]);
    lt_view y = lt_tensor_view(sum);
    LT_TRY(add_views(t->device, &a, &b, &y));
    lt_handle_free(t->grad[0]);
    lt_handle_free(t->grad[1]);
    t->grad[0] = sum;
    t->grad[1] = NULL;
    return LT_OK;
}

lt_status lt_node_grad(lt_node *node, lt_view *dy)
{
    LT_TRY(sum_grad_addends(node->out));
    *dy = lt_tensor_view(node->out->grad[0]);
    return LT_OK;
}

lt_status lt_node_grad_pair(lt_node *node, lt_view dy[2])
{
    dy[0] = lt_tensor_view(node->out->grad[0]);
    dy[1] = node->out->grad[1] ? lt_tensor_view(node->out->grad[1]) : (lt_view){0};
    return LT_OK;
}

bool lt_node_needs_grad(const lt_node *node, int input)
{
    return node->in[input] && node->in[input]->wants_grad;
}

bool lt_node_is_first_grad(const lt_node *node, int input)
{
    const lt_tensor *x = node->in[input];
    for (int i = 0; i < input; i++) /* the same tensor may be two inputs */
        if (node->in[i] == x)
            return false;
    return x->param ? !x->param->has_grad : !x->grad[0];
}

/* True if the kernel can write the parameter's gradient itself, as nothing was added to it yet. */
static bool writes_param_grad_directly(const lt_node *node, int input)
{
    return node->in[input]->param && lt_node_is_first_grad(node, input);
}

/* Returns memory in that dtype for the input's gradient, or for a contribution to it. */
static lt_status allocate_grad(lt_node *node, int input, lt_dtype dtype, lt_view *dx)
{
    lt_tensor *x = node->in[input];
    LT_ASSERT(lt_node_needs_grad(node, input));
    if (writes_param_grad_directly(node, input)) {
        lt_tensor_set_dtype(x->param->grad, dtype);
        const lt_memory_owner before =
            lt_memory_set_owner((lt_memory_owner){node->op->name, "gradients"});
        lt_status st = lt_tensor_allocate_raw(x->param->grad);
        (void)lt_memory_set_owner(before);
        LT_TRY(st);
        x->param->has_grad = true;
        *dx = lt_tensor_view(x->param->grad);
        return LT_OK;
    }
    lt_tensor *g = lt_tape_new_handle_like(node->tape, x, dtype);
    if (!g)
        return LT_E_NOMEM;
    LT_TRY(lt_handle_allocate(g));
    node->tape->pending[input] = g;
    *dx = lt_tensor_view(g);
    return LT_OK;
}

lt_status lt_node_grad_out(lt_node *node, int input, lt_view *dx)
{
    return allocate_grad(node, input, node->in[input]->dtype, dx);
}

lt_status lt_node_grad_out_rounded(lt_node *node, int input, lt_dtype dtype, lt_view *dx)
{
    const lt_tensor *x = node->in[input];
    const bool keeps = x->param && x->param->grad->may_round && lt_dtype_size(dtype) == 2;
    return allocate_grad(node, input, keeps ? dtype : x->dtype, dx);
}

/* Makes the input's gradient a tensor like `like`, in dy's memory. */
static lt_status alias_grad_to_dy(lt_node *node, int input, const lt_tensor *like, lt_tensor *dy)
{
    lt_tensor *g = lt_tape_new_handle_like(node->tape, like, like->dtype);
    if (!g)
        return LT_E_NOMEM;
    g->buffer = dy->buffer;
    g->buffer->references++;
    node->tape->pending[input] = g;
    return LT_OK;
}

/* True if the input's gradient can be stored in the addend's memory. */
static bool can_reuse_addend(const lt_node *node, const lt_tensor *x, const lt_tensor *addend)
{
    return addend && node->tape->device->backend->host_memory && !x->param && !addend->source
           && addend->buffer->references == 1 && addend->dtype == x->dtype
           && lt_shape_equal(addend->shape, x->shape)
           && !memcmp(addend->stride, lt_tensor_storage(x)->stride, sizeof addend->stride);
}

lt_status lt_node_grad_out_in_place(lt_node *node, int input, int addend, lt_view *dx)
{
    lt_tensor *x = node->in[input], *dy = node->out->grad[addend];
    LT_ASSERT(lt_node_needs_grad(node, input));
    if (!can_reuse_addend(node, x, dy))
        return lt_node_grad_out(node, input, dx);
    LT_TRY(alias_grad_to_dy(node, input, x, dy));
    *dx = lt_tensor_view(node->tape->pending[input]);
    return LT_OK;
}

lt_status lt_node_grad_out_early(lt_node *node, int input, lt_view *dx)
{
    lt_tensor **pending = &node->tape->pending[input], *of_this_turn = *pending;
    LT_ASSERT(lt_node_is_first_grad(node, input));
    *pending = NULL;
    lt_status st = lt_node_grad_out(node, input, dx);
    if (*pending)
        node->in[input]->grad[0] = *pending;
    *pending = of_this_turn;
    return st;
}

lt_status lt_node_pass_grad_through(lt_node *node, int input)
{
    lt_tensor *x = node->in[input];
    LT_TRY(sum_grad_addends(node->out));
    lt_tensor *dy = node->out->grad[0];
    if (x->param) {
        lt_view from = lt_tensor_view(dy), to;
        LT_TRY(lt_node_grad_out(node, input, &to));
        return lt_device_cast(x->device, &from, &to);
    }
    return alias_grad_to_dy(node, input, dy, dy);
}

/* Adds a complete contribution to the input's gradient. */
static lt_status accumulate_grad(lt_tensor *x, lt_tensor *g)
{
    if (x->param) {
        lt_view a = lt_tensor_view(x->param->grad), b = lt_tensor_view(g);
        if (!a.data)
            return lt_fail(LT_E_ARG,
                           "backward: the gradient of %s was reduced to its owner ranks; call "
                           "lt_params_zero_grad() before the next backward",
                           x->param->name);
        lt_tensor_set_dtype(x->param->grad, x->dtype); /* a sum is not rounded */
        LT_TRY(lt_tensor_allocate_raw(x->param->grad));
        const lt_view sum = lt_tensor_view(x->param->grad);
        LT_TRY(add_views(x->device, &a, &b, &sum)); /* elementwise: in place is safe */
        lt_handle_free(g);
        return LT_OK;
    }
    if (x->grad[1])
        LT_TRY(sum_grad_addends(x));
    x->grad[x->grad[0] ? 1 : 0] = g;
    return LT_OK;
}

static lt_status accumulate_pending_grads(lt_node *node)
{
    lt_status st = LT_OK;
    for (int i = 0; i < LT_MAX_INPUTS; i++) {
        lt_tensor *g = node->tape->pending[i];
        node->tape->pending[i] = NULL;
        if (g && !st)
            st = accumulate_grad(node->in[i], g);
    }
    return st;
}

/* After a node's backward: frees its output, and counts its inputs' remaining contributions. */
static void release_after_backward(lt_node *node)
{
    lt_tape *tape = node->tape;
    lt_tensor *out = node->out;
    lt_node_release_saved(node);
    lt_handle_free(out);
    for (int i = 0; i < 2; i++) {
        if (out->grad[i])
            lt_handle_free(out->grad[i]);
        out->grad[i] = NULL;
    }
    for (int i = 0; i < LT_MAX_INPUTS; i++) {
        lt_tensor *x = node->in[i];
        if (x && !--x->uses && x->param && x->param->has_grad && tape->final)
            tape->final(tape->final_context, x->param);
    }
}

static lt_status run_node_backward(lt_node *node)
{
    lt_status st = LT_OK;
    if (node->out->grad[0]) {
        int64_t begin = lt_trace_begin();
        node->tape->operation++;
        const lt_memory_owner before =
            lt_memory_set_owner((lt_memory_owner){node->op->name, "backward"});
        st = node->op->backward(node);
        (void)lt_memory_set_owner(before);
        lt_trace_end(begin, LT_PROFILE_BACKWARD, node->op->name,
                     begin ? lt_node_traffic_bytes(node) : 0);
        lt_tape_free_scratch(node->tape);
        lt_status committed = accumulate_pending_grads(node);
        st = st ? st : committed;
    }
    release_after_backward(node);
    return st;
}

static lt_status new_loss_grad(const lt_tensor *loss, lt_tensor **out)
{
    lt_tensor *g = lt_tape_new_handle(loss->tape, loss->dtype, loss->shape);
    if (!g)
        return LT_E_NOMEM;
    LT_TRY(lt_handle_allocate(g));
    *out = g;
    return LT_OK;
}

/* Multiplies g with the number in `by`, which only the device knows. */
static lt_status scale_loss_grad(lt_tensor **g, const lt_tensor *loss, const lt_tensor *by)
{
    const lt_device *d = loss->device;
    lt_tensor *factor, *product;
    LT_TRY(new_loss_grad(loss, &factor));
    LT_TRY(new_loss_grad(loss, &product));
    LT_TRY(lt_tensor_copy(factor, by));
    lt_view a = lt_tensor_view(*g), b = lt_tensor_view(factor), y = lt_tensor_view(product);
    LT_TRY(d->backend->mul(d->ctx, &a, &b, &y));
    lt_handle_free(*g);
    lt_handle_free(factor);
    *g = product;
    return LT_OK;
}

static lt_status seed_loss_grad(lt_tape *tape, lt_tensor *loss, double scale, const lt_tensor *by)
{
    char text[LT_SHAPE_TEXT];
    if (!loss || loss->tape != tape)
        return lt_fail(LT_E_ARG, "backward: the loss is not on this tape");
    if (lt_shape_count(loss->shape) != 1)
        return lt_fail(LT_E_SHAPE, "backward: the loss has shape %s, want one element",
                       lt_shape_text(loss->shape, text));
    lt_tensor *g;
    LT_TRY(new_loss_grad(loss, &g));
    LT_TRY(lt_tensor_fill(g, scale));
    if (by)
        LT_TRY(scale_loss_grad(&g, loss, by));
    loss->keep = true;
    loss->grad[0] = g;
    loss->grad[1] = NULL;
    return LT_OK;
}

lt_status lt_tape_backward(lt_tape *tape, lt_tensor *loss, double scale)
{
    return lt_tape_backward_by(tape, loss, scale, NULL);
}

lt_status lt_tape_backward_by(lt_tape *tape, lt_tensor *loss, double scale, const lt_tensor *by)
{
    LT_TRY(lt_tape_status(tape));
    if (!tape->pass.record)
        return lt_fail(LT_E_ARG, "backward: the pass does not record; set lt_pass.record");
    LT_TRY(seed_loss_grad(tape, loss, scale, by));
    lt_status st = LT_OK;
    for (size_t i = tape->nodes; i-- > 0 && !st;) {
        st = lt_tape_check_cancelled(tape);
        if (!st)
            st = run_node_backward(tape->node[i]);
    }
    tape->nodes = 0;
    if (st)
        (void)lt_tape_fail(tape, st);
    return st;
}

lt_tensor *lt_tape_gradient(lt_tape *tape, lt_tensor *variable)
{
    if (!variable || !variable->grad[0])
        return NULL;
    lt_status st = sum_grad_addends(variable);
    return st ? lt_tape_fail(tape, st) : variable->grad[0];
}
