/* Schedule of refreshes, and the refresh itself. */
#ifndef LT_OPTIM_SHAMPOO_REFRESH_H
#define LT_OPTIM_SHAMPOO_REFRESH_H

#include "optim/shampoo/shampoo.h"

/* Marks the blocks that are refreshed within this step. */
typedef enum lt_due { LT_DUE_NONE, LT_DUE_SOME, LT_DUE_ALL } lt_due;
lt_due lt_shampoo_mark_due(lt_shampoo *s);
/* Returns true if any block is. */
bool lt_shampoo_has_due_blocks(const lt_shampoo *s);
/* Refreshes the marked active blocks of a batch. */
lt_status lt_shampoo_refresh(lt_shampoo *s, lt_block_batch batch);

/* Assigns every block to a phase, in batches of about batch_elements if not 0. Errors: LT_E_NOMEM. */
lt_status lt_shampoo_stagger(lt_shampoo *s, int64_t batch_elements);

#endif
