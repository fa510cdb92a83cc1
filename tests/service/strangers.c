/* Services and strangers: hand-made bytes, other processes, stale files, callers that do not read. */

#include "base/clock.h"
#include "exchange.h"
#include "increment.h"
#include "service/challenge_response.h"
#include "service/connection.h"
#include "service/frame.h"
#include "temp.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NONCE "0123456789abcdef"

static char folder[TEMP_PATH];

static int connect_raw(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    const struct timeval patience = {.tv_sec = SECONDS};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
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
        {"LTS0\1\0\0\0\0\0\0\0\0\0\0\0", 16},                    /* another magic */
        {"LTS2\1\0\0\0\377\377\377\377\377\377\377\377abc", 19}, /* more than a machine has */
        {"LTS2\1\0\0\0\1\0\0\20\0\0\0\0abc", 19},                /* one more than may be sent */
        {"LTS2\1\0\0\0\4\0\0\0\0\0\0\0abc", 19},                 /* more than there are */
        {"LTS2\1\0\0\0\2\0\0\0\0\0\0\0abc", 19},                 /* fewer */
        {"LTS2\0\0\0\0\0\0\0\0\0\0\0\0", 16}, /* kinds that are invalid or unexpected */
        {"LTS2\4\0\0\0\0\0\0\0\0\0\0\0", 16},
        {"LTS2\11\0\0\0\0\0\0\0\0\0\0\0", 16},
        {"LTS2\1\1\0\0\0\0\0\0\0\0\0\0", 16}, /* a call with a status */
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

static void headers(void **state)
{
    static const struct {
        const char *header, *message; /* NULL: valid */
    } rows[] = {
        {"LTS2\1\0\0\0\2\0\0\0\0\0\0", NULL},
        {"LTS2\7\5\0\0\1\0\0\0\0\0\0", "kind 7 with invalid status 5"},
        {"LTS2\5\0\0\0\1\0\0\0\0\0\0", "kind 5 with invalid status 0"},
        {"LTS2\0\0\0\0\0\0\0\0\0\0\0", "unknown message kind 0"},
        {"LTS2\10\0\0\0\0\0\0\0\0\0\0", "unknown message kind 8"},
        {"LTS2\1\0\0\0\3\0\0\0\0\0\0", "3 bytes, at most 2"},
        {"LTX2\1\0\0\0\2\0\0\0\0\0\0", "another protocol"},
    };
    lt_frame frame = {0};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].message)
            assert_fails(lt_frame_read_header(&frame, rows[i].header, 2), LT_E_FORMAT,
                         rows[i].message);
        else
            assert_ok(lt_frame_read_header(&frame, rows[i].header, 2));
}

/* A request that the service does not take is an error that says why, also where it is still being sent. */
static void requests_that_are_refused(void **state)
{
    static const char *const addresses[] = {"inproc://refused", "tcp://127.0.0.1:0"};
    enum { LARGE = 3000001 };
    char *bytes = calloc(LARGE, 1);
    size_t extra = 0;
    lt_response answer = {0};
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
                     "response of 2 bytes, at most 1");
        assert_fails(lt_client_call(c, bytes, 2, SECONDS, &answer), LT_E_ARG,
                     "request of 2 bytes, at most 1");
        extra = 0;
        lt_client_close(&c);
        lt_service_close(&s);
        s = serve(addresses[i], SECRET);
        c = connect_to(lt_service_address(s), NULL, false);
        /* By TCP the end of the connection may come before the words. */
        assert_fails(lt_client_call(c, bytes, LARGE, SECONDS, &answer), LT_E_COMM,
                     i ? "" : "the service requires a secret");
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

static void files_that_are_no_sockets_of_ours(void **state)
{
    char address[TEMP_PATH + 16], moved[TEMP_PATH];
    struct stat info;
    size_t bytes = 0;
    (void)state;
    snprintf(address, sizeof address, "ipc://%s/thesis", folder);
    const char *path = address + strlen("ipc://");
    lt_service *s = NULL;
    const lt_service_config config = {.address = address, .handler = increment};
    temp_write(path, "words", 5);
    assert_fails(lt_service_open(&s, &config), LT_E_IO, "is not a socket");
    free(temp_read(path, &bytes));
    assert_int_equal(bytes, 5);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_fails(lt_service_open(&s, &config), LT_E_IO, "is not a socket");
    assert_int_equal(unlink(path), 0);
    s = serve(address, NULL); /* whose file is moved, and a file of the user takes its name */
    assert_int_equal(rename(path, temp_path(moved, folder, "moved")), 0);
    temp_write(path, "words", 5);
    lt_service_close(&s);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISREG(info.st_mode));
}

static void a_socket_that_another_user_left(void **state)
{
    char address[TEMP_PATH + 16];
    (void)state;
    if (geteuid())
        skip();
    snprintf(address, sizeof address, "ipc://%s/others", folder);
    struct sockaddr_un left = {.sun_family = AF_UNIX};
    const char *path = address + strlen("ipc://");
    memcpy(left.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&left, sizeof left), 0);
    close(fd);
    assert_int_equal(chown(path, 65534, 65534), 0);
    lt_service *s = NULL;
    assert_fails(
        lt_service_open(&s, &(lt_service_config){.address = address, .handler = increment}),
        LT_E_IO, address);
    assert_int_equal(access(path, F_OK), 0);
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
    static const char call[] = "LTS2\1\0\0\0\0\0\0\0\0\0\0";
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
    static const char call[] = "LTS2\1\0\0\0\0\0\0\0\0\0\0";
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

/* --- The handshake by hand --- */

/* A connection after HELLO and CHALLENGE. */
static lt_stream *greet(const char *address, lt_nonces *n)
{
    lt_stream *s = calloc(1, sizeof *s);
    lt_frame back;
    s->fd = connect_raw(address);
    assert_ok(lt_token_draw(n->client));
    assert_true(exchange(s, LT_FRAME_HELLO, n->client, sizeof n->client, &back));
    assert_int_equal(back.kind, LT_FRAME_CHALLENGE);
    assert_int_equal(back.bytes, sizeof n->service); /* the nonce alone: nothing of the secret */
    memcpy(n->service, back.data, sizeof n->service);
    return s;
}

static void hang_up(lt_stream *s)
{
    close(s->fd);
    free(s);
}

/* Sends the frame, which must be the connection's last. */
static void check_refused(lt_stream *s, lt_frame_kind kind, const void *data, size_t bytes,
                          const char *why)
{
    lt_frame back;
    char byte;
    assert_true(exchange(s, kind, data, bytes, &back));
    assert_int_equal(back.kind, LT_FRAME_REFUSED);
    assert_string_equal(lt_frame_payload_text(&back, "?"), why);
    assert_true(recv(s->fd, &byte, 1, 0) <= 0);
    hang_up(s);
}

static void proofs_that_do_not_hold(void **state)
{
    char proof[LT_TOKEN_PROOF], replayed[LT_TOKEN_PROOF];
    lt_nonces n, other;
    lt_frame back;
    (void)state;
    lt_service *service = serve("tcp://127.0.0.1:0", SECRET);
    const char *address = lt_service_address(service);
    static const char why[] = "the secrets of client and service differ";
    lt_stream *s = greet(address, &n);
    lt_proof_make(proof, "another secret of tests", &n, LT_PROOF_CLIENT);
    check_refused(s, LT_FRAME_PROOF, proof, sizeof proof, why);
    s = greet(address, &n);
    lt_proof_make(proof, SECRET, &n, LT_PROOF_SERVICE); /* the other side's */
    check_refused(s, LT_FRAME_PROOF, proof, sizeof proof, why);
    s = greet(address, &n);
    lt_proof_make(proof, SECRET, &n, LT_PROOF_CLIENT);
    check_refused(s, LT_FRAME_PROOF, proof, sizeof proof - 1, why); /* without its NUL */
    check_refused(greet(address, &n), LT_FRAME_PROOF, "", 0, why);
    s = greet(address, &n);
    lt_proof_make(replayed, SECRET, &n, LT_PROOF_CLIENT); /* control: it holds here */
    assert_true(exchange(s, LT_FRAME_PROOF, replayed, sizeof replayed, &back));
    assert_int_equal(back.kind, LT_FRAME_RESULT);
    assert_true(lt_proof_is_valid(&back, SECRET, &n, LT_PROOF_SERVICE));
    check_refused(s, LT_FRAME_PROOF, replayed, sizeof replayed, "unexpected message");
    check_refused(greet(address, &other), LT_FRAME_PROOF, replayed, sizeof replayed, why);
    lt_service_close(&service);
}

static void one_hello(void **state)
{
    lt_nonces n;
    (void)state;
    lt_service *service = serve("tcp://127.0.0.1:0", SECRET);
    lt_stream *s = greet(lt_service_address(service), &n);
    check_refused(s, LT_FRAME_HELLO, n.client, sizeof n.client, "unexpected message");
    lt_service_close(&service);
}

static void the_oldest_stranger_is_dropped(void **state)
{
    enum { STRANGERS = 300 };
    int fd[STRANGERS];
    char byte;
    (void)state;
    lt_service *service = serve("tcp://127.0.0.1:0", SECRET);
    lt_client *c = connect_to(lt_service_address(service), SECRET, false);
    check_call(c, 10); /* a connection that is kept */
    for (int i = 0; i < STRANGERS; i++)
        fd[i] = connect_raw(lt_service_address(service));
    assert_int_equal(recv(fd[0], &byte, 1, 0), 0); /* ends only as it is dropped */
    assert_true(recv(fd[STRANGERS - 1], &byte, 1, MSG_DONTWAIT) < 0);
    check_call(c, 10);
    lt_client *second = connect_to(lt_service_address(service), SECRET, false);
    check_call(second, 10);
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
    lt_client_close(&c);
    lt_client_close(&second);
    lt_service_close(&service);
}

/* A service without a secret in a process that may open few files; until its input ends. */
static void serve_with_few_descriptors(const int *in, const int *out)
{
    char byte;
    lt_service *s = NULL;
    const struct rlimit few = {(rlim_t)out[1] + 20, (rlim_t)out[1] + 20};
    close(in[1]);
    if (lt_service_open(&s,
                        &(lt_service_config){.address = "tcp://127.0.0.1:0", .handler = increment})
        || setrlimit(RLIMIT_NOFILE, &few)
        || write(out[1], lt_service_address(s), strlen(lt_service_address(s)) + 1) < 0)
        _exit(1);
    (void)!read(in[0], &byte, 1);
    lt_service_close(&s);
    _exit(0);
}

static void without_descriptors_strangers_are_dropped(void **state)
{
    enum { STRANGERS = 50 };
    int fd[STRANGERS], in[2], out[2], status = -1;
    char address[64], byte = 0;
    lt_stream known = {0};
    lt_frame back;
    (void)state;
    assert_int_equal(pipe(in) || pipe(out), 0);
    const pid_t child = fork();
    if (!child)
        serve_with_few_descriptors(in, out);
    close(in[0]);
    assert_true(read(out[0], address, sizeof address) > 0);
    known.fd = connect_raw(address);
    assert_true(exchange(&known, LT_FRAME_CALL, &byte, 1, &back));
    for (int i = 0; i < STRANGERS; i++)
        fd[i] = connect_raw(address);
    lt_client *c = connect_to(address, NULL, true);
    check_call(c, 10);
    lt_client_close(&c);
    assert_true(recv(known.fd, &byte, 1, MSG_DONTWAIT) < 0); /* it has called */
    close(known.fd);
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
    close(in[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(out[0]);
    close(out[1]);
}

/* Listens on a free port, whose address it writes. */
static int listen_raw(char *address, size_t size)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof own;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&own, &bytes), 0);
    snprintf(address, size, "tcp://127.0.0.1:%d", ntohs(own.sin_port));
    return listener;
}

/* A frame that a service sends when it has got `wants` bytes; 0: none. */
typedef struct raw_answer {
    size_t wants;
    lt_frame frame;
} raw_answer;

static void answer_raw(int listener, const raw_answer *answers)
{
    char header[LT_FRAME_BYTES], in[256];
    const int fd = accept(listener, NULL, NULL);
    for (const raw_answer *a = answers; a < answers + 2 && a->wants; a++) {
        (void)!recv(fd, in, a->wants, MSG_WAITALL);
        lt_frame_write_header(header, &a->frame);
        (void)send(fd, header, sizeof header, MSG_NOSIGNAL | MSG_MORE);
        (void)send(fd, a->frame.data, a->frame.bytes, MSG_NOSIGNAL);
    }
    (void)!recv(fd, in, 1, 0);
    _exit(0);
}

static void services_that_break_the_protocol(void **state)
{
    enum { HEAD = LT_FRAME_BYTES, HELLO = HEAD + LT_TOKEN_NONCE, PROOF = HEAD + LT_TOKEN_PROOF };
    static const char proof[LT_TOKEN_PROOF] = "0";
    static const struct {
        const char *secret, *message;
        raw_answer answer[2];
    } rows[] = {
        {NULL, "unexpected response", {{HEAD + 1, {LT_FRAME_CHALLENGE, 0, "", 0, 0}}}},
        {SECRET, "unexpected handshake", {{HELLO, {LT_FRAME_RESULT, 0, NONCE, 17, 0}}}},
        {SECRET, "unexpected handshake", {{HELLO, {LT_FRAME_CHALLENGE, 0, NONCE, 16, 0}}}},
        {SECRET, "unexpected handshake", {{HELLO, {LT_FRAME_CHALLENGE, 0, "!" NONCE, 17, 0}}}},
        {SECRET,
         "does not know this client's secret",
         {{HELLO, {LT_FRAME_CHALLENGE, 0, NONCE, 17, 0}},
          {PROOF, {LT_FRAME_RESULT, 0, proof, sizeof proof, 0}}}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char address[64];
        lt_response answer = {0};
        const int listener = listen_raw(address, sizeof address);
        lt_client *c = connect_to(address, rows[i].secret, false);
        const pid_t child = fork();
        if (!child)
            answer_raw(listener, rows[i].answer);
        assert_fails(lt_client_call(c, "x", 1, SECONDS, &answer), LT_E_COMM, rows[i].message);
        assert_non_null(strstr(lt_error_message(), address));
        lt_client_close(&c);
        close(listener);
        waitpid(child, NULL, 0);
    }
}

static void another_version_is_named(void **state)
{
    static const char old_call[] = "LTS1\1\0\0\0\0\0\0\0\0\0\0",
                      old_end[] = "LTS1\7\0\0\0\0\0\0\0\0\0\0";
    char back[256] = "", address[64];
    lt_response answer = {0};
    (void)state;
    for (int secret = 0; secret < 2; secret++) {
        lt_service *s = serve("tcp://127.0.0.1:0", secret ? SECRET : NULL);
        const int fd = connect_raw(lt_service_address(s));
        assert_int_equal(send(fd, old_call, sizeof old_call, 0), sizeof old_call);
        assert_true(recv(fd, back, sizeof back - 1, MSG_WAITALL) > LT_FRAME_BYTES);
        assert_memory_equal(back, "LTS1\7\0", 6); /* which an old client reads */
        assert_non_null(strstr(back + LT_FRAME_BYTES, "protocol versions"));
        close(fd);
        lt_service_close(&s);
    }
    const int listener = listen_raw(address, sizeof address);
    lt_client *c = connect_to(address, NULL, false);
    const pid_t child = fork();
    if (!child) { /* an old service, which does not know this client's message */
        const int fd = accept(listener, NULL, NULL);
        (void)!recv(fd, back, LT_FRAME_BYTES, MSG_WAITALL);
        (void)send(fd, old_end, sizeof old_end, MSG_NOSIGNAL);
        (void)!recv(fd, back, 1, 0);
        _exit(0);
    }
    assert_fails(lt_client_call(c, "x", 1, SECONDS, &answer), LT_E_COMM, "protocol versions");
    lt_client_close(&c);
    close(listener);
    waitpid(child, NULL, 0);
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
        cmocka_unit_test(forged_messages),
        cmocka_unit_test(headers),
        cmocka_unit_test(requests_that_are_refused),
        cmocka_unit_test(a_file_that_a_killed_service_left),
        cmocka_unit_test(files_that_are_no_sockets_of_ours),
        cmocka_unit_test(a_socket_that_another_user_left),
        cmocka_unit_test(threads_of_one_process_only),
        cmocka_unit_test(closing_beside_a_caller_that_does_not_read),
        cmocka_unit_test(proofs_that_do_not_hold),
        cmocka_unit_test(one_hello),
        cmocka_unit_test(the_oldest_stranger_is_dropped),
        cmocka_unit_test(without_descriptors_strangers_are_dropped),
        cmocka_unit_test(services_that_break_the_protocol),
        cmocka_unit_test(another_version_is_named),
    };
    return cmocka_run_group_tests(rows, make, clean);
}
