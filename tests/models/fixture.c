/* Compares a model with PyTorch. The bound is 1e-9 of a tensor's norm in f64 on ref. In f32 it is four times the
 * distance between PyTorch's f32 and f64 runs: in this tensor, or as the root mean square over its group, relative
 * to the norm. */

#include "fixture.h"

#include "near.h"

#include "lather/ops.h"
#include "lather/optim.h"
#include "lather/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, NAME_BYTES = 128, MAX_ROWS = 32 };
static const double smoothing = 0.1;
static const fixture_family *family; /* the program's family */

typedef struct fixture {
    const fixture_row *row;
    lt_safetensors *file;
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_tensor *inputs, *labels; /* images u8, or ids i32 */
    bool far;                   /* a comparison exceeded its bound */
    char worst[4 * NAME_BYTES]; /* message of the first such comparison */
} fixture;

lt_status fixture_open_sgd(lt_optim **out, const lt_params *params)
{
    lt_sgd_config c = {.momentum = 0.9, .nesterov = true, .weight_decay = 1e-3};
    return lt_optim_sgd(out, params, &c);
}

lt_status fixture_open_plain_momentum(lt_optim **out, const lt_params *params)
{
    return lt_optim_sgd(out, params, &(lt_sgd_config){.momentum = 0.9, .weight_decay = 1e-3});
}

lt_status fixture_open_adamw(lt_optim **out, const lt_params *params)
{
    lt_adam_config c = LT_ADAM_DEFAULTS;
    c.decoupled = true;
    c.weight_decay = 0.05;
    return lt_optim_adam(out, params, &c);
}

lt_status fixture_open_adagrad(lt_optim **out, const lt_params *params)
{
    lt_adagrad_config c = LT_ADAGRAD_DEFAULTS;
    c.weight_decay = 1e-3;
    return lt_optim_adagrad(out, params, &c);
}

/* clang-format off */
const fixture_row fixture_transformer_rows[FIXTURE_TRANSFORMER_ROWS] = {
    {"f64 on ref, SGD with Nesterov momentum", "ref", true, "sgd", fixture_open_sgd, 0.05, 1e-9, false},
    {"f64 on ref, AdamW", "ref", true, "adamw", fixture_open_adamw, 1e-3, 1e-9, false},
    {"f64 on cpu, AdamW", "cpu", true, "adamw", fixture_open_adamw, 1e-3, 1e-9, false},
    {"f32 on cpu, SGD with Nesterov momentum", "cpu", false, "sgd", fixture_open_sgd, 0.05, 4, false},
    {"f32 on cpu, AdamW", "cpu", false, "adamw", fixture_open_adamw, 1e-3, 4, false},
    {"f32 on ref, SGD with Nesterov momentum", "ref", false, "sgd", fixture_open_sgd, 0.05, 4, false},
    {"control: momentum without Nesterov", "ref", true, "sgd", fixture_open_plain_momentum, 0.05, 1e-9, true},
    {"control: lr 0.01 % too large, f64", "ref", true, "adamw", fixture_open_adamw, 1.0001e-3, 1e-9, true},
};
/* clang-format on */

static const lt_safetensors_entry *entry(const fixture *f, const char *prefix, const char *name)
{
    char key[3 * NAME_BYTES];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    const lt_safetensors_entry *e = lt_safetensors_find(f->file, key);
    if (!e)
        fail_msg("the fixture has no %s", key);
    return e;
}

static double host_value(const void *data, lt_dtype dtype, int64_t i)
{
    union {
        int64_t whole;
        double real;
        float single;
    } v;
    const size_t size = lt_dtype_size(dtype); /* data in a file is not aligned */
    memcpy(&v, (const unsigned char *)data + (size_t)i * size, size);
    return dtype == LT_I64 ? (double)v.whole : dtype == LT_F64 ? v.real : (double)v.single;
}

/* Fills a tensor of a floating dtype or i64 from an entry of any dtype. */
static void load(lt_tensor *to, const lt_safetensors_entry *e)
{
    char want[LT_SHAPE_TEXT], got[LT_SHAPE_TEXT];
    assert_string_equal(lt_shape_text(lt_tensor_shape(to), got), lt_shape_text(e->shape, want));
    size_t bytes = lt_tensor_bytes(to);
    unsigned char *host = calloc(1, bytes);
    for (int64_t i = 0; i < lt_tensor_count(to); i++) {
        double v = host_value(e->data, e->dtype, i);
        if (lt_tensor_dtype(to) == LT_F64)
            ((double *)(void *)host)[i] = v;
        else if (lt_tensor_dtype(to) == LT_F32)
            ((float *)(void *)host)[i] = (float)v;
        else
            ((int64_t *)(void *)host)[i] = (int64_t)v;
    }
    assert_ok(lt_tensor_write(to, host, bytes));
    free(host);
}

static void open_file(fixture *f)
{
    char path[512];
    const char *root = getenv("LATHER_TEST_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/%s", root ? root : ".", family->file);
    assert_ok(lt_safetensors_open(&f->file, path));
}

static void open_inputs(fixture *f)
{
    const lt_safetensors_entry *inputs = entry(f, "", "inputs"), *labels = entry(f, "", "labels");
    assert_ok(lt_tensor_new(&f->inputs, f->device, inputs->dtype, inputs->shape));
    assert_ok(lt_tensor_write(f->inputs, inputs->data, inputs->bytes));
    assert_ok(lt_tensor_new(&f->labels, f->device, LT_I32, labels->shape));
    assert_ok(lt_tensor_write(f->labels, labels->data, labels->bytes));
}

static void open_all(fixture *f, const fixture_row *row)
{
    *f = (fixture){.row = row};
    open_file(f);
    assert_ok(lt_device_open(&f->device, row->device, &(lt_device_config){.f64 = row->f64}));
    assert_ok(family->make(&f->model, f->device));
    assert_ok(lt_module_params(f->model, &f->params));
    for (size_t i = 0; i < f->params.count; i++)
        load(f->params.item[i]->value, entry(f, "init.", f->params.item[i]->name));
    assert_ok(lt_tape_new(&f->tape, f->device));
    open_inputs(f);
    assert_ok(row->open(&f->optim, &f->params));
}

static void close_all(fixture *f)
{
    lt_optim_free(&f->optim);
    lt_tensor_free(&f->inputs);
    lt_tensor_free(&f->labels);
    lt_tape_free(&f->tape);
    lt_params_clear(&f->params);
    lt_module_free(&f->model);
    lt_device_close(&f->device);
    lt_safetensors_close(&f->file);
}

static double norm_of(const lt_safetensors_entry *e)
{
    double square = 0;
    for (int64_t i = 0; i < lt_shape_count(e->shape); i++)
        square += host_value(e->data, e->dtype, i) * host_value(e->data, e->dtype, i);
    return sqrt(square);
}

/* Returns the distance between PyTorch's f32 and f64 runs for one tensor. */
static double torch_distance(const fixture *f, const char *key)
{
    return host_value(entry(f, "apart.", key)->data, LT_F64, 0);
}

/* Returns the root mean square of distance / norm over all tensors whose name starts with prefix. */
static double pooled_distance(const fixture *f, const char *prefix)
{
    double sum = 0;
    int count = 0;
    for (size_t i = 0; i < lt_safetensors_count(f->file); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(f->file, i);
        if (e->dtype != LT_F64 || strncmp(e->name, prefix, strlen(prefix)) != 0)
            continue;
        double relative = torch_distance(f, e->name) / norm_of(e);
        sum += relative * relative;
        count++;
    }
    return count ? sqrt(sum / count) : 0;
}

/* Returns the allowed L2 distance for a tensor with this norm. Small tensors may be exact by chance, so the
 * distance of the whole group counts too; for the loss, that of the logits, which bounds it. */
static double bound(const fixture *f, const char *prefix, const char *key, double norm)
{
    if (f->row->f64)
        return f->row->tolerance * (norm + 1);
    double group = *prefix ? pooled_distance(f, prefix) * norm : torch_distance(f, "logits");
    return f->row->tolerance * fmax(torch_distance(f, key), group);
}

static void compare(fixture *f, const lt_tensor *got, const char *prefix, const char *name)
{
    char key[2 * NAME_BYTES];
    const lt_safetensors_entry *want = entry(f, prefix, name);
    size_t bytes = lt_tensor_bytes(got);
    void *host = malloc(bytes);
    double square = 0, norm = 0;
    assert_ok(lt_tensor_read(got, host, bytes));
    for (int64_t i = 0; i < lt_tensor_count(got); i++) {
        double w = host_value(want->data, want->dtype, i);
        double d = host_value(host, lt_tensor_dtype(got), i) - w;
        square += d * d;
        norm += w * w;
    }
    free(host);
    snprintf(key, sizeof key, "%s%s", prefix, name);
    double limit = want->dtype == LT_I64 ? 0 : bound(f, prefix, key, sqrt(norm));
    if (!(sqrt(square) <= limit) && !f->far) { /* also if NaN */
        f->far = true;
        snprintf(f->worst, sizeof f->worst, "%s is %g away, allowed %g", key, sqrt(square), limit);
    }
}

static lt_tensor *forward(fixture *f, lt_pass pass)
{
    const lt_normalize_config pixels = {.mean = {128, 128, 128}, .deviation = {64, 64, 64}};
    lt_tape_reset(f->tape, pass);
    const bool is_images = lt_tensor_dtype(f->inputs) == LT_U8;
    lt_tensor *x = is_images ? lt_normalize(f->tape, f->inputs, &pixels) : f->inputs;
    lt_tensor *y = lt_module_forward(f->model, f->tape, x);
    assert_ok(lt_tape_status(f->tape));
    return y;
}

static void compare_first_step(fixture *f, const lt_tensor *logits, const lt_tensor *loss)
{
    compare(f, logits, "", "logits");
    compare(f, loss, "", "loss");
    for (size_t i = 0; i < f->params.count; i++)
        if (f->params.item[i]->grad)
            compare(f, f->params.item[i]->grad, "grad.", f->params.item[i]->name);
}

static void train(fixture *f)
{
    for (int64_t step = 1; step <= STEPS; step++) {
        lt_params_zero_grad(&f->params);
        lt_tensor *logits = forward(f, LT_PASS_TRAIN);
        lt_tensor *loss = lt_softmax_xent(f->tape, logits, f->labels, smoothing);
        lt_tape_keep(f->tape, logits);
        assert_ok(lt_tape_backward(f->tape, loss, 1));
        if (step == 1)
            compare_first_step(f, logits, loss);
        assert_ok(lt_optim_step(f->optim, &(lt_step){.lr = f->row->lr, .attempt = step}));
    }
}

static void check_row(void **state)
{
    char prefix[NAME_BYTES];
    fixture f;
    open_all(&f, *state);
    train(&f);
    snprintf(prefix, sizeof prefix, "%s.", f.row->optim);
    for (size_t i = 0; i < f.params.count; i++)
        compare(&f, f.params.item[i]->value, prefix, f.params.item[i]->name);
    compare(&f, forward(&f, LT_PASS_EVAL), prefix, "eval_logits");
    bool far = f.far, broken = f.row->broken;
    char worst[sizeof f.worst];
    memcpy(worst, f.worst, sizeof worst);
    close_all(&f);
    if (far && !broken)
        fail_msg("%s", worst);
    if (!far && broken)
        fail_msg("the control was accepted");
}

int fixture_main(const fixture_family *models, const fixture_row *rows, size_t count,
                 const struct CMUnitTest *more, size_t others)
{
    struct CMUnitTest tests[MAX_ROWS];
    assert_true(count + others <= MAX_ROWS);
    family = models;
    for (size_t i = 0; i < count; i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    for (size_t i = 0; i < others; i++)
        tests[count + i] = more[i];
    return _cmocka_run_group_tests("tests", tests, count + others, NULL, NULL);
}
