/* Assignment of parts to ranks: published vectors, random lists against exhaustive search, and ResNet-50. */

#include "near.h"
#include "optim/shampoo/assign.h"
#include "optim/shampoo/reference.h"
#include "optim/shampoo/state.h"
#include "optim/sharding/assign.h"
#include "resnet50_shapes.h"

#include <stdlib.h>

enum { MOST = 1024, RANKS = 8 };

/* --- Vectors --- */

typedef struct vector {
    const char *name;
    int ranks;
    size_t count;
    int64_t cost[4];
    int owner[4];
    bool wrong; /* a control: the comparison must reject it */
} vector;

/* Source: the reference implementation's tests. */
static const vector vectors[] = {
    {"bytes, aligned to 64, on 2 ranks", 2, 4, {128, 64, 512, 256}, {1, 1, 0, 1}, false},
    {"the same on 1 rank", 1, 4, {128, 64, 512, 256}, {0, 0, 0, 0}, false},
    {"2 blocks on 4 ranks", 4, 2, {128, 64}, {0, 1}, false},
    {"squares of 256, 128, 384, 256: a perfect tie",
     2,
     4,
     {65536, 16384, 147456, 65536},
     {1, 1, 0, 1},
     false},
    {"equal costs go round, the first block to the first rank",
     3,
     4,
     {7, 7, 7, 7},
     {0, 1, 2, 0},
     false},
    {"control: not the largest first", 2, 4, {128, 64, 512, 256}, {0, 1, 1, 0}, true},
};

static void test_vector(void **state)
{
    const vector *v = *state;
    int owner[4];
    assert_ok(lt_assign(v->cost, v->count, v->ranks, owner));
    bool same = true;
    for (size_t i = 0; i < v->count; i++)
        same = same && owner[i] == v->owner[i];
    assert_int_equal(same, !v->wrong);
}

/* --- Local search --- */

static int64_t worst(const int64_t *cost, size_t count, int ranks, const int *owner)
{
    int64_t load[RANKS], most = 0;
    lt_assign_compute_loads(cost, count, ranks, owner, load);
    for (int r = 0; r < ranks; r++)
        most = load[r] > most ? load[r] : most;
    return most;
}

/* The search is never worse than greedy, and optimal for a list that greedy gets wrong. */
static void test_improve(void **state)
{
    (void)state;
    const int64_t hard[] = {3, 3, 2, 2, 2}; /* greedy: 7 and 5 */
    int owner[64];
    assert_ok(lt_assign(hard, 5, 2, owner));
    assert_int_equal(worst(hard, 5, 2, owner), 7);
    assert_ok(lt_assign_improve(hard, 5, 2, owner));
    assert_int_equal(worst(hard, 5, 2, owner), 6);
    uint32_t seed = 12345;
    for (int round = 0; round < 50; round++) {
        int64_t cost[64], sum = 0, largest = 0;
        for (int i = 0; i < 64; i++) {
            seed = seed * 1664525 + 1013904223;
            cost[i] = (seed >> 12) % 1000 + (round % 2 ? 1 : 300);
            sum += cost[i];
            largest = cost[i] > largest ? cost[i] : largest;
        }
        assert_ok(lt_assign(cost, 64, RANKS, owner));
        const int64_t before = worst(cost, 64, RANKS, owner);
        assert_ok(lt_assign_improve(cost, 64, RANKS, owner));
        const int64_t after = worst(cost, 64, RANKS, owner);
        assert_true(after <= before);
        assert_true(after <= largest || (double)after <= 1.02 * (double)sum / RANKS);
    }
}

/* --- ResNet-50 on 8 ranks --- */

typedef enum objective { COST, MEMORY, BYTES, CUBES } objective;

typedef struct model {
    lt_partition partition[RESNET50_PARAMS];
    lt_block block[MOST];
    size_t count;
} model;

static void partition(model *m, const lt_shampoo_config *c)
{
    lt_shape shape[RESNET50_PARAMS];
    assert_int_equal(resnet50_shapes(shape), RESNET50_PARAMS);
    m->count = 0;
    for (size_t i = 0; i < RESNET50_PARAMS; i++) {
        lt_partition *partition = &m->partition[i];
        *partition = (lt_partition){.split.parts = 1, .limit = c->max_preconditioner_dim};
        partition->merged = lt_merge_shape(shape[i], c->max_preconditioner_dim,
                                           c->target_dimensionality, c->merge_order);
        partition->diagonal = c->diagonal_vectors && partition->merged.shape.ndim == 1;
        const int64_t blocks = lt_partition_count_blocks(partition);
        for (int64_t k = 0; k < blocks; k++) {
            lt_block *b = &m->block[m->count++];
            assert_true(m->count <= MOST);
            *b = (lt_block){.partition = partition,
                            .region = lt_partition_block_at(partition, k).region};
            lt_block_choose_factors(c, b);
        }
    }
}

static int64_t cubes(const lt_block *b)
{
    int64_t sum = 0;
    for (int d = 0; d < b->region.shape.ndim; d++)
        sum += b->region.shape.dim[d] * b->region.shape.dim[d] * b->region.shape.dim[d];
    return sum;
}

static int64_t price(const lt_shampoo_config *c, const lt_block *b, objective what)
{
    const int64_t elements = lt_shape_count(b->region.shape);
    int64_t factors = 0;
    for (int d = 0; d < b->region.shape.ndim; d++)
        factors += 2 * b->region.shape.dim[d] * b->region.shape.dim[d];
    switch (what) {
    case COST:
        return (int64_t)(1000 * lt_block_nanoseconds(c, b));
    case MEMORY: /* factors and roots, filtered gradient, grafting and momentum */
        return (int64_t)sizeof(float) * (factors + 3 * elements);
    case BYTES:
        return ((int64_t)sizeof(float) * elements + 63) / 64 * 64;
    case CUBES:
        return cubes(b);
    }
    return 0;
}

static double mean_of(const int64_t *cost, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)cost[i];
    return sum / RANKS;
}

typedef struct balance {
    const char *name;
    int64_t limit;      /* largest dimension of a block */
    int frequency;      /* frequency of refreshes */
    objective by, seen; /* balanced cost; measured cost */
    double bound;       /* bound of the largest load, times max(mean, largest block) */
    bool over;          /* a control: worse than the bound */
} balance;

static const balance balances[] = {
    {"cost, blocks of 1024, f = 1", 1024, 1, COST, COST, 1.05, false},
    {"cost, blocks of 1024, f = 50", 1024, 50, COST, COST, 1.05, false},
    {"cost, blocks of 2048, f = 1", 2048, 1, COST, COST, 1.05, false},
    {"cost, blocks of 2048, f = 50", 2048, 50, COST, COST, 1.05, false},
    {"cost, blocks of 4096, f = 1", 4096, 1, COST, COST, 1.05, false},
    {"cost, blocks of 4096, f = 50", 4096, 50, COST, COST, 1.05, false},
    {"memory, blocks of 1024", 1024, 1, MEMORY, MEMORY, 1.1, false},
    {"memory, blocks of 2048", 2048, 1, MEMORY, MEMORY, 1.1, false},
    {"memory, blocks of 4096", 4096, 1, MEMORY, MEMORY, 1.1, false},
    {"bytes, blocks of 1024", 1024, 1, BYTES, BYTES, 1.003, false},
    {"control: bytes leave the cost of roots uneven, 1024", 1024, 1, BYTES, CUBES, 1.7, true},
    {"control: bytes leave the cost of roots uneven, 2048", 2048, 1, BYTES, CUBES, 1.7, true},
    {"control: bytes leave the cost of roots uneven, 4096", 4096, 1, BYTES, CUBES, 1.7, true},
    {"control: bytes leave the modelled cost uneven, 1024", 1024, 1, BYTES, COST, 1.05, true},
};

static void test_balance(void **state)
{
    const balance *b = *state;
    static model m;
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.max_preconditioner_dim = b->limit;
    c.precondition_frequency = b->frequency;
    c.momentum = 0.9;
    c.grafting = LT_GRAFTING_ADAM;
    partition(&m, &c);
    int64_t cost[MOST], seen[MOST], largest = 0;
    int owner[MOST];
    for (size_t i = 0; i < m.count; i++) {
        cost[i] = price(&c, &m.block[i], b->by);
        seen[i] = price(&c, &m.block[i], b->seen);
        largest = seen[i] > largest ? seen[i] : largest;
    }
    assert_ok(lt_assign(cost, m.count, RANKS, owner));
    const double greedy = (double)worst(seen, m.count, RANKS, owner);
    if (b->by != BYTES)
        assert_ok(lt_assign_improve(cost, m.count, RANKS, owner));
    const double mean = mean_of(seen, m.count);
    const double most = (double)worst(seen, m.count, RANKS, owner);
    const double floor = mean > (double)largest ? mean : (double)largest;
    print_message("%zu blocks, max/mean %.4f (greedy %.4f), largest/mean %.4f\n", m.count,
                  most / mean, greedy / mean, (double)largest / mean);
    assert_int_equal(most <= b->bound * floor, !b->over);
}

/* --- ResNet-50's whole parameters, as for LARS and LAMB: a step costs its memory traffic --- */

enum { MANY = 16 };
typedef struct whole {
    const char *name;
    int ranks;
    bool over; /* a control: a rank has more than 1.1 of the mean */
} whole;

static const whole wholes[] = {
    {"ResNet-50 by parameters on 2 ranks: at most 1.1 of the mean", 2, false},
    {"ResNet-50 by parameters on 4 ranks: at most 1.1 of the mean", 4, false},
    {"ResNet-50 by parameters on 8 ranks: at most 1.1 of the mean", 8, false},
    {"control: on 16 ranks the largest filter is more", MANY, true},
};

static void test_whole(void **state)
{
    const whole *w = *state;
    lt_shape shape[RESNET50_PARAMS];
    int64_t cost[RESNET50_PARAMS], load[MANY], sum = 0, most = 0;
    int owner[RESNET50_PARAMS];
    const size_t count = resnet50_shapes(shape);
    for (size_t i = 0; i < count; i++)
        sum += cost[i] = lt_shape_count(shape[i]);
    assert_ok(lt_assign(cost, count, w->ranks, owner));
    assert_ok(lt_assign_improve(cost, count, w->ranks, owner));
    lt_assign_compute_loads(cost, count, w->ranks, owner, load);
    for (int r = 0; r < w->ranks; r++)
        most = load[r] > most ? load[r] : most;
    print_message("max/mean %.4f\n", (double)most * w->ranks / (double)sum);
    assert_int_equal((double)most * w->ranks > 1.1 * (double)sum, w->over);
}

/* --- Cost of a block --- */

/* Adding a dimension's factor adds its cost to a step; without factors only memory is counted. */
static void test_factors_cost(void **state)
{
    (void)state;
    const lt_shampoo_config config = LT_SHAMPOO_DEFAULTS;
    lt_block b = {.region.shape = LT_SHAPE(40, 60)};
    double cost[4];
    for (int i = 0; i < 4; i++) {
        b.factor[0].is_matrix = i & 1;
        b.factor[1].is_matrix = i & 2;
        cost[i] = lt_block_step_nanoseconds(&config, &b);
    }
    assert_true(0 < cost[0] && cost[0] < cost[1] && cost[1] < cost[2]);
    assert_near(cost[3] - cost[2], cost[1] - cost[0], 1e-6 * cost[3]);
}

/* --- Owners that hold the elements --- */

enum { PARTS = 9, HOLDERS = 3 };

static int64_t local_elements(const int64_t *local, const int *owner)
{
    int64_t sum = 0;
    for (int i = 0; i < PARTS; i++)
        sum += local[i * HOLDERS + owner[i]];
    return sum;
}

/* Loads are unchanged, local elements increase, and no exchange of two owners gains more. */
static void test_local(void **state)
{
    (void)state;
    static const int64_t cost[PARTS] = {5, 3, 5, 5, 3, 9, 5, 3, 5};
    int64_t local[PARTS * HOLDERS], before[HOLDERS], after[HOLDERS];
    int owner[PARTS], won = 0;
    for (int seed = 1; seed <= 50; seed++) {
        for (int i = 0; i < PARTS * HOLDERS; i++)
            local[i] = (seed * 7919 + i * i * 104729 + i * 31) % 97;
        assert_ok(lt_assign(cost, PARTS, HOLDERS, owner));
        lt_assign_compute_loads(cost, PARTS, HOLDERS, owner, before);
        const int64_t first = local_elements(local, owner);
        lt_assign_prefer_local(cost, local, PARTS, HOLDERS, owner);
        lt_assign_compute_loads(cost, PARTS, HOLDERS, owner, after);
        const int64_t best = local_elements(local, owner);
        assert_memory_equal(before, after, sizeof before);
        assert_true(best >= first);
        won += best > first;
        for (int i = 0; i < PARTS; i++)
            for (int k = 0; k < i; k++) {
                if (cost[i] != cost[k])
                    continue;
                const int a = owner[i], b = owner[k];
                owner[i] = b;
                owner[k] = a;
                assert_true(local_elements(local, owner) <= best);
                owner[i] = a;
                owner[k] = b;
            }
    }
    assert_true(won > 25);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(vectors) + COUNT_OF(balances) + COUNT_OF(wholes) + 3];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(vectors); i++)
        tests[n++] = row_test(vectors[i].name, test_vector, &vectors[i]);
    for (size_t i = 0; i < COUNT_OF(balances); i++)
        tests[n++] = row_test(balances[i].name, test_balance, &balances[i]);
    for (size_t i = 0; i < COUNT_OF(wholes); i++)
        tests[n++] = row_test(wholes[i].name, test_whole, &wholes[i]);
    tests[n++] = row_test("the local search is never worse, and often best", test_improve, NULL);
    tests[n++] =
        row_test("owners of equal parts are exchanged for local elements", test_local, NULL);
    tests[n++] = row_test("each factor of a block has its cost", test_factors_cost, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
