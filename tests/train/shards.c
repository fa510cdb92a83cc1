/* A reproducible run has the same weights, optimizer state, averages and numbers for any split of its shards over
 * ranks and micro-batches. A rank is a thread. */

#include "base/encoding/sha256.h"
#include "joined.h"
#include "train/classify/task.h"
#include "train/language/task.h"
#include "training.h"

#include "lather/embedding_layers.h"
#include "lather/shampoo.h"
#include "lather/shard.h"
#include "lather/tokens.h"
#include "lather/transformer.h"

enum { RANKS = 6, CLASSES = 5, WIDTH = 8, LENGTH = 6, NUMBERS = 200 };

typedef enum method { SGD, ADAMW, SHAMPOO } method;

typedef struct plan {
    const char *name;
    int ranks, accum;
    method method;
    bool text, in_default_mode, f64;
    const lt_straggler_config *stragglers;
    const char *refusal; /* the error's text; NULL: none */
} plan;

typedef struct rank {
    training run;
    const plan *plan;
    lt_dataset *held_out;
    classification images;
    language_model language;
    lt_train_hooks hooks;
    double number[NUMBERS];
    int numbers;
} rank;

/* Hashes of the numbers of a step's and an epoch's record and of the last checkpoint's files. */
typedef struct record {
    uint8_t numbers[LT_SHA256_BYTES], weights[LT_SHA256_BYTES], optimizer[LT_SHA256_BYTES];
} record;

static rank ranks[RANKS];

static lt_status keep_numbers(void *context, const lt_train_view *view, bool *stop)
{
    static const char *const kept[] = {"loss",     "gradient_norm", "noise_scale", "train_loss",
                                       "val_loss", "val_top5",      "val_accuracy"};
    rank *r = context;
    *stop = false;
    for (size_t i = 0; i < COUNT_OF(kept) && r->numbers < NUMBERS; i++) {
        const double value = lt_train_view_metric(view, kept[i]);
        if (value == value)
            r->number[r->numbers++] = value;
    }
    return LT_OK;
}

static lt_status make_net(training *t, bool text, int classes)
{
    const lt_conv2d_layer conv = {.in = 3, .out = WIDTH, .kernel = 3, .pad = 1};
    const lt_transformer_config block = {
        .width = WIDTH, .heads = 2, .causal = true, .bias = true, .dropout = 0.1, .drop_path = 0.1};
    lt_device *d = t->at.device;
    lt_module *layer[5] = {NULL};
    int count = 0;
    if (text) {
        LT_TRY(lt_layer_embedding(&layer[count++], d, "tokens", classes, WIDTH));
        LT_TRY(lt_layer_transformer(&layer[count++], d, "block", block));
    } else {
        LT_TRY(lt_layer_conv2d(&layer[count++], d, "conv", conv));
        LT_TRY(lt_layer_batchnorm2d(&layer[count++], d, "norm", WIDTH, (lt_batchnorm2d_config){0}));
        LT_TRY(lt_layer_avgpool2d(&layer[count++], (lt_pool2d_config){0}));
        LT_TRY(lt_layer_flatten(&layer[count++]));
    }
    LT_TRY(lt_layer_linear(&layer[count++], d, "head", WIDTH, classes, true));
    return make_chain(t, layer, count);
}

static lt_status open_data(lt_dataset **out, const plan *p, bool train)
{
    const lt_tokens_config c = {.length = LENGTH, .tokenizer = "char", .val_fraction = 0.15};
    char path[TEMP_PATH];
    return p->text ? lt_dataset_tokens(out, temp_path(path, folder, "text"), &c, train)
                   : lt_dataset_synthetic(out, train ? 51 : 37, 12, 3, CLASSES);
}

static lt_status open_optim(training *t, method kind)
{
    lt_shampoo_config shampoo = LT_SHAMPOO_DEFAULTS;
    lt_adam_config adam = LT_ADAM_DEFAULTS;
    const lt_sgd_config sgd = {.momentum = 0.9};
    const lt_shard_config shard = {.comm = t->at.comm};
    adam.decoupled = true;
    shampoo.precondition_frequency = 2;
    shampoo.max_preconditioner_dim = 6;
    LT_TRY(kind == SGD     ? lt_optim_sgd(&t->optim, &t->params, &sgd)
           : kind == ADAMW ? lt_optim_adam(&t->optim, &t->params, &adam)
                           : lt_optim_shampoo(&t->optim, &t->params, &shampoo));
    return t->at.comm ? lt_optim_shard(t->optim, &shard) : LT_OK;
}

static lt_status run(void *context)
{
    rank *r = context;
    training *t = &r->run;
    const plan *p = r->plan;
    LT_TRY(open_data(&t->data, p, true));
    LT_TRY(open_data(&r->held_out, p, false));
    const int classes = lt_dataset_classes(t->data);
    LT_TRY(make_net(t, p->text, classes));
    LT_TRY(open_optim(t, p->method));
    r->images = (classification){.model = t->model, .pixels = LT_NORMALIZE_IMAGENET};
    r->language = (language_model){.model = t->model, .length = LENGTH, .classes = classes};
    r->hooks = (lt_train_hooks){
        .name = "numbers", .context = r, .after_step = keep_numbers, .after_epoch = keep_numbers};
    lt_train_config *c = &t->config;
    char name[32], path[TEMP_PATH];
    snprintf(name, sizeof name, "%dx%d", p->ranks, p->accum);
    *c = configure(t, &lt_language_task, NULL);
    c->output = temp_path(path, folder, name);
    c->task.context = &r->language;
    if (!p->text) {
        c->task = (lt_task){&lt_classification_task, &r->images};
        c->loader.transform = (lt_transform){.augment = LT_AUGMENT_SMALL, .size = 8, .flip = 0.5};
        c->loader.mix = (lt_mix){.mixup_alpha = 0.3, .cutmix_alpha = 1};
    }
    c->loader.batch = 2;
    c->val = r->held_out;
    c->grad_accum = p->accum;
    c->schedule = (lt_schedule){.kind = LT_SCHEDULE_COSINE, .lr = 0.05, .epochs = 2};
    c->clip_norm = 0.5;
    c->ema_decay = 0.8;
    c->eval_every = 1;
    c->stragglers = p->stragglers;
    c->gradient_noise = true;
    c->hooks = &r->hooks;
    return run_training(t);
}

static void end(void *context)
{
    close_training(context);
    lt_dataset_free(&((rank *)context)->held_out);
}

static void hash_file(uint8_t out[LT_SHA256_BYTES], const plan *p, const char *name)
{
    char under[64], run_path[TEMP_PATH], path[TEMP_PATH];
    size_t bytes;
    snprintf(under, sizeof under, "%dx%d", p->ranks, p->accum);
    char *file =
        temp_read(joined(path, temp_path(run_path, folder, under), name, "joined"), &bytes);
    lt_sha256(out, file, bytes);
    free(file);
}

static void run_ranks_of(const plan *p)
{
    const lt_device_config config = {
        .threads = 1, .reproducible = !p->in_default_mode, .f64 = p->f64};
    char text[400], path[TEMP_PATH];
    const rank_group g = {RANKS_OF(ranks, p->ranks), .without_comm = p->ranks == 1, .run = run,
                          .end = end};
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + (i * i / 3 + 5 * i) % 7);
    temp_write(temp_path(path, folder, "text"), text, sizeof text);
    for (int i = 0; i < p->ranks; i++) {
        ranks[i] = (rank){.plan = p};
        assert_ok(lt_device_open(&ranks[i].run.at.device, "cpu", &config));
    }
    play_ranks(&g);
    if (p->refusal)
        assert_non_null(strstr(ranks[0].run.at.message, p->refusal));
    else
        expect_ranks(&g);
    for (int i = 0; i < p->ranks; i++)
        lt_device_close(&ranks[i].run.at.device);
}

static record run_split(plan p, const int split[2])
{
    p.ranks = split[0];
    p.accum = split[1];
    run_ranks_of(&p);
    assert_in_range(ranks[0].numbers, 30, NUMBERS - 1);
    record hashes;
    lt_sha256(hashes.numbers, ranks[0].number, sizeof ranks[0].number);
    hash_file(hashes.weights, &p, "model.safetensors");
    hash_file(hashes.optimizer, &p, "optim.safetensors");
    return hashes;
}

/* --- Rows --- */

static void any_split_is_the_same(void **state)
{
    const plan *p = *state;
    const int base = p->f64 ? 6 : 4; /* shards */
    const record one = run_split(*p, (int[]){1, base}), two = run_split(*p, (int[]){2, base / 2}),
                 all = run_split(*p, (int[]){base, 1});
    assert_memory_equal(&two, &one, sizeof one);
    assert_memory_equal(&all, &one, sizeof one);
}

/* Control: in the default mode another split has other samples in a batch. */
static void splits_differ_in_the_default_mode(void **state)
{
    const plan p = {.in_default_mode = true};
    const record a = run_split(p, (int[]){1, 4}), b = run_split(p, (int[]){2, 2});
    (void)state;
    assert_memory_not_equal(a.numbers, b.numbers, sizeof a.numbers);
    assert_memory_not_equal(a.weights, b.weights, sizeof a.weights);
    assert_memory_not_equal(a.optimizer, b.optimizer, sizeof a.optimizer);
}

static void sums_without_a_fixed_order_are_refused(void **state)
{
    const lt_straggler_config backup = {.backup_workers = 1};
    (void)state;
    run_ranks_of(&(plan){.ranks = 3, .accum = 2, .refusal = "train: 3 ranks with 2 micro-batches"});
    run_ranks_of(&(plan){.ranks = 2,
                         .accum = 1,
                         .stragglers = &backup,
                         .refusal = "but with backup workers or a deadline results depend"});
}

int main(void)
{
    static plan list[] = {{"images, sgd", .method = SGD},
                          {"images, adamw", .method = ADAMW, .f64 = true},
                          {"images, shampoo", .method = SHAMPOO},
                          {"text, sgd", .method = SGD, .text = true},
                          {"text, adamw", .method = ADAMW, .text = true},
                          {"text, shampoo", .method = SHAMPOO, .text = true}};
    struct CMUnitTest rows[COUNT_OF(list) + 2] = {
        cmocka_unit_test_setup_teardown(splits_differ_in_the_default_mode, temp_setup,
                                        temp_teardown),
        cmocka_unit_test_setup_teardown(sums_without_a_fixed_order_are_refused, temp_setup,
                                        temp_teardown)};
    for (size_t i = 0; i < COUNT_OF(list); i++)
        rows[2 + i] = (struct CMUnitTest){list[i].name, any_split_is_the_same, temp_setup,
                                          temp_teardown, &list[i]};
    return cmocka_run_group_tests_name("shards of a step", rows, NULL, NULL);
}
