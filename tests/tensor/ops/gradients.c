/* Every operation's gradient against central differences in double on ref. Every differentiable input of
 * every operation must have a row. With --hashes it prints a hash of each row's value and gradients instead, for a comparison
 * with another processor (tools/check_full.sh). */

#include "gradients.h"

#include "base/alloc.h"
#include "base/encoding/sha256.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 544 };

static grad_rows_fn *const tables[] = {math_rows,  pointwise_rows, product_rows,
                                       norm_rows,  pool_rows,      attention_rows,
                                       shape_rows, select_rows,    loss_rows};

static double draw(fill how, int64_t i, int64_t count, lt_rng *rng)
{
    double u = lt_rng_uniform(rng);
    switch (how) {
    case UNIFORM:
        return 2 * u - 1;
    case FAR:
        return u < 0.5 ? -0.1 - 1.8 * u : 0.1 + 1.8 * (u - 0.5);
    case TWO_SIDED:
        return (i % 2 ? 1 : -1) + 0.2 * (u - 0.5);
    case NEAR_ONE:
        return 0.8 + 0.4 * u;
    case SMALL:
        return 0.2 * u - 0.1;
    case DISTINCT: /* 37 shares no factor with the element counts of the tables */
        return (double)(i * 37 % count) / (double)count * 4 - 2;
    case GRID:
        return floor(128 * u) * 0x1p-6 - 1;
    case INDICES:
        return floor(3 * u);
    case LABELS:
        return u < 0.5 ? floor(6 * u) : LT_IGNORED_LABEL;
    }
    return 0;
}

static lt_tensor *make(lt_device *device, const input *in, lt_rng *rng)
{
    lt_tensor *t = NULL;
    lt_dtype dtype = in->fill >= INDICES ? LT_I32 : LT_F64;
    assert_ok(lt_tensor_new(&t, device, dtype, in->shape));
    int64_t count = lt_tensor_count(t);
    double *values = lt_alloc((size_t)count, sizeof *values);
    int32_t *indices = lt_alloc((size_t)count, sizeof *indices);
    for (int64_t i = 0; i < count; i++) {
        values[i] = draw(in->fill, i, count, rng);
        indices[i] = (int32_t)values[i];
    }
    const void *data = dtype == LT_I32 ? (const void *)indices : values;
    assert_ok(lt_tensor_write(t, data, lt_tensor_bytes(t)));
    lt_free(values);
    lt_free(indices);
    return t;
}

/* A row's tensors. */
typedef struct scene {
    lt_device *device;
    lt_tensor *in[MAX_INPUTS], *constant[MAX_CONSTANTS];
    lt_pass pass;
} scene;

static void scene_open(scene *s, const grad_row *row)
{
    memset(s, 0, sizeof *s);
    lt_rng rng = {.key = lt_rng_name_key(3, LT_STREAM_INIT, row->name)};
    assert_ok(lt_device_open(&s->device, "ref", &(lt_device_config){.f64 = true}));
    for (int i = 0; i < row->inputs; i++)
        s->in[i] = make(s->device, &row->in[i], &rng);
    for (int i = 0; i < row->constants; i++)
        s->constant[i] = make(s->device, &row->constant[i], &rng);
    s->pass = row->eval ? LT_PASS_EVAL : LT_PASS_TRAIN;
    s->pass.seed = 5;
}

static void scene_close(scene *s)
{
    for (int i = 0; i < MAX_INPUTS; i++)
        lt_tensor_free(&s->in[i]);
    for (int i = 0; i < MAX_CONSTANTS; i++)
        lt_tensor_free(&s->constant[i]);
    lt_device_close(&s->device);
}

static void check_row(void **state)
{
    const grad_row *row = *state;
    scene s;
    scene_open(&s, row);
    lt_gradcheck_config config = {.step = row->step, .pass = s.pass};
    lt_status st = lt_gradcheck(s.device, row->f, s.constant, s.in, row->inputs, &config);
    scene_close(&s);
    if (row->broken && !st)
        fail_msg("accepted although wrong");
    if (row->broken)
        assert_non_null(strstr(lt_error_message(), "gradcheck: input 0, element"));
    else
        assert_ok(st);
}

/* Inputs of an operation that have a gradient: bit i for input i. */
typedef struct coverage {
    const lt_op *op;
    unsigned inputs, seen;
} coverage;

#define COVERAGE(name, inputs) {&lt_op_##name, inputs, 0},
static coverage covered[] = {LT_OP_LIST(COVERAGE)};

static coverage *coverage_of(const lt_op *op)
{
    for (size_t i = 0; i < COUNT_OF(covered); i++)
        if (covered[i].op == op)
            return &covered[i];
    return NULL;
}

/* True for a row's input, or its conversion to channels-last. */
static bool is_of_row(const lt_tensor *x)
{
    const lt_node *n = x->producer;
    return x->source || (n && n->op == &lt_op_to_format && n->in[0]->source);
}

static void note_nodes(const lt_tape *tape)
{
    for (size_t n = 0; n < tape->nodes; n++) {
        coverage *c = coverage_of(tape->node[n]->op);
        for (int i = 0; c && i < LT_MAX_INPUTS; i++)
            if (tape->node[n]->in[i] && is_of_row(tape->node[n]->in[i]))
                c->seen |= 1U << i;
    }
}

static bool has_gradient(const grad_row *row, int i)
{
    return row->in[i].fill < INDICES;
}

/* Records a row on a new tape; returns its value. */
static lt_tensor *record_row(const grad_row *row, scene *s, lt_tape **tape,
                             lt_tensor *handle[MAX_INPUTS])
{
    scene_open(s, row);
    assert_ok(lt_tape_new(tape, s->device));
    s->pass.record = true;
    lt_tape_reset(*tape, s->pass);
    for (int i = 0; i < row->inputs; i++)
        handle[i] = has_gradient(row, i) ? lt_tape_variable(*tape, s->in[i]) : s->in[i];
    lt_tensor *y = row->f(*tape, handle, s->constant);
    assert_non_null(y);
    return y;
}

static void note_row(const grad_row *row)
{
    scene s;
    lt_tape *tape = NULL;
    lt_tensor *handle[MAX_INPUTS];
    record_row(row, &s, &tape, handle);
    note_nodes(tape);
    lt_tape_free(&tape);
    scene_close(&s);
}

static void every_differentiable_input_has_a_row(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT_OF(tables); t++)
        for (size_t i = 0; tables[t](i); i++)
            note_row(tables[t](i));
    for (size_t i = 0; i < COUNT_OF(covered); i++) {
        const coverage *c = &covered[i];
        if (c->op->backward && !c->inputs)
            fail_msg("%s: src/tensor/ops/ops.h names no differentiable input", c->op->name);
        if (c->inputs & ~c->seen)
            fail_msg("%s: inputs 0x%x have a gradient and no row", c->op->name,
                     c->inputs & ~c->seen);
    }
}

static void print_hash(const char *row, const char *of, const lt_tensor *t)
{
    uint8_t hash[LT_SHA256_BYTES];
    char *values = lt_alloc(lt_tensor_bytes(t), 1);
    assert_non_null(values);
    assert_ok(lt_tensor_read(t, values, lt_tensor_bytes(t)));
    lt_sha256(hash, values, lt_tensor_bytes(t));
    lt_free(values);
    printf("%s: %s ", row, of);
    for (int i = 0; i < 8; i++)
        printf("%02x", hash[i]);
    printf("\n");
}

/* Prints hashes of a row's value y and of the gradients of the sum of y^2. */
static void print_row_hashes(const grad_row *row)
{
    scene s;
    lt_tape *tape = NULL;
    lt_tensor *handle[MAX_INPUTS];
    lt_tensor *y = record_row(row, &s, &tape, handle);
    lt_tape_keep(tape, y);
    lt_tensor *loss = lt_sum(tape, lt_mul(tape, y, y), (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(tape, loss, 1));
    print_hash(row->name, "value", y);
    for (int i = 0; i < row->inputs; i++) {
        const lt_tensor *g = has_gradient(row, i) ? lt_tape_gradient(tape, handle[i]) : NULL;
        if (g)
            print_hash(row->name, "gradient", g);
    }
    lt_tape_free(&tape);
    scene_close(&s);
}

static int print_hashes(void)
{
    for (size_t t = 0; t < COUNT_OF(tables); t++)
        for (size_t i = 0; tables[t](i); i++)
            if (!tables[t](i)->broken)
                print_row_hashes(tables[t](i));
    return 0;
}

static void single_precision_is_an_error(void **state)
{
    (void)state;
    lt_device *device = NULL;
    lt_tensor *x = NULL;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_tensor_new(&x, device, LT_F32, LT_SHAPE(2)));
    assert_fails(lt_gradcheck(device, math_rows(0)->f, NULL, &x, 1, NULL), LT_E_ARG,
                 "gradcheck: the device was not opened with f64");
    lt_tensor_free(&x);
    lt_device_close(&device);
}

static lt_tensor *narrow(lt_tape *tape, lt_tensor *const *in, void *context)
{
    (void)context;
    return lt_cast(tape, in[0], LT_BF16);
}

static void a_narrow_output_or_wrong_count_is_an_error(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, math_rows(0));
    assert_fails(lt_gradcheck(s.device, narrow, NULL, s.in, 1, NULL), LT_E_ARG,
                 "gradcheck: the output is bf16, want f64");
    assert_fails(lt_gradcheck(s.device, math_rows(0)->f, NULL, s.in, 0, NULL), LT_E_ARG,
                 "gradcheck: got 0 inputs, want 1 to ");
    assert_fails(lt_gradcheck(s.device, math_rows(0)->f, NULL, s.in, 100, NULL), LT_E_ARG,
                 "gradcheck: got 100 inputs, want 1 to ");
    scene_close(&s);
}

static void inputs_are_restored(void **state)
{
    (void)state;
    double before[12], after[12];
    scene s;
    scene_open(&s, math_rows(0));
    assert_ok(lt_tensor_read(s.in[1], before, sizeof before));
    assert_ok(lt_gradcheck(s.device, math_rows(0)->f, NULL, s.in, 2, NULL));
    assert_ok(lt_tensor_read(s.in[1], after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--hashes"))
        return print_hashes();
    static struct CMUnitTest tests[MAX_ROWS] = {
        cmocka_unit_test(every_differentiable_input_has_a_row),
        cmocka_unit_test(single_precision_is_an_error),
        cmocka_unit_test(a_narrow_output_or_wrong_count_is_an_error),
        cmocka_unit_test(inputs_are_restored),
    };
    size_t count = 4;
    for (size_t t = 0; t < COUNT_OF(tables); t++)
        for (size_t i = 0; tables[t](i); i++) {
            const grad_row *row = tables[t](i);
            LT_ASSERT(count < MAX_ROWS);
            tests[count++] =
                (struct CMUnitTest){row->name, check_row, NULL, NULL, (void *)(uintptr_t)row};
        }
    return _cmocka_run_group_tests("gradients", tests, count, NULL, NULL);
}
