/* Forward and backward of each family of models in which one call of a kernel, of oneDNN or for memory fails: the pass
 * fails, nothing leaks, and the same pass again gives the same loss and gradients. No pass of the CPU runs a kernel of
 * the reference, which would be right and slow. */

#include "faults.h"
#include "gpt.h"
#include "ref_calls.h"
#include "resnet.h"
#include "vit.h"

#include "lather/ops.h"

enum { BATCH = 2, SIDE = 8, TOKENS = 3, CLASSES = 5 };

typedef lt_status make_fn(lt_module **out, lt_device *device);

static lt_status make_resnet(lt_module **out, lt_device *device)
{
    const lt_resnet_config c = {
        .depths = {1, 1, 1, 1}, .bottleneck = true, .width = 2, .classes = CLASSES};
    return lt_resnet_new(out, device, &c);
}

static lt_status make_vit(lt_module **out, lt_device *device)
{
    const lt_vit_config c = {.patch = 4,
                             .width = 8,
                             .depth = 1,
                             .heads = 2,
                             .hidden = 8,
                             .size = SIDE,
                             .classes = CLASSES,
                             .dropout = 0.1,
                             .drop_path = 0.1};
    return lt_vit_new(out, device, &c);
}

static lt_status make_gpt(lt_module **out, lt_device *device)
{
    const lt_gpt_config c = {.width = 8,
                             .layers = 1,
                             .heads = 2,
                             .positions = TOKENS,
                             .vocabulary = CLASSES,
                             .dropout = 0.1};
    return lt_gpt_new(out, device, &c);
}

static lt_status make_llama(lt_module **out, lt_device *device)
{
    const lt_gpt_config c = {.width = 8,
                             .layers = 1,
                             .heads = 2,
                             .kv_heads = 1,
                             .positions = TOKENS,
                             .vocabulary = CLASSES,
                             .rms = true,
                             .rotary = true,
                             .mlp = LT_MLP_SWIGLU};
    return lt_gpt_new(out, device, &c);
}

typedef struct row {
    const char *name;
    make_fn *make;
    bool reads_ids;
    const char *device;
    lt_dtype dtype;
    lt_fused fused;
    lt_recompute recompute;
    bool eval;
    bool synced; /* batch norm's statistics are reduced, over this rank alone */
} row;

static const row rows[] = {
    {"resnet, ref", make_resnet, false, "ref", LT_F32, LT_FUSED_AUTO, LT_RECOMPUTE_OFF, false,
     false},
    {"resnet, cpu", make_resnet, false, "cpu", LT_F32, LT_FUSED_OFF, LT_RECOMPUTE_CHEAP, false,
     false},
    {"resnet, cpu, fused", make_resnet, false, "cpu", LT_F32, LT_FUSED_ON, LT_RECOMPUTE_CHEAP,
     false, false},
    {"resnet, cpu, bf16", make_resnet, false, "cpu", LT_BF16, LT_FUSED_AUTO, LT_RECOMPUTE_OFF,
     false, false},
    {"resnet, cpu, evaluated", make_resnet, false, "cpu", LT_F32, LT_FUSED_AUTO, LT_RECOMPUTE_OFF,
     true, false},
    {"resnet, ref, synchronized", make_resnet, false, "ref", LT_F32, LT_FUSED_AUTO,
     LT_RECOMPUTE_CHEAP, false, true},
    {"vit, ref", make_vit, false, "ref", LT_F32, LT_FUSED_AUTO, LT_RECOMPUTE_CHEAP, false, false},
    {"vit, cpu", make_vit, false, "cpu", LT_F32, LT_FUSED_AUTO, LT_RECOMPUTE_OFF, false, false},
    {"vit, cpu, bf16", make_vit, false, "cpu", LT_BF16, LT_FUSED_AUTO, LT_RECOMPUTE_CHEAP, false,
     false},
    {"gpt, ref", make_gpt, true, "ref", LT_F32, LT_FUSED_AUTO, LT_RECOMPUTE_CHEAP, false, false},
    {"gpt, cpu", make_gpt, true, "cpu", LT_F32, LT_FUSED_AUTO, LT_RECOMPUTE_OFF, false, false},
    {"gpt with rotary positions, ref", make_llama, true, "ref", LT_F32, LT_FUSED_AUTO,
     LT_RECOMPUTE_OFF, false, false},
    {"gpt with rotary positions, cpu, bf16", make_llama, true, "cpu", LT_BF16, LT_FUSED_AUTO,
     LT_RECOMPUTE_CHEAP, false, false},
};

typedef struct scene {
    const row *row;
    lt_device *device;
    lt_module *model;
    lt_params params;
    lt_tape *tape;
    lt_tensor *inputs, *labels;
    double loss, slope;           /* last pass; slope: weighted sum of all gradients' elements */
    double want_loss, want_slope; /* a pass without a failure */
    bool has_want;
} scene;

static void fill(lt_tensor *t, bool ids)
{
    enum { MOST = BATCH * 3 * SIDE * SIDE };
    float real[MOST];
    int32_t whole[MOST];
    const int64_t count = lt_tensor_count(t);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        whole[i] = (int32_t)(i * 7 % CLASSES);
        real[i] = sinf((float)i);
    }
    assert_ok(lt_tensor_write(t, ids ? (void *)whole : (void *)real, lt_tensor_bytes(t)));
}

static void open_device(void *context)
{
    scene *s = context;
    const lt_device_config config = {.threads = 1, .deterministic = true, .fused = s->row->fused};
    assert_ok(lt_device_open(&s->device, s->row->device, &config));
}

static void open_inputs(scene *s)
{
    const bool ids = s->row->reads_ids;
    assert_ok(lt_tape_new(&s->tape, s->device));
    assert_ok(lt_tensor_new(&s->inputs, s->device, ids ? LT_I32 : LT_F32,
                            ids ? LT_SHAPE(BATCH, TOKENS) : LT_SHAPE(BATCH, 3, SIDE, SIDE)));
    assert_ok(lt_tensor_new(&s->labels, s->device, LT_I32,
                            ids ? LT_SHAPE(BATCH, TOKENS) : LT_SHAPE(BATCH)));
    fill(s->inputs, ids);
    fill(s->labels, true);
}

static void begin(void *context)
{
    scene *s = context;
    open_device(s);
    assert_ok(s->row->make(&s->model, s->device));
    assert_ok(lt_module_params(s->model, &s->params));
    open_inputs(s);
    faults_attach(s->device);
}

static void end(void *context)
{
    scene *s = context;
    lt_tensor_free(&s->inputs);
    lt_tensor_free(&s->labels);
    lt_tape_free(&s->tape);
    lt_params_clear(&s->params);
    lt_module_free(&s->model);
    lt_device_close(&s->device);
}

/* The network's last dimension is the class. */
static lt_tensor *loss_of(scene *s)
{
    lt_tensor *y = lt_module_forward(s->model, s->tape, s->inputs), *labels = s->labels;
    if (s->row->reads_ids) {
        y = lt_reshape(s->tape, y, LT_SHAPE(BATCH * TOKENS, CLASSES));
        labels = lt_reshape(s->tape, labels, LT_SHAPE(BATCH * TOKENS));
    }
    return lt_softmax_xent(s->tape, y, labels, 0.1);
}

static lt_status reduce(void *context, lt_norm_reduce op, lt_tensor *x)
{
    (void)context;
    (void)op;
    (void)x;
    return LT_OK;
}

static lt_status run(scene *s, lt_tensor **loss)
{
    lt_pass p = s->row->eval ? LT_PASS_EVAL : LT_PASS_TRAIN;
    p.dtype = s->row->dtype;
    p.recompute = s->row->recompute;
    lt_params_zero_grad(&s->params);
    lt_tape_reset(s->tape, p);
    lt_tape_on_norm_reduce(s->tape, s->row->synced ? reduce : NULL, NULL);
    *loss = loss_of(s);
    LT_TRY(lt_tape_status(s->tape));
    return s->row->eval ? LT_OK : lt_tape_backward(s->tape, *loss, 1);
}

static lt_status pass(void *context)
{
    scene *s = context;
    lt_tensor *loss = NULL;
    LT_TRY(run(s, &loss));
    return lt_tensor_item(loss, &s->loss);
}

static double slope_of(const scene *s)
{
    float g[2048];
    double sum = 0;
    for (size_t i = 0; i < s->params.count; i++) {
        const lt_param *p = s->params.item[i];
        if (!p->has_grad || lt_tensor_count(p->grad) > (int64_t)COUNT_OF(g))
            continue;
        assert_ok(lt_tensor_read(p->grad, g, lt_tensor_bytes(p->grad)));
        for (int64_t k = 0; k < lt_tensor_count(p->grad); k++)
            sum += (double)g[k] * (double)(k % 7 + 1);
    }
    return sum;
}

/* Checks that a pass has the same result whether it succeeded at once or after a failed one. */
static void after_pass(void *context, lt_status st)
{
    scene *s = context;
    if (st)
        assert_ok(pass(s));
    s->slope = s->row->eval ? 0 : slope_of(s);
    if (!s->has_want) {
        s->want_loss = s->loss;
        s->want_slope = s->slope;
        s->has_want = true;
    }
    assert_near(s->loss, s->want_loss, 0);
    assert_near(s->slope, s->want_slope, 0);
}

static void a_pass_runs_no_kernel_of_ref(void **state)
{
    scene s = {.row = *state};
    lt_tensor *loss = NULL;
#if !defined(FAULT_ONEDNN)
    skip(); /* some forms of convolutions are left to ref */
#endif
    begin(&s);
    ref_calls = 0;
    assert_ok(run(&s, &loss));
    const int calls = ref_calls;
    end(&s);
    assert_int_equal(calls, 0);
}

static void a_pass_that_fails_says_so(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .open = begin,
                          .act = pass,
                          .after = after_pass,
                          .close = end,
                          .context = &s,
                          .least = 30};
    (void)faults_each(&c);
}

/* --- Made --- */

static lt_status act_make(void *context)
{
    scene *s = context;
    LT_TRY(s->row->make(&s->model, s->device));
    return lt_module_params(s->model, &s->params);
}

static void begin_make(void *context)
{
    scene *s = context;
    open_device(s);
    faults_attach(s->device);
}

static void after_make(void *context, lt_status st)
{
    scene *s = context;
    if (!st)
        assert_true(s->params.count > 5);
}

static void a_model_that_cannot_be_made_is_none(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .kinds = FAULT_KERNEL | FAULT_MEMORY,
                          .open = begin_make,
                          .act = act_make,
                          .after = after_make,
                          .close = end,
                          .context = &s,
                          .least = 30};
    (void)faults_each(&c);
}

int main(void)
{
    enum { ROWS = COUNT_OF(rows) };
    static char name[ROWS][64];
    struct CMUnitTest tests[2 * ROWS]; /* with those made, or with own kernels */
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++) {
        void *of = (void *)(uintptr_t)&rows[i];
        tests[count++] =
            (struct CMUnitTest){rows[i].name, a_pass_that_fails_says_so, NULL, NULL, of};
        if (!strcmp(rows[i].device, "cpu")) {
            snprintf(name[i], sizeof name[i], "own kernels: %s", rows[i].name);
            tests[count++] =
                (struct CMUnitTest){name[i], a_pass_runs_no_kernel_of_ref, NULL, NULL, of};
        }
        if (strcmp(rows[i].device, "ref") != 0 || rows[i].synced)
            continue;
        snprintf(name[i], sizeof name[i], "made: %s", rows[i].name);
        tests[count++] =
            (struct CMUnitTest){name[i], a_model_that_cannot_be_made_is_none, NULL, NULL, of};
    }
    return faults_run("faults in a model's pass", tests, count, NULL, NULL);
}
