/* Sharded gradients: bitwise the updates of an all-reduce, with two thirds of its bytes; and a gradient
 * norm that does not depend on the number of ranks. */

#include "makers.h"
#include "ranks.h"
#include "tensor/tensor.h"

#include "lather/data_parallel.h"
#include "lather/detail/gradient_parts.h"
#include "lather/ext/fail.h"
#include "lather/shard.h"

#include <string.h>

enum {
    PARAMS = 4,
    ELEMENTS = 3 * 5 + 4 * 3 * 2 * 2 + 6 + 5 * 4,
    RANKS = 4,
    CAPACITY = 5,
    STEPS = 20
};
enum { NO_GRADIENT = 6, ONE_RANK_ONLY = 7, NOT_A_NUMBER = 9 };

static const char *const names[PARAMS] = {"matrix", "kernel", "bias", "late"};
static const lt_shape shapes[PARAMS] = {
    {2, {3, 5}}, {4, {4, 3, 2, 2}}, {1, {6}}, {2, {5, 4}}}; /* a kernel is stored channels-last */

/* A run, the same on each rank. */
typedef struct scenario {
    make_fn *make;
    const char *preset; /* preset of Shampoo, used instead of make */
    bool sharded;       /* gradients are sharded */
    bool unsharded;     /* one rank with unsharded state */
    bool equal;         /* all ranks have the same gradients, of few bits */
    bool f64, half;     /* half: f16 loss scaling */
    const char *kind;
    double clip;
    lt_dtype dtype, gather; /* communication dtypes of gradients and of updates */
    size_t bucket_bytes;
    int group;
    int steps; /* 0: all */
    bool twice, late_sharding, no_state;
    const char *compress;
    bool listed; /* the device has graphs: one kernel makes all copies of a bucket */
} scenario;

typedef struct rank_run {
    test_rank base;
    const scenario *scenario;
    lt_tape *tape;
    lt_data_parallel *dp;
    fixture f;
    double value[ELEMENTS], norm[STEPS + 1];
    bool applied[STEPS + 1], present[PARAMS];
    uint64_t gradient_bytes, step_bytes; /* bytes sent in the last step */
    uint64_t all_gradient_bytes;         /* sum over all steps */
    lt_reducer_bytes sent;               /* as data parallelism counts them */
    lt_shard_load load;
} rank_run;

/* --- A run --- */

static lt_status make_optim(const scenario *s, lt_optim **out, const lt_params *params)
{
    return s->preset ? make_preset(out, params, s->preset, 3) : s->make(out, params);
}

static const lt_graph_ops graphs;
static lt_backend with_graphs; /* ref, and graphs that no thread captures */

static void open_model(fixture *f, const scenario *s, int rank)
{
    double start[ELEMENTS];
    *f = (fixture){0};
    const lt_device_config config = {.f64 = s->f64, .threads = 1};
    assert_ok(lt_device_open(&f->device, s->kind ? s->kind : "ref", &config));
    if (s->listed)
        f->device->backend = &with_graphs;
    for (int i = 0; i < ELEMENTS; i++)
        start[i] = (i % 2 ? -0.1 : 0.1) * (i % 48 + 1) + rank;
    for (int k = 0; k < PARAMS; k++)
        put(fixture_add(f, names[k], shapes[k])->value, start);
}

/* Gradient of a rank; equal ones are of so few bits that their sums are exact. */
static double number(const rank_run *p, int t, int k, int i)
{
    const int rank = p->scenario->equal ? 0 : p->base.rank;
    const double g = sin(1 + 7.0 * t + 3.0 * k + 1.7 * i + 0.9 * t * i + 2.3 * rank);
    return p->scenario->equal ? floor(g * 256) / 256 : g;
}

/* Step 6 has no gradient at all, step 7 all but the last on the last rank only, in step 9 one is not a
 * number on one rank. The last parameter never has one before step 3. */
static bool has_gradient(const rank_run *p, int t, int k)
{
    const bool last = p->base.rank == p->base.ranks - 1;
    if (t == NO_GRADIENT || (t < 3 && k == PARAMS - 1))
        return false;
    return t != ONE_RANK_ONLY || last || p->scenario->equal;
}

static void set_gradients(rank_run *p, int t)
{
    double g[ELEMENTS];
    for (int k = 0; k < PARAMS; k++) {
        for (int i = 0; i < ELEMENTS; i++)
            g[i] = number(p, t, k, i) * (p->scenario->half ? 1024 : 1);
        if (t == NOT_A_NUMBER && k == 1 && p->base.rank == p->base.ranks - 1)
            g[5] = (double)NAN;
        put_grad(&p->f.param[k], g);
        p->f.param[k].has_grad = has_gradient(p, t, k);
    }
}

static lt_status shard_state(rank_run *p)
{
    const scenario *s = p->scenario;
    const lt_shard_config c = {.comm = p->base.comm, .group = s->group, .dtype = s->gather};
    if (!s->unsharded && !s->no_state)
        LT_TRY(lt_optim_shard(p->f.optim, &c));
    if (!s->unsharded && !s->no_state && !s->group)
        LT_TRY(lt_optim_shard_load(p->f.optim, p->base.rank, &p->load));
    if (s->sharded && !s->late_sharding)
        LT_TRY(lt_optim_shard_gradients(p->f.optim, p->dp));
    return s->twice ? lt_optim_shard_gradients(p->f.optim, p->dp) : LT_OK;
}

static lt_status step(rank_run *p, int t)
{
    lt_step_result result;
    set_gradients(p, t);
    const lt_step numbers = {.lr = 0.01, .clip_norm = p->scenario->clip, .attempt = t};
    const uint64_t before = p->base.comm ? lt_comm_bytes(p->base.comm) : 0;
    if (p->dp) {
        lt_data_parallel_begin(p->dp, true);
        LT_TRY(lt_data_parallel_finish(p->dp));
    }
    const uint64_t between = p->base.comm ? lt_comm_bytes(p->base.comm) : 0;
    LT_TRY(lt_optim_step(p->f.optim, &numbers));
    LT_TRY(lt_optim_result(p->f.optim, &result));
    p->gradient_bytes = between - before;
    p->all_gradient_bytes += between - before;
    p->step_bytes = (p->base.comm ? lt_comm_bytes(p->base.comm) : 0) - between;
    p->norm[t] = result.grad_norm;
    p->applied[t] = result.applied;
    return LT_OK;
}

static lt_status run(void *rank)
{
    rank_run *p = rank;
    const scenario *s = p->scenario;
    const lt_data_parallel_config c = {
        .bucket_bytes = s->bucket_bytes, .dtype = s->dtype, .compress = s->compress};
    LT_TRY(lt_tape_new(&p->tape, p->f.device));
    if (p->base.comm)
        LT_TRY(lt_data_parallel_new(&p->dp, p->base.comm, &p->f.list, p->tape, &c));
    LT_TRY(make_optim(s, &p->f.optim, &p->f.list));
    LT_TRY(shard_state(p));
    if (s->half)
        LT_TRY(lt_optim_scale_loss(p->f.optim, &(lt_loss_scaling){1024, 2, 0.5, 4, 0}));
    for (int t = 1; t <= (s->steps ? s->steps : STEPS); t++)
        LT_TRY(step(p, t));
    if (p->dp)
        lt_data_parallel_bytes_sent(p->dp, &p->sent);
    return s->late_sharding ? lt_optim_shard_gradients(p->f.optim, p->dp) : LT_OK;
}

static void end(void *rank)
{
    rank_run *p = rank;
    lt_optim_free(&p->f.optim);
    lt_data_parallel_free(&p->dp);
    lt_tape_free(&p->tape);
}

static void read_values(rank_run *p)
{
    int at = 0;
    for (int k = 0; k < PARAMS; k++) {
        get(p->f.param[k].value, p->value + at);
        p->present[k] = p->f.param[k].has_grad;
        at += (int)lt_shape_count(shapes[k]);
    }
    assert_int_equal(at, ELEMENTS);
}

static rank_group group_of(rank_run *p, int ranks, const scenario *s)
{
    return (rank_group){RANKS_OF(p, ranks), .without_comm = s->unsharded, .same_refusal = true,
                        .run = run, .end = end};
}

static void run_all(rank_run *p, int ranks, const scenario *s)
{
    const rank_group g = group_of(p, ranks, s);
    for (int r = 0; r < ranks; r++) {
        p[r] = (rank_run){.scenario = s};
        open_model(&p[r].f, s, s->unsharded ? 0 : r);
        p[r].base.device = p[r].f.device;
    }
    open_ranks(&g);
    run_ranks(&g);
    for (int r = 0; r < ranks; r++)
        read_values(&p[r]);
    close_ranks(&g);
    for (int r = 0; r < ranks; r++)
        fixture_close(&p[r].f);
}

static void run_and_expect(rank_run *p, int ranks, const scenario *s)
{
    const rank_group g = group_of(p, ranks, s);
    run_all(p, ranks, s);
    expect_ranks(&g);
}

static bool same_values(const rank_run *a, const rank_run *b)
{
    return !memcmp(a->value, b->value, sizeof a->value);
}

/* --- The updates of an all-reduce --- */

static const scenario rows[] = {
    {.make = make_sgd},
    {.make = make_nesterov},
    {.make = make_adagrad},
    {.make = make_adam},
    {.make = make_adamw},
    {.make = make_adamw, .gather = LT_BF16},
    {.make = make_muon},
    {.make = make_lamb},
    {.make = make_lars},
    {.make = make_shampoo},
    {.make = make_shampoo, .f64 = true},
    {.make = make_shampoo, .kind = "cpu"},
    {.make = make_shampoo, .dtype = LT_BF16, .gather = LT_BF16},
    {.make = make_shampoo, .dtype = LT_F16},
    {.make = make_shampoo, .half = true},
    {.make = make_shampoo, .bucket_bytes = 8},
    {.make = make_shampoo, .listed = true, .bucket_bytes = 128},
    {.make = make_adam, .listed = true},
    {.make = make_whole},
    {.make = make_corrected},
    {.make = make_eigendecomposed},
    {.make = make_staggered},
    {.make = make_async},
    {.make = make_ruled},
    {.preset = "recommended"},
    {.preset = "paper"},
    {.preset = "reference"},
    {.preset = "transformer"},
    {.preset = "soap"},
};

static void compare(const rank_run *a, const rank_run *b, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        assert_true(same_values(&a[r], &b[0]));
        assert_memory_equal(a[r].present, b[0].present, sizeof a->present);
        for (int t = 1; t <= STEPS; t++) {
            assert_int_equal(a[r].applied[t], t != NOT_A_NUMBER);
            assert_int_equal(a[r].applied[t], b[0].applied[t]);
            if (a[r].applied[t])
                assert_near(a[r].norm[t], b[0].norm[t], 1e-12 * (1 + b[0].norm[t]));
            assert_true(!memcmp(&a[r].norm[t], &a[0].norm[t], sizeof(double)));
        }
    }
}

static void test_row(void **state)
{
    static rank_run whole[RANKS], sharded[RANKS];
    scenario s = *(const scenario *)*state;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        s.sharded = false;
        const scenario other = s;
        run_and_expect(whole, ranks, &other);
        s.sharded = true;
        run_and_expect(sharded, ranks, &s);
        compare(sharded, whole, ranks);
        assert_true(sharded[0].gradient_bytes != whole[0].gradient_bytes);
    }
}

/* --- Clipping --- */

/* A single rank on its own too, but for Shampoo in f32, whose gathered updates are rounded once more. */
static void test_clipped(void **state)
{
    static rank_run one[1], p[RANKS];
    scenario s = *(const scenario *)*state;
    s.equal = s.sharded = true;
    s.clip = 0.5;
    run_and_expect(one, 1, &s);
    assert_true(one->norm[1] > 2 * s.clip);
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        run_and_expect(p, ranks, &s);
        for (int r = 0; r < ranks; r++) {
            assert_true(same_values(&p[r], one));
            assert_memory_equal(p[r].norm + 1, one->norm + 1, (NOT_A_NUMBER - 1) * sizeof(double));
            assert_memory_equal(p[r].applied, one->applied, sizeof one->applied);
        }
    }
    s.unsharded = true;
    run_and_expect(p, 1, &s);
    assert_memory_equal(p->norm + 1, one->norm + 1, sizeof(double));
    if (s.f64 || s.make != make_shampoo)
        assert_true(same_values(p, one));
}

/* A control: the bits of clipped updates are not those of one sum over all elements. */
static void clipping_by_all_elements_differs(void **state)
{
    (void)state;
    static rank_run whole[RANKS], sharded[RANKS];
    const scenario s = {.make = make_sgd, .clip = 0.5, .f64 = true};
    scenario d = s;
    d.sharded = true;
    run_and_expect(whole, 2, &s);
    run_and_expect(sharded, 2, &d);
    bool same = true;
    for (int t = 1; t < NO_GRADIENT; t++) {
        same = same && !memcmp(&whole[0].norm[t], &sharded[0].norm[t], sizeof(double));
        assert_near(whole[0].norm[t], sharded[0].norm[t], 1e-14);
    }
    assert_false(same);
}

/* --- Bytes --- */

static int64_t sum_of_bytes(const rank_run *p, int ranks, bool of_step)
{
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += (int64_t)(of_step ? p[r].step_bytes : p[r].gradient_bytes);
    return sum;
}

static int64_t count_parts(const rank_run *p, int ranks)
{
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += p[r].load.parts;
    return sum;
}

/* Elements of rank's part of an all-reduce. */
static int64_t chunk(int64_t elements, int ranks, int rank)
{
    return elements / ranks + (rank < elements % ranks);
}

/* Checks each rank's bytes. */
static void check_ranks(const rank_run *p, int ranks, int64_t size)
{
    const int64_t parts = count_parts(p, ranks);
    for (int r = 0; r < ranks; r++) {
        const int64_t gathered = p[r].load.gather_bytes, own = gathered / size - 1;
        const int64_t norms = parts + (ranks - 2) * chunk(parts, ranks, r);
        assert_int_equal(p[r].gradient_bytes, (ELEMENTS - own + (ranks - 1) * PARAMS) * size);
        /* the order of buckets was sent too, by rank 0 */
        const uint64_t order = r ? 0 : (uint64_t)(ranks - 1) * PARAMS * sizeof(int64_t);
        assert_int_equal(p[r].sent.within, 0); /* nodes are not known */
        assert_int_equal(p[r].sent.between + order, p[r].all_gradient_bytes);
        assert_int_equal(p[r].step_bytes, (ranks - 1) * gathered + (ranks > 1 ? norms * 8 : 0));
    }
}

static void test_bytes(void **state)
{
    static rank_run whole[RANKS], sharded[RANKS];
    scenario s = *(const scenario *)*state;
    const int64_t size = s.dtype ? 2 : s.f64 ? 8 : 4;
    s.steps = 4;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        const int64_t n = ranks, others = n - 1;
        s.sharded = false;
        const scenario other = s;
        run_and_expect(whole, ranks, &other);
        s.sharded = true;
        run_and_expect(sharded, ranks, &s);
        if (ranks > 1)
            check_ranks(sharded, ranks, size);
        /* without flags of gradients and of steps, and without norms: 2 of 3 */
        const int64_t status = n * others * size;
        const int64_t norms = 2 * others * count_parts(sharded, ranks) * 8;
        const int64_t before = sum_of_bytes(whole, ranks, false) - 2 * others * PARAMS * size
                               + sum_of_bytes(whole, ranks, true) - status;
        const int64_t after = sum_of_bytes(sharded, ranks, false) - n * others * PARAMS * size
                              + sum_of_bytes(sharded, ranks, true) - status - norms;
        assert_int_equal(after, 2 * others * ELEMENTS * size);
        assert_int_equal(3 * after, 2 * before);
    }
}

/* More ranks than parameters. */
static void a_rank_without_parts_steps_too(void **state)
{
    (void)state;
    static rank_run whole[CAPACITY], sharded[CAPACITY];
    scenario s = {.make = make_adam};
    const scenario other = s;
    run_and_expect(whole, CAPACITY, &other);
    s.sharded = true;
    run_and_expect(sharded, CAPACITY, &s);
    compare(sharded, whole, CAPACITY);
    int idle = 0;
    for (int r = 0; r < CAPACITY; r++)
        idle += !sharded[r].load.parts;
    assert_int_equal(idle, CAPACITY - PARAMS);
}

/* --- Rejected input --- */

typedef struct bad {
    const char *name;
    scenario scenario;
    const char *message;
} bad;

static lt_status other_bucket(lt_reducer *self, size_t bucket)
{
    (void)self;
    (void)bucket;
    return LT_OK;
}

static void other_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    (void)self;
    *out = (lt_reducer_bytes){0};
}

static const lt_reducer_ops other_reducer = {
    .kind = "other",
    .bytes = sizeof(lt_reducer),
    .begin = other_bucket,
    .finish = other_bucket,
    .sent = other_sent,
};

static const bad bads[] = {
    {"gradients of groups of ranks",
     {.make = make_adam, .sharded = true, .group = 2},
     "gradients are sharded over all 4 ranks, but the state over groups of 2"},
    {"gradients without a sharded state",
     {.make = make_adam, .sharded = true, .no_state = true},
     "gradients cannot be sharded before the state"},
    {"gradients that are already sharded",
     {.make = make_adam, .sharded = true, .twice = true},
     "gradients are already sharded"},
    {"gradients after an update",
     {.make = make_adam, .sharded = true, .late_sharding = true, .steps = 1},
     "before the first update, not after it"},
    {"gradients that another reducer reduces",
     {.make = make_adam, .sharded = true, .compress = "other"},
     "cannot be combined with reducer other"},
};

static void test_bad(void **state)
{
    const bad *b = *state;
    static rank_run p[RANKS];
    run_all(p, RANKS, &b->scenario);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(p[r].base.status, LT_E_ARG);
        assert_non_null(strstr(p[r].base.message, b->message));
    }
}

/* --- Rows --- */

static const char *name_of(const scenario *s, const char *kind)
{
    static char texts[64][RANK_TEXT];
    static int used;
    char *text = texts[used++];
    const char *name = s->preset               ? s->preset
                       : s->make == make_whole ? "shampoo, a block for each parameter"
                                               : name_of_maker(s->make);
    snprintf(text, RANK_TEXT, "%s: %s%s%s%s%s%s%s%s", kind, s->preset ? "shampoo preset " : "",
             name, s->f64 ? ", f64" : "", s->kind ? ", on cpu" : "",
             s->dtype ? ", 16-bit gradients" : "", s->gather ? ", 16-bit updates" : "",
             s->half ? ", loss scaling" : "", s->listed ? ", copies in one kernel" : "");
    return text;
}

int main(void)
{
    static const scenario clipped[] = {
        {.make = make_sgd},
        {.make = make_adam},
        {.make = make_muon},
        {.make = make_shampoo},
        {.make = make_lamb},
        {.make = make_shampoo, .f64 = true},
        {.make = make_adamw, .kind = "cpu"},
    };
    static const scenario counted[] = {
        {.make = make_adam},
        {.make = make_shampoo},
        {.make = make_shampoo, .bucket_bytes = 8},
        {.make = make_shampoo, .f64 = true},
        {.make = make_shampoo, .dtype = LT_BF16, .gather = LT_BF16},
    };
    struct CMUnitTest
        tests[COUNT_OF(rows) + COUNT_OF(clipped) + COUNT_OF(counted) + COUNT_OF(bads) + 2];
    size_t n = 0;
    with_graphs = *lt_backend_ref();
    with_graphs.graphs = &graphs;
    if (lt_reducer_register(&other_reducer))
        return 1;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] =
            row_test(name_of(&rows[i], "bitwise equal to an all-reduce"), test_row, &rows[i]);
    for (size_t i = 0; i < COUNT_OF(clipped); i++)
        tests[n++] = row_test(name_of(&clipped[i], "clipped equally by 1, 2, 3, 4 ranks"),
                              test_clipped, &clipped[i]);
    for (size_t i = 0; i < COUNT_OF(counted); i++)
        tests[n++] =
            row_test(name_of(&counted[i], "two thirds of the bytes"), test_bytes, &counted[i]);
    for (size_t i = 0; i < COUNT_OF(bads); i++)
        tests[n++] = row_test(bads[i].name, test_bad, &bads[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(clipping_by_all_elements_differs);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_rank_without_parts_steps_too);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
