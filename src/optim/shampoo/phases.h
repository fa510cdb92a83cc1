/* Phases of a step, in this order, on the blocks of a batch whose gradient is gathered. */
#ifndef LT_OPTIM_SHAMPOO_PHASES_H
#define LT_OPTIM_SHAMPOO_PHASES_H

#include "optim/shampoo/batched.h"

lt_status lt_shampoo_update_factors(lt_shampoo *s, lt_block_batch batch);
/* Diagonal blocks: updates v; multiplies p by its power. */
lt_status lt_shampoo_diagonal_moment(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_diagonal(lt_shampoo *s, lt_block_batch batch);
/* Replaces p by its orthogonal factor, or by its signs: spectral.c. */
lt_status lt_shampoo_spectral(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_sign(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_precondition_gradient(lt_shampoo *s, lt_block_batch batch);
/* Returns the rule that updates the grafted method's second moment, or NULL if it has none. */
lt_vec_rule *lt_shampoo_graft_moment(const lt_shampoo *s);
/* p = graft(u), used before the first inverse roots. */
lt_status lt_shampoo_graft_only(lt_shampoo *s, lt_block_batch batch);
/* Measures the norms of graft(u) and of p per block; and returns the rule that rescales p to the first, or NULL:
 * the first pass of the update applies it. */
lt_status lt_shampoo_graft_norm(lt_shampoo *s, lt_block_batch batch);
lt_vec_rule *lt_shampoo_graft_rescale(const lt_shampoo *s);
lt_status lt_shampoo_update(lt_shampoo *s, lt_block_batch batch);

#endif
