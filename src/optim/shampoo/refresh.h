/* New roots: when they are due, and in which order. */
#ifndef LT_OPTIM_SHAMPOO_REFRESH_H
#define LT_OPTIM_SHAMPOO_REFRESH_H

#include "optim/shampoo/shampoo.h"

/* Which blocks get new roots inside this step: marks them. */
typedef enum lt_due { LT_DUE_NONE, LT_DUE_SOME, LT_DUE_ALL } lt_due;
lt_due lt_shampoo_mark_due(lt_shampoo *s);
/* Returns true if that is any. */
bool lt_shampoo_has_due_blocks(const lt_shampoo *s);
/* New roots of the marked active blocks of a batch. */
lt_status lt_shampoo_refresh(lt_shampoo *s, lt_block_batch batch);

/* Gives every block its phase, in batches of about so many elements if not 0. Errors: LT_E_NOMEM. */
lt_status lt_shampoo_stagger(lt_shampoo *s, int64_t batch_elements);

#endif
