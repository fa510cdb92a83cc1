/* Operands of the libraries' calls on a fake device with ref's kernels: which copies are made and when, and which
 * candidate is chosen. */

#include "tensor/backend/cuda/operands.h"

#include "fake.h"
#include "near.h"
#include "tensor/backend/cuda/cast_cache.h"
#include "tensor/backend/cuda/kernels.h"

#include <string.h>

enum { MEMORY = 64 << 20, COUNT = 24 };

static int casts;

static lt_status cast(void *ctx, const lt_view *x, const lt_view *y)
{
    casts++;
    LT_TRY(lt_cuda_begin(ctx, "cast"));
    LT_TRY(lt_backend_ref()->cast(NULL, x, y));
    return lt_cuda_end(ctx);
}

const lt_backend *lt_cuda_table(void)
{
    static lt_backend table;
    table.cast = cast;
    return &table;
}

/* The time of a run is what the candidate says. */
static float times[8], took;
static lt_cuda_api api;

static int milliseconds(float *out, lt_cuda_event from, lt_cuda_event to)
{
    (void)from;
    (void)to;
    *out = took;
    return LT_CUDA_SUCCESS;
}

static lt_cuda *open_device(bool deterministic)
{
    void *ctx = NULL;
    const lt_device_config config = {.deterministic = deterministic};
    fake_reset(MEMORY);
    casts = 0;
    api = fake_api;
    api.event_milliseconds = milliseconds;
    assert_ok(lt_cuda_open_with(&api, &ctx, 0, &config));
    ((lt_cuda *)ctx)->operation = "a test";
    return ctx;
}

static void close_device(lt_cuda *c)
{
    lt_cuda_close(c);
    assert_int_equal(fake.used, 0);
    assert_int_equal(fake.events, 0);
}

/* [2,3,2,2], channels-last or row-major. */
static lt_view image(void *data, lt_dtype dtype, bool channels_last)
{
    lt_view v = {.data = data, .dtype = dtype, .shape = LT_SHAPE(2, 3, 2, 2)};
    const int64_t last[] = {12, 1, 6, 3}, rows[] = {12, 4, 2, 1};
    memcpy(v.stride, channels_last ? last : rows, sizeof last);
    return v;
}

static void what_fits_is_used_as_it_is(void **state)
{
    _Alignas(16) float x[COUNT];
    lt_cuda *c = open_device(false);
    const lt_view v = image(x, LT_F32, true);
    lt_operand o[2] = {{.view = &v, .dtype = LT_F32, .fits = true}, {.dtype = LT_F32}};
    void *work = c;
    (void)state;
    assert_ok(lt_operands_open(c, o, 2, 0, &work));
    assert_ptr_equal(o[0].use.data, x);
    assert_null(work);
    assert_int_equal(casts, 0);
    assert_int_equal(fake.blocks, 0);
    assert_string_equal(c->operation, "a test");
    close_device(c);
}

static void copies_are_apart_and_come_back(void **state)
{
    _Alignas(16) float x[COUNT], y[COUNT];
    lt_cuda *c = open_device(false);
    const lt_view vx = image(x, LT_F32, false), vy = image(y, LT_F32, false);
    lt_operand o[] = {{.view = &vx, .dtype = LT_F32},
                      {.view = &vy, .dtype = LT_F32, .written = true}};
    void *work;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i;
    assert_ok(lt_operands_open(c, o, 2, 100, &work));
    const char *in = o[0].use.data, *out = o[1].use.data;
    assert_true(out - in >= (int64_t)sizeof x && (char *)work - out >= (int64_t)sizeof y);
    assert_int_equal(o[0].use.stride[1], 1);
    assert_true(((const float *)o[0].use.data)[1]
                == x[4]); /* the second channel of the first pixel */
    memcpy(o[1].use.data, o[0].use.data, sizeof x);
    assert_ok(lt_operands_close(c, o, 2));
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(casts, 2);
    close_device(c);
}

static void memory_that_is_not_aligned_is_copied(void **state)
{
    _Alignas(16) float x[COUNT + 1];
    lt_cuda *c = open_device(false);
    const lt_view v = image(x + 1, LT_F32, true);
    lt_operand o = {.view = &v, .dtype = LT_F32, .fits = true};
    void *work;
    (void)state;
    memset(x, 0, sizeof x);
    assert_ok(lt_operands_open(c, &o, 1, 0, &work));
    assert_ptr_not_equal(o.use.data, x + 1);
    close_device(c);
}

/* Opens the weight, and gives how often it was cast for that. */
static int read_weight(lt_cuda *c, const lt_view *v, bool refresh, void **data)
{
    lt_operand o = {.view = v, .dtype = LT_F16, .fits = true, .keeps = true, .refresh = refresh};
    const int before = casts;
    void *work;
    assert_ok(lt_operands_open(c, &o, 1, 0, &work));
    *data = o.use.data;
    return casts - before;
}

static void a_weight_is_cast_once_a_version(void **state)
{
    _Alignas(16) float w[COUNT] = {1};
    lt_cuda *c = open_device(false);
    lt_view v = image(w, LT_F32, true);
    void *first, *again;
    (void)state;
    v.version = 7;
    assert_int_equal(read_weight(c, &v, true, &first), 1);
    assert_int_equal(read_weight(c, &v, false, &again), 0);
    assert_int_equal(read_weight(c, &v, true, &again), 0);
    assert_ptr_equal(first, again);
    v.version = 8;
    assert_int_equal(read_weight(c, &v, false, &again), 1);
    assert_ptr_equal(first, again); /* captured steps read it at this address */
    v.version = 0;                  /* nothing is kept of it */
    assert_int_equal(read_weight(c, &v, false, &again), 1);
    assert_int_equal(read_weight(c, &v, false, &again), 1);
    assert_ptr_not_equal(first, again);
    close_device(c);
}

/* A captured step is replayed with later versions: its forward pass must cast. */
static void a_captured_forward_pass_casts(void **state)
{
    _Alignas(16) float w[COUNT] = {1};
    lt_cuda *c = open_device(false);
    lt_view v = image(w, LT_F32, true);
    void *data;
    (void)state;
    v.version = 7;
    assert_int_equal(read_weight(c, &v, true, &data), 1);
    c->capturing = true;
    assert_int_equal(read_weight(c, &v, true, &data), 1);
    assert_int_equal(read_weight(c, &v, false, &data), 0); /* backward has it from there */
    c->capturing = false;
    close_device(c);
}

/* If optimizers write the copy, a captured pass does not cast; outside a capture the versions decide. */
static void a_copy_that_is_written_along_is_not_cast_in_a_capture(void **state)
{
    _Alignas(16) float w[COUNT] = {1}, other[COUNT] = {1};
    lt_cuda *c = open_device(false);
    lt_view v = image(w, LT_F32, true), rows = image(other, LT_F32, false);
    void *data, *copy;
    lt_dtype dtype = LT_F32;
    (void)state;
    v.version = 7;
    rows.version = 8;
    assert_int_equal(read_weight(c, &v, true, &copy), 1);
    assert_int_equal(read_weight(c, &rows, true, &data), 1);
    assert_null(lt_cast_element_address(c, w, &dtype)); /* no copy follows yet */
    lt_cuda_weights.follow(c, &v, true);
    lt_cuda_weights.follow(c, &rows, true);
    assert_ptr_equal(lt_cast_element_address(c, w, &dtype), copy);
    assert_int_equal(dtype, LT_F16);
    assert_ptr_equal(lt_cast_element_address(c, w + COUNT - 1, &dtype), (lt_f16 *)copy + COUNT - 1);
    assert_null(lt_cast_element_address(c, w + COUNT, &dtype));
    assert_null(lt_cast_element_address(c, other, &dtype)); /* it is in another order */
    v.version = rows.version = 9;
    c->capturing = true;
    assert_int_equal(read_weight(c, &v, true, &data), 0);
    assert_int_equal(read_weight(c, &v, false, &data), 0);
    assert_int_equal(read_weight(c, &rows, true, &data), 1);
    c->capturing = false;
    v.version = 10;
    assert_int_equal(read_weight(c, &v, true, &data), 1); /* an evaluation, say */
    v.version = 11;
    int before = casts;
    assert_ok(lt_cuda_weights.renew(c, &v));
    assert_ok(lt_cuda_weights.renew(c, &rows));
    assert_int_equal(casts, before + 1);
    assert_int_equal(read_weight(c, &v, true, &data), 0);
    lt_cuda_weights.follow(c, &v, false);
    assert_null(lt_cast_element_address(c, w, &dtype));
    c->capturing = true;
    assert_int_equal(read_weight(c, &v, true, &data), 1); /* as before */
    c->capturing = false;
    close_device(c);
}

/* A new weight reuses memory of a longer one: the rest of it belongs to another tensor. */
static void a_longer_copy_is_written_no_further_than_its_weight(void **state)
{
    _Alignas(16) float memory[2 * COUNT] = {1};
    lt_cuda *c = open_device(false);
    lt_view v = image(memory, LT_F32, true), longer = v;
    lt_dtype dtype = LT_F32;
    void *data;
    (void)state;
    longer.shape.dim[0] = 4;
    longer.version = 7;
    v.version = 8;
    assert_int_equal(read_weight(c, &longer, true, &data), 1);
    assert_int_equal(read_weight(c, &v, true, &data), 1);
    lt_cuda_weights.follow(c, &v, true);
    assert_non_null(lt_cast_element_address(c, memory + COUNT - 1, &dtype));
    assert_null(lt_cast_element_address(c, memory + COUNT, &dtype));
    close_device(c);
}

/* Candidate i takes times[i]; negative: it fails. */
static lt_status candidate(void *context, int i)
{
    ++*(int *)context;
    if (times[i] < 0) {
        fake.error = 1;
        return lt_fail(LT_E_DEVICE, "candidate %d fails", i);
    }
    took = times[i];
    return LT_OK;
}

static void the_fastest_that_runs_is_taken(void **state)
{
    static const float slow[] = {5, -1, 2, 3};
    lt_cuda *c = open_device(false);
    float each[4];
    int runs = 0, best = -1;
    (void)state;
    memcpy(times, slow, sizeof slow);
    assert_ok(lt_cuda_find_fastest(c, 4, candidate, &runs, each, &best));
    assert_int_equal(best, 2);
    for (int i = 0; i < 4; i++)
        assert_float_equal(each[i], slow[i], 0); /* -1: it did not run */
    times[2] = -1;                               /* the control: another one then */
    assert_ok(lt_cuda_find_fastest(c, 4, candidate, &runs, each, &best));
    assert_int_equal(best, 3);
    assert_ok(lt_cuda_end(c)); /* the failures of others were reset */
    for (int i = 0; i < 4; i++)
        times[i] = -1;
    assert_status(lt_cuda_find_fastest(c, 4, candidate, &runs, each, &best), LT_E_DEVICE);
    close_device(c);
}

/* Graphs whose launch takes as long as the runs in them: those of candidate i take device_times[i]. */
static float device_times[8];
static int captured, refusing;

static lt_status launched(void *context, int i)
{
    const lt_cuda *c = context;
    captured = c->capturing ? i : captured;
    took = times[i];
    return LT_OK;
}

static int capture_end(lt_cuda_stream stream, lt_cuda_graph *out)
{
    const int code = fake_api.capture_end(stream, out);
    if (code || captured != refusing)
        return code;
    fake_api.graph_destroy(*out);
    *out = NULL;
    return fake.error = 901; /* cudaErrorStreamCaptureInvalidated */
}

static int graph_instantiate(lt_cuda_graph_exec *out, lt_cuda_graph graph)
{
    const int code = fake_api.graph_instantiate(out, graph);
    *out = (lt_cuda_graph_exec)(device_times + captured);
    return code;
}

static int graph_launch(lt_cuda_graph_exec exec, lt_cuda_stream stream)
{
    took = 8 * *(const float *)exec;
    return fake_api.graph_launch(exec, stream);
}

static int choose(lt_cuda *c, float each[3], int refuses)
{
    int best = -1;
    refusing = refuses;
    api.capture_end = capture_end;
    api.graph_instantiate = graph_instantiate;
    api.graph_launch = graph_launch;
    assert_ok(lt_cuda_find_fastest(c, 3, launched, c, each, &best));
    assert_ok(lt_cuda_end(c));
    assert_int_equal(fake.graphs, 0);
    assert_int_equal(fake.executables, 0);
    return best;
}

/* The host's launches hide which of two short candidates is faster; long ones are not captured. */
static void short_candidates_are_timed_in_captured_runs(void **state)
{
    lt_cuda *c = open_device(false);
    float each[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        times[i] = 0.011F + 0.001F * (float)i;
        device_times[i] = 0.008F - 0.001F * (float)i;
    }
    assert_int_equal(choose(c, each, -1), 2);
    assert_float_equal(each[0], device_times[0], 1e-6);
    assert_int_equal(choose(c, each, 2), 1); /* one that cannot be captured is timed by itself */
    assert_float_equal(each[2], times[2], 1e-6);
    for (int i = 0; i < 3; i++)
        times[i] = 1 + (float)i;
    fake.launches = 0;
    assert_int_equal(choose(c, each, -1), 0);
    assert_int_equal(fake.launches, 0);
    close_device(c);
}

/* A device that gets slower with each run. */
static double clock_runs;

static lt_status drifting(void *context, int i)
{
    (void)context;
    took = times[i] * (float)(1 + 0.1 * clock_runs++);
    return LT_OK;
}

/* The control: each candidate's median of four runs, one candidate after the other. */
static int one_after_another(int count)
{
    float median[8];
    int best = 0;
    clock_runs = 0;
    for (int i = 0; i < count; i++) {
        median[i] = 0;
        for (int run = 0; run < 5; run++) {
            assert_ok(drifting(NULL, i));
            median[i] += run == 2 || run == 3 ? took / 2 : 0; /* the first is not counted */
        }
        best = median[i] < median[best] ? i : best;
    }
    return best;
}

static void a_clock_that_drifts_decides_nothing(void **state)
{
    lt_cuda *c = open_device(false);
    (void)state;
    for (int fast = 0; fast < 6; fast++) {
        float each[6];
        int best = -1;
        for (int i = 0; i < 6; i++)
            times[i] = i == fast ? 0.98F : 1;
        clock_runs = 0;
        assert_ok(lt_cuda_find_fastest(c, 6, drifting, NULL, each, &best));
        assert_int_equal(best, fast);
        assert_int_equal(one_after_another(6), 0);
    }
    close_device(c);
}

static void deterministic_devices_take_the_first_that_runs(void **state)
{
    static const float slow[] = {-1, 5, 2, 3};
    lt_cuda *c = open_device(true);
    float each[4];
    int runs = 0, best = -1;
    (void)state;
    memcpy(times, slow, sizeof slow);
    assert_ok(lt_cuda_find_fastest(c, 4, candidate, &runs, each, &best));
    assert_int_equal(best, 1);
    assert_int_equal(runs, 2); /* nothing is timed */
    assert_float_equal(each[0], -1, 0);
    assert_float_equal(each[1], 0, 0);
    assert_ok(lt_cuda_end(c));
    close_device(c);
}

static void events_that_cannot_be_made_are_told(void **state)
{
    lt_cuda *c = open_device(false);
    float each[4];
    int runs = 0, best = -1;
    (void)state;
    fake.fails = "event_create";
    fake.fails_with = 999;
    assert_status(lt_cuda_find_fastest(c, 4, candidate, &runs, each, &best), LT_E_DEVICE);
    fake.fails = NULL;
    close_device(c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_used_as_it_is),
        cmocka_unit_test(copies_are_apart_and_come_back),
        cmocka_unit_test(memory_that_is_not_aligned_is_copied),
        cmocka_unit_test(a_weight_is_cast_once_a_version),
        cmocka_unit_test(a_captured_forward_pass_casts),
        cmocka_unit_test(a_copy_that_is_written_along_is_not_cast_in_a_capture),
        cmocka_unit_test(a_longer_copy_is_written_no_further_than_its_weight),
        cmocka_unit_test(the_fastest_that_runs_is_taken),
        cmocka_unit_test(short_candidates_are_timed_in_captured_runs),
        cmocka_unit_test(a_clock_that_drifts_decides_nothing),
        cmocka_unit_test(deterministic_devices_take_the_first_that_runs),
        cmocka_unit_test(events_that_cannot_be_made_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
