/* conform_step: a whole training step of a small residual network: gradients against ref in double; recorded steps bit
 * for bit against eager ones and a second run; and steps with 16-bit gradients against those with f32. Exits 0, 1, or 77 if
 * the device cannot be opened. */

#include "command_line.h"
#include "isolate.h"
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

enum { BATCH = 8, SIDE = 32, CLASSES = 5, STEPS = 6, CANNOT_RUN = 77 };
enum { F16_SCALE = 128 }; /* loss scale of f16: small enough for steps that are not skipped */

typedef struct training {
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_graph *graph;
    lt_tensor *images, *labels, *loss;
    lt_pass pass;
    int passes; /* micro-batches per step, whose gradients are summed */
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
    LT_TRY(lt_tensor_new(&t->loss, t->device, lt_device_master_dtype(t->device), LT_SCALAR));
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

/* Device and options of a training. */
typedef struct place {
    const char *device;
    lt_dtype dtype;
    bool f64;
    lt_fused fused;
    bool rounded;       /* gradients may be in 16 bits */
    int passes;         /* micro-batches per step; 0: 1 */
    bool writes_pixels; /* the first convolution reads normalised pixels from memory */
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
    lt_optim_allow_rounded_grads(t->optim, at->rounded);
    lt_loss_scaling scaling = LT_LOSS_SCALING_DEFAULTS;
    scaling.start = F16_SCALE;
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

/* One step, as the trainer runs it. */
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

/* All numbers of a list of tensors as doubles, concatenated; grows *out. */
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

/* Gradients of one pass, without the loss scale. */
static lt_status gradients_of(numbers *n, const place *at)
{
    training t;
    const double scale = at->dtype == LT_F16 ? F16_SCALE : 1;
    lt_status st = open_training(&t, at, "sgd");
    if (!st)
        st = forward_backward(&t);
    if (!st)
        st = collect(n, &t, true);
    for (size_t i = 0; i < n->count; i++)
        n->value[i] /= scale;
    close_training(&t);
    return st;
}

/* Checks that a gradient is kept in 16 bits if requested, until another is added. */
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

typedef struct tally {
    const char *device;
    const char *only;  /* rows whose names begin with it */
    const char *optim; /* only this optimizer; NULL: all */
    int64_t seconds;   /* time limit per row, in a process; 0: all rows run in this one */
    bool broken, recorded, control;
    rows *rows; /* rows of the process that runs them */
} tally;

/* Returns true if this row is chosen and belongs to this process. what receives its name. */
static bool begins(tally *a, const char *kind, lt_dtype dtype, const char *detail, char *what,
                   size_t size)
{
    snprintf(what, size, "%s %s%s%s", kind, lt_dtype_name(dtype), *detail ? " " : "", detail);
    return !strncmp(what, a->only, strlen(a->only)) && rows_begin(a->rows, what, true);
}

/* Prints the result; returns true if the process can continue. */
static bool tell(tally *a, bool ok, const char *what, const char *detail)
{
    const char *problem = a->control ? rows_control(a->rows->next) : NULL;
    ok = ok && !problem;
    printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", what, *detail || problem ? ": " : "",
           problem ? problem : detail);
    return rows_end(a->rows, ok);
}

/* Euclidean distance relative to the length of want; infinite if the counts differ. */
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

enum { NAME = sizeof((rows *)0)->running };

static bool check_gradients(tally *a, const place *at)
{
    static const char *const fused[] = {
        [LT_FUSED_AUTO] = "", [LT_FUSED_ON] = "fused", [LT_FUSED_OFF] = "not fused"};
    const lt_dtype dtype = at->dtype;
    static numbers want; /* the same for every row: computed once */
    const place exact = {.device = "ref", .dtype = LT_F32, .f64 = true};
    const double bound = dtype == LT_F32 ? 1e-4 : dtype == LT_F16 ? 0.1 : 0.45;
    numbers got = {0};
    char text[256] = "", what[NAME];
    if (!begins(a, "gradients", dtype, fused[at->fused], what, sizeof what))
        return true;
    lt_status st = want.value ? LT_OK : gradients_of(&want, &exact);
    if (!st)
        st = gradients_of(&got, at);
    if (!st && a->broken)
        for (size_t i = 0; i < got.count; i++)
            got.value[i] *= 1 + 2 * bound;
    double apart = st ? (double)NAN : distance(&got, &want);
    snprintf(text, sizeof text, "%s%g, allowed %g", st ? lt_error_message() : "distance ", apart,
             bound);
    free(got.value);
    return tell(a, apart <= bound, what, text);
}

static bool is_same(const numbers *a, const numbers *b)
{
    return a->count == b->count && !memcmp(a->value, b->value, a->count * sizeof(double));
}

/* Two trainings, on two devices or in two ways, that must give the same weights; returns true if the process
 * can continue. */
typedef struct pair {
    const char *kind, *optim;
    place want, got;
    bool want_graph, got_graph;
} pair;

static bool check_pair(tally *a, const pair *p)
{
    numbers want = {0}, got = {0};
    char what[NAME];
    if (!begins(a, p->kind, p->want.dtype, p->optim, what, sizeof what))
        return true;
    lt_status st = train_at(&want, &p->want, p->optim, p->want_graph);
    if (!st)
        st = train_at(&got, &p->got, p->optim, p->got_graph);
    if (!st && a->broken)
        got.value[got.count / 2] += 1e-3;
    const bool same = !st && is_same(&got, &want);
    free(want.value);
    free(got.value);
    return tell(a, same, what, st ? lt_error_message() : "");
}

static bool check_same(tally *a, lt_dtype dtype, const char *optim, bool graph)
{
    const place at = {.device = a->device, .dtype = dtype};
    return check_pair(
        a, &(pair){.kind = graph ? "recorded steps are eager ones" : "a second run is the first",
                   .optim = optim,
                   .want = at,
                   .got = at,
                   .got_graph = graph});
}

/* Steps with 16-bit gradients, of one or more micro-batches, must equal those with f32. */
static bool check_rounded(tally *a, lt_dtype dtype, const char *optim, int passes)
{
    static const char *const kind[] = {"gradients in 16 bits change nothing, one pass",
                                       "gradients in 16 bits change nothing, two passes"};
    pair p = {.kind = kind[passes - 1], .optim = optim, .want_graph = true, .got_graph = true};
    p.want = p.got = (place){.device = a->device, .dtype = dtype, .passes = passes};
    p.got.rounded = true;
    return check_pair(a, &p);
}

/* Steps whose first convolution reads pixels must equal those that normalise before. */
static bool check_pixels(tally *a, lt_dtype dtype)
{
    pair p = {.kind = "pixels normalised by the convolution change nothing",
              .optim = "sgd",
              .want_graph = true,
              .got_graph = true};
    p.want = p.got = (place){.device = a->device, .dtype = dtype, .passes = 2};
    p.want.writes_pixels = true;
    return check_pair(a, &p);
}

static bool check_optim(tally *a, lt_dtype dtype, const char *optim)
{
    bool ok = check_same(a, dtype, optim, false) && check_same(a, dtype, optim, true);
    for (int passes = 1; passes <= 2 && ok && dtype != LT_F32; passes++)
        ok = check_rounded(a, dtype, optim, passes);
    if (ok && dtype != LT_F32 && !strcmp(optim, "sgd"))
        ok = check_pixels(a, dtype);
    return ok;
}

static bool check_dtype(tally *a, lt_dtype dtype)
{
    static const char *const optims[] = {"sgd", "adamw", "shampoo"};
    const lt_fused last = dtype == LT_F32 ? LT_FUSED_AUTO : LT_FUSED_OFF;
    bool ok = true;
    for (int fused = LT_FUSED_AUTO; fused <= (int)last && ok; fused++)
        ok = check_gradients(
            a, &(place){.device = a->device, .dtype = dtype, .fused = (lt_fused)fused});
    for (size_t i = 0; i < sizeof optims / sizeof *optims && ok; i++)
        if (!a->optim || !strcmp(a->optim, optims[i]))
            ok = check_optim(a, dtype, optims[i]);
    return ok;
}

static const lt_option table[] = {
    {"Step", "device", 0, LT_OPTION_STRING, offsetof(tally, device), .value = "cpu", .meta = "NAME",
     .help = "Device to check"},
    {"Step", "optim", 0, LT_OPTION_STRING, offsetof(tally, optim), .meta = "NAME",
     .help = "One optimizer: sgd, adamw or shampoo"},
    {"Step", "recorded", 0, LT_OPTION_BOOL, offsetof(tally, recorded),
     .help = "Compare recorded steps with eager ones and nothing else"},
    {"Step", "only", 0, LT_OPTION_STRING, offsetof(tally, only), .value = "", .meta = "TEXT",
     .help = "Rows whose name, as in a failure's line, begins with the text"},
    {"Step", "isolate", 0, LT_OPTION_INT, offsetof(tally, seconds), .min = 0, .max = 1e6,
     .meta = "SECONDS",
     .help = "Run rows in a process; replace it after a failure, a crash or a longer row"},
    {"Step", "break", 0, LT_OPTION_BOOL, offsetof(tally, broken),
     .help = "Change one number, so that all rows must fail"},
    {"Step", "control", 0, LT_OPTION_BOOL, offsetof(tally, control),
     .help = "Spoil three rows: a crash, a hang, a broken device; exit 0 if only they fail"},
};

static const lt_program program = {.name = "conform_step",
                                   .summary = "Compare training steps of a small residual network",
                                   .usage = "[OPTION]...",
                                   .option = table,
                                   .count = sizeof table / sizeof *table};

/* The work of a process: all rows, if the device opens. */
static int run_all(void *context, rows *r)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    tally *a = context;
    const bool has_f16 = strcmp(a->device, "cpu") != 0; /* cpu has no training in f16 */
    lt_device *d = NULL;
    bool ok = true;
    if (lt_device_open(&d, a->device, NULL)) {
        fprintf(stderr, "conform_step: %s\n", lt_error_message());
        return CANNOT_RUN;
    }
    lt_device_close(&d);
    a->rows = r;
    r->next = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes && !a->recorded && ok; i++)
        if (dtypes[i] != LT_F16 || has_f16)
            ok = check_dtype(a, dtypes[i]);
    if (a->recorded)
        ok = check_same(a, has_f16 ? LT_F16 : LT_BF16, a->optim ? a->optim : "adamw", true);
    return ok ? 0 : ROWS_GO_ON;
}

static int check(tally *a)
{
    rows sum = {0};
    const int code =
        a->seconds ? run_isolated(&sum, (int)a->seconds, run_all, a) : run_all(a, &sum);
    if (code == CANNOT_RUN && !sum.failed)
        return code;
    printf("conform_step: %d passed, %d failed\n", sum.passed, sum.failed);
    if (a->control)
        return !(sum.failed == ROWS_CONTROLS && sum.passed && sum.passed + sum.failed == sum.next);
    return code || sum.failed || !sum.passed;
}

int main(int argc, char **argv)
{
    tally a = {0};
    lt_options *parsed;
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines printed before a crash or a time-out are kept */
    int code = read_command_line(&parsed, &program, &a, argc, argv);
    if (code == RUN)
        code = check(&a);
    lt_options_free(&parsed);
    return code;
}
