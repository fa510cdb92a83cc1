/* conform_step [--device NAME] [--optim NAME] [--recorded] [--break]: a whole training step of a small residual
 * network: gradients against ref in double; recorded steps against eager ones and a second run, bit
 * for bit; and steps whose gradients stay in 16 bits against those with f32. With --break one number is off, and all must fail. Exits 0, 1, or 77 if the device cannot be
 * opened. */

#include "resnet.h"

#include "lather/ext/optim.h"
#include "lather/graph.h"
#include "lather/ops.h"
#include "lather/optim.h"
#include "lather/shampoo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, SIDE = 32, CLASSES = 5, STEPS = 6, USAGE = 2, CANNOT_RUN = 77 };

typedef struct training {
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_graph *graph;
    lt_tensor *images, *labels, *loss;
    lt_pass pass;
    int passes; /* of a step, whose gradients add up */
    bool writes_pixels;
} training;

static void close_training(training *t)
{
    lt_graph_free(&t->graph);
    lt_tape_free(&t->tape);
    lt_optim_free(&t->optim);
    lt_params_clear(&t->params);
    lt_module_free(&t->model);
    lt_tensor_free(&t->images);
    lt_tensor_free(&t->labels);
    lt_tensor_free(&t->loss);
    lt_device_close(&t->device);
}

static lt_status make_data(training *t)
{
    static unsigned char pixels[BATCH * 3 * SIDE * SIDE];
    int32_t labels[BATCH];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof pixels; i++) {
        state = state * 1664525U + 1013904223U;
        pixels[i] = (unsigned char)(state >> 24);
    }
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % CLASSES;
    LT_TRY(lt_tensor_new(&t->images, t->device, LT_U8, LT_SHAPE(BATCH, 3, SIDE, SIDE)));
    LT_TRY(lt_tensor_new(&t->labels, t->device, LT_I32, LT_SHAPE(BATCH)));
    LT_TRY(lt_tensor_new(&t->loss, t->device, lt_device_master(t->device), LT_SCALAR));
    LT_TRY(lt_tensor_write(t->images, pixels, sizeof pixels));
    return lt_tensor_write(t->labels, labels, sizeof labels);
}

static lt_status make_optim(training *t, const char *name)
{
    if (!strcmp(name, "sgd")) {
        const lt_sgd_config c = {.momentum = 0.9, .nesterov = true, .weight_decay = 1e-4};
        return lt_optim_sgd(&t->optim, &t->params, &c);
    }
    if (!strcmp(name, "shampoo")) {
        lt_shampoo_config c;
        LT_TRY(lt_shampoo_preset("recommended", &c));
        c.precondition_frequency = 2;
        c.start_preconditioning_step = 2;
        return lt_optim_shampoo(&t->optim, &t->params, &c);
    }
    lt_adam_config c = LT_ADAM_DEFAULTS;
    c.decoupled = true;
    return lt_optim_adam(&t->optim, &t->params, &c);
}

/* Where and how a training runs. */
typedef struct place {
    const char *device;
    lt_dtype dtype;
    bool f64;
    lt_fused fused;
    bool rounded;       /* gradients may be in 16 bits */
    int passes;         /* of a step; 0: 1 */
    bool writes_pixels; /* normalised ones: the first convolution finds its input in memory */
} place;

static lt_status open_training(training *t, const place *at, const char *optim)
{
    const lt_device_config config = {.f64 = at->f64, .fused = at->fused, .deterministic = true};
    const lt_resnet_config shape = {
        .arch = "resnet10", .width = 8, .channels = 3, .classes = CLASSES, .seed = 1};
    *t = (training){.pass = LT_PASS_TRAIN,
                    .passes = at->passes ? at->passes : 1,
                    .writes_pixels = at->writes_pixels};
    t->pass.dtype = at->dtype;
    t->pass.recompute = LT_RECOMPUTE_CHEAP;
    LT_TRY(lt_device_open(&t->device, at->device, &config));
    LT_TRY(lt_resnet_new(&t->model, t->device, &shape));
    LT_TRY(lt_module_params(t->model, &t->params));
    LT_TRY(make_optim(t, optim));
    lt_optim_read_rounded(t->optim, at->rounded);
    lt_loss_scaling scaling = LT_LOSS_SCALING_DEFAULTS;
    scaling.start = 128; /* small enough for steps that are taken */
    if (at->dtype == LT_F16)
        LT_TRY(lt_optim_scale_loss(t->optim, &scaling));
    LT_TRY(lt_tape_new(&t->tape, t->device));
    return make_data(t);
}

static lt_status one_pass(training *t)
{
    const lt_normalize_config pixels = LT_NORMALIZE_IMAGENET;
    lt_tape_reset(t->tape, t->pass);
    lt_tensor *x = lt_normalize(t->tape, t->images, &pixels);
    if (t->writes_pixels)
        lt_tape_keep(t->tape, x);
    lt_tensor *logits = lt_module_forward(t->model, t->tape, x);
    lt_tensor *loss = lt_softmax_xent(t->tape, logits, t->labels, 0.1);
    LT_TRY(lt_tape_backward_by(t->tape, loss, 1, lt_optim_loss_scale(t->optim)));
    return lt_tensor_copy(t->loss, loss);
}

static lt_status forward_backward(training *t)
{
    lt_params_zero_grad(&t->params);
    for (int i = 0; i < t->passes; i++)
        LT_TRY(one_pass(t));
    return LT_OK;
}

static lt_status whole_step(void *arg)
{
    training *t = arg;
    LT_TRY(forward_backward(t));
    return lt_optim_update(t->optim);
}

static lt_status forward_backward_step(void *arg)
{
    return forward_backward(arg);
}

/* As the trainer does it. */
static lt_status run_step(training *t, int64_t attempt, bool graph)
{
    const lt_step numbers = {.lr = 0.01 / (double)attempt, .attempt = attempt};
    lt_step_result result;
    LT_TRY(lt_optim_prepare(t->optim, &numbers));
    bool steady = lt_optim_is_capturable(t->optim);
    lt_step_fn *step = steady ? whole_step : forward_backward_step;
    if (graph)
        LT_TRY(lt_graph_run(t->device, &t->graph, (lt_graph_key){.kind = steady}, step, t));
    else
        LT_TRY(step(t));
    if (!steady)
        LT_TRY(lt_optim_update(t->optim));
    lt_optim_advance(t->optim);
    return lt_optim_result(t->optim, &result);
}

/* All numbers of a list of tensors as doubles, one after another; grows *out. */
typedef struct numbers {
    double *value;
    size_t count;
} numbers;

static lt_status append(numbers *n, const lt_tensor *x)
{
    size_t count = (size_t)lt_tensor_count(x);
    double *grown = realloc(n->value, (n->count + count) * sizeof *grown);
    lt_tensor *wide = NULL;
    if (!grown)
        return lt_fail(LT_E_NOMEM, "no memory for %zu numbers", n->count + count);
    n->value = grown;
    LT_TRY(lt_tensor_new(&wide, lt_tensor_device(x), LT_F64, lt_tensor_shape(x)));
    lt_status st = lt_tensor_copy(wide, x);
    if (!st)
        st = lt_tensor_read(wide, n->value + n->count, count * sizeof(double));
    lt_tensor_free(&wide);
    n->count += count;
    return st;
}

static lt_status collect(numbers *n, const training *t, bool gradients)
{
    *n = (numbers){0};
    for (size_t i = 0; i < t->params.count; i++) {
        const lt_param *p = t->params.item[i];
        if (!gradients || p->has_grad)
            LT_TRY(append(n, gradients ? p->grad : p->value));
    }
    return LT_OK;
}

/* Gradients of one pass, without the loss scale; f16 tries smaller ones until all are finite. */
static lt_status gradients_of(numbers *n, const place *at)
{
    training t;
    double scale = 1;
    lt_status st = open_training(&t, at, "sgd");
    if (!st && at->dtype == LT_F16) {
        lt_loss_scaling c = LT_LOSS_SCALING_DEFAULTS;
        c.start = scale = 128;
        st = lt_optim_scale_loss(t.optim, &c);
    }
    if (!st)
        st = forward_backward(&t);
    if (!st)
        st = collect(n, &t, true);
    for (size_t i = 0; i < n->count; i++)
        n->value[i] /= scale;
    close_training(&t);
    return st;
}

/* A gradient stays in 16 bits if it is asked for, until another is added. */
static lt_status check_width(const training *t, const place *at)
{
    const bool rounds = at->rounded && at->passes < 2 && !strncmp(at->device, "cuda", 4);
    const lt_param *filter = lt_params_find(&t->params, "layer1.0.conv1.weight");
    const lt_dtype want = rounds ? at->dtype : LT_F32;
    if (filter && lt_tensor_dtype(filter->grad) == want)
        return LT_OK;
    return lt_fail(LT_E_ARG, "the gradient of a filter is not in %s", lt_dtype_name(want));
}

static lt_status train_at(numbers *n, const place *at, const char *optim, bool graph)
{
    training t;
    lt_status st = open_training(&t, at, optim);
    for (int64_t i = 1; i <= STEPS && !st; i++)
        st = run_step(&t, i, graph);
    if (!st)
        st = collect(n, &t, false);
    lt_graph_stats stats = lt_graph_statistics(t.graph);
    if (!st && stats.failed)
        st = lt_fail(LT_E_UNSUPPORTED, "a step could not be recorded: %s", lt_error_message());
    if (!st)
        st = check_width(&t, at);
    close_training(&t);
    return st;
}

static lt_status train(numbers *n, const char *device, lt_dtype dtype, const char *optim,
                       bool graph)
{
    return train_at(n, &(place){.device = device, .dtype = dtype}, optim, graph);
}

typedef struct tally {
    int passed, failed;
    bool broken, recorded;
    const char *only; /* this optimizer alone; NULL: all */
} tally;

static void tell(tally *a, bool ok, const char *what, lt_dtype dtype, const char *optim,
                 const char *detail)
{
    *(ok ? &a->passed : &a->failed) += 1;
    printf("%s %s %s %s%s%s\n", ok ? "ok  " : "FAIL", what, lt_dtype_name(dtype), optim,
           *detail ? ": " : "", detail);
}

/* Euclidean distance relative to the length of want; infinite for other counts. */
static double distance(const numbers *got, const numbers *want)
{
    double length = 0, apart = 0;
    if (got->count != want->count)
        return (double)INFINITY;
    for (size_t i = 0; i < want->count; i++) {
        length += want->value[i] * want->value[i];
        apart += (got->value[i] - want->value[i]) * (got->value[i] - want->value[i]);
    }
    return sqrt(apart / length);
}

static void check_gradients(tally *a, const place *at)
{
    static const char *const fused[] = {
        [LT_FUSED_AUTO] = "", [LT_FUSED_ON] = "fused", [LT_FUSED_OFF] = "not fused"};
    const lt_dtype dtype = at->dtype;
    const place exact = {.device = "ref", .dtype = LT_F32, .f64 = true};
    const double bound = dtype == LT_F32 ? 1e-4 : dtype == LT_F16 ? 0.1 : 0.45;
    numbers want = {0}, got = {0};
    char text[256] = "";
    lt_status st = gradients_of(&want, &exact);
    if (!st)
        st = gradients_of(&got, at);
    if (!st && a->broken)
        for (size_t i = 0; i < got.count; i++)
            got.value[i] *= 1 + 2 * bound;
    double apart = st ? (double)NAN : distance(&got, &want);
    snprintf(text, sizeof text, "%s%g, allowed %g", st ? lt_error_message() : "distance ", apart,
             bound);
    tell(a, apart <= bound, "gradients", dtype, fused[at->fused], text);
    free(want.value);
    free(got.value);
}

static bool is_same(const numbers *a, const numbers *b)
{
    return a->count == b->count && !memcmp(a->value, b->value, a->count * sizeof(double));
}

static void check_same(tally *a, const char *device, lt_dtype dtype, const char *optim, bool graph)
{
    numbers want = {0}, got = {0};
    lt_status st = train(&want, device, dtype, optim, false);
    if (!st)
        st = train(&got, device, dtype, optim, graph);
    if (!st && a->broken)
        got.value[got.count / 2] += 1e-3;
    tell(a, !st && is_same(&got, &want),
         graph ? "recorded steps are eager ones" : "a second run is the first", dtype, optim,
         st ? lt_error_message() : "");
    free(want.value);
    free(got.value);
}

/* Steps with gradients of 16 bits, of one pass or of more, are those with f32. */
static void check_rounded(tally *a, const char *device, lt_dtype dtype, const char *optim)
{
    for (int passes = 1; passes <= 2; passes++) {
        numbers want = {0}, got = {0};
        place at = {.device = device, .dtype = dtype, .passes = passes};
        lt_status st = train_at(&want, &at, optim, true);
        at.rounded = true;
        if (!st)
            st = train_at(&got, &at, optim, true);
        if (!st && a->broken)
            got.value[got.count / 2] += 1e-3;
        tell(a, !st && is_same(&got, &want), "gradients in 16 bits change nothing", dtype, optim,
             st ? lt_error_message() : "");
        free(want.value);
        free(got.value);
    }
}

/* Steps whose first convolution reads pixels are those where they were normalised before. */
static void check_pixels(tally *a, const char *device, lt_dtype dtype)
{
    numbers want = {0}, got = {0};
    place at = {.device = device, .dtype = dtype, .passes = 2, .writes_pixels = true};
    lt_status st = train_at(&want, &at, "sgd", true);
    at.writes_pixels = false;
    if (!st)
        st = train_at(&got, &at, "sgd", true);
    if (!st && a->broken)
        got.value[got.count / 2] += 1e-3;
    tell(a, !st && is_same(&got, &want), "pixels normalised on the way change nothing", dtype,
         "sgd", st ? lt_error_message() : "");
    free(want.value);
    free(got.value);
}

static void check_dtype(tally *a, const char *device, lt_dtype dtype)
{
    static const char *const optims[] = {"sgd", "adamw", "shampoo"};
    for (int fused = LT_FUSED_AUTO; fused <= (dtype == LT_F32 ? LT_FUSED_AUTO : LT_FUSED_OFF);
         fused++)
        check_gradients(a, &(place){.device = device, .dtype = dtype, .fused = (lt_fused)fused});
    for (size_t i = 0; i < sizeof optims / sizeof *optims; i++) {
        if (a->only && strcmp(a->only, optims[i]) != 0)
            continue;
        check_same(a, device, dtype, optims[i], false);
        check_same(a, device, dtype, optims[i], true);
        if (dtype != LT_F32)
            check_rounded(a, device, dtype, optims[i]);
        if (dtype != LT_F32 && !strcmp(optims[i], "sgd"))
            check_pixels(a, device, dtype);
    }
}

/* The device; NULL with a message: an argument that is none. */
static const char *parse(int argc, char **argv, tally *a)
{
    const char *device = "cpu";
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--break"))
            a->broken = true;
        else if (!strcmp(argv[i], "--recorded"))
            a->recorded = true;
        else if (!strcmp(argv[i], "--device") && i + 1 < argc)
            device = argv[++i];
        else if (!strcmp(argv[i], "--optim") && i + 1 < argc)
            a->only = argv[++i];
        else {
            fprintf(stderr,
                    "conform_step: %s: want --device NAME, --optim NAME, --recorded or --break\n",
                    argv[i]);
            return NULL;
        }
    return device;
}

int main(int argc, char **argv)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    tally a = {0};
    const char *device = parse(argc, argv, &a);
    if (!device)
        return USAGE;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash or a time-out leaves the lines of what passed */
    const bool has_f16 = strcmp(device, "cpu") != 0; /* it has no training in f16 */
    lt_device *d = NULL;
    if (lt_device_open(&d, device, NULL)) {
        fprintf(stderr, "conform_step: %s\n", lt_error_message());
        return CANNOT_RUN;
    }
    lt_device_close(&d);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && !a.recorded; i++)
        if (dtypes[i] != LT_F16 || has_f16)
            check_dtype(&a, device, dtypes[i]);
    if (a.recorded)
        check_same(&a, device, has_f16 ? LT_F16 : LT_BF16, a.only ? a.only : "adamw", true);
    printf("conform_step: %d passed, %d failed\n", a.passed, a.failed);
    return a.failed ? 1 : 0;
}
