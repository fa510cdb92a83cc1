/* A reproducible run has the same weights, optimizer state, averages and numbers for any split of its shards over
 * ranks and micro-batches. A rank is a thread. */

#include "train/classify/task.h"
#include "train/language/task.h"
#include "training.h"

#include "lather/embedding_layers.h"
#include "lather/shampoo.h"
#include "lather/shard.h"
#include "lather/tokens.h"
#include "lather/transformer.h"

enum { BATCH = 2, RANKS = 6, SIDE = 8, CLASSES = 5, WIDTH = 8, LENGTH = 6, NUMBERS = 200 };
enum { IMAGES = 51, HELD_OUT = 13, FILES = 2 };

typedef enum method { SGD, ADAMW, SHAMPOO, METHODS } method;

typedef struct plan {
    int ranks, accum;
    method method;
    bool text, in_default_mode, noise;
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

static rank ranks[RANKS];

/* Files of a run's last checkpoint. */
typedef struct record {
    char *file[FILES];
    size_t bytes[FILES];
    double number[NUMBERS];
    int numbers;
} record;

static lt_status keep_numbers(void *context, const lt_train_view *view, bool *stop)
{
    static const char *const kept[] = {"loss",        "top1",       "accuracy",    "gradient_norm",
                                       "noise_scale", "train_loss", "train_top1",  "val_loss",
                                       "val_top1",    "val_top5",   "val_accuracy"};
    rank *r = context;
    (void)stop;
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        const double value = lt_train_view_metric(view, kept[i]);
        assert_true(r->numbers < NUMBERS);
        r->number[r->numbers++] = value != value ? -1 : value;
    }
    return LT_OK;
}

static lt_status make_images_net(training *t)
{
    const lt_conv2d_layer first = {.in = 3, .out = WIDTH, .kernel = 3, .pad = 1};
    const lt_conv2d_layer second = {.in = WIDTH, .out = WIDTH, .kernel = 3, .stride = 2};
    const lt_batchnorm2d_config norm = {.relu = true};
    lt_device *d = t->at.device;
    lt_module *layer[8] = {NULL};
    LT_TRY(lt_layer_conv2d(&layer[0], d, "conv1", first));
    LT_TRY(lt_layer_batchnorm2d(&layer[1], d, "norm1", WIDTH, norm));
    LT_TRY(lt_layer_conv2d(&layer[2], d, "conv2", second));
    LT_TRY(lt_layer_batchnorm2d(&layer[3], d, "norm2", WIDTH, norm));
    LT_TRY(lt_layer_avgpool2d(&layer[4], (lt_pool2d_config){0}));
    LT_TRY(lt_layer_flatten(&layer[5]));
    LT_TRY(lt_layer_dropout(&layer[6], 0.1));
    LT_TRY(lt_layer_linear(&layer[7], d, "fc", WIDTH, CLASSES, true));
    return make_chain(t, layer, COUNT_OF(layer));
}

static lt_status make_text_net(training *t, int ids)
{
    const lt_transformer_config block = {
        .width = WIDTH, .heads = 2, .causal = true, .bias = true, .dropout = 0.1, .drop_path = 0.1};
    lt_module *layer[3] = {NULL};
    LT_TRY(lt_layer_embedding(&layer[0], t->at.device, "tokens", ids, WIDTH));
    LT_TRY(lt_layer_transformer(&layer[1], t->at.device, "block", block));
    LT_TRY(lt_layer_linear(&layer[2], t->at.device, "head", WIDTH, ids, true));
    return make_chain(t, layer, COUNT_OF(layer));
}

static lt_status open_text(lt_dataset **out, bool train)
{
    const lt_tokens_config c = {.length = LENGTH, .tokenizer = "char", .val_fraction = 0.15};
    char path[TEMP_PATH];
    return lt_dataset_tokens(out, temp_path(path, folder, "text"), &c, train);
}

static lt_status open_optim(training *t, const plan *p)
{
    lt_shampoo_config shampoo = LT_SHAMPOO_DEFAULTS;
    lt_adam_config adam = LT_ADAM_DEFAULTS;
    const lt_sgd_config sgd = {.momentum = 0.9, .weight_decay = 1e-3};
    const lt_shard_config shard = {.comm = t->at.comm};
    adam.decoupled = true;
    shampoo.precondition_frequency = 2;
    shampoo.max_preconditioner_dim = 6;
    LT_TRY(p->method == SGD     ? lt_optim_sgd(&t->optim, &t->params, &sgd)
           : p->method == ADAMW ? lt_optim_adam(&t->optim, &t->params, &adam)
                                : lt_optim_shampoo(&t->optim, &t->params, &shampoo));
    return t->at.comm ? lt_optim_shard(t->optim, &shard) : LT_OK;
}

static lt_status run(void *context)
{
    rank *r = context;
    training *t = &r->run;
    const plan *p = r->plan;
    char name[32];
    LT_TRY(p->text ? open_text(&t->data, true)
                   : lt_dataset_synthetic(&t->data, IMAGES, 12, 3, CLASSES));
    LT_TRY(p->text ? open_text(&r->held_out, false)
                   : lt_dataset_synthetic(&r->held_out, HELD_OUT, 12, 3, CLASSES));
    LT_TRY(p->text ? make_text_net(t, lt_dataset_classes(t->data)) : make_images_net(t));
    LT_TRY(open_optim(t, p));
    snprintf(name, sizeof name, "%dx%d", p->ranks, p->accum);
    r->images = (classification){
        .model = t->model, .pixels = LT_NORMALIZE_IMAGENET, .label_smoothing = 0.1};
    r->language = (language_model){
        .model = t->model, .length = LENGTH, .classes = lt_dataset_classes(t->data)};
    r->hooks = (lt_train_hooks){
        .name = "numbers", .context = r, .after_step = keep_numbers, .after_epoch = keep_numbers};
    lt_train_config c = configure(t, NULL, NULL);
    char path[TEMP_PATH];
    c.output = temp_path(path, folder, name);
    c.task = p->text ? (lt_task){&lt_language_task, &r->language}
                     : (lt_task){&lt_classification_task, &r->images};
    c.val = r->held_out;
    c.loader.batch = BATCH;
    if (!p->text) {
        c.loader.transform = (lt_transform){.augment = LT_AUGMENT_SMALL, .size = SIDE, .flip = 0.5};
        c.loader.mix = (lt_mix){.mixup_alpha = 0.3, .cutmix_alpha = 1};
    }
    c.grad_accum = p->accum;
    c.schedule = (lt_schedule){.kind = LT_SCHEDULE_COSINE, .lr = 0.05, .epochs = 2};
    c.clip_norm = 0.5;
    c.ema_decay = 0.8;
    c.eval_every = 1;
    c.gradient_noise = p->noise;
    c.hooks = &r->hooks;
    t->config = c;
    return run_training(t);
}

static void end(void *context)
{
    rank *r = context;
    close_training(&r->run);
    lt_dataset_free(&r->held_out);
}

/* Runs all ranks; returns rank 0's numbers and the files of the last checkpoint. */
static record run_split(plan p, int ranks_count, int accum)
{
    static const char *const file[FILES] = {"model", "optim"};
    const lt_device_config config = {.threads = 1, .reproducible = !p.in_default_mode};
    char name[64], path[TEMP_PATH];
    record out = {.numbers = 0};
    p.ranks = ranks_count;
    p.accum = accum;
    const rank_group g = {RANKS_OF(ranks, p.ranks), .without_comm = p.ranks == 1, .run = run,
                          .end = end};
    for (int i = 0; i < p.ranks; i++) {
        ranks[i] = (rank){.plan = &p};
        assert_ok(lt_device_open(&ranks[i].run.at.device, "cpu", &config));
    }
    play_ranks_well(&g);
    for (int i = 0; i < p.ranks; i++)
        lt_device_close(&ranks[i].run.at.device);
    out.numbers = ranks[0].numbers;
    memcpy(out.number, ranks[0].number, sizeof out.number);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%dx%d/checkpoints/latest/%s.safetensors", p.ranks, p.accum,
                 file[i]);
        out.file[i] = temp_read(temp_path(path, folder, name), &out.bytes[i]);
    }
    snprintf(name, sizeof name, "%dx%d", p.ranks, p.accum);
    temp_remove(temp_path(path, folder, name));
    return out;
}

static void free_record(record *r)
{
    for (int i = 0; i < FILES; i++)
        free(r->file[i]);
}

/* Returns the name of the first part that differs, or NULL. */
static const char *difference(const record *a, const record *b)
{
    if (a->numbers != b->numbers || memcmp(a->number, b->number, sizeof a->number) != 0)
        return "numbers";
    for (int i = 0; i < FILES; i++)
        if (a->bytes[i] != b->bytes[i] || memcmp(a->file[i], b->file[i], a->bytes[i]) != 0)
            return i ? "optimizer state" : "weights";
    return NULL;
}

static void write_text(void)
{
    char text[340], path[TEMP_PATH];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + (i * i / 3 + 5 * i) % 7);
    temp_write(temp_path(path, folder, "text"), text, sizeof text);
}

/* --- Rows --- */

static void same_for_splits(const plan *p, const int (*split)[2], size_t splits)
{
    write_text();
    record want = run_split(*p, split[0][0], split[0][1]);
    assert_true(want.numbers > 40);
    for (size_t i = 1; i < splits; i++) {
        record got = run_split(*p, split[i][0], split[i][1]);
        const char *what = difference(&want, &got);
        if (what)
            fail_msg("%s of %d x %d differ from those of %d x %d", what, split[i][0], split[i][1],
                     split[0][0], split[0][1]);
        free_record(&got);
    }
    free_record(&want);
}

static void any_split_is_the_same(void **state)
{
    static const int split[][2] = {{1, 4}, {2, 2}, {4, 1}};
    same_for_splits(*state, split, COUNT_OF(split));
}

static void odd_numbers_are_the_same(void **state)
{
    static const int split[][2] = {{1, 6}, {2, 3}, {6, 1}};
    const plan p = {.method = SGD};
    (void)state;
    same_for_splits(&p, split, COUNT_OF(split));
}

/* Control: in the default mode another split has other samples in a batch. */
static void splits_differ_in_the_default_mode(void **state)
{
    const plan p = {.in_default_mode = true};
    (void)state;
    record a = run_split(p, 1, 4), b = run_split(p, 2, 2);
    assert_non_null(difference(&a, &b));
    free_record(&a);
    free_record(&b);
}

int main(void)
{
    /* clang-format off */
    static const struct {
        const char *name;
        plan plan;
    } list[] = {
        {"images, sgd, gradient noise", {.method = SGD, .noise = true}},
        {"images, adamw", {.method = ADAMW}},
        {"images, shampoo", {.method = SHAMPOO}},
        {"text, sgd", {.method = SGD, .text = true}},
        {"text, adamw", {.method = ADAMW, .text = true}},
        {"text, shampoo", {.method = SHAMPOO, .text = true}},
    };
    /* clang-format on */
    struct CMUnitTest rows[COUNT_OF(list) + 2] = {
        cmocka_unit_test_setup_teardown(odd_numbers_are_the_same, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(splits_differ_in_the_default_mode, temp_setup,
                                        temp_teardown),
    };
    plan plans[COUNT_OF(list)];
    for (size_t i = 0; i < COUNT_OF(list); i++) {
        plans[i] = list[i].plan;
        rows[2 + i] = (struct CMUnitTest){list[i].name, any_split_is_the_same, temp_setup,
                                          temp_teardown, &plans[i]};
    }
    return cmocka_run_group_tests_name("shards of a step", rows, NULL, NULL);
}
