/* Device and model of a run: the checkpoint's, that of --weights, or that of the flags. The options are set to it, so
 * that weights, checkpoints and config.yaml describe it without the file that it came from. */

#include "trainer.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

/* --- The device --- */

/* Opens a separate GPU for each rank of the machine. */
static lt_status open_own_gpu(lt_device **out, int local, int locals,
                              const lt_device_config *config)
{
    enum { WHY = 512 };
    char name[16], why[WHY];
    snprintf(name, sizeof name, "cuda:%d", local);
    lt_status st = lt_device_open(out, name, config);
    if (!st)
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    return lt_fail(st, "rank %d of %d on this machine: %s; each rank needs a separate GPU", local,
                   locals, why);
}

lt_status lt_trainer_open_device(lt_trainer *t)
{
    const arguments *a = &t->line.args;
    const machine_options *m = &a->machine;
    lt_device **out = &t->model.device;
    lt_device_config config = {.threads = (int)m->threads,
                               .deterministic = a->training.deterministic,
                               .reproducible = a->training.reproducible,
                               .tf32 = m->tf32 == TF32_ON || a->training.amp == AMP_TF32,
                               .fused = (lt_fused)m->fused};
    int local, locals;
    lt_comm_launched_local(&local, &locals);
    if (!strcmp(m->device, "cuda") && locals > 1 && a->ranks.dist != DIST_OFF)
        LT_TRY(open_own_gpu(out, local, locals, &config));
    else
        LT_TRY(lt_device_open(out, m->device, &config));
    return lt_trainer_open_ranks(&t->ranks, &t->input.workers, *out, &t->line);
}

/* --- The model --- */

/* Returns true if is() holds for an option that the weights determine; others, such as --zero-init-last, only
 * affect its initial values. */
static bool has_fact_option(const lt_trainer *t,
                            bool (*is)(const lt_options *options, const char *name))
{
    for (size_t i = 0; i < t->line.choice.family->options; i++) {
        const char *name = t->line.choice.family->option[i].name;
        if (lt_family_has_fact(&t->line.choice, name) && is(t->line.options, name))
            return true;
    }
    return false;
}

/* Returns true if --weights determine the model and its input size, as no flag does. */
static bool weights_determine_model(const lt_trainer *t)
{
    return t->line.args.evaluation.eval
           || (t->line.args.weights && !has_fact_option(t, lt_options_is_set));
}

/* Chooses the model. A checkpoint overrides config.yaml: earlier versions wrote resnet50 there for all --weights. */
static lt_status choose_model(lt_trainer *t)
{
    family_choice *c = &t->line.choice;
    const lt_trainer_program *p = t->line.program;
    lt_model_facts facts = {0};
    lt_model_spec found = {0};
    const bool is_checkpoint = t->state.folder[0] || t->line.args.evaluation.watch;
    c->options = t->line.options;
    c->trains = !t->line.args.evaluation.eval;
    c->new_head = t->line.args.reset_head;
    c->spec.seed = (uint64_t)t->line.args.training.seed;
    c->spec.tensor_parallel = t->ranks.mesh ? &t->ranks.parallel : NULL;
    LT_TRY(p->spec(t->line.context, t, NULL, false, &c->spec));
    LT_TRY(lt_trainer_choose_base(t));
    if (!*t->model.weights)
        return lt_family_resolve(c, NULL);
    const bool by_weights = weights_determine_model(t);
    LT_TRY(lt_family_infer(c, t->model.weights, &facts, &found));
    LT_TRY(p->spec(t->line.context, t, &found, by_weights, &c->spec));
    if (is_checkpoint && lt_family_fits(c, &facts, t->model.weights)) /* options remain as given */
        return LT_OK;
    return lt_family_set_options(c, &facts, t->model.weights,
                                 is_checkpoint ? lt_options_is_typed : lt_options_is_set);
}

/* Adds a hint on the cause to the error of a file that does not fit. */
static lt_status explain_weights(const lt_trainer *t, lt_status failure)
{
    char why[512];
    lt_model_facts facts = {0};
    lt_model_spec found = {0};
    snprintf(why, sizeof why, "%s", lt_error_message());
    LT_TRY(lt_family_infer(&t->line.choice, t->line.args.weights, &facts, &found));
    bool head = !t->line.args.reset_head && found.classes != t->line.choice.spec.classes;
    return lt_fail(failure, "%s%s", why,
                   head ? "; --reset-head keeps the rest and makes a new last layer" : "");
}

/* Loads --weights, unless a checkpoint provides the weights. */
static lt_status load_weights(lt_trainer *t)
{
    const char *head = t->line.choice.family->head;
    lt_weights_config config = lt_family_weights_config(&t->line.choice);
    config.skip = t->line.args.reset_head ? head : NULL;
    if (t->line.args.reset_head && !head)
        return lt_fail(LT_E_UNSUPPORTED, "--reset-head: %s models have no last layer of that kind",
                       t->line.choice.family->name);
    if (!t->line.args.weights || t->state.folder[0] || t->line.args.evaluation.watch)
        return LT_OK;
    lt_status st = lt_weights_load(t->line.args.weights, &t->model.params, &config);
    return st ? explain_weights(t, st) : LT_OK;
}

bool lt_trainer_has_bn_statistics(const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (params->item[i]->role == LT_PARAM_STAT)
            return true;
    return false;
}

/* Rejects flags for batch norm's statistics if the model has none. */
static lt_status check_has_batch_norm(const lt_trainer *t)
{
    const bool sync = t->line.args.ranks.sync_bn;
    const bool dist = lt_options_is_typed(t->line.options, "dist-bn")
                      || t->line.args.ranks.dist_bn != LT_DIST_BN_REDUCE;
    if (!sync && !dist)
        return LT_OK;
    if (lt_trainer_has_bn_statistics(&t->model.params))
        return LT_OK;
    return lt_fail(LT_E_ARG, "--%s: the model, %s, has no batch norm", sync ? "sync-bn" : "dist-bn",
                   lt_trainer_facts(t)->title);
}

/* Fails unless the family can shard the model over the ranks of a replica, in training and evaluation. */
static lt_status check_parallel(lt_trainer *t)
{
    const arguments *a = &t->line.args;
    const family_choice *c = &t->line.choice;
    const int64_t batch =
        a->evaluation.eval && a->eval_batch_size ? a->eval_batch_size : a->batch_size;
    if (!t->ranks.mesh)
        return LT_OK;
    lt_status st = c->family->check_parallel
                       ? c->family->check_parallel(c->config, &c->spec, batch)
                       : lt_fail(LT_E_ARG, "%s has no tensor-parallel form", c->facts.title);
    t->ranks.same_failure = st == LT_E_ARG || st == LT_E_UNSUPPORTED;
    return st ? lt_fail(st, "--tensor-parallel %s: %s", a->ranks.tensor_parallel,
                        lt_error_message())
              : LT_OK;
}

lt_status lt_trainer_open_model(lt_trainer *t)
{
    LT_TRY(choose_model(t));
    LT_TRY(lt_trainer_open_base(t));
    LT_TRY(check_parallel(t));
    LT_TRY(t->line.choice.family->make(&t->model.network, t->model.device, t->line.choice.config,
                                       &t->line.choice.spec));
    LT_TRY(lt_module_params(t->model.network, &t->model.params));
    LT_TRY(check_has_batch_norm(t));
    LT_TRY(lt_trainer_scale_values(t));
    LT_TRY(load_weights(t));
    return lt_tape_new(&t->model.tape, t->model.device);
}

void lt_trainer_close_model(trainer_model *m)
{
    lt_tape_free(&m->tape);
    lt_trainer_close_base(m);
    lt_params_clear(&m->params);
    lt_module_free(&m->network);
    lt_device_close(&m->device);
}
