/* The check runs `lather node --check` on every host by the shell that mpirun uses too, and locally without one. A host
 * must also connect back to the launcher, as mpirun's daemons do. */

#include "launch/host_check.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/os.h"
#include "base/plugins/elf.h"
#include "base/socket.h"
#include "launch/host_link.h"
#include "launch/spawn.h"
#include "tensor/tensor.h"

#include "lather/device.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const double check_seconds = 5, connect_seconds = 3, most_clock_seconds = 2;
static const double links_seconds = 5, link_seconds = 0.25; /* limits for all links and for one */
static const double least_bytes = 256.0 * (1 << 20), gib = 1 << 30;

static double seconds_since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- On the host --- */

enum { FLAG = 1, FILES, FOLDER, MARK, ADDRESS, PORT, SHARED, WORDS };

/* Connects to the launcher, whose kernel accepts; *out is the caller's. */
static lt_status check_link(const char *address, const char *port, int *out)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *to = NULL;
    int error = 0;
    if (getaddrinfo(address, port, &hints, &to))
        return lt_fail(LT_E_ARG, "'%s' is not an address", address);
    int fd = lt_os_socket(to->ai_family, false);
    if (fd < 0 || (connect(fd, to->ai_addr, to->ai_addrlen) && errno != EINPROGRESS))
        error = errno;
    else if (!lt_socket_wait(fd, POLLOUT, lt_clock_seconds() + connect_seconds))
        error = ETIMEDOUT;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    if (error)
        lt_socket_close(&fd);
    *out = fd;
    freeaddrinfo(to);
    return error ? lt_fail(LT_E_COMM, "cannot connect to the launcher at %s: %s", address,
                           strerror(error))
                 : LT_OK;
}

static lt_status check_this_host(char *const *argv, struct statvfs *disk, int *link)
{
    if (chdir(argv[FOLDER]) || statvfs(".", disk))
        return lt_fail(LT_E_IO, "%s: %s", argv[FOLDER], strerror(errno));
    for (int i = FILES; i <= FOLDER; i++)
        if (access(argv[i], W_OK))
            return lt_fail(LT_E_IO, "%s cannot be written: %s", argv[i], strerror(errno));
    return *argv[PORT] == '0' ? LT_OK : check_link(argv[ADDRESS], argv[PORT], link);
}

int lt_launch_host_check_main(int argc, char *const *argv)
{
    struct statvfs disk = {0};
    char build[LT_BUILD_ID_TEXT];
    int link = -1;
    if (argc != WORDS)
        return 2;
    const int ended = *argv[MARK] ? lt_os_kill_marked(LT_TASK_MARK, argv[MARK]) : 0;
    if (check_this_host(argv, &disk, &link)) {
        printf("%s\n", lt_error_message());
        return 1;
    }
    lt_elf_build_id(build);
    printf("lather-host %.3f %.0f %.0f %d %d %s %s %s\n", seconds_since_1970(),
           (double)disk.f_bavail * (double)disk.f_frsize, lt_machine_available_bytes(), ended,
           !access(argv[SHARED], F_OK), lt_version(), *build ? build : "unknown",
           lt_device_isa(false));
    fflush(stdout);
    if (link >= 0)
        lt_host_link_serve(link, check_seconds + links_seconds);
    lt_socket_close(&link);
    return 0;
}

/* --- On the launcher --- */

bool lt_host_report_parse(const char *text, lt_host_report *out)
{
    const char *at = strstr(text, "lather-host ");
    *out = (lt_host_report){0};
    /* NOLINTBEGIN(cert-err34-c): the library writes these numbers */
    return at
           && sscanf(at, "lather-host %lf %lf %lf %d %d %31s %31s %127[^\n]", &out->time,
                     &out->disk, &out->memory, &out->ended, &out->shares, out->version, out->build,
                     out->kernels)
                  == 8;
    /* NOLINTEND(cert-err34-c) */
}

bool lt_host_report_permits(const lt_host_report *report, double from, double to, char *why,
                            size_t size)
{
    const double mib = 1 << 20;
    const double off = fmax(from - report->time, fmax(report->time - to, 0));
    if (strcmp(report->version, lt_version()) != 0)
        snprintf(why, size, "has lather %s, the launcher %s", report->version, lt_version());
    else if (off > most_clock_seconds)
        snprintf(why, size, "clock differs by %.1f s, at most %g s", off, most_clock_seconds);
    else if (report->disk < least_bytes)
        snprintf(why, size, "%.0f MiB free in the working folder, want %.0f", report->disk / mib,
                 least_bytes / mib);
    else if (report->memory >= 0 && report->memory < least_bytes)
        snprintf(why, size, "%.0f MiB of memory free, want %.0f", report->memory / mib,
                 least_bytes / mib);
    else
        return true;
    return false;
}

/* A check that runs. */
typedef struct check {
    pid_t pid;
    int output, listener; /* -1: closed */
    double from, to;      /* seconds since 1970 */
    bool passed;
    char why[LT_HOST_WHY]; /* reason if it has not passed; "": left out too often */
    lt_host_report report;
    lt_host_link link;
    size_t bytes;
    char text[4096];
} check;

struct lt_host_checks {
    const lt_launch *launch;
    check *check;                     /* [hosts] */
    struct pollfd *fd;                /* [hosts] */
    double end;                       /* lt_clock_seconds() at which what still runs is ended */
    char shared[LT_LAUNCH_PATH + 32]; /* a file in the run folder's file system */
};

/* Listens at the address from which the host is reached, for one connection. Errors: LT_E_COMM (no route). */
static lt_status listen_for(const lt_launch_host *h, check *c, char *address, int *port)
{
    struct sockaddr_storage to = h->address, own = {0};
    socklen_t bytes = sizeof own;
    ((struct sockaddr_in *)&to)->sin_port = htons(9); /* sin6_port is there too; nothing is sent */
    int route = socket(to.ss_family, SOCK_DGRAM, 0);
    const bool known = route >= 0 && !connect(route, (struct sockaddr *)&to, h->address_bytes)
                       && !getsockname(route, (struct sockaddr *)&own, &bytes);
    if (!known)
        (void)lt_fail(LT_E_COMM, "no route: %s", strerror(errno));
    lt_socket_close(&route);
    if (!known)
        return LT_E_COMM;
    ((struct sockaddr_in *)&own)->sin_port = 0;
    c->listener = lt_os_socket(own.ss_family, false);
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&own, bytes)
        || listen(c->listener, 1)
        || getnameinfo((struct sockaddr *)&own, bytes, address, NI_MAXHOST, NULL, 0,
                       NI_NUMERICHOST))
        return lt_fail(LT_E_COMM, "cannot listen for it: %s", strerror(errno));
    *port = lt_socket_port(c->listener);
    return LT_OK;
}

/* Returns the shell by which mpirun reaches hosts. */
static const char *agent(void)
{
    const char *text = getenv("OMPI_MCA_plm_rsh_agent");
    if (!text || !*text)
        text = getenv("PRTE_MCA_plm_ssh_agent");
    return text && *text ? text : "ssh -x -o BatchMode=yes";
}

static lt_status start_check(const lt_host_checks *all, const lt_launch_host *h, const char *mark,
                             check *c)
{
    const lt_launch *launch = all->launch;
    char folder[LT_LAUNCH_PATH], address[NI_MAXHOST] = "-";
    char **argv = NULL;
    int ends[2], port = 0;
    if (!getcwd(folder, sizeof folder))
        return lt_fail(LT_E_IO, "launch: the working folder: %s", strerror(errno));
    if (!h->is_local && listen_for(h, c, address, &port)) {
        snprintf(c->text, sizeof c->text, "%s", lt_error_message());
        c->bytes = strlen(c->text);
        return LT_OK;
    }
    const char *shell = agent();
    const char *program = launch->config->program ? launch->config->program : "lather";
    char *command = lt_format("'%s' node --check '%s' '%s' '%s' %s %d '%s'", program,
                              launch->place.files, folder, mark, address, port, all->shared);
    char *text = !command      ? NULL
                 : h->is_local ? lt_strdup(command)
                               : lt_format("%.*s %s \"%s\"", (int)strcspn(shell, ":"), shell,
                                           h->name, command);
    lt_status st = text ? lt_launch_split_argv(&argv, text) : LT_E_NOMEM;
    lt_free(command);
    lt_free(text);
    if (!st && lt_os_pipe(ends))
        st = lt_fail(LT_E_IO, "launch: pipe: %s", strerror(errno));
    if (!st) {
        const int why = lt_spawn_argv(argv, ends[1], &c->pid);
        c->output = ends[0];
        c->from = seconds_since_1970();
        close(ends[1]);
        if (why)
            c->bytes = (size_t)snprintf(c->text, sizeof c->text, "%s: %s", argv[0], strerror(why));
        c->pid = why ? 0 : c->pid;
    }
    lt_free((void *)argv);
    return st;
}

static void read_check(check *c)
{
    const ssize_t got = read(c->output, c->text + c->bytes, sizeof c->text - 1 - c->bytes);
    c->bytes += got > 0 ? (size_t)got : 0;
    c->to = seconds_since_1970();
    if (got <= 0 || c->bytes == sizeof c->text - 1)
        lt_socket_close(&c->output);
}

/* Creates a file in the folder of a gang's --output, or in the last folder above it that exists: a host that does not see it
 * has another file system there. */
static void make_shared_file(const lt_launch *launch, char *out, size_t size)
{
    char folder[LT_LAUNCH_PATH] = "", *end = folder;
    int fd;
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next) {
        const char *at = lt_launch_find_flag(h, "--output");
        at = at ? at + strspn(at, " =\t\n'\"") : "";
        if (*at && !*folder) /* up to a placeholder */
            end =
                folder + snprintf(folder, sizeof folder, "%.*s", (int)strcspn(at, " \t\n'\"$"), at);
    }
    do {
        *end = 0;
        snprintf(out, size, "%s/.lather-check-XXXXXX", *folder ? folder : ".");
        fd = mkstemp(out);
        end = strrchr(folder, '/') ? strrchr(folder, '/') : folder;
    } while (fd < 0 && *folder);
    if (fd >= 0)
        close(fd);
    else
        snprintf(out, size, "./"); /* cannot be compared */
}

void lt_host_checks_free(lt_host_checks **checks)
{
    lt_host_checks *all = *checks;
    *checks = NULL;
    for (int i = 0; all && all->fd && i < all->launch->hosts->count; i++) {
        check *c = &all->check[i];
        if (c->pid > 0 && !kill(-c->pid, SIGKILL))
            lt_os_wait(c->pid);
        lt_socket_close(&c->output);
        lt_socket_close(&c->listener);
    }
    if (all) {
        unlink(all->shared);
        lt_free(all->check);
        lt_free(all->fd);
    }
    lt_free(all);
}

lt_status lt_host_checks_start(lt_host_checks **out, const lt_launch *launch, const lt_task *task,
                               bool left_out)
{
    const int count = launch->hosts->count;
    char mark[LT_LAUNCH_NAME * 2] = "";
    lt_host_checks *all = NULL;
    if (task)
        lt_task_mark(launch, task, mark, sizeof mark);
    LT_TRY(LT_ALLOC(&all, 1));
    *all = (lt_host_checks){.launch = launch, .end = lt_clock_seconds() + check_seconds};
    snprintf(all->shared, sizeof all->shared, "./"); /* all hosts have it */
    if (!left_out)
        make_shared_file(launch, all->shared, sizeof all->shared);
    lt_status st = LT_ALLOC(&all->check, count);
    if (!st)
        st = LT_ALLOC(&all->fd, count);
    for (int i = 0; !st && i < count; i++)
        all->check[i].output = all->check[i].listener = -1;
    for (int i = 0; !st && i < count; i++)
        if (!left_out || launch->hosts->host[i].is_out)
            st = start_check(all, &launch->hosts->host[i], mark, &all->check[i]);
    if (st)
        lt_host_checks_free(&all);
    *out = all;
    return st;
}

/* Returns the last line that is not empty; cuts the text there. */
static const char *last_line(check *c)
{
    while (c->bytes && strchr("\r\n ", c->text[c->bytes - 1]))
        c->text[--c->bytes] = 0;
    const char *line = strrchr(c->text, '\n');
    if (!c->bytes)
        return c->output < 0 ? "the check ended without output" : "no reply within 5 s";
    return line ? line + 1 : c->text;
}

static void decide(check *c, const lt_launch_host *h)
{
    enum { MOST_LOSSES = 3 };
    if (!lt_host_report_parse(c->text, &c->report))
        snprintf(c->why, sizeof c->why, "%.*s", (int)sizeof c->why - 1, last_line(c));
    else
        c->passed = lt_host_report_permits(&c->report, c->from, c->to, c->why, sizeof c->why)
                    && !(h->is_out && h->losses >= MOST_LOSSES);
}

bool lt_host_checks_poll(lt_host_checks *all, double seconds)
{
    const int count = all->launch->hosts->count;
    const double end = fmin(all->end, lt_clock_seconds() + seconds);
    double left;
    int open;
    do {
        open = 0;
        left = fmax(end - lt_clock_seconds(), 0);
        for (int i = 0; i < count; i++) {
            const char *line = strstr(all->check[i].text, "lather-host ");
            const int fd = line && strchr(line, '\n') ? -1 : all->check[i].output;
            all->fd[i] = (struct pollfd){.fd = fd, .events = POLLIN};
            open += fd >= 0;
        }
        if (open && lt_os_poll(all->fd, (size_t)count, left, NULL) > 0)
            for (int i = 0; i < count; i++)
                if (all->fd[i].revents)
                    read_check(&all->check[i]);
    } while (open && left > 0);
    if (open && lt_clock_seconds() < all->end)
        return false;
    for (int i = 0; i < count; i++)
        decide(&all->check[i], &all->launch->hosts->host[i]);
    return true;
}

bool lt_host_checks_permit(const lt_host_checks *checks, int host)
{
    return checks->check[host].passed;
}

/* Logs a host that is used for the first time or again. */
static void log_host(const lt_host_checks *all, int i)
{
    FILE *log = all->launch->log;
    const lt_launch_host *h = &all->launch->hosts->host[i];
    const check *c = &all->check[i];
    fprintf(log, "launch| host %s%s: %d slots, %.1f GiB free on disk, %.1f GiB of memory", h->name,
            h->is_out ? " is back" : "", h->slots, c->report.disk / gib, c->report.memory / gib);
    fprintf(log, c->link.gbit > 0 ? ", link of %.3g Gbit/s, %.2g ms\n" : "\n", c->link.gbit,
            c->link.ms);
    if (!c->report.shares)
        fprintf(log,
                "launch| host %s: its %.*s is not the launcher's: a gang whose rank 0 moves there "
                "begins again; use a run folder that all hosts share\n",
                h->name, (int)(strrchr(all->shared, '/') - all->shared), all->shared);
}

/* Sets the state of a host, and logs it if it changed or was unknown. */
static void apply_check(const lt_host_checks *all, int i, int *back)
{
    lt_launch_hosts *hosts = all->launch->hosts;
    lt_launch_host *h = &hosts->host[i];
    const check *c = &all->check[i];
    if (!c->passed) {
        if (!h->is_out)
            fprintf(all->launch->log, "launch| host %s is left out: %s\n", h->name, c->why);
        if (*c->why)
            lt_launch_hosts_leave_out(hosts, i, c->why);
        return;
    }
    if (c->report.ended)
        fprintf(all->launch->log, "launch| host %s: ended %d processes of an earlier attempt\n",
                h->name, c->report.ended);
    if (h->is_out || !hosts->was_checked)
        log_host(all, i);
    *back += h->is_out;
    h->is_out = false;
}

/* Logs the first two hosts with different builds or CPU kernels, unless all gangs have --reproducible. */
static void compare_hosts(const lt_host_checks *all)
{
    const lt_launch_host *host = all->launch->hosts->host;
    bool is_done = true;
    int a = -1;
    for (const lt_launch_handle *h = all->launch->program->first; h; h = h->next)
        if (h->config.kind == LT_LAUNCH_NODE_GANG && !lt_launch_find_flag(h, "--reproducible"))
            is_done = false;
    for (int b = 0; b < all->launch->hosts->count && !is_done; b++) {
        if (!all->check[b].passed)
            continue;
        a = a < 0 ? b : a;
        const lt_host_report *r = &all->check[a].report, *s = &all->check[b].report;
        is_done = strcmp(r->build, s->build) != 0 || strcmp(r->kernels, s->kernels) != 0;
        if (is_done)
            fprintf(
                all->launch->log,
                "launch| hosts %s and %s differ, so results depend on the placement of ranks by "
                "rounding: build %s, CPU kernels %s; build %s, CPU kernels %s\n",
                host[a].name, host[b].name, r->build, r->kernels, s->build, s->kernels);
    }
}

/* Measures the links of hosts that passed, one after the other; logs those slower than a tenth of the others' median. */
static void measure_links(lt_host_checks *all)
{
    const int count = all->launch->hosts->count, tenth = 10;
    int links = 0;
    for (int i = 0; i < count; i++) {
        check *c = &all->check[i];
        if (c->passed && c->listener >= 0)
            links += lt_host_link_measure(c->listener, fmin(link_seconds, links_seconds / count),
                                          &c->link);
    }
    for (int i = 0; i < count; i++) {
        const double gbit = all->check[i].link.gbit;
        int faster = 0;
        for (int k = 0; k < count && gbit > 0; k++)
            faster += all->check[k].link.gbit > tenth * gbit;
        if (faster && 2 * faster >= links - 1)
            fprintf(
                all->launch->log,
                "launch| host %s: a link of %.3g Gbit/s, less than a tenth of the others' median\n",
                all->launch->hosts->host[i].name, gbit);
    }
}

lt_status lt_launch_hosts_check(const lt_launch *launch, const lt_task *task, int *back)
{
    lt_host_checks *all = NULL;
    *back = 0;
    LT_TRY(lt_host_checks_start(&all, launch, task, false));
    while (!lt_host_checks_poll(all, check_seconds)) {
    }
    measure_links(all);
    for (int i = 0; i < launch->hosts->count; i++)
        apply_check(all, i, back);
    if (!launch->hosts->was_checked)
        compare_hosts(all);
    lt_host_checks_free(&all);
    fflush(launch->log);
    launch->hosts->was_checked = true;
    return LT_OK;
}
