/* Vision transformers and language models divided over ranks, against the same on one of them: logits, loss, and every
 * gradient; then fifty steps. */

#include "gpt.h"
#include "mesh_ranks.h"
#include "near.h"
#include "vit.h"

#include "lather/ops.h"

#include <stdlib.h>

enum {
    WIDTH = 24,
    HEADS = 12,
    HIDDEN = 30,
    LAYERS = 2,
    CLASSES = 29,
    SIDE = 6,
    PATCH = 2,
    TOKENS = 7
};
enum {
    MOST_SAMPLES = 6,
    MOST_PARAMS = 64,
    MOST_LOGITS = MOST_SAMPLES * TOKENS * CLASSES,
    STEPS = 50
};

typedef enum family { VIT_TOKEN, VIT_MEAN, GPT2, LLAMA, LLAMA_FEW_KEYS } family;
static const char *const family_name[] = {"vit", "vit, mean", "gpt2", "llama", "llama, few keys"};

typedef struct plan {
    family family;
    lt_mesh_config mesh;
    bool sequence, f32;
    int samples, steps;
    lt_dtype dtype; /* of the pass */
    double tolerance;
} plan;

/* A network with its inputs and results, on one rank. */
typedef struct net {
    const plan *plan;
    const lt_tensor_parallel *parallel;
    mesh_rank *r;
    lt_module *model;
    lt_params params;
    lt_tensor *inputs, *labels;
    double loss, logits[MOST_LOGITS], *gradient[MOST_PARAMS];
    int64_t logit_count;
} net;

static bool is_vit(family f)
{
    return f == VIT_TOKEN || f == VIT_MEAN;
}

/* --- Making one --- */

static lt_status make_model(net *n)
{
    const family f = n->plan->family;
    if (is_vit(f)) {
        const lt_vit_config c = {.patch = PATCH,
                                 .width = WIDTH,
                                 .depth = LAYERS,
                                 .heads = HEADS,
                                 .hidden = HIDDEN,
                                 .size = SIDE,
                                 .channels = 3,
                                 .classes = CLASSES,
                                 .mean_pool = f == VIT_MEAN,
                                 .parallel = n->parallel};
        return lt_vit_new(&n->model, n->r->device, &c);
    }
    const lt_gpt_config c = {.width = WIDTH,
                             .layers = LAYERS,
                             .heads = HEADS,
                             .kv_heads = f == LLAMA_FEW_KEYS ? HEADS / 2 : HEADS,
                             .hidden = HIDDEN,
                             .positions = TOKENS + 2,
                             .vocabulary = CLASSES,
                             .rms = f != GPT2,
                             .rotary = f != GPT2,
                             .mlp = f == GPT2 ? LT_MLP_GELU_TANH : LT_MLP_SWIGLU,
                             .parallel = n->parallel};
    return lt_gpt_new(&n->model, n->r->device, &c);
}

static lt_status write_double(lt_tensor *t, const double *values)
{
    const size_t count = (size_t)lt_tensor_count(t);
    if (lt_tensor_dtype(t) == LT_F64)
        return lt_tensor_write(t, values, count * sizeof *values);
    float *narrow = malloc(count * sizeof *narrow);
    for (size_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    lt_status st = lt_tensor_write(t, narrow, count * sizeof *narrow);
    free(narrow);
    return st;
}

/* No parameter keeps a value that hides what becomes of it, as a bias of 0. */
static lt_status fill(net *n)
{
    for (size_t p = 0; p < n->params.count; p++) {
        lt_param *param = n->params.item[p];
        const lt_place place = lt_param_place(param);
        const int64_t count = lt_tensor_count(param->value);
        double *values = malloc((size_t)count * sizeof *values);
        for (int64_t i = 0; i < count; i++)
            values[i] = 0.3 * fraction((int)p, 0, lt_place_index(&place, i))
                        + (param->role == LT_ROLE_NORM && strstr(param->name, "weight") ? 1 : 0);
        lt_status st = write_double(param->value, values);
        free(values);
        LT_TRY(st);
    }
    return LT_OK;
}

static lt_status make_images(net *n)
{
    enum { PIXELS = 3 * SIDE * SIDE };
    const lt_dtype dtype = n->plan->f32 ? LT_F32 : LT_F64;
    double x[MOST_SAMPLES * PIXELS];
    int32_t label[MOST_SAMPLES];
    const int samples = n->plan->samples;
    for (int i = 0; i < samples * PIXELS; i++)
        x[i] = fraction(97, i / PIXELS, i % PIXELS);
    for (int i = 0; i < samples; i++)
        label[i] = i * 7 % CLASSES;
    LT_TRY(lt_tensor_new(&n->inputs, n->r->device, dtype, LT_SHAPE(samples, 3, SIDE, SIDE)));
    LT_TRY(write_double(n->inputs, x));
    LT_TRY(lt_tensor_new(&n->labels, n->r->device, LT_I32, LT_SHAPE(samples)));
    return lt_tensor_write(n->labels, label, (size_t)samples * sizeof *label);
}

static lt_status make_tokens(net *n)
{
    int32_t id[MOST_SAMPLES * TOKENS], label[MOST_SAMPLES * TOKENS];
    const int samples = n->plan->samples, count = samples * TOKENS;
    for (int i = 0; i < count; i++) {
        id[i] = (i * 5 + i / 3) % CLASSES;
        label[i] = i % 9 == 2 ? LT_IGNORED_LABEL : (i * 11 + 3) % CLASSES;
    }
    LT_TRY(lt_tensor_new(&n->inputs, n->r->device, LT_I32, LT_SHAPE(samples, TOKENS)));
    LT_TRY(lt_tensor_new(&n->labels, n->r->device, LT_I32, LT_SHAPE(samples, TOKENS)));
    LT_TRY(lt_tensor_write(n->inputs, id, (size_t)count * sizeof *id));
    return lt_tensor_write(n->labels, label, (size_t)count * sizeof *label);
}

static lt_status make(net *n, const plan *p, mesh_rank *r, const lt_tensor_parallel *parallel)
{
    *n = (net){.plan = p, .parallel = parallel, .r = r};
    LT_TRY(make_model(n));
    LT_TRY(lt_module_params(n->model, &n->params));
    LT_TRY(fill(n));
    return is_vit(p->family) ? make_images(n) : make_tokens(n);
}

static void clear(net *n)
{
    lt_tape_reset(n->r->tape, LT_PASS_EVAL);
    for (size_t i = 0; i < n->params.count; i++)
        free(n->gradient[i]);
    lt_params_clear(&n->params);
    lt_tensor_free(&n->inputs);
    lt_tensor_free(&n->labels);
    lt_module_free(&n->model);
}

/* --- One pass --- */

static lt_status run(net *n, lt_tensor **logits)
{
    lt_tape *tape = n->r->tape;
    lt_pass pass = LT_PASS_TRAIN;
    pass.dtype = n->plan->dtype;
    lt_tape_reset(tape, pass);
    lt_params_zero_grad(&n->params);
    *logits = lt_module_forward(n->model, tape, n->inputs);
    lt_tape_keep(tape, *logits);
    const lt_tensor_parallel *of_classes = is_vit(n->plan->family) ? NULL : n->parallel;
    lt_tensor *loss = lt_parallel_softmax_xent(tape, *logits, n->labels, of_classes, CLASSES);
    LT_TRY(lt_tape_status(tape));
    LT_TRY(lt_tape_backward(tape, loss, 1));
    return lt_tensor_item(loss, &n->loss);
}

static lt_status keep(net *n)
{
    lt_tensor *logits;
    LT_TRY(run(n, &logits));
    n->logit_count = lt_tensor_count(logits);
    if (lt_tensor_dtype(logits) == LT_F64 || lt_tensor_dtype(logits) == LT_F32)
        LT_TRY(read_double(logits, n->logits));
    for (size_t i = 0; i < n->params.count; i++) {
        const lt_param *p = n->params.item[i];
        const size_t bytes = (size_t)lt_tensor_count(p->value) * sizeof(double);
        n->gradient[i] = n->gradient[i] ? n->gradient[i] : malloc(bytes);
        if (!p->has_grad)
            return lt_fail(LT_E_ARG, "%s has no gradient", p->name);
        LT_TRY(read_double(p->grad, n->gradient[i]));
    }
    return LT_OK;
}

/* --- Comparison --- */

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(1, fabs(b));
}

/* The element of one rank's logits that number i of these is. */
static int64_t logit_at(const net *own, int64_t i)
{
    const lt_tensor_parallel *p = own->parallel;
    if (is_vit(own->plan->family))
        return i;
    const int64_t classes = lt_exchange_part(CLASSES, p->row->size, p->row->rank);
    const lt_token_rows rows = lt_parallel_rows(p, own->plan->samples, TOKENS);
    const int64_t first = p->column ? lt_parallel_own_rows(p, rows).first : 0;
    return (first + i / classes) * CLASSES + lt_exchange_first(CLASSES, p->row->size, p->row->rank)
           + i % classes;
}

static lt_status compare_logits(const net *serial, const net *own)
{
    for (int64_t i = 0; i < own->logit_count; i++) {
        const int64_t at = logit_at(own, i);
        if (at < serial->logit_count
            && !near(own->logits[i], serial->logits[at], own->plan->tolerance))
            return lt_fail(LT_E_SHAPE, "logit %lld is %.17g, want %.17g", (long long)at,
                           own->logits[i], serial->logits[at]);
    }
    return LT_OK;
}

static lt_status compare(const net *serial, const net *own)
{
    const double tolerance = own->plan->tolerance;
    if (!near(own->loss, serial->loss, tolerance))
        return lt_fail(LT_E_SHAPE, "the loss is %.17g, want %.17g", own->loss, serial->loss);
    LT_TRY(compare_logits(serial, own));
    for (size_t p = 0; p < own->params.count; p++) {
        const lt_param *param = own->params.item[p];
        const lt_place place = lt_param_place(param);
        if (strcmp(param->name, serial->params.item[p]->name))
            return lt_fail(LT_E_SHAPE, "%s is in %s's place", param->name,
                           serial->params.item[p]->name);
        for (int64_t i = 0; i < lt_tensor_count(param->value); i++) {
            const int64_t at = lt_place_index(&place, i);
            if (!near(own->gradient[p][i], serial->gradient[p][at], tolerance))
                return lt_fail(LT_E_SHAPE, "gradient %lld of %s is %.17g, want %.17g",
                               (long long)at, param->name, own->gradient[p][i],
                               serial->gradient[p][at]);
        }
    }
    return LT_OK;
}

/* The same bits, with and without overlap. */
static lt_status compare_bits(const net *a, const net *b)
{
    if (memcmp(&a->loss, &b->loss, sizeof a->loss))
        return lt_fail(LT_E_SHAPE, "the loss is %a without overlap, %a with it", b->loss, a->loss);
    for (size_t p = 0; p < a->params.count; p++)
        if (memcmp(a->gradient[p], b->gradient[p],
                   (size_t)lt_tensor_count(a->params.item[p]->value) * sizeof(double)))
            return lt_fail(LT_E_SHAPE, "%s has another gradient without overlap",
                           a->params.item[p]->name);
    return LT_OK;
}

static lt_tensor_parallel groups(const mesh_rank *r, bool sequence, bool overlap)
{
    const bool grid = lt_mesh_config_of(r->mesh).rows > 1;
    return (lt_tensor_parallel){.row = lt_mesh_group(r->mesh, LT_MESH_ROW),
                                .column = grid ? lt_mesh_group(r->mesh, LT_MESH_COLUMN) : NULL,
                                .depth = grid ? lt_mesh_group(r->mesh, LT_MESH_DEPTH) : NULL,
                                .model = lt_mesh_group(r->mesh, LT_MESH_MODEL),
                                .sequence = sequence,
                                .overlap = overlap};
}

static lt_status one_pass(mesh_rank *r)
{
    const plan *p = r->context;
    const lt_tensor_parallel with = groups(r, p->sequence, true),
                             without = groups(r, p->sequence, false);
    net *n = calloc(3, sizeof *n);
    lt_status st = make(&n[0], p, r, NULL);
    st = st ? st : keep(&n[0]);
    st = st ? st : make(&n[1], p, r, &with);
    st = st ? st : keep(&n[1]);
    st = st ? st : compare(&n[0], &n[1]);
    st = st ? st : make(&n[2], p, r, &without);
    st = st ? st : keep(&n[2]);
    st = st ? st : compare_bits(&n[1], &n[2]);
    for (int i = 0; i < 3; i++)
        if (n[i].r)
            clear(&n[i]);
    free(n);
    return st;
}

static void play(plan p, lt_status (*fn)(mesh_rank *r), uint64_t *bytes)
{
    char why[600];
    const lt_mesh_config *m = &p.mesh;
    if (play_mesh(m->depth * m->rows * m->columns, !p.f32,
                  (mesh_rank){.config = m, .context = &p, .fn = fn}, bytes, why))
        fail_msg("%s, depth %d, %d x %d, rows %s, %d samples: %s", family_name[p.family], m->depth,
                 m->rows, m->columns, p.sequence ? "divided" : "not divided", p.samples, why);
}

static const double f64_tolerance = 1e-10, f32_tolerance = 1e-4;

static void one_dimension(void **state)
{
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA_FEW_KEYS; f++)
        for (int t = 1; t <= 4; t++)
            for (int sequence = 0; sequence < 2; sequence++)
                if (f != LLAMA_FEW_KEYS || t < 4) /* its 6 heads of k and v */
                    play((plan){.family = (family)f,
                                .mesh = {1, 1, 1, t, false},
                                .sequence = sequence,
                                .samples = 3,
                                .tolerance = f64_tolerance},
                         one_pass, NULL);
}

static void grids(void **state)
{
    static const int grid[][3] = {{1, 2, 5}, {2, 2, 5}, {2, 2, 3}, {1, 3, 3}}; /* d, q, samples */
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA; f++)
        for (size_t g = 0; g < COUNT_OF(grid); g++)
            play((plan){.family = (family)f,
                        .mesh = {1, grid[g][0], grid[g][1], grid[g][1], true},
                        .samples = grid[g][2],
                        .tolerance = f64_tolerance},
                 one_pass, NULL);
}

static void narrow(void **state)
{
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA; f += GPT2 - VIT_TOKEN) {
        plan p = {.family = (family)f,
                  .mesh = {1, 1, 1, 2, false},
                  .sequence = true,
                  .f32 = true,
                  .samples = 3,
                  .tolerance = f32_tolerance};
        play(p, one_pass, NULL);
        p.mesh = (lt_mesh_config){1, 2, 2, 2, true};
        play(p, one_pass, NULL);
        p.mesh = (lt_mesh_config){1, 1, 1, 2, false};
        p.dtype = LT_BF16;
        p.tolerance = 0.05;
        play(p, one_pass, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"in one dimension logits, loss and gradients are one rank's, within 1e-10", one_dimension,
         NULL, NULL, NULL},
        {"on grids they are, too, whatever the batch", grids, NULL, NULL, NULL},
        {"so they are in f32 and, in one dimension, bf16", narrow, NULL, NULL, NULL},
    };
    return _cmocka_run_group_tests("divided models", tests, COUNT_OF(tests), NULL, NULL);
}
