/* Hosts of a launch: lists and their errors, placement of ranks, spares, reports of checks. */

#include "base/alloc.h"
#include "base/os.h"
#include "base/socket.h"
#include "launch/host_check.h"
#include "launch/host_link.h"
#include "launch/spawn.h"
#include "near.h"
#include "temp.h"

#include "lather/launch.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 16 };

/* Addresses of the loopback interface are local; 198.51.100.x is no machine's. */
static lt_launch_hosts *open_hosts(const char *list, const char *spares)
{
    lt_launch_hosts *hosts = NULL;
    assert_ok(
        lt_launch_hosts_open(&hosts, &(lt_launch_hosts_config){.hosts = list, .spares = spares}));
    assert_non_null(hosts);
    return hosts;
}

static void assert_placed(const lt_launch_hosts *hosts, int ranks, const char *want)
{
    int of[RANKS];
    char *list = NULL;
    assert_int_equal(lt_launch_hosts_place(hosts, ranks, of), ranks);
    assert_ok(lt_launch_hosts_list(hosts, of, ranks, &list));
    assert_string_equal(list, want);
    lt_free(list);
}

/* Writes a new file; *path is its pattern. */
static void write_text(char *path, const char *text)
{
    const int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_file_and_a_list_place_ranks_by_slots(void **state)
{
    char path[64] = "/tmp/lather-hosts-XXXXXX";
    (void)state;
    write_text(
        path,
        "# all nodes\n198.51.100.1 slots=3 max_slots=4\n\n127.0.0.2\tslots=2 # ours\n198.51.100.3\n");
    lt_launch_hosts *hosts = open_hosts(path, NULL);
    assert_int_equal(lt_launch_hosts_slots(hosts, true), 6);
    assert_placed(hosts, 6,
                  "127.0.0.2:2,198.51.100.1:3,198.51.100.3:1"); /* as mpirun: its own host first */
    assert_placed(hosts, 4, "127.0.0.2:2,198.51.100.1:2");
    lt_launch_hosts_free(&hosts);
    unlink(path);
    hosts = open_hosts("198.51.100.1:3,198.51.100.2", NULL);
    assert_placed(hosts, 4, "198.51.100.1:3,198.51.100.2:1");
    lt_launch_hosts_free(&hosts);
}

static void a_spare_takes_a_lost_hosts_place(void **state)
{
    char text[256];
    FILE *log = fopen("/dev/null", "we");
    lt_launch_hosts *hosts =
        open_hosts("198.51.100.1:2,198.51.100.2:2", "198.51.100.3:1,198.51.100.4:4");
    (void)state;
    assert_non_null(log);
    assert_placed(hosts, 4, "198.51.100.1:2,198.51.100.2:2");
    lt_launch_hosts_leave_out(hosts, 0, "no reply");
    lt_launch_hosts_use_spares(hosts, log);
    assert_int_equal(lt_launch_hosts_slots(hosts, true), 3);
    assert_placed(
        hosts, 4,
        "198.51.100.3:1,198.51.100.2:2,198.51.100.4:1"); /* a further spare for its missing slot */
    assert_string_equal(lt_launch_hosts_describe_lost(hosts, text, sizeof text),
                        "198.51.100.1 (no reply)");
    lt_launch_hosts_leave_out(hosts, 3, "no reply");
    lt_launch_hosts_leave_out(hosts, 1, "no memory");
    lt_launch_hosts_use_spares(hosts, log);
    assert_int_equal(lt_launch_hosts_slots(hosts, false), 1);
    hosts->host[0].is_out = false; /* it came back: now it is the spare */
    lt_launch_hosts_use_spares(hosts, log);
    assert_placed(hosts, 3, "198.51.100.3:1,198.51.100.1:2");
    lt_launch_hosts_free(&hosts);
    fclose(log);
}

static void wrong_lists_are_errors_with_the_line(void **state)
{
    static const struct {
        const char *hosts, *spares, *says;
    } row[] = {
        {"127.0.0.1:2,127.0.0.1:2", NULL, "--hosts: host '127.0.0.1' is listed twice"},
        {"127.0.0.1:2,127.1:2", NULL,
         "--hosts: host '127.1' is listed twice: host '127.0.0.1' has its address"},
        {"127.0.0.1:0", NULL, "--hosts: '0' slots, want 1 to 4096"},
        {"127.0.0.1:two", NULL, "--hosts: 'two' slots, want 1 to 4096"},
        {"a..b:2", NULL, "--hosts: host 'a..b' does not resolve"},
        {"/no/such/file", NULL, "--hosts: cannot read /no/such/file"},
        {",", NULL, "--hosts: no host in ,"},
        {"127.0.0.1:2", "127.0.0.1:2",
         "--spare-hosts: host '127.0.0.1' is listed twice: a spare is not also a host"},
        {NULL, "127.0.0.1:2", "--spare-hosts needs --hosts"},
    };
    char path[64] = "/tmp/lather-hosts-XXXXXX", says[128];
    lt_launch_hosts *hosts = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const lt_launch_hosts_config config = {.hosts = row[i].hosts, .spares = row[i].spares};
        assert_fails(lt_launch_hosts_open(&hosts, &config), i == 5 ? LT_E_IO : LT_E_ARG,
                     row[i].says);
        assert_null(hosts);
    }
    write_text(path, "127.0.0.1 slots=2\n127.0.0.2 cores=2\n");
    snprintf(says, sizeof says, "%s:2: 'cores=2' after host '127.0.0.2', want slots=N", path);
    assert_fails(lt_launch_hosts_open(&hosts, &(lt_launch_hosts_config){.hosts = path}), LT_E_ARG,
                 says);
    unlink(path);
}

/* As PBS writes its file: a line for each slot. */
static void hosts_of_the_environment_add_their_slots(void **state)
{
    char path[64] = "/tmp/lather-hosts-XXXXXX";
    lt_launch_hosts *hosts = NULL;
    (void)state;
    assert_ok(lt_launch_hosts_open(&hosts, &(lt_launch_hosts_config){0}));
    assert_null(hosts);
    write_text(path, "198.51.100.1\n198.51.100.1\n198.51.100.2\n");
    setenv("PBS_NODEFILE", path, 1);
    hosts = open_hosts(NULL, NULL);
    assert_placed(hosts, 3, "198.51.100.1:2,198.51.100.2:1");
    lt_launch_hosts_free(&hosts);
    unsetenv("PBS_NODEFILE");
    unlink(path);
}

static void a_gang_fits_the_slots_that_are_left(void **state)
{
    lt_launch_handle group = {.config = {.label = "trainer",
                                         .count = 4,
                                         .batch_size = 2,
                                         .global_batch = 24,
                                         .policy = LT_LAUNCH_NODE_RESTART}};
    lt_task task = {.group = &group};
    lt_launch launch = {.hosts = open_hosts("198.51.100.1:2,198.51.100.2:2", NULL)};
    (void)state;
    assert_ok(lt_launch_fit_gang(&launch, &task, 4));
    assert_int_equal(task.count, 4);
    assert_int_equal(task.grad_accum, 3);
    lt_launch_hosts_leave_out(launch.hosts, 1, "no reply within 5 s");
    assert_ok(lt_launch_fit_gang(&launch, &task, 4));
    assert_int_equal(task.count, 2);
    assert_int_equal(task.grad_accum, 6);
    group.config.global_batch = 0; /* fewer ranks would change the batch */
    assert_fails(
        lt_launch_fit_gang(&launch, &task, 4), LT_E_COMM,
        "trainer needs 4 ranks, but there are 2 slots; left out: 198.51.100.2 (no reply within 5 s)");
    group.config.policy = LT_LAUNCH_NODE_SHRINK;
    assert_ok(lt_launch_fit_gang(&launch, &task, 4));
    assert_int_equal(task.count, 2);
    lt_launch_hosts_leave_out(launch.hosts, 0, "no memory");
    assert_fails(lt_launch_fit_gang(&launch, &task, 4), LT_E_COMM,
                 "needs 4 ranks or fewer, but there are 0 slots");
    lt_launch_hosts_free(&launch.hosts);
}

static void a_report_permits_ranks_or_says_why_not(void **state)
{
    const double now = 1000, much = 1e12;
    const lt_host_report good = {.time = now, .disk = much, .memory = much};
    const struct {
        const char *says;
        double time, disk, memory;
        const char *version;
    } row[] = {
        {NULL, now + 1, much, much, lt_version()},
        {NULL, now, much, -1, lt_version()}, /* unknown memory */
        {"has lather 9.9, the launcher", now, much, much, "9.9"},
        {"clock differs by 3.0 s, at most 2 s", now - 3, much, much, lt_version()},
        {"clock differs by 3.0 s, at most 2 s", now + 5, much, much, lt_version()},
        {"1 MiB free in the working folder, want 256", now, 1 << 20, much, lt_version()},
        {"1 MiB of memory free, want 256", now, much, 1 << 20, lt_version()},
    };
    char why[LT_HOST_WHY], text[256];
    lt_host_report r = {0};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        r = good;
        r.time = row[i].time;
        r.disk = row[i].disk;
        r.memory = row[i].memory;
        snprintf(r.version, sizeof r.version, "%s", row[i].version);
        assert_int_equal(lt_host_report_permits(&r, now, now + 2, why, sizeof why), !row[i].says);
        if (row[i].says)
            assert_non_null(strstr(why, row[i].says));
    }
    snprintf(text, sizeof text,
             "Warning: a new key\nlather-host 12.5 100 200 3 0 0.1.0 12ab avx2; with --x sse\n");
    assert_true(lt_host_report_parse(text, &r));
    assert_near(r.time, 12.5, 0);
    assert_int_equal(r.ended, 3);
    assert_string_equal(r.version, "0.1.0");
    assert_string_equal(r.build, "12ab");
    assert_string_equal(r.kernels, "avx2; with --x sse");
    assert_false(lt_host_report_parse("ssh: connect to host a port 22: No route to host", &r));
}

static pid_t start_with_mark(const char *entry)
{
    const pid_t child = fork();
    if (!child) {
        execlp("env", "env", "-i", entry, "sleep", "60", NULL);
        _exit(1);
    }
    assert_true(child > 0);
    return child;
}

static void only_processes_with_the_mark_are_killed(void **state)
{
    int status = 0, killed = 0;
    (void)state;
    if (!LT_LINUX) {
        print_message("SKIP: the portable form finds no processes by their environment\n");
        skip();
    }
    const pid_t ours = start_with_mark("LATHER_LAUNCH=lather-test.one");
    const pid_t other = start_with_mark("LATHER_LAUNCH=lather-test.one2");
    for (int i = 0; !killed && i < 500; i++) {
        killed = lt_os_kill_marked("LATHER_LAUNCH", "lather-test.one");
        usleep(10000);
    }
    assert_int_equal(killed, 1);
    assert_int_equal(waitpid(ours, &status, 0), ours);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(lt_os_kill_marked("LATHER_LAUNCH", "lather-test"), 0);
    assert_int_equal(waitpid(other, &status, WNOHANG), 0);
    kill(other, SIGTERM);
    assert_int_equal(waitpid(other, &status, 0), other);
}

static void messages_name_a_lost_host(void **state)
{
    lt_launch_hosts *hosts = open_hosts("127.0.0.1:2,127.0.0.10:2", NULL);
    (void)state;
    assert_int_equal(
        lt_launch_hosts_find_lost(hosts, "  Remote daemon: [[4,0],1] on node 127.0.0.10"), 1);
    assert_int_equal(lt_launch_hosts_find_lost(
                         hosts, "ssh: connect to host 127.0.0.1 port 22: No route to host"),
                     0);
    assert_int_equal(lt_launch_hosts_find_lost(
                         hosts, "mpirun noticed that process rank 2 on node 127.0.0.1 exited"),
                     -1);
    lt_launch_hosts_free(&hosts);
}

/* Checks two hosts by a script in the place of the program: `one` is the first report, `two` the second. Returns the log. */
static char *check_two_hosts(const char *command, const char *one, const char *two)
{
    char path[] = "/tmp/lather-check-XXXXXX", text[1024], *log = NULL;
    size_t bytes = 0;
    int back = 0;
    lt_launch_handle group = {
        .config = {.label = "trainer", .kind = LT_LAUNCH_NODE_GANG, .command = command}};
    lt_job_graph graph = {.first = &group};
    const lt_launch_config config = {.program = path};
    lt_launch launch = {.hosts = open_hosts("127.0.0.2:2,127.0.0.3:2", NULL),
                        .program = &graph,
                        .config = &config,
                        .log = open_memstream(&log, &bytes)};
    assert_non_null(launch.log);
    snprintf(text, sizeof text,
             "#!/bin/sh\nmkdir $0.one && report='%s' || report='%s'\n"
             "echo \"lather-host $(date +%%s) 1e12 1e12 0 $report\"\n",
             one, two);
    write_text(path, text);
    assert_int_equal(chmod(path, 0700), 0);
    for (int i = 0; i < 2; i++) /* differences are said once */
        assert_ok(lt_launch_hosts_check(&launch, NULL, &back));
    lt_launch_hosts_free(&launch.hosts);
    fclose(launch.log);
    unlink(path);
    snprintf(text, sizeof text, "%s.one", path);
    assert_int_equal(rmdir(text), 0);
    return log;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static void hosts_that_differ_are_said_once(void **state)
{
    static const char says[] = " differ, so results depend on the placement of ranks by rounding";
    char one[64], two[64], other[64];
    (void)state;
    snprintf(one, sizeof one, "1 %s ab avx2", lt_version());
    snprintf(two, sizeof two, "1 %s cd avx512", lt_version());
    snprintf(other, sizeof other, "0 %s ab avx2", lt_version());
    char *log = check_two_hosts("train", one, two);
    assert_int_equal(count_of(log, says), 1);
    assert_int_equal(count_of(log, "build ab, CPU kernels avx2"), 1);
    assert_int_equal(count_of(log, "build cd, CPU kernels avx512"), 1);
    assert_int_equal(count_of(log, "is not the launcher's"), 0);
    free(log);
    log = check_two_hosts("train --reproducible", one, two);
    assert_int_equal(count_of(log, says), 0);
    free(log);
    log = check_two_hosts("train --output /tmp/no-such/${run}", one, other);
    assert_int_equal(count_of(log, says), 0);
    assert_int_equal(count_of(log, ": its /tmp is not the launcher's: a gang whose rank 0 "), 1);
    free(log);
}

static void a_link_is_measured(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    lt_host_link link;
    int listener = lt_os_socket(AF_INET, false);
    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    at.sin_port = htons((uint16_t)lt_socket_port(listener));
    const pid_t child = fork();
    if (!child) {
        const int fd = lt_os_socket(AF_INET, true);
        const bool connected = !connect(fd, (struct sockaddr *)&at, sizeof at);
        lt_host_link_serve(connected ? fd : -1, 60);
        _exit(!connected);
    }
    assert_true(lt_host_link_measure(listener, 1, &link));
    assert_true(link.gbit > 0.01 && link.ms > 0 && link.ms < 1000);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(lt_host_link_measure(listener, 0.01, &link));
    close(listener);
}

static volatile sig_atomic_t asked_to_stop;

static void on_usr2(int number)
{
    (void)number;
    asked_to_stop++;
}

/* Starts checks, and polls until they have ended. */
static void poll_growth(const lt_launch *launch, lt_process *p)
{
    p->check_at = 0;
    do
        lt_process_poll_growth(launch, p);
    while (p->checks);
}

/* The program that checks hosts is a script here. */
static void a_gang_is_asked_to_stop_when_its_host_is_back(void **state)
{
    char path[] = "/tmp/lather-check-XXXXXX", text[256];
    lt_launch_handle group = {.config = {.label = "trainer",
                                         .kind = LT_LAUNCH_NODE_GANG,
                                         .count = 4,
                                         .command = "train --resume auto",
                                         .policy = LT_LAUNCH_NODE_SHRINK}};
    lt_task task = {.group = &group, .count = 2, .most = 4};
    const lt_launch_config config = {.program = path};
    lt_job_graph graph = {.first = &group};
    lt_launch launch = {.hosts = open_hosts("127.0.0.2:2,127.0.0.3:2", NULL),
                        .program = &graph,
                        .config = &config,
                        .log = fopen("/dev/null", "we")};
    lt_process process = {.task = &task, .pid = getpid()};
    const struct sigaction action = {.sa_handler = on_usr2};
    (void)state;
    assert_non_null(launch.log);
    sigaction(SIGUSR2, &action, NULL);
    write_text(path, "#!/bin/sh\necho cannot be reached\n");
    assert_int_equal(chmod(path, 0700), 0);
    lt_launch_hosts_leave_out(launch.hosts, 1, "no reply");
    poll_growth(&launch, &process);
    assert_false(process.grows);
    assert_true(process.check_at > 0);
    snprintf(text, sizeof text,
             "#!/bin/sh\necho \"lather-host $(date +%%s) 1e12 1e12 0 1 %s ab avx2\"\n",
             lt_version());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    group.config.command = "train"; /* it would begin again */
    poll_growth(&launch, &process);
    assert_int_equal(asked_to_stop, 0);
    group.config.command = "train --resume auto";
    poll_growth(&launch, &process);
    poll_growth(&launch, &process); /* a trainer that starts may miss a signal */
    assert_true(process.grows);
    assert_int_equal(asked_to_stop, 2);
    assert_true(launch.hosts->host[1].is_out); /* until the restart */
    task.most = 2;
    poll_growth(&launch, &process);
    assert_int_equal(asked_to_stop, 2);
    lt_launch_hosts_free(&launch.hosts);
    fclose(launch.log);
    unlink(path);
}

static void a_check_that_is_given_up_leaves_no_process(void **state)
{
    char path[] = "/tmp/lather-check-XXXXXX";
    lt_launch_handle group = {
        .config = {.label = "trainer", .kind = LT_LAUNCH_NODE_GANG, .command = "train"}};
    lt_job_graph graph = {.first = &group};
    const lt_launch_config config = {.program = path};
    const lt_launch launch = {
        .hosts = open_hosts("127.0.0.2:2,127.0.0.3:2", NULL), .program = &graph, .config = &config};
    lt_launch_hosts *hosts = launch.hosts;
    lt_host_checks *checks = NULL;
    (void)state;
    write_text(path, "#!/bin/sh\nsleep 1000\n");
    assert_int_equal(chmod(path, 0700), 0);
    assert_ok(lt_host_checks_start(&checks, &launch, NULL, false));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* they run */
    lt_host_checks_free(&checks);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    lt_launch_hosts_free(&hosts);
    unlink(path);
}

static void a_process_without_descriptors_is_an_error(void **state)
{
    const lt_launch_handle group = {.config = {.label = "few"}};
    lt_task task = {.group = &group, .count = 2};
    lt_launch launch = {.hosts = NULL};
    lt_process process = {.task = &task};
    struct rlimit limit;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, limit.rlim_max}), 0);
    const lt_status st = lt_process_start(&launch, &process);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(st, LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "launch: few: pipe: "));
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"a file and a list place ranks by slots", a_file_and_a_list_place_ranks_by_slots, NULL,
         NULL, NULL},
        {"a spare takes a lost host's place", a_spare_takes_a_lost_hosts_place, NULL, NULL, NULL},
        {"wrong lists are errors with the line", wrong_lists_are_errors_with_the_line, NULL, NULL,
         NULL},
        {"hosts of the environment add their slots", hosts_of_the_environment_add_their_slots, NULL,
         NULL, NULL},
        {"a gang fits the slots that are left", a_gang_fits_the_slots_that_are_left, NULL, NULL,
         NULL},
        {"a report permits ranks or says why not", a_report_permits_ranks_or_says_why_not, NULL,
         NULL, NULL},
        {"only processes with the mark are killed", only_processes_with_the_mark_are_killed, NULL,
         NULL, NULL},
        {"messages name a lost host", messages_name_a_lost_host, NULL, NULL, NULL},
        {"hosts that differ are said once", hosts_that_differ_are_said_once, NULL, NULL, NULL},
        {"a link is measured", a_link_is_measured, NULL, NULL, NULL},
        {"a gang is asked to stop when its host is back",
         a_gang_is_asked_to_stop_when_its_host_is_back, NULL, NULL, NULL},
        {"a check that is given up leaves no process", a_check_that_is_given_up_leaves_no_process,
         NULL, NULL, NULL},
        {"a process without descriptors is an error", a_process_without_descriptors_is_an_error,
         NULL, NULL, NULL},
    };
    unsetenv("PBS_NODEFILE");
    unsetenv("OMPI_MCA_orte_default_hostfile");
    return cmocka_run_group_tests(rows, NULL, NULL);
}
