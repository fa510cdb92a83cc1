/* The run folder: config.yaml, records, TensorBoard events, list of corrupt images, and the progress bar. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/json.h"
#include "base/hash.h"
#include "base/shared_file.h"
#include "env.h"
#include "metrics.h"
#include "plugins.h"
#include "progress.h"
#include "stats_file.h"
#include "tensorboard.h"

#include "lather/detail/text.h"
#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct lt_run {
    char *folder, *id;
    dev_t device; /* device and inode of the folder when it was opened */
    ino_t inode;
    bool is_quiet;        /* a rank above 0 */
    lt_metrics_speed sum; /* all steps of the run, those before a resume too */
    const char *records;  /* name of the records file: "metrics.jsonl" */
    FILE *metrics;
    FILE *bad_images; /* bad_images.txt, opened at the first entry */
    uint64_t *bad;    /* hashes of its lines */
    size_t bad_count, bad_capacity, bad_told;
    lt_tensorboard *board;
    lt_json_writer line;
    lt_bar bar;
};

static lt_status io_error(const lt_run *run, const char *name)
{
    return lt_fail(LT_E_IO, "%s/%s: %s", run->folder, name, strerror(errno));
}

static void tell_bad_images(lt_run *run);

/* Opens FOLDER/NAME for appending. */
static lt_status open_for_append(const lt_run *run, const char *name, FILE **out)
{
    char *path = lt_format("%s/%s", run->folder, name);
    if (!path)
        return LT_E_NOMEM;
    lt_status st = lt_shared_open_stream(out, path, 'a');
    lt_free(path);
    return st;
}

/* Writes config.yaml atomically; until then a resumed run keeps the earlier file. */
static lt_status write_config(const lt_run *run, const lt_options *options)
{
    char *path = lt_format("%s/config.yaml", run->folder);
    lt_replacement r;
    lt_status st = path ? lt_replacement_open(&r, path) : LT_E_NOMEM;
    if (!st) {
        st = lt_options_write_run(options, r.file);
        if (st)
            st = lt_fail(st, "%s: %s", path, lt_error_message());
        lt_plugins_write_comments(r.file);
        st = lt_replacement_close(&r, st, false);
    }
    lt_free(path);
    return st;
}

/* Starts a file of records empty, or truncated to the step to resume; sum NULL or its speed. */
static lt_status reset_records(const lt_run *run, const char *name, const lt_run_config *config,
                               lt_metrics_speed *sum)
{
    char *path = lt_format("%s/%s", run->folder, name);
    if (!path)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    if (config->resume_step > 0)
        st = lt_metrics_rewind(path, config->resume_step, config->redo_epoch, sum);
    else if (unlink(path) && errno != ENOENT)
        st = io_error(run, name);
    lt_free(path);
    return st;
}

/* Opens metrics.jsonl, and rewinds the records of evaluations by another process, too. */
static lt_status open_metrics(lt_run *run, const lt_run_config *config)
{
    LT_TRY(reset_records(run, LT_RUN_EVALUATIONS, config, NULL));
    LT_TRY(reset_records(run, LT_RUN_HASHES, config, NULL));
    LT_TRY(lt_stats_file_rewind(run->folder, config->resume_step));
    LT_TRY(reset_records(run, run->records, config, &run->sum));
    return open_for_append(run, run->records, &run->metrics);
}

static lt_status remember_folder(lt_run *run)
{
    struct stat info;
    if (stat(run->folder, &info))
        return lt_fail(LT_E_IO, "%s: %s", run->folder, strerror(errno));
    run->device = info.st_dev;
    run->inode = info.st_ino;
    return LT_OK;
}

static lt_status make_files(lt_run *run, const lt_run_config *config)
{
    static const char *const names[] = {
        "config.yaml",       "env.json", "metrics.jsonl", LT_RUN_EVALUATIONS, LT_RUN_HASHES,
        "model.safetensors", NULL};
    LT_TRY(lt_make_folders(run->folder));
    LT_TRY(remember_folder(run));
    if (config->append)
        return open_for_append(run, run->records, &run->metrics);
    /* Not when appending, as another process may be writing. */
    lt_remove_stale_temps(run->folder, names, false);
    if (config->options)
        LT_TRY(write_config(run, config->options));
    LT_TRY(lt_run_write_env(run->folder, config, run->id));
    LT_TRY(open_metrics(run, config));
    return config->no_tensorboard
               ? LT_OK
               : lt_tensorboard_open(&run->board, run->folder, config->resume_step);
}

lt_status lt_run_open(lt_run **out, const char *folder, const lt_run_config *config)
{
    lt_run *run = NULL;
    LT_TRY(LT_ALLOC(&run, 1));
    run->is_quiet = config->rank > 0;
    run->records = config->records ? config->records : "metrics.jsonl";
    snprintf(run->sum.key, sizeof run->sum.key, "%s_per_second",
             config->unit ? config->unit : "samples");
    lt_bar_begin(&run->bar, stderr, config);
    lt_status st = LT_OK;
    if (folder && !(run->folder = lt_strdup(folder)))
        st = LT_E_NOMEM;
    if (config->id && !(run->id = lt_strdup(config->id)))
        st = LT_E_NOMEM;
    if (!st && folder && !run->is_quiet)
        st = make_files(run, config);
    if (st)
        lt_run_close(&run);
    else
        *out = run;
    return st;
}

void lt_run_close(lt_run **r)
{
    lt_run *run = *r;
    if (!run)
        return;
    if (run->bad_told < run->bad_count)
        tell_bad_images(run);
    lt_bar_end(&run->bar);
    if (run->metrics)
        fclose(run->metrics);
    if (run->bad_images)
        fclose(run->bad_images);
    lt_tensorboard_close(&run->board);
    lt_json_writer_clear(&run->line);
    lt_free(run->bad);
    lt_free(run->id);
    lt_free(run->folder);
    lt_free(run);
    *r = NULL;
}

/* Writes a number that is not NaN. Infinity becomes null, as JSON has no other way. */
static void put_number(lt_run *run, const char *key, double value)
{
    if (!isnan(value))
        lt_json_put_number(&run->line, key, value);
}

static lt_status put_tensorboard_scalar(lt_run *run, const char *tag, int64_t step, double value)
{
    return run->board && !isnan(value) ? lt_tensorboard_scalar(run->board, tag, step, value)
                                       : LT_OK;
}

static lt_status put_metrics(lt_run *run, const char *group, int64_t step, const lt_metric *metric,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char tag[128];
        snprintf(tag, sizeof tag, "%s/%s", group, metric[i].name);
        put_number(run, metric[i].name, metric[i].value);
        LT_TRY(put_tensorboard_scalar(run, tag, step, metric[i].value));
    }
    return LT_OK;
}

/* Fails only if the folder is certainly gone: a server that does not answer now does not end a run. */
lt_status lt_run_check(const lt_run *run)
{
    struct stat info;
    if (!run->metrics)
        return LT_OK;
    bool gone = stat(run->folder, &info) ? errno == ENOENT || errno == ENOTDIR || errno == ESTALE
                                         : info.st_ino != run->inode || info.st_dev != run->device;
    if (!fstat(fileno(run->metrics), &info))
        gone = gone || info.st_nlink == 0;
    return gone ? lt_fail(LT_E_IO,
                          "%s: was deleted or moved while the run was writing to it: the run "
                          "cannot be saved any more",
                          run->folder)
                : LT_OK;
}

/* Ends the JSON line, appends it to the records file and flushes the file. */
static lt_status write_line(lt_run *run)
{
    const char *text = NULL;
    size_t bytes = 0;
    LT_TRY(lt_run_check(run));
    if (run->id)
        lt_json_put_string(&run->line, "run", run->id);
    lt_json_end(&run->line);
    lt_json_put_raw(&run->line, "\n");
    LT_TRY(lt_json_text(&run->line, &text, &bytes));
    if (fwrite(text, 1, bytes, run->metrics) != bytes || fflush(run->metrics))
        return io_error(run, run->records);
    return run->board ? lt_tensorboard_flush(run->board) : LT_OK;
}

static void begin_line(lt_run *run, const char *event)
{
    lt_json_rewind(&run->line);
    lt_json_begin_object(&run->line, NULL);
    lt_json_put_string(&run->line, "event", event);
}

lt_status lt_run_step(lt_run *run, const lt_run_step_record *r)
{
    lt_bar_step(&run->bar, r);
    if (r->seconds > 0) {
        run->sum.samples += (double)r->samples;
        run->sum.seconds += r->seconds;
    }
    if (!run->metrics)
        return LT_OK;
    const lt_metric lr = {"lr", r->lr};
    const lt_metric speed[] = {
        {run->sum.key, r->seconds > 0 ? (double)r->samples / r->seconds : (double)NAN},
        {"data_seconds", r->data_seconds},
    };
    begin_line(run, "step");
    lt_json_put_integer(&run->line, "step", r->step);
    lt_json_put_integer(&run->line, "epoch", r->epoch);
    LT_TRY(put_metrics(run, "train", r->step, r->metric, r->metrics));
    LT_TRY(put_metrics(run, "train", r->step, &lr, 1));
    LT_TRY(put_metrics(run, "speed", r->step, speed, sizeof speed / sizeof *speed));
    put_number(run, "seconds", r->seconds);
    LT_TRY(put_metrics(run, "train", r->step, r->extra, r->extra_count));
    return write_line(run);
}

/* Shows the metrics, how much of the data the evaluation used if not all, the duration, and the mean speed of all
 * steps of the run, as lather-inspect and lather-report do. */
static void show_epoch(lt_run *run, const lt_run_epoch_record *r)
{
    const double samples = lt_metric_value(r->extra, r->extra_count, "val_samples"),
                 total = lt_metric_value(r->extra, r->extra_count, "val_total"),
                 speed = run->sum.samples / run->sum.seconds;
    char text[320], duration[32];
    size_t used =
        (size_t)snprintf(text, sizeof text, "%s %" PRId64 ":", r->is_evaluation ? "step" : "epoch",
                         r->is_evaluation ? r->step : r->epoch + 1);
    for (size_t i = 0; i < r->metrics; i++)
        used += lt_bar_format_metric(&run->bar, r->metric[i].name, r->metric[i].value, text + used,
                                     sizeof text - used);
    if (samples < total)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, " on %.0f of %.0f", samples, total);
    used += (size_t)snprintf(
        text + used, sizeof text - used, " | %s",
        lt_duration_text(r->is_evaluation ? r->eval_seconds : r->seconds, duration));
    if (!r->is_evaluation && run->sum.seconds > 0)
        snprintf(text + used, sizeof text - used, ", %.*f %s/s", speed < 100, speed, run->bar.unit);
    lt_bar_line(&run->bar, text);
}

lt_status lt_run_epoch(lt_run *run, const lt_run_epoch_record *r)
{
    show_epoch(run, r);
    tell_bad_images(run);
    if (!run->metrics)
        return LT_OK;
    const lt_metric seconds[] = {{"seconds", r->seconds}, {"eval_seconds", r->eval_seconds}};
    begin_line(run, r->is_evaluation ? "evaluation" : "epoch");
    lt_json_put_integer(&run->line, "epoch", r->epoch);
    lt_json_put_integer(&run->line, "step", r->step);
    LT_TRY(put_metrics(run, "epoch", r->step, r->metric, r->metrics));
    LT_TRY(put_metrics(run, "epoch", r->step, seconds, sizeof seconds / sizeof *seconds));
    LT_TRY(put_metrics(run, "epoch", r->step, r->extra, r->extra_count));
    LT_TRY(write_line(run));
    return fsync(fileno(run->metrics)) && errno != EINVAL ? io_error(run, run->records) : LT_OK;
}

lt_status lt_run_event(lt_run *run, const char *event, int64_t step, const char *key,
                       const char *text)
{
    if (!run->metrics)
        return LT_OK;
    begin_line(run, event);
    lt_json_put_integer(&run->line, "step", step);
    if (key)
        lt_json_put_string(&run->line, key, text);
    return write_line(run);
}

lt_status lt_run_hash(lt_run *run, int64_t step, const char *sha256, const char *line)
{
    FILE *file;
    if (!run->metrics)
        return LT_OK;
    LT_TRY(open_for_append(run, LT_RUN_HASHES, &file));
    const bool failed = fprintf(file, "%s\n", line) < 0;
    if (fclose(file) || failed)
        return io_error(run, LT_RUN_HASHES);
    return lt_run_event(run, "hash", step, "sha256", sha256);
}

lt_status lt_run_data(lt_run *run, int64_t step, int64_t samples, uint64_t fingerprint,
                      int64_t bytes)
{
    char digits[17];
    if (!run->metrics)
        return LT_OK;
    snprintf(digits, sizeof digits, "%016" PRIx64, fingerprint);
    begin_line(run, "data");
    lt_json_put_integer(&run->line, "step", step);
    lt_json_put_integer(&run->line, "samples", samples);
    lt_json_put_string(&run->line, "fingerprint", digits);
    lt_json_put_integer(&run->line, "bytes", bytes);
    return write_line(run);
}

lt_status lt_run_event_values(lt_run *run, const char *event, int64_t step, const lt_metric *value,
                              size_t count)
{
    if (!run->metrics)
        return LT_OK;
    begin_line(run, event);
    lt_json_put_integer(&run->line, "step", step);
    for (size_t i = 0; i < count; i++)
        if (isfinite(value[i].value))
            lt_json_put_number(&run->line, value[i].name, value[i].value);
    return write_line(run);
}

lt_status lt_run_event_scalars(lt_run *run, const char *event, int64_t step, const lt_metric *value,
                               size_t count)
{
    char tag[128];
    for (size_t i = 0; i < count; i++) {
        snprintf(tag, sizeof tag, "%s/%s", event, value[i].name);
        if (isfinite(value[i].value))
            LT_TRY(put_tensorboard_scalar(run, tag, step, value[i].value));
    }
    return lt_run_event_values(run, event, step, value, count);
}

lt_status lt_run_histogram(lt_run *run, const char *event, const char *name, int64_t step,
                           const double *sorted, size_t count)
{
    char tag[128];
    snprintf(tag, sizeof tag, "%s/%s", event, name);
    return run->board && count ? lt_tensorboard_histogram(run->board, tag, step, sorted, count)
                               : LT_OK;
}

/* Adds a line of bad_images.txt to the known ones; returns false if an earlier epoch or evaluation had it. */
static bool remember_if_new_bad_image(lt_run *run, const char *line)
{
    const uint64_t hash = lt_fnv1a_text(LT_FNV1A_BEGIN, line);
    for (size_t i = 0; i < run->bad_count; i++)
        if (run->bad[i] == hash)
            return false;
    if (!LT_GROW(&run->bad, &run->bad_capacity, run->bad_count + 1))
        run->bad[run->bad_count++] = hash;
    return true;
}

/* Reads the lines of bad_images.txt that an earlier start of the run wrote, and remembers their hashes. */
static void remember_bad_images(lt_run *run)
{
    char *path = lt_format("%s/bad_images.txt", run->folder), *line = NULL;
    int fd;
    FILE *file = path && !lt_shared_open(&fd, path, O_RDONLY, 0) ? fdopen(fd, "rb") : NULL;
    size_t capacity = 0;
    for (ssize_t bytes; file && (bytes = getline(&line, &capacity, file)) > 0;) {
        line[bytes - (line[bytes - 1] == '\n')] = 0;
        (void)remember_if_new_bad_image(run, line);
    }
    if (file)
        fclose(file);
    free(line); /* getline()'s */
    lt_free(path);
}

static void tell_bad_images(lt_run *run)
{
    if (run->bad_count)
        lt_run_warn(run, "%zu image%s could not be read and were replaced by others: %s%s",
                    run->bad_count, run->bad_count > 1 ? "s" : "",
                    run->folder ? run->folder : "--output lists them",
                    run->folder ? "/bad_images.txt" : "");
    run->bad_told = run->bad_count;
}

lt_status lt_run_bad_image(lt_run *run, const char *description)
{
    char line[2048];
    if (run->is_quiet)
        return LT_OK;
    if (run->folder && !run->bad_count)
        remember_bad_images(run);
    lt_text_line(line, sizeof line, description); /* a file's name may have a newline */
    if (!remember_if_new_bad_image(run, line) || !run->folder)
        return LT_OK;
    if (!run->bad_images)
        LT_TRY(open_for_append(run, "bad_images.txt", &run->bad_images));
    if (fprintf(run->bad_images, "%s\n", line) < 0 || fflush(run->bad_images))
        return io_error(run, "bad_images.txt");
    return LT_OK;
}

void lt_run_note(lt_run *run, const char *fmt, ...)
{
    char raw[1024], text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    lt_bar_line(&run->bar, lt_text_line(text, sizeof text, raw));
}

void lt_run_warn(lt_run *run, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    lt_bar_clear(&run->bar);
    lt_log(LT_LOG_WARN, "train", "%s", text);
}

void lt_run_part(lt_run *run, const char *name, int64_t done, int64_t total)
{
    lt_bar_draw_part(&run->bar, name, done, total);
}

const char *lt_run_folder(const lt_run *run)
{
    return run->folder;
}
