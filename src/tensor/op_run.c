/* Runs an operation; in a pass that records, its node is put on the tape. */

#include "base/alloc.h"
#include "tensor/tape.h"

#include <string.h>

static lt_status new_node(lt_tape *tape, const lt_op *op, lt_tensor *const *inputs, int count,
                          const void *config, lt_node **out)
{
    LT_ASSERT(count <= LT_MAX_INPUTS);
    lt_node *n = lt_arena_alloc(&tape->arena, sizeof *n + op->config_bytes);
    if (!n)
        return LT_E_NOMEM;
    n->op = op;
    n->tape = tape;
    n->ordinal = tape->ordinal++;
    if (op->config_bytes)
        n->config = memcpy(n + 1, config, op->config_bytes);
    for (int i = 0; i < count; i++)
        n->in[i] = inputs[i];
    *out = n;
    return LT_OK;
}

static lt_status check_inputs(const lt_node *node)
{
    if (!node->in[0])
        return lt_fail(LT_E_ARG, "%s: the first input is NULL", node->op->name);
    for (int i = 0; i < LT_MAX_INPUTS; i++)
        if (node->in[i] && node->in[i]->device != node->tape->device)
            return lt_fail(LT_E_ARG, "%s: input %d is on another device", node->op->name, i);
    return LT_OK;
}

static lt_status record_node(lt_tape *tape, lt_node *node)
{
    LT_TRY(LT_GROW(&tape->node, &tape->node_capacity, tape->nodes + 1));
    tape->node[tape->nodes++] = node;
    node->out->producer = node;
    node->out->wants_grad = true;
    bool again = node->op->recomputable && tape->pass.recompute; /* then inputs are read again */
    for (int i = 0; i < LT_MAX_INPUTS; i++) {
        if (!node->in[i])
            continue;
        node->in[i]->uses++;
        node->in[i]->readers += again || !(node->op->backward_ignores & LT_IGNORES_IN(i));
    }
    return LT_OK;
}

static bool is_channels_last(const lt_tensor *t)
{
    const lt_view v = lt_tensor_view(t);
    return lt_view_is_channels_last(&v) && !lt_view_is_contiguous(&v);
}

/* Sets the output's strides. LT_FORMAT_PRESERVE: those of the first input with its shape; channels-last if a 4-D is,
 * for inputs that are both broadcast; else row-major. */
static void set_output_format(lt_node *node, lt_memory_format format)
{
    lt_tensor *out = node->out;
    for (int i = 0; i < LT_MAX_INPUTS && format == LT_FORMAT_PRESERVE; i++)
        if (node->in[i] && lt_shape_equal(node->in[i]->shape, out->shape)) {
            memcpy(out->stride, lt_tensor_storage(node->in[i])->stride, sizeof out->stride);
            return;
        }
    for (int i = 0; i < LT_MAX_INPUTS && format == LT_FORMAT_PRESERVE; i++)
        if (node->in[i] && out->shape.ndim == 4 && is_channels_last(node->in[i]))
            format = LT_FORMAT_CHANNELS_LAST;
    lt_format_strides(out->shape, format, out->stride);
}

static lt_status infer_and_forward(lt_node *node)
{
    lt_tape *tape = node->tape;
    lt_desc desc = {0};
    LT_TRY(check_inputs(node));
    LT_TRY(node->op->infer(node, &desc));
    node->out = lt_tape_new_handle(tape, desc.dtype, desc.shape);
    if (!node->out)
        return LT_E_NOMEM;
    set_output_format(node, desc.format);
    LT_TRY(lt_node_forward(node));
    if (lt_node_is_recorded(node))
        return record_node(tape, node);
    lt_node_release_saved(node);
    return LT_OK;
}

lt_tensor *lt_op_run(lt_tape *tape, const lt_op *op, lt_tensor *const *inputs, int count,
                     const void *config)
{
    if (tape->status)
        return NULL;
    lt_node *node = NULL;
    lt_status st = lt_tape_check_cancelled(tape);
    if (!st)
        st = new_node(tape, op, inputs, count, config, &node);
    if (!st)
        st = infer_and_forward(node);
    return st ? lt_tape_fail(tape, st) : node->out;
}
