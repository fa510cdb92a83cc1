/* muP. The coordinate check of Yang et al. 2022, appendix D.1: after a few steps the change of features and logits
 * is as large at any width, and grows or vanishes with it without muP, the control. And the scales of single
 * parameters. */

#include "fixture.h"

#include "lather/cautious.h"
#include "lather/ext/optim.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/mup.h"
#include "lather/optim_config.h"

#include <math.h>
#include <string.h>

enum { INPUTS = 8, CLASSES = 4, SAMPLES = 64, STEPS = 4, NARROW = 16, WIDE = 128, SEEDS = 2 };
enum { FIRST, HIDDEN, HEAD, LAYERS };

typedef struct net {
    lt_module *layer[LAYERS];
    lt_params list;
} net;

static void net_open(net *n, lt_device *device, int width, uint64_t seed)
{
    static const char *const name[] = {"first", "hidden", "head"};
    const int size[] = {INPUTS, width, width, CLASSES};
    *n = (net){0};
    for (int i = 0; i < LAYERS; i++) {
        assert_ok(lt_layer_linear(&n->layer[i], device, name[i], size[i], size[i + 1], true));
        assert_ok(lt_init_module(n->layer[i], seed));
        assert_ok(lt_module_params(n->layer[i], &n->list));
    }
}

static void net_close(net *n)
{
    lt_params_clear(&n->list);
    for (int i = 0; i < LAYERS; i++)
        lt_module_free(&n->layer[i]);
}

/* Returns the logits; *features: the input of the last relu. */
static lt_tensor *forward(net *n, lt_tape *tape, lt_tensor *x, lt_tensor **features)
{
    lt_tensor *h = lt_relu(tape, lt_module_forward(n->layer[FIRST], tape, x));
    *features = lt_module_forward(n->layer[HIDDEN], tape, h);
    lt_tape_keep(tape, *features);
    lt_tensor *logits = lt_module_forward(n->layer[HEAD], tape, lt_relu(tape, *features));
    lt_tape_keep(tape, logits);
    return logits;
}

typedef struct problem {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *x, *labels;
} problem;

static double random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (double)(*state >> 40) / (double)(1 << 23) - 1;
}

static void problem_open(problem *p)
{
    float x[SAMPLES * INPUTS];
    int32_t label[SAMPLES];
    uint64_t state = 1;
    for (int i = 0; i < SAMPLES * INPUTS; i++)
        x[i] = (float)(2 * random_number(&state));
    for (int i = 0; i < SAMPLES; i++)
        label[i] = (x[i * INPUTS] > 0) + 2 * (x[i * INPUTS + 1] * x[i * INPUTS + 2] > 0);
    assert_ok(lt_device_open(&p->device, "cpu", &(lt_device_config){.threads = 1}));
    assert_ok(lt_tape_new(&p->tape, p->device));
    assert_ok(lt_tensor_new(&p->x, p->device, LT_F32, LT_SHAPE(SAMPLES, INPUTS)));
    assert_ok(lt_tensor_new(&p->labels, p->device, LT_I32, LT_SHAPE(SAMPLES)));
    assert_ok(lt_tensor_write(p->x, x, sizeof x));
    assert_ok(lt_tensor_write(p->labels, label, sizeof label));
}

static void problem_close(problem *p)
{
    lt_tensor_free(&p->labels);
    lt_tensor_free(&p->x);
    lt_tape_free(&p->tape);
    lt_device_close(&p->device);
}

static double *read(const lt_tensor *t, size_t *count)
{
    *count = (size_t)lt_tensor_count(t);
    double *out = calloc(*count, sizeof *out);
    assert_non_null(out);
    get(t, out);
    return out;
}

static double rms_change(const lt_tensor *now, const double *before)
{
    size_t count;
    double sum = 0, *value = read(now, &count);
    for (size_t i = 0; i < count; i++)
        sum += (value[i] - before[i]) * (value[i] - before[i]);
    free(value);
    return sqrt(sum / (double)count);
}

typedef struct change {
    double features, logits;
} change;

/* Trains for STEPS steps on one batch; returns the change of its features and logits. */
static change train(const problem *p, net *n, lt_optim *optim, double lr)
{
    size_t count;
    lt_tensor *features = NULL;
    double *first[2] = {NULL, NULL};
    change out = {0, 0};
    for (int64_t step = 0; step <= STEPS; step++) {
        lt_tape_reset(p->tape, LT_PASS_TRAIN);
        lt_tensor *logits = forward(n, p->tape, p->x, &features);
        lt_params_zero_grad(&n->list);
        assert_ok(lt_tape_backward(p->tape, lt_softmax_xent(p->tape, logits, p->labels, 0), 1));
        if (!step) {
            first[0] = read(features, &count);
            first[1] = read(logits, &count);
        }
        out = (change){rms_change(features, first[0]), rms_change(logits, first[1])};
        assert_ok(lt_optim_step(optim, &(lt_step){.lr = lr, .attempt = step + 1}));
    }
    free(first[0]);
    free(first[1]);
    return out;
}

static lt_optim *make(const lt_optim_config *config, const lt_params *params)
{
    lt_optim *o = NULL;
    assert_ok(lt_optim_config_make(&o, config, params));
    return o;
}

static change change_at_width(const problem *p, const lt_optim_config *config, int width, bool mup,
                              uint64_t seed)
{
    net n, base;
    net_open(&n, p->device, width, seed);
    net_open(&base, p->device, NARROW, seed);
    lt_optim *o = make(config, &n.list), *of_base = make(config, &base.list);
    if (mup) {
        assert_ok(lt_mup_scale_values(&n.list, &base.list, NULL));
        assert_ok(lt_mup_scale_optim(o, of_base, NULL));
    }
    const change out = train(p, &n, o, config->lr);
    lt_optim_free(&of_base);
    lt_optim_free(&o);
    net_close(&base);
    net_close(&n);
    return out;
}

/* Returns the powers of the width by which the changes grow, from the geometric mean over seeds. */
static change growth_of(const problem *p, const lt_optim_config *config, bool mup)
{
    change sum = {0, 0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const change a = change_at_width(p, config, NARROW, mup, seed),
                     b = change_at_width(p, config, WIDE, mup, seed);
        sum.features += log(b.features / a.features);
        sum.logits += log(b.logits / a.logits);
    }
    const double octaves = SEEDS * log((double)WIDE / NARROW);
    return (change){sum.features / octaves, sum.logits / octaves};
}

static const char *const optimizers[] = {
    "{\"optim\":\"sgd\",\"lr\":0.1,\"momentum\":0.9,\"nesterov\":true}",
    "{\"optim\":\"adamw\",\"lr\":0.003,\"weight_decay\":0}",
    "{\"optim\":\"adagrad\",\"lr\":0.01}",
    "{\"optim\":\"lion\",\"lr\":0.001}",
    "{\"optim\":\"muon\",\"lr\":0.003}",
    "{\"optim\":\"muon\",\"lr\":0.01,\"muon_scale\":\"match_rms_adamw\"}",
    "{\"optim\":\"shampoo\",\"lr\":0.01}",
    "{\"optim\":\"shampoo\",\"lr\":0.01,\"max_preconditioner_dim\":16}",
    "{\"optim\":\"shampoo\",\"lr\":0.1,\"grafting\":\"sgd\"}",
    "{\"optim\":\"shampoo\",\"lr\":0.003,\"grafting\":\"adam\"}",
    "{\"optim\":\"shampoo\",\"lr\":0.01,\"preconditioner\":\"kl\",\"beta2\":0.95}",
    "{\"optim\":\"shampoo\",\"lr\":0.01,\"preconditioner\":\"spectral\"}",
    "{\"optim\":\"shampoo\",\"lr\":0.003,\"preconditioner\":\"sign\"}",
    "{\"optim\":\"soap\",\"lr\":0.001,\"precondition_frequency\":3}",
};

static void changes_do_not_depend_on_the_width(void **state)
{
    const double limit = 0.3; /* 1: as the width */
    const char *json = *state;
    problem p;
    lt_optim_config config;
    assert_ok(lt_optim_config_parse(&config, json, strlen(json)));
    problem_open(&p);
    const change with = growth_of(&p, &config, true), without = growth_of(&p, &config, false);
    print_message("%s: features %.2f, logits %.2f; without muP %.2f, %.2f\n", json, with.features,
                  with.logits, without.features, without.logits);
    assert_true(fabs(with.features) < limit && fabs(with.logits) < 2 * limit / 3);
    assert_true(without.logits > with.logits + 0.15 && without.logits > 0.15);
    problem_close(&p);
    lt_optim_config_clear(&config);
}

/* --- Scales of single parameters, at 4 times the base width --- */

enum { BASE = 8, RATIO = 4 };

/* A network and its base, with the same seed. */
static void open_pair(problem *p, net *n, net *base)
{
    problem_open(p);
    net_open(n, p->device, RATIO * BASE, 1);
    net_open(base, p->device, BASE, 1);
}

static void close_pair(problem *p, net *n, net *base)
{
    net_close(base);
    net_close(n);
    problem_close(p);
}

typedef struct scale_row {
    const char *json;
    double lr[2 * LAYERS]; /* one per parameter: weight and bias of each layer */
} scale_row;

static const scale_row scales[] = {
    {"{\"optim\":\"sgd\",\"lr\":1,\"weight_decay\":0.1}", {4, 4, 1, 4, 0.25, 1}},
    {"{\"optim\":\"adamw\",\"lr\":1,\"weight_decay\":0.1}", {1, 1, 0.25, 1, 0.25, 1}},
    {"{\"optim\":\"muon\",\"lr\":1,\"weight_decay\":0.1}", {1, 1, 1, 1, 0.25, 1}},
    {"{\"optim\":\"muon\",\"lr\":1,\"muon_scale\":\"match_rms_adamw\",\"weight_decay\":0.1}",
     {1, 1, 0.5, 1, 0.25, 1}},
    {"{\"optim\":\"shampoo\",\"lr\":1,\"target_dimensionality\":2,\"weight_decay\":0.1}",
     {2, 2, 1, 2, 0.5, 1}},
};

static void each_parameter_has_its_scale(void **state)
{
    const scale_row *r = *state;
    problem p;
    net n, base;
    lt_optim_config config;
    assert_ok(lt_optim_config_parse(&config, r->json, strlen(r->json)));
    open_pair(&p, &n, &base);
    lt_optim *o = make(&config, &n.list), *of_base = make(&config, &base.list);
    assert_ok(lt_mup_scale_optim(o, of_base, NULL));
    for (size_t i = 0; i < o->count; i++) {
        const bool grows = i < 2 * LAYERS - 1;
        assert_near(o->slot[i].lr_scale, r->lr[i], 1e-12);
        assert_near(o->slot[i].lr_scale * o->slot[i].weight_decay, grows ? 0.1 / RATIO : 0.1,
                    1e-12);
    }
    lt_optim_free(&of_base);
    lt_optim_free(&o);
    close_pair(&p, &n, &base);
    lt_optim_config_clear(&config);
}

static double first_value(const lt_param *p)
{
    size_t count;
    double *all = read(p->value, &count);
    const double first = all[0];
    free(all);
    return first;
}

static void initial_values_follow_the_base(void **state)
{
    static const double scale[LAYERS] = {1, 0.5, 0.25};
    problem p;
    net n, base;
    (void)state;
    open_pair(&p, &n, &base);
    assert_ok(lt_mup_scale_values(&n.list, &base.list, NULL));
    for (size_t i = 0; i < LAYERS; i++)
        assert_near(first_value(n.list.item[2 * i]), scale[i] * first_value(base.list.item[2 * i]),
                    1e-6);
    net_close(&n);
    net_open(&n, p.device, RATIO * BASE, 1);
    assert_ok(lt_tensor_fill(n.list.item[3]->value, 1)); /* the bias before the head */
    assert_ok(lt_tensor_fill(base.list.item[3]->value, 1));
    assert_ok(lt_mup_scale_values(&n.list, &base.list, "hidden.b"));
    assert_near(first_value(n.list.item[3]), 0.25, 1e-6);
    close_pair(&p, &n, &base);
}

static lt_update_size no_size(const lt_optim *self, const lt_slot *slot)
{
    (void)self, (void)slot;
    return (lt_update_size){0};
}

static void shards_and_scales_that_are_no_numbers_are_rejected(void **state)
{
    problem p;
    net n, base;
    (void)state;
    open_pair(&p, &n, &base);
    lt_param *first = n.list.item[0];
    const lt_shape shape = lt_tensor_shape(first->value);
    lt_shard_spec half = lt_shard_spec_even(shape, shape, 0, 2, 1);
    first->spec = &half;
    assert_fails(lt_mup_scale_values(&n.list, &base.list, NULL), LT_E_UNSUPPORTED,
                 "mup: first.weight is a shard");
    first->spec = NULL;
    lt_optim *o = NULL, *of_base = NULL;
    assert_ok(lt_optim_open(&o, "adam", &n.list));
    assert_ok(lt_optim_open(&of_base, "adam", &base.list));
    const lt_optim_ops *whole = o->ops;
    lt_optim_ops lacking = *whole;
    lacking.update_size = no_size;
    o->ops = &lacking;
    assert_fails(lt_mup_scale_optim(o, of_base, NULL), LT_E_ARG,
                 "mup: adam: scale inf of the learning rate of first.weight");
    o->ops = whole;
    lt_optim_free(&of_base);
    lt_optim_free(&o);
    close_pair(&p, &n, &base);
}

static void what_has_no_rule_is_rejected(void **state)
{
    problem p;
    net n;
    lt_optim *o = NULL, *of_base = NULL;
    lt_params one = {0};
    (void)state;
    problem_open(&p);
    net_open(&n, p.device, BASE, 1);
    assert_ok(lt_params_add(&one, n.list.item[0]));
    assert_ok(lt_optim_open(&o, "lars", &n.list));
    assert_int_equal(lt_mup_scale_optim(o, o, NULL), LT_E_UNSUPPORTED);
    assert_non_null(strstr(lt_error_message(), "lars"));
    lt_optim_free(&o);
    assert_ok(lt_optim_open(&o, "sgd", &n.list));
    assert_ok(lt_optim_open(&of_base, "sgd", &one));
    assert_int_equal(lt_mup_scale_optim(o, of_base, NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "first.bias"));
    assert_ok(lt_optim_start_cautious(o, &(lt_cautious_config){.mask = true}));
    assert_int_equal(lt_mup_scale_optim(o, o, NULL), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "cautious"));
    assert_int_equal(lt_mup_scale_values(&n.list, &one, NULL), LT_E_ARG);
    lt_params_clear(&one);
    lt_optim_free(&of_base);
    lt_optim_free(&o);
    net_close(&n);
    problem_close(&p);
}

int main(void)
{
    enum { N = COUNT_OF(optimizers), S = COUNT_OF(scales) };
    struct CMUnitTest tests[N + S + 3];
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        tests[n++] = row_test(optimizers[i], changes_do_not_depend_on_the_width, optimizers[i]);
    for (size_t i = 0; i < S; i++)
        tests[n++] = row_test(scales[i].json, each_parameter_has_its_scale, &scales[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(initial_values_follow_the_base);
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(shards_and_scales_that_are_no_numbers_are_rejected);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(what_has_no_rule_is_rejected);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
