/* The tape: handles, passes, and running an operation.
 *
 * Life of an intermediate's memory: made when its operation writes it; given back
 *  - in a pass that does not record, when dropped;
 *  - when dropped, if no recorded backward reads it, or if its operation can make it again;
 *  - in backward, after its producer's turn;
 *  - at the reset. */

#include "tensor/tape.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

lt_status lt_tape_new(lt_tape **out, lt_device *device)
{
    lt_tape *tape = lt_alloc(1, sizeof *tape);
    if (!tape)
        return LT_E_NOMEM;
    tape->device = device;
    *out = tape;
    return LT_OK;
}

static void release_handle(lt_tensor *t)
{
    lt_buffer_release(&t->buffer);
    t->grad[0] = t->grad[1] = NULL; /* handles too: the list has them */
}

static void clear(lt_tape *tape)
{
    for (lt_tensor *t = tape->handles; t; t = t->next)
        release_handle(t);
    lt_tape_free_scratch(tape);
    memset(tape->pending, 0, sizeof tape->pending);
    tape->handles = NULL;
    tape->nodes = 0;
    tape->ordinal = 0;
    atomic_store_explicit(&tape->cancelled, false, memory_order_relaxed);
    tape->status = LT_OK;
    lt_arena_reset(&tape->arena);
}

void lt_tape_reset(lt_tape *tape, lt_pass pass)
{
    clear(tape);
    tape->pass = pass;
    if (tape->read)
        (void)tape->read(tape->read_context, NULL, 0);
}

void lt_tape_free(lt_tape **tape)
{
    if (!*tape)
        return;
    clear(*tape);
    lt_arena_free(&(*tape)->arena);
    lt_free((*tape)->node);
    lt_free((*tape)->scratch);
    lt_free(*tape);
    *tape = NULL;
}

lt_device *lt_tape_device(const lt_tape *tape)
{
    return tape->device;
}

lt_pass lt_tape_pass(const lt_tape *tape)
{
    return tape->pass;
}

int64_t lt_tape_ordinal(const lt_tape *tape)
{
    return tape->ordinal;
}

void lt_tape_set_ordinal(lt_tape *tape, int64_t ordinal)
{
    tape->ordinal = ordinal;
}

lt_dtype lt_tape_dtype(const lt_tape *tape)
{
    return tape->device->config.f64 ? LT_F64 : tape->pass.dtype;
}

lt_status lt_tape_status(const lt_tape *tape)
{
    return tape->status ? lt_fail(tape->status, "%s", tape->message) : LT_OK;
}

void lt_tape_cancel(lt_tape *tape)
{
    atomic_store_explicit(&tape->cancelled, true, memory_order_relaxed);
}

lt_status lt_tape_check_cancelled(const lt_tape *tape)
{
    return atomic_load_explicit(&tape->cancelled, memory_order_relaxed)
               ? lt_fail(LT_E_CANCELLED, "tape: cancelled by another thread")
               : LT_OK;
}

/* The batch of the pass: what the first tensor on the tape has most of. 0: it is no batch. */
static int64_t batch_of(const lt_tape *tape)
{
    const lt_tensor *first = NULL;
    for (const lt_tensor *t = tape->handles; t; t = t->next)
        first = t->shape.ndim > 1 ? t : first;
    return first && first->shape.dim[0] > 1 ? first->shape.dim[0] : 0;
}

/* What might help where memory ended, whoever wanted it: a tensor, or a library for itself. */
static void advise(const lt_tape *tape)
{
    const int64_t batch = batch_of(tape);
    if (batch)
        (void)lt_fail(LT_E_NOMEM, "%s; a batch of %lld instead of %lld may fit", lt_error_message(),
                      (long long)batch / 2, (long long)batch);
}

lt_tensor *lt_tape_fail(lt_tape *tape, lt_status status)
{
    if (!tape->status && status) {
        tape->status = status;
        if (status == LT_E_NOMEM)
            advise(tape);
        snprintf(tape->message, sizeof tape->message, "%s", lt_error_message());
    }
    return NULL;
}

lt_tensor *lt_tape_handle(lt_tape *tape, lt_dtype dtype, lt_shape shape)
{
    lt_tensor *t = lt_arena_alloc(&tape->arena, sizeof *t);
    if (!t)
        return NULL;
    t->device = tape->device;
    t->tape = tape;
    t->dtype = dtype;
    t->shape = shape;
    lt_row_major_strides(shape, t->stride);
    t->next = tape->handles;
    tape->handles = t;
    return t;
}

lt_tensor *lt_tape_handle_like(lt_tape *tape, const lt_tensor *like, lt_dtype dtype)
{
    lt_tensor *t = lt_tape_handle(tape, dtype, like->shape);
    if (t)
        memcpy(t->stride, lt_tensor_storage(like)->stride, sizeof t->stride);
    return t;
}

/* Says for what there was no memory. */
static lt_status no_memory(const lt_tensor *handle)
{
    char shape[LT_SHAPE_TEXT];
    return lt_fail(LT_E_NOMEM, "%s; it was for %s %s%s%s", lt_error_message(),
                   lt_dtype_name(handle->dtype), lt_shape_text(handle->shape, shape),
                   handle->producer ? ", the output of " : "",
                   handle->producer ? handle->producer->op->name : "");
}

lt_status lt_handle_allocate(lt_tensor *handle)
{
    size_t bytes;
    LT_TRY(lt_shape_bytes(handle->shape, handle->dtype, &bytes));
    handle->given_back = false;
    lt_status st = lt_buffer_new(&handle->buffer, handle->device, bytes);
    return st == LT_E_NOMEM ? no_memory(handle) : st;
}

void lt_handle_give_back(lt_tensor *handle)
{
    if (handle->source || handle->keep)
        return;
    const bool deferred = handle->deferred;
    lt_buffer_release(&handle->buffer);
    handle->given_back = true;
    handle->deferred = false;
    if (deferred)
        lt_node_release_inputs(handle->producer);
}

static bool can_recompute(const lt_tensor *handle)
{
    return handle->tape->pass.recompute && handle->producer && handle->producer->op->recomputable;
}

void lt_handle_settle(lt_tensor *handle)
{
    bool idle = !handle->producer || (handle->producer->op->backward_ignores & LT_IGNORES_OUT);
    if (handle->dropped && ((!handle->readers && idle) || can_recompute(handle)))
        lt_handle_give_back(handle);
}

void lt_tape_keep(lt_tape *tape, lt_tensor *x)
{
    if (!x)
        return;
    x->keep = true;
    lt_status st = lt_tensor_materialize(x); /* now: what it is computed from may be gone later */
    if (st)
        (void)lt_tape_fail(tape, st);
}

void lt_tape_drop(lt_tape *tape, lt_tensor *x)
{
    if (!x || x->tape != tape)
        return;
    x->dropped = true;
    lt_handle_settle(x);
}

static lt_tensor *leaf(lt_tape *tape, lt_tensor *source, lt_param *param)
{
    if (tape->status)
        return NULL;
    lt_tensor *t = lt_tape_handle(tape, source->dtype, source->shape);
    if (!t)
        return lt_tape_fail(tape, LT_E_NOMEM);
    t->source = source;
    t->param = param;
    t->keep = true;
    t->wants_grad = !param || lt_param_is_trained(param);
    return t;
}

lt_tensor *lt_tape_variable(lt_tape *tape, lt_tensor *x)
{
    return leaf(tape, x, NULL);
}

lt_tensor *lt_tape_param(lt_tape *tape, lt_param *param)
{
    for (lt_tensor *t = tape->handles; t; t = t->next)
        if (t->param == param)
            return tape->status ? NULL : t; /* one handle, so that its gradient ends once */
    return leaf(tape, param->value, param);
}

void lt_tape_on_param_final(lt_tape *tape, lt_param_final_fn *fn, void *context)
{
    tape->final = fn;
    tape->final_context = context;
}

void lt_tape_on_param_read(lt_tape *tape, lt_param_read_fn *fn, void *context)
{
    tape->read = fn;
    tape->read_context = context;
}

void lt_tape_on_norm_reduce(lt_tape *tape, lt_norm_reduce_fn *fn, void *context)
{
    tape->norm_reduce = fn;
    tape->norm_reduce_context = context;
}

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
        return lt_fail(LT_E_ARG, "%s: its first input is NULL", node->op->name);
    for (int i = 0; i < LT_MAX_INPUTS; i++)
        if (node->in[i] && node->in[i]->device != node->tape->device)
            return lt_fail(LT_E_ARG, "%s: input %d is on another device", node->op->name, i);
    return LT_OK;
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

static lt_status record(lt_tape *tape, lt_node *node)
{
    lt_node **list = lt_grow(tape->node, &tape->node_capacity, tape->nodes + 1, sizeof(lt_node *));
    if (!list)
        return LT_E_NOMEM;
    tape->node = list;
    tape->node[tape->nodes++] = node;
    node->out->producer = node;
    node->out->wants_grad = true;
    bool again = node->op->recomputable && tape->pass.recompute; /* forward may read them again */
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

/* LT_FORMAT_PRESERVE: as the first input of its shape; channels-last if a 4-D input is, as where
 * each input is broadcast over the other; else row-major. */
static void set_format(lt_node *node, lt_memory_format format)
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

static lt_status run(lt_node *node)
{
    lt_tape *tape = node->tape;
    lt_desc desc = {0};
    LT_TRY(check_inputs(node));
    LT_TRY(node->op->infer(node, &desc));
    node->out = lt_tape_handle(tape, desc.dtype, desc.shape);
    if (!node->out)
        return LT_E_NOMEM;
    set_format(node, desc.format);
    LT_TRY(lt_node_forward(node));
    if (lt_node_is_recorded(node))
        return record(tape, node);
    lt_node_release_saved(node);
    return LT_OK;
}

lt_tensor *lt_op_run(lt_tape *tape, const lt_op *op, lt_tensor *const *inputs, int count,
                     const void *config)
{
    if (tape->status)
        return NULL;
    lt_node *node;
    lt_status st = lt_tape_check_cancelled(tape);
    if (!st)
        st = new_node(tape, op, inputs, count, config, &node);
    if (!st)
        st = run(node);
    return st ? lt_tape_fail(tape, st) : node->out;
}
