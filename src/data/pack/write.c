/* Writes a pack. Each thread writes one shard at a time. Which samples are in a shard depends on data and config only,
 * not on threads. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/json.h"
#include "base/shared_file.h"
#include "data/files/files.h"
#include "data/pack/pack.h"

#include "lather/detail/text.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEAST = 64, MOST = 8192, USUAL_SHARDS = 64, MAX_THREADS = 256, MAX_SIDE = 1 << 14 };

static const char *const mode_names[] = {"original", "lossless", "resized", "raw"};

typedef struct job {
    const char *folder;
    const lt_dataset *data;
    lt_pack_config config;
    uint64_t config_hash;
    int64_t shards;
    lt_pack_progress_fn *progress;
    void *context;
    pthread_mutex_t lock; /* guards the fields below */
    int64_t next;         /* next shard */
    bool stopped;
    lt_status status; /* first error and its message */
    char *message;
    lt_pack_report report;
    char **corrupt; /* [shards] lines "PATH: why"; owned */
} job;

static lt_status check_encoding_config(lt_pack_config *c)
{
    if ((int)c->mode < 0 || c->mode > LT_PACK_RAW)
        return lt_fail(LT_E_ARG, "pack: mode is %d, want 0 .. %d", (int)c->mode, (int)LT_PACK_RAW);
    if (c->max_side < 0 || c->max_side > MAX_SIDE || (c->mode == LT_PACK_RESIZED && !c->max_side))
        return lt_fail(LT_E_ARG, "pack: max_side is %d, want 1 .. %d", c->max_side, MAX_SIDE);
    c->quality = c->quality ? c->quality : 90;
    if (c->quality < 1 || c->quality > 100)
        return lt_fail(LT_E_ARG, "pack: quality is %d, want 1 .. 100", c->quality);
    return LT_OK;
}

static lt_status check_sharding_config(lt_pack_config *c, int64_t count)
{
    if (c->shard_samples < 0 || c->threads < 0 || c->threads > MAX_THREADS)
        return lt_fail(LT_E_ARG,
                       "pack: shard_samples is %" PRId64
                       ", threads is %d; want 0 or more samples, 0 .. %d threads",
                       c->shard_samples, c->threads, MAX_THREADS);
    if (!c->shard_samples) {
        int64_t n = (count + USUAL_SHARDS - 1) / USUAL_SHARDS;
        c->shard_samples = n < LEAST ? LEAST : n > MOST ? MOST : n;
    }
    c->threads = c->threads ? c->threads : lt_cpu_threads();
    return LT_OK;
}

/* --- One shard --- */

static lt_status add_corrupt(char **lines, const char *name)
{
    char shown[2048];
    char *more = lt_format("%s%s: %s\n", *lines ? *lines : "",
                           lt_text_line(shown, sizeof shown, name), lt_error_message());
    if (!more)
        return LT_E_NOMEM;
    lt_free(*lines);
    *lines = more;
    return LT_OK;
}

static const char *sample_name_or_number(const lt_dataset *data, int64_t index, char number[24])
{
    const char *name = lt_dataset_sample_name(data, index);
    snprintf(number, 24, "%" PRId64, index);
    return name ? name : number;
}

/* One shard in progress. */
typedef struct shard_job {
    int64_t first, last; /* samples */
    lt_pack_writer writer;
    lt_pack_report report;
    char *corrupt; /* lines "PATH: why"; owned */
} shard_job;

/* Reads, encodes and adds a sample; lists a corrupt one and leaves it out. */
static lt_status add_sample(const job *j, int64_t index, lt_pack_encoder *e, lt_record *record,
                            shard_job *s)
{
    char number[24];
    const char *name = sample_name_or_number(j->data, index, number);
    bool kept = false;
    lt_status st = j->data->ops->read(j->data, index, record);
    uint64_t before = record->size;
    if (!st)
        st = lt_pack_encode(e, record, lt_dataset_channels(j->data), &kept);
    if (st == LT_E_NOMEM || (st == LT_E_UNSUPPORTED && record->encoding != LT_ENCODING_FILE))
        return st;
    s->report.samples++;
    if (st) {
        s->report.bad++;
        return add_corrupt(&s->corrupt, name);
    }
    s->report.kept += kept;
    s->report.bytes_in += before;
    s->report.bytes_out += record->size;
    return lt_pack_writer_add(&s->writer, record, name);
}

static lt_status fill_shard(const job *j, shard_job *s)
{
    lt_pack_encoder *e = NULL;
    lt_record record = {0};
    lt_status st = lt_pack_encoder_new(&e, &j->config);
    for (int64_t i = s->first; i < s->last && !st; i++)
        st = add_sample(j, i, e, &record, s);
    lt_free(record.bytes);
    lt_pack_encoder_free(&e);
    return st;
}

/* Compares every record of a shard with its hash. */
static lt_status verify_records(const lt_pack_shard *s, const char *path)
{
    lt_record record = {0};
    lt_status st = LT_OK;
    for (size_t i = 0; i < s->count && !st; i++) {
        const lt_pack_entry *e = &s->entry[i];
        st = lt_file_read_range(path, e->offset, e->size, &record);
        if (!st && lt_hash64(record.bytes, record.size) != e->hash)
            st = lt_fail(
                LT_E_FORMAT,
                "%s: record %zu is corrupt; delete this file and run the same command again", path,
                i);
    }
    lt_free(record.bytes);
    return st;
}

/* Verifies a shard that an earlier call completed, and counts its samples. */
static lt_status reuse_shard(const char *path, uint64_t config_hash, shard_job *out)
{
    lt_pack_shard s = {0};
    LT_TRY(lt_pack_shard_load(&s, path, config_hash));
    out->report.samples = out->last - out->first;
    out->report.found = (int64_t)s.count;
    out->report.bad = out->report.samples - (int64_t)s.count;
    for (size_t i = 0; i < s.count; i++)
        out->report.bytes_out += s.entry[i].size;
    lt_status st = verify_records(&s, path);
    lt_pack_shard_clear(&s);
    return st;
}

static lt_status write_shard(const job *j, const char *path, shard_job *s)
{
    lt_status st = lt_pack_writer_open(&s->writer, path);
    if (!st)
        st = fill_shard(j, s);
    if (!st)
        st = lt_pack_writer_finish(&s->writer, j->config_hash);
    lt_pack_writer_abandon(&s->writer);
    return st;
}

/* A shard without some images is written again: they may have been repaired, or be allowed now. */
static lt_status write_or_reuse_shard(const job *j, int64_t index, shard_job *s)
{
    bool reused = false;
    s->first = index * j->config.shard_samples;
    s->last = s->first + j->config.shard_samples;
    if (s->last > j->data->count)
        s->last = j->data->count;
    char *path = lt_pack_shard_path(j->folder, index);
    lt_status st = path ? LT_OK : LT_E_NOMEM;
    if (!st && !access(path, F_OK)) {
        st = reuse_shard(path, j->config_hash, s);
        reused = st || !s->report.bad;
        if (!reused)
            s->report = (lt_pack_report){0};
    }
    if (!st && !reused)
        st = write_shard(j, path, s);
    lt_free(path);
    return st;
}

/* --- Threads --- */

static void add_result(job *j, int64_t index, lt_status st, const shard_job *r)
{
    if (st && !j->status) {
        j->status = st;
        j->message = lt_strdup(lt_error_message());
    }
    j->corrupt[index] = r->corrupt;
    j->report.samples += r->report.samples;
    j->report.bad += r->report.bad;
    j->report.found += r->report.found;
    j->report.kept += r->report.kept;
    j->report.bytes_in += r->report.bytes_in;
    j->report.bytes_out += r->report.bytes_out;
    if (!j->status && j->progress && !j->progress(j->context, &j->report))
        j->stopped = true;
}

static void *write_shards_thread(void *argument)
{
    job *j = argument;
    pthread_mutex_lock(&j->lock);
    while (!j->status && !j->stopped && j->next < j->shards) {
        int64_t index = j->next++;
        shard_job r = {0};
        pthread_mutex_unlock(&j->lock);
        lt_status st = write_or_reuse_shard(j, index, &r);
        pthread_mutex_lock(&j->lock);
        add_result(j, index, st, &r);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

static void run_threads(job *j)
{
    pthread_t thread[MAX_THREADS];
    int started = 0;
    while (started < j->config.threads - 1 && started + 1 < j->shards
           && !pthread_create(&thread[started], NULL, write_shards_thread, j))
        started++;
    write_shards_thread(j); /* the calling thread works too */
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

/* --- The folder --- */

/* Hashes the config, the numbers of samples and classes, and the first and last names; not the images. */
static lt_status hash_config(uint64_t *out, const lt_dataset *data, const lt_pack_config *c)
{
    char number[24];
    char *text = lt_format("%d %d %d %" PRId64 " %" PRId64 " %d %s %s", (int)c->mode, c->max_side,
                           c->quality, c->shard_samples, data->count, data->classes,
                           sample_name_or_number(data, 0, number),
                           sample_name_or_number(data, data->count - 1, number));
    if (!text)
        return LT_E_NOMEM;
    const uint64_t hash = lt_hash64(text, strlen(text));
    lt_free(text);
    *out = hash ? hash : 1;
    return LT_OK;
}

static lt_status write_corrupt_list(const job *j)
{
    char *path = lt_format("%s/bad_images.txt", j->folder);
    FILE *file = NULL;
    lt_status st = path ? LT_OK : LT_E_NOMEM;
    if (!st && remove(path) && errno != ENOENT)
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    for (int64_t i = 0; i < j->shards && !st; i++) {
        if (!j->corrupt[i])
            continue;
        st = file ? LT_OK : lt_shared_open_stream(&file, path, 'w');
        if (!st)
            fputs(j->corrupt[i], file);
    }
    if (file && fclose(file))
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_free(path);
    return st;
}

/* Writes a name as an escaped JSON string, as names may be any bytes and JSON is UTF-8. */
static lt_status put_escaped_name(lt_json_writer *w, const char *name)
{
    size_t bytes = name ? lt_text_escape_bytes(name) : 1;
    char *text;
    LT_TRY(LT_ALLOC(&text, bytes));
    lt_json_put_string(w, NULL, name ? lt_text_escape(text, bytes, name) : NULL);
    lt_free(text);
    return LT_OK;
}

static lt_status write_manifest(const job *j)
{
    char *path = lt_format("%s/manifest.json", j->folder);
    lt_json_writer w = {0};
    lt_json_begin_object(&w, NULL);
    lt_json_put_string(&w, "format", "lather pack");
    lt_json_put_integer(&w, "version", LT_PACK_VERSION);
    lt_json_put_string(&w, "mode", mode_names[j->config.mode]);
    lt_json_put_integer(&w, "max_side", j->config.max_side);
    lt_json_put_integer(&w, "quality", j->config.quality);
    lt_json_put_integer(&w, "samples", j->report.samples - j->report.bad);
    lt_json_put_integer(&w, "bad", j->report.bad);
    lt_json_put_integer(&w, "shards", j->shards);
    lt_json_put_integer(&w, "channels", lt_dataset_channels(j->data));
    lt_json_put_integer(&w, "classes", j->data->classes);
    lt_json_begin_array(&w, "class_names");
    lt_status st = path ? LT_OK : LT_E_NOMEM;
    for (int i = 0; i < j->data->classes && !st; i++)
        st = put_escaped_name(&w, lt_dataset_class_name(j->data, i));
    lt_json_end(&w);
    lt_json_end(&w);
    const char *text;
    size_t bytes;
    lt_json_put_raw(&w, "\n");
    if (!st)
        st = lt_json_text(&w, &text, &bytes);
    if (!st)
        st = lt_shared_save(path, text, bytes);
    if (!st)
        st = lt_sync_path(path);
    lt_json_writer_clear(&w);
    lt_free(path);
    return st;
}

static lt_status write_whole_pack(job *j)
{
    static const char *const names[] = {"shard-[0-9]*.pack", "manifest.json", NULL};
    LT_TRY(LT_ALLOC(&j->corrupt, j->shards));
    LT_TRY(lt_make_folders(j->folder));
    lt_remove_stale_temps(j->folder, names, false);
    run_threads(j);
    if (j->status)
        return lt_fail(j->status, "%s", j->message ? j->message : "pack: no memory");
    LT_TRY(write_corrupt_list(j));
    return j->stopped ? LT_END : write_manifest(j);
}

lt_status lt_pack_write(const char *folder, const lt_dataset *data, const lt_pack_config *config,
                        lt_pack_progress_fn *progress, void *context, lt_pack_report *report)
{
    job j = {.folder = folder,
             .data = data,
             .config = *config,
             .progress = progress,
             .context = context,
             .report.total = data->count,
             .lock = PTHREAD_MUTEX_INITIALIZER};
    if (!lt_has_xxhash())
        return lt_fail(LT_E_UNSUPPORTED,
                       "pack: packs need xxHash, which this build lacks (meson option 'xxhash')");
    if (!data->count)
        return lt_fail(LT_E_ARG, "pack: the data set is empty");
    LT_TRY(check_encoding_config(&j.config));
    LT_TRY(check_sharding_config(&j.config, data->count));
    j.shards = (data->count + j.config.shard_samples - 1) / j.config.shard_samples;
    LT_TRY(hash_config(&j.config_hash, data, &j.config));
    lt_status st = write_whole_pack(&j);
    lt_free_texts(j.corrupt, (size_t)j.shards);
    lt_free(j.message);
    if (report)
        *report = j.report;
    return st;
}
