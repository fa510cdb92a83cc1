/* Layers of transformers: gradients of every parameter by central differences in double, a cache against the
 * whole sequence, the first row alone against all rows, names and shapes, and rejected inputs. */

#include "lather/transformer.h"

#include "base/alloc.h"
#include "near.h"

#include "lather/embedding_layers.h"
#include "lather/layers.h"
#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, ROWS = 5, WIDTH = 8, COUNT = BATCH * ROWS * WIDTH };

typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_module *net;
    lt_params params;
    lt_tensor *x;
} scene;

/* Numbers between -1 and 1 without a relevant pattern. */
static double number(size_t i)
{
    return (double)((i * 2654435761U + 12345U) % 2000003U) / 1000001.5 - 1;
}

static void write_numbers(lt_tensor *t, size_t first, double scale, double shift)
{
    const size_t count = (size_t)lt_tensor_count(t);
    double *host = malloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++)
        host[i] = scale * number(first + i) + shift;
    assert_ok(lt_tensor_write(t, host, count * sizeof *host));
    free(host);
}

static void open_net(scene *s, lt_module *net, lt_shape shape)
{
    s->net = net;
    assert_ok(lt_module_params(s->net, &s->params));
    for (size_t i = 0; i < s->params.count; i++) {
        const lt_param *p = s->params.item[i];
        write_numbers(p->value, 1000 * (i + 1), 0.4, p->role == LT_PARAM_NORM ? 0.9 : 0);
    }
    assert_ok(lt_tape_new(&s->tape, s->device));
    assert_ok(lt_tensor_new(&s->x, s->device, LT_F64, shape));
    write_numbers(s->x, 77, 1, 0);
}

static void open_device(scene *s)
{
    *s = (scene){0};
    assert_ok(lt_device_open(&s->device, "ref", &(lt_device_config){.f64 = true}));
}

static void open_block(scene *s, lt_transformer_config config)
{
    lt_module *net = NULL;
    open_device(s);
    assert_ok(lt_layer_transformer(&net, s->device, "block", config));
    open_net(s, net, LT_SHAPE(BATCH, ROWS, WIDTH));
}

static void close_scene(scene *s)
{
    lt_params_clear(&s->params);
    lt_module_free(&s->net);
    lt_tape_free(&s->tape);
    lt_tensor_free(&s->x);
    lt_device_close(&s->device);
}

/* --- Gradients --- */

typedef lt_tensor *forward_fn(lt_module *net, lt_tape *tape, lt_tensor *x);

/* Sum of y^2 times a fixed number per row: a gradient in every element. */
static lt_tensor *loss_of(scene *s, forward_fn *forward, bool record)
{
    lt_tape_reset(s->tape, (lt_pass){.record = record, .dtype = LT_F64});
    lt_tensor *x = record ? lt_tape_variable(s->tape, s->x) : s->x;
    lt_tensor *y = forward(s->net, s->tape, x);
    lt_tensor *l = lt_sum(s->tape, lt_mul(s->tape, y, lt_exp(s->tape, y)), (lt_reduce_config){0});
    assert_ok(lt_tape_status(s->tape));
    return l;
}

static double loss_at(scene *s, forward_fn *forward)
{
    double value;
    assert_ok(lt_tensor_item(loss_of(s, forward, false), &value));
    return value;
}

/* Largest distance of a parameter's gradient from central differences, relative to 1 + its magnitude. */
static double gradient_distance(scene *s, forward_fn *forward, lt_param *p, double factor)
{
    const double h = 1e-5;
    const size_t bytes = lt_tensor_bytes(p->value);
    double *value = malloc(bytes), *grad = malloc(bytes), far = 0;
    assert_ok(lt_tensor_read(p->value, value, bytes));
    assert_ok(lt_tensor_read(p->grad, grad, bytes));
    for (int64_t i = 0; i < lt_tensor_count(p->value); i++) {
        const double kept = value[i];
        double side[2];
        for (int k = 0; k < 2; k++) {
            value[i] = kept + (k ? -h : h);
            assert_ok(lt_tensor_write(p->value, value, bytes));
            side[k] = loss_at(s, forward);
        }
        value[i] = kept;
        const double want = (side[0] - side[1]) / (2 * h);
        far = fmax(far, fabs(factor * grad[i] - want) / (1 + fabs(want)));
    }
    assert_ok(lt_tensor_write(p->value, value, bytes));
    free(value);
    free(grad);
    return far;
}

static void check_gradients(scene *s, forward_fn *forward)
{
    const double bound = 1e-7;
    lt_params_zero_grad(&s->params);
    assert_ok(lt_tape_backward(s->tape, loss_of(s, forward, true), 1));
    for (size_t i = 0; i < s->params.count; i++) {
        double far = gradient_distance(s, forward, s->params.item[i], 1);
        if (!(far <= bound))
            fail_msg("%s: %g away, allowed %g", s->params.item[i]->name, far, bound);
    }
    /* control: a gradient that is 1 % too large */
    assert_true(gradient_distance(s, forward, s->params.item[0], 1.01) > bound);
}

typedef struct block_row {
    const char *name;
    lt_transformer_config config;
    int params;
} block_row;

static const block_row blocks[] = {
    {"an encoder's block, as ViT has it",
     {.width = WIDTH, .heads = 2, .bias = true, .hidden = 12, .norm = {.eps = 1e-6}},
     12},
    {"a decoder's block, as GPT-2 has it",
     {.width = WIDTH,
      .heads = 4,
      .bias = true,
      .hidden = 10,
      .causal = true,
      .in_out = true,
      .mlp = LT_MLP_GELU_TANH,
      .names = LT_TRANSFORMER_GPT2},
     12},
    {"a decoder's block, as Llama has it",
     {.width = WIDTH,
      .heads = 4,
      .kv_heads = 2,
      .hidden = 6,
      .causal = true,
      .norm = {.rms = true},
      .mlp = LT_MLP_SWIGLU,
      .rotary = 100},
     7},
};

static void check_block(void **state)
{
    const block_row *row = *state;
    scene s;
    open_block(&s, row->config);
    assert_int_equal(s.params.count, row->params);
    check_gradients(&s, lt_module_forward);
    close_scene(&s);
}

static void the_first_row_alone_has_the_same_gradients(void **state)
{
    (void)state;
    scene s;
    open_block(&s, blocks[0].config);
    check_gradients(&s, lt_transformer_forward_first);
    close_scene(&s);
}

static lt_tensor *embed(lt_module *net, lt_tape *tape, lt_tensor *x)
{
    return lt_module_forward(net, tape, x);
}

static void patches_token_and_positions_have_gradients(void **state)
{
    enum { CHANNELS = 2, PATCH = 2, SIDE = 4 };
    (void)state;
    scene s;
    lt_module *chain = NULL, *layer = NULL;
    open_device(&s);
    assert_ok(lt_layer_sequential(&chain));
    lt_patch_embedding_layer patches = {CHANNELS, WIDTH, PATCH, NULL};
    assert_ok(lt_layer_patch_embedding(&layer, s.device, "conv_proj", patches));
    assert_ok(lt_sequential_add(chain, &layer));
    assert_ok(lt_layer_class_token(&layer, s.device, "class_token", WIDTH));
    assert_ok(lt_sequential_add(chain, &layer));
    lt_positions_layer positions = {.rows = 7, .width = WIDTH, .batched = true};
    assert_ok(lt_layer_positions(&layer, s.device, "pos", positions));
    assert_ok(lt_sequential_add(chain, &layer));
    open_net(&s, chain, LT_SHAPE(BATCH, CHANNELS, SIDE, SIDE));
    check_gradients(&s, embed);
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    lt_tensor *y = lt_module_forward(s.net, s.tape, s.x);
    assert_true(lt_shape_equal(lt_tensor_shape(y), LT_SHAPE(BATCH, 5, WIDTH)));
    close_scene(&s);
}

/* --- Results --- */

static void read_rows(lt_tensor *y, double *host)
{
    assert_non_null(y);
    assert_ok(lt_tensor_read(y, host, lt_tensor_bytes(y)));
}

static void the_first_row_is_that_of_all_rows(void **state)
{
    (void)state;
    scene s;
    double all[COUNT], first[BATCH * WIDTH];
    open_block(&s, blocks[0].config);
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    read_rows(lt_module_forward(s.net, s.tape, s.x), all);
    read_rows(lt_transformer_forward_first(s.net, s.tape, s.x), first);
    for (int b = 0; b < BATCH; b++)
        for (int c = 0; c < WIDTH; c++)
            assert_near(first[b * WIDTH + c], all[b * ROWS * WIDTH + c], 1e-13);
    close_scene(&s);
}

/* Runs rows [from,to) of s->x through the cache, into got. */
static void run_cached(scene *s, lt_kv_cache *cache, int from, int to, double *got)
{
    double part[COUNT];
    lt_tape_reset(s->tape, LT_PASS_EVAL);
    lt_tensor *x = lt_slice(s->tape, s->x, 1, from, to - from);
    read_rows(lt_transformer_forward_cached(s->net, s->tape, x, cache, 0), part);
    for (int b = 0; b < BATCH; b++)
        memcpy(got + (b * ROWS + from) * WIDTH, part + (size_t)(b * (to - from) * WIDTH),
               (size_t)(to - from) * WIDTH * sizeof *got);
}

static double apart(const double *a, const double *b)
{
    double far = 0;
    for (int i = 0; i < COUNT; i++)
        far = fmax(far, fabs(a[i] - b[i]));
    return far;
}

static lt_kv_cache_config cache_config(const lt_transformer_config *c)
{
    const int kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    return (lt_kv_cache_config){.layers = 1,
                                .batch = BATCH,
                                .capacity = ROWS,
                                .width = kv_heads * c->width / c->heads,
                                .dtype = LT_F64};
}

static void check_cache(void **state)
{
    const block_row *row = *state;
    scene s;
    lt_kv_cache *cache = NULL;
    double want[COUNT], got[COUNT];
    open_block(&s, row->config);
    assert_ok(lt_kv_cache_new(&cache, s.device, cache_config(&row->config)));
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    read_rows(lt_module_forward(s.net, s.tape, s.x), want);
    for (int prompt = 1; prompt <= ROWS; prompt++) { /* a prompt at once, then row by row */
        lt_kv_cache_truncate(cache, 0);
        run_cached(&s, cache, 0, prompt, got);
        for (int t = prompt; t < ROWS; t++)
            run_cached(&s, cache, t, t + 1, got);
        assert_int_equal(lt_kv_cache_count(cache, 0), ROWS);
        assert_near(apart(got, want), 0, 1e-13);
    }
    lt_kv_cache_truncate(cache, 2); /* and again from row 2 on */
    run_cached(&s, cache, 2, ROWS, got);
    assert_near(apart(got, want), 0, 1e-13);
    lt_kv_cache_truncate(cache, 1); /* control: a row is missing */
    run_cached(&s, cache, 2, ROWS, got);
    assert_true(apart(got, want) > 1e-6);
    lt_kv_cache_free(&cache);
    close_scene(&s);
}

static void weights_stored_in_out_give_equal_results(void **state)
{
    (void)state;
    lt_transformer_config config = blocks[1].config;
    scene a, b;
    double want[COUNT], got[COUNT], host[WIDTH * 32], turned[WIDTH * 32];
    open_block(&a, config);
    config.in_out = false;
    open_block(&b, config);
    for (size_t i = 0; i < a.params.count; i++) {
        const lt_shape in = lt_tensor_shape(a.params.item[i]->value);
        const int64_t rows = in.ndim == 2 ? in.dim[0] : 1, columns = in.dim[in.ndim - 1];
        read_rows(a.params.item[i]->value, host);
        for (int64_t k = 0; k < rows * columns; k++)
            turned[k % columns * rows + k / columns] = host[k];
        assert_ok(lt_tensor_write(b.params.item[i]->value, turned,
                                  lt_tensor_bytes(b.params.item[i]->value)));
        assert_int_equal(a.params.item[i]->fan_in, b.params.item[i]->fan_in);
    }
    lt_tape_reset(a.tape, LT_PASS_EVAL);
    lt_tape_reset(b.tape, LT_PASS_EVAL);
    read_rows(lt_module_forward(a.net, a.tape, a.x), want);
    read_rows(lt_module_forward(b.net, b.tape, b.x), got);
    assert_near(apart(got, want), 0, 1e-13);
    close_scene(&a);
    close_scene(&b);
}

static void positions_begin_at_the_given_row(void **state)
{
    enum { MOST = 7 };
    (void)state;
    scene s;
    lt_module *net = NULL;
    double x[COUNT], w[MOST * WIDTH], got[COUNT];
    open_device(&s);
    assert_ok(lt_layer_positions(&net, s.device, "wpe",
                                 (lt_positions_layer){.rows = MOST, .width = WIDTH}));
    open_net(&s, net, LT_SHAPE(BATCH, ROWS, WIDTH));
    assert_string_equal(s.params.item[0]->name, "wpe.weight");
    read_rows(s.x, x);
    read_rows(s.params.item[0]->value, w);
    for (int first = 0; first <= MOST - ROWS; first++) {
        lt_tape_reset(s.tape, LT_PASS_EVAL);
        read_rows(lt_positions_forward(s.net, s.tape, s.x, first), got);
        for (int i = 0; i < COUNT; i++)
            assert_near(got[i], x[i] + w[first * WIDTH + i % (ROWS * WIDTH)], 1e-15);
    }
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_positions_forward(s.net, s.tape, s.x, MOST - ROWS + 1));
    assert_fails(lt_tape_status(s.tape), LT_E_SHAPE,
                 "wpe.weight: a sequence of 5 from position 3 exceeds 7");
    close_scene(&s);
}

static void names_are_torchvisions_and_gpt2s(void **state)
{
    static const char *const want[2][12] = {
        {"block.ln_1.weight", "block.ln_1.bias", "block.self_attention.in_proj_weight",
         "block.self_attention.in_proj_bias", "block.self_attention.out_proj.weight",
         "block.self_attention.out_proj.bias", "block.ln_2.weight", "block.ln_2.bias",
         "block.mlp.0.weight", "block.mlp.0.bias", "block.mlp.3.weight", "block.mlp.3.bias"},
        {"block.ln_1.weight", "block.ln_1.bias", "block.attn.c_attn.weight",
         "block.attn.c_attn.bias", "block.attn.c_proj.weight", "block.attn.c_proj.bias",
         "block.ln_2.weight", "block.ln_2.bias", "block.mlp.c_fc.weight", "block.mlp.c_fc.bias",
         "block.mlp.c_proj.weight", "block.mlp.c_proj.bias"},
    };
    (void)state;
    for (int k = 0; k < 2; k++) {
        scene s;
        open_block(&s, blocks[k].config);
        for (size_t i = 0; i < s.params.count; i++)
            assert_string_equal(s.params.item[i]->name, want[k][i]);
        close_scene(&s);
    }
}

/* --- Rejected inputs --- */

typedef struct refused_row {
    const char *name, *says;
    lt_transformer_config config;
} refused_row;

static const refused_row refused[] = {
    {"heads that do not divide the width",
     "3 heads do not divide the width, 8",
     {.width = WIDTH, .heads = 3}},
    {"no heads", "0 heads do not divide the width, 8", {.width = WIDTH}},
    {"heads of k and v that do not divide those of q",
     "3 heads of k and v do not divide the 4",
     {.width = WIDTH, .heads = 4, .kv_heads = 3}},
    {"rotary positions of odd heads",
     "heads of even size, got 1",
     {.width = WIDTH, .heads = WIDTH, .rotary = 100}},
    {"all branches dropped", "drop_path is 1", {.width = WIDTH, .heads = 2, .drop_path = 1}},
    {"no width of the MLP",
     "width 8, hidden -1; both must be >= 1",
     {.width = WIDTH, .heads = 2, .hidden = -1}},
    {"heads of k and v that do not divide by the ranks",
     "1 heads of k and v are not divisible by 2 ranks; use 2",
     {.width = WIDTH,
      .heads = 4,
      .kv_heads = 1,
      .hidden = WIDTH,
      .parallel = &(lt_tensor_parallel){.row = &(lt_process_group){.size = 2}}}},
    {"all dropped out", "dropout is 1", {.width = WIDTH, .heads = 2, .dropout = 1}},
};

static void check_refused(void **state)
{
    const refused_row *row = *state;
    scene s;
    lt_module *net = NULL;
    open_device(&s);
    assert_fails(lt_layer_transformer(&net, s.device, "block", row->config), LT_E_ARG, row->says);
    assert_null(net);
    close_scene(&s);
}

static void a_cache_is_for_decoders_that_fit_and_do_not_record(void **state)
{
    (void)state;
    scene s;
    lt_kv_cache *cache = NULL;
    lt_transformer_config config = blocks[1].config;
    lt_kv_cache_config small = cache_config(&config);
    open_block(&s, config);
    small.capacity = ROWS - 1;
    assert_ok(lt_kv_cache_new(&cache, s.device, small));
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_transformer_forward_cached(s.net, s.tape, s.x, cache, 0));
    assert_fails(lt_tape_status(s.tape), LT_E_SHAPE, "0 tokens and 5 more exceed the capacity 4");
    lt_tape_reset(s.tape, LT_PASS_TRAIN);
    assert_null(lt_transformer_forward_cached(s.net, s.tape, s.x, cache, 0));
    assert_fails(lt_tape_status(s.tape), LT_E_ARG, "a pass that does not record");
    assert_int_equal(lt_kv_cache_count(cache, 0), 0);
    lt_kv_cache_free(&cache);
    close_scene(&s);
    open_block(&s, blocks[0].config);
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_transformer_forward_cached(s.net, s.tape, s.x, NULL, 0));
    assert_fails(lt_tape_status(s.tape), LT_E_ARG, "causal");
    small.layers = 0;
    lt_kv_cache *none = NULL;
    assert_fails(lt_kv_cache_new(&none, s.device, small), LT_E_ARG, "0 layers");
    close_scene(&s);
}

static void a_cache_takes_rows_of_its_shape(void **state)
{
    (void)state;
    scene s;
    lt_kv_cache *cache = NULL;
    const lt_transformer_config config = blocks[1].config;
    lt_kv_cache_config other = cache_config(&config);
    open_block(&s, config);
    other.batch = BATCH + 1;
    assert_ok(lt_kv_cache_new(&cache, s.device, other));
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_transformer_forward_cached(s.net, s.tape, s.x, cache, 0));
    assert_fails(lt_tape_status(s.tape), LT_E_SHAPE, "kv_cache: rows [");
    lt_kv_cache_free(&cache);
    close_scene(&s);
}

/* A group of one rank: nothing is sent. */
static void sharded_blocks_need_the_number_of_rows(void **state)
{
    (void)state;
    scene s;
    lt_process_group one = {.size = 1};
    const lt_tensor_parallel parallel = {.row = &one, .model = &one, .sequence = true};
    lt_transformer_config config = blocks[1].config;
    config.parallel = &parallel;
    open_block(&s, config);
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_module_forward(s.net, s.tape, s.x));
    assert_fails(lt_tape_status(s.tape), LT_E_ARG,
                 "transformer: rows are sharded; call lt_transformer_forward_rows()");
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_transformer_forward_cached(s.net, s.tape, s.x, NULL, 0));
    assert_fails(lt_tape_status(s.tape), LT_E_UNSUPPORTED,
                 "transformer: a cache does not support sharded blocks");
    one.size = 2;
    lt_module *layer = NULL;
    const lt_attention_layer heads = {
        .width = WIDTH, .heads = 4, .kv_heads = 1, .parallel = &parallel};
    assert_fails(lt_layer_attention(&layer, s.device, "self", heads), LT_E_ARG,
                 "attention self: 4 heads and 1 kv_heads are not divisible by 2 ranks");
    one.size = 1;
    close_scene(&s);
}

static void image_sizes_must_be_multiples_of_the_patch(void **state)
{
    (void)state;
    scene s;
    lt_module *net = NULL;
    open_device(&s);
    assert_ok(lt_layer_patch_embedding(&net, s.device, "conv_proj",
                                       (lt_patch_embedding_layer){1, WIDTH, 4, NULL}));
    open_net(&s, net, LT_SHAPE(BATCH, 1, 8, 10));
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_null(lt_module_forward(s.net, s.tape, s.x));
    assert_fails(lt_tape_status(s.tape), LT_E_SHAPE,
                 "images of 8x10 pixels, want multiples of the patch, 4");
    close_scene(&s);
}

/* A block, its cache and a pass through both, with the n-th allocation failing, until all succeed. */
static lt_status try_sampling(scene *s, lt_transformer_config config)
{
    lt_kv_cache *cache = NULL;
    lt_status st = lt_layer_transformer(&s->net, s->device, "block", config);
    if (!st)
        st = lt_kv_cache_new(&cache, s->device, cache_config(&config));
    if (!st) {
        lt_tape_reset(s->tape, LT_PASS_EVAL);
        (void)lt_transformer_forward_cached(s->net, s->tape, s->x, cache, 0);
        st = lt_tape_status(s->tape);
        lt_tape_reset(s->tape, LT_PASS_EVAL);
    }
    lt_kv_cache_free(&cache);
    lt_module_free(&s->net);
    return st;
}

static void failed_allocations_leave_no_memory(void **state)
{
    (void)state;
    scene s;
    int failures = 0;
    open_block(&s, blocks[2].config);
    lt_params_clear(&s.params);
    lt_module_free(&s.net);
    for (lt_status st = LT_E_NOMEM; st; failures += st != LT_OK) {
        lt_alloc_fail_at(failures + 1);
        st = try_sampling(&s, blocks[2].config);
        lt_alloc_fail_at(0);
        assert_true(!st || st == LT_E_NOMEM);
    }
    assert_true(failures
                >= 30); /* seven parameters: at least struct, name, value and gradient each */
    close_scene(&s);
}

enum { MOST_TESTS = 40 };

static size_t add(struct CMUnitTest *tests, size_t n, const char *name, CMUnitTestFunction test,
                  const void *row)
{
    union {
        const void *row;
        void *state;
    } u = {row};
    tests[n] = (struct CMUnitTest){name, test, NULL, NULL, u.state};
    return n + 1;
}

int main(void)
{
    struct CMUnitTest tests[MOST_TESTS] = {
        cmocka_unit_test(the_first_row_alone_has_the_same_gradients),
        cmocka_unit_test(patches_token_and_positions_have_gradients),
        cmocka_unit_test(the_first_row_is_that_of_all_rows),
        cmocka_unit_test(weights_stored_in_out_give_equal_results),
        cmocka_unit_test(positions_begin_at_the_given_row),
        cmocka_unit_test(names_are_torchvisions_and_gpt2s),
        cmocka_unit_test(a_cache_is_for_decoders_that_fit_and_do_not_record),
        cmocka_unit_test(a_cache_takes_rows_of_its_shape),
        cmocka_unit_test(sharded_blocks_need_the_number_of_rows),
        cmocka_unit_test(image_sizes_must_be_multiples_of_the_patch),
        cmocka_unit_test(failed_allocations_leave_no_memory),
    };
    static char cached[COUNT_OF(blocks)][96];
    size_t n = 11;
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        snprintf(cached[i], sizeof cached[i], "a cache: %s", blocks[i].name);
        n = add(tests, n, blocks[i].name, check_block, &blocks[i]);
        if (blocks[i].config.causal)
            n = add(tests, n, cached[i], check_cache, &blocks[i]);
    }
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        n = add(tests, n, refused[i].name, check_refused, &refused[i]);
    return _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
}
