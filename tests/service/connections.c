/* Connections of a service, which are pairs of sockets: deadlines, which are dropped, and closing. */

#include "exchange.h"
#include "service/challenge_response.h"
#include "service/connection.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* Adds one end of a pair of sockets; returns the other. */
static int add_pair(lt_connections *all)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    lt_connections_add(all, ends[1]);
    return ends[0];
}

/* A HELLO does not give it more time. */
static void one_deadline(void **state)
{
    static const double allowed = 0.2;
    lt_connections all = {.handler = increment, .secret = SECRET, .max_bytes = 100, .threads = 1};
    lt_stream s = {0};
    lt_frame back;
    char nonce[LT_TOKEN_NONCE], byte;
    (void)state;
    lt_connections_init(&all);
    all.handshake_seconds = allowed;
    const double begin = lt_clock_seconds();
    s.fd = add_pair(&all);
    assert_ok(lt_token_draw(nonce));
    if (exchange(&s, LT_FRAME_HELLO, nonce, sizeof nonce, &back))
        assert_true(recv(s.fd, &byte, 1, 0) <= 0);
    assert_true(lt_clock_seconds() - begin >= allowed);
    lt_connections_close(&all);
    close(s.fd);
}

/* Returns false if the handshake itself took longer than allowed. */
static bool call_after(double allowed)
{
    lt_connections all = {.handler = increment, .secret = SECRET, .max_bytes = 100, .threads = 1};
    lt_stream s = {0};
    lt_nonces n;
    lt_frame back;
    char proof[LT_TOKEN_PROOF];
    lt_connections_init(&all);
    all.handshake_seconds = allowed;
    s.fd = add_pair(&all);
    assert_ok(lt_token_draw(n.client));
    bool admitted = exchange(&s, LT_FRAME_HELLO, n.client, sizeof n.client, &back);
    if (admitted) {
        memcpy(n.service, back.data, sizeof n.service);
        lt_proof_make(proof, SECRET, &n, LT_PROOF_CLIENT);
        admitted = exchange(&s, LT_FRAME_PROOF, proof, sizeof proof, &back);
    }
    if (admitted) {
        struct pollfd closed = {.fd = s.fd, .events = POLLIN};
        assert_int_equal(poll(&closed, 1, (int)(1000 * allowed) + 1), 0);
        assert_true(exchange(&s, LT_FRAME_CALL, "a", 1, &back));
        assert_int_equal(back.kind, LT_FRAME_RESULT);
    }
    lt_connections_close(&all);
    close(s.fd);
    return admitted;
}

static void a_known_caller_has_no_deadline(void **state)
{
    (void)state;
    for (double allowed = 0.1; !call_after(allowed); allowed *= 2) {
    }
}

/* Also while the thread of the first has not noticed that it is dropped. */
static void each_stranger_is_dropped_once(void **state)
{
    lt_connections all = {.handler = increment, .secret = SECRET, .max_bytes = 100, .threads = 1};
    int fd[3];
    char byte;
    (void)state;
    lt_connections_init(&all);
    for (int i = 0; i < 3; i++)
        fd[i] = add_pair(&all);
    for (int i = 0; i < 2; i++)
        lt_connections_drop_oldest(&all, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(recv(fd[i], &byte, 1, 0), 0);
    assert_true(recv(fd[2], &byte, 1, MSG_DONTWAIT) < 0);
    lt_connections_close(&all);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

static void *close_connections(void *context)
{
    lt_connections_close(context);
    return NULL;
}

/* Bytes of an answer that fits into no socket's buffer are read after closing has begun. */
static void an_answer_in_flight_arrives_when_the_service_closes(void **state)
{
    enum { LARGE = 4 << 20 };
    static const char call[] = "LTS2\1\0\0\0\0\0\0\0\0\0\0";
    static char bytes[1 << 16];
    size_t extra = LARGE, got = 0;
    lt_connections all = {
        .handler = increment, .context = &extra, .max_bytes = LARGE, .threads = 1};
    pthread_t closing;
    (void)state;
    lt_connections_init(&all);
    atomic_store(&handled, 0);
    const int fd = add_pair(&all);
    assert_int_equal(send(fd, call, sizeof call, MSG_NOSIGNAL), sizeof call);
    while (!atomic_load(&handled))
        usleep(1000);
    assert_int_equal(pthread_create(&closing, NULL, close_connections, &all), 0);
    while (send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) /* until it reads no more */
        usleep(1000);
    for (ssize_t part; (part = read(fd, bytes, sizeof bytes)) > 0;)
        got += (size_t)part;
    assert_int_equal(got, sizeof call + LARGE);
    pthread_join(closing, NULL);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_deadline),
        cmocka_unit_test(a_known_caller_has_no_deadline),
        cmocka_unit_test(each_stranger_is_dropped_once),
        cmocka_unit_test(an_answer_in_flight_arrives_when_the_service_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
