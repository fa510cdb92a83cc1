/** For writing a differentiable operation. Start from examples/swish.c. */
#ifndef LATHER_EXT_OP_H
#define LATHER_EXT_OP_H

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"
#include "lather/tape.h"

typedef struct lt_node lt_node;

/** What an operation says of its output before it exists. */
typedef struct lt_desc {
    lt_dtype dtype;
    lt_shape shape;
    lt_memory_format format; /**< LT_FORMAT_PRESERVE: right for what works element by element */
} lt_desc;

#define LT_IGNORES_IN(i) (1U << (i))
#define LT_IGNORES_OUT   (1U << 31)

/** One operation: its rule for shapes, its value, its gradient. One file, one table. */
typedef struct lt_op {
    const char *name;
    size_t config_bytes; /**< of the op's own config struct; 0: none */
    bool recomputable;   /**< forward can run again in backward; see lt_node_is_replay() */
    /** What backward does not read: LT_IGNORES_IN(0) | LT_IGNORES_OUT. 0: it may read all. */
    unsigned backward_ignores;
    /** Checks the inputs and gives the output's shape and dtype. Touches no data. */
    lt_status (*infer)(const lt_node *node, lt_desc *out);
    /** Fills the output. */
    lt_status (*forward)(lt_node *node);
    /** Gives a gradient to each input that wants one; NULL: not differentiable. */
    lt_status (*backward)(lt_node *node);
} lt_op;

/** Batch norm has most: x, gamma, beta, mean, var, residual, batches. */
enum { LT_MAX_INPUTS = 7, LT_MAX_SAVED = 5 };

/** One recorded call of an operation. The tape owns all of it but the inputs. */
struct lt_node {
    const lt_op *op;
    lt_tape *tape;
    const void *config;           /**< the op's own config struct, copied */
    lt_tensor *in[LT_MAX_INPUTS]; /**< borrowed; NULL for an absent optional one */
    lt_tensor *out;
    lt_tensor *saved[LT_MAX_SAVED]; /**< what backward needs besides in and out */
    int64_t ordinal; /**< of the operation within the pass, from 0; lt_to_format() takes none */
    bool replay;     /**< forward runs again in backward: no side effects */
};

/** Runs op on inputs (count of them; NULL ones are absent) and records it if the pass records.
 *  config: copied, op->config_bytes of it. Returns the output, or NULL if the tape has failed or
 *  a non-optional input is NULL for that reason. Owns: the tape. */
LT_API lt_tensor *lt_op_run(lt_tape *tape, const lt_op *op, lt_tensor *const *inputs, int count,
                            const void *config);

/** What dropout numbers its noise by: operations of the pass so far. A layer that is divided over ranks runs
 *  others than the whole one, and says behind itself how many the whole one would have run:
 *  lt_tape_set_ordinal(tape, before + 3). */
LT_API int64_t lt_tape_ordinal(const lt_tape *tape);
LT_API void lt_tape_set_ordinal(lt_tape *tape, int64_t ordinal);

/** The device's table and its context. */
LT_API const lt_backend *lt_node_backend(const lt_node *node, void **ctx);

/** The data of an input (recomputed in backward if it was dropped), the output, a saved tensor. */
LT_API LT_MUST_CHECK lt_status lt_node_in(lt_node *node, int input, lt_view *view);
LT_API LT_MUST_CHECK lt_status lt_node_out(lt_node *node, lt_view *view);
LT_API LT_MUST_CHECK lt_status lt_node_saved(lt_node *node, int slot, lt_view *view);

/** True inside backward's second run of forward: saved tensors are there, statistics stay. */
LT_API bool lt_node_is_replay(const lt_node *node);

/** Makes saved[slot] (uninitialised), to be filled in forward. It lives until the node's backward;
 *  in a pass that does not record, until forward returns. Of the output's shape it has the output's
 *  memory format, else it is row-major. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_node_save(lt_node *node, int slot, lt_dtype dtype, lt_shape shape,
                                            lt_view *view);
/** Scratch memory until this call of forward or backward returns, in the same memory format.
 *  Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_node_scratch(lt_node *node, lt_dtype dtype, lt_shape shape,
                                               lt_view *view);

/** In backward: the gradient of the output, contributions summed. */
LT_API LT_MUST_CHECK lt_status lt_node_grad(lt_node *node, lt_view *dy);
/** In backward: the same as one or two addends, for kernels that add while they read;
 *  dy[1].data is NULL if there is one. */
LT_API LT_MUST_CHECK lt_status lt_node_grad_pair(lt_node *node, lt_view dy[2]);

/** In backward: whether input wants a gradient. False for absent inputs. */
LT_API bool lt_node_wants(const lt_node *node, int input);
/** In backward: memory for the gradient of an input, shaped like it, to be overwritten; it counts
 *  when backward returns. dtype: the input's, or the master dtype for parameters. */
LT_API LT_MUST_CHECK lt_status lt_node_grad_out(lt_node *node, int input, lt_view *dx);
/** In backward: the input's gradient is the output's, as it is (same shape and dtype, or a view). */
LT_API LT_MUST_CHECK lt_status lt_node_grad_pass(lt_node *node, int input);

/** The tape's callback for ranks on saved[slot] (see lt_tape_on_norm_reduce()); nothing if none is set. */
LT_API LT_MUST_CHECK lt_status lt_node_norm_reduce(lt_node *node, lt_norm_reduce op, int slot);

#endif
