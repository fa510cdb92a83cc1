/* Optimizers over sharded parameters: parameters and state are bitwise those of one rank. */

#include "full.h"
#include "one_sided.h"
#include "sharded_ranks.h"

static const grid grids[] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 0, 0}, {0, 2, 1}, {0, 2, 2}};
enum { GRIDS = COUNT_OF(grids) };

/* --- Bitwise equal to one rank --- */

static void compare_values(const rank_run *p, const rank_run *one)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (p->has[i] && memcmp(&p->value[i], &one->value[i], sizeof(double)) != 0)
            fail_msg("element %d is %.9g on rank %d of %d, want %.9g", i, p->value[i], p->base.rank,
                     p->base.ranks, one->value[i]);
}

static void compare_steps(const rank_run *p, const rank_run *one)
{
    for (int t = 1; t <= STEPS; t++) {
        assert_int_equal(p->applied[t], one->applied[t]);
        if (p->applied[t] && memcmp(&p->norm[t], &one->norm[t], sizeof(double)) != 0)
            fail_msg("norm %d is %.17g on rank %d of %d, want %.17g", t, p->norm[t], p->base.rank,
                     p->base.ranks, one->norm[t]);
    }
}

/* Each state tensor is on one rank, with the same bytes as on a single rank. */
static void compare_state(const rank_run *p, int ranks, const rank_run *one)
{
    size_t at = 0, bytes = 0;
    assert_true(one->state.entries > 0 || one->state.count > 0);
    for (size_t i = 0; i < one->state.entries; i++) {
        int holders = 0;
        for (int r = 0; r < ranks; r++) {
            const record *s = &p[r].state;
            assert_int_equal(s->entries, one->state.entries);
            assert_int_equal(s->length[i], one->state.length[i]);
            holders += s->here[i];
            if (s->here[i])
                assert_memory_equal(s->bytes + at, one->state.bytes + at, s->length[i]);
        }
        assert_int_equal(holders, 1);
        at += one->state.length[i];
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(p[r].state.count, one->state.count);
        assert_memory_equal(p[r].state.numbers, one->state.numbers,
                            one->state.count * sizeof(int64_t));
        bytes += p[r].state_bytes;
    }
    assert_int_equal(bytes, one->state_bytes);
}

static void compare(const rank_run *p, int ranks, const rank_run *one)
{
    for (int r = 0; r < ranks; r++) {
        if (p[r].base.status)
            fail_msg("rank %d of %d: %s", r, ranks, p[r].base.message);
        compare_steps(&p[r], one);
        compare_values(&p[r], one);
    }
    compare_state(p, ranks, one);
}

static void test_layout(const scenario *s, const rank_run *one, grid g, int copies)
{
    static rank_run p[RANKS];
    run_shards(p, s, g, copies, NULL);
    compare(p, ranks_of(g) * copies, one);
    free_records(p, ranks_of(g) * copies);
}

/* Runs each grid, as one copy and as two. */
static void test_all(void **state)
{
    static rank_run one;
    run_whole(&one, *state, NULL);
    for (int g = 0; g < GRIDS; g++)
        for (int copies = 1; copies <= 2; copies++)
            test_layout(*state, &one, grids[g], copies);
    free_records(&one, 1);
}

/* Runs four layouts; without ./check --full one of them, in turn. */
static void test_few(void **state)
{
    static const struct {
        grid grid;
        int copies;
    } layouts[] = {{{3, 0, 0}, 1}, {{0, 2, 1}, 2}, {{0, 2, 2}, 1}, {{0, 2, 2}, 2}};
    static rank_run one;
    static size_t turn;
    turn++;
    run_whole(&one, *state, NULL);
    for (size_t i = 0; i < COUNT_OF(layouts); i++)
        if (test_full() || i == turn % COUNT_OF(layouts))
            test_layout(*state, &one, layouts[i].grid, layouts[i].copies);
    free_records(&one, 1);
}

static lt_status make_wide(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 20;
    c.precondition_frequency = 10;
    return lt_optim_shampoo(out, params, &c);
}

/* Kernels sum run by run: the gradient norm is bitwise that of one rank if owner buffers have the
 * parameter's runs. */
static void a_norm_is_summed_by_the_runs_of_the_parameter(void **state)
{
    (void)state;
    scenario s = {.make = make_wide, .kind = "cpu", .clip = 0.5};
    void *row = &s;
    shapes = wide;
    test_few(&row);
    shapes = uneven;
}

static const scenario all_layouts[] = {
    {.make = make_shampoo},
    {.make = make_shampoo, .clip = 0.5},
    {.make = make_adamw, .clip = 0.5},
    {.preset = "recommended"},
    {.preset = "paper"},
    {.preset = "reference"},
    {.preset = "transformer"},
    {.preset = "soap"},
};

static const scenario few_layouts[] = {
    {.make = make_sgd},
    {.make = make_nesterov},
    {.make = make_adagrad},
    {.make = make_adam},
    {.make = make_muon, .clip = 0.5},
    {.make = make_lars},
    {.make = make_lamb},
    {.make = make_one_sided},
    {.make = make_corrected},
    {.make = make_eigendecomposed},
    {.make = make_staggered},
    {.make = make_async},
    {.make = make_ruled},
    {.make = make_shampoo, .f64 = true},
    {.make = make_shampoo, .half = true, .clip = 0.5},
    {.make = make_shampoo, .kind = "cpu", .clip = 0.5},
    {.make = make_adamw, .kind = "cpu", .clip = 0.5},
    {.make = make_shampoo, .balance = LT_BALANCE_MEMORY},
    {.make = make_shampoo, .balance = LT_BALANCE_BYTES},
    {.make = make_shampoo, .dtype = LT_BF16},
    {.make = make_shampoo, .dtype = LT_F16, .gather_params = true},
    {.make = make_adamw, .dtype = LT_BF16},
    {.make = make_muon, .dtype = LT_BF16, .gather_params = true},
};

/* --- Checkpoints --- */

/* Merges the state of all ranks. */
static void merge(checkpoint *c, const rank_run *p, int ranks)
{
    size_t at = 0;
    c->state = p[0].state;
    c->state.bytes = lt_alloc(STATE_BYTES, 1);
    assert_non_null(c->state.bytes);
    for (size_t i = 0; i < c->state.entries; i++) {
        for (int r = 0; r < ranks; r++)
            if (p[r].state.here[i])
                memcpy(c->state.bytes + at, p[r].state.bytes + at, c->state.length[i]);
        at += c->state.length[i];
    }
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < ELEMENTS; i++)
            if (p[r].has[i])
                c->value[i] = p[r].value[i];
}

/* Runs ten steps on eight ranks, and ten more on others. */
static void test_resumed(void **state)
{
    static rank_run one, p[RANKS];
    static checkpoint c;
    const scenario *s = *state;
    scenario first = *s, second = *s;
    first.to = STEPS / 2;
    second.from = STEPS / 2 + 1;
    run_whole(&one, s, NULL);
    run_shards(p, &first, grids[5], 1, NULL);
    assert_int_equal(p->base.status, LT_OK);
    merge(&c, p, 8);
    free_records(p, 8);
    for (int g = 0; g < 4; g++) {
        run_shards(p, &second, grids[g], 1, &c);
        for (int r = 0; r < ranks_of(grids[g]); r++) {
            memcpy(p[r].norm, one.norm, second.from * sizeof(double));
            memcpy(p[r].applied, one.applied, second.from * sizeof(bool));
        }
        compare(p, ranks_of(grids[g]), &one);
        free_records(p, ranks_of(grids[g]));
    }
    static rank_run again;
    run_whole(&again, &second, &c);
    compare_values(&again, &one);
    free_records(&again, 1);
    free_records(&one, 1);
    lt_free(c.state.bytes);
}

/* --- Bytes and memory --- */

static int64_t chunk(int64_t elements, int ranks, int rank)
{
    return elements / ranks + (rank < elements % ranks);
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Checks each rank's counters to the byte, and all messages by element. */
static void check_traffic(const rank_run *p, int ranks, int members, int64_t size,
                          int64_t sent_size)
{
    int64_t gradients = 0, foreign = 0;
    for (int r = 0; r < ranks; r++) {
        const lt_sharded_traffic *t = &p[r].traffic;
        const int64_t norms =
            ranks > 1 ? 8 * (t->parts + (ranks - 2) * chunk(t->parts, ranks, r)) : 0;
        assert_int_equal(p[r].base.status, LT_OK);
        assert_int_equal(t->values, p[r].pushed + ranks - 1);
        assert_int_equal(p[r].gradient_bytes, t->gradients * size);
        assert_int_equal(p[r].all_bytes, t->gradients * size + t->values * sent_size + norms);
        gradients += t->gradients;
        foreign += p[r].foreign + members - 1;
    }
    assert_int_equal(gradients, foreign);
}

static void test_traffic(void **state)
{
    static rank_run p[RANKS];
    const scenario *s = *state;
    const int64_t size = s->f64 ? 8 : 4;
    for (int g = 0; g < GRIDS; g++)
        for (int copies = 1; copies <= 2; copies++) {
            const int members = ranks_of(grids[g]), ranks = members * copies;
            run_shards(p, s, grids[g], copies, NULL);
            check_traffic(p, ranks, members, size, s->dtype ? 2 : size);
            free_records(p, ranks);
        }
}

/* In addition to its shards a rank has owner buffers and messages. */
static void memory_is_shards_and_parts(void **state)
{
    (void)state;
    static rank_run p[RANKS];
    const scenario s = {.make = make_adam, .to = 2};
    for (int g = 0; g < GRIDS; g++) {
        const int ranks = ranks_of(grids[g]);
        run_shards(p, &s, grids[g], 1, NULL);
        for (int r = 0; r < ranks; r++) {
            const int64_t parts = p[r].parts_elements, shards = p[r].shard_elements;
            const int64_t local = parts - p[r].foreign;
            const int64_t sent = most(shards, p[r].pushed + local), came = most(parts, shards);
            assert_int_equal(p[r].base.status, LT_OK);
            assert_in_range(p[r].traffic.bytes, 4 * (2 * parts + came + p[r].pushed + local),
                            4 * (2 * parts + came + sent + 2 * ranks + 1));
            assert_int_equal(p[r].state_bytes, 4 * 2 * parts);
        }
        free_records(p, ranks);
    }
}

/* Five equal parameters, split five ways: (t-1)/t E/(R t) and (R t-1)/(R t) E/t for each rank, on average. */
static void even_shards_have_the_bytes_of_the_formula(void **state)
{
    (void)state;
    enum { T = 5, E = 5 * 30 };
    static rank_run p[RANKS];
    const scenario s = {.make = make_adam, .to = 2};
    shapes = even;
    for (int copies = 1; copies <= 2; copies++) {
        int64_t gradients = 0, values = 0;
        const int ranks = T * copies;
        run_shards(p, &s, (grid){T, 0, 0}, copies, NULL);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(p[r].base.status, LT_OK);
            gradients += p[r].traffic.gradients - (T - 1);
            values += p[r].traffic.values - (ranks - 1);
        }
        assert_int_equal(gradients, (T - 1) * E / T);
        assert_int_equal(values, (ranks - 1) * E / T);
        free_records(p, ranks);
    }
    shapes = uneven;
}

/* --- Rejected input --- */

typedef struct bad {
    const char *name;
    scenario scenario;
    lt_status status;
    const char *message;
} bad;

static void set_shard(rank_run *p, int rank, int k, int dim, int64_t offset, int64_t extent)
{
    if (p->base.rank != rank)
        return;
    p->param[k].spec->offset.dim[dim] = offset;
    p->param[k].spec->extent.dim[dim] = extent;
}

static void overlap(rank_run *p)
{
    set_shard(p, 1, 1, 0, 3, 3);
}

static void leave_a_gap(rank_run *p)
{
    for (int r = 0; r < p->base.ranks; r += 2)
        set_shard(p, r, 1, 0, 0, 3);
}

static void rename_one(rank_run *p)
{
    if (p->base.rank == 3)
        p->list.item[2] = &p->param[1];
}

static void turn_filter(rank_run *p)
{
    lt_param_clear(&p->param[4]);
    assert_ok(p->base.rank == 2
                  ? lt_param_init(&p->param[4], p->base.device, "", names[4], shapes[4], 0)
                  : lt_param_init_filter(&p->param[4], p->base.device, "", names[4], shapes[4]));
}

static void empty_list(rank_run *p)
{
    p->list.count = 0;
}

static lt_status lose_a_gradient(rank_run *p, int t)
{
    if (t == 2 && p->base.rank == 1)
        p->param[2].has_grad = false;
    return LT_OK;
}

static lt_status make_over_shards(rank_run *p)
{
    return make_adam(&p->optim, &p->list);
}

static lt_status save_state_of_shards(rank_run *p)
{
    lt_state_visitor visitor = {.number = ignore_number};
    LT_TRY(make_adam(&p->optim, &p->list));
    return lt_optim_visit(p->optim, &visitor);
}

static lt_status attach_twice(rank_run *p)
{
    LT_TRY(make_adam(&p->optim, lt_sharded_optim_params(p->sharded)));
    return lt_sharded_optim_attach(p->sharded, p->optim, &(lt_shard_config){.comm = p->base.comm});
}

static lt_status attach_to_pairs(rank_run *p)
{
    LT_TRY(make_adam(&p->optim, lt_sharded_optim_params(p->sharded)));
    return lt_sharded_optim_attach(p->sharded, p->optim,
                                   &(lt_shard_config){.comm = p->base.comm, .group = 2});
}

static lt_status attach_with_shard_params(rank_run *p)
{
    LT_TRY(make_adam(&p->optim, lt_sharded_optim_params(p->sharded)));
    return lt_sharded_optim_attach(p->sharded, p->optim,
                                   &(lt_shard_config){.comm = p->base.comm, .shard_params = true});
}

static lt_status without_attaching(rank_run *p)
{
    return lt_sharded_optim_traffic(p->sharded, &p->traffic);
}

static const bad bads[] = {
    {"shards that overlap",
     {.make = make_adam, .corrupt = overlap},
     LT_E_ARG,
     "optim: table: rank 0 holds [0:4,0:3] of [7,3], rank 1 [3:6,0:3] of [7,3]: shards must be equal or disjoint"},
    {"shards that leave a gap",
     {.make = make_adam, .corrupt = leave_a_gap},
     LT_E_ARG,
     "optim: table has 21 elements, the ranks of rank 0's copy hold 18"},
    {"other names on one rank",
     {.make = make_adam, .corrupt = rename_one},
     LT_E_ARG,
     "the trained model is 5 parameters of 159 elements"},
    {"a filter in another order on one rank",
     {.make = make_adam, .corrupt = turn_filter},
     LT_E_ARG,
     "optim: kernel is row-major on 1 of 4 ranks and an unreshaped channels-last shard on 3"},
    {"a gradient that is absent on one rank",
     {.make = make_adam, .before = lose_a_gradient},
     LT_E_ARG,
     "adam: the gradient of out is present on rank 0, absent on rank 1"},
    {"an optimizer of the shards",
     {.make_other = make_over_shards},
     LT_E_ARG,
     "adam: must be made over lt_sharded_optim_params()"},
    {"the state of shards in a file",
     {.make_other = save_state_of_shards},
     LT_E_UNSUPPORTED,
     "is a shard, "},
    {"parameters that have an optimizer",
     {.make_other = attach_twice},
     LT_E_ARG,
     "adam: another optimizer is already attached"},
    {"an optimizer that adds up over all parameters",
     {.make = make_prodigy},
     LT_E_UNSUPPORTED,
     "prodigy: needs whole parameters and gradients on each rank"},
    {"groups of ranks",
     {.make_other = attach_to_pairs},
     LT_E_ARG,
     "adam: state is sharded over all ranks; got another communicator, or groups of 2"},
    {"parameters that are sharded again",
     {.make_other = attach_with_shard_params},
     LT_E_ARG,
     "adam: lt_sharded_optim does not support shard_params"},
    {"no parameter",
     {.make = make_adam, .corrupt = empty_list},
     LT_E_ARG,
     "optim: no parameter to train"},
    {"the traffic of no optimizer",
     {.make_other = without_attaching},
     LT_E_ARG,
     "optim: no optimizer is attached to the sharded parameters"},
};

static void test_bad(void **state)
{
    const bad *b = *state;
    static rank_run p[RANKS];
    run_shards(p, &b->scenario, (grid){2, 0, 0}, 2, NULL);
    int named = 0;
    for (int r = 0; r < 4; r++) {
        assert_true(p[r].base.status == b->status || p[r].base.status == LT_E_COMM);
        named += p[r].base.status == b->status && strstr(p[r].base.message, b->message);
    }
    if (!named)
        fail_msg("%s", p->base.message);
    free_records(p, 4);
}

/* An allocation fails: no rank waits for another forever, and none leaks. */
static void memory_that_runs_out_ends_all_ranks(void **state)
{
    (void)state;
    enum { MOST_ALLOCATIONS = 1500 };
    static rank_run p[RANKS];
    const scenario s = {.make = make_shampoo, .to = 2};
    int failed = 0;
    for (int n = 1; n < MOST_ALLOCATIONS; n += 1 + n / 25) {
        fail_at = n;
        run_shards(p, &s, (grid){2, 0, 0}, 1, NULL);
        failed += p[0].base.status != LT_OK;
        for (int r = 0; r < 2; r++)
            assert_true(!p[r].base.status || p[r].base.status == LT_E_NOMEM
                        || p[r].base.status == LT_E_COMM);
        free_records(p, 2);
    }
    assert_in_range(failed, 30, MOST_ALLOCATIONS);
}

/* --- Rows --- */

static const char *name_of(const scenario *s, const char *kind)
{
    static char texts[64][RANK_TEXT];
    static int used;
    char *text = texts[used++];
    const char *name = s->preset ? s->preset : name_of_maker(s->make);
    snprintf(text, RANK_TEXT, "%s: %s%s%s%s%s%s%s%s", kind, s->preset ? "shampoo preset " : "",
             name, s->clip > 0 ? ", clipped" : "", s->f64 ? ", f64" : "", s->kind ? ", on cpu" : "",
             s->half ? ", loss scaling" : "",
             !s->dtype          ? ""
             : s->gather_params ? ", 16-bit parameters"
                                : ", 16-bit updates",
             s->balance == LT_BALANCE_MEMORY  ? ", balanced by memory"
             : s->balance == LT_BALANCE_BYTES ? ", balanced by bytes"
                                              : "");
    return text;
}

int main(void)
{
    static const scenario resumed[] = {
        {.make = make_shampoo},
        {.make = make_adam},
        {.make = make_async},
        {.preset = "soap"},
    };
    static const scenario counted[] = {
        {.make = make_adam, .to = 2},
        {.make = make_shampoo, .to = 2},
        {.make = make_shampoo, .to = 2, .f64 = true},
        {.make = make_shampoo, .to = 2, .dtype = LT_BF16},
    };
    struct CMUnitTest tests[COUNT_OF(all_layouts) + COUNT_OF(few_layouts) + COUNT_OF(resumed)
                            + COUNT_OF(counted) + COUNT_OF(bads) + 4];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(all_layouts); i++)
        tests[n++] = row_test(name_of(&all_layouts[i], "bitwise equal to one rank on 1 to 16"),
                              i == 1 || test_full() ? test_all : test_few, &all_layouts[i]);
    for (size_t i = 0; i < COUNT_OF(few_layouts); i++)
        tests[n++] = row_test(name_of(&few_layouts[i], "bitwise equal to one rank"), test_few,
                              &few_layouts[i]);
    for (size_t i = 0; i < COUNT_OF(resumed); i++)
        tests[n++] =
            row_test(name_of(&resumed[i], "resumes on other ranks"), test_resumed, &resumed[i]);
    for (size_t i = 0; i < COUNT_OF(counted); i++)
        tests[n++] =
            row_test(name_of(&counted[i], "sends the counted bytes"), test_traffic, &counted[i]);
    for (size_t i = 0; i < COUNT_OF(bads); i++)
        tests[n++] = row_test(bads[i].name, test_bad, &bads[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_norm_is_summed_by_the_runs_of_the_parameter);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(memory_is_shards_and_parts);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(even_shards_have_the_bytes_of_the_formula);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(memory_that_runs_out_ends_all_ranks);
    return cmocka_run_group_tests_name("sharded parameters", tests, NULL, NULL);
}
