/* State that is kept in fewer bytes, and opened as f32 tensors where a phase uses it: factors and roots by
 * --factor-dtype and --packed-factors, moments by --state-dtype. Without effect on state that is kept as it is
 * used. Blocks without a gradient stay closed. */
#ifndef LT_OPTIM_SHAMPOO_KEPT_H
#define LT_OPTIM_SHAMPOO_KEPT_H

#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/shampoo.h"

/* Sets of a block's state. */
enum { LT_KEPT_FACTORS = 1, LT_KEPT_ROOTS = 2, LT_KEPT_DIAGONALS = 4, LT_KEPT_VECTORS = 8 };

LT_MUST_CHECK lt_status lt_shampoo_open_kept(lt_shampoo *s, lt_block_batch batch, int sets);
/* Stores what is open; or lets it go unchanged. */
void lt_shampoo_close_kept(lt_shampoo *s, lt_block_batch batch, int sets);
void lt_shampoo_drop_kept(lt_shampoo *s, lt_block_batch batch, int sets);
/* Factors and roots of a refresh; closing stores the roots of those that have a new one. */
LT_MUST_CHECK lt_status lt_shampoo_open_tasks(const lt_root_task *tasks, size_t count);
void lt_shampoo_close_tasks(const lt_root_task *tasks, size_t count);
/* Elements of the factors, or roots, of a block that are opened together. */
int64_t lt_shampoo_opened_elements(const lt_shampoo *s, const lt_block *block);

/* How a state is kept: false: as it is used. */
typedef enum lt_kept_what {
    LT_KEPT_GRAM,
    LT_KEPT_ROOT,
    LT_KEPT_BASIS,
    LT_KEPT_MOMENT,  /* of any sign */
    LT_KEPT_POSITIVE /* never negative */
} lt_kept_what;
bool lt_shampoo_kept_format(const lt_shampoo *s, lt_kept_what what, lt_quantized_format *out);

#endif
