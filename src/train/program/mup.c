/* --mup BASE_WIDTH: the model is compared with the same at the base width, which is made from the same options. */

#include "lather/mup.h"

#include "trainer.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char width_option[] = "width";

static bool has_width(const lt_model_family *family)
{
    for (size_t i = 0; i < family->options; i++)
        if (!strcmp(family->option[i].name, width_option))
            return true;
    return false;
}

/* Sets the base's options to those of the model, except the width. */
static lt_status copy_options(family_choice *base, const lt_trainer *t)
{
    enum { TEXT = 512 };
    char text[TEXT];
    for (size_t i = 0; i < base->family->options; i++) {
        const char *name = base->family->option[i].name;
        if (lt_options_is_set(t->line.options, name))
            LT_TRY(lt_options_set(base->options, name,
                                  lt_options_text(t->line.options, name, text, sizeof text)));
    }
    snprintf(text, sizeof text, "%lld", (long long)t->line.args.groups.mup);
    return lt_options_set(base->options, width_option, text);
}

static double features_per_head(const lt_model_facts *facts)
{
    const char *heads = lt_model_fact_text(facts, "heads");
    return *heads ? strtod(lt_model_fact_text(facts, width_option), NULL) / strtod(heads, NULL) : 0;
}

/* Scores are sums over the features of a head: where these grow, 1/d replaces 1/sqrt(d), with the base's factor. */
static lt_status scale_attention(family_choice *c, const family_choice *base)
{
    static const char option[] = "attention-scale";
    char text[LT_FACT_BYTES];
    const double now = features_per_head(&c->facts), before = features_per_head(&base->facts);
    if (!*lt_model_fact_text(&c->facts, option) || lt_options_is_set(c->options, option)
        || (now <= before && now >= before))
        return LT_OK;
    snprintf(text, sizeof text, "%.17g", sqrt(before) / now);
    LT_TRY(lt_options_set(c->options, option, text));
    return lt_family_resolve(c, NULL);
}

static lt_status check_flags(const lt_trainer *t)
{
    const arguments *a = &t->line.args;
    if (!has_width(t->line.choice.family))
        return lt_fail(LT_E_ARG, "--mup: %s models have no option --width",
                       t->line.choice.family->name);
    if (t->ranks.mesh)
        return lt_fail(LT_E_ARG, "--mup cannot be combined with --tensor-parallel");
    if (a->cautious.hyperball)
        return lt_fail(LT_E_ARG, "--mup and --opt-kwargs hyperball=true contradict each other: "
                                 "hyperball's rates do not depend on the size of updates");
    return a->weights
               ? lt_fail(LT_E_ARG, "--mup scales initial values, but --weights replaces them")
               : LT_OK;
}

lt_status lt_trainer_choose_base(lt_trainer *t)
{
    const arguments *a = &t->line.args;
    family_choice *base = &t->model.base_choice;
    if (!a->groups.mup || lt_trainer_evaluates(t) || a->evaluation.watch)
        return LT_OK;
    LT_TRY(check_flags(t));
    LT_TRY(lt_family_open(base, t->line.choice.family));
    LT_TRY(lt_family_open_options(base));
    return copy_options(base, t);
}

static lt_status make_base(trainer_model *m, family_choice *now)
{
    family_choice *base = &m->base_choice;
    base->spec = now->spec;
    LT_TRY(lt_family_resolve(base, m->weights));
    LT_TRY(scale_attention(now, base));
    LT_TRY(base->family->make(&m->base, m->device, base->config, &base->spec));
    return lt_module_params(m->base, &m->base_params);
}

lt_status lt_trainer_open_base(lt_trainer *t)
{
    char why[512];
    trainer_model *m = &t->model;
    lt_status st = m->base_choice.family ? make_base(m, &t->line.choice) : LT_OK;
    if (!st)
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    return lt_fail(st, "--mup %lld: the base model: %s", (long long)t->line.args.groups.mup, why);
}

lt_status lt_trainer_scale_values(lt_trainer *t)
{
    trainer_model *m = &t->model;
    return m->base
               ? lt_mup_scale_values(&m->params, &m->base_params, t->line.choice.family->last_norm)
               : LT_OK;
}

lt_status lt_trainer_scale_by_base(lt_trainer *t)
{
    trainer_model *m = &t->model;
    lt_optim *base = NULL;
    if (!m->base)
        return LT_OK;
    LT_TRY(lt_trainer_open_optimizer(&base, &t->line.args, &m->base_params, 1));
    lt_status st = lt_mup_scale_optim(t->optim, base, t->line.choice.family->last_norm);
    lt_optim_free(&base);
    lt_trainer_close_base(m);
    return st;
}

void lt_trainer_close_base(trainer_model *m)
{
    lt_params_clear(&m->base_params);
    lt_module_free(&m->base);
    lt_family_close(&m->base_choice);
}
