/** State that checkpoints store: tensors and numbers that optimizers and reducers show one by one. */
#ifndef LATHER_DETAIL_STATE_H
#define LATHER_DETAIL_STATE_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

/** What optimizers keep state in, between steps. */
typedef enum lt_state_dtype {
    LT_STATE_F32,
    LT_STATE_BF16,
    LT_STATE_INT8, /**< in blocks with a scale each */
    LT_STATE_INT4  /**< the same; of Shampoo's factors only */
} lt_state_dtype;

/** One state tensor, as checkpoints store it: independent of the number of ranks. */
typedef struct lt_state_entry {
    const char *param; /**< the parameter's name */
    const char *name;  /**< "m", "factor.0", ... */
    int block;         /**< index within the parameter; -1: of the whole parameter */
    lt_shape offset;   /**< of the block, in the parameter's logical indices after merging */
    lt_shape shape;    /**< of the block there; of the parameter if block is -1 */
    int owner;         /**< the first rank that has it */
    lt_dtype dtype;    /**< of the tensor, also where it is not */
    lt_shape extent;   /**< its shape: that of the block, [n,n] of a factor */
    const struct lt_param
        *box;          /**< the tensor is this rank's box, cut as this parameter; NULL: all of it */
    lt_tensor *tensor; /**< read it to save, write it to load; NULL: on other ranks only */
    struct lt_quantized
        *quantized; /**< or, in its place, what becomes such a tensor; the library's own */
} lt_state_entry;

typedef struct lt_state_visitor {
    lt_status (*entry)(void *context, const lt_state_entry *entry);
    /** A number, not a tensor: "applied". To load, change *value; which tensors of that parameter
     *  are shown after it may depend on it. */
    lt_status (*number)(void *context, const char *name, int64_t *value);
    void *context;
} lt_state_visitor;

#endif
