/* The phases of a step on the blocks of a batch whose gradient is gathered, in this order. */
#ifndef LT_OPTIM_SHAMPOO_PHASES_H
#define LT_OPTIM_SHAMPOO_PHASES_H

#include "optim/shampoo/batched.h"

lt_status lt_shampoo_update_factors(lt_shampoo *s, lt_block_batch batch);
/* Blocks that keep a diagonal: its update; p times its power. */
lt_status lt_shampoo_diagonal_moment(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_diagonal(lt_shampoo *s, lt_block_batch batch);
/* p becomes its orthogonal factor, or its signs: spectral.c. */
lt_status lt_shampoo_spectral(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_sign(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_precondition_gradient(lt_shampoo *s, lt_block_batch batch);
/* The update of the grafted method's own second moment, or NULL. */
lt_vec_rule *lt_shampoo_graft_moment(const lt_shampoo *s);
/* p = graft(u): before the first roots. */
lt_status lt_shampoo_graft_only(lt_shampoo *s, lt_block_batch batch);
/* Norms of graft(u) and of p, block by block; what gives p the first, or NULL: the update's first pass over p does it. */
lt_status lt_shampoo_graft_norm(lt_shampoo *s, lt_block_batch batch);
lt_vec_rule *lt_shampoo_graft_rescale(const lt_shampoo *s);
lt_status lt_shampoo_update(lt_shampoo *s, lt_block_batch batch);

#endif
