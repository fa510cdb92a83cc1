/* State that is kept in fewer bytes, and opened as f32 tensors where a phase uses it: factors and roots by
 * --factor-dtype and --packed-factors, moments by --state-dtype. Without effect on state that is kept as it is
 * used. Blocks without a gradient stay closed. */
#ifndef LT_OPTIM_SHAMPOO_STATE_STORE_H
#define LT_OPTIM_SHAMPOO_STATE_STORE_H

#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/shampoo.h"

/* Sets of a block's state. */
enum { LT_STORED_FACTORS = 1, LT_STORED_ROOTS = 2, LT_STORED_DIAGONALS = 4, LT_STORED_VECTORS = 8 };

LT_MUST_CHECK lt_status lt_shampoo_dequantize(lt_shampoo *s, lt_block_batch batch, int sets);
/* Stores what is open; or lets it go unchanged. */
void lt_shampoo_requantize(lt_shampoo *s, lt_block_batch batch, int sets);
void lt_shampoo_discard_dequantized(lt_shampoo *s, lt_block_batch batch, int sets);
/* Factors and roots of a refresh; closing stores the roots of those that have a new one. */
LT_MUST_CHECK lt_status lt_shampoo_dequantize_tasks(const lt_root_task *tasks, size_t count);
void lt_shampoo_requantize_tasks(const lt_root_task *tasks, size_t count);
/* Elements of the factors, or roots, of a block that are opened together. */
int64_t lt_shampoo_dequantized_elements(const lt_shampoo *s, const lt_block *block);

/* How a state is kept: false: as it is used. */
typedef enum lt_stored_kind {
    LT_STORED_GRAM,
    LT_STORED_ROOT,
    LT_STORED_BASIS,
    LT_STORED_MOMENT,     /* of any sign */
    LT_STORED_NONNEGATIVE /* never negative */
} lt_stored_kind;
bool lt_shampoo_store_format(const lt_shampoo *s, lt_stored_kind what, lt_quantized_format *out);

#endif
