/* Checksums, atomic folders, and the profile's trace. */

#include "base/atomic_dir.h"
#include "base/encoding/crc32c.h"
#include "base/encoding/json.h"
#include "base/file.h"
#include "base/trace.h"
#include "temp.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>

/* RFC 3720, appendix B.4, and the check value of the CRC catalogue. */
static void test_crc_vectors(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    memset(ones, 255, sizeof ones);
    for (int i = 0; i < 32; i++) {
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    assert_int_equal(lt_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(lt_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(lt_crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(lt_crc32c(0, up, 32), 0x46dd794e);
    assert_int_equal(lt_crc32c(0, down, 32), 0x113fdb5c);
    assert_int_equal(lt_crc32c(0, "", 0), 0);
}

static void test_crc_ways(void **state)
{
    (void)state;
    unsigned char data[300];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * i * 7 + 3);
    for (size_t begin = 0; begin < 9; begin++)
        for (size_t bytes = 0; bytes + begin <= sizeof data; bytes += 7) {
            uint32_t tables = lt_crc32c_tables(5, data + begin, bytes);
            if (lt_crc32c_has_hardware())
                assert_int_equal(lt_crc32c_hardware(5, data + begin, bytes), tables);
            size_t half = bytes / 2; /* in two parts */
            uint32_t part = lt_crc32c(5, data + begin, half);
            assert_int_equal(lt_crc32c(part, data + begin + half, bytes - half), tables);
        }
}

static bool exists(const char *folder, const char *name)
{
    char path[TEMP_PATH];
    struct stat info;
    return !lstat(temp_path(path, folder, name), &info);
}

/* Makes folder/name with a file of that text in it. */
static void commit_one(const char *folder, const char *name, const char *text)
{
    char path[TEMP_PATH], file[TEMP_PATH];
    lt_atomic_dir c = {0};
    assert_ok(lt_atomic_dir_begin(&c, temp_path(path, folder, name)));
    temp_write(temp_path(file, c.temp, "f"), text, strlen(text));
    assert_ok(lt_atomic_dir_commit(&c));
    assert_null(c.temp);
}

static void test_commit(void **state)
{
    (void)state;
    char folder[TEMP_PATH], path[TEMP_PATH], file[TEMP_PATH];
    temp_make(folder);
    commit_one(folder, "a", "one");
    commit_one(folder, "a", "two"); /* in place of the first */
    char *text = temp_read(temp_path(file, temp_path(path, folder, "a"), "f"), NULL);
    assert_string_equal(text, "two");
    free(text);

    lt_atomic_dir c = {0};
    assert_ok(lt_atomic_dir_begin(&c, temp_path(path, folder, "b")));
    lt_atomic_dir_abandon(&c);
    assert_false(exists(folder, "b"));

    assert_ok(lt_atomic_symlink(temp_path(path, folder, "latest"), "a"));
    assert_ok(lt_atomic_symlink(path, "b")); /* changed in one step */
    char target[8] = "";
    assert_int_equal(readlink(path, target, sizeof target), 1);
    assert_int_equal(target[0], 'b');
    assert_int_equal(unlink(temp_path(path, folder, "latest")), 0);
    assert_ok(lt_atomic_dir_remove(temp_path(path, folder, "a")));
    assert_int_equal(rmdir(folder), 0); /* nothing is left */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_status(lt_atomic_dir_begin(&c, "/nowhere/at/all"), LT_E_IO);
    temp_remove(folder);
}

static void test_clean(void **state)
{
    (void)state;
    static const char *const gone[] = {"x.tmp-999999999/", "x.old.tmp-999999999/",
                                       "step-5.tmp-999999999/", "link.tmp-999999999"},
                             *const left[] = {"x.tmp-1/",         "x.tmp-/",
                                              "x.tmp-12a/",       "y/",
                                              "y.tmp-999999999/", "step-.tmp-999999999/",
                                              "x.tmp-999999998",  "link.tmp-999999998/"},
                             *const names[] = {"x/", "x.old/", "step-[0-9]*/", "link", NULL};
    char folder[TEMP_PATH], path[TEMP_PATH], other[TEMP_PATH];
    temp_make(folder);
    for (size_t i = 0; i < COUNT_OF(gone) + COUNT_OF(left); i++) {
        temp_path(path, folder, i < COUNT_OF(gone) ? gone[i] : left[i - COUNT_OF(gone)]);
        if (path[strlen(path) - 1] == '/')
            assert_int_equal(mkdir(path, 0777), 0);
        else
            assert_int_equal(symlink("/nowhere", path), 0);
    }
    lt_remove_stale_temps(folder, names, false);
    for (size_t i = 0; i < COUNT_OF(gone); i++)
        assert_int_equal(lstat(temp_path(path, folder, gone[i]), &(struct stat){0}), -1);
    for (size_t i = 0; i < COUNT_OF(left); i++)
        assert_int_equal(lstat(temp_path(path, folder, left[i]), &(struct stat){0}), 0);
    lt_remove_stale_temps(folder, names, true); /* no other process makes these */
    assert_false(exists(folder, left[0]));
    temp_path(other, folder, "x.tmp-999999999");
    assert_int_equal(mkdir(other, 0777), 0);
    if (!geteuid()) { /* another user's */
        assert_int_equal(chown(other, 65534, 65534), 0);
        lt_remove_stale_temps(folder, names, true);
        assert_int_equal(access(other, F_OK), 0);
    }
    temp_remove(folder);
}

enum { SPANS = 100000 }; /* for each thread; two record at the same time */

static void *spans(void *context)
{
    lt_profile_thread(context);
    for (int i = 0; i < SPANS; i++)
        lt_trace_end(lt_trace_begin(), LT_PROFILE_LOADER, "decode", 1000);
    return NULL;
}

static void test_trace(void **state)
{
    (void)state;
    char folder[TEMP_PATH], path[TEMP_PATH], table[TEMP_PATH];
    temp_make(folder);
    assert_int_equal(lt_trace_begin(), 0); /* off: no clock is read */
    assert_ok(lt_profile_start(temp_path(path, folder, "trace.json"), 150));
    assert_fails(lt_profile_start(NULL, 0), LT_E_ARG, "profile: already recording");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, spans, (char[]){"loader \"1\""}), 0);
    spans((char[]){"main"});
    pthread_join(thread, NULL);
    lt_trace_end(lt_trace_begin(), LT_PROFILE_FORWARD, "conv2d", 0);
    FILE *summary = fopen(temp_path(table, folder, "table"), "w");
    assert_non_null(summary);
    assert_ok(lt_profile_finish(summary));
    fclose(summary);

    char *text = temp_read(table, NULL);
    assert_non_null(strstr(text, "decode"));
    assert_non_null(strstr(text, "   200000 ")); /* the ring keeps 150, the table counts all */
    assert_non_null(strstr(text, "conv2d"));
    const char *last = strstr(text, " spans in ");
    double seconds = -1;
    assert_non_null(last);
    assert_int_equal(sscanf(last, " spans in %lf s", &seconds), 1);
    assert_true(seconds >= 0 && seconds < 600);
    free(text);
    lt_json *json = NULL;
    assert_ok(lt_json_load(&json, path));
    const lt_json_value *events = lt_json_member(lt_json_root(json), "traceEvents");
    assert_int_equal(events->count, 150 + 2); /* and the names of two threads */
    int64_t dropped;
    assert_ok(lt_json_integer(lt_json_root(json), "dropped", &dropped));
    assert_int_equal(dropped, 2 * SPANS + 1 - 150);
    lt_json_free(&json);
    assert_status(lt_profile_start("/dev/null/at/all", 0), LT_E_IO);
    assert_fails(lt_profile_start(folder, 0), LT_E_IO, ": Is a directory");
    assert_fails(lt_profile_start(NULL, -3), LT_E_ARG, "profile: -3 events");
    assert_ok(lt_profile_finish(NULL)); /* not recording: nothing to do */
    temp_remove(folder);
}

static void refused(const char *path, const char *words)
{
    FILE *file = NULL;
    struct stat info;
    int fd = 0;
    assert_status(lt_file_open(&file, path), LT_E_IO);
    assert_null(file);
    if (!strstr(lt_error_message(), words))
        fail_msg("'%s' does not say '%s'", lt_error_message(), words);
    assert_status(lt_file_open_descriptor(&fd, &info, path), LT_E_IO);
    assert_int_equal(fd, -1);
}

static void test_regular_files(void **state)
{
    char folder[TEMP_PATH], path[TEMP_PATH];
    FILE *file = NULL;
    (void)state;
    temp_make(folder);
    temp_write(temp_path(path, folder, "a"), "text", 4);
    assert_ok(lt_file_open(&file, path));
    assert_int_equal(getc(file), 't');
    fclose(file);
    refused(folder, "not a regular file, but a folder");
    refused("/dev/null", "/dev/null: not a regular file, but a device");
    refused(temp_path(path, folder, "none"), "No such file");
    assert_int_equal(mkfifo(temp_path(path, folder, "pipe"), 0600), 0);
    refused(path, "not a regular file, but a pipe"); /* no writer: an open could block for ever */
    temp_remove(folder);
}

static bool is_fifo(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISFIFO(info.st_mode);
}

static void test_save(void **state)
{
    (void)state;
    char folder[TEMP_PATH], path[TEMP_PATH], found[8];
    size_t bytes;
    temp_make(folder);
    temp_path(path, folder, "file");
    for (size_t size = 3; size-- > 0;) { /* the second in place of the first */
        assert_ok(lt_file_save(path, "abc", size));
        char *text = temp_read(path, &bytes);
        assert_int_equal(bytes, size);
        assert_memory_equal(text, "abc", size);
        free(text);
    }
    assert_status(lt_file_save(folder, "abc", 3), LT_E_IO);
    assert_status(lt_file_save(temp_path(path, folder, "none/file"), "abc", 3), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "none/file: No such file"));

    /* A device without space. */
    assert_fails(lt_file_save("/dev/full", "abc", 3), LT_E_IO, "/dev/full: No space left");

    /* Written to, not replaced: root may replace /dev/stdout. */
    assert_int_equal(mkfifo(temp_path(path, folder, "pipe"), 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_ok(lt_file_save(path, "abc", 3));
    assert_true(is_fifo(path));
    assert_int_equal(read(reader, found, sizeof found), 3);
    assert_memory_equal(found, "abc", 3);
    close(reader);

    struct stat info;
    char target[TEMP_PATH];
    temp_write(temp_path(target, folder, "target"), "before", 6);
    assert_int_equal(symlink(target, temp_path(path, folder, "link")), 0);
    assert_ok(lt_file_save(path, "abc", 3));
    assert_true(!lstat(path, &info) && S_ISLNK(info.st_mode));
    char *text = temp_read(target, &bytes);
    assert_int_equal(bytes, 3);
    free(text);
    temp_remove(folder);
}

static void test_names(void **state)
{
    (void)state;
    char name[PATH_MAX + 1];
    memset(name, 'x', sizeof name - 1);
    name[PATH_MAX] = 0;
    assert_fails(lt_make_folders(""), LT_E_ARG, "folder name of 0 bytes, want 1 to 4095");
    assert_fails(lt_make_folders(name), LT_E_ARG, "folder name of 4096 bytes, want 1 to 4095");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"CRC-32C of published vectors", test_crc_vectors, NULL, NULL, NULL},
        {"CRC-32C by instruction, by tables, in parts", test_crc_ways, NULL, NULL, NULL},
        {"a folder is there or not", test_commit, NULL, NULL, NULL},
        {"a folder's name without bytes, or with too many", test_names, NULL, NULL, NULL},
        {"only named temporaries of this user's dead processes are removed", test_clean, NULL, NULL,
         NULL},
        {"only regular files are opened", test_regular_files, NULL, NULL, NULL},
        {"files are written atomically, pipes and links are kept", test_save, NULL, NULL, NULL},
        {"spans of two threads, in trace and table", test_trace, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
