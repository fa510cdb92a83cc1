/* Muon where the result is known without it: the choice of matrices, singular values, batches, and rejected
 * input. tests/oracle compares the rest with a model. */

#include "optim/registry/splits.h"
#include "shared_rows.h"

/* --- Which parameters are matrices --- */

typedef struct name_row {
    const char *param;
    lt_shape shape;
    bool is_matrix;
} name_row;

static const name_row names[] = {
    {"conv_proj.weight", {4, {2, 1, 2, 2}}, true},
    {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight", {2, {6, 2}}, true},
    {"encoder.layers.encoder_layer_0.mlp.3.weight", {2, {2, 3}}, true},
    {"encoder.layers.encoder_layer_0.mlp.3.bias", {1, {3}}, false},
    {"multihead_attn.weight", {2, {2, 2}}, true},
    {"mlp.c_fc.weight", {2, {2, 2}}, true},
    {"class_token", {3, {1, 1, 2}}, false},
    {"encoder.pos_embedding", {3, {1, 2, 2}}, false},
    {"heads.head.weight", {2, {2, 2}}, false},
    {"fc.weight", {2, {2, 2}}, false},
    {"transformer.wte.weight", {2, {3, 2}}, false},
    {"wpe.weight", {2, {3, 2}}, false},
    {"lm_head.weight", {2, {3, 2}}, false},
};

static void its_name_says_whether_it_is_a_matrix(void **state)
{
    const name_row *row = *state;
    fixture f;
    fixture_open(&f, true);
    fixture_add(&f, row->param, row->shape);
    assert_ok(lt_optim_muon(&f.optim, &f.list, NULL));
    assert_int_equal(lt_muon_has_matrix(f.optim, row->param), row->is_matrix);
    const size_t states = row->is_matrix ? 1 : 2;
    assert_int_equal(lt_optim_state_bytes(f.optim),
                     states * sizeof(double) * (size_t)lt_shape_count(row->shape));
    fixture_close(&f);
}

static void other_optimizers_have_no_matrices(void **state)
{
    (void)state;
    fixture f;
    two_params(&f, make_adamw, true);
    assert_false(lt_muon_has_matrix(f.optim, "a"));
    lt_optim_free(&f.optim);
    assert_ok(make_muon(&f.optim, &f.list));
    assert_true(lt_muon_has_matrix(f.optim, "a"));
    fixture_close(&f);
}

/* --- Singular values --- */

/* Applies x -> a x + b x^3 + c x^5 five times. */
static double polynomial(double x)
{
    for (int i = 0; i < 5; i++)
        x = 3.4445 * x - 4.7750 * pow(x, 3) + 2.0315 * pow(x, 5);
    return x;
}

typedef struct side {
    const char *name;
    lt_shape shape; /* rows x 12 / rows elements */
    const char *device;
    bool f64;
    double bound;
    bool in_out;   /* stored as [in,out] */
    bool spectral; /* by Shampoo's spectral method, whose updates are the same */
    bool bf16;
} side;

static const side sides[] = {
    {"a wide matrix", {2, {3, 4}}, "ref", true, 1e-13, false, false, false},
    {"a wide matrix of [in,out]", {2, {3, 4}}, "ref", true, 1e-13, true, false, false},
    {"a tall matrix of [in,out]", {2, {4, 3}}, "ref", true, 1e-13, true, false, false},
    {"a tall matrix", {2, {4, 3}}, "ref", true, 1e-13, false, false, false},
    {"a filter twice as high as wide", {4, {3, 2, 2, 1}}, "ref", true, 1e-13, false, false, false},
    {"a filter of one pixel", {4, {4, 3, 1, 1}}, "ref", true, 1e-13, false, false, false},
    {"a tall matrix on cpu", {2, {4, 3}}, "cpu", false, 1e-5, false, false, false},
    {"Shampoo's, a tall matrix", {2, {4, 3}}, "ref", true, 1e-13, false, true, false},
    {"Shampoo's, a wide matrix of [in,out]", {2, {3, 4}}, "ref", true, 1e-13, true, true, false},
    {"Shampoo's, a tall matrix of [in,out]", {2, {4, 3}}, "ref", true, 1e-13, true, true, false},
    {"a wide matrix in bf16", {2, {3, 4}}, "ref", true, 0.01, .bf16 = true},
    {"a tall matrix in bf16", {2, {4, 3}}, "ref", false, 0.01, .bf16 = true},
    {"a wide matrix in bf16 on cpu", {2, {3, 4}}, "cpu", false, 0.01, .bf16 = true},
    {"a tall matrix in bf16 on cpu", {2, {4, 3}}, "cpu", false, 0.01, .bf16 = true},
    {"Shampoo's, a filter in bf16", {4, {3, 2, 1, 2}}, "cpu", false, 0.01, false, true, true},
};

/* Jordan's muon.py: max(1, grad.size(-2) / grad.size(-1))**0.5, of the gradient as PyTorch has it: 4-D for filters,
 * outputs first for matrices. */
static double length_of(const side *row)
{
    const int64_t *d = row->shape.dim + row->shape.ndim - 2;
    return sqrt(fmax(1, row->in_out ? (double)d[1] / (double)d[0] : (double)d[0] / (double)d[1]));
}

static lt_status make_side(fixture *f, const side *row)
{
    if (row->spectral) {
        lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
        c.preconditioner = LT_PRECONDITIONER_SPECTRAL;
        c.spectral_scale = LT_SPECTRAL_ORIGINAL;
        c.orthogonalization.bf16 = row->bf16;
        c.target_dimensionality = 2;
        return lt_optim_shampoo(&f->optim, &f->list, &c);
    }
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.scale = LT_MUON_ORIGINAL;
    c.orthogonalization.bf16 = row->bf16;
    return lt_optim_muon(&f->optim, &f->list, &c);
}

/* The gradient is diagonal: its entries are the singular values. */
static void the_polynomial_acts_on_singular_values(void **state)
{
    const side *row = *state;
    static const double values[] = {3, -0.5, 1e-3}, zero[12] = {0};
    const int64_t cols = 12 / row->shape.dim[0];
    const double norm = sqrt(9 + 0.25 + 1e-6);
    double g[12] = {0}, w[12];
    fixture f = {0};
    assert_ok(
        lt_device_open(&f.device, row->device, &(lt_device_config){.f64 = row->f64, .threads = 2}));
    lt_param *p = fixture_add(&f, "w", row->shape);
    if (row->in_out) {
        p->fan_in = (int)row->shape.dim[0];
        p->fan_out = (int)row->shape.dim[1];
    }
    put(p->value, zero);
    assert_ok(make_side(&f, row));
    for (int i = 0; i < 3; i++)
        g[i * (cols + 1)] = values[i];
    put_grad(p, g);
    fixture_step(&f, 0.25);
    get(p->value, w);
    const double length = length_of(row);
    double worst = 0, worst_linear = 0;
    for (int i = 0; i < 12; i++) {
        const double x = g[i] / norm;
        worst = fmax(worst, fabs(w[i] + 0.25 * length * polynomial(x)));
        worst_linear = fmax(worst_linear, fabs(w[i] + 0.25 * length * x));
    }
    assert_near(worst, 0, row->bound);
    assert_true(!row->bf16 || worst > 1e-5); /* products were rounded */
    assert_true(worst_linear > 0.01);        /* a control: a plain unit gradient is not it */
    fixture_close(&f);
}

/* A matrix stored as [in,out] gets the transposed update of the same one stored as [out,in], and not that of its rows. */
static void second_moments_are_those_of_outputs(void **state)
{
    double g[2][12], w[3][12];
    fixture f;
    (void)state;
    fixture_open(&f, true);
    lt_param *p[] = {fixture_add(&f, "out_in", LT_SHAPE(3, 4)),
                     fixture_add(&f, "in_out", LT_SHAPE(4, 3)),
                     fixture_add(&f, "rows", LT_SHAPE(4, 3))};
    p[1]->fan_in = 4;
    p[1]->fan_out = 3;
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.moment = LT_MUON_OF_OUTPUTS;
    assert_ok(lt_optim_muon(&f.optim, &f.list, &c));
    for (int t = 1; t <= 4; t++) {
        for (int i = 0; i < 12; i++)
            g[1][i % 4 * 3 + i / 4] = g[0][i] = sin(7.0 * t + 1.7 * i + 0.9 * t * i);
        put_grad(p[0], g[0]);
        put_grad(p[1], g[1]);
        put_grad(p[2], g[1]);
        fixture_step(&f, 0.1);
    }
    double worst = 0, control = 0;
    for (int k = 0; k < 3; k++)
        get(p[k]->value, w[k]);
    for (int i = 0; i < 12; i++) {
        worst = fmax(worst, fabs(w[0][i] - w[1][i % 4 * 3 + i / 4]));
        control = fmax(control, fabs(w[0][i] - w[2][i % 4 * 3 + i / 4]));
    }
    assert_near(worst, 0, 1e-13);
    assert_true(control > 1e-3);
    fixture_close(&f);
}

/* Queries, keys and values as one parameter of [in,3 out], as GPT-2's, and as three: the updates are the same, scales and
 * second moments included. */
static void joined_parts_are_as_separate_parameters(void **state)
{
    enum { IN = 2, OUT = 3, PARTS = 3 };
    const lt_muon_moment *moment = *state;
    double joined[IN * OUT * PARTS], part[IN * OUT], whole = 0, worst = 0;
    lt_param *p[PARTS + 2];
    lt_muon_config c = LT_MUON_DEFAULTS;
    fixture f;
    fixture_open(&f, true);
    p[0] = fixture_add(&f, "h.c_attn.weight", LT_SHAPE(IN, PARTS * OUT));
    p[PARTS + 1] = fixture_add(&f, "whole", LT_SHAPE(IN, PARTS * OUT));
    for (int k = 0; k < PARTS + 2; k++) {
        static const char *const name[] = {"q", "k", "v"};
        if (k && k <= PARTS)
            p[k] = fixture_add(&f, name[k - 1], LT_SHAPE(IN, OUT));
        p[k]->fan_in = IN;
        p[k]->fan_out = k && k <= PARTS ? OUT : PARTS * OUT;
    }
    c.moment = *moment;
    c.scale = LT_MUON_ORIGINAL;
    assert_ok(lt_splits_set(c.split, "qkv"));
    assert_ok(lt_optim_muon(&f.optim, &f.list, &c));
    for (int t = 1; t <= 3; t++) {
        for (int i = 0; i < IN * OUT * PARTS; i++)
            joined[i] = sin(7.0 * t + 1.7 * i + 0.9 * t * i);
        put_grad(p[0], joined);
        put_grad(p[PARTS + 1], joined);
        for (int k = 0; k < PARTS; k++) {
            for (int i = 0; i < IN * OUT; i++)
                part[i] = joined[i / OUT * PARTS * OUT + k * OUT + i % OUT];
            put_grad(p[k + 1], part);
        }
        fixture_step(&f, 0.1);
    }
    double other[IN * OUT * PARTS];
    get(p[0]->value, joined);
    get(p[PARTS + 1]->value, other);
    for (int k = 0; k < PARTS; k++) {
        get(p[k + 1]->value, part);
        for (int i = 0; i < IN * OUT; i++) {
            const int at = i / OUT * PARTS * OUT + k * OUT + i % OUT;
            worst = fmax(worst, fabs(part[i] - joined[at]));
            whole = fmax(whole, fabs(part[i] - other[at]));
        }
    }
    assert_near(worst, 0, 1e-13);
    assert_true(whole > 1e-3); /* a control: as one matrix it moves otherwise */
    fixture_close(&f);
}

static void a_zero_gradient_makes_no_update(void **state)
{
    (void)state;
    const double zero[12] = {0};
    double before[12], after[12];
    fixture f;
    two_params(&f, make_muon, false);
    lt_optim_free(&f.optim);
    lt_muon_config c = LT_MUON_DEFAULTS;
    c.weight_decay = 0;
    assert_ok(lt_optim_muon(&f.optim, &f.list, &c));
    get(f.param[0].value, before);
    put_grad(&f.param[0], zero);
    fixture_step(&f, 1);
    get(f.param[0].value, after);
    assert_memory_equal(before, after, sizeof before);
    fixture_close(&f);
}

/* --- Rejected input --- */

static double seconds_of_step(lt_state_dtype dtype)
{
    fixture f = {0};
    assert_ok(lt_device_open(&f.device, "cpu", &(lt_device_config){.threads = 1}));
    fixture_add(&f, "matrix", LT_SHAPE(8, 140000));
    fixture_add(&f, "vector", LT_SHAPE(1100000));
    for (int k = 0; k < 2; k++) {
        assert_ok(lt_tensor_fill(f.param[k].grad, 1));
        f.param[k].has_grad = true;
    }
    assert_ok(lt_optim_muon(&f.optim, &f.list, NULL));
    assert_ok(lt_optim_set_state_dtype(f.optim, dtype));
    fixture_step(&f, 1e-4);
    const double seconds = lt_muon_seconds(f.optim);
    fixture_close(&f);
    return seconds;
}

/* State in fewer bytes: a step is several calls, and the last one here has no matrix. */
static void its_seconds_are_of_all_calls_of_a_step(void **state)
{
    (void)state;
    assert_true(seconds_of_step(LT_STATE_INT8) > 0.02 * seconds_of_step(LT_STATE_F32));
}

static const bad_row bad[] = {
    {"no regular expression", "\"optim\": \"muon\", \"adamw_params\": \"a(\"",
     "adamw_params: invalid regular expression 'a('"},
    {"a number for names", "\"optim\": \"muon\", \"adamw_params\": 1",
     "adamw_params must be a string or null"},
    {"back-references", "\"optim\": \"muon\", \"adamw_params\": \"(a)\\\\1\"",
     "back-references are not supported"},
    {"no iterations", "\"optim\": \"muon\", \"newton_schulz_iterations\": 0",
     "newton_schulz_iterations 0 is not in [1"},
    {"parts that are not equal", "\"optim\": \"muon\", \"split\": [\"w:0:3\"]",
     "muon: split: dimension 0 of w, [2,2], cannot be split into 3 equal parts"},
    {"an unknown scale", "\"optim\": \"muon\", \"muon_scale\": \"match\"",
     "muon_scale has no value 'match'"},
};

int main(void)
{
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(other_optimizers_have_no_matrices),
        cmocka_unit_test(second_moments_are_those_of_outputs),
        cmocka_unit_test(a_zero_gradient_makes_no_update),
        cmocka_unit_test(its_seconds_are_of_all_calls_of_a_step),
    };
    enum { N = COUNT_OF(names), S = COUNT_OF(sides), B = COUNT_OF(bad) };
    static make_fn *const batched_maker = make_muon;
    static const lt_muon_moment moments[] = {LT_MUON_NO_MOMENT, LT_MUON_OF_OUTPUTS,
                                             LT_MUON_OF_ELEMENTS};
    struct CMUnitTest tests[N + S + B + COUNT_OF(single) + COUNT_OF(moments) + 1];
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        tests[n++] = row_test(names[i].param, its_name_says_whether_it_is_a_matrix, &names[i]);
    for (size_t i = 0; i < S; i++)
        tests[n++] = row_test(sides[i].name, the_polynomial_acts_on_singular_values, &sides[i]);
    for (size_t i = 0; i < B; i++)
        tests[n++] = row_test(bad[i].name, is_refused, &bad[i]);
    for (size_t i = 0; i < COUNT_OF(single); i++)
        tests[n++] = single[i];
    for (size_t i = 0; i < COUNT_OF(moments); i++)
        tests[n++] = row_test("joined parts are as separate parameters",
                              joined_parts_are_as_separate_parameters, &moments[i]);
    tests[n++] = row_test("matrices in batches are those alone",
                          parameters_in_batches_are_those_alone, &batched_maker);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
