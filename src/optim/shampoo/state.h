/* State of Shampoo's blocks: factors, roots and moments. */
#ifndef LT_OPTIM_SHAMPOO_STATE_H
#define LT_OPTIM_SHAMPOO_STATE_H

#include "optim/shampoo/shampoo.h"

/* Chooses by the config and the block's region which dimensions have factors, and their exponents. */
void lt_block_choose_factors(const lt_shampoo_config *config, lt_block *block);
/* Makes the state of this rank's blocks: zeros and identities. Existing state is unchanged. */
lt_status lt_shampoo_make_state(lt_shampoo *s);
void lt_shampoo_free_state(lt_shampoo *s);
/* Frees the pending tensors of blocks that wait for no swap. */
void lt_shampoo_free_unused_pending(lt_shampoo *s);
/* Returns the bytes of the block's state, or of its factors and roots only. */
int64_t lt_shampoo_block_bytes(const lt_shampoo *s, lt_block *block, bool factors);
/* Functions of the optimizer's table; the worker thread must be idle. */
lt_status lt_shampoo_visit_state(lt_optim *self, lt_state_visitor *visitor);
size_t lt_shampoo_state_bytes(const lt_optim *self);

#endif
