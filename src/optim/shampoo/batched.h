/* Batched kernels: one call of the backend for all active blocks of a batch. */
#ifndef LT_OPTIM_SHAMPOO_BATCHED_H
#define LT_OPTIM_SHAMPOO_BATCHED_H

#include "optim/shampoo/shampoo.h"

/* Makes the job of one block; false: nothing to do for it. */
typedef bool lt_vec_rule(const lt_shampoo *s, lt_block *block, lt_vec_job *job);
/* One batched kernel for all active blocks of a batch. */
lt_status lt_shampoo_vec(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *rule);

/* The same for several rules, which see a block by turns: all elements pass once where the backend
 * can do that. Views of a block's jobs have one shape. A NULL is no rule. ends: p is not used after them. */
lt_status lt_shampoo_vecs(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *const *rule,
                          size_t count, bool ends);

/* Norms of the spare buffers of active blocks that pass the test (NULL: all), each at lt_shampoo_norm_at(), and that of a
 * 1 at lt_shampoo_norm_at(s, s->count): vec multiplies by a quotient. */
lt_status lt_shampoo_measure_outputs(lt_shampoo *s, lt_block_batch batch,
                                     bool (*test)(const lt_block *));
static inline const double *lt_shampoo_norm_at(const lt_shampoo *s, size_t block)
{
    return (const double *)lt_tensor_view(s->norms).data + block;
}

/* p = p times a matrix of dimension dim, transposed or not, for blocks that have one there. */
lt_status lt_shampoo_product(lt_shampoo *s, lt_block_batch batch, int dim, bool transpose);
/* p times the roots of all dimensions but skip (-1: none). */
lt_status lt_shampoo_precondition(lt_shampoo *s, lt_block_batch batch, int skip);
/* p in the eigenbases of all dimensions, or back. */
lt_status lt_shampoo_rotate(lt_shampoo *s, lt_block_batch batch, bool back);

#endif
