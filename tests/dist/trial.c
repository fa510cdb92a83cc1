/* Ranks as threads, each with a separate device, tape, model and optimizer. */

#include "trial.h"

#include "base/rng.h"
#include "doubles.h"
#include "ranks.h"
#include "tensor/tensor.h"

#include "lather/ops.h"
#include "lather/optim.h"
#include "lather/shard.h"

enum { CHANNELS = 4, SIDE = 4, CLASSES = 5, PIXELS = 3 * SIDE * SIDE, PARAMS = 9 };
enum { CONV, GAMMA, BETA, MEAN, VAR, FC, BIAS, EXTRA, UNUSED };

/* State of a rank. */
typedef struct rank_run {
    test_rank at;
    const trial *t;
    outcome *out;
    lt_tape *tape;
    lt_param param[PARAMS];
    lt_params params;
    lt_optim *optim;
    lt_nodes nodes;
    lt_data_parallel *dp;
    lt_tensor *x, *labels;
    int batch;
    lt_backend with_graphs;
} rank_run;

static const lt_graph_ops graphs;

static double number(const char *name, int64_t i)
{
    lt_rng rng = {.key = lt_rng_name_key((uint64_t)i, LT_STREAM_INIT, name)};
    return lt_rng_uniform(&rng) - 0.5;
}

/* Values differ by rank: data parallelism must broadcast rank 0's. */
static lt_status make_params(rank_run *r)
{
    int classes = CLASSES + (r->t->other_shape == r->at.rank + 1);
    const struct {
        const char *name;
        lt_shape shape;
        lt_param_kind role;
        double fill;
    } rows[PARAMS] = {
        {"conv", LT_SHAPE(CHANNELS, 3, 3, 3), LT_PARAM_WEIGHT, 0},
        {"gamma", LT_SHAPE(CHANNELS), LT_PARAM_NORM, 1},
        {"beta", LT_SHAPE(CHANNELS), LT_PARAM_NORM, 0.1},
        {"mean", LT_SHAPE(CHANNELS), LT_PARAM_STAT, 0},
        {"var", LT_SHAPE(CHANNELS), LT_PARAM_STAT, 1},
        {"fc", LT_SHAPE(classes, CHANNELS * SIDE * SIDE), LT_PARAM_WEIGHT, 0},
        {"bias", LT_SHAPE(classes), LT_PARAM_BIAS, 0},
        {"extra", LT_SHAPE(classes), LT_PARAM_BIAS, 0},
        {"unused", LT_SHAPE(3), LT_PARAM_BIAS, 0.5},
    };
    for (int i = 0; i < PARAMS; i++) {
        double values[CHANNELS * SIDE * SIDE * (CLASSES + 1)];
        lt_param *p = &r->param[i];
        LT_TRY(rows[i].shape.ndim == 4
                   ? lt_param_init_filter(p, r->at.device, "", rows[i].name, rows[i].shape)
                   : lt_param_init_kind(p, r->at.device, "", rows[i].name, rows[i].shape,
                                        rows[i].fill, rows[i].role));
        LT_TRY(lt_params_add(&r->params, p));
        if (rows[i].fill > 0 || rows[i].role == LT_PARAM_STAT)
            continue;
        for (int64_t k = 0; k < lt_tensor_count(p->value); k++)
            values[k] = number(rows[i].name, k) + (r->at.rank ? 1 : 0);
        LT_TRY(write_doubles(p->value, values));
    }
    return LT_OK;
}

/* Fills this rank's samples of micro-batch m, a slice of the global batch. */
static lt_status fill_batch(rank_run *r, int step, int m)
{
    double pixels[SAMPLES * PIXELS];
    int32_t labels[SAMPLES];
    for (int i = 0; i < r->batch; i++) {
        int sample = (r->at.rank * (r->t->accum ? r->t->accum : 1) + m) * r->batch + i;
        for (int k = 0; k < PIXELS; k++)
            pixels[i * PIXELS + k] = number("x", (int64_t)(step * SAMPLES + sample) * PIXELS + k);
        labels[i] = (int32_t)((step + sample) % CLASSES);
    }
    if (r->t->poisoned == r->at.rank + 1 && step == TRIAL_STEPS - 1)
        pixels[0] = (double)NAN;
    LT_TRY(lt_tensor_write(r->labels, labels, (size_t)r->batch * sizeof *labels));
    return write_doubles(r->x, pixels);
}

static lt_tensor *forward(rank_run *r)
{
    lt_tape *t = r->tape;
    lt_param *p = r->param;
    bool other_way = r->t->swapped && r->at.rank % 2;
    lt_tape_reset(t, LT_PASS_TRAIN);
    lt_tensor *y = lt_conv2d(t, r->x, lt_tape_param(t, &p[CONV]), NULL,
                             (lt_conv2d_config){.pad_h = 1, .pad_w = 1});
    if (r->t->has_norm) {
        lt_batchnorm2d_args args = {lt_tape_param(t, &p[GAMMA]),
                                    lt_tape_param(t, &p[BETA]),
                                    p[MEAN].value,
                                    p[VAR].value,
                                    NULL,
                                    NULL};
        y = lt_batchnorm2d(t, y, args, (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1});
    }
    y = lt_flatten(t, lt_relu(t, y));
    bool has_extra = !r->t->extra_on_zero || !r->at.rank;
    y = lt_linear(t, y, lt_tape_param(t, &p[FC]), NULL);
    if (has_extra && !other_way)
        y = lt_add(t, y, lt_tape_param(t, &p[EXTRA]));
    y = lt_add(t, y, lt_tape_param(t, &p[BIAS]));
    if (has_extra && other_way)
        y = lt_add(t, y, lt_tape_param(t, &p[EXTRA]));
    return lt_softmax_xent(t, y, r->labels, 0.1);
}

static lt_status gradients(rank_run *r, int step)
{
    int accum = r->t->accum ? r->t->accum : 1;
    lt_params_zero_grad(&r->params);
    for (int m = 0; m < accum && r->at.rank < r->t->ranks - r->t->idle; m++) {
        LT_TRY(fill_batch(r, step, m));
        r->at.device->capturing = r->t->captures;
        lt_tensor *loss = forward(r);
        if (r->dp)
            lt_data_parallel_begin(r->dp, m + 1 == accum);
        LT_TRY(lt_tape_backward(r->tape, loss, 1.0 / accum));
    }
    return r->dp ? lt_data_parallel_finish(r->dp) : LT_OK;
}

static lt_status train(rank_run *r)
{
    for (int step = 0; step < TRIAL_STEPS; step++) {
        lt_step_result result;
        uint64_t before = r->at.comm ? lt_comm_bytes(r->at.comm) : 0;
        LT_TRY(gradients(r, step));
        r->out->update_bytes = r->at.comm ? lt_comm_bytes(r->at.comm) - before : 0;
        LT_TRY(lt_optim_step(r->optim, &(lt_step){.lr = 0.05, .attempt = step + 1}));
        LT_TRY(lt_optim_result(r->optim, &result));
        r->out->applied = result.applied;
        if (r->t->disturbed == r->at.rank + 1)
            LT_TRY(lt_tensor_fill(r->param[UNUSED].value, 0.5000001));
    }
    return LT_OK;
}

static lt_status report(rank_run *r)
{
    outcome *o = r->out;
    if (r->dp)
        LT_TRY(lt_data_parallel_sync_statistics(r->dp));
    for (int i = 0; i < PARAMS; i++) {
        lt_tensor *v = r->param[i].value;
        if (r->param[i].role == LT_PARAM_STAT)
            continue;
        LT_ASSERT(o->values + (int)lt_tensor_count(v) <= MAX_VALUES);
        LT_TRY(read_doubles(v, o->value + o->values));
        o->values += (int)lt_tensor_count(v);
    }
    LT_TRY(read_doubles(r->param[MEAN].value, o->mean));
    LT_TRY(read_doubles(r->param[VAR].value, o->var));
    o->extra_has_grad = r->param[EXTRA].has_grad;
    o->unused_has_grad = r->param[UNUSED].has_grad;
    o->exposed = r->dp ? lt_data_parallel_wait_seconds(r->dp) : 0;
    return read_doubles(r->param[EXTRA].grad, o->gradient_of_extra);
}

static lt_status open_parallel(rank_run *r)
{
    lt_data_parallel_config config = r->t->config;
    if (r->t->per_node) {
        LT_TRY(lt_comm_nodes(&r->nodes, r->at.comm, r->t->per_node));
        config.nodes = &r->nodes;
    }
    return lt_data_parallel_new(&r->dp, r->at.comm, &r->params, r->tape, &config);
}

static lt_status work(void *context)
{
    rank_run *r = context;
    int parts = r->t->ranks * (r->t->accum ? r->t->accum : 1);
    r->batch = SAMPLES / parts;
    if (r->t->graphs) {
        r->with_graphs = *r->at.device->backend;
        r->with_graphs.graphs = &graphs;
        r->at.device->backend = &r->with_graphs;
    }
    LT_TRY(make_params(r));
    LT_TRY(lt_tape_new(&r->tape, r->at.device));
    LT_TRY(lt_tensor_new(&r->x, r->at.device, lt_device_master_dtype(r->at.device),
                         LT_SHAPE(r->batch, 3, SIDE, SIDE)));
    LT_TRY(lt_tensor_new(&r->labels, r->at.device, LT_I32, LT_SHAPE(r->batch)));
    if (r->at.comm)
        LT_TRY(open_parallel(r));
    LT_TRY(lt_optim_sgd(&r->optim, &r->params, &(lt_sgd_config){.momentum = 0.9}));
    if (r->at.comm && r->t->divided) {
        LT_TRY(lt_optim_shard(r->optim, &(lt_shard_config){.comm = r->at.comm}));
        LT_TRY(lt_optim_shard_gradients(r->optim, r->dp));
    }
    LT_TRY(train(r));
    return report(r);
}

static void finish(void *context)
{
    rank_run *r = context;
    r->at.device->capturing = false;
    lt_optim_free(&r->optim);
    lt_data_parallel_free(&r->dp);
    lt_nodes_clear(&r->nodes);
    lt_tape_free(&r->tape);
    lt_tensor_free(&r->x);
    lt_tensor_free(&r->labels);
    lt_params_clear(&r->params);
    for (int i = 0; i < PARAMS; i++)
        lt_param_clear(&r->param[i]);
}

void trial_run(const trial *t, outcome *out)
{
    rank_run run[MAX_RANKS] = {0};
    memset(out, 0, (size_t)t->ranks * sizeof *out);
    for (int r = 0; r < t->ranks; r++) {
        run[r].t = t;
        run[r].out = &out[r];
    }
    play_ranks(&(rank_group){RANKS_OF(run, t->ranks), .device = t->f64 ? "ref" : "cpu",
                             .f64 = t->f64, .without_comm = t->ranks == 1, .same_refusal = true,
                             .run = work, .end = finish});
    for (int r = 0; r < t->ranks; r++) {
        out[r].status = run[r].at.status;
        snprintf(out[r].message, RANKS_MESSAGE, "%.*s", RANKS_MESSAGE - 1, run[r].at.message);
    }
}
