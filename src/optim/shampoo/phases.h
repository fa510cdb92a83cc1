/* A step, its phases, and batched kernels for them: one backend call for all active blocks of a batch. */
#ifndef LT_OPTIM_SHAMPOO_PHASES_H
#define LT_OPTIM_SHAMPOO_PHASES_H

#include "optim/shampoo/shampoo.h"

/* Callback that fills in the job of one block; returns false if the block needs none. */
typedef bool lt_vec_rule(const lt_shampoo *s, lt_block *block, lt_vec_job *job);
/* Runs one batched kernel over the active blocks of a batch. */
lt_status lt_shampoo_run_rule(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *rule);

/* Applies several rules to each block in turn, in one pass over its elements where the backend can. All views of a
 * block's jobs have one shape. NULL rules are skipped. ends: p is not read afterwards and may be overwritten. */
lt_status lt_shampoo_run_rules(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *const *rule,
                               size_t count, bool ends);

/* Writes the Frobenius norms of the output buffers of active blocks that pass the test (NULL: all) to
 * lt_shampoo_norm_at(), and the norm of 1 to lt_shampoo_norm_at(s, s->count): vec multiplies by a quotient. */
lt_status lt_shampoo_measure_norms(lt_shampoo *s, lt_block_batch batch,
                                   bool (*test)(const lt_block *));
static inline const double *lt_shampoo_norm_at(const lt_shampoo *s, size_t block)
{
    return (const double *)lt_tensor_view(s->norms).data + block;
}

/* Multiplies: p = p times the roots of all dimensions except skip (-1: none). */
lt_status lt_shampoo_precondition(lt_shampoo *s, lt_block_batch batch, int skip);
/* Rotates p into the eigenbases of all dimensions, or back. */
lt_status lt_shampoo_rotate_to_basis(lt_shampoo *s, lt_block_batch batch, bool back);

/* Phases of a step, in this order, on the blocks of a batch whose gradient is gathered. */
lt_status lt_shampoo_update_factors(lt_shampoo *s, lt_block_batch batch);
/* For diagonal blocks: updates v; multiplies p by its power. */
lt_status lt_shampoo_update_diagonals(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_apply_diagonal(lt_shampoo *s, lt_block_batch batch);
/* Returns true if diagonals, or second moments in an eigenbasis, are adjusted in the host's memory; adjusts one, v / c2:
 * trace scaling, and infinity for values whose pseudo-inverse is 0. */
bool lt_shampoo_needs_host_diagonal(const lt_shampoo *s);
void lt_shampoo_adjust_diagonal(const lt_shampoo *s, const lt_view *v);
/* Replaces p by its orthogonal factor, or by its signs: spectral.c. */
lt_status lt_shampoo_orthogonalize(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_replace_by_signs(lt_shampoo *s, lt_block_batch batch);
lt_status lt_shampoo_precondition_gradient(lt_shampoo *s, lt_block_batch batch);
/* Returns the rule that updates the grafted method's second moment, or NULL if it has none. */
lt_vec_rule *lt_shampoo_graft_moment_rule(const lt_shampoo *s);
/* Sets p = graft(u), the update before the first inverse roots exist. */
lt_status lt_shampoo_use_grafted_update(lt_shampoo *s, lt_block_batch batch);
/* Measures the norms of graft(u) and of p per block; and returns the rule that rescales p to the first, or NULL:
 * the first pass of the update applies it. */
lt_status lt_shampoo_measure_graft_norms(lt_shampoo *s, lt_block_batch batch);
lt_vec_rule *lt_shampoo_graft_rescale_rule(const lt_shampoo *s);
lt_status lt_shampoo_update_params(lt_shampoo *s, lt_block_batch batch);
/* Entry for muP: the size of a slot's updates. */
lt_update_size lt_shampoo_update_size(const lt_optim *self, const lt_slot *slot);
/* Returns true if a block's updates are orthogonalized, and the scale of the orthogonal factor. */
bool lt_shampoo_is_orthogonalized(const lt_shampoo_config *config, const lt_block *block);
double lt_shampoo_spectral_scale(const lt_shampoo *s, const lt_block *block);

lt_status lt_shampoo_step(lt_optim *self, const lt_scalars *scalars);
/* Functions of a step in two graphs with host work between them. */
extern const lt_host_phase_ops lt_shampoo_host_phase;
bool lt_shampoo_is_capturable(const lt_optim *self);

/* Returns the factor by which grafting multiplied the block's update in this step; NaN if it did not. Waits for the
 * device. */
double lt_shampoo_graft_ratio(const lt_shampoo *s, const lt_block *block);

#endif
