/* Opening of files where other users may write. */

#include "base/shared_file.h"

#include "other_user.h"
#include "temp.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A folder of mode 0777, like one that several users share. */
static int setup(void **state)
{
    char *folder = malloc(TEMP_PATH);
    temp_make(folder);
    *state = folder;
    return chmod(folder, 0777);
}

static int teardown(void **state)
{
    temp_remove(*state);
    free(*state);
    return 0;
}

static int try_open(const char *path, int flags)
{
    int fd = -2;
    const lt_status st = lt_shared_open(&fd, path, flags, 0644);
    assert_int_equal(!st, fd >= 0);
    if (st)
        assert_status(st, LT_E_IO);
    return fd;
}

static void assert_opened(const char *path, int flags)
{
    const int fd = try_open(path, flags);
    if (fd < 0)
        fail_msg("%s", lt_error_message());
    close(fd);
}

/* Every way to open the path is rejected immediately, and the message names the file's type. */
static void assert_rejected(const char *path, const char *what)
{
    const int flags[] = {O_RDONLY,
                         O_RDWR,
                         O_WRONLY,
                         O_RDWR | O_CREAT,
                         O_WRONLY | O_CREAT | O_TRUNC,
                         O_WRONLY | O_CREAT | O_APPEND};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        assert_int_equal(try_open(path, flags[i]), -1);
        assert_int_equal(errno, EPERM);
        assert_non_null(strstr(lt_error_message(), path));
        if (!strstr(lt_error_message(), what))
            fail_msg("no '%s' in: %s", what, lt_error_message());
    }
}

static void test_own(void **state)
{
    char path[TEMP_PATH];
    size_t bytes;
    struct stat info;
    temp_path(path, *state, "file");
    assert_int_equal(try_open(path, O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
    assert_opened(path, O_RDWR | O_CREAT);
    assert_true(!stat(path, &info) && (info.st_mode & 0777 & ~0644U) == 0);
    temp_write(path, "text", 4);
    assert_opened(path, O_RDONLY);
    assert_opened(path, O_RDWR | O_CREAT);
    assert_int_equal(try_open(path, O_RDWR | O_CREAT | O_EXCL), -1);
    assert_int_equal(errno, EEXIST);
    free(temp_read(path, &bytes));
    assert_int_equal(bytes, 4);
    assert_opened(path, O_WRONLY | O_CREAT | O_TRUNC);
    free(temp_read(path, &bytes));
    assert_int_equal(bytes, 0);
}

static void test_streams(void **state)
{
    char path[TEMP_PATH], link[TEMP_PATH];
    FILE *file;
    const char modes[] = "wwaa";
    for (size_t i = 0; i < 4; i++) {
        assert_ok(lt_shared_open_stream(&file, temp_path(path, *state, "file"), modes[i]));
        fprintf(file, "%zu", i);
        assert_int_equal(fclose(file), 0);
    }
    char *text = temp_read(path, NULL);
    assert_string_equal(text, "123");
    free(text);
    assert_int_equal(symlink(path, temp_path(link, *state, "link")), 0);
    assert_status(lt_shared_open_stream(&file, link, 'w'), LT_E_IO);
    assert_status(lt_shared_open_stream(&file, link, 'a'), LT_E_IO);
    text = temp_read(path, NULL);
    assert_string_equal(text, "123");
    free(text);
}

static void test_kinds(void **state)
{
    char path[TEMP_PATH], target[TEMP_PATH];
    temp_write(temp_path(target, *state, "target"), "precious", 8);
    assert_int_equal(symlink(target, temp_path(path, *state, "link")), 0);
    assert_rejected(path, "a symbolic link");
    assert_int_equal(symlink("nothing", temp_path(path, *state, "dangling")), 0);
    assert_rejected(path, "a symbolic link");
    assert_int_equal(access(temp_path(path, *state, "nothing"), F_OK), -1);
    assert_int_equal(mkfifo(temp_path(path, *state, "pipe"), 0666), 0);
    assert_rejected(path, "a pipe");

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", (char *)*state)
                < (int)sizeof address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    assert_rejected(address.sun_path, "a socket");
    assert_int_equal(try_open(*state, O_RDONLY), -1);
    assert_non_null(strstr(lt_error_message(), "a folder"));

    assert_int_equal(link(target, temp_path(path, *state, "hard")), 0);
    assert_opened(path, O_RDONLY);
    assert_int_equal(try_open(path, O_WRONLY | O_CREAT | O_TRUNC), -1);
    assert_non_null(strstr(lt_error_message(), "hard link"));
    char *text = temp_read(target, NULL);
    assert_string_equal(text, "precious");
    free(text);
}

static void test_mode(void **state)
{
    char path[TEMP_PATH];
    struct stat info;
    temp_write(temp_path(path, *state, "file"), "text", 4);
    assert_int_equal(chmod(path, 0646), 0);
    assert_int_equal(try_open(path, O_RDONLY), -1);
    assert_non_null(strstr(lt_error_message(), "has mode 0646"));
    assert_opened(path, O_WRONLY); /* nothing is believed that is in it */
    assert_int_equal(chmod(path, 0664), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(try_open(path, O_RDONLY) >= 0, info.st_uid == info.st_gid);
}

static void test_other_user(void **state)
{
    char path[TEMP_PATH], command[2 * TEMP_PATH];
    snprintf(command, sizeof command, "cd %s && echo x >file && mkdir sub && echo x >sub/file",
             (char *)*state);
    as_other_user(command);
    int fd;
    assert_rejected(temp_path(path, *state, "file"), "belongs to user 65534, not to user 0");
    assert_ok(lt_shared_open_any_owner(&fd, path, O_RDONLY, 0));
    close(fd);
    assert_opened(temp_path(path, *state, "sub/file"), O_RDWR); /* the folder is his, too */
}

static void test_folders(void **state)
{
    char path[TEMP_PATH], link[TEMP_PATH];
    assert_status(lt_check_private_folder(*state), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "has mode 0777"));
    assert_int_equal(chmod(*state, 01777), 0); /* others cannot remove files, but add some */
    assert_status(lt_check_private_folder(*state), LT_E_IO);
    assert_int_equal(mkdir(temp_path(path, *state, "own"), 0755), 0);
    assert_ok(lt_check_private_folder(path));
    assert_int_equal(symlink("own", temp_path(link, *state, "link")), 0);
    assert_ok(lt_check_private_folder(link));
    assert_status(lt_check_private_folder(temp_path(path, *state, "none")), LT_E_IO);
    temp_write(path, "", 0);
    assert_status(lt_check_private_folder(path), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "not a folder, but a file"));
}

static void test_links_to_folders(void **state)
{
    char path[TEMP_PATH], command[2 * TEMP_PATH];
    assert_ok(lt_make_shared_folder(temp_path(path, *state, "new")));
    assert_int_equal(symlink("new", temp_path(path, *state, "own")), 0);
    assert_ok(lt_make_shared_folder(path));
    snprintf(command, sizeof command, "ln -s new %s/his", (char *)*state);
    as_other_user(command);
    assert_status(lt_make_shared_folder(temp_path(path, *state, "his")), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "belongs to user 65534"));
}

static void test_replacement(void **state)
{
    char path[TEMP_PATH], temp[TEMP_PATH + 32], target[TEMP_PATH];
    struct stat info;
    lt_replacement r;
    temp_write(temp_path(target, *state, "target"), "precious", 8);
    assert_int_equal(symlink(target, temp_path(path, *state, "file")), 0);
    snprintf(temp, sizeof temp, "%s.tmp-%ld", path, (long)getpid());
    assert_int_equal(symlink(target, temp), 0);
    assert_status(lt_shared_save(path, "text", 4), LT_E_IO);
    assert_int_equal(unlink(temp), 0);
    assert_ok(lt_shared_save(path, "text", 4)); /* the link is replaced, not followed */
    assert_true(!lstat(path, &info) && S_ISREG(info.st_mode) && info.st_size == 4);
    assert_ok(lt_replacement_open(&r, path));
    fputs("half", r.file);
    assert_status(lt_replacement_close(&r, LT_E_FORMAT, false), LT_E_FORMAT);
    assert_int_equal(access(temp, F_OK), -1);
    char *text = temp_read(path, NULL);
    assert_string_equal(text, "text");
    free(text);
    text = temp_read(target, NULL);
    assert_string_equal(text, "precious");
    free(text);
}

static void test_folder_of_other(void **state)
{
    char path[TEMP_PATH], command[2 * TEMP_PATH];
    snprintf(command, sizeof command, "mkdir -m 700 %s/his", (char *)*state);
    as_other_user(command);
    assert_status(lt_check_private_folder(temp_path(path, *state, "his")), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "belongs to user 65534, not to user 0"));
}

#define ROW(name, fn)                   \
    {                                   \
        name, fn, setup, teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW("a file of this user is created, opened and truncated", test_own),
        ROW("streams write and append, not through links", test_streams),
        ROW("links, pipes, sockets, folders and second names are rejected at once", test_kinds),
        ROW("a file that others may write is not read", test_mode),
        ROW("a file of another user is rejected, but in his own folder", test_other_user),
        ROW("a private folder is one that others cannot write", test_folders),
        ROW("a link to a folder is followed if no other user made it", test_links_to_folders),
        ROW("a file is replaced when it is whole, with a link in its place too", test_replacement),
        ROW("a folder of another user is not private", test_folder_of_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
