/* Blocks whose vectors are channels-last, as the parameter, against the same numbers as a row-major
 * parameter of the merged shape: equal parameters and, in logical order, equal state. */

#include "fixture.h"

#include "lather/shampoo.h"

enum { STEPS = 4, MOST = 64 * 1024, TENSORS = 512 };

typedef struct row {
    const char *name;
    lt_shape filters, merged;
    int64_t limit;
    bool f64;
    double bound;
} row;

static const row rows[] = {
    {"a merged window", {4, {12, 10, 3, 3}}, {3, {12, 10, 9}}, 12, true, 1e-12},
    {"channels merged with their window", {4, {6, 2, 3, 3}}, {2, {6, 18}}, 18, true, 1e-12},
    {"a long window", {4, {5, 7, 3, 5}}, {3, {5, 7, 15}}, 20, true, 1e-12},
    {"split blocks", {4, {30, 26, 3, 3}}, {3, {30, 26, 9}}, 12, true, 1e-12},
    {"split blocks in f32", {4, {30, 26, 3, 3}}, {3, {30, 26, 9}}, 12, false, 2e-4},
};

/* The tensors of an optimizer's state, in logical order. */
typedef struct states {
    double *value[TENSORS];
    int64_t count[TENSORS];
    int tensors;
} states;

static lt_status keep(void *context, const lt_state_entry *entry)
{
    states *s = context;
    assert_true(s->tensors < TENSORS && entry->tensor);
    const int64_t count = lt_tensor_count(entry->tensor);
    s->value[s->tensors] = calloc((size_t)count, sizeof(double));
    s->count[s->tensors] = count;
    if (lt_tensor_dtype(entry->tensor) != LT_I64)
        get(entry->tensor, s->value[s->tensors]);
    s->tensors++;
    return LT_OK;
}

static lt_status pass_by(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

static void play(const row *r, lt_shape shape, double change, double *value, states *out)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    fixture f = {0};
    const lt_device_config device = {.f64 = r->f64, .threads = 1};
    assert_ok(lt_device_open(&f.device, "cpu", &device));
    c.beta2 = 0.9;
    c.epsilon = 1e-4;
    c.momentum = 0.9;
    c.nesterov = true;
    c.weight_decay = 0.01;
    c.grafting = LT_GRAFTING_ADAM;
    c.max_preconditioner_dim = r->limit;
    fixture_add(&f, "w", shape);
    assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
    const int64_t count = lt_shape_count(shape);
    static double grad[MOST];
    for (int t = 0; t < STEPS; t++) {
        for (int64_t i = 0; i < count; i++)
            grad[i] = (((uint32_t)i + 977 * (uint32_t)t) * 2654435761U >> 8) / 16777216.0 - 0.5;
        grad[count - 1] += change;
        put_grad(&f.param[0], grad);
        fixture_step(&f, 0.1);
    }
    get(f.param[0].value, value);
    lt_state_visitor visitor = {.entry = keep, .number = pass_by, .context = out};
    assert_ok(lt_optim_visit(f.optim, &visitor));
    fixture_close(&f);
}

static bool differ(const double *a, const double *b, int64_t count, double bound)
{
    bool apart = false;
    for (int64_t i = 0; i < count; i++)
        apart = apart || !(fabs(a[i] - b[i]) <= bound * (1 + fabs(b[i])));
    return apart;
}

static void test_row(void **state)
{
    const row *r = *state;
    static double filters[MOST], merged[MOST], other[MOST];
    states a = {0}, b = {0}, c = {0};
    const int64_t count = lt_shape_count(r->filters);
    play(r, r->filters, 0, filters, &a);
    play(r, r->merged, 0, merged, &b);
    play(r, r->merged, 0.5, other, &c);
    assert_false(differ(filters, merged, count, r->bound));
    assert_true(differ(filters, other, count, r->bound)); /* control */
    assert_int_equal(a.tensors, b.tensors);
    bool apart = false;
    for (int i = 0; i < a.tensors; i++) {
        assert_int_equal(a.count[i], b.count[i]);
        /* the last digits of a root are those of its solver */
        assert_false(differ(a.value[i], b.value[i], a.count[i], 100 * r->bound));
        apart = apart || differ(a.value[i], c.value[i], a.count[i], 100 * r->bound);
        free(a.value[i]);
        free(b.value[i]);
        free(c.value[i]);
    }
    assert_true(apart);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].name,
                                       .test_func = test_row,
                                       .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
