/* Image folders with other files, many links, and missing permissions. */

#include "data/files/files.h"
#include "images.h"
#include "near.h"

#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 1024, UNREACHABLE = 2 };

static void keep_line(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level, (void)area;
    snprintf(context, TEXT, "%s", text);
}

/* Sets text to the last log line while the folder is opened. */
static void open_and_log(const char *root, char text[TEXT])
{
    lt_dataset *d = NULL;
    *text = 0;
    lt_log_set(keep_line, text);
    lt_status st = lt_dataset_open(&d, root, true);
    lt_log_set(NULL, NULL);
    assert_ok(st);
    lt_dataset_free(&d);
}

static void check_left_out(void **state)
{
    (void)state;
    char *root = make_folder(), text[TEXT], name[64];
    write_file(root, "a/1.jpg", "1", 1);
    write_file(root, "b/2.tif", "2", 1);
    open_and_log(root, text);
    assert_string_equal(text, "");
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "%c/%d.heic", i % 2 ? 'a' : 'b', i);
        write_file(root, name, "h", 1);
    }
    write_file(root, "a/deep/readme.txt", "t", 1);
    write_file(root, "b/notes.txt", "t", 1);
    write_file(root, "b/Makefile", "m", 1);
    write_file(root, "b/x.\033[2J", "e", 1);
    write_file(root, "b/.hidden", "h", 1);
    open_and_log(root, text);
    const char *want = ": 16 files left out: .heic 12, .txt 2, .\\x1b[2J 1, none 1";
    if (!strstr(text, want))
        fail_msg("the log has '%s', without '%s'", text, want);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "b/2.%d", i);
        write_file(root, name, "n", 1);
    }
    open_and_log(root, text);
    assert_non_null(strstr(text, ": 66 files left out: .heic 12, .txt 2, "));
    assert_non_null(strstr(text, ", ..."));
    remove_folder(root);
}

/* Makes `levels` folders, each with `width` links to the next one: width^levels paths. */
static char *make_forest(int levels, int width)
{
    char *root = make_folder(), name[64], target[64];
    write_file(root, "data/cat/1.jpg", "1", 1);
    for (int i = 0; i <= levels; i++) {
        snprintf(name, sizeof name, "level%d/1.jpg", i);
        write_file(root, name, "1", 1);
    }
    for (int i = 0; i <= levels; i++)
        for (int k = 0; i < levels && k < width; k++) {
            snprintf(name, sizeof name, "level%d/link%d", i, k);
            snprintf(target, sizeof target, "../level%d", i + 1);
            char *path = below(root, name);
            assert_int_equal(symlink(target, path), 0);
            free(path);
        }
    char *path = below(root, "data/dog");
    assert_int_equal(symlink("../level0", path), 0);
    free(path);
    return root;
}

static void check_links(void **state)
{
    (void)state;
    lt_dataset *d = NULL;
    char *root = make_forest(14, 8), *data = below(root, "data");
    assert_fails(lt_dataset_open(&d, data, true), LT_E_FORMAT,
                 "reached through more than 4 links to folders");
    assert_null(d);
    free(data);
    remove_folder(root);
    root = make_forest(3, 41); /* few levels of many links: 41 + 41^2 + 41^3 folders */
    data = below(root, "data");
    assert_fails(lt_dataset_open(&d, data, true), LT_E_FORMAT,
                 "more than 65536 folders are reached through links");
    free(data);
    remove_folder(root);
    root = make_forest(4, 2); /* within the limits: 1 + 2 + 4 + 8 + 16 files */
    data = below(root, "data");
    assert_ok(lt_dataset_open(&d, data, true));
    assert_int_equal(lt_dataset_count(d), 1 + 31);
    lt_dataset_free(&d);
    free(data);
    remove_folder(root);
}

/* Opens data as an unprivileged user, because root may read everything. */
static void open_unprivileged(const char *root, int out)
{
    enum { UNPRIVILEGED = 65534 };
    char text[4][TEXT] = {"", "", "", ""};
    lt_dataset *d = NULL;
    lt_record record = {0};
    char *secret = below(root, "secret/data"), *open = below(root, "open");
    char *classes = below(root, "classes");
    if (getuid() == 0 && (setgid(UNPRIVILEGED) || setuid(UNPRIVILEGED)))
        _exit(1);
    if (access(root, X_OK)) /* $TMPDIR is private to root */
        _exit(UNREACHABLE);
    if (lt_dataset_open(&d, secret, true))
        snprintf(text[0], TEXT, "%s", lt_error_message());
    if (lt_dataset_open(&d, open, true))
        snprintf(text[1], TEXT, "%s", lt_error_message());
    else if (d->ops->read(d, 0, &record))
        snprintf(text[2], TEXT, "%s", lt_error_message());
    if (lt_dataset_open(&d, classes, true))
        snprintf(text[3], TEXT, "%s", lt_error_message());
    _exit(write(out, text, sizeof text) == sizeof text ? 0 : 1);
}

static void check_permission(void **state)
{
    (void)state;
    char *root = make_folder(), text[4][TEXT] = {"", "", "", ""};
    write_file(root, "secret/data/cat/1.jpg", "1", 1);
    write_file(root, "open/cat/1.jpg", "1", 1);
    write_file(root, "classes/cat/1.jpg", "1", 1);
    char *secret = below(root, "secret"), *file = below(root, "open/cat/1.jpg");
    char *class = below(root, "classes/cat");
    int ends[2], status = 0;
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(chmod(secret, 0), 0);
    assert_int_equal(chmod(file, 0), 0);
    assert_int_equal(chmod(class, 0), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        open_unprivileged(root, ends[1]);
    close(ends[1]);
    bool received = read(ends[0], text, sizeof text) == sizeof text;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(secret, 0755), 0);
    assert_int_equal(chmod(class, 0755), 0);
    free(secret);
    free(file);
    free(class);
    remove_folder(root);
    if (WIFEXITED(status) && WEXITSTATUS(status) == UNREACHABLE)
        skip();
    assert_true(received);
    assert_non_null(strstr(text[0], "secret/data: Permission denied"));
    assert_string_equal(text[1], "");
    assert_non_null(strstr(text[2], "1.jpg: Permission denied"));
    assert_non_null(strstr(text[3], "classes/cat: Permission denied"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"files with other extensions are counted and logged", check_left_out, 0, 0, 0},
        {"the number of links is limited", check_links, 0, 0, 0},
        {"missing permissions are reported", check_permission, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
