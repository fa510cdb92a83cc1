/* Runs of lt_train() with local steps: groups synchronize every N steps. They learn the expected values, and
 * resume bitwise identically from a checkpoint at any step of a round. A rank is a thread. */

#include "joined.h"
#include "training.h"

#include "lather/shampoo.h"
#include "lather/shard.h"
#include "lather/stragglers.h"

#include <math.h>

enum { INPUTS = 5, HIDDEN = 6, SAMPLES = 64, STEP = 8, RANKS = 4, VALUES = INPUTS * HIDDEN };

typedef enum kind { SGD, ADAM, SHAMPOO } kind;

/* A run of all ranks. */
typedef struct plan {
    const char *run; /* run folder, or NULL */
    int locals;      /* ranks per group; 0: no local steps */
    lt_local_steps_config local;
    kind optim;
    bool f64, resume, has_ema, divided;
    int epochs, stop_after; /* stop_after in steps; 0: run to the end */
    bool skip_nan, has_noise;
    const lt_straggler_config *stragglers;
} plan;

typedef struct rank {
    training run;
    const plan *plan;
    double first[VALUES], value[VALUES]; /* first parameter, before and after training */
} rank;

static rank ranks[RANKS];
static float inputs[SAMPLES][INPUTS];
static int64_t labels[SAMPLES];
static char output[TEMP_PATH];

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const rank *r = context;
    assert_null(counts);
    out->output = lt_module_forward(r->run.model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {.name = "classes", .unit = "samples", .forward = forward};

static void make_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < INPUTS; k++)
            inputs[i][k] = sinf((float)(7 * i + 3 * k));
        labels[i] = inputs[i][0] + inputs[i][3] > 0 ? 1 + (inputs[i][1] > 0) : 0;
    }
}

/* --- A rank --- */

static lt_status make_model(rank *r)
{
    lt_module *layer[3] = {NULL};
    LT_TRY(lt_layer_linear(&layer[0], r->run.at.device, "first", INPUTS, HIDDEN, true));
    LT_TRY(lt_layer_relu(&layer[1]));
    LT_TRY(lt_layer_linear(&layer[2], r->run.at.device, "last", HIDDEN, 3, true));
    return make_chain(&r->run, layer, 3);
}

static lt_status make_optim(rank *r)
{
    const plan *p = r->plan;
    const lt_sgd_config sgd = {.momentum = 0};
    lt_shampoo_config shampoo = LT_SHAMPOO_DEFAULTS;
    shampoo.precondition_frequency = 2;
    const int locals = p->locals ? p->locals : RANKS;
    if (p->optim == SGD)
        LT_TRY(lt_optim_sgd(&r->run.optim, &r->run.params, &sgd));
    else if (p->optim == ADAM)
        LT_TRY(lt_optim_adam(&r->run.optim, &r->run.params, NULL));
    else
        LT_TRY(lt_optim_shampoo(&r->run.optim, &r->run.params, &shampoo));
    if (!p->divided)
        return LT_OK;
    const int me = lt_comm_rank(r->run.at.comm);
    LT_TRY(lt_comm_split(r->run.at.comm, me / locals, me, &r->run.group));
    const lt_shard_config shard = {.comm = r->run.group};
    return lt_optim_shard(r->run.optim, &shard);
}

static lt_status train(rank *r)
{
    const plan *p = r->plan;
    lt_train_config c = configure(&r->run, &task, NULL);
    c.local_steps = p->locals ? &p->local : NULL;
    c.ranks_per_node = p->locals;
    c.loader.batch = STEP / RANKS;
    c.schedule = (lt_schedule){.lr = 0.05, .epochs = p->epochs};
    c.eval_every = 1;
    c.ema_decay = p->has_ema ? 0.9 : 0;
    c.output = p->run ? output : NULL;
    c.resume = p->resume;
    c.skip_nan = p->skip_nan;
    c.gradient_noise = p->has_noise;
    c.stragglers = p->stragglers;
    r->run.stop_after = p->stop_after;
    return lt_train(&c, &r->run.end);
}

static void note_values(const rank *r, double *value)
{
    const lt_tensor *t = r->run.params.item[0]->value;
    float narrow[VALUES];
    assert_int_equal(lt_tensor_count(t), VALUES);
    if (r->plan->f64) {
        assert_ok(lt_tensor_read(t, value, VALUES * sizeof *value));
        return;
    }
    assert_ok(lt_tensor_read(t, narrow, sizeof narrow));
    for (int i = 0; i < VALUES; i++)
        value[i] = (double)narrow[i];
}

static lt_status run(void *context)
{
    rank *r = context;
    LT_TRY(open_arrays(&r->run.data, inputs[0], labels, SAMPLES, LT_SHAPE(INPUTS), 3));
    LT_TRY(make_model(r));
    LT_TRY(make_optim(r));
    note_values(r, r->first);
    LT_TRY(train(r));
    note_values(r, r->value);
    return LT_OK;
}

static void end(void *context)
{
    close_training(context);
}

static rank_group run_all(const plan *p)
{
    const rank_group group = {RANKS_OF(ranks, RANKS), .f64 = p->f64, .run = run, .end = end};
    make_data();
    if (p->run)
        temp_path(output, folder, p->run);
    for (int i = 0; i < RANKS; i++)
        ranks[i] = (rank){.plan = p};
    play_ranks(&group);
    return group;
}

static void run_well(const plan *p)
{
    const rank_group group = run_all(p);
    expect_ranks(&group);
    for (int i = 1; i < RANKS && !p->stop_after; i++) /* a run ends with an outer step */
        assert_memory_equal(ranks[i].value, ranks[0].value, sizeof ranks[0].value);
}

static void run_badly(const plan *p, const char *why)
{
    run_all(p);
    assert_int_equal(ranks[0].run.at.status, LT_E_ARG);
    if (!strstr(ranks[0].run.at.message, why))
        fail_msg("'%s' lacks '%s'", ranks[0].run.at.message, why);
}

/* --- Rows --- */

static const lt_local_steps_config diloco = {.every = 3, .lr = 0.7, .momentum = 0.9};
static const lt_local_steps_config sparse = {
    .every = 3, .lr = 0.7, .momentum = 0.5, .compress = "topk:0.1,2bit", .decay = 0.9};

/* With H = 1 and an outer learning rate of 1 without momentum, averaging the groups' steps equals a step with the
 * mean gradient. */
static void test_every_step(void **state)
{
    (void)state;
    double want[VALUES], moved = 0;
    plan p = {.f64 = true, .epochs = 2};
    run_well(&p);
    memcpy(want, ranks[0].value, sizeof want);
    p.local = (lt_local_steps_config){.every = 1, .lr = 1};
    for (p.locals = 1; p.locals <= 2; p.locals++) {
        run_well(&p);
        for (int i = 0; i < VALUES; i++)
            assert_near(ranks[0].value[i], want[i], 1e-12);
    }
    p.locals = 2;
    p.local.every = 4; /* control: less frequent outer steps give another result */
    run_well(&p);
    for (int i = 0; i < VALUES; i++)
        moved = fmax(moved, fabs(ranks[0].value[i] - want[i]));
    assert_true(moved > 1e-6);
}

/* An epoch has 8 steps: rounds end after steps 3, 6 and 8. */
static void check_resume(plan p, int stop_after)
{
    char a[64], b[64];
    static int number;
    char whole[32], parts[32];
    snprintf(whole, sizeof whole, "whole%d", ++number);
    snprintf(parts, sizeof parts, "parts%d", number);
    p.epochs = 2;
    p.run = whole;
    run_well(&p);
    p.run = parts;
    p.stop_after = stop_after;
    run_well(&p);
    assert_true(ranks[0].run.end.stopped && ranks[0].run.end.step == stop_after);
    p.resume = true;
    p.stop_after = 0;
    run_well(&p);
    assert_int_equal(ranks[0].run.end.step, 16);
    snprintf(a, sizeof a, "%s/model.safetensors", whole);
    snprintf(b, sizeof b, "%s/model.safetensors", parts);
    temp_assert_same(folder, a, b);
    char x[TEMP_PATH], y[TEMP_PATH];
    assert_true(
        joined_same(temp_path(x, folder, whole), temp_path(y, folder, parts), "optim.safetensors"));
}

static void test_resume(void **state)
{
    (void)state;
    plan p = {.local = diloco, .locals = 2, .optim = ADAM, .has_ema = true};
    check_resume(p, 4); /* one step after an outer step */
    check_resume(p, 6); /* at an outer step */
    p.divided = true;
    check_resume(p, 5);
    p.locals = 1;
    p.divided = false;
    check_resume(p, 5);
}

static void test_resume_sparse(void **state)
{
    (void)state;
    plan p = {.local = sparse, .locals = 2, .optim = ADAM};
    check_resume(p, 5);
    check_resume(p, 6);
}

static void test_resume_shampoo(void **state)
{
    (void)state;
    plan p = {.local = diloco, .locals = 2, .optim = SHAMPOO, .divided = true};
    check_resume(p, 5);
    p.local = sparse;
    check_resume(p, 6);
}

static void test_other_groups(void **state)
{
    (void)state;
    plan p = {.run = "other", .local = sparse, .locals = 2, .optim = ADAM, .epochs = 2};
    p.stop_after = 5;
    run_well(&p);
    p.resume = true;
    p.locals = 1;
    run_badly(&p, "was saved 2 steps after an outer step of 2 groups, but this run has 4");
    p.locals = 0;
    run_badly(&p, "was saved 2 steps after an outer step of 2 groups, but this run has 1");
    p.locals = 2; /* control: the same groups resume, up to an outer step */
    p.stop_after = 1;
    run_well(&p);
    assert_int_equal(ranks[0].run.end.step, 6);
    p.locals = 1;
    run_well(&p);
    assert_int_equal(ranks[0].run.end.step, 7);
    p.locals = 2;
    run_badly(&p, "was saved 1 steps after an outer step of 4 groups, but this run has 2");
}

static void test_contradictions(void **state)
{
    (void)state;
    const lt_straggler_config backup = {.backup_workers = 1};
    plan p = {.local = diloco, .locals = 2, .epochs = 1, .has_noise = true};
    run_badly(&p, "train: gradient_noise: groups with local steps have other weights");
    p.has_noise = false;
    p.stragglers = &backup;
    run_badly(&p, "train: stragglers and local_steps contradict each other");
}

/* Turns local steps on when resuming a run without them, and off again. */
static void test_in_and_out(void **state)
{
    (void)state;
    plan p = {.run = "in", .local = diloco, .optim = ADAM, .epochs = 1};
    run_well(&p);
    p.resume = true;
    p.epochs = 2;
    p.locals = 2;
    run_well(&p);
    p.epochs = 3;
    p.locals = 0;
    run_well(&p);
    assert_int_equal(ranks[0].run.end.step, 24);
}

/* A round of 8 steps, one epoch: average += (1 - 0.9^8) (value - average), independent of the groups' values in
 * between. */
static void test_average(void **state)
{
    (void)state;
    const double kept = pow(0.9, 8);
    char path[TEMP_PATH];
    lt_safetensors *file = NULL;
    plan p = {.run = "average", .local = diloco, .locals = 2, .has_ema = true, .epochs = 1};
    p.local.every = 8;
    run_well(&p);
    assert_ok(lt_safetensors_open(&file, temp_path(path, folder, "average/model.safetensors")));
    const lt_safetensors_entry *e = lt_safetensors_find(file, "first.weight");
    assert_non_null(e);
    for (int i = 0; i < VALUES; i++)
        assert_near(((const float *)e->data)[i],
                    kept * ranks[0].first[i] + (1 - kept) * ranks[0].value[i], 1e-6);
    lt_safetensors_close(&file);
}

/* Returns the mean over groups of the unsent residual; it does not depend on the number of groups. */
static double mean_residual(const char *run, int groups, double out[VALUES])
{
    char path[TEMP_PATH], name[96];
    lt_safetensors *file = NULL;
    double most = 0;
    snprintf(name, sizeof name, "%s/checkpoints/latest/optim.safetensors", run);
    assert_ok(lt_safetensors_open(&file, temp_path(path, folder, name)));
    memset(out, 0, VALUES * sizeof *out);
    for (int g = 0; g < groups; g++) {
        char group[32] = "";
        if (g)
            snprintf(group, sizeof group, "group.%d.", g);
        snprintf(name, sizeof name, "%sfirst.weight#outer.residual", group);
        const lt_safetensors_entry *e = lt_safetensors_find(file, name);
        assert_non_null(e);
        for (int i = 0; i < VALUES; i++)
            out[i] += (double)((const float *)e->data)[i] / groups;
    }
    for (int i = 0; i < VALUES; i++)
        most = fmax(most, fabs(out[i]));
    lt_safetensors_close(&file);
    return most;
}

static void test_mass(void **state)
{
    (void)state;
    double before[VALUES], after[VALUES];
    plan p = {.run = "mass", .local = sparse, .locals = 1, .optim = ADAM, .epochs = 2};
    p.local.every = 1;
    p.stop_after = 3;
    run_well(&p);
    assert_true(mean_residual("mass", 4, before) > 1e-6);
    p.resume = true;
    p.locals = 2;
    p.stop_after = 1;
    p.local.every = 8; /* stopped within a round: the residual equals the loaded one */
    run_well(&p);
    mean_residual("mass", 2, after);
    for (int i = 0; i < VALUES; i++)
        assert_near(after[i], before[i], 1e-7);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"an outer step after every step equals training with the mean gradient", test_every_step,
         NULL, NULL, NULL},
        {"a run resumes within a round bitwise identically", test_resume, temp_setup, temp_teardown,
         NULL},
        {"a run resumes with its unsent residual", test_resume_sparse, temp_setup, temp_teardown,
         NULL},
        {"a run resumes with Shampoo sharded within each group", test_resume_shampoo, temp_setup,
         temp_teardown, NULL},
        {"another number of groups must wait for the next outer step", test_other_groups,
         temp_setup, temp_teardown, NULL},
        {"noise and backup workers contradict local steps", test_contradictions, temp_setup,
         temp_teardown, NULL},
        {"a run resumes with local steps turned on or off", test_in_and_out, temp_setup,
         temp_teardown, NULL},
        {"averages follow the synchronized values", test_average, temp_setup, temp_teardown, NULL},
        {"another number of groups redistributes the residual", test_mass, temp_setup,
         temp_teardown, NULL},
    };
    return cmocka_run_group_tests_name("runs of local steps", rows, NULL, NULL);
}
