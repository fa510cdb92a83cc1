/* Partition of parameters into blocks: transformers against tests/golden/transformer_blocks.py; views and
 * offsets of joined parts. */

#include "fixture.h"
#include "optim/shampoo/state.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* --- A list of blocks in a file --- */

enum { NAME = 128, SHAPE = 64, FACTORS = 16 };

typedef struct reader {
    FILE *file;
    lt_optim optim; /* optimizer with one slot, for a parameter without memory */
    lt_slot slot;
    lt_param param;
    lt_tensor value;
    char name[NAME];
    const lt_shampoo_config *config;
    lt_partition partition;
    int64_t next, blocks, factors; /* next: block of the parameter; totals over all so far */
    int wrong;
} reader;

static lt_shape parse_shape(const char *text)
{
    lt_shape shape = {0};
    for (char *end; *text; text = *end ? end + 1 : end)
        shape.dim[shape.ndim++] = strtoll(text, &end, 10);
    return shape;
}

static void finish(reader *r)
{
    r->wrong += *r->name && r->next != lt_partition_count_blocks(&r->partition);
}

static void read_param(reader *r, const char *name, const char *shape)
{
    finish(r);
    snprintf(r->name, NAME, "%s", name);
    r->value.shape = parse_shape(shape);
    r->param = (lt_param){.name = r->name, .value = &r->value};
    r->slot = (lt_slot){.param = &r->param};
    r->optim.slot = &r->slot;
    r->optim.count = 1;
    r->next = 0;
    assert_ok(lt_partition_params(r->config, &r->optim, &r->partition));
}

static void describe(const lt_block *b, char text[FACTORS])
{
    size_t used = 0;
    for (int d = 0; d < b->region.shape.ndim; d++)
        if (b->factor[d].is_matrix)
            text[used++] = (char)('0' + d);
    text[used] = 0;
    if (b->factor[0].is_diagonal)
        snprintf(text, FACTORS, "diagonal");
    else if (!used)
        snprintf(text, FACTORS, "-");
}

static void read_blocks(reader *r, int count, const char *shape, const char *factors)
{
    for (int i = 0; i < count; i++) {
        char text[FACTORS];
        const lt_partition_block what = lt_partition_block_at(&r->partition, r->next++);
        lt_block b = {.partition = &r->partition, .part = what.part, .region = what.region};
        lt_block_choose_factors(r->config, &b);
        describe(&b, text);
        r->wrong +=
            !lt_shape_equal(b.region.shape, parse_shape(shape)) || strcmp(text, factors) != 0;
        r->blocks++;
        for (int d = 0; d < b.region.shape.ndim; d++)
            r->factors += b.factor[d].is_matrix;
    }
}

static reader read_file(const char *model, const lt_shampoo_config *config)
{
    char path[512], line[256], name[NAME], shape[SHAPE], factors[FACTORS];
    reader r = {.config = config};
    int count;
    snprintf(path, sizeof path, "%s/tests/golden/%s_blocks.txt", getenv("LATHER_TEST_SOURCE"),
             model);
    r.file = fopen(path, "r");
    assert_non_null(r.file);
    while (fgets(line, sizeof line, r.file))
        if (sscanf(line, "param %127s %63s", name, shape) == 2)
            read_param(&r, name, shape);
        else if (sscanf(line, "blocks %d %63s %15s", &count, shape, factors) == 3)
            read_blocks(&r, count, shape, factors);
    finish(&r);
    fclose(r.file);
    return r;
}

typedef struct model_row {
    const char *model;
    int64_t blocks, factors;
} model_row;

static const model_row models[] = {{"vit_s_16", 236, 197}, {"gpt2", 268, 242}};

static void the_preset_makes_these_blocks(void **state)
{
    const model_row *row = *state;
    lt_shampoo_config c;
    assert_ok(lt_shampoo_preset("transformer", &c));
    const reader r = read_file(row->model, &c);
    assert_int_equal(r.wrong, 0);
    assert_int_equal(r.blocks, row->blocks);
    assert_int_equal(r.factors, row->factors);
}

static void control_other_settings_make_others(void **state)
{
    (void)state;
    lt_shampoo_config c;
    assert_ok(lt_shampoo_preset("transformer", &c));
    c.split[0].parts = 6;
    assert_int_equal(read_file("vit_s_16", &c).wrong, 12 * 2 * 4);
    assert_ok(lt_shampoo_preset("transformer", &c));
    c.one_sided = (lt_name_regex){{0}, false};
    assert_true(read_file("gpt2", &c).wrong > 0);
    assert_int_equal(read_file("vit_s_16", &c).wrong, 1);
}

/* --- Views --- */

typedef struct view_row {
    const char *name;
    lt_shape shape;
    int dim, parts;
    int64_t limit;
} view_row;

static const view_row views[] = {
    {"rows", {2, {6, 5}}, 0, 3, 2},          {"columns", {2, {4, 6}}, 1, 2, 2},
    {"filters", {4, {4, 3, 2, 2}}, 0, 2, 4}, {"channels of filters", {4, {4, 6, 2, 2}}, -3, 3, 8},
    {"a vector", {1, {8}}, -1, 4, 3},        {"parts of extent 1", {2, {3, 4}}, 0, 3, 4},
};

/* Blocks write their number: each element is written once, by a block of its part. */
static void blocks_of_parts_share_no_element(void **state)
{
    const view_row *row = *state;
    double got[128];
    fixture f;
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.max_preconditioner_dim = row->limit;
    c.split[0] = (lt_param_split){{"w", false}, row->dim, row->parts};
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", row->shape);
    assert_ok(lt_optim_sgd(&f.optim, &f.list, NULL));
    lt_partition partition;
    assert_ok(lt_partition_params(&c, f.optim, &partition));
    const lt_view all = lt_tensor_view(p->value);
    const int64_t count = lt_partition_count_blocks(&partition);
    assert_true(count >= row->parts);
    void *ctx;
    const lt_backend *be = lt_optim_backend(f.optim, &ctx);
    for (int64_t i = 0; i < count; i++) {
        const lt_partition_block b = lt_partition_block_at(&partition, i);
        const lt_view part = lt_split_view(partition.split, b.part, &all);
        const lt_view block = lt_region_view(&partition.merged, &b.region, &part);
        assert_ok(be->fill(ctx, (double)(i + 1), &block));
    }
    int64_t seen[128] = {0}, total = 0;
    get(p->value, got);
    for (int64_t i = 0; i < lt_shape_count(row->shape); i++)
        seen[(int)got[i]]++;
    assert_int_equal(seen[0], 0);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(seen[i + 1],
                         lt_shape_count(lt_partition_block_at(&partition, i).region.shape));
        total += seen[i + 1];
    }
    assert_int_equal(total, lt_shape_count(row->shape));
    const int64_t of_part = count / row->parts; /* the last element is in the last part */
    assert_true((int64_t)got[total - 1] > count - of_part);
    fixture_close(&f);
}

/* Blocks have distinct offsets in checkpoints. */
static void places_of_parts_differ(void **state)
{
    const view_row *row = *state;
    fixture f;
    lt_partition partition;
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.max_preconditioner_dim = row->limit;
    c.split[0] = (lt_param_split){{"w", false}, row->dim, row->parts};
    fixture_open(&f, true);
    fixture_add(&f, "w", row->shape);
    assert_ok(lt_optim_sgd(&f.optim, &f.list, NULL));
    assert_ok(lt_partition_params(&c, f.optim, &partition));
    for (int64_t i = 0; i < lt_partition_count_blocks(&partition); i++)
        for (int64_t k = 0; k < i; k++) {
            const lt_partition_block a = lt_partition_block_at(&partition, i),
                                     b = lt_partition_block_at(&partition, k);
            assert_false(lt_shape_equal(lt_partition_offset(&partition, a.part, &a.region),
                                        lt_partition_offset(&partition, b.part, &b.region)));
        }
    fixture_close(&f);
}

int main(void)
{
    enum { M = COUNT_OF(models), V = COUNT_OF(views) };
    struct CMUnitTest tests[M + 2 * V + 1] = {
        cmocka_unit_test(control_other_settings_make_others),
    };
    size_t n = 1;
    for (size_t i = 0; i < M; i++)
        tests[n++] = row_test(models[i].model, the_preset_makes_these_blocks, &models[i]);
    for (size_t i = 0; i < V; i++) {
        tests[n++] = row_test(views[i].name, blocks_of_parts_share_no_element, &views[i]);
        tests[n++] = row_test(views[i].name, places_of_parts_differ, &views[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
