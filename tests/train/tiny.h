/* A small model with an optimizer and a run state, for tests of checkpoints. */
#ifndef LT_TESTS_TRAIN_TINY_H
#define LT_TESTS_TRAIN_TINY_H

#include "base/encoding/crc32c.h"
#include "near.h"
#include "optim/shampoo/reference.h"
#include "temp.h"

#include "lather/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARAMS = 4, TAIL = 22, MOST_TEXT = 1 << 16 };

typedef struct run {
    lt_device *device;
    lt_param param[PARAMS];
    lt_params params;
    lt_optim *optim;
    lt_tensor *ema;
    lt_checkpoint_tensor extra;
    lt_checkpoint_contents parts;
    lt_checkpoint_state state;
} run;

static inline void fill(lt_tensor *tensor, double seed)
{
    float values[64];
    size_t count = (size_t)lt_tensor_count(tensor);
    assert_true(count <= COUNT_OF(values));
    for (size_t i = 0; i < count; i++)
        values[i] = sinf((float)seed + (float)i);
    assert_ok(lt_tensor_write(tensor, values, count * sizeof *values));
}

static inline void run_open(run *r, const char *optim, int classes)
{
    static const char *const leaf[] = {"conv.weight", "bn.running_mean", "bn.num_batches_tracked",
                                       "fc.weight"};
    const lt_shape shape[] = {LT_SHAPE(4, 3, 1, 1), LT_SHAPE(4), LT_SCALAR, LT_SHAPE(classes, 4)};
    const lt_param_kind role[] = {LT_PARAM_WEIGHT, LT_PARAM_STAT, LT_PARAM_COUNT, LT_PARAM_WEIGHT};
    memset(r, 0, sizeof *r);
    assert_ok(lt_device_open(&r->device, "ref", NULL));
    for (int i = 0; i < PARAMS; i++) {
        assert_ok(
            lt_param_init_kind(&r->param[i], r->device, "", leaf[i], shape[i], 0.25 * i, role[i]));
        assert_ok(lt_params_add(&r->params, &r->param[i]));
    }
    if (!strcmp(optim, "adam"))
        assert_ok(lt_optim_adam(&r->optim, &r->params, NULL));
    else
        assert_ok(lt_optim_shampoo(&r->optim, &r->params, &LT_SHAMPOO_REFERENCE));
    assert_ok(lt_tensor_new(&r->ema, r->device, LT_F32, LT_SHAPE(classes, 4)));
    r->extra = (lt_checkpoint_tensor){.name = "ema.fc.weight", .tensor = r->ema};
    r->parts = (lt_checkpoint_contents){
        .params = &r->params, .optim = r->optim, .extra = &r->extra, .extra_count = 1};
    r->state =
        (lt_checkpoint_state){.seed = UINT64_MAX,
                              .loss_scale = 1.0 / 3,
                              .unit = "images",
                              .best_name = "top1",
                              .best = -1,
                              .sum = {{.name = "loss"}, {.name = "correct"}},
                              .sums = 2,
                              .fact = {{.key = "arch", .text = "tiny"},
                                       {.key = "classes", .number = classes, .is_number = true},
                                       {.key = "network", .later = true}},
                              .facts = 3};
    snprintf(r->state.optim, sizeof r->state.optim, "%s", lt_optim_name(r->optim));
}

static inline void run_close(run *r)
{
    lt_tensor_free(&r->ema);
    lt_optim_free(&r->optim);
    lt_params_clear(&r->params);
    for (int i = 0; i < PARAMS; i++)
        lt_param_clear(&r->param[i]);
    lt_device_close(&r->device);
}

/* Writes state.json with the bytes [begin, end) replaced by text, and a matching checksum. */
static inline void forge(const char *path, const char *whole, size_t begin, size_t end,
                         const char *text)
{
    static char forged[MOST_TEXT];
    const size_t bytes = strlen(whole);
    assert_true(bytes + strlen(text) < sizeof forged);
    int head = snprintf(forged, sizeof forged, "%.*s%s%.*s", (int)begin, whole, text,
                        (int)(bytes - TAIL - end), whole + end);
    int tail = snprintf(forged + head, sizeof forged - (size_t)head, ",\"crc32c\":\"%08x\"}\n",
                        lt_crc32c(0, forged, (size_t)head));
    assert_int_equal(tail, TAIL);
    temp_write(path, forged, (size_t)(head + tail));
}

/* One step whose gradients depend only on the step number. */
static inline void run_step(run *r)
{
    r->state.step++;
    for (int i = 0; i < PARAMS; i++)
        if (lt_param_is_trained(&r->param[i])) {
            fill(r->param[i].grad, (double)(r->state.step * 10 + i));
            r->param[i].has_grad = true;
        }
    const lt_step step = {.lr = 0.1, .attempt = r->state.step};
    assert_ok(lt_optim_step(r->optim, &step));
    assert_ok(lt_tensor_copy(r->ema, r->param[3].value));
}

#endif
