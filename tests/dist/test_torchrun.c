/* Ranks started by torchrun: the listening address and the job's token. */

#include "dist/nccl/nccl.h"
#include "dist/rendezvous/internal.h"
#include "dist/rendezvous/rendezvous.h"
#include "temp.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int free_port(void)
{
    const lt_rendezvous_config config = {.size = 2, .address = "127.0.0.1", .timeout = 1};
    lt_rendezvous *rendezvous = NULL;
    int port = 0;
    assert_ok(lt_rendezvous_listen(&rendezvous, &config, &port));
    lt_rendezvous_close(&rendezvous);
    return port;
}

static void set_rank(int rank, int port)
{
    char number[16];
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", number, 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "a-name-that-is-not-needed-where-all-are-local", 1);
    snprintf(number, sizeof number, "%d", port);
    setenv("MASTER_PORT", number, 1);
}

static int find_as(int rank, int port)
{
    lt_nccl_start s;
    int both[2], mine = rank;
    set_rank(rank, port);
    if (lt_nccl_find_ranks(&s, lt_comm_open)
        || lt_rendezvous_allgather(s.rendezvous, &mine, both, sizeof mine))
        return 1;
    lt_rendezvous_leave(s.rendezvous);
    lt_rendezvous_close(&s.rendezvous);
    return both[0] != 0 || both[1] != 1;
}

/* Searches /proc/net/tcp for a listening port: 0100007F is 127.0.0.1, state 0A is LISTEN. */
static bool listens_on_loopback(int port)
{
    char line[256], want[64];
    bool found = false;
    FILE *file = fopen("/proc/net/tcp", "r");
    assert_non_null(file);
    snprintf(want, sizeof want, " 0100007F:%04X 00000000:0000 0A ", (unsigned)port);
    while (fgets(line, sizeof line, file))
        found = found || strstr(line, want);
    fclose(file);
    return found;
}

static void ranks_of_one_machine_use_loopback(void **state)
{
    char folder[TEMP_PATH], path[TEMP_PATH], name[64];
    struct stat info;
    int status = -1;
    (void)state;
    temp_make(folder);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    const int port = free_port();
    snprintf(name, sizeof name, "lather-%u-%d.token", (unsigned)geteuid(), port);
    temp_write(temp_path(path, folder, name), "of a run before", 15);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        alarm(60); /* ends if the test fails */
        _exit(find_as(0, port));
    }
    for (int i = 0; i < 3000 && !listens_on_loopback(port); i++)
        poll(NULL, 0, 5);
    if (!listens_on_loopback(port)) {
        kill(child, SIGKILL);
        fail_msg("rank 0 does not listen on 127.0.0.1, port %d", port);
    }
    /* A second job with the same port cannot start, and does not change the first one's token. */
    for (int i = 0; i < 3000 && (stat(path, &info) || info.st_size != LT_TOKEN_NONCE - 1); i++)
        poll(NULL, 0, 5);
    assert_int_equal(find_as(0, port), 1);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(find_as(1, port), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(stat(path, &info), -1); /* the token's file is gone */
    unsetenv("XDG_RUNTIME_DIR");
    temp_remove(folder);
}

static void token_files_are_private(void **state)
{
    char folder[TEMP_PATH], path[TEMP_PATH], other[TEMP_PATH], token[LT_TOKEN_BYTES];
    struct stat info;
    (void)state;
    temp_make(folder);
    temp_path(path, folder, "token");
    assert_ok(lt_token_write(path, "the first secret"));
    assert_ok(lt_token_write(path, "the second secret"));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_ok(lt_token_read(token, path));
    assert_string_equal(token, "the second secret");
    assert_int_equal(symlink(path, temp_path(other, folder, "link")), 0);
    assert_status(lt_token_read(token, other), LT_E_IO);
    assert_int_equal(chmod(path, 0640), 0);
    assert_status(lt_token_read(token, path), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "has mode 0640, want 0600"));
    assert_fails(lt_token_read(token, folder), LT_E_ARG, " is not a regular file");
    if (!geteuid()) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_fails(lt_token_read(token, path), LT_E_ARG,
                     "token belongs to user 65534, not to user 0");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    lt_nccl_start s;
    set_rank(1, 4);
    setenv("LATHER_JOB_TOKEN_FILE", path, 1);
    assert_status(lt_nccl_find_ranks(&s, lt_comm_open), LT_E_ARG);
    assert_ok(lt_token_write(path, "too short"));
    assert_status(lt_nccl_find_ranks(&s, lt_comm_open), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "token: a secret of 9 bytes, want 16 to 255"));
    unsetenv("LATHER_JOB_TOKEN_FILE");
    setenv("LATHER_JOB_TOKEN", "fifteen bytes..", 1);
    assert_status(lt_nccl_find_ranks(&s, lt_comm_open), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "LATHER_JOB_TOKEN: a secret of 15 bytes"));
    unsetenv("LATHER_JOB_TOKEN");
    temp_remove(folder);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_machine_use_loopback),
        cmocka_unit_test(token_files_are_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
