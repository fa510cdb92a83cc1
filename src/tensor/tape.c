/* The tape: its handles, passes and leaves. */

#include "tensor/tape.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

lt_status lt_tape_new(lt_tape **out, lt_device *device)
{
    lt_tape *tape = NULL;
    LT_TRY(LT_ALLOC(&tape, 1));
    tape->device = device;
    *out = tape;
    return LT_OK;
}

void lt_tape_free_scratch(lt_tape *tape)
{
    while (tape->scratches)
        lt_buffer_release(&tape->scratch[--tape->scratches]);
}

static void release_handle(lt_tensor *t)
{
    lt_buffer_release(&t->buffer);
    t->grad[0] = t->grad[1] = NULL; /* not owned: they are handles of the tape, released in turn */
}

static void clear_tape(lt_tape *tape)
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
    clear_tape(tape);
    tape->pass = pass;
    if (tape->read)
        (void)tape->read(tape->read_context, NULL, 0);
}

void lt_tape_free(lt_tape **tape)
{
    if (!*tape)
        return;
    clear_tape(*tape);
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

int64_t lt_tape_op_counter(const lt_tape *tape)
{
    return tape->ordinal;
}

void lt_tape_set_op_counter(lt_tape *tape, int64_t ordinal)
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

/* Returns the batch size of the pass: the first size of its first tensor with at least 2 dimensions; 0: no
 * batch. */
static int64_t guess_batch_size(const lt_tape *tape)
{
    const lt_tensor *first = NULL;
    for (const lt_tensor *t = tape->handles; t; t = t->next)
        first = t->shape.ndim > 1 ? t : first;
    return first && first->shape.dim[0] > 1 ? first->shape.dim[0] : 0;
}

/* Adds to an out-of-memory message that half the batch size may fit. */
static void suggest_smaller_batch(const lt_tape *tape)
{
    const int64_t batch = guess_batch_size(tape);
    if (batch)
        (void)lt_fail(LT_E_NOMEM, "%s; a batch of %lld instead of %lld may fit", lt_error_message(),
                      (long long)batch / 2, (long long)batch);
}

lt_tensor *lt_tape_fail(lt_tape *tape, lt_status status)
{
    if (!tape->status && status) {
        tape->status = status;
        if (status == LT_E_NOMEM)
            suggest_smaller_batch(tape);
        snprintf(tape->message, sizeof tape->message, "%s", lt_error_message());
    }
    return NULL;
}

lt_tensor *lt_tape_new_handle(lt_tape *tape, lt_dtype dtype, lt_shape shape)
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

lt_tensor *lt_tape_new_handle_like(lt_tape *tape, const lt_tensor *like, lt_dtype dtype)
{
    lt_tensor *t = lt_tape_new_handle(tape, dtype, like->shape);
    if (t)
        memcpy(t->stride, lt_tensor_storage(like)->stride, sizeof t->stride);
    return t;
}

static lt_tensor *new_leaf(lt_tape *tape, lt_tensor *source, lt_param *param)
{
    if (tape->status)
        return NULL;
    lt_tensor *t = lt_tape_new_handle(tape, source->dtype, source->shape);
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
    return new_leaf(tape, x, NULL);
}

lt_tensor *lt_tape_param(lt_tape *tape, lt_param *param)
{
    for (lt_tensor *t = tape->handles; t; t = t->next)
        if (t->param == param)
            return tape->status ? NULL : t; /* one per parameter: its gradient is complete once */
    return new_leaf(tape, param->value, param);
}

void lt_tape_on_grad_ready(lt_tape *tape, lt_grad_ready_fn *fn, void *context)
{
    tape->final = fn;
    tape->final_context = context;
}

void lt_tape_on_param_use(lt_tape *tape, lt_param_use_fn *fn, void *context)
{
    tape->read = fn;
    tape->read_context = context;
}

void lt_tape_on_norm_reduce(lt_tape *tape, lt_norm_reduce_fn *fn, void *context)
{
    tape->norm_reduce = fn;
    tape->norm_reduce_context = context;
}
