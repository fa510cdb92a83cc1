/* Copies of files kept on a near disk: the same bytes with and without, whatever becomes of the
 * folder. */

#include "base/alloc.h"
#include "cache_place.h"
#include "data/cache/disk_copy.h"
#include "data/pack/pack.h"

#include "lather/data.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALL = 15 }; /* images of make_image_folder() */

/* --- Copies of files --- */

static int64_t walked;

static int add_copy(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)path;
    if (kind == FTW_F && at->level == 2)
        walked += (info->st_size + 4095) / 4096 * 4096;
    return 0;
}

/* Bytes of the copies, in blocks of 4 KiB. */
static int64_t held(const place *p)
{
    walked = 0;
    assert_int_equal(nftw(p->near, add_copy, 9, FTW_PHYS), 0);
    return walked;
}

static int64_t counted(const place *p)
{
    char *path = below(p->near, "bytes");
    int64_t bytes = -1;
    FILE *f = fopen(path, "rb");
    assert_true(f && fread(&bytes, sizeof bytes, 1, f) == 1);
    fclose(f);
    free(path);
    return bytes;
}

typedef struct damage {
    const char *name, *commands; /* on $F, the one copy; or the source */
} damage;
static damage damages[] = {
    {"a copy that is cut off is made again", "truncate -s -1 $F"},
    {"a copy of nothing is made again", ": >$F"},
    {"a copy with a flipped byte is made again",
     "printf '\\377' | dd of=$F bs=1 seek=100 conv=notrunc status=none"},
    {"a copy with something behind it is made again", "echo more >>$F"},
    {"a copy of another file is made again", "cp data/class0/01.jpg $F"},
    {"a file that was changed since is copied again", "touch -d @1 data/class0/00.jpg"},
    {"a file that became another is copied again", "cp data/class0/01.jpg data/class0/00.jpg"},
    {"what a process that died left is written over", "mv $F $F.part"},
};

static void check_damage(void **state)
{
    const damage *d = *state;
    place p = open_place();
    lt_disk_cache *s = open_store(&p, 0);
    assert_false(read_one(&p, s));
    assert_true(read_one(&p, s));
    char *line = NULL;
    if (asprintf(&line, "F=$(find near -mindepth 2 -type f) && %s", d->commands) < 0)
        abort();
    run_in(p.root, line);
    free(line);
    assert_false(read_one(&p, s)); /* found out */
    assert_true(read_one(&p, s));  /* and mended */
    assert_int_equal(lt_disk_cache_statistics(s).copies, 2);
    if (!strstr(d->commands, "mv"))
        assert_int_equal(counted(&p), held(&p));
    run_in(p.root, "test $(find near -mindepth 2 -type f | wc -l) = 1"); /* no rest is left */
    run_in(p.root, "rm data/class0/00.jpg");
    lt_record r = {0};
    char *path = below(p.root, "data/class0/00.jpg");
    assert_status(lt_disk_cache_read(s, path, &r),
                  LT_E_IO); /* it is gone, whatever the copy says */
    lt_free(r.bytes);
    free(path);
    lt_disk_cache_free(&s);
    close_place(&p);
}

/* A folder that is none, one that is full: said once, and the bytes are right. */
static void check_useless(void **state)
{
    (void)state;
    place p = open_place();
    lt_log_set(count_warnings, NULL);
    for (int full = 0; full < 2; full++) {
        const struct rlimit small = {1000, RLIM_INFINITY};
        struct rlimit before;
        warnings = 0;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        if (full) {
            run_in(p.root, "rm near");
            signal(SIGXFSZ, SIG_IGN);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        } else {
            run_in(p.root, "echo file >near");
        }
        lt_disk_cache *s = open_store(&p, 0);
        for (int i = 0; i < 3; i++)
            assert_false(read_one(&p, s));
        assert_int_equal(warnings, 1);
        assert_int_equal(lt_disk_cache_statistics(s).copies, 0);
        lt_disk_cache_free(&s);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    run_in(p.root, "test -z \"$(find near -mindepth 2 -type f)\""); /* no rest is left */
    lt_log_set(NULL, NULL);
    close_place(&p);
}

/* As another user, if root runs the tests: nothing is forbidden to root. */
static void check_read_only(void **state)
{
    (void)state;
    enum { UNPRIVILEGED = 65534 };
    place p = open_place();
    run_in(p.root, "mkdir near && chmod 555 near && chmod 755 . && chmod -R a+rX data");
    bool is_root = geteuid() == 0;
    warnings = 0;
    lt_log_set(count_warnings, NULL);
    if (is_root)
        assert_int_equal(seteuid(UNPRIVILEGED), 0);
    lt_disk_cache *s = open_store(&p, 0);
    bool hits = read_one(&p, s) || read_one(&p, s);
    lt_disk_cache_free(&s);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    lt_log_set(NULL, NULL);
    assert_false(hits);
    assert_int_equal(warnings, 1);
    close_place(&p);
}

/* A tar file and a pack, read through a data set: copied whole, then read without the original. */
static void check_shards(void **state)
{
    (void)state;
    place p = open_place();
    char *pack = below(p.root, "pack"), *data = below(p.root, "data"),
         *tar = below(p.root, "x.tar");
    lt_dataset *d = NULL;
    const lt_pack_config config = {.mode = LT_PACK_ORIGINAL};
    run_in(p.root, "tar --sort=name -cf x.tar -C data .");
    assert_ok(lt_dataset_open(&d, data, true));
    assert_ok(lt_pack_write(pack, d, &config, NULL, NULL, NULL));
    lt_dataset_free(&d);
    const char *const specs[] = {tar, pack}, *const hide[] = {"rm x.tar", "rm -r pack"};
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        lt_record first = {0}, again = {0};
        assert_ok(lt_dataset_open(&d, specs[i], true));
        assert_ok(lt_dataset_cache(d, p.near));
        assert_ok(d->ops->read(d, 3, &first));
        lt_disk_cache_wait(d->disk_cache);
        assert_int_equal(lt_disk_cache_statistics(d->disk_cache).copies, 1);
        const int64_t hits =
            lt_disk_cache_statistics(d->disk_cache).hits; /* 1 if the copy was quick */
        run_in(p.root, hide[i]);
        assert_ok(d->ops->read(d, 3, &again));
        assert_int_equal(lt_disk_cache_statistics(d->disk_cache).hits, hits + 1);
        assert_int_equal(first.size, again.size);
        assert_memory_equal(first.bytes, again.bytes, first.size);
        for (int64_t k = 0; k < ALL; k++)
            assert_ok(d->ops->read(d, k, &again));
        assert_int_equal(lt_disk_cache_statistics(d->disk_cache).hits, hits + 1 + ALL);
        lt_free(first.bytes);
        lt_free(again.bytes);
        lt_dataset_free(&d);
    }
    assert_ok(lt_dataset_synthetic(&d, 5, 8, 3, 5));
    assert_status(lt_dataset_cache(d, p.near), LT_E_UNSUPPORTED);
    lt_dataset_free(&d);
    free(pack);
    free(data);
    free(tar);
    close_place(&p);
}

/* A copy of a shard that does not hold is not read, but made anew. */
static void check_shard_damage(void **state)
{
    (void)state;
    place p = open_place();
    char *tar = below(p.root, "x.tar");
    run_in(p.root, "tar --sort=name -cf x.tar -C data .");
    for (int run = 0; run < 3; run++) {
        lt_dataset *d = NULL;
        lt_record r = {0};
        assert_ok(lt_dataset_open(&d, tar, true));
        assert_ok(lt_dataset_cache(d, p.near));
        assert_ok(d->ops->read(d, 0, &r));
        lt_disk_cache_wait(d->disk_cache);
        assert_int_equal(lt_disk_cache_statistics(d->disk_cache).copies, run != 1);
        const int64_t hits = lt_disk_cache_statistics(d->disk_cache).hits;
        assert_ok(d->ops->read(d, 0, &r));
        assert_int_equal(lt_disk_cache_statistics(d->disk_cache).hits, hits + 1);
        lt_free(r.bytes);
        lt_dataset_free(&d);
        if (run == 1)
            run_in(p.root,
                   "printf x | dd of=$(find near -mindepth 2 -type f) bs=1 seek=700 conv=notrunc "
                   "status=none");
    }
    free(tar);
    close_place(&p);
}

/* A file of several pieces, read across their borders. */
static void check_pieces(void **state)
{
    (void)state;
    enum { BYTES = 3500000, EDGE = 1 << 20 };
    static const struct {
        uint64_t offset, bytes;
    } parts[] = {{0, 10}, {EDGE - 5, 10}, {2L * EDGE, EDGE}, {EDGE - 1, EDGE + 2}, {0, BYTES}};
    place p = open_place();
    uint32_t seed = 7;
    uint8_t *bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)next_random(&seed);
    write_file(p.root, "big", bytes, BYTES);
    char *big = below(p.root, "big");
    lt_disk_cache *s = open_store(&p, 1);
    lt_record r = {0};
    lt_disk_cache_keep_open(s, 2); /* of four */
    for (int round = 0; round < 2; round++) {
        const lt_disk_cache_counts before = lt_disk_cache_statistics(s);
        for (size_t i = 0; i < COUNT_OF(parts); i++) {
            assert_ok(lt_disk_cache_read_part(s, 0, big, parts[i].offset, parts[i].bytes, &r));
            assert_int_equal(r.size, parts[i].bytes);
            assert_memory_equal(r.bytes, bytes + parts[i].offset, r.size);
        }
        lt_disk_cache_wait(s);
        const lt_disk_cache_counts now = lt_disk_cache_statistics(s);
        assert_int_equal(now.copies, 4);
        assert_int_equal(now.reads, 4); /* each piece once */
        if (round == 1)
            assert_int_equal(now.hits - before.hits, (int64_t)COUNT_OF(parts));
        else
            run_in(p.root, "rm big");
    }
    run_in(p.root, "for f in $(find near -size +1000k); do printf x | dd of=$f bs=1 seek=1048576 "
                   "conv=notrunc status=none; done"); /* damage that the tail shows */
    assert_status(lt_disk_cache_read_part(s, 0, big, 0, BYTES, &r), LT_E_IO);
    lt_free(r.bytes);
    lt_disk_cache_free(&s);
    free(big);
    free(bytes);
    close_place(&p);
}

/* --- The limit --- */

/* Reads all of a folder's images; how many were read from copies. */
static int64_t read_all(const place *p, lt_disk_cache *s, const char *folder)
{
    const int64_t before = lt_disk_cache_statistics(s).hits;
    lt_record r = {0};
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 4 + c; i++) {
            char name[64], *path;
            snprintf(name, sizeof name, "%s/class%d/%02d.%s", folder, c, i, i == 3 ? "bmp" : "jpg");
            path = below(p->root, name);
            assert_ok(lt_disk_cache_read(s, path, &r));
            free(path);
        }
    lt_free(r.bytes);
    return lt_disk_cache_statistics(s).hits - before;
}

/* The least recently used goes, nothing that this run used, and the count is exact. */
static void check_limit(void **state)
{
    (void)state;
    place p = open_place();
    lt_disk_cache *s = open_store(&p, 0);
    run_in(p.root, "cp -r data other && cp -r data third");
    assert_int_equal(read_all(&p, s, "data"), 0);
    const int64_t one = counted(&p);
    assert_int_equal(one, held(&p));
    assert_int_equal(read_all(&p, s, "other"), 0);
    assert_int_equal(counted(&p), held(&p));
    lt_disk_cache_free(&s);
    s = open_store(&p, 0); /* a later run, with space for two data sets and a half */
    lt_disk_cache_limit(s, 5 * one / 2);
    assert_int_equal(read_all(&p, s, "data"), ALL); /* more recently used than "other" now */
    assert_int_equal(read_all(&p, s, "third"), 0);
    const int64_t gone = lt_disk_cache_statistics(s).evictions;
    assert_in_range(gone, ALL / 2 - 2, ALL - 2);
    assert_true(counted(&p) <= 5 * one / 2);
    assert_int_equal(counted(&p), held(&p));
    assert_int_equal(read_all(&p, s, "data"), ALL);
    assert_int_equal(read_all(&p, s, "third"), ALL); /* nothing has gone since */
    lt_record r = {0};
    char *last = below(p.root, "other/class2/05.jpg"); /* of "other", used later than the rest */
    assert_ok(lt_disk_cache_read(s, last, &r));
    assert_int_equal(lt_disk_cache_statistics(s).hits, 3 * ALL + 1);
    lt_free(r.bytes);
    free(last);
    lt_disk_cache_free(&s);
    close_place(&p);
}

static void check_too_large(void **state)
{
    (void)state;
    place p = open_place();
    lt_disk_cache *s = open_store(&p, 0);
    assert_int_equal(read_all(&p, s, "data"), 0);
    const int64_t all = held(&p);
    run_in(p.root, "rm -r near/??");
    lt_disk_cache_limit(s, all / 2);
    assert_int_equal(read_all(&p, s, "data"), 0);
    const int64_t kept = lt_disk_cache_statistics(s).copies - ALL;
    assert_in_range(kept, 1, ALL - 1);
    assert_true(held(&p) <= all / 2);
    for (int epoch = 1; epoch < 3; epoch++)
        assert_int_equal(read_all(&p, s, "data"), kept);
    assert_int_equal(lt_disk_cache_statistics(s).evictions, 0);
    lt_disk_cache_free(&s);
    close_place(&p);
}

/* The count is lost, or nonsense: it is made anew, and what a killed process left goes. */
static void check_count(void **state)
{
    (void)state;
    static const char *const harm[] = {"rm near/bytes", ": >near/bytes",
                                       "printf '\\377%.0s' 1 2 3 4 5 6 7 8 >near/bytes"};
    for (size_t i = 0; i < COUNT_OF(harm); i++) {
        place p = open_place();
        lt_disk_cache *s = open_store(&p, 0);
        assert_false(read_one(&p, s));
        run_in(p.root, harm[i]);
        run_in(p.root, "mkdir -p near/00 && head -c 9000 /dev/zero >near/00/0123456789abcd.part && "
                       "touch -d @1 near/00/0123456789abcd.part");
        assert_int_equal(read_all(&p, s, "data"), 1);
        assert_int_equal(counted(&p), held(&p));
        lt_disk_cache_limit(s, 8192);
        run_in(p.root, "cp data/class0/01.jpg data/class0/99.jpg && mv data/class0/99.jpg "
                       "data/class0/00.jpg");
        (void)read_one(&p, s);
        run_in(p.root, "test ! -e near/00/0123456789abcd.part");
        lt_disk_cache_free(&s);
        close_place(&p);
    }
}

/* --- The originals --- */

/* In the second epoch the originals hold other bytes of the same size and time. */
static void check_second_epoch(void **state)
{
    (void)state;
    place p = open_place();
    char *data = below(p.root, "data");
    lt_dataset *d = NULL;
    lt_record first[ALL] = {0}, again = {0};
    assert_ok(lt_dataset_open(&d, data, true));
    assert_ok(lt_dataset_cache(d, p.near));
    assert_ok(lt_dataset_cache_limit(d, PLENTY));
    for (int i = 0; i < ALL; i++)
        assert_ok(d->ops->read(d, i, &first[i]));
    assert_int_equal(lt_disk_cache_statistics(d->disk_cache).reads, ALL);
    run_in(p.root, "for f in data/*/*; do touch -r $f time && tr '\\0-\\377' '\\1-\\377\\0' <$f "
                   ">bytes && cat bytes >$f && touch -r time $f; done");
    for (int i = 0; i < ALL; i++) {
        assert_ok(d->ops->read(d, i, &again));
        assert_int_equal(again.size, first[i].size);
        assert_memory_equal(again.bytes, first[i].bytes, again.size);
        lt_free(first[i].bytes);
    }
    assert_int_equal(lt_disk_cache_statistics(d->disk_cache).reads, ALL);
    lt_free(again.bytes);
    lt_dataset_free(&d);
    free(data);
    close_place(&p);
}

static void *read_in_thread(void *context)
{
    void **c = context;
    return read_one(c[0], c[1]) ? context : NULL;
}

/* Who comes while another process makes a copy waits for it. */
static void check_wait(void **state)
{
    (void)state;
    place p = open_place();
    lt_disk_cache *s = open_store(&p, 0);
    char *path = below(p.root, "data/class0/00.jpg");
    lt_disk_object object;
    lt_disk_copy_writer w;
    lt_record r = {0};
    pthread_t thread;
    void *context[] = {&p, s}, *hit = NULL;
    assert_true(lt_disk_object_stat(&object, path));
    char *copy = lt_disk_copy_path(p.near, &object);
    assert_ok(lt_disk_cache_read(NULL, path, &r));
    assert_ok(lt_disk_copy_begin(&w, copy, false));
    assert_int_equal(pthread_create(&thread, NULL, read_in_thread, context), 0);
    usleep(30000); /* so that it comes too early; too late would pass too */
    assert_ok(lt_disk_copy_finish(&w, &object, r.bytes));
    pthread_join(thread, &hit);
    assert_non_null(hit);
    assert_int_equal(lt_disk_cache_statistics(s).reads, 0);
    lt_free(copy);
    lt_free(r.bytes);
    free(path);
    lt_disk_cache_free(&s);
    close_place(&p);
}

/* --- Several processes --- */

/* All images twice, and a tar file; exit status: how many files were copied, or 100. */
static int work(const place *p, const char *data, const char *tar)
{
    int64_t copies = 0;
    const char *const specs[] = {data, tar};
    for (size_t k = 0; k < COUNT_OF(specs); k++) {
        lt_dataset *d = NULL;
        lt_record r = {0};
        bool ok = !lt_dataset_open(&d, specs[k], true) && !lt_dataset_cache(d, p->near)
                  && !lt_dataset_cache_limit(d, PLENTY);
        for (int64_t i = 0; ok && i < 2 * ALL; i++)
            ok = !d->ops->read(d, i % ALL, &r);
        if (!ok)
            return 100;
        lt_disk_cache_wait(d->disk_cache);
        ok = !d->ops->read(d, 0, &r) && lt_disk_cache_statistics(d->disk_cache).hits > 0;
        const lt_disk_cache_counts n = lt_disk_cache_statistics(d->disk_cache);
        ok = ok && n.reads == n.copies; /* what was read was kept */
        copies += n.copies;
        lt_free(r.bytes);
        lt_dataset_free(&d);
        if (!ok)
            return 100;
    }
    return (int)copies;
}

static void check_processes(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    place p = open_place();
    char *data = below(p.root, "data"), *tar = below(p.root, "x.tar");
    pid_t child[PROCESSES];
    int copies = 0;
    run_in(p.root, "tar --sort=name -cf x.tar -C data . && mkdir near");
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        if (!child[i])
            _exit(work(&p, data, tar));
        assert_true(child[i] > 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 100);
        copies += WEXITSTATUS(status);
    }
    assert_int_equal(copies, ALL + 1); /* each file by one of them */
    assert_int_equal(counted(&p), held(&p));
    run_in(p.root, "test $(find near -mindepth 2 -type f | wc -l) = 16");
    free(data);
    free(tar);
    close_place(&p);
}

/* Killed at any moment, what is left does no harm. */
static void check_kills(void **state)
{
    (void)state;
    place p = open_place();
    char *data = below(p.root, "data"), *tar = below(p.root, "x.tar");
    run_in(p.root, "tar --sort=name -cf x.tar -C data .");
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child)
            _exit(work(&p, data, tar));
        usleep((useconds_t)i * 150); /* of no importance: any moment will do */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_in_range(work(&p, data, tar), 0, ALL + 1);
    assert_int_equal(work(&p, data, tar), 0);
    run_in(p.root, "test $(find near -mindepth 2 -type f | wc -l) = 16");
    assert_true(counted(&p) >= held(&p)); /* a killed process had counted what it did not write */
    free(data);
    free(tar);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"a folder that is none or full is named once", check_useless, 0, 0, 0},
        {"a folder that may only be read is named once", check_read_only, 0, 0, 0},
        {"tar files and packs are copied, then read from there", check_shards, 0, 0, 0},
        {"a damaged copy of a tar file is made anew", check_shard_damage, 0, 0, 0},
        {"a large file is copied in pieces", check_pieces, 0, 0, 0},
        {"at the limit the least recently used goes, nothing in use", check_limit, 0, 0, 0},
        {"of too large a data set what fits stays", check_too_large, 0, 0, 0},
        {"a count that is lost is made anew", check_count, 0, 0, 0},
        {"no original is read in the second epoch", check_second_epoch, 0, 0, 0},
        {"who comes while a copy is made waits for it", check_wait, 0, 0, 0},
        {"of several processes one copies a file", check_processes, 0, 0, 0},
        {"kills at any moment do no harm", check_kills, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(damages)];
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(damages); i++)
        tests[COUNT_OF(more) + i] =
            (struct CMUnitTest){damages[i].name, check_damage, NULL, NULL, &damages[i]};
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
