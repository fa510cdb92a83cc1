/* Parses and checks a trainer's command line; accessors of lather/ext/program.h that a program's table may call. */

#include "trainer.h"

lt_status lt_trainer_parse(lt_trainer *t, const lt_model_family *family,
                           const lt_trainer_program *program, const arguments_more *more, int argc,
                           char *const *argv)
{
    t->ranks = LT_RANKS_ALONE;
    LT_TRY(lt_command_line_open(&t->line, family, program));
    LT_TRY(lt_command_line_open_options(&t->line, more));
    lt_status st = lt_command_line_parse(&t->line, argc, argv);
    return st == LT_E_ARG ? lt_plugins_advise_resume(st, argc, argv) : st;
}

lt_status lt_trainer_check(const lt_trainer *t)
{
    const lt_trainer_program *p = t->line.program;
    LT_TRY(lt_command_line_check(&t->line));
    return p->check ? p->check(t->line.context, t) : LT_OK;
}

int lt_trainer_exit_status(const lt_trainer *t, lt_status st)
{
    if (!st)
        return t->ranks.stop ? EXIT_INTERRUPTED : EXIT_DONE;
    return st == LT_E_ARG && !t->at_work ? EXIT_USAGE : EXIT_ERROR;
}

void *lt_trainer_context(const lt_trainer *t)
{
    return t->line.context;
}

const lt_options *lt_trainer_options(const lt_trainer *t)
{
    return t->line.options;
}

lt_device *lt_trainer_device(const lt_trainer *t)
{
    return t->model.device;
}

lt_tape *lt_trainer_tape(const lt_trainer *t)
{
    return t->model.tape;
}

lt_module *lt_trainer_model(const lt_trainer *t)
{
    return t->model.network;
}

const lt_model_spec *lt_trainer_spec(const lt_trainer *t)
{
    return &t->line.choice.spec;
}

const lt_model_facts *lt_trainer_facts(const lt_trainer *t)
{
    return &t->line.choice.facts;
}

const char *lt_trainer_data(const lt_trainer *t)
{
    return t->line.args.data ? t->line.args.data : "";
}

const char *lt_trainer_weights(const lt_trainer *t)
{
    return t->model.weights;
}

bool lt_trainer_evaluates(const lt_trainer *t)
{
    return t->line.args.evaluation.eval;
}

int lt_trainer_ranks(const lt_trainer *t)
{
    return t->ranks.count;
}

lt_pass lt_trainer_pass(const lt_trainer *t, bool train)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16, LT_F32};
    lt_pass pass = train ? LT_PASS_TRAIN : LT_PASS_EVAL;
    pass.dtype = dtypes[t->line.args.training.amp];
    pass.recompute = t->line.args.training.recompute ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
    pass.seed = (uint64_t)t->line.args.training.seed;
    return pass;
}

lt_status lt_trainer_same_number(lt_trainer *t, const char *what, int64_t value)
{
    return lt_ranks_same_number(&t->ranks, what, value);
}

void lt_trainer_end_checks(lt_trainer *t)
{
    t->at_work = true;
}

/* Loads the model that the file belongs to. */
static lt_status load_model(lt_trainer *t, const char *path)
{
    family_choice *c = &t->line.choice;
    lt_model_facts found = {0};
    if (!c->options)
        LT_TRY(lt_family_open_options(c));
    LT_TRY(lt_family_infer(c, path, &found, &c->spec));
    LT_TRY(lt_family_set_options(c, &found, path, lt_options_is_set));
    c->spec.is_loaded = true;
    LT_TRY(c->family->make(&t->model.network, t->model.device, c->config, &c->spec));
    LT_TRY(lt_module_params(t->model.network, &t->model.params));
    const lt_weights_config config = lt_family_weights_config(c);
    return lt_weights_load(path, &t->model.params, &config);
}

lt_status lt_trainer_open_weights(lt_trainer *t, const char *path, const char *device, int threads)
{
    const lt_device_config config = {.threads = threads,
                                     .reproducible = t->line.args.training.reproducible};
    if (config.reproducible)
        LT_TRY(lt_reproducible_check_plugins());
    LT_TRY(lt_device_open(&t->model.device, device, &config));
    LT_TRY(load_model(t, path));
    return lt_tape_new(&t->model.tape, t->model.device);
}
