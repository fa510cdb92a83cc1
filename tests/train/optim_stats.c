/* --optim-stats in lt_train(): the file and its header, events, TensorBoard's histograms, a resume, a skipped step, and a
 * header that changed. */

#include "training.h"

#include "lather/detail/json.h"
#include "lather/shampoo.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

enum { INPUTS = 3, CLASSES = 2, SAMPLES = 16, BATCH = 4, STEPS = 12, VALUES = 6 };

typedef struct plan {
    const char *run;
    int64_t every;
    const char *pattern;
    int stop_after; /* steps; 0: to the end */
    bool resume, bad;
} plan;

static float inputs[SAMPLES][INPUTS];
static int64_t labels[SAMPLES];

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const training *t = context;
    (void)counts;
    out->output = lt_module_forward(t->model, tape, batch->inputs);
    out->loss = lt_softmax_xent(tape, out->output, batch->labels, 0);
    return lt_tape_status(tape);
}

static const lt_task_ops task = {.name = "classes", .unit = "samples", .forward = forward};

static void fill_data(bool bad)
{
    for (int i = 0; i < SAMPLES * INPUTS; i++)
        inputs[i / INPUTS][i % INPUTS] = (float)sin(1 + 2.7 * i);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % CLASSES;
    if (bad)
        inputs[5][1] = (float)NAN;
}

/* Trains, and copies the last weights to value. */
static void train(const plan *p, float value[VALUES])
{
    training t = {.stop_after = p->stop_after};
    lt_module *layer = NULL;
    lt_shampoo_config shampoo = LT_SHAMPOO_DEFAULTS;
    shampoo.precondition_frequency = 2;
    fill_data(p->bad);
    assert_ok(lt_device_open(&t.at.device, "ref", NULL));
    assert_ok(open_arrays(&t.data, inputs[0], labels, SAMPLES, LT_SHAPE(INPUTS), CLASSES));
    assert_ok(lt_layer_linear(&layer, t.at.device, "only", INPUTS, CLASSES, true));
    assert_ok(make_chain(&t, &layer, 1));
    assert_ok(lt_optim_shampoo(&t.optim, &t.params, &shampoo));
    lt_train_config c = configure(&t, &task, p->run);
    c.loader.batch = BATCH;
    c.schedule = (lt_schedule){.lr = 0.05, .epochs = 3};
    c.eval_every = -1;
    c.resume = p->resume;
    c.skip_nan = p->bad;
    c.optim_stats = p->every;
    c.optim_stats_pattern = &p->pattern;
    c.optim_stats_patterns = p->pattern != NULL;
    assert_ok(lt_train(&c, &t.end));
    assert_ok(lt_tensor_read(t.params.item[0]->value, value, VALUES * sizeof *value));
    close_training(&t);
    lt_device_close(&t.at.device);
}

/* --- The file --- */

typedef struct stats_file {
    char *data;
    size_t bytes, at, width; /* at: offset of the records; width: values of one */
    lt_json *json;
} stats_file;

static void open_file(stats_file *f, const char *run, const char *name)
{
    char path[2 * TEMP_PATH];
    uint64_t header;
    snprintf(path, sizeof path, "%s/%s/%s", folder, run, name);
    f->data = temp_read(path, &f->bytes);
    assert_memory_equal(f->data, "LTSTATS1", 8);
    memcpy(&header, f->data + 8, sizeof header);
    f->at = 16 + header;
    f->width = 0;
    assert_int_equal(f->at % 8, 0);
    assert_ok(lt_json_parse(&f->json, f->data + 16, header, path, 8));
    const lt_json_value *tables = lt_json_member(lt_json_root(f->json), "tables");
    for (const lt_json_value *t = tables->child; t; t = t->next)
        f->width += lt_json_member(t, "columns")->count * lt_json_member(t, "rows")->count;
    assert_int_equal((f->bytes - f->at) % (8 + 4 * f->width), 0);
}

static void close_file(stats_file *f)
{
    lt_json_free(&f->json);
    free(f->data);
}

static size_t records_of(const stats_file *f)
{
    return (f->bytes - f->at) / (8 + 4 * f->width);
}

static int64_t step_of(const stats_file *f, size_t record)
{
    int64_t step;
    memcpy(&step, f->data + f->at + record * (8 + 4 * f->width), sizeof step);
    return step;
}

static float value_of(const stats_file *f, size_t record, size_t index)
{
    float value;
    memcpy(&value, f->data + f->at + record * (8 + 4 * f->width) + 8 + 4 * index, sizeof value);
    return value;
}

static void the_file_says_what_is_in_it(void **state)
{
    (void)state;
    float value[VALUES];
    stats_file f;
    const char *text;
    int64_t number;
    train(&(plan){.run = "first", .every = 3}, value);
    open_file(&f, "first", "optim_stats.bin");
    const lt_json_value *root = lt_json_root(f.json),
                        *tables = lt_json_member(root, "tables")->child;
    assert_int_equal(records_of(&f), STEPS / 3);
    for (size_t i = 0; i < records_of(&f); i++)
        assert_int_equal(step_of(&f, i), 3 * (int64_t)(i + 1));
    assert_ok(lt_json_string(root, "optim", &text));
    assert_string_equal(text, "shampoo");
    assert_ok(lt_json_integer(root, "every", &number));
    assert_int_equal(number, 3);
    assert_int_equal(lt_json_member(root, "rules")->count, 12);
    assert_ok(lt_json_string(lt_json_member(tables, "rows")->child, "name", &text));
    assert_string_equal(text, "only.weight");
    const size_t first = lt_json_member(tables, "columns")->count;
    assert_true(value_of(&f, 0, 1) > 0 && value_of(&f, 0, first + 1) > 0); /* norms of weights */
    close_file(&f);
}

static void measuring_changes_no_bit_of_training(void **state)
{
    (void)state;
    float with[VALUES], without[VALUES];
    train(&(plan){.run = NULL}, without);
    train(&(plan){.run = "bits", .every = 1}, with);
    assert_memory_equal(with, without, sizeof with);
    assert_true(with[0] < 0 || with[0] > 0);
}

/* --- Resume --- */

static void a_resume_repeats_no_record(void **state)
{
    (void)state;
    float value[VALUES];
    stats_file whole, parts;
    train(&(plan){.run = "whole", .every = 2}, value);
    train(&(plan){.run = "parts", .every = 2, .stop_after = 6}, value);
    char path[2 * TEMP_PATH], torn[12] = {8};
    snprintf(path, sizeof path, "%s/parts/optim_stats.bin", folder);
    open_file(&parts, "parts", "optim_stats.bin");
    assert_int_equal(records_of(&parts), 3);
    close_file(&parts);
    FILE *file = fopen(path, "ab"); /* as a kill after the checkpoint leaves it */
    assert_non_null(file);
    assert_int_equal(fwrite(torn, 1, sizeof torn, file), sizeof torn);
    assert_int_equal(fclose(file), 0);
    train(&(plan){.run = "parts", .every = 2, .resume = true}, value);
    open_file(&whole, "whole", "optim_stats.bin");
    open_file(&parts, "parts", "optim_stats.bin");
    assert_int_equal(whole.at, parts.at);
    assert_int_equal(whole.bytes, parts.bytes);
    assert_memory_equal(whole.data + whole.at, parts.data + parts.at, whole.bytes - whole.at);
    close_file(&whole);
    close_file(&parts);
}

/* Cuts the file within its header, as a kill in its first write may. */
static void a_header_that_is_cut_off_is_written_again(void **state)
{
    (void)state;
    const int sizes[] = {0, 5, 8, 12, 16, 100};
    char path[2 * TEMP_PATH], run[16];
    float value[VALUES];
    stats_file f;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(run, sizeof run, "cut%d", sizes[i]);
        snprintf(path, sizeof path, "%s/%s/optim_stats.bin", folder, run);
        train(&(plan){.run = run, .every = 2, .stop_after = 6}, value);
        assert_int_equal(truncate(path, sizes[i]), 0);
        train(&(plan){.run = run, .every = 2, .resume = true}, value);
        open_file(&f, run, "optim_stats.bin");
        assert_int_equal(records_of(&f), 3);
        assert_int_equal(step_of(&f, 0), 8);
        close_file(&f);
    }
}

static void another_header_moves_the_file_aside(void **state)
{
    (void)state;
    float value[VALUES];
    stats_file old, new;
    train(&(plan){.run = "moved", .every = 2, .stop_after = 7}, value);
    train(&(plan){.run = "moved", .every = 3, .pattern = "bias", .resume = true}, value);
    open_file(&old, "moved", "optim_stats.1.bin");
    open_file(&new, "moved", "optim_stats.bin");
    assert_int_equal(records_of(&old), 3);
    assert_int_equal(records_of(&new), 2);
    assert_int_equal(step_of(&new, 0), 9);
    const lt_json_value *table = lt_json_member(lt_json_root(new.json), "tables")->child;
    assert_int_equal(lt_json_member(table, "rows")->count, 1);
    close_file(&old);
    close_file(&new);
}

/* --- Events --- */

/* Returns the number of lines with both texts. */
static int count_lines(const char *run, const char *a, const char *b)
{
    char path[2 * TEMP_PATH];
    size_t bytes;
    int count = 0;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", folder, run);
    char *text = temp_read(path, &bytes), *next = NULL;
    for (char *line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next))
        count += strstr(line, a) && strstr(line, b);
    free(text);
    return count;
}

static void a_skipped_step_says_so(void **state)
{
    (void)state;
    float value[VALUES];
    stats_file f;
    const char *event = "\"event\":\"optim_stats\"";
    train(&(plan){.run = "skips", .every = 1, .bad = true}, value);
    assert_int_equal(count_lines("skips", event, "\"rule_"), STEPS);
    assert_int_equal(count_lines("skips", event, "\"skipped\":1"), 3); /* once an epoch */
    assert_int_equal(count_lines("skips", event, "\"rule_skipped\":2"), 3);
    open_file(&f, "skips", "optim_stats.bin");
    int skipped = 0;
    for (size_t i = 0; i < records_of(&f); i++)
        skipped += value_of(&f, i, 0) > 10.5F && isnan(value_of(&f, i, 2));
    assert_int_equal(skipped, 3);
    close_file(&f);
}

/* --- TensorBoard, by another decoder --- */

typedef struct bytes {
    const unsigned char *at, *end;
} bytes;

static uint64_t read_varint(bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0; b->at < b->end; shift += 7) {
        value |= (uint64_t)(*b->at & 127) << shift;
        if (*b->at++ < 128)
            break;
    }
    return value;
}

/* Finds the field of a message; returns its bytes, empty if absent. */
static bytes find_field(bytes message, uint64_t field)
{
    while (message.at < message.end) {
        const uint64_t key = read_varint(&message), type = key % 8;
        const unsigned char *begin = message.at;
        uint64_t size = type == 1 ? 8 : 4;
        if (type == 0) {
            (void)read_varint(&message);
            size = (uint64_t)(message.at - begin);
        } else if (type == 2) {
            size = read_varint(&message);
            begin = message.at;
        }
        message.at = begin + size;
        assert_true(message.at <= message.end);
        if (key / 8 == field)
            return (bytes){begin, begin + size};
    }
    return (bytes){NULL, NULL};
}

static double double_at(bytes b, size_t index)
{
    double value;
    assert_true((size_t)(b.end - b.at) >= 8 * (index + 1));
    memcpy(&value, b.at + 8 * index, sizeof value);
    return value;
}

static void check_histogram(bytes histogram)
{
    const bytes limits = find_field(histogram, 6), counts = find_field(histogram, 7);
    const size_t buckets = (size_t)(limits.end - limits.at) / 8;
    double sum = 0;
    assert_int_equal(counts.end - counts.at, limits.end - limits.at);
    for (size_t i = 0; i < buckets; i++)
        sum += double_at(counts, i);
    assert_near(sum, double_at(find_field(histogram, 3), 0), 0);
    assert_near(sum, 2, 0); /* parameters */
    assert_near(double_at(limits, buckets - 1), double_at(find_field(histogram, 2), 0), 0);
    assert_true(double_at(find_field(histogram, 1), 0) <= double_at(limits, 0));
}

static void tensorboard_has_histograms(void **state)
{
    (void)state;
    float value[VALUES];
    char path[3 * TEMP_PATH], name[TEMP_PATH] = "";
    size_t size, histograms = 0, scalars = 0;
    train(&(plan){.run = "board", .every = 4}, value);
    snprintf(path, sizeof path, "%s/board", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, "tfevents"))
            snprintf(name, sizeof name, "%s", entry->d_name);
    closedir(dir);
    snprintf(path, sizeof path, "%s/board/%s", folder, name);
    char *data = temp_read(path, &size);
    for (size_t at = 0; at < size;) {
        uint64_t length;
        memcpy(&length, data + at, sizeof length);
        const unsigned char *record = (const unsigned char *)data + at + 12;
        const bytes item = find_field(find_field((bytes){record, record + length}, 5), 1),
                    tag = find_field(item, 1);
        const bytes histogram = find_field(item, 5);
        const bool own = tag.at && !memcmp(tag.at, "optim_stats/", 12);
        scalars += own && find_field(item, 2).at;
        if (own && histogram.at && !memcmp(tag.at + 12, "update_ratio", 12)) {
            check_histogram(histogram);
            histograms++;
        }
        at += 16 + length;
    }
    free(data);
    assert_int_equal(histograms, 3);
    assert_true(scalars > 3 * 5);
}

static void options_are_checked_before_the_folder_changes(void **state)
{
    (void)state;
    training t = {.stop_after = 1};
    lt_module *layer = NULL;
    char path[2 * TEMP_PATH];
    const char *pattern = "absent";
    fill_data(false);
    assert_ok(lt_device_open(&t.at.device, "ref", NULL));
    assert_ok(open_arrays(&t.data, inputs[0], labels, SAMPLES, LT_SHAPE(INPUTS), CLASSES));
    assert_ok(lt_layer_linear(&layer, t.at.device, "only", INPUTS, CLASSES, true));
    assert_ok(make_chain(&t, &layer, 1));
    assert_ok(lt_optim_sgd(&t.optim, &t.params, NULL));
    lt_train_config c = configure(&t, &task, "rejected");
    c.loader.batch = BATCH;
    c.schedule = (lt_schedule){.lr = 0.05, .epochs = 3};
    c.optim_stats = 2;
    c.optim_stats_pattern = &pattern;
    c.optim_stats_patterns = 1;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "no parameter matches 'absent'");
    c.optim_stats = -2;
    assert_fails(lt_train(&c, NULL), LT_E_ARG, "--optim-stats -2: must be at least 1");
    snprintf(path, sizeof path, "%s/rejected/metrics.jsonl", folder);
    assert_int_not_equal(access(path, F_OK), 0);
    close_training(&t);
    lt_device_close(&t.at.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_says_what_is_in_it),
        cmocka_unit_test(measuring_changes_no_bit_of_training),
        cmocka_unit_test(a_resume_repeats_no_record),
        cmocka_unit_test(a_header_that_is_cut_off_is_written_again),
        cmocka_unit_test(another_header_moves_the_file_aside),
        cmocka_unit_test(a_skipped_step_says_so),
        cmocka_unit_test(tensorboard_has_histograms),
        cmocka_unit_test(options_are_checked_before_the_folder_changes),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
