/* Optimizers with sharded state on ranks as threads, each with its own model: all ranks are bitwise equal
 * to each other and to a single rank. */

#include "base/alloc.h"
#include "one_sided.h"
#include "state_ranks.h"

#include "lather/averaging.h"
#include "lather/cautious.h"
#include "lather/ext/optim.h"

#include <string.h>

typedef struct row {
    const char *name;
    make_fn *make;
    int group, ranks_per_node;
    lt_dtype dtype;
    bool gather_params, f64;
    lt_balance balance;
    lt_balance_polynomial polynomial;
    /* bound of the distance from an unsharded optimizer's parameters, of about 1; 0: bitwise equal */
    double bound;
    const char *kind;
    lt_status (*before)(fixture *f, int rank);
    bool wrong; /* a control: some comparison must fail */
} row;

static lt_status nudge(fixture *f, int rank)
{
    const double values[6] = {1, 1, 1, 1, 1, 1.0 + (rank == 1)};
    put(f->param[2].value, values);
    return LT_OK;
}

static lt_status make_staggered_blocks(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 3;
    c.precondition_frequency = 3;
    c.start_preconditioning_step = 3;
    c.grafting = LT_GRAFTING_SGD;
    c.refresh_timing = LT_REFRESH_STAGGERED;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status average(lt_status made, lt_optim *const *out, const lt_params *params,
                         lt_averaging_kind kind)
{
    lt_averaging_config c = LT_AVERAGING_DEFAULTS;
    c.kind = kind;
    return made ? made : lt_optim_start_averaging(*out, params, &c);
}

static lt_status make_averaged_adam(lt_optim **out, const lt_params *params)
{
    return average(make_adam(out, params), out, params, LT_AVERAGING_SCHEDULE_FREE);
}

static lt_status make_averaged_shampoo(lt_optim **out, const lt_params *params)
{
    return average(make_shampoo(out, params), out, params, LT_AVERAGING_PRIMAL);
}

static lt_status make_cautious_adamw(lt_optim **out, const lt_params *params)
{
    LT_TRY(make_adamw(out, params));
    return lt_optim_start_cautious(*out, &(lt_cautious_config){.mask = true, .decay = true});
}

static lt_status make_hyperball(lt_optim **out, const lt_params *params)
{
    LT_TRY(make_adamw(out, params));
    return lt_optim_start_cautious(*out, &(lt_cautious_config){.mask = true, .hyperball = true});
}

static lt_status make_ahead_adam(lt_optim **out, const lt_params *params)
{
    return average(make_adam(out, params), out, params, LT_AVERAGING_EMA_NESTEROV);
}

static lt_status make_cautious_shampoo(lt_optim **out, const lt_params *params)
{
    LT_TRY(make_shampoo(out, params));
    return lt_optim_start_cautious(*out, &(lt_cautious_config){.mask = true, .decay = true});
}

static lt_status make_normuon(lt_optim **out, const lt_params *params)
{
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.moment = LT_MUON_OF_OUTPUTS;
    return lt_optim_muon(out, params, &c);
}

static lt_status make_normuon_of_parts(lt_optim **out, const lt_params *params)
{
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.moment = LT_MUON_OF_OUTPUTS;
    c.split[0] = (lt_param_split){{"^kernel$", false}, -1, 2};
    return lt_optim_muon(out, params, &c);
}

static lt_status make_adam_int8(lt_optim **out, const lt_params *params)
{
    LT_TRY(make_adam(out, params));
    return lt_optim_set_state_dtype(*out, LT_STATE_INT8);
}

static lt_status make_stored(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.precondition_frequency = 2;
    c.max_preconditioner_dim = 4;
    c.beta2 = 0.9;
    c.grafting = LT_GRAFTING_ADAM;
    c.factor_dtype = dtype;
    c.packed_factors = dtype == LT_STATE_F32;
    LT_TRY(lt_optim_shampoo(out, params, &c));
    return lt_optim_set_state_dtype(*out, dtype == LT_STATE_F32 ? dtype : LT_STATE_INT8);
}

static lt_status make_int4(lt_optim **out, const lt_params *params)
{
    return make_stored(out, params, LT_STATE_INT4);
}

static lt_status make_packed(lt_optim **out, const lt_params *params)
{
    return make_stored(out, params, LT_STATE_F32);
}

static const row rows[] = {
    {.name = "shampoo, blocks of 2", .make = make_shampoo, .bound = 4e-6},
    {.name = "shampoo in f64: as if not sharded", .make = make_shampoo, .f64 = true},
    {.name = "shampoo, parameters", .make = make_shampoo, .gather_params = true},
    {.name = "shampoo in bf16", .make = make_shampoo, .dtype = LT_BF16, .bound = 0.02},
    {.name = "shampoo in f16", .make = make_shampoo, .dtype = LT_F16, .bound = 0.002},
    {.name = "shampoo in bf16, parameters",
     .make = make_shampoo,
     .dtype = LT_BF16,
     .gather_params = true,
     .bound = 0.2},
    {.name = "shampoo, by memory",
     .make = make_shampoo,
     .balance = LT_BALANCE_MEMORY,
     .bound = 4e-6},
    {.name = "shampoo, by bytes", .make = make_shampoo, .balance = LT_BALANCE_BYTES, .bound = 4e-6},
    {.name = "shampoo, by cubes",
     .make = make_shampoo,
     .balance = LT_BALANCE_POLYNOMIAL,
     .polynomial = {{0, 0, 0, 1}, 0},
     .bound = 4e-6},
    {.name = "shampoo, each rank for itself", .make = make_shampoo, .group = 1, .bound = 4e-6},
    {.name = "shampoo, pairs of ranks", .make = make_shampoo, .group = 2, .bound = 4e-6},
    {.name = "eigenvalue-corrected, groups of 4",
     .make = make_corrected,
     .group = 4,
     .bound = 4e-6},
    {.name = "shampoo, fewer blocks than ranks", .make = make_whole, .bound = 4e-6},
    {.name = "shampoo, nodes of 2", .make = make_shampoo, .ranks_per_node = 2, .bound = 4e-6},
    {.name = "shampoo, nodes of 4, fewer blocks than ranks",
     .make = make_whole,
     .ranks_per_node = 4,
     .bound = 4e-6},
    {.name = "shampoo, nodes of 2, in bf16, on cpu",
     .make = make_shampoo,
     .ranks_per_node = 2,
     .dtype = LT_BF16,
     .kind = "cpu",
     .bound = 0.02},
    {.name = "adam, nodes of 2, on cpu", .make = make_adam, .ranks_per_node = 2, .kind = "cpu"},
    {.name = "shampoo, staggered", .make = make_staggered_blocks, .bound = 4e-6},
    {.name = "shampoo, joined parts and tables", .make = make_ruled, .bound = 4e-6},
    {.name = "shampoo, joined parts and tables, in f64", .make = make_ruled, .f64 = true},
    {.name = "shampoo on cpu", .make = make_shampoo, .kind = "cpu", .bound = 4e-6},
    {.name = "eigenvalue-corrected", .make = make_corrected, .bound = 4e-6},
    {.name = "eigendecomposed", .make = make_eigendecomposed, .bound = 4e-6},
    {.name = "sgd", .make = make_sgd},
    {.name = "nesterov, in pairs", .make = make_nesterov, .group = 2},
    {.name = "adagrad", .make = make_adagrad},
    {.name = "adam", .make = make_adam},
    {.name = "muon", .make = make_muon},
    {.name = "normuon", .make = make_normuon},
    {.name = "normuon, joined parts", .make = make_normuon_of_parts},
    {.name = "adamw, cautious", .make = make_cautious_adamw},
    {.name = "shampoo, cautious, in f64", .make = make_cautious_shampoo, .f64 = true},
    {.name = "adamw, hyperball", .make = make_hyperball},
    {.name = "adam, averaged", .make = make_averaged_adam},
    {.name = "adam, ema-nesterov", .make = make_ahead_adam},
    {.name = "shampoo, averaged, in f64", .make = make_averaged_shampoo, .f64 = true},
    {.name = "shampoo, averaged, parameters in bf16",
     .make = make_averaged_shampoo,
     .dtype = LT_BF16,
     .gather_params = true,
     .bound = 0.2},
    {.name = "lars", .make = make_lars},
    {.name = "lamb", .make = make_lamb},
    {.name = "lion", .make = make_lion},
    {.name = "adafactor", .make = make_adafactor},
    {.name = "adafactor, in pairs, on cpu", .make = make_adafactor, .group = 2, .kind = "cpu"},
    {.name = "prodigy", .make = make_prodigy},
    {.name = "prodigy, in pairs, on cpu", .make = make_prodigy, .group = 2, .kind = "cpu"},
    {.name = "one-sided example", .make = make_one_sided},
    {.name = "one-sided example, by memory, in pairs, on cpu",
     .make = make_one_sided,
     .group = 2,
     .kind = "cpu",
     .balance = LT_BALANCE_MEMORY},
    {.name = "adam in int8", .make = make_adam_int8},
    {.name = "shampoo in int4, on cpu", .make = make_int4, .kind = "cpu", .bound = 4e-6},
    {.name = "packed shampoo", .make = make_packed, .bound = 4e-6},
    {.name = "lars, in pairs, on cpu", .make = make_lars, .group = 2, .kind = "cpu"},
    {.name = "lamb, by memory, on cpu",
     .make = make_lamb,
     .kind = "cpu",
     .balance = LT_BALANCE_MEMORY},
    {.name = "muon, by memory, in pairs, on cpu",
     .make = make_muon,
     .group = 2,
     .kind = "cpu",
     .balance = LT_BALANCE_MEMORY},
    {.name = "adamw, by bytes, parameters",
     .make = make_adamw,
     .balance = LT_BALANCE_BYTES,
     .gather_params = true},
    {.name = "adamw in bf16", .make = make_adamw, .dtype = LT_BF16, .bound = 0.02},
    {.name = "adamw in f16, on cpu",
     .make = make_adamw,
     .dtype = LT_F16,
     .kind = "cpu",
     .bound = 0.002},
    {.name = "control: one rank begins at another value",
     .make = make_shampoo,
     .before = nudge,
     .bound = 4e-6,
     .wrong = true},
};

static bool agree(const rank_run *p, int ranks, const rank_run *one)
{
    bool same = true;
    for (int r = 0; r < ranks; r++) {
        if (p[r].base.status)
            fail_msg("rank %d of %d: %s", r, ranks, p[r].base.message);
        same = same && max_difference(&p[r], one) == 0;
    }
    return same;
}

static void test_row(void **state)
{
    static const int sizes[] = {2, 3, 4, 8};
    const row *w = *state;
    static rank_run p[RANKS], one[1], alone;
    const scenario s = {
        .make = w->make,
        .config = {.group = w->group,
                   .dtype = w->dtype,
                   .gather_params = w->gather_params,
                   .balance = w->balance,
                   .polynomial = w->polynomial},
        .ranks_per_node = w->ranks_per_node,
        .f64 = w->f64,
        .kind = w->kind,
        .before = w->before,
    };
    bool same = true;
    scenario single = s;
    single.config.group = 0;
    run_all(one, 1, &single);
    assert_true(agree(one, 1, one));
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        if (w->group && sizes[i] % w->group)
            continue;
        run_all(p, sizes[i], &s);
        same = agree(p, sizes[i], one) && same;
    }
    assert_int_equal(same, !w->wrong);
    run_unsharded(&alone, &s);
    assert_near(max_difference(one, &alone), 0, w->bound);
    if (w->dtype) /* updates were rounded for sending */
        assert_true(max_difference(one, &alone) > 1e-6);
}

/* --- State and bytes of a rank --- */

typedef struct share {
    make_fn *make;
    int group;
} share;

static void test_load(void **state)
{
    const share *what = *state;
    static rank_run p[RANKS], alone;
    const scenario s = {.make = what->make, .config = {.dtype = LT_BF16, .group = what->group}};
    enum { SOME = 4 };
    int64_t elements = 0, state_bytes = 0, gathered = 0;
    run_all(p, SOME, &s);
    run_unsharded(&alone, &s);
    for (int k = 0; k < PARAMS; k++)
        elements += lt_shape_count(shapes[k]);
    for (int r = 0; r < SOME; r++) {
        if (p[r].base.status)
            fail_msg("rank %d: %s", r, p[r].base.message);
        assert_int_equal(p[r].state_bytes, p[r].load.state_bytes);
        assert_int_equal(p[r].bytes, (what->group - 1) * p[r].load.gather_bytes);
    }
    for (int r = 0; r < what->group; r++) {
        state_bytes += p[r].load.state_bytes;
        gathered += p[r].load.gather_bytes;
    }
    assert_int_equal(state_bytes, alone.state_bytes);
    assert_true(p[0].load.state_bytes < state_bytes);
    assert_int_equal(gathered, 2 * (elements + what->group)); /* and a status flag of each rank */
}

/* In nodes of 2, each segment goes to the other nodes' rank of the same number, and the joined ones to the node's other rank. */
static void test_load_in_nodes(void **state)
{
    static rank_run p[RANKS];
    static const scenario s = {.make = make_shampoo, .ranks_per_node = 2};
    enum { SOME = 8, LOCAL = 2 };
    (void)state;
    run_all(p, SOME, &s);
    for (int r = 0; r < SOME; r++) {
        int64_t joined = 0;
        if (p[r].base.status)
            fail_msg("rank %d: %s", r, p[r].base.message);
        for (int peer = r % LOCAL; peer < SOME; peer += LOCAL)
            joined += p[peer].load.gather_bytes;
        assert_int_equal(p[r].bytes,
                         (SOME / LOCAL - 1) * p[r].load.gather_bytes + (LOCAL - 1) * joined);
    }
}

/* Dimensions 5 x 7, 4 x 3 x 2 x 2 (its block is preconditioned as 4 x 12) and 6; 35, 48 and 6 elements. */
static const struct {
    make_fn *make;
    lt_balance_polynomial polynomial;
    int64_t elements[2]; /* elements of each of two ranks */
} costs[] = {
    {make_sgd, {{0, 0, 0, 1}, 0}, {35, 54}},   /* 468, 107, 216 */
    {make_sgd, {{1}, 0}, {48, 41}},            /* 2, 4, 1 */
    {make_sgd, {{0, 0, 0, 1}, 200}, {48, 41}}, /* 543, 800, 216 */
    {make_sgd, {{0, 0, 1, 0}, 0}, {35, 54}},   /* 74, 33, 36 */
    {make_whole, {{0, 0, 0, 1}, 0}, {48, 41}}, /* 468, 1792, 216 */
    {make_sgd, {{0}, 0}, {89, 0}},             /* all costs are 0: everything goes to the first */
};

static void test_polynomial(void **state)
{
    static rank_run p[2];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(costs); i++) {
        const scenario s = {
            .make = costs[i].make,
            .config = {.balance = LT_BALANCE_POLYNOMIAL, .polynomial = costs[i].polynomial}};
        run_all(p, 2, &s);
        for (int r = 0; r < 2; r++) {
            if (p[r].base.status)
                fail_msg("costs %zu, rank %d: %s", i, r, p[r].base.message);
            assert_int_equal(p[r].load.gather_bytes, 4 * (costs[i].elements[r] + 1));
        }
    }
}

static void test_wrong_polynomial(void **state)
{
    static rank_run p[2];
    (void)state;
    const scenario s = {
        .make = make_sgd,
        .config = {.balance = LT_BALANCE_POLYNOMIAL, .polynomial = {{1, -1}, -100}}};
    run_all(p, 2, &s);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(p[r].base.status, LT_E_ARG);
        assert_non_null(strstr(p[r].base.message, "a part of parameter matrix has cost -10"));
    }
}

typedef struct seen {
    int rank;
    int here, not_owned, wrong;
} seen;

static lt_status look(void *context, const lt_state_entry *entry)
{
    seen *s = context;
    s->here += entry->tensor != NULL;
    s->not_owned += entry->tensor == NULL;
    s->wrong += (entry->tensor != NULL) != (entry->owner == s->rank);
    return LT_OK;
}

static lt_status visit(lt_optim *optim, seen *s)
{
    lt_state_visitor v = {.entry = look, .number = ignore_number, .context = s};
    return lt_optim_visit(optim, &v);
}

static lt_status state_is_apart(fixture *f, int rank)
{
    seen s = {.rank = rank};
    LT_TRY(visit(f->optim, &s));
    if (!s.here || !s.not_owned || s.wrong)
        return lt_fail(LT_E_ARG, "%d here, %d not owned, %d wrong", s.here, s.not_owned, s.wrong);
    return LT_OK;
}

/* Only the owner has state, before the first step and later. */
static void test_state(void **state)
{
    make_fn *const *make = *state;
    static rank_run p[RANKS];
    const scenario s = {.make = *make, .before = state_is_apart, .between = state_is_apart};
    run_all(p, 3, &s);
    for (int r = 0; r < 3; r++)
        if (p[r].base.status)
            fail_msg("rank %d: %s", r, p[r].base.message);
}

/* --- Failures --- */

typedef struct bad {
    const char *name;
    scenario scenario;
    int ranks;
    lt_status want;
    const char *message;
} bad;

static lt_status step_alone(lt_optim **out, const lt_params *params)
{
    LT_TRY(make_adam(out, params));
    const lt_step step = {.lr = 0, .attempt = 1};
    return lt_optim_step(*out, &step);
}

static lt_status own_step(lt_optim *self, const lt_scalars *scalars)
{
    (void)self;
    (void)scalars;
    return LT_OK;
}

static lt_status own_visit(lt_optim *self, lt_state_visitor *visitor)
{
    (void)self;
    (void)visitor;
    return LT_OK;
}

static lt_status make_own(lt_optim **out, const lt_params *params)
{
    static const lt_optim_ops ops = {
        .name = "own", .bytes = sizeof(lt_optim), .step = own_step, .visit = own_visit};
    return lt_optim_new(out, &ops, params, 0, LT_DECAY_ALL);
}

static const bad bads[] = {
    {"groups that do not divide the ranks",
     {.make = make_adam, .config = {.group = 3}},
     4,
     LT_E_ARG,
     "groups of 3 do not divide 4 ranks"},
    {"integers cannot be gathered",
     {.make = make_adam, .config = {.dtype = LT_I32}},
     2,
     LT_E_ARG,
     "f32, bf16 or f16"},
    {"a step was made already",
     {.make = step_alone},
     2,
     LT_E_ARG,
     "state must be sharded before the first step"},
    {"state that cannot be sharded",
     {.make = make_own},
     2,
     LT_E_UNSUPPORTED,
     "own: cannot be sharded: it has state that is not per parameter"},
};

static void test_bad(void **state)
{
    const bad *b = *state;
    static rank_run p[RANKS];
    run_all(p, b->ranks, &b->scenario);
    for (int r = 0; r < b->ranks; r++) {
        assert_int_equal(p[r].base.status, b->want);
        assert_non_null(strstr(p[r].base.message, b->message));
    }
}

static lt_status make_either(lt_optim **out, const lt_params *params)
{
    static int made; /* models are made one after the other */
    return made++ ? make_adam(out, params) : make_sgd(out, params);
}

/* Ranks with different optimizers fail instead of waiting. */
static void test_disagree(void **state)
{
    (void)state;
    static rank_run p[RANKS];
    const scenario s = {.make = make_either};
    run_all(p, 3, &s);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(p[r].base.status, LT_E_ARG);
        assert_non_null(strstr(p[r].base.message, "adam"));
        assert_non_null(strstr(p[r].base.message, "sgd"));
    }
}

static lt_status short_of_memory(fixture *f, int rank)
{
    (void)f;
    (void)rank;
    lt_alloc_fail_at(0); /* sharding succeeded */
    return LT_OK;
}

/* An allocation fails while two ranks shard: both fail, or neither. */
static void test_no_memory(void **state)
{
    (void)state;
    enum { MOST_ALLOCATIONS = 260 };
    static rank_run p[RANKS];
    scenario s = {.make = make_shampoo, .before = short_of_memory};
    int failed = 0;
    for (int n = 1; n < MOST_ALLOCATIONS; n++) {
        fail_at = n;
        s.config.group = n % 2; /* all, or each for itself */
        run_all(p, 2, &s);
        failed += p[0].base.status != LT_OK;
        assert_int_equal(p[0].base.status == LT_OK, p[1].base.status == LT_OK);
        for (int r = 0; r < 2 && p[0].base.status; r++)
            assert_true(p[r].base.status == LT_E_NOMEM || p[r].base.status == LT_E_COMM);
    }
    assert_in_range(failed, 10, MOST_ALLOCATIONS - 20);
}

int main(void)
{
    static make_fn *const both[] = {make_shampoo, make_adam};
    static const share shares[] = {{make_shampoo, 4}, {make_shampoo, 2}, {make_adam, 4}};
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_polynomial),
        cmocka_unit_test(test_wrong_polynomial),
        {"shampoo: what ranks have and send", test_load, NULL, NULL, (void *)(uintptr_t)&shares[0]},
        {"shampoo in pairs: what ranks have and send", test_load, NULL, NULL,
         (void *)(uintptr_t)&shares[1]},
        {"shampoo in nodes: what ranks send", test_load_in_nodes, NULL, NULL, NULL},
        {"adam: what ranks have and send", test_load, NULL, NULL, (void *)(uintptr_t)&shares[2]},
        {"shampoo: state is on its owner only", test_state, NULL, NULL,
         (void *)(uintptr_t)&both[0]},
        {"adam: state is on its owner only", test_state, NULL, NULL, (void *)(uintptr_t)&both[1]},
        {"memory runs out while sharding", test_no_memory, NULL, NULL, NULL},
        {"ranks with different optimizers", test_disagree, NULL, NULL, NULL},
    };
    struct CMUnitTest tests[COUNT_OF(rows) + COUNT_OF(bads) + COUNT_OF(others)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] = row_test(rows[i].name, test_row, &rows[i]);
    for (size_t i = 0; i < COUNT_OF(bads); i++)
        tests[n++] = row_test(bads[i].name, test_bad, &bads[i]);
    memcpy(&tests[n], others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
