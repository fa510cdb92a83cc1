/* State stores: state kept in fewer bytes between steps and dequantized to f32 tensors by the phases that use it:
 * factors and inverse roots by --factor-dtype and --packed-factors, moments by --state-dtype. Without effect on
 * state that is kept in f32. Blocks without a gradient are not dequantized. */
#ifndef LT_OPTIM_SHAMPOO_STATE_STORE_H
#define LT_OPTIM_SHAMPOO_STATE_STORE_H

#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/shampoo.h"

/* Sets of a block's states; may be combined by |. */
enum { LT_STORED_FACTORS = 1, LT_STORED_ROOTS = 2, LT_STORED_DIAGONALS = 4, LT_STORED_VECTORS = 8 };

LT_MUST_CHECK lt_status lt_shampoo_dequantize(lt_shampoo *s, lt_block_batch batch, int sets);
/* Requantizes the block states that were dequantized; or discards those copies unchanged. */
void lt_shampoo_requantize(lt_shampoo *s, lt_block_batch batch, int sets);
void lt_shampoo_discard_dequantized(lt_shampoo *s, lt_block_batch batch, int sets);
/* Dequantizes the factors and roots of a refresh; requantizing stores the roots of tasks that succeeded. */
LT_MUST_CHECK lt_status lt_shampoo_dequantize_tasks(const lt_root_task *tasks, size_t count);
void lt_shampoo_requantize_tasks(const lt_root_task *tasks, size_t count);
/* Returns the elements of a block's factors (or roots) that are dequantized together. */
int64_t lt_shampoo_dequantized_elements(const lt_shampoo *s, const lt_block *block);

/* Sets the storage format of a kind of state; returns false if it is kept in f32 as it is. */
typedef enum lt_stored_kind {
    LT_STORED_GRAM,
    LT_STORED_ROOT,
    LT_STORED_BASIS,
    LT_STORED_MOMENT,     /* moments of any sign */
    LT_STORED_NONNEGATIVE /* second moments, never negative */
} lt_stored_kind;
bool lt_shampoo_store_format(const lt_shampoo *s, lt_stored_kind what, lt_quantized_format *out);

#endif
