/* An operation's access to its node: data, saved tensors, scratch.
 *
 * An intermediate's memory is allocated when its operation writes it, and freed
 *  - in a pass that does not record, when dropped;
 *  - when dropped, if no recorded backward reads it, or if its operation can recompute it;
 *  - in backward, after its producer's turn;
 *  - at the reset. */

#include "base/alloc.h"
#include "base/trace.h"
#include "tensor/memory_use.h"
#include "tensor/tape.h"

#include <string.h>

const lt_backend *lt_node_backend(const lt_node *node, void **ctx)
{
    *ctx = node->tape->device->ctx;
    return node->tape->device->backend;
}

bool lt_node_is_replay(const lt_node *node)
{
    return node->replay;
}

int64_t lt_node_traffic_bytes(const lt_node *node)
{
    size_t bytes = lt_tensor_bytes(node->out);
    for (int i = 0; i < LT_MAX_INPUTS; i++)
        bytes += node->in[i] ? lt_tensor_bytes(node->in[i]) : 0;
    return (int64_t)bytes;
}

bool lt_node_is_recorded(const lt_node *node)
{
    if (!node->tape->pass.record || !node->op->backward)
        return false;
    for (int i = 0; i < LT_MAX_INPUTS; i++)
        if (node->in[i] && node->in[i]->wants_grad)
            return true;
    return false;
}

/* Adds the tensor's dtype, shape and producer to the error message. */
static lt_status fail_out_of_memory(const lt_tensor *handle)
{
    char shape[LT_SHAPE_TEXT];
    return lt_fail(LT_E_NOMEM, "%s; requested for %s %s%s%s", lt_error_message(),
                   lt_dtype_name(handle->dtype), lt_shape_text(handle->shape, shape),
                   handle->producer ? ", the output of " : "",
                   handle->producer ? handle->producer->op->name : "");
}

lt_status lt_handle_allocate(lt_tensor *handle)
{
    size_t bytes;
    LT_TRY(lt_shape_bytes(handle->shape, handle->dtype, &bytes));
    handle->freed = false;
    lt_status st = lt_buffer_new(&handle->buffer, handle->device, bytes);
    return st == LT_E_NOMEM ? fail_out_of_memory(handle) : st;
}

void lt_handle_free(lt_tensor *handle)
{
    if (handle->source || handle->keep)
        return;
    const bool deferred = handle->deferred;
    lt_buffer_release(&handle->buffer);
    handle->freed = true;
    handle->deferred = false;
    if (deferred)
        lt_node_release_inputs(handle->producer);
}

static bool can_recompute(const lt_tensor *handle)
{
    return handle->tape->pass.recompute && handle->producer && handle->producer->op->recomputable;
}

/* Frees a handle's memory if it was dropped and nothing needs it any more. */
static void free_if_idle(lt_tensor *handle)
{
    bool idle = !handle->producer || (handle->producer->op->backward_ignores & LT_IGNORES_OUT);
    if (handle->dropped && ((!handle->readers && idle) || can_recompute(handle)))
        lt_handle_free(handle);
}

lt_status lt_node_forward(lt_node *node)
{
    int64_t begin = lt_trace_begin();
    node->tape->operation++;
    const lt_memory_owner before =
        lt_memory_set_owner((lt_memory_owner){node->op->name, "forward"});
    lt_status st = node->op->forward(node);
    (void)lt_memory_set_owner(before);
    lt_trace_end(begin, LT_PROFILE_FORWARD, node->op->name,
                 begin ? lt_node_traffic_bytes(node) : 0);
    lt_tape_free_scratch(node->tape);
    return st;
}

/* Frees inputs that were recomputed for this forward only. */
static void free_recomputed_inputs(const lt_node *n)
{
    for (int i = 0; i < LT_MAX_INPUTS; i++) {
        lt_tensor *x = n->in[i];
        if (x && x->buffer && x->uses == 1 && x->producer && x->producer->op->recomputable
            && (n->op->backward_ignores & LT_IGNORES_IN(i)))
            free_if_idle(x);
    }
}

/* Computes an output that was dropped, or deferred, after recomputing its inputs as needed. */
lt_status lt_node_recompute(lt_node *n)
{
    lt_tensor *out = n->out;
    const bool deferred = out->deferred;
    out->deferred = false;
    n->replay = true;
    const lt_memory_owner before = lt_memory_set_owner((lt_memory_owner){n->op->name, "again"});
    lt_status st = n->op->forward(n); /* scratch is freed when the outer operation ends */
    (void)lt_memory_set_owner(before);
    n->replay = false;
    if (st) { /* incomplete results must not be read */
        lt_buffer_release(&out->buffer);
        out->freed = true;
        out->deferred = deferred;
    } else if (deferred) {
        lt_node_release_inputs(n);
    }
    if (!st)
        free_recomputed_inputs(n);
    return st;
}

void lt_node_defer_output(lt_node *node)
{
    node->out->freed = node->out->deferred = true;
    if (lt_node_is_recorded(node))
        return;
    node->out->producer = node;
    for (int i = 0; i < LT_MAX_INPUTS; i++)
        if (node->in[i])
            node->in[i]->readers++;
}

void lt_node_release_inputs(lt_node *node)
{
    if (lt_node_is_recorded(node))
        return;
    node->out->producer = NULL;
    for (int i = 0; i < LT_MAX_INPUTS; i++)
        if (node->in[i]) {
            node->in[i]->readers--;
            free_if_idle(node->in[i]);
        }
}

lt_status lt_tensor_materialize(const lt_tensor *tensor)
{
    const lt_tensor *s = lt_tensor_storage(tensor);
    if (!s->deferred || !s->producer)
        return LT_OK;
    lt_status st = lt_node_recompute(s->producer);
    lt_tape_free_scratch(s->tape);
    return st;
}

void lt_tape_keep(lt_tape *tape, lt_tensor *x)
{
    if (!x)
        return;
    x->keep = true;
    lt_status st = lt_tensor_materialize(x); /* computed now, as its inputs may be freed later */
    if (st)
        (void)lt_tape_fail(tape, st);
}

void lt_tape_drop(lt_tape *tape, lt_tensor *x)
{
    if (!x || x->tape != tape)
        return;
    x->dropped = true;
    free_if_idle(x);
}

/* Runs the callback of lt_tape_on_param_use(), which loads values that are not in memory. */
static lt_status load_param(const lt_tape *tape, lt_param *param)
{
    return param && tape->read ? tape->read(tape->read_context, param, tape->operation) : LT_OK;
}

lt_status lt_node_in(lt_node *node, int input, lt_view *view)
{
    LT_ASSERT(node->in[input]);
    const lt_tensor *t =
        lt_tensor_storage(node->in[input]); /* a variable's data may be on another tape */
    if (t->freed && t->producer && (t->deferred || t->producer->op->recomputable))
        LT_TRY(lt_node_recompute(t->producer));
    LT_TRY(load_param(node->tape, node->in[input]->param));
    *view = lt_tensor_view(t);
    if (!view->data)
        return lt_fail(LT_E_ARG,
                       "%s: input %d was freed, because it was dropped or backward ran; "
                       "lt_tape_keep() keeps it",
                       node->op->name, input);
    return LT_OK;
}

lt_status lt_node_out(lt_node *node, lt_view *view)
{
    if (!node->out->buffer)
        LT_TRY(lt_handle_allocate(node->out));
    *view = lt_tensor_view(node->out);
    return LT_OK;
}

void lt_node_alias_input(lt_node *node, int input, const int64_t stride[LT_MAX_DIMS])
{
    const lt_tensor *from = lt_tensor_storage(node->in[input]);
    lt_tensor *out = node->out;
    memcpy(out->stride, stride, sizeof out->stride);
    out->freed = false;
    out->buffer = from->buffer;
    out->buffer->references++;
}

/* Sets the output's strides if the shape is the output's; else row-major ones. */
static void choose_saved_strides(const lt_node *node, lt_shape shape, int64_t stride[LT_MAX_DIMS])
{
    if (lt_shape_equal(shape, node->out->shape))
        memcpy(stride, node->out->stride, sizeof node->out->stride);
    else
        lt_row_major_strides(shape, stride);
}

lt_status lt_node_save(lt_node *node, int slot, lt_dtype dtype, lt_shape shape, lt_view *view)
{
    if (!node->saved[slot]) {
        node->saved[slot] = lt_tape_new_handle(node->tape, dtype, shape);
        if (!node->saved[slot])
            return LT_E_NOMEM;
        choose_saved_strides(node, shape, node->saved[slot]->stride);
        LT_TRY(lt_handle_allocate(node->saved[slot]));
    }
    return lt_node_saved(node, slot, view);
}

lt_status lt_node_saved(lt_node *node, int slot, lt_view *view)
{
    LT_ASSERT(node->saved[slot]);
    if (!node->saved[slot]->buffer) /* backward freed it, but an operation reads the output again */
        return lt_fail(
            LT_E_ARG,
            "%s: its output cannot be recomputed after backward, which freed the saved tensors; "
            "lt_tape_keep() keeps the output",
            node->op->name);
    *view = lt_tensor_view(node->saved[slot]);
    return LT_OK;
}

void lt_node_release_saved(lt_node *node)
{
    for (int i = 0; i < LT_MAX_SAVED; i++)
        if (node->saved[i])
            lt_buffer_release(&node->saved[i]->buffer);
}

lt_status lt_node_scratch(lt_node *node, lt_dtype dtype, lt_shape shape, lt_view *view)
{
    lt_tape *tape = node->tape;
    size_t bytes;
    LT_TRY(lt_shape_bytes(shape, dtype, &bytes));
    LT_TRY(LT_GROW(&tape->scratch, &tape->scratch_capacity, tape->scratches + 1));
    lt_buffer *b;
    LT_TRY(lt_buffer_new(&b, tape->device, bytes));
    tape->scratch[tape->scratches++] = b;
    *view = (lt_view){.data = lt_chunk_data(b->chunk), .dtype = dtype, .shape = shape};
    choose_saved_strides(node, shape, view->stride);
    return LT_OK;
}

lt_status lt_node_norm_reduce(lt_node *node, lt_norm_reduce op, int slot)
{
    lt_tape *tape = node->tape;
    return tape->norm_reduce ? tape->norm_reduce(tape->norm_reduce_context, op, node->saved[slot])
                             : LT_OK;
}
