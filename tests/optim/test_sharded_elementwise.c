/* Elementwise optimizers that update shards in place: values and state are bitwise those of one rank,
 * except for the norm's rounding if gradients are clipped. */

#include "sharded_ranks.h"

static const grid grids[] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 0, 0}, {0, 2, 1}, {0, 2, 2}};

/* Relative bound of norms: the order of a sum of a thousand squares differs. */
static const double norm_bound = 1e-6;

static void compare_steps(const rank_run *p, const rank_run *first, const rank_run *one)
{
    const int from = p->scenario->from ? p->scenario->from : 1;
    for (int t = from; t <= STEPS; t++) {
        assert_int_equal(p->applied[t], one->applied[t]);
        if (!p->applied[t])
            continue;
        assert_memory_equal(&p->norm[t], &first->norm[t], sizeof(double)); /* on all ranks */
        if (!(fabs(p->norm[t] - one->norm[t]) <= norm_bound * one->norm[t]))
            fail_msg("norm %d is %.17g, want %.17g", t, p->norm[t], one->norm[t]);
    }
}

static double number_of(const record *r, size_t at, size_t size)
{
    float narrow;
    double value;
    memcpy(&narrow, r->bytes + at, sizeof narrow);
    memcpy(&value, r->bytes + at, size < sizeof value ? sizeof narrow : sizeof value);
    return size < sizeof value ? (double)narrow : value;
}

/* bound 0: bitwise equal. */
static void compare_numbers(double got, double want, double bound, const char *what, int64_t i)
{
    if (bound > 0 ? !(fabs(got - want) <= bound * (1 + fabs(want)))
                  : memcmp(&got, &want, sizeof got) != 0)
        fail_msg("%s %lld is %.9g, want %.9g", what, (long long)i, got, want);
}

static void compare_values(const rank_run *p, const rank_run *one, double bound)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (p->has[i])
            compare_numbers(p->value[i], one->value[i], bound, "element", i);
}

/* Compares the elements of each tensor that are in the shard. */
static void compare_state(const rank_run *p, const rank_run *one, double bound)
{
    const size_t size = p->scenario->f64 ? sizeof(double) : sizeof(float);
    const record *a = &p->state, *b = &one->state;
    size_t at = 0;
    assert_int_equal(a->entries, b->entries);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->numbers, b->numbers, a->count * sizeof *a->numbers);
    for (size_t i = 0; i < a->entries; i++) {
        assert_int_equal(a->length[i], b->length[i]);
        const bool is_shard = a->spec[i].logical.ndim > 0; /* otherwise the parameter is whole */
        const int64_t count =
            is_shard ? lt_shard_spec_count(&a->spec[i]) : (int64_t)(a->length[i] / size);
        for (int64_t e = 0; e < count; e++) {
            const int64_t index = is_shard ? lt_shard_spec_index(&a->spec[i], e) : e;
            const size_t byte = at + (size_t)index * size;
            compare_numbers(number_of(a, byte, size), number_of(b, byte, size), bound, "state", e);
        }
        at += a->length[i];
    }
}

/* Only norms of shards are sent, one per distinct shard of a copy. */
static void check_traffic(const rank_run *p, int ranks)
{
    const lt_sharded_traffic *t = &p->traffic;
    const int64_t chunk = t->parts / ranks + (p->base.rank < t->parts % ranks);
    assert_int_equal(t->gradients + t->values + t->bytes, 0);
    assert_in_range(t->parts, PARAMS, PARAMS * ranks_of(p->layout));
    assert_int_equal(p->gradient_bytes, 0);
    assert_int_equal(p->all_bytes, ranks > 1 ? 8 * (t->parts + (ranks - 2) * chunk) : 0);
}

static void compare(const rank_run *p, int ranks, const rank_run *one)
{
    const double bound = p->scenario->clip > 0 ? 1e-5 : 0;
    for (int r = 0; r < ranks; r++) {
        if (p[r].base.status)
            fail_msg("rank %d of %d: %s", r, ranks, p[r].base.message);
        compare_steps(&p[r], p, one);
        compare_values(&p[r], one, bound);
        compare_state(&p[r], one, bound);
        check_traffic(&p[r], ranks);
    }
}

static void test_layouts(void **state)
{
    static rank_run one, p[RANKS];
    const scenario *s = *state;
    scenario whole = *s;
    whole.in_place = false;
    run_whole(&one, &whole, NULL);
    for (size_t g = 0; g < COUNT_OF(grids); g++)
        for (int copies = 1; copies <= 2; copies++) {
            const int ranks = ranks_of(grids[g]) * copies;
            run_shards(p, s, grids[g], copies, NULL);
            compare(p, ranks, &one);
            free_records(p, ranks);
        }
    free_records(&one, 1);
}

/* Ten steps by one rank, ten more in place: both have the same form of state. */
static void state_is_used_in_place(void **state)
{
    (void)state;
    static rank_run one, half, p[RANKS];
    static checkpoint c;
    const scenario all = {.make = make_adam}, first = {.make = make_adam, .to = STEPS / 2},
                   second = {.make = make_adam, .in_place = true, .from = STEPS / 2 + 1};
    run_whole(&one, &all, NULL);
    run_whole(&half, &first, NULL);
    c.state = half.state;
    memcpy(c.value, half.value, sizeof c.value);
    run_shards(p, &second, grids[5], 1, &c);
    compare(p, 8, &one);
    free_records(p, 8);
    free_records(&half, 1);
    free_records(&one, 1);
}

/* --- Bad input --- */

static lt_status make_logical_one(rank_run *p)
{
    return make_adam(&p->optim, lt_sharded_optim_params(p->sharded));
}

static lt_status make_muon_of_shards(rank_run *p)
{
    return make_muon(&p->optim, &p->list);
}

static lt_status attach_before(rank_run *p)
{
    LT_TRY(make_adam(&p->optim, &p->list));
    return lt_sharded_optim_attach_shards(p->sharded, p->optim);
}

static lt_status attach_in_int8(rank_run *p)
{
    LT_TRY(make_adam(&p->optim, &p->list));
    return lt_optim_set_state_dtype(p->optim, LT_STATE_INT8);
}

typedef struct bad {
    const char *name;
    lt_status (*make)(rank_run *p);
    const char *message;
} bad;

static const bad bads[] = {
    {"an optimizer of whole parameters", make_logical_one,
     "adam: must be made over the same shards as lt_sharded_optim"},
    {"an optimizer of matrices", make_muon_of_shards, "muon: is not elementwise"},
    {"a state of few bits", attach_in_int8,
     "adam: a state dtype below f32 needs whole parameters: make it over lt_sharded_optim_params()"},
    {"an optimizer that is attached", attach_before, "adam: another optimizer is already attached"},
};

static void test_bad(void **state)
{
    static rank_run p[RANKS];
    const bad *b = *state;
    const scenario s = {.in_place = true, .make_other = b->make};
    run_shards(p, &s, grids[1], 2, NULL);
    int named = 0;
    for (int r = 0; r < 4; r++) {
        assert_true(p[r].base.status == LT_E_ARG || p[r].base.status == LT_E_COMM);
        named += p[r].base.status == LT_E_ARG && strstr(p[r].base.message, b->message);
    }
    if (!named)
        fail_msg("%s", p->base.message);
    free_records(p, 4);
}

#define ROW(name, test, of)                             \
    {                                                   \
        name, test, NULL, NULL, (void *)(uintptr_t)(of) \
    }

int main(void)
{
    static const scenario adam = {.make = make_adam, .in_place = true},
                          adamw = {.make = make_adamw, .in_place = true, .f64 = true},
                          sgd = {.make = make_sgd, .in_place = true},
                          nesterov = {.make = make_nesterov, .in_place = true, .kind = "cpu"},
                          adagrad = {.make = make_adagrad, .in_place = true},
                          lion = {.make = make_lion, .in_place = true},
                          clipped = {.make = make_adamw, .in_place = true, .clip = 0.5},
                          scaled = {.make = make_adam, .in_place = true, .half = true};
    const struct CMUnitTest rows[] = {
        ROW("adam", test_layouts, &adam),
        ROW("adamw, f64", test_layouts, &adamw),
        ROW("sgd", test_layouts, &sgd),
        ROW("nesterov's momentum, on cpu", test_layouts, &nesterov),
        ROW("adagrad", test_layouts, &adagrad),
        ROW("lion", test_layouts, &lion),
        ROW("adamw, clipped: within the norm's rounding", test_layouts, &clipped),
        ROW("adam, loss scaling", test_layouts, &scaled),
        ROW("state of one rank is used in place", state_is_used_in_place, NULL),
        ROW(bads[0].name, test_bad, &bads[0]),
        ROW(bads[1].name, test_bad, &bads[1]),
        ROW(bads[2].name, test_bad, &bads[2]),
    };
    return cmocka_run_group_tests_name("elementwise on shards", rows, NULL, NULL);
}
