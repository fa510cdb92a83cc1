/* Local steps on ranks that are threads. "Inner steps" are changes determined by (group, step, element). */

#include "case_ranks.h"
#include "dist/local_steps/state.h"
#include "doubles.h"
#include "formulas.h"
#include "tensor/tensor.h"

#include <stdlib.h>

enum { ELEMENTS = 37 + 12, STATISTICS = 3, ROUNDS = 3 };

/* A test row. */
typedef struct row {
    int groups, locals;
    lt_local_steps_config config;
    int rounds;
    bool f32, integers;
    bool spoiled;      /* group 1 gets an infinite value */
    const char *fails; /* words of the expected error; NULL: success */
} row;

/* Result of a rank. */
typedef struct end {
    double value[ELEMENTS], statistic[STATISTICS], residual[ELEMENTS];
    lt_local_steps_bytes sent;
    int64_t first, count;
} end;

static row now;
static end ends[MOST_RANKS];

typedef struct model {
    lt_param param[3];
    lt_params params;
    int64_t at[3]; /* element offset of each parameter */
} model;

static void open_model(model *m, lt_device *device, int rank)
{
    static const char *const name[] = {"first.weight", "second.weight", "running_mean"};
    const lt_shape shape[] = {LT_SHAPE(37), LT_SHAPE(4, 3), LT_SHAPE(STATISTICS)};
    const lt_param_kind role[] = {LT_PARAM_WEIGHT, LT_PARAM_WEIGHT, LT_PARAM_STAT};
    *m = (model){.at = {0, 37, ELEMENTS}};
    for (int i = 0; i < 3; i++) {
        assert_ok(lt_param_init_kind(&m->param[i], device, "", name[i], shape[i], rank, role[i]));
        assert_ok(lt_params_add(&m->params, &m->param[i]));
    }
}

static void close_model(model *m)
{
    lt_params_clear(&m->params);
    for (int i = 0; i < 3; i++)
        lt_param_clear(&m->param[i]);
}

/* Returns the change of an element in an inner step of a group. */
static double change(int group, int step, int64_t i)
{
    const uint32_t h = (uint32_t)(group + 1) * 2654435761U ^ (uint32_t)(step + 1) * 40503U
                       ^ (uint32_t)(i + 1) * 2246822519U;
    const int whole = (int)((h ^ h >> 15) % 2001) - 1000;
    return now.integers ? whole : 1e-3 * whole;
}

static void inner_step(model *m, int group, int step)
{
    double x[ELEMENTS];
    for (int k = 0; k < 3; k++) {
        const int64_t n = lt_tensor_count(m->param[k].value);
        assert_ok(read_doubles(m->param[k].value, x));
        for (int64_t i = 0; i < n; i++)
            x[i] += change(group, step, m->at[k] + i);
        if (now.spoiled && group == 1 && k == 1)
            x[n - 1] = (double)INFINITY;
        assert_ok(write_doubles(m->param[k].value, x));
    }
}

static void note_end(const model *m, const lt_local_steps *l, end *e)
{
    assert_ok(read_doubles(m->param[0].value, e->value));
    assert_ok(read_doubles(m->param[1].value, e->value + 37));
    assert_ok(read_doubles(m->param[2].value, e->statistic));
    e->sent = lt_local_steps_bytes_sent(l);
    e->first = l->first;
    e->count = l->count[l->local];
    if (l->residual)
        assert_ok(read_doubles(l->residual, e->residual));
}

static lt_status run_rounds(lt_local_steps *l, model *m, lt_comm *comm)
{
    int64_t step = 0;
    for (int round = 0; round < now.rounds; round++)
        for (int64_t i = 0; i < now.config.every; i++) {
            bool met;
            inner_step(m, lt_local_steps_group(l), (int)step++);
            LT_TRY(lt_local_steps_step(l, &met));
            assert_int_equal(met, i + 1 == now.config.every);
            assert_int_equal(lt_local_steps_since_sync(l), met ? 0 : i + 1);
        }
    note_end(m, l, &ends[lt_comm_rank(comm)]);
    return LT_OK;
}

static bool play_row(rank_case *c)
{
    model m;
    lt_nodes nodes;
    lt_local_steps *l = NULL;
    open_model(&m, c->device, lt_comm_rank(c->comm));
    assert_ok(lt_comm_nodes(&nodes, c->comm, now.locals));
    lt_status st = lt_local_steps_new(&l, c->comm, &nodes, &m.params, &now.config);
    if (!st)
        st = run_rounds(l, &m, c->comm);
    if (st) {
        snprintf(c->why, sizeof c->why, "%s", lt_error_message());
        lt_comm_abort(c->comm);
    }
    const bool good = now.fails ? st && strstr(c->why, now.fails) : !st;
    lt_local_steps_free(&l);
    lt_nodes_clear(&nodes);
    close_model(&m);
    return good;
}

static played ranks[8];

static void run_row(const row *r)
{
    char why[512];
    const int size = r->groups * r->locals;
    now = *r;
    memset(ends, 0, sizeof ends);
    for (int i = 0; i < size; i++)
        ranks[i] = (played){.run = play_row};
    play_ranks(&(rank_group){RANKS_OF(ranks, size), .f64 = !r->f32, .run = play_case});
    if (count_bad(ranks, size, why, sizeof why))
        fail_msg("%s", why);
}

/* --- Expected results --- */

static void assert_equal_ranks(int size)
{
    for (int i = 1; i < size; i++) {
        assert_memory_equal(ends[i].value, ends[0].value, sizeof ends[0].value);
        assert_memory_equal(ends[i].statistic, ends[0].statistic, sizeof ends[0].statistic);
    }
}

/* Computes the outer steps in double, element by element; statistics are means. */
static void expect(const row *r, double *value, double *statistic)
{
    for (int64_t i = 0; i < ELEMENTS + STATISTICS; i++) {
        double start = 0, u = 0;
        int step = 0;
        for (int round = 0; round < r->rounds; round++) {
            double mean = 0;
            for (int g = 0; g < r->groups; g++)
                for (int64_t k = 0; k < r->config.every; k++)
                    mean += change(g, step + (int)k, i) / r->groups;
            step += (int)r->config.every;
            u = r->config.momentum * u - mean;
            start -= i < ELEMENTS ? r->config.lr * (-mean + r->config.momentum * u) : -mean;
        }
        if (i < ELEMENTS)
            value[i] = start;
        else
            statistic[i - ELEMENTS] = start;
    }
}

static const int shapes[][2] = {{2, 1}, {2, 2}, {4, 2}, {3, 2}, {2, 3}, {8, 1}};

static void test_formula(void **state)
{
    (void)state;
    static const double lr[] = {1, 0.7, 0.7}, momentum[] = {0, 0.9, 0.5};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t k = 0; k < COUNT_OF(lr); k++) {
            const row r = {.groups = shapes[s][0],
                           .locals = shapes[s][1],
                           .config = {.every = (int64_t)k + 1,
                                      .lr = lr[k],
                                      .momentum = momentum[k],
                                      .dist_bn = LT_DIST_BN_REDUCE},
                           .rounds = ROUNDS};
            double value[ELEMENTS], statistic[STATISTICS];
            run_row(&r);
            expect(&r, value, statistic);
            assert_equal_ranks(r.groups * r.locals);
            for (int i = 0; i < ELEMENTS; i++)
                assert_near(ends[0].value[i], value[i], 1e-12);
            for (int i = 0; i < STATISTICS; i++)
                assert_near(ends[0].statistic[i], statistic[i], 1e-12);
        }
}

static void test_statistics(void **state)
{
    (void)state;
    row r = {.groups = 2, .locals = 2, .rounds = 1};
    r.config = (lt_local_steps_config){.every = 1, .lr = 1, .dist_bn = LT_DIST_BN_NONE};
    run_row(&r);
    assert_near(ends[3].statistic[1], change(1, 0, ELEMENTS + 1), 1e-12);
    r.config.dist_bn = LT_DIST_BN_BROADCAST;
    run_row(&r);
    assert_near(ends[3].statistic[1], change(0, 0, ELEMENTS + 1), 1e-12);
}

static void check_bytes(const row *r, int64_t message)
{
    const int64_t size = r->f32 ? 4 : 8;
    for (int i = 0; i < r->groups * r->locals; i++) {
        const int g = i / r->locals, at = i % r->locals;
        const int64_t d = even_chunk(ELEMENTS, at, r->locals);
        const int64_t change =
            message ? (r->groups - 1) * message : allreduce_sent(d, g, r->groups) * size;
        const int64_t between = change + allreduce_sent(STATISTICS, g, r->groups) * size;
        const int64_t statistics = r->locals > 1 ? allreduce_sent(STATISTICS, at, r->locals) : 0;
        const int64_t within = ((r->locals - 1) * d + statistics) * size;
        assert_int_equal(ends[i].count, d);
        assert_int_equal(ends[i].sent.between, r->rounds * between);
        assert_int_equal(ends[i].sent.within, r->rounds * within);
    }
}

/* Bytes of a round do not depend on its length. */
static void test_bytes(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int64_t every = 1; every <= 4; every += 3) {
            row r = {.groups = shapes[s][0], .locals = shapes[s][1], .rounds = 2, .f32 = s % 2};
            r.config = (lt_local_steps_config){
                .every = every, .lr = 1, .momentum = 0.9, .dist_bn = LT_DIST_BN_REDUCE};
            run_row(&r);
            check_bytes(&r, 0);
        }
    row r = {.groups = 4, .locals = 1, .rounds = 2, .f32 = true};
    r.config = (lt_local_steps_config){
        .every = 2, .lr = 1, .compress = "topk:0.05", .dist_bn = LT_DIST_BN_REDUCE};
    run_row(&r); /* 3 of 49: a bitmap of 7 bytes, padded to 8, and 3 values */
    check_bytes(&r, 8 + 3 * 4);
    r.config.compress = "topk:0.01,2bit";
    run_row(&r); /* 1 of 49: its index; 2 bits, padded, and two levels */
    check_bytes(&r, 4 + 4 + 8);
    r.config.compress = "topk:1,bf16";
    run_row(&r);
    check_bytes(&r, 8 + 100);
}

/* --- Compression --- */

static void test_whole(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        row r = {.groups = shapes[s][0],
                 .locals = shapes[s][1],
                 .rounds = ROUNDS,
                 .f32 = true,
                 .integers = true};
        r.config = (lt_local_steps_config){.every = 2, .lr = 1, .compress = "topk:1"};
        double value[ELEMENTS], statistic[STATISTICS];
        r.groups = r.groups == 3 ? 2 : r.groups; /* means of integers are exact */
        run_row(&r);
        expect(&r, value, statistic);
        for (int i = 0; i < r.groups * r.locals; i++)
            for (int64_t k = 0; k < ELEMENTS; k++) {
                assert_near(ends[i].value[k], value[k], 0);
                assert_near(ends[i].residual[k], 0, 0);
            }
    }
}

/* All changes are in the values or in error feedback: exactly, on integers. */
static void test_mass(void **state)
{
    (void)state;
    static const char *const densities[] = {"topk:0.001", "topk:0.05", "topk:0.5"};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (size_t k = 0; k < COUNT_OF(densities); k++) {
            row r = {
                .groups = shapes[s][0], .locals = shapes[s][1], .rounds = 20, .integers = true};
            r.config = (lt_local_steps_config){.every = 1, .lr = 1, .compress = densities[k]};
            double value[ELEMENTS], statistic[STATISTICS];
            run_row(&r);
            expect(&r, value, statistic);
            bool left = false;
            for (int64_t i = 0; i < ELEMENTS; i++) {
                double residual = 0;
                for (int rank = 0; rank < r.groups * r.locals; rank++)
                    if (i >= ends[rank].first && i < ends[rank].first + ends[rank].count)
                        residual += ends[rank].residual[i - ends[rank].first];
                left = left || residual != 0;
                assert_near(ends[0].value[i] - residual / r.groups, value[i], 1e-9);
            }
            assert_true(left); /* control: compression left elements out */
        }
}

static void test_decay(void **state)
{
    (void)state;
    row r = {.groups = 2, .locals = 1, .rounds = 2};
    double first[ELEMENTS], whole[ELEMENTS];
    r.config = (lt_local_steps_config){.every = 1, .lr = 1, .compress = "topk:0.001", .decay = 0.5};
    r.rounds = 1;
    run_row(&r);
    memcpy(first, ends[0].residual, sizeof first);
    r.rounds = 2;
    run_row(&r);
    memcpy(whole, ends[0].residual, sizeof whole);
    int sent = 0;
    double largest = 0, left = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const double e = 0.5 * first[i] - change(0, 1, i);
        const bool is_sent = !(fabs(whole[i] - e) <= 1e-12);
        sent += is_sent;
        if (is_sent)
            largest = fabs(e);
        else
            left = fmax(left, fabs(e));
    }
    assert_int_equal(sent, 1);
    assert_true(largest >= left); /* the sent element was the largest */
}

/* --- Bad input --- */

static void test_bad_input(void **state)
{
    (void)state;
    static const struct {
        lt_local_steps_config config;
        const char *fails;
    } rows[] = {
        {{.every = 0, .lr = 1}, "a round of 0 steps"},
        {{.every = 1, .lr = 0}, "outer lr 0, want"},
        {{.every = 1, .lr = 1, .momentum = 1}, "outer momentum 1, want"},
        {{.every = 1, .lr = 1, .decay = 1.01}, "outer decay 1.01, want"},
        {{.every = 1, .lr = 1, .decay = -1e-9}, "outer decay -1e-09, want"},
        {{.every = 1, .lr = 1, .momentum = -1e-9}, "outer momentum -1e-09, want"},
        {{.every = 1, .lr = (double)INFINITY}, "outer lr inf, want"},
        {{.every = INT64_MAX, .lr = 1e300, .momentum = 1 - 1e-9, .decay = 1}, NULL},
        {{.every = 1, .lr = 1e-300, .decay = 1e-9, .compress = "topk:1"}, NULL},
        {{.every = 1, .lr = 1, .compress = "topk:1e-9,bf16"}, NULL},
        {{.every = 1, .lr = 1, .compress = "topk:0"}, "'topk:0'"},
        {{.every = 1, .lr = 1, .compress = "topk:1.5"}, "'topk:1.5'"},
        {{.every = 1, .lr = 1, .compress = "topk:nan"}, "'topk:nan'"},
        {{.every = 1, .lr = 1, .compress = "topk:0.1,3bit"}, "'topk:0.1,3bit'"},
        {{.every = 1, .lr = 1, .compress = "powersgd:2"}, "'powersgd:2'"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        run_row(&(row){.groups = 2, .locals = 1, .config = rows[i].config, .fails = rows[i].fails});
    run_row(&(row){.groups = 1,
                   .locals = 4,
                   .config = {.every = 1, .lr = 1},
                   .fails = "all 4 ranks are on one node"});
}

static void test_not_finite(void **state)
{
    (void)state;
    const row r = {.groups = 2,
                   .locals = 2,
                   .rounds = 1,
                   .spoiled = true,
                   .fails = "",
                   .config = {.every = 1, .lr = 1, .compress = "topk:0.1"}};
    int named = 0;
    run_row(&r);
    for (int i = 0; i < r.groups * r.locals; i++)
        named +=
            strstr(ranks[i].c.why, "the change of second.weight in group 1 is not finite") != NULL;
    assert_int_equal(named, 1); /* the other ranks report an abort */
}

/* A rank by itself, whose list of nodes has others. */
static void test_limits(void **state)
{
    (void)state;
    lt_device *device = NULL;
    lt_comm *comm = NULL;
    lt_local_steps *l = NULL;
    int of[] = {0};
    lt_nodes nodes = {.count = 2, .locals = 60, .ranks_per_node = 60, .of = of};
    lt_local_steps_config config = {.every = 1, .lr = 1};
    model m;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_comm_open(&comm, "self", device));
    open_model(&m, device, 0);
    assert_fails(lt_local_steps_new(&l, comm, &nodes, &m.params, &config), LT_E_ARG,
                 "local steps: 49 elements cannot be sharded over 60 ranks");
    nodes.locals = nodes.ranks_per_node = 1;
    lt_backend lacking = *device->backend;
    const lt_backend *whole = device->backend;
    lacking.vec = NULL;
    device->backend = &lacking;
    assert_fails(lt_local_steps_new(&l, comm, &nodes, &m.params, &config), LT_E_UNSUPPORTED,
                 "local steps: backend ref lacks the kernel vec");
    device->backend = whole;
    config.compress = "topk:0.1";
    m.param[0].value->shape = LT_SHAPE((int64_t)UINT32_MAX - 12);
    assert_fails(lt_local_steps_new(&l, comm, &nodes, &m.params, &config), LT_E_UNSUPPORTED,
                 "4294967295 elements over 1 ranks are too many to compress");
    m.param[0].value->shape = LT_SHAPE(37);
    assert_null(l);
    close_model(&m);
    lt_comm_close(&comm);
    lt_device_close(&device);
}

static void test_uneven(void **state)
{
    (void)state;
    lt_device *device = NULL;
    lt_comm *comm[3];
    lt_local_steps *l = NULL;
    int of[] = {0, 0, 1};
    const lt_nodes nodes = {.count = 2, .locals = 2, .of = of};
    const lt_local_steps_config config = {.every = 1, .lr = 1};
    model m;
    assert_ok(lt_device_open(&device, "ref", NULL));
    lt_device *const devices[] = {device, device, device};
    assert_ok(lt_comm_open_threads(comm, devices, 3));
    open_model(&m, device, 0);
    assert_fails(lt_local_steps_new(&l, comm[0], &nodes, &m.params, &config), LT_E_ARG,
                 "node 0 has 2 ranks, node 1 has 1");
    const lt_params none = {0};
    int even_of[] = {0, 1, 2};
    const lt_nodes even = {.count = 3, .locals = 1, .ranks_per_node = 1, .of = even_of};
    assert_fails(lt_local_steps_new(&l, comm[0], &even, &none, &config), LT_E_ARG,
                 "local steps: the model has no parameters");
    lt_comm_abort(comm[0]);
    for (int i = 0; i < 3; i++)
        lt_comm_close(&comm[i]);
    close_model(&m);
    lt_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"an outer step is Nesterov momentum on the mean of groups, and ranks are bitwise identical",
         test_formula, NULL, NULL, NULL},
        {"running statistics follow dist_bn", test_statistics, NULL, NULL, NULL},
        {"bytes within and between groups equal the formula", test_bytes, NULL, NULL, NULL},
        {"density 1 sends all and leaves no error feedback", test_whole, NULL, NULL, NULL},
        {"all changes are in the values or in error feedback", test_mass, NULL, NULL, NULL},
        {"error feedback decays", test_decay, NULL, NULL, NULL},
        {"numbers out of range are rejected", test_bad_input, NULL, NULL, NULL},
        {"a change that is not finite is named before it is sent", test_not_finite, NULL, NULL,
         NULL},
        {"groups of different sizes are rejected", test_uneven, NULL, NULL, NULL},
        {"numbers of elements and missing kernels are rejected", test_limits, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests_name("local steps", rows, NULL, NULL);
}
