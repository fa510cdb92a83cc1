/* Optimizers with quantized state between steps. */

#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/optimizer.h"
#include "state_problem.h"
#include "temp_folder.h"
#include "tensor/tensor.h"

#include "lather/checkpoint.h"
#include "lather/log.h"

#include <stdio.h>

/* --- Optimizers --- */

static lt_status open_adagrad(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    return first_order(lt_optim_adagrad(out, params, NULL), out, dtype);
}

static lt_status open_muon(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    return first_order(make_muon(out, params), out, dtype);
}

static lt_status open_lars(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    return first_order(make_lars(out, params), out, dtype);
}

static lt_status open_lamb(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    return first_order(make_lamb(out, params), out, dtype);
}

static lt_status open_lion(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    return first_order(make_lion(out, params), out, dtype);
}

static lt_status open_factors(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    const lt_shampoo_config c = shampoo(dtype);
    return lt_optim_shampoo(out, params, &c);
}

static lt_status open_kl(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = shampoo(dtype);
    c.preconditioner = LT_PRECONDITIONER_KL;
    c.refresh_timing = LT_REFRESH_REFERENCE;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status open_eigen(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = shampoo(dtype);
    c.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    c.root_solver = LT_ROOT_EIGH;
    return lt_optim_shampoo(out, params, &c);
}

/* Moments too. */
static lt_status open_soap(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c;
    LT_TRY(lt_shampoo_preset("soap", &c));
    c.target_dimensionality = 2;
    c.precondition_frequency = 5;
    c.beta2 = 0.99;
    c.factor_frequency = 5;
    c.factor_dtype = dtype;
    LT_TRY(lt_optim_shampoo(out, params, &c));
    return lt_optim_set_state_dtype(*out, dtype == LT_STATE_INT4 ? LT_STATE_INT8 : dtype);
}

/* Powers of 1/2 amplify what 8 bits leave of the filtered gradient: a rate of 0.04 is at the floor of the loss
 * after 60 steps, where that is nothing, one of 0.02 is not there yet. */
static lt_status open_grafted(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c;
    LT_TRY(lt_shampoo_preset("transformer", &c));
    c.precondition_frequency = 5;
    c.factor_frequency = 1;
    c.diagonal = (lt_name_regex){"^b$", true};
    LT_TRY(lt_optim_shampoo(out, params, &c));
    return lt_optim_set_state_dtype(*out, dtype);
}

/* --- Packed triangles --- */

static bool packs;

static lt_status open_packed(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = shampoo(LT_STATE_F32);
    (void)dtype;
    c.factor_frequency = 1;
    c.packed_factors = packs;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status open_packed_kl(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = shampoo(dtype);
    c.preconditioner = LT_PRECONDITIONER_KL;
    c.refresh_timing = LT_REFRESH_REFERENCE;
    c.packed_factors = packs;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status open_packed_eigen(lt_optim **out, const lt_params *params, lt_state_dtype dtype)
{
    lt_shampoo_config c = shampoo(dtype);
    c.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    c.root_solver = LT_ROOT_QR;
    c.packed_factors = packs;
    return lt_optim_shampoo(out, params, &c);
}

static void test_packed(void **state)
{
    open_fn *const *open = *state;
    static problem a, b;
    packs = false;
    open_problem(&a, *open, LT_STATE_F32);
    run_steps(&a, 23, 0.05);
    const size_t bytes = lt_optim_state_bytes(a.f.optim);
    close_problem(&a);
    packs = true;
    open_problem(&b, *open, LT_STATE_F32);
    run_steps(&b, 23, 0.05);
    assert_true(lt_optim_state_bytes(b.f.optim) < bytes * 3 / 4 + bytes / 8);
    close_problem(&b);
    assert_memory_equal(a.value, b.value, sizeof a.value);
    assert_memory_equal(a.bias, b.bias, sizeof a.bias);
}

/* --- Rounding --- */

typedef struct rounding {
    const char *name;
    open_fn *open;
    lt_state_dtype dtype;
    double lr,
        most; /* relative increase of the final loss that is allowed; rounding may also lower it */
} rounding;

static lt_status add_bytes(void *context, const lt_state_entry *entry)
{
    *(size_t *)context += entry->quantized ? lt_tensor_bytes(entry->quantized->memory)
                                           : lt_tensor_bytes(entry->tensor);
    return LT_OK;
}

/* Close to f32 but not equal, in fewer bytes, as many as are reported. */
static void test_rounding(void **state)
{
    const rounding *w = *state;
    static problem exact, rounded;
    size_t bytes = 0;
    lt_state_visitor visitor = {add_bytes, ignore_number, &bytes};
    open_problem(&exact, w->open, LT_STATE_F32);
    const double first = run_steps(&exact, 1, w->lr), want = run_steps(&exact, 59, w->lr);
    const size_t before = lt_optim_state_bytes(exact.f.optim);
    close_problem(&exact);
    open_problem(&rounded, w->open, w->dtype);
    const double got = run_steps(&rounded, 60, w->lr);
    assert_ok(lt_optim_visit(rounded.f.optim, &visitor));
    assert_int_equal(bytes, lt_optim_state_bytes(rounded.f.optim));
    assert_true(bytes < before);
    close_problem(&rounded);
    print_message("%s: loss %g, %g, f32 %g; parameters apart by %g; %zu bytes, %zu\n", w->name,
                  first, got, want, furthest(&exact, &rounded), bytes, before);
    assert_true(furthest(&exact, &rounded) > 0);
    assert_true(want < 0.7 * first);
    if (!(got <= (1 + w->most) * want))
        fail_msg("loss %g, of f32 %g: more than %g of it above", got, want, w->most);
}

/* --- Checkpoints --- */

typedef struct passing {
    const char *name;
    open_fn *open;
    lt_state_dtype from, to;
    double bound; /* bound of the parameters after further steps; 0: bitwise equal */
} passing;

static void test_checkpoint(void **state)
{
    const passing *w = *state;
    static problem a, b;
    lt_checkpoint_state now = {.step = 17, .optim = "", .global_batch = 1};
    char path[TEMP_PATH];
    open_problem(&a, w->open, w->from);
    open_problem(&b, w->open, w->to);
    run_steps(&a, 17, 0.05);
    snprintf(now.optim, sizeof now.optim, "%s", lt_optim_name(a.f.optim));
    const lt_checkpoint_contents from = {.params = &a.f.list, .optim = a.f.optim};
    const lt_checkpoint_contents to = {.params = &b.f.list, .optim = b.f.optim};
    assert_ok(lt_checkpoint_save(folder, &from, &now, NULL));
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_ok(lt_checkpoint_load(path, &to, &now));
    b.f.attempt = a.f.attempt;
    run_steps(&a, 13, 0.05);
    run_steps(&b, 13, 0.05);
    close_problem(&a);
    close_problem(&b);
    print_message("%s: parameters apart by %g\n", w->name, furthest(&a, &b));
    assert_near(furthest(&a, &b), 0, w->bound);
}

/* --- Roots --- */

static bool is_root(const lt_state_entry *entry)
{
    return !strncmp(entry->name, "root.", 5) || !strncmp(entry->name, "basis.", 6);
}

typedef struct bits {
    int factors, roots, eights; /* eights: roots in int8 */
} bits;

static lt_status count_bits(void *context, const lt_state_entry *entry)
{
    bits *b = context;
    const lt_quantized *q = entry->quantized;
    b->roots += is_root(entry);
    b->eights += is_root(entry) && q->format.dtype == LT_STATE_INT8;
    b->factors += !strncmp(entry->name, "factor.", 7) && q->format.dtype == LT_STATE_INT4;
    return LT_OK;
}

static void test_roots_of_int4(void **state)
{
    static problem p;
    bits b = {0};
    lt_state_visitor visitor = {count_bits, ignore_number, &b};
    open_problem(&p, *(open_fn *const *)*state, LT_STATE_INT4);
    run_steps(&p, 1, 0.05);
    assert_ok(lt_optim_visit(p.f.optim, &visitor));
    assert_int_equal(b.eights, b.roots);
    assert_int_equal(b.factors, b.roots);
    assert_true(b.roots > 1);
    close_problem(&p);
}

/* As in checkpoints from before docs/adr/0065, which introduced int8 roots. */
static lt_status keep_in_int4(void *context, const lt_state_entry *entry)
{
    lt_quantized *q = entry->quantized;
    lt_tensor *dense = NULL;
    (void)context;
    if (!is_root(entry))
        return LT_OK;
    assert_ok(lt_quantized_dequantize(q, &dense));
    q->format.dtype = LT_STATE_INT4; /* its codes are fewer bytes */
    lt_quantized_requantize(q, dense, 0);
    lt_tensor_free(&dense);
    return LT_OK;
}

typedef struct roots {
    float value[16 * SIZE];
    size_t count;
    double largest;
} roots;

static lt_status add_root(void *context, const lt_state_entry *entry)
{
    roots *r = context;
    lt_tensor *dense = NULL;
    if (!is_root(entry))
        return LT_OK;
    assert_ok(lt_quantized_dequantize(entry->quantized, &dense));
    const size_t count = (size_t)lt_tensor_count(dense);
    assert_true(r->count + count <= COUNT_OF(r->value));
    assert_ok(lt_tensor_read(dense, r->value + r->count, count * sizeof *r->value));
    lt_tensor_free(&dense);
    for (size_t i = r->count; i < r->count + count; i++)
        r->largest = fmax(r->largest, fabs((double)r->value[i]));
    r->count += count;
    return LT_OK;
}

/* Between elements of any two roots, the most. */
static double roots_apart(problem *a, problem *b, double *largest)
{
    static roots of[2];
    double most = 0;
    for (int k = 0; k < 2; k++) {
        lt_state_visitor visitor = {add_root, ignore_number, &of[k]};
        of[k].count = 0;
        of[k].largest = 0;
        assert_ok(lt_optim_visit((k ? b : a)->f.optim, &visitor));
    }
    assert_true(of[0].count > 0);
    assert_int_equal(of[0].count, of[1].count);
    for (size_t i = 0; i < of[0].count; i++)
        most = fmax(most, fabs((double)of[0].value[i] - (double)of[1].value[i]));
    *largest = of[0].largest;
    return most;
}

static int told;

static void hear(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)context, (void)area;
    told += level == LT_LOG_INFO && strstr(text, "were saved in another format") != NULL;
}

static void pass_on(problem *a, problem *b)
{
    lt_checkpoint_state now = {.step = a->f.attempt, .optim = "", .global_batch = 1};
    const lt_checkpoint_contents from = {.params = &a->f.list, .optim = a->f.optim};
    const lt_checkpoint_contents to = {.params = &b->f.list, .optim = b->f.optim};
    char path[TEMP_PATH];
    snprintf(now.optim, sizeof now.optim, "%s", lt_optim_name(a->f.optim));
    assert_ok(lt_checkpoint_save(folder, &from, &now, NULL));
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    told = 0;
    lt_log_set(hear, NULL);
    assert_ok(lt_checkpoint_load(path, &to, &now));
    lt_log_set(NULL, NULL);
    b->f.attempt = a->f.attempt;
}

/* Half a level of int8, or what bf16 loses of a scale: a 253rd of the largest element at most. */
static void test_roots_of_before(void **state)
{
    open_fn *open = *(open_fn *const *)*state;
    static problem a, b;
    lt_state_visitor visitor = {keep_in_int4, ignore_number, NULL};
    for (int before = 0; before < 2; before++) {
        double largest;
        open_problem(&a, open, LT_STATE_INT4);
        open_problem(&b, open, LT_STATE_INT4);
        const double loss = run_steps(&a, 17 + before, 0.05);
        if (before)
            assert_ok(lt_optim_visit(a.f.optim, &visitor));
        pass_on(&a, &b);
        assert_int_equal(told, before);
        const double apart = roots_apart(&a, &b, &largest);
        print_message("of before: %d, roots apart by %g of %g\n", before, apart, largest);
        assert_near(apart, 0, before ? largest / 253 : 0);
        assert_int_equal(apart > 0, before);
        assert_true(run_steps(&b, 13, 0.05) < loss);
        close_problem(&a);
        close_problem(&b);
    }
}

/* --- Gradients that enter the factors --- */

/* A quarter of the steps between roots, at least; f32: each. */
static void test_frequency(void **state)
{
    (void)state;
    static const int64_t rows[][2] = {{20, 5}, {7, 2}, {4, 1}, {1, 1}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int dtype = LT_STATE_F32; dtype <= LT_STATE_INT4; dtype++) {
            lt_shampoo_config c = shampoo((lt_state_dtype)dtype);
            c.precondition_frequency = rows[i][0];
            c.factor_frequency = 0;
            assert_ok(lt_shampoo_check_config(&c));
            assert_int_equal(c.factor_frequency, dtype == LT_STATE_F32 ? 1 : rows[i][1]);
        }
}

/* --- Rejected settings --- */

/* On a device whose memory the host cannot read. */
static void refuse_far_state(fixture *f)
{
    lt_optim *none = NULL;
    lt_tensor *factor = NULL;
    bool converted;
    lt_shampoo_config c = shampoo(LT_STATE_INT8);
    const lt_backend *host = f->device->backend;
    lt_backend far = *host;
    far.host_memory = false;
    f->device->backend = &far;
    c.factor_frequency = 5;
    assert_fails(lt_optim_shampoo(&none, &f->list, &c), LT_E_UNSUPPORTED,
                 "shampoo: factor_frequency 5 must be 1 on backend ref");
    c.factor_frequency = 1;
    assert_fails(lt_optim_shampoo(&none, &f->list, &c), LT_E_UNSUPPORTED,
                 "shampoo: factor_dtype: backend ref supports f32 state only");
    c = shampoo(LT_STATE_F32);
    c.factor_frequency = 1;
    c.trace_scaling = 1;
    c.diagonal = (lt_name_regex){".", true};
    assert_fails(lt_optim_shampoo(&none, &f->list, &c), LT_E_UNSUPPORTED,
                 "need the CPU: backend ref has no kernel for them");
    assert_ok(lt_tensor_new(&factor, f->device, LT_F32, LT_SHAPE(2, 2)));
    assert_ok(lt_tensor_fill(factor, -1)); /* as of a Cholesky factor */
    assert_fails(lt_quantized_expand_cholesky(factor, &converted), LT_E_UNSUPPORTED,
                 "which backend ref cannot convert: load and save it once on cpu");
    lt_tensor_free(&factor);
    f->device->backend = host;
}

static void test_refused(void **state)
{
    (void)state;
    problem p;
    fixture f;
    lt_shampoo_config c = shampoo(LT_STATE_INT8);
    open_problem(&p, open_adam, LT_STATE_F32);
    assert_fails(lt_optim_set_state_dtype(p.f.optim, LT_STATE_INT4), LT_E_ARG, "int4 of adam");
    run_steps(&p, 1, 0.05);
    assert_fails(lt_optim_set_state_dtype(p.f.optim, LT_STATE_INT8), LT_E_ARG,
                 "before the first step");
    lt_optim *none = NULL;
    c.refresh_timing = LT_REFRESH_ASYNC;
    assert_fails(lt_optim_shampoo(&none, &p.f.list, &c), LT_E_ARG, "refresh async");
    c = shampoo(LT_STATE_INT8);
    c.packed_factors = true;
    assert_fails(lt_optim_shampoo(&none, &p.f.list, &c), LT_E_ARG, "packed_factors");
    c = shampoo(LT_STATE_F32);
    c.factor_frequency = 6;
    assert_fails(lt_optim_shampoo(&none, &p.f.list, &c), LT_E_ARG, "factor_frequency 6");
    c.per_param_steps = true;
    c.start_preconditioning_step = 6;
    assert_fails(lt_optim_shampoo(&none, &p.f.list, &c), LT_E_ARG,
                 "shampoo: per_param_steps contradicts factor_frequency 6, which counts all steps");
    c = shampoo(LT_STATE_F32);
    c.preconditioner = LT_PRECONDITIONER_CORRECTED;
    c.inverse_exponent.set[2][1] = true;
    c.inverse_exponent.value[2][1] = 0.25;
    assert_fails(lt_optim_shampoo(&none, &p.f.list, &c), LT_E_ARG,
                 "shampoo: inverse_exponent of order 2 differs between dimensions 0 and 1");
    close_problem(&p);
    two_params(&f, make_adam, true);
    assert_fails(lt_optim_set_state_dtype(f.optim, LT_STATE_INT8), LT_E_UNSUPPORTED, "f64");
    c = shampoo(LT_STATE_INT8);
    assert_fails(lt_optim_shampoo(&none, &f.list, &c), LT_E_UNSUPPORTED, "factor_dtype");
    refuse_far_state(&f);
    fixture_close(&f);
}

static struct {
    const char *name;
    open_fn *open;
} packed[] = {
    {"packed triangles: the same bits", open_packed},
    {"packed triangles: the same bits with kl", open_packed_kl},
    {"packed triangles: the same bits with eigenvectors", open_packed_eigen},
};
static rounding roundings[] = {
    {"momentum in bf16", open_momentum, LT_STATE_BF16, 0.05, 0.02},
    {"momentum in int8", open_momentum, LT_STATE_INT8, 0.05, 0.05},
    {"adam in bf16", open_adam, LT_STATE_BF16, 0.02, 0.05},
    {"adam in int8", open_adam, LT_STATE_INT8, 0.02, 0.1},
    {"adagrad in int8", open_adagrad, LT_STATE_INT8, 0.05, 0.1},
    {"muon in int8", open_muon, LT_STATE_INT8, 0.02, 0.1},
    {"lars in int8", open_lars, LT_STATE_INT8, 5, 0.1},
    {"lamb in int8", open_lamb, LT_STATE_INT8, 0.05, 0.1},
    {"lion in int8", open_lion, LT_STATE_INT8, 0.02, 0.3},
    {"grafted shampoo's moments in bf16", open_grafted, LT_STATE_BF16, 0.02, 0.05},
    {"grafted shampoo's moments in int8", open_grafted, LT_STATE_INT8, 0.04, 0.1},
    {"the same before the floor", open_grafted, LT_STATE_INT8, 0.02, 0.6},
    {"factors in bf16", open_factors, LT_STATE_BF16, 0.02, 0.05},
    {"factors in int8", open_factors, LT_STATE_INT8, 0.02, 0.05},
    {"factors in int4", open_factors, LT_STATE_INT4, 0.02, 0.2},
    {"kl in int4", open_kl, LT_STATE_INT4, 0.02, 0.2},
    {"eigenvectors in int8", open_eigen, LT_STATE_INT8, 0.02, 0.1},
    {"eigenvectors in int4", open_eigen, LT_STATE_INT4, 0.02, 0.3},
    {"soap in bf16", open_soap, LT_STATE_BF16, 0.02, 0.1},
    {"soap in int8", open_soap, LT_STATE_INT8, 0.02, 0.5},
    {"soap in int4", open_soap, LT_STATE_INT4, 0.02, 0.3},
};
static passing passings[] = {
    {"int8 moments resume", open_adam, LT_STATE_INT8, LT_STATE_INT8, 0},
    {"bf16 moments resume", open_adam, LT_STATE_BF16, LT_STATE_BF16, 0},
    {"int8 factors resume", open_factors, LT_STATE_INT8, LT_STATE_INT8, 0},
    {"int4 factors and their errors resume", open_factors, LT_STATE_INT4, LT_STATE_INT4, 0},
    {"soap in int4 resumes", open_soap, LT_STATE_INT4, LT_STATE_INT4, 0},
    {"f32 moments to int8", open_adam, LT_STATE_F32, LT_STATE_INT8, 0.05},
    {"int8 moments to f32", open_adam, LT_STATE_INT8, LT_STATE_F32, 0.05},
    {"f32 factors to int4", open_factors, LT_STATE_F32, LT_STATE_INT4, 0.1},
    {"int8 factors to f32", open_factors, LT_STATE_INT8, LT_STATE_F32, 0.1},
    {"int4 factors to f32", open_factors, LT_STATE_INT4, LT_STATE_F32, 0.1},
    {"int4 factors to int8", open_factors, LT_STATE_INT4, LT_STATE_INT8, 0.1},
};

static open_fn *const rooted[] = {open_factors, open_kl, open_eigen, open_soap};

int main(void)
{
    struct CMUnitTest tests[64];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(packed); i++)
        tests[n++] = row_test(packed[i].name, test_packed, &packed[i].open);
    for (size_t i = 0; i < COUNT_OF(roundings); i++)
        tests[n++] = row_test(roundings[i].name, test_rounding, &roundings[i]);
    for (size_t i = 0; i < COUNT_OF(passings); i++)
        tests[n++] = (struct CMUnitTest){passings[i].name, test_checkpoint, temp_setup,
                                         temp_teardown, &passings[i]};
    for (size_t i = 0; i < COUNT_OF(rooted); i++) {
        void *open = (void *)(uintptr_t)&rooted[i];
        tests[n++] =
            row_test("with factors in int4 roots and bases are in int8", test_roots_of_int4, open);
        tests[n++] =
            (struct CMUnitTest){"a checkpoint with roots in int4 is loaded, with a log message",
                                test_roots_of_before, temp_setup, temp_teardown, open};
    }
    tests[n++] =
        row_test("below f32 factors see four gradients between roots", test_frequency, NULL);
    tests[n++] = row_test("contradictory settings, by name", test_refused, NULL);
    return _cmocka_run_group_tests("state dtypes", tests, n, NULL, NULL);
}
