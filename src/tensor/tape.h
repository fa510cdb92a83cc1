/* Private declarations of the tape. */
#ifndef LT_TENSOR_TAPE_H
#define LT_TENSOR_TAPE_H

#include "base/arena.h"
#include "tensor/tensor.h"

#include "lather/ext/op.h"

#include <stdatomic.h>

struct lt_tape {
    lt_device *device;
    lt_pass pass;
    lt_arena arena;     /* nodes, handles and configs; all freed at the reset */
    lt_tensor *handles; /* all handles of the tape, newest first, linked by next */
    lt_node **node;     /* all recorded nodes, in order */
    size_t nodes, node_capacity;
    int64_t ordinal;     /* ordinal of the next operation */
    lt_buffer **scratch; /* scratch buffers of the running forward or backward */
    size_t scratches, scratch_capacity;
    lt_tensor *pending[LT_MAX_INPUTS]; /* gradients that the running backward has begun */
    atomic_bool cancelled;
    lt_status status;
    char message[1024]; /* message of status, as long as a thread's message: cuDNN's are long */
    lt_grad_ready_fn *final;
    void *final_context;
    lt_param_use_fn *read;
    void *read_context;
    int64_t operation; /* number of the running operation, forward and backward counted */
    lt_norm_reduce_fn *norm_reduce;
    void *norm_reduce_context;
};

/* Returns LT_E_CANCELLED if another thread cancelled the pass. */
lt_status lt_tape_check_cancelled(const lt_tape *tape);
/* Returns the dtype of activations in this pass. */
lt_dtype lt_tape_dtype(const lt_tape *tape);
/* Creates a row-major handle without memory. NULL: out of host memory. */
lt_tensor *lt_tape_new_handle(lt_tape *tape, lt_dtype dtype, lt_shape shape);
/* Creates a handle with like's shape and memory format. */
lt_tensor *lt_tape_new_handle_like(lt_tape *tape, const lt_tensor *like, lt_dtype dtype);
/* Allocates a handle's memory. */
lt_status lt_handle_allocate(lt_tensor *handle);
/* Frees a handle's memory, unless it is kept or belongs to a leaf. */
void lt_handle_free(lt_tensor *handle);
void lt_tape_free_scratch(lt_tape *tape);
void lt_node_release_saved(lt_node *node);

/* Returns the bytes of inputs and output: the memory traffic of one pass over them. */
int64_t lt_node_traffic_bytes(const lt_node *node);
/* Returns true if backward will visit this node. */
bool lt_node_is_recorded(const lt_node *node);
/* Runs forward, with trace and scratch. */
lt_status lt_node_forward(lt_node *node);
/* Defers the output; called instead of lt_node_out() by a recomputable operation that is recorded, or by one
 * that is not recorded. The output is computed when an operation or the host reads it (lt_node_in(),
 * lt_tensor_materialize()), or never. If not recorded, the inputs keep their memory until then, or until the
 * output is dropped. */
void lt_node_defer_output(lt_node *node);
/* Releases the inputs of a deferred output that is not recorded, once it has been computed or dropped; else
 * does nothing. */
void lt_node_release_inputs(lt_node *node);

/* Returns true if the input has no gradient yet. */
bool lt_node_is_first_grad(const lt_node *node, int input);
/* Returns memory for the gradient of an input before the node's turn in backward, for a kernel of another node
 * that computes it too. */
lt_status lt_node_grad_out_early(lt_node *node, int input, lt_view *dx);
/* lt_node_grad_out() for a kernel that rounds the gradient to that dtype whatever dx's is. */
lt_status lt_node_grad_out_rounded(lt_node *node, int input, lt_dtype dtype, lt_view *dx);
/* lt_node_grad_out() that reuses the memory of an addend of the output's gradient, if it is host memory and
 * not shared; for kernels that read an element before they write it. Otherwise it returns other memory. */
lt_status lt_node_grad_out_in_place(lt_node *node, int input, int addend, lt_view *dx);
/* Runs forward again, to recompute a freed output. */
lt_status lt_node_recompute(lt_node *node);
/* Makes out a view of the input's memory. */
void lt_node_alias_input(lt_node *node, int input, const int64_t stride[LT_MAX_DIMS]);

#endif
