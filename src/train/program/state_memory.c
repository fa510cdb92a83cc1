/* --state-memory adam: shrinks the optimizer's state to the size of Adam's two f32 moments. Uses the first of
 * these settings that fits: the flags'; factors as triangles, in bf16, in int8; moments in bf16, in int8; factors
 * in int4; blocks of half the side, repeatedly. Inverse roots remain in int8 with int4 factors, so these save the
 * least and come last (docs/adr/0065). A smaller dtype requested by a flag is kept. The choice depends on flags
 * and parameters only: a resumed run chooses the same. */

#include "trainer.h"

#include "lather/detail/shampoo_report.h"
#include "lather/log.h"
#include "lather/shampoo.h"

#include <stdio.h>

static const char *const names[] = {"f32", "bf16", "int8", "int4"};
enum { LEAST_BLOCK = 64 };

/* Settings that determine the size of the optimizer's state. */
typedef struct choice {
    bool shampoo, packed;
    lt_state_dtype factors, moments;
    int64_t block;
} choice;

static choice settings_of_flags(const lt_optim *optim, const arguments *args)
{
    const lt_shampoo_config *c = lt_shampoo_settings(optim);
    choice now = {.moments = (lt_state_dtype)args->training.state_dtype};
    if (c) {
        now.shampoo = true;
        now.packed = c->packed_factors;
        now.factors = c->factor_dtype;
        now.block = c->max_preconditioner_dim;
    }
    return now;
}

/* Advances to the next settings; false after the last. */
static bool next_smaller_settings(choice *c)
{
    if (c->shampoo && c->factors == LT_STATE_F32 && !c->packed) {
        c->packed = true;
    } else if (c->shampoo && c->factors < LT_STATE_INT8) {
        c->packed = false;
        c->factors++;
    } else if (c->moments == LT_STATE_F32) {
        c->moments = LT_STATE_BF16;
    } else if (c->moments == LT_STATE_BF16) {
        c->moments = LT_STATE_INT8;
    } else if (c->shampoo && c->factors == LT_STATE_INT8) {
        c->factors = LT_STATE_INT4;
    } else if (c->shampoo && c->block / 2 >= LEAST_BLOCK) {
        c->block /= 2;
    } else {
        return false;
    }
    return true;
}

static lt_status remake_optimizer(lt_optim **optim, arguments *args, const lt_params *params,
                                  const choice *c)
{
    lt_shampoo_config *settings = c->shampoo ? args->optim.settings : NULL;
    lt_optim_free(optim);
    if (settings) {
        settings->packed_factors = c->packed;
        settings->factor_dtype = c->factors;
        settings->max_preconditioner_dim = c->block;
    }
    LT_TRY(lt_optim_flags_make(optim, &args->optim, params));
    return lt_optim_set_state_dtype(*optim, c->moments);
}

/* Returns the allowed bytes, for all ranks together, before sharding. */
static double adam_state_bytes(const lt_params *params)
{
    double elements = 0;
    for (size_t i = 0; i < params->count; i++)
        if (lt_param_is_trained(params->item[i]))
            elements += (double)lt_tensor_count(params->item[i]->value);
    return 2 * sizeof(float) * elements;
}

static lt_status shrink_until_it_fits(lt_optim **optim, arguments *args, const lt_params *params,
                                      int rank)
{
    const double mib = 0x1p20, budget = adam_state_bytes(params);
    choice c = settings_of_flags(*optim, args);
    while ((double)lt_optim_state_bytes(*optim) > budget) {
        const lt_status st = next_smaller_settings(&c) ? remake_optimizer(optim, args, params, &c)
                                                       : LT_E_UNSUPPORTED;
        if (st == LT_E_UNSUPPORTED)
            return lt_fail(
                LT_E_ARG,
                "--state-memory adam: %s needs at least %.1f MiB, Adam's moments take %.1f "
                "MiB",
                lt_optim_name(*optim), (double)lt_optim_state_bytes(*optim) / mib, budget / mib);
        LT_TRY(st);
    }
    if (rank)
        return LT_OK;
    char more[96] = "";
    if (c.shampoo)
        snprintf(more, sizeof more, ", factors in %s%s, blocks of %lld", names[c.factors],
                 c.packed ? ", packed" : "", (long long)c.block);
    lt_log(LT_LOG_INFO, "optim",
           "--state-memory adam: moments in %s%s: %.1f MiB of state, Adam's moments are %.1f MiB",
           names[c.moments], more, (double)lt_optim_state_bytes(*optim) / mib, budget / mib);
    return LT_OK;
}

lt_status lt_trainer_open_optimizer(lt_optim **optim, arguments *args, const lt_params *params,
                                    int rank)
{
    const training_options *o = &args->training;
    LT_TRY(lt_optim_flags_make(optim, &args->optim, params));
    LT_TRY(lt_optim_set_state_dtype(*optim, (lt_state_dtype)o->state_dtype));
    return o->state_memory == STATE_MEMORY_ADAM ? shrink_until_it_fits(optim, args, params, rank)
                                                : LT_OK;
}
