/* State of blocks. */
#ifndef LT_OPTIM_SHAMPOO_STATE_H
#define LT_OPTIM_SHAMPOO_STATE_H

#include "optim/shampoo/shampoo.h"

/* Decides by the config and its box which dimensions keep factors, and their exponents. */
void lt_block_choose_factors(const lt_shampoo_config *config, lt_block *block);
/* State of this rank's blocks: zeros, identities. What is there already stays. */
lt_status lt_shampoo_make_state(lt_shampoo *s);
void lt_shampoo_free_state(lt_shampoo *s);
/* Frees pending tensors of blocks that have nothing pending. */
void lt_shampoo_drop_pending(lt_shampoo *s);
/* Bytes of its state, or of factors and roots only. */
int64_t lt_shampoo_block_bytes(const lt_shampoo *s, lt_block *block, bool factors);
/* For the table of the optimizer; nothing is computed on the async thread. */
lt_status lt_shampoo_visit(lt_optim *self, lt_state_visitor *visitor);
size_t lt_shampoo_state_bytes(const lt_optim *self);

#endif
