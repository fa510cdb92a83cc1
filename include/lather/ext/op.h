/** Interface for writing a differentiable operation. Start from examples/swish.c. */
#ifndef LATHER_EXT_OP_H
#define LATHER_EXT_OP_H

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"
#include "lather/ops.h"
#include "lather/tape.h"

typedef struct lt_node lt_node;

/** Description of an operation's output, made before the output exists. */
typedef struct lt_desc {
    lt_dtype dtype;
    lt_shape shape;
    lt_memory_format format; /**< memory format; LT_FORMAT_PRESERVE suits elementwise operations */
} lt_desc;

#define LT_IGNORES_IN(i) (1U << (i))
#define LT_IGNORES_OUT   (1U << 31)

/** One operation: shape rule, value, gradient. One file defines one table. */
typedef struct lt_op {
    const char *name;
    size_t config_bytes; /**< size of the operation's config struct; 0: none */
    bool recomputable;   /**< forward may run again in backward; see lt_node_is_replay() */
    /** Tensors that backward does not read: LT_IGNORES_IN(0) | LT_IGNORES_OUT. 0: it may read
     *  all. */
    unsigned backward_ignores;
    /** Checks the inputs and returns the output's shape, dtype and format. Reads no data.
     *  Required. */
    lt_status (*infer)(const lt_node *node, lt_desc *out);
    /** Fills the output. Required. */
    lt_status (*forward)(lt_node *node);
    /** Computes the gradient of each input for which lt_node_needs_grad() is true; NULL: not
     *  differentiable. */
    lt_status (*backward)(lt_node *node);
} lt_op;

/** Batch norm has most inputs: x, gamma, beta, mean, var, residual, batches. */
enum { LT_MAX_INPUTS = 7, LT_MAX_SAVED = 5 };

/** One recorded call of an operation. The tape owns all of it except the inputs. */
struct lt_node {
    const lt_op *op;
    lt_tape *tape;
    const void *config;           /**< copy of the operation's config struct */
    lt_tensor *in[LT_MAX_INPUTS]; /**< borrowed; NULL for an absent optional input */
    lt_tensor *out;
    lt_tensor *saved[LT_MAX_SAVED]; /**< further tensors that backward needs */
    /** Index of the operation within the pass, from 0; lt_to_format() is not counted. */
    int64_t ordinal;
    bool replay; /**< forward is running again in backward: no side effects */
};

/** Runs op on `count` inputs (NULL: absent) and records it if the pass records. Copies
 *  op->config_bytes from config. Returns the output, or NULL if the tape has failed. Owns: the
 *  tape. */
LT_API lt_tensor *lt_op_run(lt_tape *tape, const lt_op *op, lt_tensor *const *inputs, int count,
                            const void *config);

/** Returns the number of operations in this pass so far, which selects the random numbers of
 *  dropout. A sharded layer runs other operations than the whole layer: it then sets the count
 *  that the whole layer would have reached, for example lt_tape_set_op_counter(tape, before + 3). */
LT_API int64_t lt_tape_op_counter(const lt_tape *tape);
LT_API void lt_tape_set_op_counter(lt_tape *tape, int64_t ordinal);

/** Returns the kernel table of the device; *ctx gets its context. */
LT_API const lt_backend *lt_node_backend(const lt_node *node, void **ctx);

/** Returns a view of an input (recomputed in backward if it was dropped), of the output, or of a
 *  saved tensor. */
LT_API LT_MUST_CHECK lt_status lt_node_in(lt_node *node, int input, lt_view *view);
LT_API LT_MUST_CHECK lt_status lt_node_out(lt_node *node, lt_view *view);
LT_API LT_MUST_CHECK lt_status lt_node_saved(lt_node *node, int slot, lt_view *view);

/** Returns true if forward is running again in backward: saved tensors already exist, running
 *  statistics must not be updated. */
LT_API bool lt_node_is_replay(const lt_node *node);

/** Creates saved[slot], uninitialised, for forward to fill. It lives until the node's backward;
 *  in a pass that does not record, until forward returns. It has the output's memory format if
 *  it has the output's shape, else it is row-major. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_node_save(lt_node *node, int slot, lt_dtype dtype, lt_shape shape,
                                            lt_view *view);
/** Creates scratch memory that lives until this call of forward or backward returns; memory
 *  format as lt_node_save(). Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_node_scratch(lt_node *node, lt_dtype dtype, lt_shape shape,
                                               lt_view *view);

/** Returns the output's gradient, summed over all contributions; in backward. */
LT_API LT_MUST_CHECK lt_status lt_node_grad(lt_node *node, lt_view *dy);
/** Returns the output's gradient as one or two addends, for kernels that add while they read;
 *  dy[1].data is NULL if there is only one. In backward. */
LT_API LT_MUST_CHECK lt_status lt_node_grad_pair(lt_node *node, lt_view dy[2]);

/** Returns true if the input needs a gradient; false for absent inputs. In backward. */
LT_API bool lt_node_needs_grad(const lt_node *node, int input);
/** Returns memory for the gradient of an input, shaped like it, to be overwritten; it is added
 *  to the input's gradient when backward returns. dtype: the input's, or the master dtype for
 *  parameters. In backward. */
LT_API LT_MUST_CHECK lt_status lt_node_grad_out(lt_node *node, int input, lt_view *dx);
/** Uses the output's gradient, unchanged or viewed under the input's shape, as the input's
 *  gradient. In backward. */
LT_API LT_MUST_CHECK lt_status lt_node_pass_grad_through(lt_node *node, int input);

/** Runs the callback of lt_tape_on_norm_reduce() on saved[slot]; does nothing if none is set. */
LT_API LT_MUST_CHECK lt_status lt_node_norm_reduce(lt_node *node, lt_norm_reduce op, int slot);

#endif
