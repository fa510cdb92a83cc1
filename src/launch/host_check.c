/* The check runs `lather node --check` on every host by the shell that mpirun uses too, and locally without one. A host
 * must also connect back to the launcher, as mpirun's daemons do. */

#include "launch/host_check.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/os.h"
#include "base/socket.h"
#include "launch/spawn.h"

#include "lather/device.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double check_seconds = 5, link_seconds = 3, most_clock_seconds = 2;
static const double least_bytes = 256.0 * (1 << 20), gib = 1 << 30;

static double seconds_since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns the line of --version on the instruction sets in use. */
static const char *kernels(void)
{
    const char *line = "";
    for (int i = 0; (line = lt_build_info(i)) && strncmp(line, "CPU kernels: ", 13) != 0;)
        i++;
    return line ? line + 13 : "unknown";
}

/* --- On the host --- */

enum { FLAG = 1, FILES, FOLDER, MARK, ADDRESS, PORT, WORDS };

static lt_status check_folder(const char *path)
{
    char name[LT_LAUNCH_PATH + 32];
    snprintf(name, sizeof name, "%s/check-XXXXXX", path);
    const int fd = mkstemp(name);
    if (fd < 0)
        return lt_fail(LT_E_IO, "%s cannot be written: %s", path, strerror(errno));
    close(fd);
    unlink(name);
    return LT_OK;
}

/* Connects to the launcher, whose kernel accepts. */
static lt_status check_link(const char *address, const char *port)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *to = NULL;
    int error = 0;
    if (getaddrinfo(address, port, &hints, &to))
        return lt_fail(LT_E_ARG, "'%s' is not an address", address);
    int fd = lt_os_socket(to->ai_family, false);
    if (fd < 0 || (connect(fd, to->ai_addr, to->ai_addrlen) && errno != EINPROGRESS))
        error = errno;
    else if (!lt_socket_wait(fd, POLLOUT, lt_clock_seconds() + link_seconds))
        error = ETIMEDOUT;
    else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    lt_socket_close(&fd);
    freeaddrinfo(to);
    return error ? lt_fail(LT_E_COMM, "cannot connect to the launcher at %s: %s", address,
                           strerror(error))
                 : LT_OK;
}

static lt_status check_this_host(char *const *argv, struct statvfs *disk)
{
    if (chdir(argv[FOLDER]) || statvfs(".", disk))
        return lt_fail(LT_E_IO, "%s: %s", argv[FOLDER], strerror(errno));
    if (access(".", W_OK))
        return lt_fail(LT_E_IO, "%s cannot be written: %s", argv[FOLDER], strerror(errno));
    LT_TRY(check_folder(argv[FILES]));
    return *argv[PORT] == '0' ? LT_OK : check_link(argv[ADDRESS], argv[PORT]);
}

int lt_launch_host_check_main(int argc, char *const *argv)
{
    struct statvfs disk = {0};
    if (argc != WORDS)
        return 2;
    const int ended = *argv[MARK] ? lt_os_kill_marked(LT_TASK_MARK, argv[MARK]) : 0;
    if (check_this_host(argv, &disk)) {
        printf("%s\n", lt_error_message());
        return 1;
    }
    printf("lather-host %.3f %.0f %.0f %d %s %s\n", seconds_since_1970(),
           (double)disk.f_bavail * (double)disk.f_frsize, lt_machine_available_bytes(), ended,
           lt_version(), kernels());
    return 0;
}

/* --- On the launcher --- */

bool lt_host_report_parse(const char *text, lt_host_report *out)
{
    const char *at = strstr(text, "lather-host ");
    *out = (lt_host_report){0};
    /* NOLINTBEGIN(cert-err34-c): the library writes these numbers */
    return at
           && sscanf(at, "lather-host %lf %lf %lf %d %31s %127[^\n]", &out->time, &out->disk,
                     &out->memory, &out->ended, out->version, out->kernels)
                  == 6;
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
    size_t bytes;
    char text[4096];
} check;

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

static lt_status start_check(const lt_launch *launch, const lt_launch_host *h, const char *mark,
                             check *c)
{
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
    char *command = lt_format("'%s' node --check '%s' '%s' '%s' %s %d", program,
                              launch->place.files, folder, mark, address, port);
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

/* Reads all output until the time is up, then ends what still runs. */
static void wait_for_checks(check *c, struct pollfd *fds, int count)
{
    const double end = lt_clock_seconds() + check_seconds;
    for (int open = count; open && lt_clock_seconds() < end;) {
        open = 0;
        for (int i = 0; i < count; i++) {
            fds[i] = (struct pollfd){.fd = c[i].output, .events = POLLIN};
            open += c[i].output >= 0;
        }
        if (open && lt_os_poll(fds, (size_t)count, fmax(end - lt_clock_seconds(), 0), NULL) > 0)
            for (int i = 0; i < count; i++)
                if (fds[i].revents)
                    read_check(&c[i]);
    }
    for (int i = 0; i < count; i++) {
        if (c[i].output >= 0 && !c[i].bytes)
            snprintf(c[i].text, sizeof c[i].text, "no reply within %g s", check_seconds);
        if (c[i].pid > 0) {
            kill(-c[i].pid, SIGKILL);
            while (waitpid(c[i].pid, NULL, 0) < 0 && errno == EINTR) {
            }
        }
        lt_socket_close(&c[i].output);
        lt_socket_close(&c[i].listener);
    }
}

/* Returns the last line that is not empty; cuts the text there. */
static const char *last_line(char *text)
{
    size_t bytes = strlen(text);
    while (bytes && strchr("\r\n ", text[bytes - 1]))
        text[--bytes] = 0;
    const char *line = strrchr(text, '\n');
    return line ? line + 1 : bytes ? text : "the check ended without output";
}

/* Sets the state of a host, and logs it if it changed or was unknown. */
static void apply_check(const lt_launch *launch, int i, check *c, int *back)
{
    enum { MOST_LOSSES = 3 };
    lt_launch_host *h = &launch->hosts->host[i];
    lt_host_report r;
    char why[LT_HOST_WHY] = "";
    const bool known = lt_host_report_parse(c->text, &r);
    if (!known)
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, last_line(c->text));
    if (!known || !lt_host_report_permits(&r, c->from, c->to, why, sizeof why)) {
        if (!h->is_out)
            fprintf(launch->log, "launch| host %s is left out: %s\n", h->name, why);
        lt_launch_hosts_leave_out(launch->hosts, i, why);
        return;
    }
    if (h->is_out && h->losses >= MOST_LOSSES)
        return;
    if (r.ended)
        fprintf(launch->log, "launch| host %s: ended %d processes of an earlier attempt\n", h->name,
                r.ended);
    if (h->is_out || !launch->hosts->was_checked)
        fprintf(launch->log,
                "launch| host %s%s: %d slots, %.1f GiB free on disk, %.1f GiB of memory\n", h->name,
                h->is_out ? " is back" : "", h->slots, r.disk / gib, r.memory / gib);
    if (!launch->hosts->was_checked && strcmp(r.kernels, kernels()) != 0)
        fprintf(
            launch->log,
            "launch| host %s has other CPU kernels than the launcher: results differ by rounding "
            "(%s; here: %s)\n",
            h->name, r.kernels, kernels());
    *back += h->is_out;
    h->is_out = false;
}

lt_status lt_launch_hosts_check(const lt_launch *launch, const lt_task *task, int *back)
{
    lt_launch_hosts *hosts = launch->hosts;
    const int count = hosts->count;
    char mark[LT_LAUNCH_NAME * 2] = "";
    check *c = NULL;
    struct pollfd *fds = NULL;
    if (task)
        lt_task_mark(launch, task, mark, sizeof mark);
    *back = 0;
    lt_status st = LT_ALLOC(&c, count);
    if (!st)
        st = LT_ALLOC(&fds, count);
    for (int i = 0; !st && i < count; i++)
        c[i].output = c[i].listener = -1;
    for (int i = 0; !st && i < count; i++)
        st = start_check(launch, &hosts->host[i], mark, &c[i]);
    if (c && fds)
        wait_for_checks(c, fds, count);
    for (int i = 0; !st && i < count; i++)
        apply_check(launch, i, &c[i], back);
    fflush(launch->log);
    hosts->was_checked = true;
    lt_free(c);
    lt_free(fds);
    return st;
}
