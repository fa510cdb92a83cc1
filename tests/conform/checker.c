/* The checker: runs the same call on ref in double, on ref with magnitudes, and on the backend, whose memory
 * is surrounded by guard zones.
 *
 * The bound of an element, with u = 2^-24: |y - want| <= 2 * terms * u * magnitude, plus the rounding of the
 * result to its dtype. Higham, "Accuracy and stability of numerical algorithms", 2002, section 3.1: the
 * error of a sum of products in any order is at most terms * u * (the same sum of absolute values), to first
 * order. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "conform.h"
#include "tensor/backend/dtype.h"
#include "tensor/backend/ref/ref.h"
#include "tensor/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, PATTERN = 0xFF, ALIGNMENT = 64 };

static char why[256];

/* One operand's memory on a device, and a copy of its contents before the call. */
typedef struct block {
    unsigned char *device, *before, *after;
    size_t bytes;
    lt_view view;
} block;

int64_t operand_count(const operand *o)
{
    return lt_shape_count(o->shape);
}

static bool is_absent(const operand *o)
{
    return o->shape.ndim < 0;
}

static lt_dtype dtype_of(const operand *o, lt_dtype run)
{
    switch (o->kind) {
    case DATA:
        return run;
    case MASTER:
    case WEIGHT:
        return run == LT_F64 ? LT_F64 : LT_F32;
    case DOUBLE:
        return LT_F64;
    case PIXEL:
        return LT_U8;
    case LABEL:
        return LT_I32;
    case COUNT:
        return LT_I64;
    }
    return run;
}

static bool is_floating(const operand *o)
{
    return o->kind <= DOUBLE;
}

/* Sets the strides of a layout; returns the number of elements that they span. */
static int64_t set_strides(const operand *o, int64_t stride[LT_MAX_DIMS])
{
    lt_shape s = o->shape;
    int64_t span = lt_shape_count(s);
    memset(stride, 0, LT_MAX_DIMS * sizeof *stride);
    switch (o->layout) {
    case STORAGE:
        lt_channels_last_strides(s, stride);
        return span;
    case ROWS:
        lt_row_major_strides(s, stride);
        return span;
    case GAPS:
        lt_row_major_strides(s, stride);
        for (int d = 0; d < s.ndim; d++)
            stride[d] *= 2;
        return 2 * span;
    case JOINED:
        lt_row_major_strides(s, stride);
        stride[0] *= 2;
        stride[1] *= 2;
        return 2 * span;
    case REVERSED:
        for (int64_t d = 0, step = 1; d < s.ndim; step *= s.dim[d++])
            stride[d] = step;
        return span;
    case BROADCAST:
        return 1;
    case CHANNEL:
        stride[1] = 1;
        return s.dim[1];
    }
    return span;
}

static double round_to(double x, lt_dtype dtype)
{
    if (dtype == LT_F64)
        return x;
    if (dtype == LT_BF16)
        return (double)lt_f32_from_bf16(lt_bf16_from_f32(lt_f32_odd_from_f64(x)));
    if (dtype == LT_F16)
        return (double)lt_f32_from_f16(lt_f16_from_f32(lt_f32_odd_from_f64(x)));
    if (dtype == LT_F32)
        return (double)(float)x;
    return floor(x);
}

void round_weights(operand *w)
{
    for (int64_t i = 0; i < operand_count(w); i++)
        w->value[i] = round_to(w->value[i], LT_BF16);
}

/* Expands the values of a broadcast layout in place, for reading them as row-major doubles. */
static void repeat_broadcast(const operand *o)
{
    int64_t stride[LT_MAX_DIMS], count = operand_count(o);
    set_strides(o, stride);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, first = 0, step = 1; /* the row-major index of the element repeated */
        for (int d = o->shape.ndim - 1; d >= 0; d--) {
            int64_t at = rest % o->shape.dim[d];
            rest /= o->shape.dim[d];
            first += stride[d] ? at * step : 0;
            step *= o->shape.dim[d];
        }
        o->value[i] = o->value[first];
    }
}

static void draw(test *t, lt_dtype dtype)
{
    lt_rng rng = {.key = lt_rng_name_key(1, LT_STREAM_INIT, t->name)};
    for (int i = 0; i < t->operands; i++) {
        operand *o = &t->operand[i];
        if (is_absent(o))
            continue;
        double low = o->low, high = o->high;
        if (low == 0 && high == 0) {
            low = -1;
            high = 1;
        }
        o->value = lt_alloc((size_t)operand_count(o), sizeof *o->value);
        LT_ASSERT(o->value);
        for (int64_t j = 0; j < operand_count(o); j++)
            o->value[j] = low + (high - low) * lt_rng_uniform(&rng);
    }
    if (t->prepare)
        t->prepare(t);
    for (int i = 0; i < t->operands; i++) {
        operand *o = &t->operand[i];
        for (int64_t j = 0; !is_absent(o) && j < operand_count(o); j++)
            o->value[j] = round_to(o->value[j], dtype_of(o, dtype));
        if (!is_absent(o) && (o->layout == BROADCAST || o->layout == CHANNEL))
            repeat_broadcast(o);
    }
}

/* Returns o's contents in a run: its values, rounded weights, or magnitudes. */
static double *contents(const operand *o, lt_dtype run, bool reference, bool absolute)
{
    int64_t count = operand_count(o), row = o->shape.ndim ? count / o->shape.dim[0] : 1;
    double *v = lt_alloc((size_t)count, sizeof *v);
    LT_ASSERT(v);
    for (int64_t i = 0; i < count; i++) {
        v[i] = o->value[i];
        if (reference && o->kind == WEIGHT)
            v[i] = round_to(v[i], run);
        if (absolute && o->absolute != KEEP)
            v[i] =
                o->absolute == MINUS || (o->absolute == COEF && i < row) ? -fabs(v[i]) : fabs(v[i]);
    }
    return v;
}

static void block_new(block *b, const operand *o, lt_dtype dtype, const double *values,
                      const lt_backend *be, void *ctx)
{
    *b = (block){.view = {.dtype = dtype, .shape = o->shape}};
    int64_t span = set_strides(o, b->view.stride);
    b->bytes = (size_t)span * lt_dtype_size(dtype) + 2 * GUARD;
    b->before = lt_alloc_aligned(ALIGNMENT, b->bytes);
    b->after = lt_alloc_aligned(ALIGNMENT, b->bytes);
    void *device = NULL;
    LT_ASSERT(b->before && b->after && !be->alloc(ctx, b->bytes, &device));
    b->device = device;
    memset(b->before, PATTERN, b->bytes);
    if (o->use != OUT) {
        lt_view host = b->view;
        host.data = b->before + GUARD;
        lt_ref_scatter_f64(values, &host);
    }
    LT_ASSERT(!be->copy(ctx, b->device, b->before, b->bytes, LT_COPY_IN));
    b->view.data = b->device + GUARD;
}

static void block_free(block *b, const lt_backend *be, void *ctx)
{
    if (b->device)
        be->free(ctx, b->device, b->bytes);
    lt_free(b->before);
    lt_free(b->after);
}

/* Masks the bytes of elements in both copies, so that only the others can differ. */
static void hide_elements(block *b)
{
    const size_t size = lt_dtype_size(b->view.dtype);
    const int64_t count = lt_shape_count(b->view.shape);
    if (b->bytes == (size_t)count * size + 2 * GUARD) { /* contiguous */
        memset(b->before + GUARD, 0, (size_t)count * size);
        memset(b->after + GUARD, 0, (size_t)count * size);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, offset = 0;
        for (int d = b->view.shape.ndim - 1; d >= 0; d--) {
            offset += rest % b->view.shape.dim[d] * b->view.stride[d];
            rest /= b->view.shape.dim[d];
        }
        memset(b->before + GUARD + (size_t)offset * size, 0, size);
        memset(b->after + GUARD + (size_t)offset * size, 0, size);
    }
}

static const char *check_guards(const test *t, int i, block *b)
{
    if (t->operand[i].use != IN)
        hide_elements(b);
    if (!memcmp(b->before, b->after, b->bytes))
        return NULL;
    for (size_t at = 0; at < b->bytes; at++)
        if (b->before[at] != b->after[at]) {
            snprintf(why, sizeof why, "operand %d: byte %td was overwritten, which is no output", i,
                     (ptrdiff_t)at - GUARD);
            return why;
        }
    return NULL;
}

/* Returns the fastest of a few dozen calls, or of as many as fit into a tenth of a second. */
static double measure(const test *t, const lt_backend *be, void *ctx, const lt_view *v)
{
    enum { MOST = 50 };
    double best = (double)INFINITY, end = lt_clock_seconds() + 0.1;
    for (int i = 0; i < MOST; i++) {
        double begin = lt_clock_seconds();
        LT_ASSERT(!t->call(t, be, ctx, v, false) && !be->sync(ctx));
        double now = lt_clock_seconds();
        best = fmin(best, now - begin);
        if (now > end)
            break;
    }
    return best * 1e6;
}

/* Calls the kernel on a backend; out[i] receives the row-major elements of output i. */
typedef struct run_mode {
    lt_dtype dtype, run; /* dtype of this call; dtype of the test */
    bool reference, absolute;
    double *bench;
} run_mode;

static const char *run_on(const test *t, run_mode mode, const lt_backend *be, void *ctx,
                          double **out)
{
    block b[MAX_OPERANDS] = {{0}};
    lt_view v[MAX_OPERANDS] = {{0}};
    for (int i = 0; i < t->operands; i++) {
        const operand *o = &t->operand[i];
        if (is_absent(o))
            continue;
        double *values = contents(o, mode.run, mode.reference, mode.absolute);
        block_new(&b[i], o, dtype_of(o, mode.dtype), values, be, ctx);
        lt_free(values);
        v[i] = b[i].view;
    }
    const char *problem = NULL;
    if (t->call(t, be, ctx, v, mode.absolute) || be->sync(ctx)) {
        snprintf(why, sizeof why, "failed: %s", lt_error_message());
        problem = why;
    }
    for (int i = 0; i < t->operands; i++) {
        if (is_absent(&t->operand[i]))
            continue;
        LT_ASSERT(!be->copy(ctx, b[i].after, b[i].device, b[i].bytes, LT_COPY_OUT));
        lt_view host = b[i].view;
        host.data = b[i].after + GUARD;
        if (t->operand[i].use != IN) {
            out[i] = lt_alloc((size_t)lt_ref_element_count(&host), sizeof *out[i]);
            LT_ASSERT(out[i]);
            lt_ref_load_f64(&host, 0, lt_ref_element_count(&host), out[i]);
        }
        problem = problem ? problem : check_guards(t, i, &b[i]);
    }
    if (mode.bench && !problem)
        *mode.bench = measure(t, be, ctx, v);
    for (int i = 0; i < t->operands; i++)
        block_free(&b[i], be, ctx);
    return problem;
}

/* Half a unit in the last place of a stored y, doubled. */
static double storage_error(lt_dtype dtype, double y)
{
    if (dtype == LT_BF16)
        return 0x1p-8 * fabs(y) + 0x1p-133;
    if (dtype == LT_F16)
        return 0x1p-11 * fabs(y) + 0x1p-24;
    return dtype == LT_F32 ? 0x1p-24 * fabs(y) + 0x1p-149 : 0;
}

/* Relative error of a factor that a kernel rounds to the run's dtype before a product. */
static double factor_error(lt_dtype run)
{
    return run == LT_BF16 ? 0x1p-8 : run == LT_F16 ? 0x1p-11 : 0;
}

bool multiplies(const test *t)
{
    return !strcmp(t->entry, "conv2d") || !strncmp(t->entry, "conv2d_grad", 11)
           || strstr("matmul linear gram mode_product rational", t->entry);
}

/* Bounds intermediate roundings of the cuda backend's libraries: the gradient of a weight, which is then
 * widened; a convolution, to which the bias, at most 1 here, is then added; both factors, to TF32, by
 * truncation, as the tensor cores read 19 bits (PTX ISA, wgmma). */
static double early_error(const test *t, const lt_backend *be, lt_dtype run, double y,
                          double magnitude)
{
    const bool biased = !strcmp(t->entry, "conv2d") && !is_absent(&t->operand[2]);
    if (strcmp(be->name, "cuda") != 0)
        return 0;
    if (run == LT_F32)
        return t->tf32 && multiplies(t) ? (0x1p-9 + 0x1p-20) * fabs(magnitude) : 0;
    if (!strcmp(t->entry, "conv2d_grad_w"))
        return storage_error(run, y);
    return biased ? storage_error(run, fabs(y) + 1) : 0;
}

static const char *compare(const test *t, const lt_backend *be, lt_dtype run, int i,
                           const double *got, const double *want, const double *magnitude)
{
    const operand *o = &t->operand[i];
    bool exact = t->exact || !is_floating(o);
    for (int64_t j = 0; j < operand_count(o); j++) {
        double bound = exact ? 0
                             : 2 * t->terms * 0x1p-24 * fabs(magnitude[j])
                                   + t->inner * factor_error(run) * fabs(magnitude[j])
                                   + storage_error(dtype_of(o, run), want[j])
                                   + early_error(t, be, run, want[j], magnitude[j]);
        bool same = exact && isnan(got[j]) && isnan(want[j]);
        if (!same && !(fabs(got[j] - want[j]) <= bound)) {
            snprintf(why, sizeof why, "operand %d, element %lld: %.9g, want %.9g, bound %.3g", i,
                     (long long)j, got[j], want[j], bound);
            return why;
        }
    }
    return NULL;
}

static const char *find_magnitudes(const test *t, lt_dtype dtype, double **want, double **magnitude)
{
    if (!t->magnitude)
        return run_on(t, (run_mode){LT_F64, dtype, true, true, NULL}, lt_backend_ref(), NULL,
                      magnitude);
    for (int i = 0; i < t->operands; i++)
        if (want[i]) {
            magnitude[i] = lt_alloc((size_t)operand_count(&t->operand[i]), sizeof(double));
            LT_ASSERT(magnitude[i]);
        }
    t->magnitude(t, want, magnitude);
    return NULL;
}

const char *expect(test *t, lt_dtype dtype, expected *e)
{
    *e = (expected){.want = {0}};
    draw(t, dtype);
    const char *problem =
        run_on(t, (run_mode){LT_F64, dtype, true, false, NULL}, lt_backend_ref(), NULL, e->want);
    if (!problem && !t->exact && !t->check)
        problem = find_magnitudes(t, dtype, e->want, e->magnitude);
    return problem;
}

const char *conform_to(const test *t, lt_dtype dtype, const expected *e, const lt_backend *be,
                       void *ctx, double *bench)
{
    double *got[MAX_OPERANDS] = {0};
    const char *problem = run_on(t, (run_mode){dtype, dtype, false, false, bench}, be, ctx, got);
    if (!problem && t->check)
        problem = t->check(t, got, e->want);
    for (int i = 0; i < t->operands && !problem && !t->check; i++)
        if (got[i])
            problem = compare(t, be, dtype, i, got[i], e->want[i], e->magnitude[i]);
    for (int i = 0; i < MAX_OPERANDS; i++)
        lt_free(got[i]);
    return problem;
}

void expected_free(test *t, expected *e)
{
    for (int i = 0; i < MAX_OPERANDS; i++) {
        lt_free(e->want[i]);
        lt_free(e->magnitude[i]);
        lt_free(t->operand[i].value);
        t->operand[i].value = NULL;
    }
}

const char *conform(test *t, lt_dtype dtype, const lt_backend *be, void *ctx, double *bench)
{
    expected e;
    const char *problem = expect(t, dtype, &e);
    if (!problem)
        problem = conform_to(t, dtype, &e, be, ctx, bench);
    expected_free(t, &e);
    return problem;
}

lt_scalars *scalars_new(const lt_backend *be, void *ctx, const lt_scalars *s)
{
    void *memory = NULL;
    LT_ASSERT(!be->alloc(ctx, sizeof *s, &memory));
    LT_ASSERT(!be->copy(ctx, memory, s, sizeof *s, LT_COPY_IN));
    return memory;
}

void scalars_free(const lt_backend *be, void *ctx, lt_scalars *on_device, lt_scalars *s)
{
    LT_ASSERT(!be->sync(ctx) && !be->copy(ctx, s, on_device, sizeof *s, LT_COPY_OUT));
    be->free(ctx, on_device, sizeof *s);
}
