/* An optimizer's step in which one call of a kernel or for memory fails: the step fails, nothing leaks, and the next
 * step works. */

#include "faults.h"
#include "one_sided.h"
#include "ref_calls.h"

#include "lather/averaging.h"
#include "lather/cautious.h"
#include "lather/ext/optim_family.h"

/* A preset of the registry, or a function that makes an optimizer; and options of the test. */
typedef struct row {
    char name[128];
    const lt_optim_family *family;
    const lt_optim_preset *preset;
    make_fn *make;
    const char *device; /* NULL: ref */
    lt_state_dtype dtype;
    bool averaged, scaled;
    int at; /* the step that fails */
} row;

static lt_shampoo_config eager(void)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.beta2 = 0.9;
    return c;
}

#define SHAMPOO(name, ...)                                                \
    static lt_status make_##name(lt_optim **out, const lt_params *params) \
    {                                                                     \
        lt_shampoo_config c = eager();                                    \
        __VA_ARGS__;                                                      \
        return lt_optim_shampoo(out, params, &c);                         \
    }                                                                     \
    _Static_assert(1, "a semicolon follows")

SHAMPOO(kl, c.preconditioner = LT_PRECONDITIONER_KL);
SHAMPOO(kl_bases, c.preconditioner = LT_PRECONDITIONER_KL_EIGENDECOMPOSED);
SHAMPOO(spectral, c.preconditioner = LT_PRECONDITIONER_SPECTRAL;
        c.spectral_scale = LT_SPECTRAL_ORIGINAL);
SHAMPOO(rounded, c.preconditioner = LT_PRECONDITIONER_SPECTRAL; c.orthogonalization.bf16 = true);
SHAMPOO(sign, c.preconditioner = LT_PRECONDITIONER_SIGN; c.sign_scale = LT_SIGN_L1);
SHAMPOO(newton, c.root_solver = LT_ROOT_NEWTON);
SHAMPOO(series, c.root_solver = LT_ROOT_HIGHER_ORDER);
SHAMPOO(denman, c.root_solver = LT_ROOT_NEWTON_DB);
SHAMPOO(rational, c.root_solver = LT_ROOT_RATIONAL);
SHAMPOO(qr, c.preconditioner = LT_PRECONDITIONER_CORRECTED; c.root_solver = LT_ROOT_QR);
SHAMPOO(int8, c.factor_dtype = LT_STATE_INT8);
SHAMPOO(int4, c.factor_dtype = LT_STATE_INT4);
SHAMPOO(triangles, c.packed_factors = true);
SHAMPOO(diagonals, c.on_failure = LT_ON_FAILURE_DIAGONAL; c.tolerated_failures = 0);

static lt_status make_cautious(lt_optim **out, const lt_params *params)
{
    LT_TRY(lt_optim_adam(out, params, &(lt_adam_config){.weight_decay = 0.1}));
    lt_status st =
        lt_optim_start_cautious(*out, &(lt_cautious_config){.mask = true, .decay = true});
    if (st)
        lt_optim_free(out);
    return st;
}

static const maker more[] = {
    {"kl", make_kl},
    {"kl_bases", make_kl_bases},
    {"spectral", make_spectral},
    {"rounded", make_rounded},
    {"sign", make_sign},
    {"newton", make_newton},
    {"series", make_series},
    {"denman", make_denman},
    {"rational", make_rational},
    {"qr", make_qr},
    {"int8", make_int8},
    {"int4", make_int4},
    {"triangles", make_triangles},
    {"diagonals", make_diagonals},
    {"cautious", make_cautious},
};

/* --- One step --- */

static const row *current;
static fixture f;

static lt_status make(void)
{
    lt_averaging_config c = LT_AVERAGING_DEFAULTS;
    c.kind = LT_AVERAGING_PRIMAL;
    LT_TRY(current->make ? current->make(&f.optim, &f.list)
                         : current->family->make(&f.optim, &f.list, current->preset->config, 0.1));
    if (current->dtype != LT_STATE_F32)
        LT_TRY(lt_optim_set_state_dtype(f.optim, current->dtype));
    if (current->averaged)
        LT_TRY(lt_optim_start_averaging(f.optim, &f.list, &c));
    return current->scaled ? lt_optim_scale_loss(f.optim, NULL) : LT_OK;
}

static void give(int t)
{
    double g[12];
    for (size_t k = 0; k < f.list.count; k++) {
        for (int i = 0; i < 12; i++)
            g[i] = sin(1 + 7.0 * t + 3.0 * (double)k + 1.7 * i + 0.9 * t * i);
        put_grad(&f.param[k], g);
    }
}

static lt_status step(void)
{
    const lt_step s = {.lr = 0.05, .clip_norm = 5, .attempt = f.attempt};
    return lt_optim_step(f.optim, &s);
}

static void begin(void *context)
{
    (void)context;
    static const double start[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};
    const lt_device_config config = {.threads = 1};
    f = (fixture){0};
    assert_ok(lt_device_open(&f.device, current->device ? current->device : "ref", &config));
    put(fixture_add(&f, "matrix", LT_SHAPE(3, 4))->value, start);
    put(fixture_add(&f, "kernel", LT_SHAPE(3, 2, 1, 2))->value, start);
    put(fixture_add(&f, "bias", LT_SHAPE(5))->value, start);
}

static void begin_step(void *context)
{
    begin(context);
    assert_ok(make());
    for (int t = 1; t < current->at; t++) {
        give((int)++f.attempt);
        assert_ok(step());
    }
    give((int)++f.attempt);
    faults_attach(f.device);
}

static lt_status act_step(void *context)
{
    (void)context;
    return step();
}

static void assert_finite(void)
{
    double values[12];
    for (size_t k = 0; k < f.list.count; k++) {
        get(f.param[k].value, values);
        for (int64_t i = 0; i < lt_tensor_count(f.param[k].value); i++)
            assert_true(isfinite(values[i]));
    }
}

/* The step again, and the next one. */
static void after_step(void *context, lt_status st)
{
    (void)context;
    if (st)
        assert_ok(step());
    give((int)++f.attempt);
    assert_ok(step());
    assert_finite();
}

static void end(void *context)
{
    (void)context;
    fixture_close(&f);
}

static void a_step_that_fails_says_so(void **state)
{
    current = *state;
    const fault_case c = {.name = current->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY | FAULT_THREAD,
                          .open = begin_step,
                          .act = act_step,
                          .after = after_step,
                          .close = end,
                          .least = 2};
    (void)faults_each(&c);
}

static void a_step_runs_no_kernel_of_ref(void **state)
{
    current = *state;
    begin_step(NULL);
    ref_calls = 0;
    assert_ok(act_step(NULL));
    const int calls = ref_calls;
    end(NULL);
    assert_int_equal(calls, 0);
}

/* --- Made --- */

static lt_status act_make(void *context)
{
    (void)context;
    return make();
}

static void after_make(void *context, lt_status st)
{
    (void)context;
    if (st) {
        lt_optim_free(&f.optim);
        assert_ok(make());
    }
    give((int)++f.attempt);
    assert_ok(step());
}

static void begin_make(void *context)
{
    begin(context);
    faults_attach(f.device);
}

static void one_that_cannot_be_made_is_none(void **state)
{
    current = *state;
    const fault_case c = {.name = current->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY | FAULT_THREAD,
                          .open = begin_make,
                          .act = act_make,
                          .after = after_make,
                          .close = end,
                          .least = 2};
    (void)faults_each(&c);
}

/* --- The table --- */

enum { MOST_ROWS = 400 };
static row rows[MOST_ROWS];
static struct CMUnitTest tests[MOST_ROWS];
static size_t count;

static void add(CMUnitTestFunction test, const char *what, row r)
{
    char name[sizeof r.name + 16];
    assert_true(count < MOST_ROWS);
    snprintf(name, sizeof name, "%s %s", what, r.name);
    rows[count] = r;
    memcpy(rows[count].name, name, sizeof rows[count].name);
    tests[count] = (struct CMUnitTest){rows[count].name, test, NULL, NULL, &rows[count]};
    count++;
}

static void add_all(row r)
{
    add(one_that_cannot_be_made_is_none, "made:", r);
    r.at = 1;
    add(a_step_that_fails_says_so, "step 1:", r);
    r.at = 2;
    add(a_step_that_fails_says_so, "step 2:", r);
}

int main(void)
{
    const lt_optim_family *family;
    register_one_sided();
    for (size_t i = 0; (family = lt_optim_family_at(i)); i++)
        for (size_t k = 0; k < family->presets; k++) {
            row r = {.family = family, .preset = &family->preset[k]};
            snprintf(r.name, sizeof r.name, "%s %s", family->name,
                     r.preset->name ? r.preset->name : "");
            add_all(r);
        }
    for (size_t i = 0; i < MAKERS + COUNT_OF(more); i++) {
        const maker *m = i < MAKERS ? &makers[i] : &more[i - MAKERS];
        row r = {.make = m->make};
        snprintf(r.name, sizeof r.name, "%s", m->name);
        add_all(r);
    }
    static const maker first_order[] = {
        {"sgd", make_sgd}, {"adam", make_adam}, {"shampoo", make_shampoo}};
    for (size_t i = 0; i < COUNT_OF(first_order); i++) {
        row r = {.make = first_order[i].make};
        snprintf(r.name, sizeof r.name, "%s with bf16 state", first_order[i].name);
        r.dtype = LT_STATE_BF16;
        add_all(r);
        snprintf(r.name, sizeof r.name, "%s with int8 state", first_order[i].name);
        r.dtype = LT_STATE_INT8;
        add_all(r);
        r.dtype = LT_STATE_F32;
        snprintf(r.name, sizeof r.name, "%s averaged, with a loss scale", first_order[i].name);
        r.averaged = r.scaled = true;
        add_all(r);
    }
    static const maker on_cpu[] = {{"shampoo", make_shampoo},
                                   {"eigendecomposed", make_eigendecomposed},
                                   {"rational", make_rational},
                                   {"qr", make_qr},
                                   {"newton", make_newton}};
    for (size_t i = 0; i < COUNT_OF(on_cpu); i++) {
        row r = {.make = on_cpu[i].make, .device = "cpu"};
        snprintf(r.name, sizeof r.name, "%s on the cpu", on_cpu[i].name);
        add_all(r);
        if (r.make == make_shampoo
            || r.make == make_qr) /* products of f64, as in the others, are ref's */
            add(a_step_runs_no_kernel_of_ref, "own kernels:", r);
    }
    return faults_run("faults in an optimizer's step", tests, count, NULL, NULL);
}
