/* Updates in parts that a device records: together they are the whole update, and each part queues the same
 * work in every step, so that it can be replayed. */

#include "base/hash.h"
#include "one_sided.h"
#include "optim/shampoo/root_refresh.h"
#include "snapshot.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/ext/optim.h"
#include "lather/shampoo.h"

/* HALF of the 35 elements of all roots in make_staggered: four of 2 x 2 and two of 1 x 2, and 5 split in 2,
 * 2, 1. */
enum { STEPS = 14, SKIPPED = 6, LATE = 9, HALF = 18 };

/* --- A device that claims to record graphs, and hashes the work it is given --- */

static __thread uint64_t work; /* hash of the work that this thread queued */

static void note(const void *bytes, size_t size)
{
    work = lt_fnv1a(work, bytes, size);
}

static void note_view(const lt_view *v)
{
    note(&v->data, sizeof v->data);
    note(v->shape.dim, sizeof *v->shape.dim * (size_t)v->shape.ndim);
    note(v->stride, sizeof *v->stride * (size_t)v->shape.ndim);
}

static lt_status vec(void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars)
{
    for (size_t i = 0; i < count; i++) {
        const double numbers[] = {job[i].op,          job[i].alpha,
                                  job[i].beta,        job[i].gamma,
                                  job[i].delta,       job[i].factor.lr,
                                  job[i].factor.bias, job[i].factor.base,
                                  job[i].factor.lag,  job[i].factor.grad_scale};
        note(numbers, sizeof numbers);
        note(&job[i].factor.over, sizeof job[i].factor.over);
        note_view(&job[i].a);
        note_view(&job[i].b);
        note_view(&job[i].y);
    }
    return lt_backend_ref()->vec(ctx, job, count, scalars);
}

static lt_status gram(void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars)
{
    for (size_t i = 0; i < count; i++) {
        note(&job[i].alpha, sizeof job[i].alpha);
        note_view(&job[i].g);
        note_view(&job[i].f);
    }
    return lt_backend_ref()->gram(ctx, job, count, scalars);
}

static lt_status mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    for (size_t i = 0; i < count; i++) {
        note_view(&job[i].g);
        note_view(&job[i].y);
        note_view(&job[i].m);
    }
    return lt_backend_ref()->mode_product(ctx, job, count, scalars);
}

static lt_status frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    for (size_t i = 0; i < count; i++)
        note_view(&x[i]);
    note_view(out);
    return lt_backend_ref()->frobenius(ctx, x, count, out);
}

/* As a device in one pass: the values of each job, then their norm. */
static lt_status vec_norms(void *ctx, const lt_vec_job *job, size_t count, const lt_view *out,
                           const lt_scalars *scalars)
{
    static double values[12]; /* its address is part of the hash */
    for (size_t i = 0; i < count; i++) {
        lt_vec_job one = job[i];
        lt_view to = *out;
        assert_true(lt_shape_count(one.y.shape) <= (int64_t)COUNT_OF(values));
        one.y.data = values;
        to.data = (double *)out->data + i;
        note_view(&job[i].b);
        note(&job[i].factor.base, sizeof job[i].factor.base);
        assert_ok(vec(ctx, &one, 1, scalars));
        assert_ok(frobenius(ctx, &one.y, 1, &to));
    }
    return LT_OK;
}

static const lt_graph_ops graphs;
static lt_backend table;

static void open_side(fixture *f, make_fn *make, bool far)
{
    static const double start[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};
    fixture_open(f, false);
    if (far) {
        table = *lt_backend_ref();
        table.host_memory = false;
        table.graphs = &graphs;
        table.vec = vec;
        table.gram = gram;
        table.mode_product = mode_product;
        table.frobenius = frobenius;
        table.vec_norms = vec_norms;
        f->device->backend = &table;
    }
    put(fixture_add(f, "a", LT_SHAPE(3, 4))->value, start);
    put(fixture_add(f, "b", LT_SHAPE(5))->value, start);
    assert_ok(make(&f->optim, &f->list));
}

static void put_gradients(fixture *f, int t)
{
    for (int k = 0; k < 2; k++) {
        double g[12];
        for (int i = 0; i < 12; i++)
            g[i] = cos(1.7 * i + 0.9 * t + k) + (i == 3 && t == SKIPPED ? (double)NAN : 0);
        put(f->param[k].grad, g);
        f->param[k].has_grad = true;
    }
}

/* --- The same, part by part --- */

enum { WHOLE, FIRST, SECOND, KINDS };

typedef struct seen {
    uint64_t work[KINDS];
    int steps[KINDS];
} seen;

static void check_piece(seen *s, int kind)
{
    if (s->steps[kind]++)
        assert_true(s->work[kind] == work);
    s->work[kind] = work;
}

static void update(fixture *f, seen *s)
{
    work = 1;
    if (lt_optim_is_capturable(f->optim)) {
        assert_false(lt_optim_has_host_phase(f->optim));
        assert_ok(lt_optim_update(f->optim));
        check_piece(s, WHOLE);
    } else if (lt_optim_has_host_phase(f->optim)) {
        assert_ok(lt_optim_update_first(f->optim));
        check_piece(s, FIRST);
        assert_ok(lt_optim_update_host(f->optim));
        work = 1;
        assert_ok(lt_optim_update_second(f->optim));
        check_piece(s, SECOND);
    } else {
        assert_ok(lt_optim_update(f->optim));
    }
}

static void step(fixture *f, int t, seen *s)
{
    const lt_step numbers = {.lr = 0.1 / t, .clip_norm = t % 3 ? 0 : 1, .attempt = t};
    lt_step_result result;
    put_gradients(f, t);
    if (!s) {
        assert_ok(lt_optim_step(f->optim, &numbers));
        return;
    }
    assert_ok(lt_optim_prepare(f->optim, &numbers));
    update(f, s);
    lt_optim_advance(f->optim);
    assert_ok(lt_optim_result(f->optim, &result));
    assert_int_equal(result.applied, t != SKIPPED);
}

static void same(const fixture *a, const fixture *b)
{
    for (int k = 0; k < 2; k++) {
        double x[12] = {0}, y[12] = {0};
        get(a->param[k].value, x);
        get(b->param[k].value, y);
        for (int i = 0; i < 12; i++)
            assert_near(x[i], y[i], 0);
    }
}

typedef struct row {
    const char *name;
    make_fn *make;
    int whole, split; /* number of steps of the kind, of STEPS */
    int64_t batch; /* batch elements of the staggered timing on both sides; 0: as on the device */
} row;

static lt_status make_wide(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-4;
    c.precondition_frequency = 3;
    c.start_preconditioning_step = 4;
    c.refresh_timing = LT_REFRESH_ASYNC;
    c.grafting = LT_GRAFTING_ADAM;
    c.use_bias_correction = true;
    c.beta2 = 0.95;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_kl(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-4;
    c.precondition_frequency = 3;
    c.refresh_timing = LT_REFRESH_ASYNC;
    c.preconditioner = LT_PRECONDITIONER_KL;
    return lt_optim_shampoo(out, params, &c);
}

static const row rows[] = {
    {"Shampoo, roots in every second step", make_shampoo, 6, 7, 0},
    {"Shampoo, parts with separate rules", make_ruled, 6, 7, 0},
    {"Shampoo, its corrected kind", make_corrected, 6, 7, 0},
    {"Shampoo, roots in every step", make_eigendecomposed, 0, 13, 0},
    {"Shampoo, some roots in each step", make_staggered, 0, 11, 1},
    {"Shampoo, some roots in every second step", make_staggered, 5, 6, HALF},
    {"Shampoo, staggered, all roots in one batch", make_staggered, 8, 3, 0},
    {"Shampoo, roots on a thread, f = 2", make_async, 5, 8, 0},
    {"Shampoo, roots on a thread, f = 3", make_wide, 7, 4, 0},
    {"Shampoo, KL, roots on a thread", make_kl, 8, 3, 0},
    {"momentum", make_sgd, 13, 0, 0},
    {"AdamW", make_adamw, 14, 0, 0},
    {"Muon", make_muon, 13, 0, 0},
    {"LARS", make_lars, 13, 0, 0},
    {"LAMB", make_lamb, 13, 0, 0},
    {"the one-sided example, roots in every third step", make_one_sided, 9, 4, 0},
};

/* Host and device have different staggered timings: here they get the same. */
static void stagger(fixture *plain, fixture *far, const row *r)
{
    if (r->make != make_staggered)
        return;
    if (r->batch)
        assert_ok(lt_shampoo_assign_phases((lt_shampoo *)far->optim, r->batch));
    assert_ok(
        lt_shampoo_assign_phases((lt_shampoo *)plain->optim,
                                 r->batch ? r->batch : lt_shampoo_refresh_elements(far->device)));
}

static void pieces_are_the_whole(void **state)
{
    const row *r = *state;
    fixture plain, far;
    seen s = {0};
    static snapshot a, b;
    open_side(&plain, r->make, false);
    open_side(&far, r->make, true);
    stagger(&plain, &far, r);
    for (int t = 1; t <= STEPS; t++) {
        step(&plain, t, NULL);
        step(&far, t, &s);
        same(&plain, &far);
        if (t == LATE) { /* a checkpoint */
            take(&a, &plain, false);
            take(&b, &far, false);
            assert_int_equal(a.used, b.used);
            assert_memory_equal(a.bytes, b.bytes, a.used);
        }
    }
    assert_int_equal(s.steps[FIRST], s.steps[SECOND]);
    assert_int_equal(s.steps[WHOLE], r->whole);
    assert_int_equal(s.steps[SECOND], r->split);
    fixture_close(&plain);
    fixture_close(&far);
}

/* The control: before the first roots the work differs, and must be recognized as different. */
static void an_early_step_is_other_work(void **state)
{
    (void)state;
    fixture far;
    seen s = {0};
    uint64_t early = 0;
    open_side(&far, make_staggered, true);
    for (int t = 1; t <= 3; t++) {
        step(&far, t, &s);
        assert_true(t < 3 || early == work); /* the first one makes the state, too */
        early = work;
    }
    assert_int_equal(s.steps[WHOLE] + s.steps[FIRST], 0);
    step(&far, 4, &s);
    assert_true(early != work);
    fixture_close(&far);
}

/* --- A run that is resumed, on such a device --- */

/* Staggered, with roots in batches of HALF: two steps of four have one. */
static void open_staggered(fixture *f)
{
    open_side(f, make_staggered, true);
    assert_ok(lt_shampoo_assign_phases((lt_shampoo *)f->optim, HALF));
}

static void same_state(fixture *a, fixture *b)
{
    static snapshot of_a, of_b;
    take(&of_a, a, false);
    take(&of_b, b, false);
    assert_int_equal(of_a.used, of_b.used);
    assert_memory_equal(of_a.bytes, of_b.bytes, of_a.used);
}

/* Resumes from each step: before the first batch, between two, after one, in a skipped step. */
static void resumed_batches_of_roots_are_those_of_one_run(void **state)
{
    (void)state;
    static snapshot saved;
    for (int at = 4; at < STEPS; at++) {
        fixture whole, resumed;
        seen s = {0}, t = {0};
        open_staggered(&whole);
        open_staggered(&resumed);
        for (int k = 1; k <= at; k++)
            step(&whole, k, &s);
        take(&saved, &whole, false);
        take(&saved, &resumed, true);
        for (int k = at + 1; k <= STEPS; k++) {
            step(&whole, k, &s);
            step(&resumed, k, &t);
            same(&whole, &resumed);
        }
        same_state(&whole, &resumed);
        assert_true(at + 4 > STEPS || t.steps[SECOND] > 0);
        fixture_close(&whole);
        fixture_close(&resumed);
    }
}

int main(void)
{
    enum { OTHERS = 2 };
    struct CMUnitTest tests[COUNT_OF(rows) + OTHERS] = {
        cmocka_unit_test(an_early_step_is_other_work),
        cmocka_unit_test(resumed_batches_of_roots_are_those_of_one_run),
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[OTHERS + i] = row_test(rows[i].name, pieces_are_the_whole, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
