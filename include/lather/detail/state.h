/** State for checkpoints: tensors and numbers that optimizers and reducers show to a visitor. */
#ifndef LATHER_DETAIL_STATE_H
#define LATHER_DETAIL_STATE_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

/** Format of optimizer state between steps. */
typedef enum lt_state_dtype {
    LT_STATE_F32,
    LT_STATE_BF16,
    LT_STATE_INT8, /**< 8-bit integers in blocks with a scale each */
    LT_STATE_INT4  /**< 4-bit integers in such blocks, for Shampoo's factors only */
} lt_state_dtype;

/** A state tensor in checkpoints, independent of the number of ranks. */
typedef struct lt_state_entry {
    const char *param; /**< name of the parameter */
    const char *name;  /**< name of the state: "m", "factor.0", ... */
    int block;         /**< block index within the parameter; -1: whole parameter */
    lt_shape offset;   /**< offset of the block in the parameter's merged logical indices */
    lt_shape shape;    /**< extent of the block there; the parameter's shape if block is -1 */
    int owner;         /**< first rank that has the tensor */
    lt_dtype dtype;    /**< dtype of the tensor, also on ranks without it */
    lt_shape extent;   /**< shape of the tensor: that of the block, or [n,n] of a factor */
    const struct lt_param
        *sharded_like; /**< parameter whose shard on this rank the tensor matches; NULL: whole */
    lt_tensor *tensor; /**< tensor to save or to load into; NULL: on other ranks only */
    struct lt_quantized
        *quantized; /**< quantized state to be dequantized instead of tensor; private */
} lt_state_entry;

/** Returns the entry of state that belongs to a whole parameter: its logical shape; extent and dtype of its value. The
 *  caller sets tensor, and fields that differ. */
LT_API lt_state_entry lt_state_of(const struct lt_param *param, const char *name);

typedef struct lt_state_visitor {
    lt_status (*entry)(void *context, const lt_state_entry *entry);
    /** A number, such as "applied". To load, change *value; the tensors of that parameter that are shown
     *  afterwards may depend on it. */
    lt_status (*number)(void *context, const char *name, int64_t *value);
    void *context;
} lt_state_visitor;

#endif
