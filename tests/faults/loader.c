/* An epoch of a loader, and the writing of packs, in which one call for memory, a file, a thread or a kernel fails: it
 * returns an error, or continues without an optional resource and delivers the right batches; nothing leaks. */

#include "faults.h"
#include "images.h"

#include "lather/data.h"
#include "lather/pack.h"

#include <ftw.h>

enum { MEMORY_THREAD_KERNEL = FAULT_MEMORY | FAULT_THREAD | FAULT_KERNEL };
enum { SIDE = 8, SHARD = 6, COMMAND = 4096, SLOTS = 4 };

static lt_device *device;
static char *folder;                                  /* folder of images */
static char *tars, *pack, *written, *caches, *tables; /* folders of files made from them */

typedef struct row {
    const char *name;
    char *const *data;
    unsigned kinds;
    const char *survives; /* as in fault_case */
    const char *removed;  /* files of this ending are removed first; NULL: none */
    int64_t cache_bytes;
    int threads;
    double split; /* part of the samples that is held back; 0: none */
    bool labels;  /* labels are those of tables/labels.csv */
} row;

typedef struct scene {
    const row *row;
    lt_dataset *data;
    lt_loader *loader;
    uint64_t sum, want; /* sums of all batches' bytes; want: in an epoch without a failure */
} scene;

static const char *ending;

static int remove_file(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)at;
    const size_t bytes = strlen(path), tail = strlen(ending);
    return kind == FTW_F && bytes >= tail && !strcmp(path + bytes - tail, ending) ? unlink(path)
                                                                                  : 0;
}

static void remove_files(const char *under, const char *ending_of)
{
    ending = ending_of;
    assert_int_equal(nftw(under, remove_file, 8, FTW_PHYS), 0);
}

static void begin(void *context)
{
    scene *s = context;
    s->sum = 0;
    if (s->row->removed) {
        remove_files(*s->row->data, s->row->removed);
        remove_files(caches, "");
    }
}

static lt_status add(scene *s, const lt_tensor *t)
{
    unsigned char bytes[4 * 3 * SIDE * SIDE];
    LT_TRY(lt_tensor_read(t, bytes, lt_tensor_bytes(t)));
    for (size_t i = 0; i < lt_tensor_bytes(t); i++)
        s->sum = (s->sum ^ bytes[i]) * 1099511628211U;
    return LT_OK;
}

/* Threads make batches of the next epoch meanwhile: the failure of a call may be one of theirs. */
static lt_status read_on(scene *s)
{
    lt_batch b;
    lt_status st = LT_OK;
    for (int i = 0; i < 2 * SLOTS && (!st || st == LT_END) && faults_disarm(); i++)
        st = lt_loader_next(s->loader, &b);
    return st == LT_END ? LT_OK : st;
}

static lt_status read_epoch(scene *s)
{
    lt_batch b;
    lt_status st;
    while (!(st = lt_loader_next(s->loader, &b))) {
        LT_TRY(add(s, b.inputs));
        LT_TRY(add(s, b.labels));
    }
    return st == LT_END ? read_on(s) : st;
}

static lt_status open_data(scene *s)
{
    char path[COMMAND];
    snprintf(path, sizeof path, "%s/labels.csv", tables);
    LT_TRY(s->row->labels ? lt_dataset_table(&s->data, *s->row->data, path, NULL, NULL, 0)
                          : lt_dataset_open(&s->data, *s->row->data, true));
    return s->row->split > 0 ? lt_dataset_split(&s->data, s->row->split, 5, true) : LT_OK;
}

static lt_status epoch(void *context)
{
    scene *s = context;
    const lt_loader_config c = {.transform = {.augment = LT_AUGMENT_IMAGENET, .size = SIDE},
                                .batch = 4,
                                .threads = s->row->threads,
                                .slots = SLOTS,
                                .cache_bytes = s->row->cache_bytes,
                                .seed = 11,
                                .shuffle = true,
                                .limit = 8};
    LT_TRY(open_data(s));
    LT_TRY(lt_loader_new(&s->loader, s->data, device, &c));
    return read_epoch(s);
}

static void release(scene *s)
{
    lt_loader_free(&s->loader);
    lt_dataset_free(&s->data);
}

/* A loader that failed works again after lt_loader_seek(). */
static void after_epoch(void *context, lt_status st)
{
    scene *s = context;
    if (st == LT_E_FORMAT) /* a sample that could not be read remains marked as corrupt */
        release(s);
    if (st && s->loader) {
        s->sum = 0;
        assert_ok(lt_loader_seek(s->loader, 0, 0));
        assert_ok(read_epoch(s));
    } else if (st) {
        release(s);
        s->sum = 0;
        assert_ok(epoch(s));
    }
    s->want = s->want ? s->want : s->sum;
    assert_true(s->sum == s->want);
}

static void end(void *context)
{
    release(context);
}

/* An index that cannot be written or read back is done without. */
static const row rows[] = {
    {"a folder", &folder, MEMORY_THREAD_KERNEL, NULL, NULL, 0, 1, 0, false},
    {"a folder: files", &folder, FAULT_FILE, NULL, NULL, 0, 1, 0, false},
    {"a folder, two threads", &folder, FAULT_MEMORY | FAULT_THREAD, NULL, NULL, 0, 2, 0, false},
    {"a folder, split", &folder, FAULT_MEMORY, NULL, NULL, 0, 1, 0.5, false},
    {"a folder, table of labels", &folder, FAULT_MEMORY, NULL, NULL, 0, 1, 0, true},
    {"a folder, table of labels: files", &folder, FAULT_FILE, NULL, NULL, 0, 1, 0, true},
    {"a folder, image cache", &folder, FAULT_MEMORY, "*", NULL, 1 << 20, 1, 0, false},
    {"a tar file", &tars, FAULT_MEMORY, "*", ".index", 0, 1, 0, false},
    {"a tar file: files", &tars, FAULT_FILE, "*", ".index", 0, 1, 0, false},
    {"a tar file, index", &tars, FAULT_MEMORY, "*", NULL, 0, 1, 0, false},
    {"a tar file, index: files", &tars, FAULT_FILE, "*", NULL, 0, 1, 0, false},
    {"a pack", &pack, FAULT_MEMORY, NULL, NULL, 0, 1, 0, false},
    {"a pack: files", &pack, FAULT_FILE, NULL, NULL, 0, 1, 0, false},
};

static void an_epoch_that_fails_says_so(void **state)
{
    scene s = {.row = *state};
    const fault_case c = {.name = s.row->name,
                          .kinds = s.row->kinds,
                          .survives = s.row->survives,
                          .open = begin,
                          .act = epoch,
                          .after = after_epoch,
                          .close = end,
                          .context = &s,
                          .least = 10};
    (void)faults_each(&c);
}

/* --- Packs --- */

typedef struct writing {
    const char *name, *survives; /* as in fault_case */
    lt_dataset *data;
    unsigned kinds;
    lt_pack_mode mode;
    int64_t least; /* samples */
    bool resumed;  /* there are shards of an earlier call */
} writing;

static void begin_pack(void *context)
{
    const writing *w = context;
    remove_files(written, w->resumed ? "manifest.json" : "");
}

static lt_status write_pack(void *context)
{
    const writing *w = context;
    const lt_pack_config c = {.mode = w->mode, .shard_samples = SHARD, .threads = 1};
    return lt_pack_write(written, w->data, &c, NULL, NULL, NULL);
}

static void after_pack(void *context, lt_status st)
{
    int64_t samples = 0;
    if (st)
        assert_ok(write_pack(context));
    assert_ok(lt_pack_verify(written, NULL, &samples));
    assert_in_range(samples, ((const writing *)context)->least, 12);
}

/* An image that cannot be read is left out. */
static writing writings[] = {
    {"a pack of files is written", NULL, NULL, FAULT_MEMORY | FAULT_THREAD, LT_PACK_ORIGINAL, 12,
     false},
    {"a pack of files is written: files", " open64 fstat64 read opendir ", NULL, FAULT_FILE,
     LT_PACK_ORIGINAL, 11, false},
    {"a lossless pack is written", NULL, NULL, FAULT_MEMORY, LT_PACK_LOSSLESS, 12, false},
    {"a pack of pixels is written", NULL, NULL, FAULT_MEMORY, LT_PACK_RAW, 12, false},
    {"a pack is written on", NULL, NULL, FAULT_MEMORY, LT_PACK_ORIGINAL, 12, true},
};

static void a_pack_that_fails_says_so(void **state)
{
    writing *w = *state;
    assert_ok(lt_dataset_open(&w->data, folder, true));
    remove_files(written, "");
    const fault_case c = {.name = w->name,
                          .kinds = w->kinds,
                          .survives = w->survives,
                          .open = begin_pack,
                          .act = write_pack,
                          .after = after_pack,
                          .context = w,
                          .frees_others = w->mode != LT_PACK_ORIGINAL, /* libjpeg's */
                          .least = 20};
    (void)faults_each(&c);
    lt_dataset_free(&w->data);
}

/* --- The files --- */

static int setup(void **state)
{
    (void)state;
    const lt_pack_config c = {.mode = LT_PACK_ORIGINAL, .shard_samples = SHARD, .threads = 1};
    char command[COMMAND];
    lt_dataset *d = NULL;
    assert_ok(lt_device_open(&device, "ref", NULL));
    folder = make_image_folder();
    tars = make_folder();
    pack = make_folder();
    written = make_folder();
    tables = make_folder();
    caches = make_folder(); /* for indexes that cannot be stored next to their tar files */
    setenv("XDG_CACHE_HOME", caches, 1);
    run_in(
        folder,
        "rm class?/03.bmp"); /* stb_image asks each of its formats, and does without some memory */
    snprintf(command, sizeof command,
             "(echo image,label; for f in class*/*; do echo $f,${f%%%%/*}; done) >'%s/labels.csv'",
             tables);
    run_in(folder, command);
    snprintf(command, sizeof command, "tar cf train.tar -C '%s' .", folder);
    run_in(tars, command);
    assert_ok(lt_dataset_open(&d, folder, true));
    assert_ok(lt_pack_write(pack, d, &c, NULL, NULL, NULL));
    lt_dataset_free(&d);
    faults_attach(device);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char *const all[] = {folder, tars, pack, written, caches, tables};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        remove_folder(all[i]);
    lt_device_close(&device);
    return 0;
}

int main(void)
{
    enum { ROWS = COUNT_OF(rows), WRITINGS = COUNT_OF(writings) };
    struct CMUnitTest tests[ROWS + WRITINGS];
    for (size_t i = 0; i < ROWS; i++)
        tests[i] = (struct CMUnitTest){rows[i].name, an_epoch_that_fails_says_so, NULL, NULL,
                                       (void *)(uintptr_t)&rows[i]};
    for (size_t i = 0; i < WRITINGS; i++)
        tests[ROWS + i] = (struct CMUnitTest){writings[i].name, a_pack_that_fails_says_so, NULL,
                                              NULL, &writings[i]};
    return faults_run("faults in a loader", tests, COUNT_OF(tests), setup, teardown);
}
