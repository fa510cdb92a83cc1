/* Shampoo's options: derived properties, parsers, and the check for contradictions. */
#ifndef LT_OPTIM_SHAMPOO_SETTINGS_H
#define LT_OPTIM_SHAMPOO_SETTINGS_H

#include "lather/detail/json.h"
#include "lather/detail/vec_kernels.h"
#include "lather/ext/elementary.h"
#include "lather/shampoo.h"

#include <math.h>

static inline bool lt_shampoo_is_kl(const lt_shampoo_config *c)
{
    return c->preconditioner == LT_PRECONDITIONER_KL
           || c->preconditioner == LT_PRECONDITIONER_KL_EIGENDECOMPOSED
           || c->preconditioner == LT_PRECONDITIONER_KL_CORRECTED;
}
static inline bool lt_shampoo_is_eigendecomposed(const lt_shampoo_config *c)
{
    return c->preconditioner == LT_PRECONDITIONER_EIGENDECOMPOSED
           || c->preconditioner == LT_PRECONDITIONER_KL_EIGENDECOMPOSED;
}
static inline bool lt_shampoo_is_corrected(const lt_shampoo_config *c)
{
    return c->preconditioner == LT_PRECONDITIONER_CORRECTED
           || c->preconditioner == LT_PRECONDITIONER_KL_CORRECTED;
}
/* Returns true if powers of eigenvalues are kept along with the bases. */
static inline bool lt_shampoo_has_powers(const lt_shampoo_config *c)
{
    return lt_shampoo_is_eigendecomposed(c) || c->preconditioner == LT_PRECONDITIONER_KL_CORRECTED;
}
/* Returns the exponent of a factor's inverse root. With KL-SOAP roots only enter other factors: Lin et al. 2025. */
static inline double lt_shampoo_root_exponent(const lt_shampoo_config *c, double exponent)
{
    return c->preconditioner == LT_PRECONDITIONER_KL_CORRECTED ? 0.5 : exponent;
}
/* Returns true if the updates of some blocks are orthogonalized. */
static inline bool lt_shampoo_orthogonalizes(const lt_shampoo_config *c)
{
    return c->preconditioner == LT_PRECONDITIONER_SPECTRAL
           || (lt_shampoo_is_corrected(c) && c->orthogonalize);
}
/* Returns true unless the preconditioner is spectral or sign descent, which have no factors. */
static inline bool lt_shampoo_has_factors(const lt_shampoo_config *c)
{
    return c->preconditioner != LT_PRECONDITIONER_SPECTRAL
           && c->preconditioner != LT_PRECONDITIONER_SIGN;
}
/* Returns true if the grafted method has a second moment. */
static inline bool lt_shampoo_has_graft_moment(const lt_shampoo_config *c)
{
    return c->grafting != LT_GRAFTING_NONE && c->grafting != LT_GRAFTING_SGD;
}
/* Returns true if the bias of grafting's second moment is corrected. */
static inline bool lt_shampoo_corrects_graft(const lt_shampoo_config *c)
{
    return c->grafting == LT_GRAFTING_ADAM && c->grafting_beta2 < 1 && !c->grafting_drop_weighting;
}
/* Returns true if weight decay depends on the largest learning rate. */
static inline bool lt_shampoo_decays_by_lr(const lt_shampoo_config *c)
{
    return c->decay_type == LT_DECAY_CORRECTED || c->decay_type == LT_DECAY_INDEPENDENT;
}
/* Returns the weight of a new term in second moments: 1 in AdaGrad's sum, else that of the moving average. */
static inline double lt_shampoo_moment_weight(const lt_shampoo_config *c)
{
    return c->beta2 >= 1 || c->drop_weighting ? 1 : 1 - c->beta2;
}
/* Return the decay of factors and the weight of a new term, if factors see one gradient in factor_frequency. */
static inline double lt_shampoo_factor_decay(const lt_shampoo_config *c)
{
    return c->factor_frequency > 1 ? lt_f64_pow(c->beta2, (double)c->factor_frequency) : c->beta2;
}
static inline double lt_shampoo_factor_weight(const lt_shampoo_config *c)
{
    return c->beta2 >= 1 || c->drop_weighting ? 1 : 1 - lt_shampoo_factor_decay(c);
}
/* Returns true if factors and roots are kept in a state store, in fewer bytes than dense f32. */
static inline bool lt_shampoo_compresses_factors(const lt_shampoo_config *c)
{
    return c->factor_dtype != LT_STATE_F32 || c->packed_factors;
}
/* Replaces markers of defaults in a config whose fields are in range. Errors: LT_E_ARG, naming the contradicting
 * options. */
LT_MUST_CHECK lt_status lt_shampoo_resolve_config(lt_shampoo_config *config);

/* Parsers of inverse_exponent, ignored_basis_change_dims, target_dimensionality, split, one_sided and diagonal. */
lt_status lt_shampoo_set_exponents(void *config, const char *text);
void lt_shampoo_write_exponents(const void *config, char *text, size_t size);
lt_status lt_shampoo_set_ignored_dims(void *config, const char *text);
lt_status lt_shampoo_set_coefficients(void *config, const char *text);
lt_status lt_shampoo_read_coefficients(void *config, const lt_json_value *v);
lt_status lt_shampoo_read_exponents(void *config, const lt_json_value *v);
lt_status lt_shampoo_read_ignored_dims(void *config, const lt_json_value *v);
lt_status lt_shampoo_read_dimensionality(void *config, const lt_json_value *v);
lt_status lt_shampoo_set_split(void *config, const char *text);
lt_status lt_shampoo_read_split(void *config, const lt_json_value *v);
lt_status lt_shampoo_set_one_sided(void *config, const char *text);
lt_status lt_shampoo_read_one_sided(void *config, const lt_json_value *v);
lt_status lt_shampoo_set_diagonal(void *config, const char *text);
lt_status lt_shampoo_read_diagonal(void *config, const lt_json_value *v);

/* Default of lt_shampoo_config.one_sided: tables whose rows are tokens or positions. */
#define LT_SHAMPOO_TABLES                                   \
    {                                                       \
        "embedding|(^|[.])(wte|wpe|pos_embed)([.]|$)", true \
    }

#endif
