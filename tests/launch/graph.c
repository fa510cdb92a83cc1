/* Job graphs in C: what may be added, functions of this program as threads and as processes, and that many launches
 * leave nothing. LAUNCHES in the environment: how many, 1000 in the slow tier. */

#include "launch/heartbeat_monitor.h"
#include "near.h"
#include "temp.h"

#include "lather/launch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60 };

static lt_status add_one(void *context, const void *request, size_t bytes,
                         lt_response_buffer *reply)
{
    (void)context;
    int value = 0;
    if (bytes != sizeof value)
        return LT_E_FORMAT;
    memcpy(&value, request, sizeof value);
    value++;
    void *out = lt_response_allocate(reply, sizeof value);
    if (out)
        memcpy(out, &value, sizeof value);
    return out ? LT_OK : LT_E_NOMEM;
}

static lt_status serve(lt_launch_node *node, void *context)
{
    return lt_launch_node_serve(node, add_one, context);
}

/* Asks service 1, checks the answer and its own arguments. */
static lt_status ask(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    lt_response back = {0};
    const int value = 41;
    int got = 0;
    (void)context;
    lt_status st = lt_launch_node_client(node, "adder", 1, true, &client);
    if (!st)
        st = lt_client_call(client, &value, sizeof value, SECONDS, &back);
    if (!st && back.bytes == sizeof got)
        memcpy(&got, back.data, sizeof got);
    lt_response_free(&back);
    lt_client_close(&client);
    if (!st
        && (got != value + 1 || lt_launch_node_number(node, "seven", 0) != 7
            || lt_launch_node_count_of(node, "adder") != 2))
        st = LT_E_FORMAT;
    return st;
}

static lt_job_graph *adders(void)
{
    lt_job_graph *p = NULL;
    const lt_launch_handle *adder = NULL;
    assert_ok(lt_job_graph_new(&p, "adders"));
    assert_ok(lt_job_graph_add(
        p,
        &(lt_launch_node_config){
            .label = "adder", .kind = LT_LAUNCH_NODE_SERVICE, .count = 2, .entry = serve},
        &adder));
    assert_ok(lt_job_graph_add(p,
                               &(lt_launch_node_config){.label = "asker",
                                                        .entry = ask,
                                                        .count = 3,
                                                        .uses = {adder},
                                                        .arguments = "--index ${index} --seven 7"},
                               NULL));
    return p;
}

static FILE *quiet;

static void run(lt_job_graph *p, lt_launch_platform platform)
{
    assert_ok(lt_job_graph_launch(p, &(lt_launch_config){.platform = platform, .log = quiet}));
}

static void functions_of_this_program(void **state)
{
    (void)state;
    lt_job_graph *p = adders();
    run(p, LT_LAUNCH_THREADS);
    assert_fails(
        lt_job_graph_launch(p, &(lt_launch_config){.platform = LT_LAUNCH_MPIRUN, .log = quiet}),
        LT_E_UNSUPPORTED, "adder: a function of this program");
    lt_job_graph_free(&p);
    assert_null(p);
}

static lt_status sum_of_ranks(lt_launch_node *node, void *context)
{
    lt_device *device = NULL;
    lt_comm *comm = NULL;
    int *right = context;
    lt_status st = lt_device_open(&device, "ref", NULL);
    if (!st)
        st = lt_launch_node_comm(node, device, &comm);
    if (!st) {
        const int64_t own = lt_launch_node_index(node) + 1, bytes[4] = {8, 8, 8, 8};
        int64_t all[4] = {0};
        st = lt_comm_allgather_host(comm, &own, bytes, all);
        right[lt_launch_node_index(node)] =
            all[0] == 1 && all[1] == 2 && all[2] == 3 && all[3] == 4;
        if (!st)
            st = lt_comm_barrier(comm);
    }
    lt_comm_close(&comm);
    lt_device_close(&device);
    return st;
}

static void a_gang_of_threads_has_a_communicator(void **state)
{
    int right[4] = {0};
    lt_job_graph *p = NULL;
    (void)state;
    assert_ok(lt_job_graph_new(&p, "gang"));
    assert_ok(lt_job_graph_add(p,
                               &(lt_launch_node_config){.label = "gang",
                                                        .kind = LT_LAUNCH_NODE_GANG,
                                                        .count = 4,
                                                        .entry = sum_of_ranks,
                                                        .context = right},
                               NULL));
    run(p, LT_LAUNCH_THREADS);
    for (int i = 0; i < 4; i++)
        assert_true(right[i]);
    assert_fails(
        lt_job_graph_launch(
            p, &(lt_launch_config){.platform = LT_LAUNCH_THREADS, .slots = 3, .log = quiet}),
        LT_E_ARG, "gang needs 4 ranks, but there are 3 slots");
    lt_job_graph_free(&p);
}

/* Both sides of each limit of a group's numbers. */
static void numbers_of_a_group_have_limits(void **state)
{
    enum { MOST = 4096 };
    static const struct {
        lt_launch_node_config c;
        const char *message; /* NULL: accepted */
    } row[] = {
        {{.count = MOST}, NULL},
        {{.count = MOST + 1}, "launch: group: 4097 nodes, want 1 to 4096"},
        {{.count = -1}, "launch: group: -1 nodes, want 1 to 4096"},
        {{.restarts = 0, .backoff = 0}, NULL},
        {{.restarts = -1}, "launch: group: -1 restarts after 0 seconds, want 0 or more"},
        {{.backoff = -0.5}, "launch: group: 0 restarts after -0.5 seconds, want 0 or more"},
        {{.heartbeat = -0.5}, "a heartbeat of -0.5, progress in 0 seconds, want 0 or more"},
        {{.progress = -0.5}, "a heartbeat of 0, progress in -0.5 seconds, want 0 or more"},
        {{.kind = LT_LAUNCH_NODE_GANG, .runs = MOST}, NULL},
        {{.kind = LT_LAUNCH_NODE_GANG, .runs = MOST + 1},
         "launch: group: 4097 runs, want 1 to 4096"},
        {{.kind = LT_LAUNCH_NODE_GANG, .runs = -1}, "launch: group: -1 runs, want 1 to 4096"},
        {{.kind = LT_LAUNCH_NODE_GANG, .runs = 2}, NULL},
        {{.runs = 1}, NULL},
        {{.runs = 2}, "launch: group: runs needs a gang with a command"},
        {{.plan = ""}, "launch: group: plan = auto needs a gang with a command"},
        {{.kind = LT_LAUNCH_NODE_GANG, .entry = ask, .runs = 2},
         "launch: group: runs needs a gang with a command"},
        {{.kind = LT_LAUNCH_NODE_SERVICE, .progress = 1}, "a service cannot have a progress"},
        {{.progress = 1}, NULL},
        {{.module = "m.so:f"}, NULL},
        {{.module = "m.so:"}, "launch: group: entry m.so: is not FILE.so:NAME"},
        {{.module = ":f"}, "launch: group: entry :f is not FILE.so:NAME"},
        {{.label = "abcdefghij-abcdefghij_abcdefghijZ"}, "invalid label 'abcdefghij-abcdefghij_a"},
        {{.label = "abcdefghij-abcdefghij_abcdefghij"}, NULL},
        {{.label = ""}, "invalid label ''"},
        {{.label = "program"}, "invalid label 'program'"},
        {{.label = "programs"}, NULL},
        {{.kind = LT_LAUNCH_NODE_GANG, .global_batch = 8, .batch_size = 1}, NULL},
        {{.kind = LT_LAUNCH_NODE_GANG, .global_batch = 8},
         "invalid global batch 8 of micro-batches of 0"},
        {{.kind = LT_LAUNCH_NODE_GANG, .global_batch = -1},
         "invalid global batch -1 of micro-batches of 0"},
        {{.kind = LT_LAUNCH_NODE_GANG, .batch_size = -1},
         "invalid global batch 0 of micro-batches of -1"},
        {{.global_batch = 8, .batch_size = 1},
         "launch: group: only a gang can have a global batch"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        lt_job_graph *p = NULL;
        const lt_launch_handle *handle = NULL;
        lt_launch_node_config c = row[i].c;
        c.label = c.label ? c.label : "group";
        c.command = c.entry || c.module ? NULL : "true";
        assert_ok(lt_job_graph_new(&p, "limits"));
        const lt_status st = lt_job_graph_add(p, &c, &handle);
        assert_status(st, row[i].message ? LT_E_ARG : LT_OK);
        if (st && !strstr(lt_error_message(), row[i].message))
            fail_msg("'%s' does not say '%s'", lt_error_message(), row[i].message);
        lt_job_graph_free(&p);
    }
}

static void handles_and_labels_that_are_refused(void **state)
{
    lt_job_graph *a = adders(), *b = NULL;
    const lt_launch_handle *foreign = NULL, *function = NULL;
    (void)state;
    assert_ok(lt_job_graph_new(&b, "other"));
    assert_fails(lt_job_graph_launch(b, &(lt_launch_config){.log = quiet}), LT_E_ARG,
                 "an empty program");
    assert_ok(lt_job_graph_add(b,
                               &(lt_launch_node_config){.label = "service",
                                                        .kind = LT_LAUNCH_NODE_SERVICE,
                                                        .entry = serve},
                               &foreign));
    assert_ok(lt_job_graph_add(a, &(lt_launch_node_config){.label = "function", .command = "true"},
                               &function));
    assert_fails(
        lt_job_graph_add(a, &(lt_launch_node_config){.label = "x", .entry = ask, .uses = {foreign}},
                         NULL),
        LT_E_ARG, "x uses service, a handle of another program");
    assert_fails(
        lt_job_graph_add(
            a, &(lt_launch_node_config){.label = "x", .entry = ask, .uses = {function}}, NULL),
        LT_E_ARG, "x uses function, which is not a service");
    assert_fails(
        lt_job_graph_add(a, &(lt_launch_node_config){.label = "asker", .entry = ask}, NULL),
        LT_E_ARG, "duplicate group asker");
    assert_fails(lt_job_graph_add(a, &(lt_launch_node_config){.label = "x y", .entry = ask}, NULL),
                 LT_E_ARG, "invalid label 'x y'");
    assert_fails(
        lt_job_graph_add(a, &(lt_launch_node_config){.label = "x", .entry = ask, .command = "true"},
                         NULL),
        LT_E_ARG, "want exactly one of entry, module and command");
    assert_fails(
        lt_job_graph_add(a,
                         &(lt_launch_node_config){
                             .label = "x", .entry = ask, .global_batch = 4, .batch_size = 1},
                         NULL),
        LT_E_ARG, "only a gang can have a global batch");
    lt_job_graph_free(&a);
    lt_job_graph_free(&b);
}

static bool is_refused(lt_status st, const char *part)
{
    return st == LT_E_ARG && strstr(lt_error_message(), part);
}

/* Makes calls that only a service or a gang may make, and asks for services that the program lacks. */
static lt_status misuse(lt_launch_node *node, void *context)
{
    lt_client *client = NULL;
    lt_comm *comm = NULL;
    (void)context;
    const bool good =
        is_refused(lt_launch_node_serve(node, add_one, NULL), "misuser is not a service")
        && is_refused(lt_launch_node_comm(node, NULL, &comm), "misuser is not a gang")
        && is_refused(lt_launch_node_client(node, "adder", 2, false, &client),
                      "misuser: there is no service adder.2")
        && is_refused(lt_launch_node_client(node, "adder", -1, false, &client),
                      "misuser: there is no service adder.-1")
        && is_refused(lt_launch_node_client(node, "asker", 0, false, &client),
                      "misuser: there is no service asker.0");
    return good ? LT_OK : LT_E_FORMAT;
}

static void calls_of_other_kinds_are_refused(void **state)
{
    lt_job_graph *p = adders();
    (void)state;
    assert_ok(
        lt_job_graph_add(p, &(lt_launch_node_config){.label = "misuser", .entry = misuse}, NULL));
    run(p, LT_LAUNCH_THREADS);
    assert_fails(lt_job_graph_launch(p, &(lt_launch_config){.slots = -1, .log = quiet}), LT_E_ARG,
                 "launch: -1 slots, want 0 or more");
    lt_job_graph_free(&p);
}

static lt_status fail_twice(lt_launch_node *node, void *context)
{
    atomic_int *calls = context;
    (void)node;
    return atomic_fetch_add(calls, 1) < 2 ? LT_E_IO : LT_OK;
}

static void a_thread_is_started_again(void **state)
{
    atomic_int calls = 0;
    lt_job_graph *p = NULL;
    (void)state;
    assert_ok(lt_job_graph_new(&p, "again"));
    assert_ok(lt_job_graph_add(p,
                               &(lt_launch_node_config){.label = "it",
                                                        .entry = fail_twice,
                                                        .context = &calls,
                                                        .policy = LT_LAUNCH_NODE_RESTART,
                                                        .restarts = 2,
                                                        .backoff = 0.001},
                               NULL));
    run(p, LT_LAUNCH_THREADS);
    assert_int_equal(atomic_load(&calls), 3);
    atomic_store(&calls, -1); /* three failures, two restarts */
    assert_fails(
        lt_job_graph_launch(p, &(lt_launch_config){.platform = LT_LAUNCH_THREADS, .log = quiet}),
        LT_E_COMM, "it.0 failed");
    lt_job_graph_free(&p);
    assert_ok(lt_job_graph_new(&p, "again")); /* three restarts where none are given */
    assert_ok(lt_job_graph_add(p,
                               &(lt_launch_node_config){.label = "it",
                                                        .entry = fail_twice,
                                                        .context = &calls,
                                                        .policy = LT_LAUNCH_NODE_RESTART,
                                                        .backoff = 0.001},
                               NULL));
    atomic_store(&calls, -1);
    run(p, LT_LAUNCH_THREADS);
    assert_int_equal(atomic_load(&calls), 3);
    lt_job_graph_free(&p);
}

static atomic_bool released;

/* The second makes no progress until it is told to. */
static lt_status hang(lt_launch_node *node, void *context)
{
    (void)context;
    while (!atomic_load(&released)) {
        if (lt_launch_node_index(node) == 0)
            lt_launch_node_progress(node);
        if (lt_launch_node_index(node) == 0 && lt_launch_node_stopping(node))
            return LT_OK;
        usleep(1000);
    }
    return LT_OK;
}

/* In a separate process, as the hanging thread is not joined. */
static void a_thread_that_makes_no_progress_is_named(void **state)
{
    int status = 1;
    lt_job_graph *p = NULL;
    (void)state;
    assert_ok(lt_job_graph_new(&p, "hang"));
    assert_ok(lt_job_graph_add(
        p, &(lt_launch_node_config){.label = "it", .entry = hang, .count = 2, .progress = 1},
        NULL));
    const pid_t child = fork();
    if (!child) {
        char log[2000] = "";
        FILE *file = fmemopen(log, sizeof log - 1, "w");
        const lt_status st = lt_job_graph_launch(
            p, &(lt_launch_config){.platform = LT_LAUNCH_THREADS, .log = file, .grace = 0.1});
        fflush(file);
        const bool named =
            strstr(lt_error_message(), "it.1 has made no progress for")
            && strstr(log,
                      "a hung thread did not stop within the grace period; it keeps running\n");
        lt_job_graph_free(&p); /* keeps it, as the thread uses it */
        atomic_store(&released, true);
        usleep(10000);
        _exit(st == LT_E_COMM && named ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    lt_job_graph_free(&p);
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int entries(const char *path, const char *begin)
{
    int count = 0;
    DIR *dir = opendir(path);
    const struct dirent *d;
    while (dir && (d = readdir(dir)))
        count += !strncmp(d->d_name, begin, strlen(begin));
    if (dir)
        closedir(dir);
    return count;
}

static bool own_shm; /* /dev/shm is private, so that remaining files can be counted */

/* Requires root. */
static bool take_shm(void)
{
    return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
           && !mount("none", "/dev/shm", "tmpfs", 0, NULL);
}

static void assert_nothing_is_left_in(const char *folder)
{
    assert_int_equal(entries(folder, "lather-"), 0);
    if (own_shm)
        assert_int_equal(entries("/dev/shm", "") - entries("/dev/shm", "."), 0);
}

/* Functions of this program as processes are forks: before this process has threads. */
static void many_launches_in_processes_leave_nothing(void **state)
{
    const char *many = getenv("LAUNCHES");
    const int count = many ? atoi(many) : 20, before = descriptors();
    char folder[TEMP_PATH];
    (void)state;
    temp_make(folder);
    setenv("TMPDIR", folder, 1);
    lt_job_graph *p = adders();
    const int threads = entries("/proc/self/task", ""); /* 1, in an emulator 2 */
    for (int i = 0; i < count; i++)
        run(p, LT_LAUNCH_LOCAL);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, so no zombie */
    assert_int_equal(descriptors(), before);
    assert_int_equal(entries("/proc/self/task", ""), threads);
    assert_nothing_is_left_in(folder);
    lt_job_graph_free(&p);
    unsetenv("TMPDIR");
    temp_remove(folder);
}

static void many_launches_in_threads_leave_nothing(void **state)
{
    const char *many = getenv("LAUNCHES");
    const int count = many ? atoi(many) : 20;
    char folder[TEMP_PATH];
    (void)state;
    temp_make(folder);
    setenv("TMPDIR", folder, 1);
    lt_job_graph *p = adders();
    run(p, LT_LAUNCH_THREADS);
    const int before = descriptors(), threads = entries("/proc/self/task", "");
    for (int i = 0; i < count; i++)
        run(p, LT_LAUNCH_THREADS);
    for (int i = 0; i < SECONDS * 100 && descriptors() > before; i++)
        usleep(10000);
    assert_true(descriptors() <= before);
    assert_true(entries("/proc/self/task", "") <= threads);
    assert_nothing_is_left_in(folder);
    lt_job_graph_free(&p);
    unsetenv("TMPDIR");
    temp_remove(folder);
}

/* Seconds in which the launcher was stopped do not count, for nodes that have been heard. */
static void a_pause_of_the_launcher_is_no_hang(void **state)
{
    lt_node_heartbeat node[2] = {{5, 4, 0}, {0, 0, 0}};
    lt_heartbeat_monitor m = {.node = node, .nodes = 2};
    (void)state;
    lt_heartbeat_monitor_extend(&m, 3);
    assert_near(node[0].at, 8, 0);
    assert_near(node[0].moved, 7, 0);
    assert_near(node[1].at, 0, 0);
    assert_near(node[1].moved, 0, 0);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"a pause of the launcher is no hang", a_pause_of_the_launcher_is_no_hang, NULL, NULL,
         NULL},
        {"many launches in processes leave nothing", many_launches_in_processes_leave_nothing, NULL,
         NULL, NULL},
        {"a thread that makes no progress is named", a_thread_that_makes_no_progress_is_named, NULL,
         NULL, NULL},
        {"many launches in threads leave nothing", many_launches_in_threads_leave_nothing, NULL,
         NULL, NULL},
        {"functions of this program as threads", functions_of_this_program, NULL, NULL, NULL},
        {"a gang of threads has a communicator", a_gang_of_threads_has_a_communicator, NULL, NULL,
         NULL},
        {"numbers of a group have limits", numbers_of_a_group_have_limits, NULL, NULL, NULL},
        {"handles and labels that are refused", handles_and_labels_that_are_refused, NULL, NULL,
         NULL},
        {"calls of other kinds of nodes are refused", calls_of_other_kinds_are_refused, NULL, NULL,
         NULL},
        {"a thread that fails is started again", a_thread_is_started_again, NULL, NULL, NULL},
    };
    own_shm = take_shm();
    unsetenv("TMPDIR"); /* which may have been below the other /dev/shm */
    quiet = fopen("/dev/null", "we");
    const int failed = cmocka_run_group_tests(rows, NULL, NULL);
    fclose(quiet);
    return failed;
}
