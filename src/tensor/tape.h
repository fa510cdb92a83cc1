/* Inside of the tape. */
#ifndef LT_TENSOR_TAPE_H
#define LT_TENSOR_TAPE_H

#include "base/arena.h"
#include "tensor/tensor.h"

#include "lather/ext/op.h"

#include <stdatomic.h>

struct lt_tape {
    lt_device *device;
    lt_pass pass;
    lt_arena arena;     /* nodes, handles, configs: all die at the reset */
    lt_tensor *handles; /* all of them, newest first, linked by next */
    lt_node **node;     /* recorded ones, in order */
    size_t nodes, node_capacity;
    int64_t ordinal;     /* of the next operation */
    lt_buffer **scratch; /* of the running forward or backward */
    size_t scratches, scratch_capacity;
    lt_tensor *pending[LT_MAX_INPUTS]; /* gradients that the running backward has begun */
    atomic_bool cancelled;
    lt_status status;
    char message[1024]; /* as long as the thread's: what cuDNN says is long */
    lt_param_final_fn *final;
    void *final_context;
    lt_param_read_fn *read;
    void *read_context;
    int64_t operation; /* that runs, forward or backward */
    lt_norm_reduce_fn *norm_reduce;
    void *norm_reduce_context;
};

/* LT_E_CANCELLED if another thread asked for it. */
lt_status lt_tape_check_cancelled(const lt_tape *tape);
/* dtype of activations in this pass. */
lt_dtype lt_tape_dtype(const lt_tape *tape);
/* A handle without memory, row-major. NULL: no host memory. */
lt_tensor *lt_tape_handle(lt_tape *tape, lt_dtype dtype, lt_shape shape);
/* One of like's shape and memory format. */
lt_tensor *lt_tape_handle_like(lt_tape *tape, const lt_tensor *like, lt_dtype dtype);
/* Gives a handle its memory. */
lt_status lt_handle_allocate(lt_tensor *handle);
/* Takes a handle's memory away if nothing needs it any more. */
void lt_handle_settle(lt_tensor *handle);
void lt_handle_give_back(lt_tensor *handle);
void lt_tape_free_scratch(lt_tape *tape);
void lt_node_release_saved(lt_node *node);

/* Bytes of the inputs and the output: what one pass over them moves. */
int64_t lt_node_bytes(const lt_node *node);
/* Whether backward will come by here. */
bool lt_node_is_recorded(const lt_node *node);
/* Runs forward, with trace and scratch. */
lt_status lt_node_forward(lt_node *node);
/* Instead of lt_node_out(), by a recomputable operation that is recorded, or by one that is not recorded: out is
 * computed when an operation or the host reads it (lt_node_in(), lt_tensor_materialize()), or never. Without a
 * record the inputs' memory stays until then, or until out is dropped. */
void lt_node_defer(lt_node *node);
/* Of a deferred output without a record, which is there now or will never be; nothing with one. */
void lt_node_release_inputs(lt_node *node);

/* Whether the input has no gradient yet; memory for it then, ahead of the node's turn in backward. */
bool lt_node_is_first_grad(const lt_node *node, int input);
lt_status lt_node_grad_ahead(lt_node *node, int input, lt_view *dx);
/* As lt_node_grad_out(), by an entry that rounds to that dtype whatever dx's is. */
lt_status lt_node_grad_out_rounded(lt_node *node, int input, lt_dtype dtype, lt_view *dx);
/* As lt_node_grad_out(), in the memory of an addend of the output's gradient where nothing else holds it, in host memory:
 * for kernels that read an element before they write it. Without the addend, or where it is shared, other memory. */
lt_status lt_node_grad_over(lt_node *node, int input, int addend, lt_view *dx);
/* Runs forward again, as where an output is read that was given back. */
lt_status lt_node_replay(lt_node *node);
/* out becomes a view of input's memory. */
void lt_node_alias(lt_node *node, int input, const int64_t stride[LT_MAX_DIMS]);

#endif
