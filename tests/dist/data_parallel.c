/* Data parallelism: several ranks compute the same as one rank with all their samples. */

#include "base/alloc.h"
#include "near.h"
#include "tensor/tensor.h"
#include "trial.h"

#include "lather/detail/backend.h"
#include "lather/detail/gradient_parts.h"
#include "lather/ext/fail.h"
#include "lather/ops.h"
#include "lather/stragglers.h"

#include <stdio.h>
#include <string.h>

static const int sizes[] = {2, 3, 4, 8};

static void run_well(const trial *t, outcome *out)
{
    trial_run(t, out);
    for (int r = 0; r < t->ranks; r++)
        if (out[r].status)
            fail_msg("rank %d of %d: %s: %s", r, t->ranks, lt_status_name(out[r].status),
                     out[r].message);
}

/* The largest difference of a parameter, relative to 1. */
static double distance(const outcome *a, const outcome *b)
{
    double most = 0;
    if (a->values != b->values)
        return (double)INFINITY;
    for (int i = 0; i < a->values; i++) {
        double d = fabs(a->value[i] - b->value[i]);
        if (!(d <= most))
            most = d;
    }
    return most;
}

static bool same_bits(const outcome *out, int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (memcmp(out[r].value, out->value, sizeof out->value) != 0)
            return false;
    return true;
}

/* Compares n ranks with one; they differ by the order of a sum of at most SAMPLES terms. */
static void compare_with_one_rank(trial t, double bound)
{
    outcome one, out[MAX_RANKS];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        trial alone = t;
        alone.ranks = 1;
        t.ranks = sizes[i];
        run_well(&alone, &one);
        run_well(&t, out);
        assert_true(same_bits(out, t.ranks));
        assert_near(distance(&out[0], &one), 0, bound);
    }
}

static void ranks_equal_one_rank(void **state)
{
    (void)state;
    compare_with_one_rank((trial){.f64 = true, .config.bucket_bytes = 256}, 1e-13);
}

static void ranks_equal_one_rank_in_f32(void **state)
{
    (void)state;
    compare_with_one_rank((trial){.config.bucket_bytes = 256}, 2e-6);
}

static void synchronised_batch_norm_equals_one_rank(void **state)
{
    (void)state;
    trial t = {.f64 = true, .has_norm = true, .config = {.bucket_bytes = 256, .sync_bn = true}};
    compare_with_one_rank(t, 1e-12);
    outcome one, out[MAX_RANKS];
    t.ranks = 1;
    run_well(&t, &one);
    t.ranks = 3;
    run_well(&t, out);
    for (int c = 0; c < 4; c++) {
        assert_near(out[2].mean[c], one.mean[c], 1e-14);
        assert_near(out[2].var[c], one.var[c], 1e-14);
    }
}

/* Moments are combined by kernels, which a graph can hold. */
static void batch_norm_is_synchronised_on_the_device(void **state)
{
    (void)state;
    outcome host[MAX_RANKS], device[MAX_RANKS];
    trial t = {.ranks = 3, .f64 = true, .has_norm = true, .config = {.sync_bn = true}};
    run_well(&t, host);
    t.graphs = true;
    run_well(&t, device);
    assert_near(distance(&device[0], &host[0]), 0, 1e-13);
    for (int c = 0; c < 4; c++) {
        assert_near(device[2].mean[c], host[2].mean[c], 1e-15);
        assert_near(device[2].var[c], host[2].var[c], 1e-15);
    }
    t.captures = true;
    trial_run(&t, device);
    for (int r = 0; r < t.ranks; r++) {
        assert_int_equal(device[r].status, LT_E_UNSUPPORTED);
        assert_non_null(strstr(device[r].message, "synchronized batch norm: run a step eagerly"));
    }
}

/* Control: batch norm over each rank's own batch is a different function. */
static void separate_batch_norm_differs(void **state)
{
    (void)state;
    outcome one, out[MAX_RANKS];
    trial t = {.ranks = 1, .f64 = true, .has_norm = true};
    run_well(&t, &one);
    t.ranks = 2;
    run_well(&t, out);
    assert_true(same_bits(out, 2));
    assert_false(distance(&out[0], &one) <= 1e-6);
}

static void ranks_are_bitwise_identical(void **state)
{
    (void)state;
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    outcome exact[MAX_RANKS], out[MAX_RANKS];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t k = 0; k < COUNT_OF(dtypes); k++) {
            trial t = {.ranks = sizes[i], .has_norm = true, .extra_on_zero = true};
            t.config = (lt_data_parallel_config){.bucket_bytes = 512, .dtype = dtypes[k]};
            run_well(&t, out);
            assert_true(same_bits(out, t.ranks));
            if (!k)
                memcpy(exact, out, sizeof exact);
            /* lr times at most a gradient of about 1, rounded to 8 bits, three times */
            assert_near(distance(&out[0], &exact[0]), 0, k ? 3 * 0.05 * 0x1p-7 : 0);
            assert_int_equal(distance(&out[0], &exact[0]) > 0, k > 0);
        }
    }
}

/* Control for the above. */
static void a_disturbed_rank_is_found(void **state)
{
    (void)state;
    outcome out[MAX_RANKS];
    trial t = {.ranks = 4, .disturbed = 3};
    run_well(&t, out);
    assert_false(same_bits(out, 4));
}

static void a_gradient_that_one_rank_has_is_shared(void **state)
{
    (void)state;
    outcome out[MAX_RANKS], alone;
    trial t = {.ranks = 4, .f64 = true, .extra_on_zero = true, .config.bucket_bytes = 64};
    run_well(&t, out);
    for (int r = 0; r < 4; r++) {
        assert_true(out[r].extra_has_grad);
        assert_false(out[r].unused_has_grad); /* absent on all ranks: not zero */
        for (int i = 0; i < 5; i++)
            assert_near(out[r].gradient_of_extra[i], out[0].gradient_of_extra[i], 0);
    }
    t.ranks = 1;
    run_well(&t, &alone);
    assert_false(alone.unused_has_grad);
    assert_true(fabs(out[0].gradient_of_extra[0]) < fabs(alone.gradient_of_extra[0]));
}

static void ranks_without_a_batch_count_as_zero(void **state)
{
    (void)state;
    outcome out[MAX_RANKS];
    trial t = {.ranks = 4, .f64 = true, .idle = 2, .config.bucket_bytes = 128};
    run_well(&t, out);
    assert_true(same_bits(out, 4));
    assert_true(out[3].extra_has_grad);
}

static void a_different_order_of_gradients_changes_nothing(void **state)
{
    (void)state;
    outcome out[MAX_RANKS], other[MAX_RANKS];
    trial t = {.ranks = 3, .f64 = true, .config.bucket_bytes = 8};
    run_well(&t, out);
    t.swapped = true;
    run_well(&t, other);
    assert_true(same_bits(other, 3));
    assert_near(distance(&out[0], &other[0]), 0, 1e-15);
}

static void accumulation_communicates_once(void **state)
{
    (void)state;
    outcome one[MAX_RANKS], three[MAX_RANKS];
    trial t = {.ranks = 2, .f64 = true, .config.bucket_bytes = 256};
    run_well(&t, one);
    t.accum = 3;
    run_well(&t, three);
    assert_int_equal(one[0].update_bytes, three[0].update_bytes);
    assert_near(distance(&one[0], &three[0]), 0, 1e-13);
    assert_true(same_bits(three, 2));
}

/* Sharded gradients give the same parameters as an all-reduce. */
static void sharded_gradients_are_bitwise_identical(void **state)
{
    (void)state;
    static const trial trials[] = {
        {.config.bucket_bytes = 256},
        {.config.bucket_bytes = 8, .swapped = true},
        {.extra_on_zero = true, .config.bucket_bytes = 64},
        {.idle = 1, .f64 = true},
        {.accum = 2, .has_norm = true, .config = {.sync_bn = true}},
        {.config = {.no_overlap = true, .dtype = LT_BF16}},
    };
    outcome whole[MAX_RANKS], out[MAX_RANKS];
    for (size_t i = 0; i < COUNT_OF(trials); i++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            trial t = trials[i];
            t.ranks = ranks;
            run_well(&t, whole);
            t.divided = true;
            run_well(&t, out);
            assert_true(same_bits(out, ranks));
            assert_memory_equal(out[0].value, whole[0].value, sizeof whole->value);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(out[r].extra_has_grad, whole[r].extra_has_grad);
                assert_false(out[r].unused_has_grad);
            }
        }
}

/* All-reduce of n elements between 2 ranks: each sends the other's half, then its own. */
static void bytes_follow_the_formula(void **state)
{
    (void)state;
    outcome out[MAX_RANKS];
    trial t = {.ranks = 2};
    run_well(&t, out);
    /* one bucket: 7 gradients and their flags */
    const int64_t elements = 4 * 3 * 3 * 3 + 4 + 4 + 5 * 64 + 5 + 5 + 3 + 7;
    assert_int_equal(out[0].update_bytes, 4 * elements);
    t.config.dtype = LT_BF16;
    run_well(&t, out);
    assert_int_equal(out[1].update_bytes, 2 * elements);
    t.config.bucket_bytes = 64;
    run_well(&t, out);
    assert_int_equal(out[0].update_bytes + out[1].update_bytes, 4 * elements);
}

static void overlap_is_bitwise_identical(void **state)
{
    (void)state;
    outcome with[MAX_RANKS], without[MAX_RANKS];
    trial t = {.ranks = 3, .has_norm = true, .config = {.bucket_bytes = 128, .sync_bn = true}};
    run_well(&t, with);
    t.config.no_overlap = true;
    run_well(&t, without);
    assert_memory_equal(with[1].value, without[1].value, sizeof with[1].value);
    assert_true(with[0].exposed > 0);
}

/* Stages of a bucket overlap with backward, batch norm's collectives and other buckets' stages. */
static void two_level_overlaps_too(void **state)
{
    (void)state;
    outcome with[MAX_RANKS], without[MAX_RANKS], flat[MAX_RANKS];
    trial t = {.ranks = 8, .per_node = 2, .has_norm = true, .f64 = true};
    t.config =
        (lt_data_parallel_config){.bucket_bytes = 128, .sync_bn = true, .allreduce = "two-level"};
    run_well(&t, with);
    assert_true(same_bits(with, t.ranks));
    t.config.no_overlap = true;
    run_well(&t, without);
    assert_memory_equal(with[1].value, without[1].value, sizeof with[1].value);
    t.config.allreduce = "flat";
    run_well(&t, flat);
    assert_near(distance(&with[0], &flat[0]), 0, 1e-13);
}

static void a_nan_of_one_rank_skips_the_step_on_all(void **state)
{
    (void)state;
    outcome out[MAX_RANKS];
    for (int dtype = 0; dtype < 2; dtype++) {
        trial t = {.ranks = 3, .poisoned = 2};
        t.config.dtype = dtype ? LT_BF16 : LT_F32;
        run_well(&t, out);
        for (int r = 0; r < 3; r++) {
            assert_false(out[r].applied);
            for (int i = 0; i < out[r].values; i++)
                assert_true(isfinite(out[r].value[i]));
        }
        assert_true(same_bits(out, 3));
        t.poisoned = 0; /* control: without it the step is applied */
        run_well(&t, out);
        assert_true(out[0].applied && out[2].applied);
    }
}

static void running_statistics_are_synchronized(void **state)
{
    (void)state;
    outcome own[MAX_RANKS], broadcast[MAX_RANKS], mean[MAX_RANKS];
    trial t = {.ranks = 3, .f64 = true, .has_norm = true};
    run_well(&t, own);
    t.config.dist_bn = LT_DIST_BN_BROADCAST;
    run_well(&t, broadcast);
    t.config.dist_bn = LT_DIST_BN_REDUCE;
    run_well(&t, mean);
    for (int c = 0; c < 4; c++) {
        assert_false(fabs(own[0].var[c] - own[1].var[c]) <= 1e-9);
        for (int r = 0; r < 3; r++) {
            assert_near(broadcast[r].mean[c], own[0].mean[c], 0);
            assert_near(broadcast[r].var[c], own[0].var[c], 0);
            assert_near(mean[r].var[c], (own[0].var[c] + own[1].var[c] + own[2].var[c]) / 3, 1e-15);
        }
    }
}

static void a_different_model_is_named(void **state)
{
    (void)state;
    outcome out[MAX_RANKS];
    trial t = {.ranks = 3, .other_shape = 2};
    trial_run(&t, out);
    for (int r = 0; r < 3; r++) {
        assert_status(out[r].status, LT_E_ARG);
        if (!strstr(out[r].message, "fc [5,64]") || !strstr(out[r].message, "fc [6,64]"))
            fail_msg("'%s', want the parameter's name", out[r].message);
    }
}

/* A rank by itself. */
typedef struct lone {
    lt_device *device;
    lt_tape *tape;
    lt_comm *comm;
    lt_param p[2];
    lt_params params;
    lt_data_parallel *dp;
} lone;

static void open_lone(lone *l)
{
    *l = (lone){0};
    assert_ok(lt_device_open(&l->device, "ref", NULL));
    assert_ok(lt_tape_new(&l->tape, l->device));
    assert_ok(lt_comm_open(&l->comm, "self", l->device));
    for (int i = 0; i < 2; i++) {
        assert_ok(lt_param_init(&l->p[i], l->device, "", i ? "last" : "first", LT_SHAPE(3 + i), 1));
        assert_ok(lt_params_add(&l->params, &l->p[i]));
    }
}

static void close_lone(lone *l)
{
    lt_data_parallel_free(&l->dp);
    lt_params_clear(&l->params);
    lt_param_clear(&l->p[0]);
    lt_param_clear(&l->p[1]);
    lt_tape_free(&l->tape);
    lt_comm_close(&l->comm);
    lt_device_close(&l->device);
}

static lt_status make_parallel(lone *l, lt_data_parallel_config config)
{
    lt_data_parallel_free(&l->dp);
    return lt_data_parallel_new(&l->dp, l->comm, &l->params, l->tape, &config);
}

/* The n-th allocation fails, for every n, without leaks; then construction succeeds. */
static void missing_memory_is_survived(void **state)
{
    (void)state;
    lone l;
    lt_status st = LT_E_NOMEM;
    int64_t n = 0;
    open_lone(&l);
    while (st == LT_E_NOMEM) {
        lt_alloc_fail_at(++n);
        st = lt_data_parallel_new(&l.dp, l.comm, &l.params, l.tape, NULL);
        if (st)
            assert_null(l.dp);
    }
    lt_alloc_fail_at(0);
    assert_ok(st);
    assert_true(n > 3);
    assert_ok(lt_data_parallel_finish(l.dp));
    close_lone(&l);
}

static lt_gradient_parts copy_parts(const lt_gradient_part *part, size_t count)
{
    lt_gradient_parts parts = {.part = lt_alloc(count, sizeof *part), .count = count};
    assert_non_null(parts.part);
    memcpy(parts.part, part, count * sizeof *part);
    return parts;
}

static void check_partitions(lt_data_parallel *dp, lt_param *p)
{
    const struct {
        lt_gradient_part part[3];
        size_t count;
        const char *message;
    } rows[] = {
        {{{&p[0], 3, 1}, {&p[1], 4, 0}}, 2, "a part of first has owner 1, want 0 to 0"},
        {{{&p[0], 3, 0}, {&p[1], 4, -1}}, 2, "a part of last has owner -1, want 0 to 0"},
        {{{&p[0], 3, 0}, {&p[1], 5, 0}}, 2, "the parts of last have 5 elements, it has 4"},
        {{{&p[1], 4, 0}, {&p[0], 3, 0}}, 2, "the parts of first have 0 elements, it has 3"},
        {{{&p[0], 3, 0}, {&p[1], 4, 0}, {&p[0], 3, 0}},
         3,
         "only the first 2 of 3 parts follow the order of the parameters"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const lt_gradient_parts parts = copy_parts(rows[i].part, rows[i].count);
        assert_fails(lt_data_parallel_shard_gradients(dp, &parts), LT_E_ARG, rows[i].message);
    }
}

/* A partition that does not cover each gradient once, in order; a model of which nothing is trained. */
static void bad_models_and_partitions_are_named(void **state)
{
    (void)state;
    lone l;
    open_lone(&l);
    assert_ok(make_parallel(&l, (lt_data_parallel_config){0}));
    check_partitions(l.dp, l.p);
    l.p[0].frozen = l.p[1].frozen = true;
    assert_fails(make_parallel(&l, (lt_data_parallel_config){0}), LT_E_ARG,
                 "data parallel: the model has no trainable parameter");
    close_lone(&l);
}

/* Capabilities that a backend, a communicator or a configuration lacks. */
static void missing_capabilities_are_named(void **state)
{
    (void)state;
    lone l;
    open_lone(&l);
    const lt_backend *whole = l.device->backend;
    lt_backend lacking = *whole;
    lacking.frobenius = NULL;
    l.device->backend = &lacking;
    assert_fails(make_parallel(&l, (lt_data_parallel_config){.norms = true}), LT_E_UNSUPPORTED,
                 "gradient norms need a backend with frobenius, ref lacks it");
    lacking.host_memory = false;
    assert_fails(make_parallel(&l, (lt_data_parallel_config){.compress = "topk:0.5"}),
                 LT_E_UNSUPPORTED,
                 "--compress topk: needs a device with host memory (ref or cpu), got ref");
    l.device->backend = whole;
    assert_fails(make_parallel(&l, (lt_data_parallel_config){.needed = 1}), LT_E_UNSUPPORTED,
                 "backup workers need a communicator built on messages (threads, mpi), not self");
    assert_ok(make_parallel(&l, (lt_data_parallel_config){.dtype = LT_BF16}));
    assert_fails(lt_data_parallel_use_sum(l.dp), LT_E_UNSUPPORTED,
                 "with 16-bit gradients the sum of gradients depends on the number of ranks");
    assert_ok(make_parallel(&l, (lt_data_parallel_config){.micro_batches = 2, .alone_too = true}));
    assert_fails(lt_data_parallel_use_sum(l.dp), LT_E_UNSUPPORTED,
                 "with a deadline the sum of gradients");
    const lt_gradient_part part[] = {{&l.p[0], 3, 0}, {&l.p[1], 4, 0}};
    const lt_gradient_parts parts = copy_parts(part, COUNT_OF(part));
    assert_fails(lt_data_parallel_shard_gradients(l.dp, &parts), LT_E_ARG,
                 "sharded gradients cannot be combined with a deadline");
    lt_data_parallel_set_computed(l.dp, 0);
    assert_fails(lt_data_parallel_finish(l.dp), LT_E_ARG, "no rank computed a micro-batch");
    close_lone(&l);
}

/* A captured update assumes the gradients of the eager one before it. */
static void captured_updates_have_the_same_gradients(void **state)
{
    (void)state;
    static const lt_graph_ops graphs;
    lone l;
    open_lone(&l);
    const lt_backend *whole = l.device->backend;
    lt_backend captures = *whole, lacking;
    captures.graphs = &graphs;
    lacking = captures;
    lacking.vec = NULL;
    l.device->backend = &captures;
    assert_ok(make_parallel(&l, (lt_data_parallel_config){.alone_too = true}));
    l.device->backend = whole; /* an update that notes no gradients, as no step is captured */
    assert_ok(lt_data_parallel_finish(l.dp));
    l.device->backend = &captures;
    l.device->capturing = true;
    assert_fails(lt_data_parallel_finish(l.dp), LT_E_UNSUPPORTED,
                 "run an update eagerly before capturing one");
    l.device->capturing = false;
    lt_data_parallel_begin(l.dp, true);
    assert_ok(lt_data_parallel_finish(l.dp));
    l.device->capturing = true;
    l.device->backend = &lacking;
    assert_fails(lt_data_parallel_finish(l.dp), LT_E_UNSUPPORTED,
                 "data parallel: backend ref lacks the kernel vec");
    l.device->backend = &captures;
    for (int i = 0; i < 2; i++) {
        lt_data_parallel_begin(l.dp, true);
        assert_ok(lt_data_parallel_finish(l.dp));
        l.device->capturing = false;
        if (i)
            assert_fails(lt_data_parallel_sync_statistics(l.dp), LT_E_COMM,
                         "have a gradient of last changed since the update was captured");
        else
            assert_ok(lt_data_parallel_sync_statistics(l.dp));
        l.device->capturing = l.p[1].has_grad = true;
    }
    l.device->capturing = false;
    l.device->backend = whole;
    close_lone(&l);
}

static lt_status no_norms(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    (void)ctx, (void)x, (void)count, (void)out;
    return lt_fail(LT_E_DEVICE, "the norm's fault");
}

/* finish reports a failure within backward. */
static void a_failure_in_backward_is_kept(void **state)
{
    (void)state;
    lone l;
    open_lone(&l);
    const lt_backend *whole = l.device->backend;
    lt_backend faulty = *whole;
    faulty.frobenius = no_norms;
    assert_ok(make_parallel(&l, (lt_data_parallel_config){.norms = true, .alone_too = true}));
    for (int i = 0; i < 2; i++) { /* the first update makes the buckets */
        lt_tape_reset(l.tape, LT_PASS_TRAIN);
        lt_tensor *loss =
            lt_sum(l.tape, lt_tape_param(l.tape, &l.p[0]), (lt_reduce_config){.dims = 0});
        l.device->backend = i ? &faulty : whole;
        lt_data_parallel_begin(l.dp, true);
        assert_ok(lt_tape_backward(l.tape, loss, 1));
        if (i)
            assert_fails(lt_data_parallel_finish(l.dp), LT_E_DEVICE, "the norm's fault");
        else
            assert_ok(lt_data_parallel_finish(l.dp));
    }
    l.device->backend = whole;
    close_lone(&l);
}

static void other_communication_dtypes_are_rejected(void **state)
{
    (void)state;
    outcome out[MAX_RANKS];
    trial t = {.ranks = 2, .config.dtype = LT_I32};
    trial_run(&t, out);
    assert_status(out[0].status, LT_E_ARG);
    assert_status(out[1].status, LT_E_ARG);
    assert_non_null(strstr(out[1].message, "i32"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_equal_one_rank),
        cmocka_unit_test(ranks_equal_one_rank_in_f32),
        cmocka_unit_test(batch_norm_is_synchronised_on_the_device),
        cmocka_unit_test(synchronised_batch_norm_equals_one_rank),
        cmocka_unit_test(separate_batch_norm_differs),
        cmocka_unit_test(ranks_are_bitwise_identical),
        cmocka_unit_test(a_disturbed_rank_is_found),
        cmocka_unit_test(a_gradient_that_one_rank_has_is_shared),
        cmocka_unit_test(ranks_without_a_batch_count_as_zero),
        cmocka_unit_test(a_different_order_of_gradients_changes_nothing),
        cmocka_unit_test(accumulation_communicates_once),
        cmocka_unit_test(sharded_gradients_are_bitwise_identical),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(overlap_is_bitwise_identical),
        cmocka_unit_test(two_level_overlaps_too),
        cmocka_unit_test(a_nan_of_one_rank_skips_the_step_on_all),
        cmocka_unit_test(running_statistics_are_synchronized),
        cmocka_unit_test(a_different_model_is_named),
        cmocka_unit_test(missing_memory_is_survived),
        cmocka_unit_test(other_communication_dtypes_are_rejected),
        cmocka_unit_test(bad_models_and_partitions_are_named),
        cmocka_unit_test(missing_capabilities_are_named),
        cmocka_unit_test(captured_updates_have_the_same_gradients),
        cmocka_unit_test(a_failure_in_backward_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
