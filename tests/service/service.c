/* Services and clients: responses, addresses, authentication, and broken connections. */

#include "increment.h"
#include "temp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static char folder[TEMP_PATH];
static void bytes_come_back(void **state)
{
    char path[TEMP_PATH + 16];
    snprintf(path, sizeof path, "ipc://%s/socket", folder);
    const char *const addresses[] = {"inproc://bytes", path, "tcp://127.0.0.1:0",
                                     "tcp://localhost:0"};
    const size_t sizes[] = {0, 1, 15, 4096, 5000001};
    (void)state;
    for (size_t a = 0; a < COUNT_OF(addresses); a++) {
        lt_service *s = serve(addresses[a], NULL);
        lt_client *c = connect_to(lt_service_address(s), NULL, false);
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            check_call(c, sizes[i]);
        lt_client_close(&c);
        lt_service_close(&s);
        assert_null(s);
    }
    assert_int_not_equal(access(path + strlen("ipc://"), F_OK), 0);
}

static void *call_often(void *context)
{
    for (size_t i = 0; i < 100; i++)
        check_call(context, 10 + i);
    return NULL;
}

static void callers_at_once(void **state)
{
    enum { CLIENTS = 5, THREADS = 3 };
    lt_client *c[CLIENTS];
    pthread_t thread[CLIENTS * THREADS];
    (void)state;
    lt_service *s = serve("tcp://127.0.0.1:0", "a secret of tests");
    atomic_store(&handled, 0);
    for (int i = 0; i < CLIENTS * THREADS; i++) {
        if (i % THREADS == 0)
            c[i / THREADS] = connect_to(lt_service_address(s), "a secret of tests", false);
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, c[i / THREADS]), 0);
    }
    for (int i = 0; i < CLIENTS * THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&handled), CLIENTS * THREADS * 100);
    for (int i = 0; i < CLIENTS; i++)
        lt_client_close(&c[i]);
    lt_service_close(&s);
}

static void errors_come_back(void **state)
{
    lt_response answer = {0};
    lt_service *s = NULL;
    size_t extra = 1 << 20;
    (void)state;
    assert_ok(lt_service_open(&s, &(lt_service_config){.address = "inproc://errors",
                                                       .handler = increment,
                                                       .context = &extra,
                                                       .max_bytes = 1000}));
    lt_client *c = connect_to("inproc://errors", NULL, false);
    assert_fails(lt_client_call(c, "fail", 4, SECONDS, &answer), LT_E_SHAPE, "inproc://errors: ");
    assert_fails(lt_client_call(c, "x", 1, SECONDS, &answer), LT_E_ARG,
                 "1048577 bytes, at most 1000");
    lt_client_close(&c);
    lt_service_close(&s);
}

#define LONG "0123456789012345678901234567890123456789012345678901234567890123"

static void addresses_that_are_refused(void **state)
{
    static const struct {
        const char *address, *part;
    } rows[] = {
        {NULL, "(none)"},
        {"", "want inproc://NAME"},
        {"http://a:1", "want inproc://NAME"},
        {"ipc://relative", "an absolute path"},
        {"ipc:///" LONG "/" LONG, "a path of 130 bytes, at most 107"},
        {"tcp://127.0.0.1", "want tcp://HOST:PORT"},
        {"tcp://:80", "want tcp://HOST:PORT"},
        {"tcp://::1:80", "want tcp://HOST:PORT"},
        {"tcp://127.0.0.1:65536", "invalid port '65536'"},
        {"tcp://127.0.0.1:-1", "invalid port '-1'"},
        {"tcp://127.0.0.1:", "invalid port ''"},
        {"tcp://0.0.0.0:0", "a secret is required"},
        {"tcp://[::]:0", "a secret is required"},
        {"tcp://127.0.0.1.example.org:0", "a secret is required"},
    };
    lt_service *s = NULL;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_fails(lt_service_open(&s, &(lt_service_config){.address = rows[i].address,
                                                              .handler = increment}),
                     LT_E_ARG, rows[i].part);
    lt_client *c = NULL;
    assert_fails(lt_client_open(&c, &(lt_client_config){.address = "tcp://127.0.0.1:0"}), LT_E_ARG,
                 "port 0");
    assert_fails(lt_client_open(&c, &(lt_client_config){.address = "inproc://a", .secret = ""}),
                 LT_E_ARG, "a secret of 0 bytes, want 16 to 255");
    assert_fails(lt_service_open(&s, &(lt_service_config){.address = "inproc://a",
                                                          .handler = increment,
                                                          .secret = "fifteen bytes.."}),
                 LT_E_ARG, "a secret of 15 bytes, want 16 to 255");
    for (int threads = -1; threads < 100000; threads += 100000)
        assert_fails(lt_service_open(&s, &(lt_service_config){.address = "inproc://a",
                                                              .handler = increment,
                                                              .threads = threads}),
                     LT_E_ARG, threads < 0 ? "service: -1 threads, want 0 to " : "99999 threads");
}

static void a_port_in_use(void **state)
{
    (void)state;
    lt_service *s = serve("tcp://127.0.0.1:0", NULL), *other = serve("tcp://127.0.0.1:0", NULL),
               *third = NULL;
    assert_string_not_equal(lt_service_address(s), lt_service_address(other));
    assert_fails(lt_service_open(&third, &(lt_service_config){.address = lt_service_address(s),
                                                              .handler = increment}),
                 LT_E_IO, lt_service_address(s));
    assert_null(third);
    lt_service_close(&s);
    lt_service_close(&other);
}

static void check_secret(const char *service, const char *client, const char *part)
{
    lt_response answer = {0};
    lt_service *s = serve("tcp://127.0.0.1:0", service);
    lt_client *c = connect_to(lt_service_address(s), client, true);
    atomic_store(&handled, 0);
    if (part)
        assert_fails(lt_client_call(c, "x", 1, SECONDS, &answer), LT_E_COMM, part);
    else
        check_call(c, 100);
    assert_int_equal(atomic_load(&handled), part ? 0 : 1);
    lt_client_close(&c);
    lt_service_close(&s);
}

static void secrets(void **state)
{
    (void)state;
    static const char right[] = "the right secret", wrong[] = "the wrong secret";
    check_secret(right, right, NULL);
    check_secret(right, wrong, "the secrets of client and service differ");
    check_secret(right, NULL, "the service requires a secret");
    check_secret(NULL, right, "the service has no secret");
}

static void beyond_loopback_with_a_secret(void **state)
{
    char address[64];
    (void)state;
    lt_service *s = serve("tcp://0.0.0.0:0", "a secret of tests");
    const char *colon = strrchr(lt_service_address(s), ':');
    assert_null(strstr(lt_service_address(s), "0.0.0.0"));
    snprintf(address, sizeof address, "tcp://127.0.0.1%s", colon);
    lt_client *c = connect_to(address, "a secret of tests", false);
    check_call(c, 10);
    lt_client_close(&c);
    lt_service_close(&s);
}

static atomic_bool release;

static lt_status wait_for_release(void *context, const void *request, size_t bytes,
                                  lt_response_buffer *reply)
{
    (void)context;
    (void)request;
    (void)bytes;
    (void)reply;
    atomic_fetch_add(&handled, 1);
    while (!atomic_load(&release))
        usleep(1000);
    return LT_OK;
}

static void deadlines(void **state)
{
    lt_response answer = {0};
    lt_service *s = NULL;
    (void)state;
    lt_client *c = connect_to("inproc://nothing", NULL, true);
    assert_fails(lt_client_call(c, "x", 1, 0.05, &answer), LT_E_COMM,
                 "cannot connect within the timeout");
    lt_client_close(&c);
    c = connect_to("ipc:///nowhere/socket", NULL, true);
    assert_fails(lt_client_call(c, "x", 1, 0.05, &answer), LT_E_COMM,
                 "ipc:///nowhere/socket: cannot connect within the timeout: No such file");
    lt_client_close(&c);
    atomic_store(&release, false);
    assert_ok(lt_service_open(
        &s, &(lt_service_config){.address = "inproc://slow", .handler = wait_for_release}));
    c = connect_to("inproc://slow", NULL, true);
    assert_fails(lt_client_call(c, "x", 1, 0.2, &answer), LT_E_COMM,
                 "no response within the timeout");
    atomic_store(&release, true);
    assert_ok(lt_client_call(c, "x", 1, SECONDS, &answer)); /* the late answer is not this one's */
    lt_response_free(&answer);
    lt_client_close(&c);
    lt_service_close(&s);
}

static void a_client_waits_for_its_service(void **state)
{
    (void)state;
    char address[64];
    lt_service *s = serve("tcp://127.0.0.1:0", NULL);
    snprintf(address, sizeof address, "%s", lt_service_address(s));
    lt_client *c = connect_to(address, NULL, false);
    check_call(c, 1);
    lt_service_close(&s);
    s = serve(address, NULL); /* the same port again */
    check_call(c, 2);
    lt_client_close(&c);
    lt_service_close(&s);
}

/* Listens, takes connections and hangs up after each request that it read: 16 bytes of a header and 10 more. */
typedef struct impostor {
    int socket, port;
    atomic_int requests;
} impostor;

static void *hang_up(void *context)
{
    impostor *i = context;
    enum { REQUEST = 26 };
    unsigned char bytes[256];
    for (;;) {
        const int fd = accept(i->socket, NULL, NULL);
        if (fd < 0)
            return NULL;
        size_t got = 0;
        for (ssize_t n = 0; got < REQUEST && (n = read(fd, bytes, sizeof bytes)) > 0;)
            got += (size_t)n;
        if (got >= REQUEST)
            atomic_fetch_add(&i->requests, 1);
        close(fd);
    }
}

static void pretend(impostor *i, pthread_t *thread)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    memset(i, 0, sizeof *i);
    i->socket = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(i->socket, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(i->socket, 5), 0);
    assert_int_equal(getsockname(i->socket, (struct sockaddr *)&address, &bytes), 0);
    i->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(thread, NULL, hang_up, i), 0);
}

static void check_broken(bool repeat)
{
    impostor i;
    pthread_t thread;
    lt_response answer = {0};
    char address[64];
    pretend(&i, &thread);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", i.port);
    lt_client *c = connect_to(address, NULL, repeat);
    assert_status(lt_client_call(c, "0123456789", 10, repeat ? 1 : SECONDS, &answer), LT_E_COMM);
    if (!repeat && !strstr(lt_error_message(), "the connection broke"))
        fail_msg("%s", lt_error_message());
    lt_client_close(&c);
    shutdown(i.socket, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(i.socket);
    if (repeat)
        assert_true(atomic_load(&i.requests) > 1);
    else
        assert_int_equal(atomic_load(&i.requests), 1);
}

static void a_broken_connection(void **state)
{
    (void)state;
    check_broken(false); /* sent once, and the message reports it */
    check_broken(true);
}

enum { TURNS = 2 };
static atomic_int inside, most_inside;

static lt_status count_inside(void *context, const void *request, size_t bytes,
                              lt_response_buffer *reply)
{
    (void)context;
    (void)request;
    (void)bytes;
    (void)reply;
    const int now = atomic_fetch_add(&inside, 1) + 1;
    for (int most = atomic_load(&most_inside);
         now > most && !atomic_compare_exchange_weak(&most_inside, &most, now);) {
    }
    usleep(2000);
    atomic_fetch_sub(&inside, 1);
    return LT_OK;
}

static void *call_ten_times(void *context)
{
    for (int i = 0; i < 10; i++) {
        lt_response answer = {0};
        assert_ok(lt_client_call(context, "", 0, SECONDS, &answer));
        lt_response_free(&answer);
    }
    return NULL;
}

static void as_many_handlers_as_threads(void **state)
{
    enum { CALLERS = 8 };
    pthread_t thread[CALLERS];
    lt_service *s = NULL;
    (void)state;
    assert_ok(lt_service_open(&s, &(lt_service_config){.address = "inproc://turns",
                                                       .handler = count_inside,
                                                       .threads = TURNS}));
    lt_client *c = connect_to("inproc://turns", NULL, false);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, call_ten_times, c), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&most_inside), TURNS);
    lt_client_close(&c);
    lt_service_close(&s);
}

static atomic_int calls_inside;
static atomic_bool may_end;

static lt_status wait_inside(void *context, const void *request, size_t bytes,
                             lt_response_buffer *reply)
{
    (void)context;
    (void)request;
    (void)bytes;
    (void)reply;
    atomic_fetch_add(&calls_inside, 1);
    while (!atomic_load(&may_end))
        usleep(1000);
    return LT_OK;
}

static void *call_once(void *context)
{
    lt_response answer = {0};
    (void)!lt_client_call(context, "", 0, SECONDS, &answer);
    lt_response_free(&answer);
    return NULL;
}

static void *close_service(void *context)
{
    lt_service_close(context);
    return NULL;
}

/* The second call waits for the only thread when the service closes. */
static void a_call_that_waits_is_not_handled_when_the_service_closes(void **state)
{
    char path[TEMP_PATH + 16];
    pthread_t thread[3];
    lt_service *s = NULL;
    lt_client *c[2];
    (void)state;
    snprintf(path, sizeof path, "ipc://%s/closing", folder);
    assert_ok(lt_service_open(
        &s, &(lt_service_config){.address = path, .handler = wait_inside, .threads = 1}));
    for (int i = 0; i < 2; i++) {
        c[i] = connect_to(path, NULL, false);
        assert_int_equal(pthread_create(&thread[i], NULL, call_once, c[i]), 0);
        while (!atomic_load(&calls_inside))
            usleep(1000);
    }
    usleep(50000); /* until the second waits */
    assert_int_equal(pthread_create(&thread[2], NULL, close_service, &s), 0);
    usleep(50000); /* until it closes */
    atomic_store(&may_end, true);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&calls_inside), 1);
    for (int i = 0; i < 2; i++)
        lt_client_close(&c[i]);
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void nothing_stays_open(void **state)
{
    int before = 0;
    (void)state;
    for (int i = 0; i < 30; i++) {
        lt_service *s = serve("tcp://127.0.0.1:0", i % 2 ? "the right secret" : NULL);
        lt_client *c = connect_to(lt_service_address(s), i % 2 ? "the right secret" : NULL, false);
        check_call(c, 1);
        lt_client_close(&c);
        lt_service_close(&s);
        if (i == 2)
            before = descriptors();
    }
    for (int i = 0; i < SECONDS * 100 && descriptors() > before; i++)
        usleep(10000);
    assert_true(descriptors() <= before);
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
        {"bytes come back, by every kind of address", bytes_come_back, NULL, NULL, NULL},
        {"several clients with several threads each, with a secret", callers_at_once, NULL, NULL,
         NULL},
        {"a handler's status and message come back", errors_come_back, NULL, NULL, NULL},
        {"addresses that are refused", addresses_that_are_refused, NULL, NULL, NULL},
        {"a port in use is an error, port 0 a free one", a_port_in_use, NULL, NULL, NULL},
        {"only who knows the secret reaches the handler", secrets, NULL, NULL, NULL},
        {"beyond loopback with a secret", beyond_loopback_with_a_secret, NULL, NULL, NULL},
        {"a call has a deadline, connected or not", deadlines, NULL, NULL, NULL},
        {"a service goes and comes back at its port", a_client_waits_for_its_service, NULL, NULL,
         NULL},
        {"a broken connection is an error, or the call is sent again", a_broken_connection, NULL,
         NULL, NULL},
        {"as many handlers at once as threads", as_many_handlers_as_threads, NULL, NULL, NULL},
        {"a call that waits is not handled when the service closes",
         a_call_that_waits_is_not_handled_when_the_service_closes, NULL, NULL, NULL},
        {"no descriptor is left open", nothing_stays_open, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(rows, make, clean);
}
