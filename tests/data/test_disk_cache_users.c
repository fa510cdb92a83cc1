/* A disk cache where other users may write. */

#include "base/alloc.h"
#include "cache_place.h"
#include "data/cache/disk_copy.h"
#include "other_user.h"

/* The folder of copies of a place, prepared by a shell command in which $C is the copy of
 * data/class0/00.jpg and $V a file that must not change. */
static void prepare(const place *p, const char *command)
{
    char *path = below(p->root, "data/class0/00.jpg"), *line = NULL;
    lt_disk_object object;
    assert_true(lt_disk_object_stat(&object, path));
    char *copy = lt_disk_copy_path(p->near, &object);
    assert_true(asprintf(&line,
                         "rm -rf near && mkdir -m 755 near && C='%s' V=\"$PWD/victim\" && mkdir "
                         "-m 755 \"${C%%/*}\" && echo precious >\"$V\" && %s",
                         copy, command)
                > 0);
    run_in(p->root, line);
    free(line);
    lt_free(copy);
    free(path);
}

/* Files of this user behave like those that an attacker leaves before the folder is closed to him. */
static void check_hostile_entries(void **state)
{
    (void)state;
    place p = open_place();
    const struct {
        const char *command;
        int copies;
    } rows[] = {
        {"ln -s \"$V\" \"$C\"", 1},   {"mkfifo \"$C\"", 1},      {"ln -s \"$V\" \"$C.part\"", 0},
        {"ln \"$V\" \"$C.part\"", 0}, {"mkfifo \"$C.part\"", 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        prepare(&p, rows[i].command);
        warnings = 0;
        lt_log_set(count_warnings, NULL);
        lt_disk_cache *s = open_store(&p, 0);
        assert_false(read_one(&p, s));
        assert_int_equal(lt_disk_cache_statistics(s).copies, rows[i].copies);
        assert_int_equal(warnings, !rows[i].copies);
        lt_log_set(NULL, NULL);
        lt_disk_cache_free(&s);
        run_in(p.root, "test \"$(cat victim)\" = precious");
    }
    close_place(&p);
}

static void assert_no_cache(const place *p, const char *what)
{
    lt_disk_cache *s = NULL;
    assert_status(lt_disk_cache_new(&s, p->near, 0), LT_E_IO);
    assert_null(s);
    if (!strstr(lt_error_message(), what))
        fail_msg("no '%s' in: %s", what, lt_error_message());
}

static void check_foreign_folders(void **state)
{
    (void)state;
    place p = open_place();
    prepare(&p, "chmod 1777 near");
    assert_no_cache(&p, "near: has mode 1777");
    assert_no_cache(&p, "'shared:");
    prepare(&p, "chmod 777 \"${C%/*}\"");
    assert_no_cache(&p, "has mode 0777");
    prepare(&p, "rmdir \"${C%/*}\" && ln -s .. \"${C%/*}\"");
    assert_no_cache(&p, "not a folder, but a symbolic link");
    prepare(&p, "ln -s \"$V\" near/bytes");
    assert_no_cache(&p, "near/bytes: a symbolic link");
    run_in(p.root, "test \"$(cat victim)\" = precious");

    const mode_t before = umask(0); /* what the cache makes itself, others cannot write */
    run_in(p.root, "rm -rf near");
    lt_disk_cache *s = open_store(&p, 0);
    assert_false(read_one(&p, s));
    lt_disk_cache_free(&s);
    umask(before);
    run_in(p.root, "test -z \"$(find near -perm /022)\"");
    close_place(&p);
}

/* Reads data/class0/00.jpg from a shared cache; whether it came from a copy. */
static bool read_shared(const place *p)
{
    char *folder = NULL;
    lt_disk_cache *s = NULL;
    assert_true(asprintf(&folder, "shared:%s", p->near) > 0);
    assert_ok(lt_disk_cache_new(&s, folder, 0));
    lt_disk_cache_limit(s, PLENTY);
    const bool hit = read_one(p, s);
    lt_disk_cache_free(&s);
    free(folder);
    return hit;
}

static void check_shared(void **state)
{
    (void)state;
    place p = open_place();
    prepare(&p, "chmod 777 near && mkfifo \"$C\" && ln -s \"$V\" \"$C.part\"");
    assert_false(read_shared(&p));
    run_in(p.root, "test \"$(cat victim)\" = precious && rm -rf near && mkdir -m 1777 near");
    assert_false(read_shared(&p));
    assert_true(read_shared(&p));
    if (!geteuid()) { /* copies of another user are read there, and replaced in a private folder */
        run_in(p.root, "find near -type f -exec chown 65534 '{}' +");
        assert_true(read_shared(&p));
        run_in(p.root, "chmod -R go-w near && rm near/bytes");
        lt_disk_cache *s = open_store(&p, 0);
        assert_false(read_one(&p, s));
        assert_true(read_one(&p, s));
        lt_disk_cache_free(&s);
    }
    close_place(&p);
}

static void check_other_user(void **state)
{
    (void)state;
    place p = open_place();
    char *line = NULL;
    run_in(p.root, "mkdir -m 777 near && chmod 711 .");
    assert_true(asprintf(&line, "mkdir '%s/ab'", p.near) > 0);
    as_other_user(line);
    run_in(p.root, "chmod 755 near");
    assert_no_cache(&p, "near/ab: belongs to user 65534, not to user 0");
    run_in(p.root, "rmdir near/ab && chown 65534 near");
    assert_no_cache(&p, "near: belongs to user 65534, not to user 0");
    free(line);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"no link is followed and no pipe waited for", check_hostile_entries, 0, 0, 0},
        {"a folder that others may write is an error", check_foreign_folders, 0, 0, 0},
        {"a shared folder has copies of all users", check_shared, 0, 0, 0},
        {"a folder of another user is an error", check_other_user, 0, 0, 0},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
