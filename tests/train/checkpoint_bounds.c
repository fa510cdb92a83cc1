/* Replaces every number of a checkpoint's state.json, under a valid checksum. Loading either fails with the field,
 * the value and the range, or succeeds and a step runs without undefined behaviour. */

#include "temp_folder.h"
#include "tiny.h"

#include "lather/log.h"
#include "lather/safetensors.h"

#include <inttypes.h>

enum { STEPS = 3, LINE = 256 };

typedef struct range {
    const char *key;
    int64_t low, high;
} range;

static const int64_t most = INT64_C(1) << 53;

/* Ranges in the checkpoint that make() saves; a key that ends in a period is a prefix of names. */
static const range ranges[] = {
    {"step", STEPS, STEPS}, /* must equal the optimizer's step count */
    {"epoch", 0, STEPS},
    {"batch", 0, INT64_C(1) << 53},
    {"images", 8, INT64_C(1) << 53},
    {"best_step", 0, STEPS},
    {"epoch_images", 0, 100},
    {"ema_updates", 0, STEPS},
    {"global_batch", 0, INT64_C(1) << 53},
    {"classes", INT64_MIN, INT64_MAX},
    {"ranks", 0, 1 << 20},
    {"threads", 0, 1 << 20},
    {"loss_good_steps", -1, INT32_MAX},
    {"epoch_recorded", -1, 1},
    {"loss_scale", 0, INT64_MAX},
    {"best_top1", INT64_MIN, INT64_MAX},
    {"seconds", 0, 1000000000000000},
    {"epoch_loss", INT64_MIN, INT64_MAX},
    {"epoch_correct", INT64_MIN, INT64_MAX},
    {"epoch_seconds", 0, 1000000000000000},
    {"attempt", STEPS, STEPS},
    {"applied", 0, STEPS},
    {"updates.", 0, STEPS},
    {"failures.", 0, STEPS},
    {"rooted.", 0, STEPS},
    {"swap.", 0, 0}, /* any other value needs tensors that the file lacks */
    {"pending.", 0, LT_END},
    {"format", 1, 1},
    {"bytes", 1, 0}, /* rejects all values tried below */
};

static const range *range_of(const char *key)
{
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        size_t bytes = strlen(ranges[i].key);
        bool begins = ranges[i].key[bytes - 1] == '.';
        if (begins ? !strncmp(key, ranges[i].key, bytes) : !strcmp(key, ranges[i].key))
            return &ranges[i];
    }
    fail_msg("no range for '%s'", key);
    return ranges;
}

static void make(const char *optim)
{
    run r;
    run_open(&r, optim, 5);
    for (int i = 0; i < STEPS; i++)
        run_step(&r);
    r.state.epoch = r.state.best_step = 1;
    r.state.batch = 2;
    r.state.samples = 100;
    r.state.epoch_samples = 8;
    r.state.global_batch = 4;
    r.state.loss_scale = 1024;
    assert_ok(lt_checkpoint_save(folder, &r.parts, &r.state, NULL));
    run_close(&r);
}

/* Loads the checkpoint and does a step. */
static lt_status go_on(const char *optim, const char *path)
{
    run r;
    run_open(&r, optim, 5);
    lt_status st = lt_checkpoint_load(path, &r.parts, &r.state);
    if (!st)
        run_step(&r);
    run_close(&r);
    return st;
}

/* Checks the message for a rejected value: it names the first field that is out of range. */
static void check_message(const char *key, int64_t value, const char *path)
{
    char field[LINE + 16];
    lt_checkpoint_state got = {0};
    const bool fits = value >= 0 && value <= most;
    if (!strcmp(key, "bytes") || !strcmp(key, "format") || (!strncmp(key, "swap.", 5) && fits))
        return;
    assert_int_equal(lt_checkpoint_verify(path, &got), LT_E_FORMAT); /* --resume auto skips it */
    if (fits && !strcmp(key, "step"))
        key = value < 1 ? "epoch" : "attempt";
    if (fits && !strcmp(key, "images"))
        key = "epoch_images";
    snprintf(field, sizeof field, "json: '%s' ", key);
    const char *said = lt_error_message();
    if (!strstr(said, field) || !strstr(said, " is not in ["))
        fail_msg("'%s' does not contain '%s' and a range", said, field);
}

static void check_value(const char *optim, const char *key, int64_t value, const char *path)
{
    const range *limits = range_of(key);
    bool good = value >= limits->low && value <= limits->high;
    lt_status st = go_on(optim, path);
    if (st != (good ? LT_OK : LT_E_FORMAT))
        fail_msg("%s of %s: %" PRId64 " gave %s", key, optim, value, lt_status_name(st));
    if (!good)
        check_message(key, value, path);
}

static void test_numbers(void **state)
{
    static const int64_t values[] = {-1,        0,        INT64_C(1) << 31, INT64_C(1) << 53,
                                     INT64_MAX, INT64_MIN};
    const char *optim = *state;
    char path[TEMP_PATH], file[TEMP_PATH], key[LINE], number[32];
    int fields = 0;
    make(optim);
    temp_path(path, folder, "checkpoints/step-3");
    char *whole = temp_read(temp_path(file, path, "state.json"), NULL);
    forge(file, whole, 0, 0, "");
    assert_ok(go_on(optim, path)); /* the control */
    for (const char *at = whole; (at = strchr(at, ':')); at++) {
        size_t begin = (size_t)(at + 1 - whole), end = begin + strspn(at + 1, "-0123456789.e+");
        if (end == begin)
            continue;
        const char *name = at - 2;
        while (name[-1] != '"')
            name--;
        snprintf(key, sizeof key, "%.*s", (int)(at - 1 - name), name);
        for (size_t i = 0; i < COUNT_OF(values); i++) {
            snprintf(number, sizeof number, "%" PRId64, values[i]);
            forge(file, whole, begin, end, number);
            check_value(optim, key, values[i], path);
        }
        fields++;
    }
    assert_true(fields > 24);
    free(whole);
}

/* Batch counts so large that the next batch would exceed the limit. */
static void test_counts_of_batches(void **state)
{
    (void)state;
    static const int64_t bad[] = {-1, INT64_MAX, INT64_MIN, (INT64_C(1) << 53) + 2};
    char path[TEMP_PATH];
    run r;
    run_open(&r, "adam", 5);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_ok(lt_tensor_write(r.param[2].value, &bad[i], sizeof bad[i]));
        assert_ok(lt_weights_save(temp_path(path, folder, "counts.safetensors"), &r.params));
        assert_status(lt_weights_load(path, &r.params, NULL), LT_E_FORMAT);
        assert_non_null(strstr(lt_error_message(), "num_batches_tracked"));
        assert_non_null(strstr(lt_error_message(), "is not in [0,9007199254740992]"));
    }
    assert_ok(lt_tensor_write(r.param[2].value, &most, sizeof most));
    assert_ok(lt_weights_save(path, &r.params));
    assert_ok(lt_weights_load(path, &r.params, NULL)); /* the control */
    run_close(&r);
}

/* A value out of range counts as damage: the checkpoint before it is used. */
static void test_fall_back(void **state)
{
    (void)state;
    char path[TEMP_PATH], file[TEMP_PATH];
    run r;
    run_open(&r, "adam", 5);
    for (int i = 0; i < 2; i++) {
        run_step(&r);
        assert_ok(lt_checkpoint_save(folder, &r.parts, &r.state, NULL));
    }
    run_close(&r);
    char *whole = temp_read(temp_path(file, folder, "checkpoints/step-2/state.json"), NULL);
    const char *epoch = strstr(whole, "\"epoch\":");
    assert_non_null(epoch);
    size_t begin = (size_t)(epoch - whole) + strlen("\"epoch\":");
    forge(file, whole, begin, begin + 1, "9223372036854775807");
    lt_checkpoint_state got = {0};
    assert_status(lt_checkpoint_verify(temp_path(path, folder, "checkpoints/step-2"), &got),
                  LT_E_FORMAT);
    assert_non_null(strstr(lt_error_message(),
                           "step-2/state.json: 'epoch' 9223372036854775807 is not in [0,2]"));
    assert_ok(lt_checkpoint_newest(folder, path, sizeof path));
    assert_non_null(strstr(path, "step-1"));
    free(whole);
}

static void ignore(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)context;
    (void)level;
    (void)area;
    (void)text;
}

static int setup(void **state)
{
    temp_setup(state);
    lt_log_set(ignore, NULL);
    return 0;
}

static int teardown(void **state)
{
    lt_log_set(NULL, NULL);
    return temp_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"every number has a range: adam", test_numbers, setup, teardown, (char[]){"adam"}},
        {"every number has a range: shampoo", test_numbers, setup, teardown, (char[]){"shampoo"}},
        {"counts of batches have a range", test_counts_of_batches, setup, teardown, NULL},
        {"a checkpoint with a number out of range is skipped", test_fall_back, setup, teardown,
         NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
