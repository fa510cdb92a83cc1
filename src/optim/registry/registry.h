/* Private declarations of the registry of optimizers: its built-in rows. */
#ifndef LT_OPTIM_REGISTRY_H
#define LT_OPTIM_REGISTRY_H

#include "lather/ext/optim_family.h"

/* Every optimizer of the library that has a name, in the order of --optim's choices: NAME stands for
 * the row lt_optim_family_NAME, in the optimizer's own source. */
#define LT_OPTIM_FAMILIES(X) \
    X(sgd) X(adagrad) X(adam) X(adamw) X(shampoo) X(soap) X(muon) X(lars) X(lamb)

#define LT_OPTIM_DECLARE(name) extern const lt_optim_family lt_optim_family_##name;
LT_OPTIM_FAMILIES(LT_OPTIM_DECLARE)
#undef LT_OPTIM_DECLARE

/* Checks that a row can be used: its name and fields are unique, defaults are in range, and what another
 * of count families calls the same is the same. Errors: LT_E_ARG, naming family and field. */
lt_status lt_optim_check_family(const lt_optim_family *family, const lt_optim_family *const *known,
                                size_t count);

/* The preset of that name, or NULL; name NULL: the first. */
const lt_optim_preset *lt_optim_find_preset(const lt_optim_family *family, const char *name);
/* A copy of a preset's config, or of the published one; for lt_free(). NULL: no memory. */
void *lt_optim_copy_config(const lt_optim_family *family, const void *config);
/* The defaults of JSON's keys. */
const void *lt_optim_published(const lt_optim_family *family);

#endif
