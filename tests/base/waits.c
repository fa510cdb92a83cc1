/* Passive waiting of compute threads: the environment variables that a program sees. */

#include "near.h"

#include "lather/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined _OPENMP && !defined LT_NO_OPENMP
static const char expected[] = "1000";
#else
static const char expected[] = "-";
#endif

/* The other program that this one is: it says its process, its name, the setting and its arguments. */
static int say(char **argv)
{
    char name[32] = "";
    int process = (int)getpid();
    if (!strcmp(argv[2], "asks"))
        lt_threads_set_passive_wait(argv);
    FILE *file = fopen("/proc/self/comm", "r");
    const bool named = file && fscanf(file, "%31s", name) == 1;
    if (file)
        fclose(file);
    const char *spins = getenv("GOMP_SPINCOUNT");
    return printf("%d %s %s %s\n", process, named ? name : "?", spins ? spins : "-", argv[3]) < 0;
}

static void check(const char *environment, const char *how, const char *want)
{
    char path[512] = "", command[1024], name[32] = "", spins[32] = "", last[32] = "";
    int process = 0, shell = 0;
    assert_true(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    /* exec: the program has the shell's process, also when it was started again */
    snprintf(command, sizeof command,
             "unset GOMP_SPINCOUNT OMP_WAIT_POLICY; echo $$; %s exec '%s' say %s last", environment,
             path, how);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    const int words = fscanf(out, "%d %d %31s %31s %31s", &shell, &process, name, spins, last);
    const int code = pclose(out), not_executable = 126;
    if (WIFEXITED(code) && WEXITSTATUS(code) == not_executable) {
        print_message("SKIP: only an emulator can start this program\n");
        skip();
    }
    assert_int_equal(code, 0);
    assert_int_equal(words, 5);
    assert_int_equal(process, shell);
    assert_int_equal(strncmp(name, strrchr(path, '/') + 1, strlen(name)), 0);
    assert_string_equal(spins, want);
    assert_string_equal(last, "last");
}

static void check_setting(void **state)
{
    (void)state;
    check("", "asks", expected);
    check("", "does-not", "-");
}

static void check_choice_of_the_user(void **state)
{
    (void)state;
    check("GOMP_SPINCOUNT=7", "asks", "7");
    check("OMP_WAIT_POLICY=active", "asks", "-");
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "say"))
        return say(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_setting),
        cmocka_unit_test(check_choice_of_the_user),
    };
    return cmocka_run_group_tests_name("waits", tests, NULL, NULL);
}
