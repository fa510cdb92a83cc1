/* A small run with a checkpoint, for targets that change its files and keep the checksums valid. */
#ifndef LT_FUZZ_CHECKPOINT_H
#define LT_FUZZ_CHECKPOINT_H

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "folder.h"
#include "train/checkpoint/checkpoint.h"

#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/shampoo.h"

#include <inttypes.h>

enum { FUZZ_STEPS = 5, FUZZ_TAIL = 22 };

typedef struct fuzz_run {
    lt_device *device;
    lt_param param[2];
    lt_params params;
    lt_optim *optim;
    lt_checkpoint_contents parts;
    lt_checkpoint_state state;
} fuzz_run;

static inline void fuzz_quiet(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)context;
    (void)level;
    (void)area;
    (void)text;
}

/* Opens a run whose asynchronous roots are pending in steps 4 to 6, so that optim.safetensors has every kind of state. */
static inline void fuzz_open(fuzz_run *r)
{
    static const char *const names[] = {"conv.weight", "bn.num_batches_tracked"};
    const lt_shape shape[] = {LT_SHAPE(4, 3), LT_SCALAR};
    const lt_param_kind role[] = {LT_PARAM_WEIGHT, LT_PARAM_COUNT};
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.precondition_frequency = 2;
    c.refresh_timing = LT_REFRESH_ASYNC;
    c.max_preconditioner_dim = 4;
    *r = (fuzz_run){.state = {.unit = "images",
                              .best_name = "top1",
                              .best = -1,
                              .samples = 12,
                              .global_batch = 4,
                              .ranks = 1}};
    LT_ASSERT(!lt_device_open(&r->device, "ref", NULL));
    for (int i = 0; i < 2; i++) {
        LT_ASSERT(
            !lt_param_init_kind(&r->param[i], r->device, "", names[i], shape[i], 0.5, role[i]));
        LT_ASSERT(!lt_params_add(&r->params, &r->param[i]));
    }
    LT_ASSERT(!lt_optim_shampoo(&r->optim, &r->params, &c));
    snprintf(r->state.optim, sizeof r->state.optim, "%s", lt_optim_name(r->optim));
    r->parts = (lt_checkpoint_contents){.params = &r->params, .optim = r->optim};
}

static inline lt_status fuzz_step(fuzz_run *r)
{
    LT_ASSERT(!lt_tensor_fill(r->param[0].grad, 0.25));
    r->param[0].has_grad = true;
    const lt_step step = {.lr = 0.1, .attempt = ++r->state.step};
    return lt_optim_step(r->optim, &step);
}

static inline void fuzz_close(fuzz_run *r)
{
    lt_optim_free(&r->optim);
    lt_params_clear(&r->params);
    for (int i = 0; i < 2; i++)
        lt_param_clear(&r->param[i]);
    lt_device_close(&r->device);
}

/* Loads the checkpoint, checks the ranges of the state, and runs three more steps. */
static inline lt_status fuzz_load(const char *path)
{
    fuzz_run r;
    fuzz_open(&r);
    lt_status st = lt_checkpoint_load(path, &r.parts, &r.state);
    const lt_checkpoint_state *s = &r.state;
    if (!st) {
        LT_ASSERT(s->step >= 0 && s->epoch >= 0 && s->epoch <= s->step && s->batch >= 0
                  && s->samples >= s->epoch_samples && s->epoch_samples >= 0
                  && s->global_batch >= 0);
        for (int i = 0; i < 3; i++)
            (void)!fuzz_step(&r); /* may fail: a factor may have any value */
    }
    fuzz_close(&r);
    return st;
}

/* Returns the checkpoint's folder; the first call makes it and checks that it can be loaded. */
static inline const char *fuzz_checkpoint(char path[2 * FUZZ_PATH])
{
    static bool made;
    fuzz_run r;
    fuzz_path(path, "checkpoints/step-5");
    if (made)
        return path;
    lt_log_set(fuzz_quiet, NULL);
    fuzz_open(&r);
    for (int i = 0; i < FUZZ_STEPS; i++)
        LT_ASSERT(!fuzz_step(&r));
    LT_ASSERT(!lt_checkpoint_save(fuzz_folder, &r.parts, &r.state, NULL));
    fuzz_close(&r);
    LT_ASSERT(!fuzz_load(path));
    made = true;
    return path;
}

#endif
