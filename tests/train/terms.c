/* Micro-batches and ranks whose losses average different numbers of labels: loss, gradient norm and values equal
 * those of one batch with all samples. A rank is a thread. */

#include "ranks.h"
#include "train/loop/stragglers.h"

#include "lather/data_parallel.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/shard.h"
#include "lather/train_step.h"

#include <stdio.h>

enum { INPUTS = 5, CLASSES = 4, ROWS = 8, RANKS = 4, STEPS = 3, VALUES = (INPUTS + 1) * CLASSES };

/* Bit i: ignore the label of row i. */
enum {
    NONE = 0,
    SOME = 0x4e,
    ALL = 0xff,
    OF_SECOND_MICRO = 0xcc,
    OF_RANK_0 = 0x0f,
    OF_RANK_1 = 0xf0
};

typedef struct plan {
    const char *name;
    int ranks, accum;
    int ignored;
    bool unweighed, division, noise;
    bool padded; /* every other step's batch has twice the rows, the added ones without labels */
    const char *compress;
    double scale; /* loss scale; 0: none */
    lt_straggler_config stragglers;
} plan;

typedef struct rank {
    test_rank at;
    const plan *plan;
    lt_module *model;
    lt_params params;
    lt_tape *tape;
    lt_data_parallel *dp;
    lt_stragglers *stragglers;
    lt_optim *optim;
    lt_train_step *step;
    lt_tensor *inputs[2], *labels[2]; /* index 1: padded */
    int number, micro;                /* step and index of the next micro-batch */
    lt_train_result result[STEPS];
    double value[VALUES];
} rank;

static rank ranks[RANKS];

static lt_status next(void *context, lt_batch *batch)
{
    rank *r = context;
    const int rows = ROWS / r->plan->ranks / r->plan->accum;
    const int first = (r->at.rank * r->plan->accum + r->micro++) * rows;
    const int padded = r->plan->padded && r->number % 2;
    double x[2 * ROWS * INPUTS];
    int32_t label[2 * ROWS];
    for (int i = 0; i < rows << padded; i++) {
        const int row = first + i;
        label[i] = i >= rows || r->plan->ignored >> row & 1 ? LT_IGNORED_LABEL : row % CLASSES;
        for (int k = 0; k < INPUTS; k++)
            x[i * INPUTS + k] = sin(1 + 7.0 * row + 3 * k + 13 * r->number);
    }
    lt_tensor *inputs = r->inputs[padded], *labels = r->labels[padded];
    LT_TRY(lt_tensor_write(inputs, x, lt_tensor_bytes(inputs)));
    LT_TRY(lt_tensor_write(labels, label, lt_tensor_bytes(labels)));
    *batch = (lt_batch){.inputs = inputs, .labels = labels, .count = rows << padded};
    return LT_OK;
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const rank *r = context;
    out->output = lt_module_forward(r->model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    LT_TRY(lt_tape_status(tape));
    return lt_topk_hits(out->output, batch->labels, counts);
}

static const lt_task_ops
    weighed = {.name = "tokens", .unit = "tokens", .counts = 3, .terms = 3, .forward = forward},
    unweighed = {.name = "tokens", .unit = "tokens", .counts = 3, .forward = forward};

static lt_status open_optim(rank *r)
{
    const plan *p = r->plan;
    const lt_loss_scaling scaling = {.start = p->scale, .growth = 2, .backoff = 0.5, .interval = 1};
    const lt_sgd_config sgd = {.momentum = 0.9};
    const lt_shard_config shard = {.comm = r->at.comm};
    LT_TRY(lt_optim_sgd(&r->optim, &r->params, &sgd));
    if (p->scale > 0)
        LT_TRY(lt_optim_scale_loss(r->optim, &scaling));
    if (p->division)
        LT_TRY(lt_optim_shard(r->optim, &shard));
    return p->division ? lt_optim_shard_gradients(r->optim, r->dp) : LT_OK;
}

static lt_status open_rank(rank *r)
{
    const plan *p = r->plan;
    const int rows = ROWS / p->ranks / p->accum;
    const bool drops = p->stragglers.drop_compute;
    lt_data_parallel_config dp = {.compress = p->compress, .norms = p->noise};
    lt_stragglers_set_dp_config(&p->stragglers, p->ranks, p->accum, &dp);
    LT_TRY(lt_layer_linear(&r->model, r->at.device, "last", INPUTS, CLASSES, true));
    LT_TRY(lt_init_module(r->model, 5));
    LT_TRY(lt_module_params(r->model, &r->params));
    for (int i = 0; i < 2; i++) {
        LT_TRY(lt_tensor_new(&r->inputs[i], r->at.device, LT_F64, LT_SHAPE(rows << i, INPUTS)));
        LT_TRY(lt_tensor_new(&r->labels[i], r->at.device, LT_I32, LT_SHAPE(rows << i)));
    }
    LT_TRY(lt_tape_new(&r->tape, r->at.device));
    if (r->at.comm)
        LT_TRY(lt_data_parallel_new(&r->dp, r->at.comm, &r->params, r->tape, &dp));
    if (drops)
        LT_TRY(lt_stragglers_new(&r->stragglers, &p->stragglers, r->dp, r->at.comm, p->accum));
    LT_TRY(open_optim(r));
    const lt_train_step_config c = {.device = r->at.device,
                                    .tape = r->tape,
                                    .params = &r->params,
                                    .optim = r->optim,
                                    .task = {p->unweighed ? &unweighed : &weighed, r},
                                    .comm = r->at.comm,
                                    .dp = r->dp,
                                    .pass = LT_PASS_TRAIN,
                                    .grad_accum = p->accum,
                                    .stragglers = r->stragglers,
                                    .gradient_noise = p->noise,
                                    .next = next,
                                    .next_context = r};
    return lt_train_step_new(&r->step, &c);
}

static lt_status run(void *context)
{
    rank *r = context;
    double *to = r->value;
    LT_TRY(open_rank(r));
    for (r->number = 0; r->number < STEPS; r->number++) {
        const lt_step numbers = {.lr = 0.3, .clip_norm = 0.25, .attempt = r->number + 1};
        lt_train_result *result = &r->result[r->number];
        r->micro = 0;
        LT_TRY(lt_train_step_begin(r->step, &numbers, result));
        LT_TRY(lt_train_step_finish(r->step, result));
    }
    for (size_t i = 0; i < r->params.count; i++) {
        const lt_tensor *t = r->params.item[i]->value;
        LT_TRY(lt_tensor_read(t, to, lt_tensor_bytes(t)));
        to += lt_tensor_count(t);
    }
    return LT_OK;
}

static void end(void *context)
{
    rank *r = context;
    lt_train_step_free(&r->step);
    lt_optim_free(&r->optim);
    lt_stragglers_free(&r->stragglers);
    lt_data_parallel_free(&r->dp);
    lt_tape_free(&r->tape);
    for (int i = 0; i < 2; i++) {
        lt_tensor_free(&r->inputs[i]);
        lt_tensor_free(&r->labels[i]);
    }
    lt_params_clear(&r->params);
    lt_module_free(&r->model);
}

/* Runs all ranks, whose results are in `ranks`; returns a copy of the first one's. */
static rank run_all(const plan *p)
{
    const rank_group g = {RANKS_OF(ranks, p->ranks), .f64 = true, .without_comm = p->ranks == 1,
                          .run = run, .end = end};
    for (int i = 0; i < p->ranks; i++)
        ranks[i] = (rank){.plan = p};
    play_ranks_well(&g);
    return ranks[0];
}

static rank one_batch(int ignored)
{
    return run_all(&(plan){.ranks = 1, .accum = 1, .ignored = ignored});
}

/* --- Rows --- */

static void is_as_one_batch(void **state)
{
    const plan *p = *state;
    const bool drops = p->stragglers.drop_compute;
    const double labels = drops ? ROWS / 2 : ROWS;
    const int ignored = p->ignored | (drops ? OF_SECOND_MICRO : 0);
    const rank want = one_batch(ignored), got = run_all(p);
    for (int s = 0; s < STEPS; s++) {
        const lt_train_result *w = &want.result[s], *g = &got.result[s];
        assert_near(g->sums.loss, w->sums.loss, 1e-14);
        assert_near(g->optim.grad_norm, w->optim.grad_norm, 1e-14);
        assert_near(g->weight, w->sums.count[2] / labels, 0);
    }
    for (int i = 0; i < VALUES; i++)
        assert_near(got.value[i], want.value[i], 1e-13);
}

/* Control of the rows above: without weights the results differ. */
static void results_depend_on_the_weights(void **state)
{
    (void)state;
    const rank want = one_batch(SOME);
    const rank got = run_all(&(plan){.ranks = 2, .accum = 2, .ignored = SOME, .unweighed = true});
    assert_true(fabs(got.result[0].sums.loss - want.result[0].sums.loss) > 1e-3);
    assert_true(fabs(got.result[0].optim.grad_norm - want.result[0].optim.grad_norm) > 1e-3);
}

static void equal_counts_change_no_bit(void **state)
{
    static const int forms[][2] = {{1, 4}, {2, 1}, {4, 2}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        plan p = {.ranks = forms[i][0], .accum = forms[i][1], .scale = 512, .unweighed = true};
        const rank want = run_all(&p);
        p.unweighed = false;
        const rank got = run_all(&p);
        assert_memory_equal(got.value, want.value, sizeof got.value);
        for (int s = 0; s < STEPS; s++) {
            assert_near(got.result[s].sums.loss, want.result[s].sums.loss, 0);
            assert_near(got.result[s].optim.grad_norm, want.result[s].optim.grad_norm, 0);
            assert_near(got.result[s].weight, 1, 0);
        }
    }
}

static void a_step_without_a_label_moves_nothing(void **state)
{
    (void)state;
    const rank want = one_batch(ALL),
               got = run_all(&(plan){.ranks = 2, .accum = 2, .ignored = ALL, .scale = 512});
    assert_memory_equal(got.value, want.value, sizeof got.value);
    assert_true(got.result[2].optim.applied);
    assert_near(got.result[2].optim.grad_norm, 0, 0);
    assert_near(got.result[2].sums.loss, 0, 0);
}

/* The first step's values are equal in all. */
static void gradient_norms_of_ranks_are_those_of_their_means(void **state)
{
    (void)state;
    const double a = one_batch(SOME | OF_RANK_1).result[0].optim.grad_norm,
                 b = one_batch(SOME | OF_RANK_0).result[0].optim.grad_norm;
    const rank got = run_all(&(plan){.ranks = 2, .accum = 2, .ignored = SOME, .noise = true});
    assert_near(got.result[0].noise.small_square, (a * a + b * b) / 2, 1e-13);
}

/* A reducer's residual is sent with the next step's gradients, although those average another number of labels. */
static void residuals_are_those_of_unweighted_gradients(void **state)
{
    plan p = {.ranks = 2, .accum = 2, .ignored = SOME, .compress = *state};
    const rank want = run_all(&p);
    p.padded = true;
    const rank got = run_all(&p);
    assert_near(want.result[1].weight, 2 * got.result[1].weight, 0);
    for (int i = 0; i < VALUES; i++)
        assert_near(got.value[i], want.value[i], 1e-13);
    p.compress = NULL;
    const rank dense = run_all(&p);
    assert_true(fabs(dense.value[0] - got.value[0]) > 1e-6); /* control: the residual is not zero */
}

/* clang-format off */
static plan plans[] = {
    {.name = "two micro-batches", .ranks = 1, .accum = 2, .ignored = SOME},
    {.name = "eight micro-batches, some without a label", .ranks = 1, .accum = 8, .ignored = SOME},
    {.name = "two ranks", .ranks = 2, .accum = 1, .ignored = SOME},
    {.name = "four ranks", .ranks = 4, .accum = 1, .ignored = SOME},
    {.name = "four ranks of two micro-batches", .ranks = 4, .accum = 2, .ignored = SOME},
    {.name = "a rank without a label", .ranks = 2, .accum = 2, .ignored = OF_RANK_0},
    {.name = "a growing loss scale", .ranks = 2, .accum = 2, .ignored = SOME, .scale = 512},
    {.name = "gradients sharded over ranks", .ranks = 2, .accum = 2, .ignored = SOME, .division = true},
    {.name = "a reducer with zero residuals", .ranks = 2, .accum = 2, .ignored = SOME, .compress = "topk:1"},
    {.name = "micro-batches dropped by a deadline", .ranks = 2, .accum = 2, .ignored = SOME,
     .stragglers = {.drop_compute = true, .deadline = 1e-9}},
};
/* clang-format on */

int main(void)
{
    static char topk[] = "topk:0.1", powersgd[] = "powersgd:1";
    struct CMUnitTest rows[COUNT_OF(plans) + 6] = {
        cmocka_unit_test(results_depend_on_the_weights),
        cmocka_unit_test(equal_counts_change_no_bit),
        cmocka_unit_test(a_step_without_a_label_moves_nothing),
        cmocka_unit_test(gradient_norms_of_ranks_are_those_of_their_means),
        {"residuals of top-k", residuals_are_those_of_unweighted_gradients, NULL, NULL, topk},
        {"residuals of PowerSGD", residuals_are_those_of_unweighted_gradients, NULL, NULL,
         powersgd},
    };
    for (size_t i = 0; i < COUNT_OF(plans); i++)
        rows[6 + i] = (struct CMUnitTest){plans[i].name, is_as_one_batch, NULL, NULL, &plans[i]};
    return cmocka_run_group_tests_name("terms of micro-batches", rows, NULL, NULL);
}
