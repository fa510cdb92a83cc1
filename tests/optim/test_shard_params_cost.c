/* Cost of sharded parameters: a rank's share of memory, and bytes sent. */

#include "shard_params.h"

static rank_run whole[RANKS], sharded[RANKS];

/* --- Memory --- */

static lt_status make_squares(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 64;
    c.precondition_frequency = 4;
    c.grafting = LT_GRAFTING_ADAM;
    return lt_optim_shampoo(out, params, &c);
}

/* Memory for values, gradients, state, activations and buffers in flight, as counted by the allocator. */
static const struct memory_row {
    make_fn *make;
    int ranks;
} memory_rows[] = {{make_adamw, 2}, {make_adamw, 4}, {make_squares, 2}, {make_squares, 4}};

static void test_memory(void **state)
{
    const struct memory_row *row = *state;
    const double most = 1.15;
    scenario s = {.make = row->make,
                  .kind = "cpu",
                  .blocks = 12,
                  .width = 64,
                  .tokens = 2,
                  .bucket_bytes = 1 << 15};
    s.unsharded = true;
    run_and_expect(whole, 1, &s);
    s.unsharded = false;
    s.shard_params = true;
    run_and_expect(sharded, row->ranks, &s);
    for (int r = 0; r < row->ranks; r++) {
        const double share = (double)sharded[r].peak * row->ranks / (double)whole->peak;
        if (!(share <= most))
            fail_msg("rank %d: %zu bytes are %.3f times 1/%d of %zu", r, sharded[r].peak, share,
                     row->ranks, whole->peak);
    }
    s.shard_params = false; /* a control: unsharded values take more */
    run_and_expect(sharded, row->ranks, &s);
    assert_true((double)sharded->peak * row->ranks > 1.5 * most * (double)whole->peak / 2);
}

/* --- Bytes --- */

/* A parameter that a pass reads: by the same operation as the one before it, if `joined`; by its backward
 * too. */
typedef struct read_row {
    const char *leaf;
    bool joined, backward;
} read_row;

static const read_row block_reads[] = {
    {"ln_1.weight", false, true},        {"ln_1.bias", true, false},
    {"attn.c_attn.weight", false, true}, {"attn.c_attn.bias", true, false},
    {"attn.c_proj.weight", false, true}, {"attn.c_proj.bias", true, false},
    {"ln_2.weight", false, true},        {"ln_2.bias", true, false},
    {"mlp.c_fc.weight", false, true},    {"mlp.c_fc.bias", true, false},
    {"mlp.c_proj.weight", false, true},  {"mlp.c_proj.bias", true, false},
};
enum { BLOCK_READS = sizeof block_reads / sizeof *block_reads, MOST_PARAMS = 64 };

/* The test's own model of units: a simulated pass over names and numbers. */
typedef struct reading {
    char name[MOST_PARAMS][TEXT];
    bool joined[MOST_PARAMS], backward[MOST_PARAMS];
    int64_t elements[MOST_PARAMS];
    int unit[MOST_PARAMS];
    int count;
    bool is_present[MOST_PARAMS];
    int64_t gathered; /* elements of all gathers of a pass */
    int gathers;
} reading;

static void add_read(reading *r, const char *name, bool joined, bool backward, int64_t elements)
{
    snprintf(r->name[r->count], TEXT, "%s", name);
    r->joined[r->count] = joined;
    r->backward[r->count] = backward;
    r->elements[r->count++] = elements;
}

static int64_t elements_of(const char *leaf, int width)
{
    const bool weight = strstr(leaf, "weight"), inner = strstr(leaf, "c_fc");
    if (strstr(leaf, "ln_"))
        return width;
    if (strstr(leaf, "c_attn"))
        return 3 * width * (weight ? width : 1);
    if (strstr(leaf, "mlp"))
        return weight ? 4 * width * width : (inner ? 4 : 1) * width;
    return width * (weight ? width : 1);
}

static void list_reads(reading *r, const scenario *s)
{
    const int width = width_of(s);
    *r = (reading){0};
    add_read(r, "wte", false, false, WORDS * width);
    add_read(r, "wpe.weight", false, false, TOKENS * width);
    for (int i = 0; i < blocks_of(s); i++)
        for (int k = 0; k < BLOCK_READS; k++)
            add_read(r, block_reads[k].leaf, block_reads[k].joined, block_reads[k].backward,
                     elements_of(block_reads[k].leaf, width));
    add_read(r, "ln_f.weight", false, true, width);
    add_read(r, "ln_f.bias", true, false, width);
    add_read(r, "head", false, true, WORDS * width);
}

static void pack_units(reading *r, const scenario *s)
{
    int unit = 0;
    size_t used = 0;
    for (int i = 0; i < r->count; i++) {
        const size_t bytes = (size_t)r->elements[i] * sizeof(float);
        if (i && used + bytes > s->bucket_bytes) {
            unit++;
            used = 0;
        }
        used += bytes;
        r->unit[i] = unit;
    }
}

static void read_unit(reading *r, int unit, int with)
{
    if (r->is_present[unit])
        return;
    memset(r->is_present, 0, sizeof r->is_present);
    if (with >= 0)
        r->is_present[with] = true;
    r->is_present[unit] = true;
    r->gathers++;
    for (int i = 0; i < r->count; i++)
        if (r->unit[i] == unit)
            r->gathered += r->elements[i];
}

static void read_all_units(reading *r)
{
    for (int i = 0; i < r->count; i++)
        read_unit(r, r->unit[i], r->joined[i] ? r->unit[i - 1] : -1);
    for (int i = r->count - 1; i >= 0; i--)
        if (r->backward[i])
            read_unit(r, r->unit[i], -1);
}

static int64_t chunk(int64_t elements, int ranks, int rank)
{
    return elements / ranks + (rank < elements % ranks);
}

/* Bytes of all ranks except gathers: gradients and their flags, status of steps, norms. */
static int64_t other_bytes(int64_t elements, int64_t params, int ranks)
{
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += 8 * (params + (ranks - 2) * chunk(params, ranks, r));
    return sum + (ranks - 1) * 4 * (elements + ranks * params) + (int64_t)ranks * (ranks - 1) * 4;
}

static void test_bytes(void **state)
{
    scenario s = {.make = make_adamw, .untied = true, .shard_params = true};
    reading r;
    s.bucket_bytes = *(const size_t *)*state;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        int64_t elements = 3 * 5, sent = 0;
        list_reads(&r, &s);
        pack_units(&r, &s);
        read_all_units(&r);
        for (int i = 0; i < r.count; i++)
            elements += r.elements[i];
        /* a parameter that no pass reads is in the last unit, if it fits, and gathered with it */
        const int last = r.count - 1;
        size_t used = 0;
        for (int i = 0; i < r.count; i++)
            used += r.unit[i] == r.unit[last] ? (size_t)r.elements[i] * 4 : 0;
        if (used + 3 * 5 * 4 <= s.bucket_bytes)
            r.gathered += 3 * 5;
        run_and_expect(sharded, ranks, &s);
        for (int k = 0; k < ranks; k++)
            sent += (int64_t)sharded[k].step_bytes;
        sent -= other_bytes(elements, r.count + 1, ranks);
        assert_int_equal(sharded[0].after.gathers - sharded[0].before.gathers, r.gathers);
        assert_int_equal(sent, (ranks - 1) * 4 * r.gathered);
        assert_true(r.gathered <= 2 * elements);
    }
}

int main(void)
{
    static const size_t unit_bytes[] = {1, 300, 700, 2000, 5000};
    static char name[COUNT_OF(memory_rows) + COUNT_OF(unit_bytes)][TEXT];
    struct CMUnitTest tests[COUNT_OF(name)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(memory_rows); i++, n++) {
        snprintf(name[n], TEXT, "%s: a rank of %d holds its share",
                 memory_rows[i].make == make_adamw ? "adamw" : "shampoo", memory_rows[i].ranks);
        tests[n] = row_test(name[n], test_memory, &memory_rows[i]);
    }
    for (size_t i = 0; i < COUNT_OF(unit_bytes); i++, n++) {
        snprintf(name[n], TEXT, "units of %zu bytes: counted bytes are the formula's",
                 unit_bytes[i]);
        tests[n] = row_test(name[n], test_bytes, &unit_bytes[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
