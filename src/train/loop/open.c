/* Opens the parts of a run that follow from its settings, for lt_train() and for programs. */

#include "loop.h"

#include "lather/detail/run_folder.h"

lt_pass lt_train_pass(const lt_train_config *c, lt_pass pass)
{
    pass.dtype = c->dtype;
    pass.recompute = c->recompute;
    pass.seed = c->loader.seed;
    return pass;
}

void lt_train_loop_begin_state(lt_train_loop *l)
{
    const lt_train_config *c = l->config;
    lt_train_state *s = l->state;
    lt_train_state_begin(s, c->task.ops, c->optim, l->ranks, c->loader.batch, c->grad_accum);
    lt_train_state_set_fingerprint(s, c->train);
    if (c->gradient_noise)
        lt_train_enable_noise_scale(s);
    s->now.seed = c->loader.seed;
    s->now.threads = lt_device_threads(c->device);
    s->now.reproducible = lt_device_is_reproducible(c->device);
    s->save_top = c->save_top < LT_CHECKPOINT_TOP ? c->save_top : LT_CHECKPOINT_TOP;
    l->parts = (lt_checkpoint_contents){.params = c->params,
                                        .optim = c->optim,
                                        .comm = l->ranks->comm,
                                        .local = l->local,
                                        .dp = l->dp,
                                        .metadata = c->metadata,
                                        .metadata_count = c->metadata_count};
    lt_train_state_add_averages(s, &l->parts);
}

lt_status lt_train_loop_load_state(lt_train_loop *l)
{
    const lt_train_config *c = l->config;
    lt_train_state *s = l->state;
    const int64_t batches = l->input->batches_per_epoch;
    if (s->folder[0]) {
        LT_TRY(lt_train_state_check_data(s, c->data_may_change));
        LT_TRY(lt_train_state_check(s, l->ranks, c->grad_accum, batches));
        LT_TRY(lt_train_state_load(s, &l->parts, l->ranks, c->grad_accum, batches));
    }
    LT_TRY(lt_train_state_init_loss_scale(s, c->optim, c->dtype == LT_F16));
    return s->now.run[0] ? LT_OK : lt_run_new_id(s->now.run);
}

lt_status lt_train_loop_open_step(lt_train_loop *l)
{
    const lt_train_config *c = l->config;
    const lt_train_step_config step = {
        .device = c->device,
        .tape = l->tape,
        .params = c->params,
        .optim = c->optim,
        .task = c->task,
        .ema = l->local ? NULL : l->state->ema, /* otherwise it follows outer steps */
        .comm = l->ranks->comm,
        .dp = l->dp,
        .mesh = l->ranks->mesh,
        .group = l->local ? lt_local_steps_comm(l->local) : NULL,
        .share = c->share,
        .pass = lt_train_pass(c, LT_PASS_TRAIN),
        .grad_accum = c->grad_accum,
        .stragglers = l->stragglers,
        .gradient_noise = c->gradient_noise,
        .graph = c->graph,
        .next = lt_train_input_next,
        .next_context = l->input,
        .stop = c->stop,
        .stop_context = c->context};
    return lt_train_step_new(&l->step, &step);
}

lt_status lt_train_loop_open_stats(lt_train_loop *l)
{
    const lt_train_config *c = l->config;
    const lt_optim_stats_config stats = {.optim = c->optim,
                                         .params = c->params,
                                         .every = c->optim_stats,
                                         .pattern = c->optim_stats_pattern,
                                         .patterns = c->optim_stats_patterns,
                                         .rank = l->ranks->rank};
    return lt_optim_stats_new(&l->stats.optim, &stats);
}

void lt_train_loop_close(lt_train_loop *l)
{
    lt_train_stats_close(&l->stats);
    lt_train_step_free(&l->step);
}
