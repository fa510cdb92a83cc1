/* Services beside what is not their client: bytes by hand, other processes, files that were left, callers that do not read. */

#include "increment.h"
#include "temp.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[TEMP_PATH];

static int connect_raw(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Bytes to a service by hand. */
static void send_raw(const char *address, const void *data, size_t bytes)
{
    char back[64];
    const int fd = connect_raw(address);
    assert_int_equal(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
    shutdown(fd, SHUT_WR);
    while (read(fd, back, sizeof back) > 0) {
    }
    close(fd);
}

static void forged_messages(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
    } rows[] = {
        {"LTS", 3},
        {"LTS2\1\0\0\0\0\0\0\0\0\0\0\0", 16},                    /* another magic */
        {"LTS1\1\0\0\0\377\377\377\377\377\377\377\377abc", 19}, /* more than a machine has */
        {"LTS1\1\0\0\0\1\0\0\20\0\0\0\0abc", 19},                /* one more than may be sent */
        {"LTS1\1\0\0\0\4\0\0\0\0\0\0\0abc", 19},                 /* more than there are */
        {"LTS1\1\0\0\0\2\0\0\0\0\0\0\0abc", 19},                 /* fewer */
        {"LTS1\0\0\0\0\0\0\0\0\0\0\0\0", 16}, /* kinds that are none, or are not asked */
        {"LTS1\4\0\0\0\0\0\0\0\0\0\0\0", 16},
        {"LTS1\11\0\0\0\0\0\0\0\0\0\0\0", 16},
        {"LTS1\1\1\0\0\0\0\0\0\0\0\0\0", 16}, /* a call with a status */
        {"\0SP\0\0\60\0\0", 8},               /* a greeting of another protocol */
    };
    (void)state;
    lt_service *s = serve("tcp://127.0.0.1:0", NULL);
    atomic_store(&handled, 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        send_raw(lt_service_address(s), rows[i].bytes, rows[i].count);
    assert_int_equal(atomic_load(&handled), 0);
    lt_client *c = connect_to(lt_service_address(s), NULL, false);
    check_call(c, 10);
    lt_client_close(&c);
    lt_service_close(&s);
}

/* A request that the service does not take is an error that says why, also where it is still being sent. */
static void requests_that_are_refused(void **state)
{
    static const char *const addresses[] = {"inproc://refused", "tcp://127.0.0.1:0"};
    enum { LARGE = 3000001 };
    char *bytes = calloc(LARGE, 1);
    size_t extra = 0;
    lt_answer answer = {0};
    lt_service *s = NULL;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        assert_ok(lt_service_open(&s, &(lt_service_config){.address = addresses[i],
                                                           .handler = increment,
                                                           .context = &extra,
                                                           .max_bytes = 1000}));
        lt_client *c = connect_to(lt_service_address(s), NULL, false);
        assert_fails(lt_client_call(c, bytes, 1001, SECONDS, &answer), LT_E_COMM,
                     "1001 bytes, at most 1000");
        check_call(c, 1000); /* by a new connection */
        lt_client_close(&c);
        assert_ok(lt_client_open(
            &c, &(lt_client_config){.address = lt_service_address(s), .max_bytes = 1}));
        extra = 1;
        assert_fails(lt_client_call(c, bytes, 1, SECONDS, &answer), LT_E_COMM,
                     "an answer of 2 bytes, at most 1");
        assert_fails(lt_client_call(c, bytes, 2, SECONDS, &answer), LT_E_ARG,
                     "a request of 2 bytes, at most 1");
        extra = 0;
        lt_client_close(&c);
        lt_service_close(&s);
        s = serve(addresses[i], "a secret");
        c = connect_to(lt_service_address(s), NULL, false);
        /* By TCP the end of the connection may come before the words. */
        assert_fails(lt_client_call(c, bytes, LARGE, SECONDS, &answer), LT_E_COMM,
                     i ? "" : "the service wants a secret");
        lt_client_close(&c);
        lt_service_close(&s);
    }
    free(bytes);
}

static void a_file_that_a_killed_service_left(void **state)
{
    char address[TEMP_PATH + 16];
    struct stat info;
    (void)state;
    snprintf(address, sizeof address, "ipc://%s/left", folder);
    const char *path = address + strlen("ipc://");
    struct sockaddr_un left = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof left.sun_path);
    memcpy(left.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&left, sizeof left), 0);
    close(fd);
    assert_int_equal(access(path, F_OK), 0);
    lt_service *s = serve(address, NULL), *second = NULL;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_fails(
        lt_service_open(&second, &(lt_service_config){.address = address, .handler = increment}),
        LT_E_IO, address); /* one that lives is not taken away */
    lt_client *c = connect_to(address, NULL, false);
    check_call(c, 10);
    lt_client_close(&c);
    lt_service_close(&s);
}

/* The name of a socket of this process in /proc/net/unix, or -1 instead of a connection to it. */
static int connect_by_name(void)
{
    char line[512], prefix[64];
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    FILE *f = fopen("/proc/net/unix", "r");
    snprintf(prefix, sizeof prefix, "@lather-%ld-", (long)getppid());
    const char *name = NULL;
    while (f && !name && fgets(line, sizeof line, f))
        name = strstr(line, prefix);
    if (f)
        fclose(f);
    if (!name)
        return -1;
    memcpy(to.sun_path + 1, name + 1, strcspn(name + 1, "@\n"));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (struct sockaddr *)&to, sizeof to) ? -1 : fd;
}

static void threads_of_one_process_only(void **state)
{
    static const char call[] = "LTS1\1\0\0\0\0\0\0\0\0\0\0";
    int status = 0;
    (void)state;
    lt_service *s = serve("inproc://own", NULL);
    atomic_store(&handled, 0);
    const pid_t child = fork();
    if (!child) {
        char back;
        const int fd = connect_by_name();
        if (fd < 0)
            _exit(77);
        (void)send(fd, call, sizeof call, MSG_NOSIGNAL);
        _exit(read(fd, &back, 1) > 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    lt_client *c = connect_to("inproc://own", NULL, false);
    check_call(c, 1);
    assert_int_equal(atomic_load(&handled), 1);
    lt_client_close(&c);
    lt_service_close(&s);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Asks for an answer that does not fit into sockets, and reads none of it. */
static void closing_beside_a_caller_that_does_not_read(void **state)
{
    enum { LARGE = 64 << 20 };
    static const char call[] = "LTS1\1\0\0\0\0\0\0\0\0\0\0";
    size_t extra = LARGE;
    lt_service *s = NULL;
    (void)state;
    assert_ok(lt_service_open(&s, &(lt_service_config){.address = "tcp://127.0.0.1:0",
                                                       .handler = increment,
                                                       .context = &extra}));
    atomic_store(&handled, 0);
    const int fd = connect_raw(lt_service_address(s));
    assert_int_equal(send(fd, call, sizeof call, MSG_NOSIGNAL), sizeof call);
    while (!atomic_load(&handled))
        usleep(1000);
    lt_service_close(&s); /* returns */
    close(fd);
}

static int make(void **state)
{
    (void)state;
    temp_make(folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    temp_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        {"forged lengths and messages", forged_messages, NULL, NULL, NULL},
        {"requests that a service does not take", requests_that_are_refused, NULL, NULL, NULL},
        {"the file of a killed service is replaced, that of a living one is not",
         a_file_that_a_killed_service_left, NULL, NULL, NULL},
        {"inproc is for threads of one process", threads_of_one_process_only, NULL, NULL, NULL},
        {"a service closes beside a caller that does not read",
         closing_beside_a_caller_that_does_not_read, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(rows, make, clean);
}
