/* Rendezvous with foreign processes: they can neither join nor end nor delay it. */

#include "base/clock.h"
#include "dist/rendezvous/internal.h"
#include "dist/rendezvous/rendezvous.h"
#include "near.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A rank that joins on a thread. */
typedef struct end {
    lt_rendezvous_config config;
    lt_rendezvous *rendezvous;
    lt_status status;
    double seconds, cpu;
    char why[512];
    pthread_t thread;
} end;

static void *join(void *context)
{
    end *e = context;
    e->seconds = -lt_clock_seconds();
    e->cpu = -lt_clock_thread_cpu_seconds();
    e->status = lt_rendezvous_join(&e->rendezvous, &e->config);
    e->seconds += lt_clock_seconds();
    e->cpu += lt_clock_thread_cpu_seconds();
    snprintf(e->why, sizeof e->why, "%s", lt_error_message());
    return NULL;
}

static void start(end *e)
{
    assert_int_equal(pthread_create(&e->thread, NULL, join, e), 0);
}

static void finish(end *e)
{
    pthread_join(e->thread, NULL);
    lt_rendezvous_close(&e->rendezvous);
}

/* Makes rank 0 of two, listening. */
static end rank_0(double patience, const char *token)
{
    end e = {.config = {.size = 2, .address = "127.0.0.1", .timeout = patience, .token = token}};
    assert_ok(lt_rendezvous_listen(&e.rendezvous, &e.config, &e.config.port));
    return e;
}

static end rank_1(const end *zero, double patience, const char *token)
{
    end e = {.config = zero->config};
    e.config.rank = 1;
    e.config.timeout = patience;
    e.config.token = token;
    return e;
}

static void says(const char *text, const char *want)
{
    if (!strstr(text, want))
        fail_msg("'%s', want '%s'", text, want);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            fail_msg("byte %d in '%s'", *c, text);
}

/* Returns -1 if no process listens. */
static int try_to_connect(const end *zero)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)zero->config.port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (!connect(fd, (struct sockaddr *)&a, sizeof a))
        return fd;
    close(fd);
    return -1;
}

static int connect_to(const end *zero)
{
    const int fd = try_to_connect(zero);
    assert_true(fd >= 0);
    return fd;
}

/* Joins as a rank that has the token and sends h; returns when rank 0 has closed the connection. */
static void join_as(const end *zero, lt_hello h)
{
    char rest[512];
    char asked[LT_TOKEN_NONCE];
    const int fd = connect_to(zero);
    assert_ok(lt_socket_recv(fd, LT_SOCKET_CHALLENGE, asked, sizeof asked, lt_clock_seconds() + 5));
    assert_ok(lt_token_draw(h.nonce));
    lt_hello_prove(&h, "secret", asked, h.proof);
    assert_ok(lt_socket_send(fd, LT_SOCKET_HELLO, &h, sizeof h, lt_clock_seconds() + 5));
    while (recv(fd, rest, sizeof rest, 0) > 0) {
    }
    close(fd);
}

enum { SILENT = 18, PACE_MS = 15 }; /* 0.27 s in total */
/* Opens silent connections; returns the seconds that rank 0 takes to fail. */
static double be_silent(void)
{
    int fd[SILENT], opened = 0;
    end zero = rank_0(0.3, NULL);
    start(&zero);
    /* On a busy machine rank 0 may have ended before the last. */
    while (opened < SILENT && (fd[opened] = try_to_connect(&zero)) >= 0) {
        opened++;
        poll(NULL, 0, PACE_MS);
    }
    finish(&zero);
    assert_true(opened > 0);
    assert_int_equal(zero.status, LT_E_COMM);
    says(zero.why, "after 0.3 s these ranks have not joined: 1");
    for (int i = 0; i < opened; i++)
        close(fd[i]);
    return zero.seconds;
}

/* The timeout of a hello is 5 s. On a busy machine 0.3 s may take as long: one of three attempts must not. */
static void silent_peers_do_not_extend_the_timeout(void **state)
{
    (void)state;
    assert_true(be_silent() < 4 || be_silent() < 4 || be_silent() < 4);
}

static void silent_peers_do_not_keep_ranks_out(void **state)
{
    int fd[SILENT];
    (void)state;
    end zero = rank_0(20, NULL), one = rank_1(&zero, 20, NULL);
    for (int i = 0; i < SILENT; i++)
        fd[i] = connect_to(&zero);
    start(&zero);
    start(&one);
    finish(&one);
    finish(&zero);
    assert_int_equal(zero.status, LT_OK);
    assert_int_equal(one.status, LT_OK);
    assert_true(zero.seconds < 4);
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
}

static void invalid_hellos_do_not_end_the_rendezvous(void **state)
{
    static const lt_hello wrong[] = {{.rank = 1, .size = 99, .version = LT_VERSION},
                                     {.rank = 2, .size = 2, .version = LT_VERSION},
                                     {.rank = -1, .size = 2, .version = LT_VERSION},
                                     {.rank = 0, .size = 2, .version = LT_VERSION}};
    (void)state;
    end zero = rank_0(20, "secret"), one = rank_1(&zero, 20, "secret");
    start(&zero);
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        join_as(&zero, wrong[i]);
    start(&one);
    finish(&one);
    finish(&zero);
    assert_int_equal(zero.status, LT_OK);
    assert_int_equal(one.status, LT_OK);
}

/* Checks rank 0's error when only a rank with that hello joins, retrying with longer timeouts for busy machines. */
static void says_of(lt_hello h, const char *want)
{
    end zero;
    for (double patience = 0.3; patience < 30; patience *= 8) {
        zero = rank_0(patience, "secret");
        start(&zero);
        join_as(&zero, h);
        finish(&zero);
        if (strstr(zero.why, want))
            break;
    }
    says(zero.why, want);
}

static void a_mismatched_rank_is_named_after_the_timeout(void **state)
{
    (void)state;
    says_of((lt_hello){.rank = 1, .size = 2, .version = "\x1b[2J\x1b]0;pwn\x07\n\xff\x9b"},
            "rank 1 has version \\x1b[2J\\x1b]0;pwn\\x07\\x0a\\xff\\x9b, rank 0 has ");
    says_of((lt_hello){.rank = 1, .size = 99, .version = LT_VERSION},
            "have not joined: 1; comm: rank 1 expects 99 ranks, rank 0 expects 2");
}

static void a_rank_without_the_token_cannot_join(void **state)
{
    (void)state;
    end zero = rank_0(60, "secret"), other = rank_1(&zero, 0.5, "guess"),
        none = rank_1(&zero, 0.5, NULL), one = rank_1(&zero, 20, "secret");
    start(&zero);
    start(&other);
    start(&none);
    finish(&other);
    finish(&none);
    assert_int_equal(other.status, LT_E_COMM);
    assert_int_equal(none.status, LT_E_COMM);
    says(other.why, "rejected this process");
    start(&one); /* rank 1 can still join */
    finish(&one);
    finish(&zero);
    assert_int_equal(zero.status, LT_OK);
    assert_int_equal(one.status, LT_OK);
}

enum { PROOF, REFLECT, CHALLENGE, KIND, ANSWERS };

/* A listener that accepts any hello and responds with a proof by a different token, or with the same hello; or one whose
 * challenge is invalid, or a message of another kind. */
static void answer_as_rank_0(const end *zero, int how)
{
    char asked[LT_TOKEN_NONCE];
    lt_hello h, own;
    assert_true(lt_socket_wait(zero->rendezvous->listener, POLLIN, lt_clock_seconds() + 20));
    const int fd = accept(zero->rendezvous->listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_ok(lt_token_draw(asked));
    *asked = how == CHALLENGE ? '?' : *asked;
    assert_ok(lt_socket_send(fd, how == KIND ? LT_SOCKET_DATA : LT_SOCKET_CHALLENGE, asked,
                             sizeof asked, lt_clock_seconds() + 20));
    if (how <= REFLECT) {
        assert_ok(lt_socket_recv(fd, LT_SOCKET_HELLO, &h, sizeof h, lt_clock_seconds() + 20));
        assert_ok(lt_hello_make(&own, zero->rendezvous, h.nonce));
        h = how == REFLECT ? h : own;
        assert_ok(lt_socket_send(fd, LT_SOCKET_HELLO, &h, sizeof h, lt_clock_seconds() + 20));
    }
    while (recv(fd, &h, sizeof h, 0) > 0) {
    }
    close(fd);
}

static void a_rank_0_without_the_token_is_rejected(void **state)
{
    static const char *const want[ANSWERS] = {
        [PROOF] = "does not have this job's token",
        [REFLECT] = "does not have this job's token",
        [CHALLENGE] = "sends an invalid challenge",
        [KIND] = "sends a message of kind 2 with 17 bytes, want kind 0 with 17"};
    (void)state;
    for (int how = 0; how < ANSWERS; how++) {
        end zero = rank_0(1, "guess"), one = rank_1(&zero, 0.5, "secret");
        start(&one);
        answer_as_rank_0(&zero, how);
        finish(&one); /* further attempts connect, but nothing answers */
        lt_rendezvous_close(&zero.rendezvous);
        assert_int_equal(one.status, LT_E_COMM);
        says(one.why, "cannot reach rank 0");
        says(one.why, want[how]);
    }
}

/* A proof is valid for one challenge and one content only. */
static void a_proof_cannot_be_replayed(void **state)
{
    char asked[LT_TOKEN_NONCE], other[LT_TOKEN_NONCE];
    (void)state;
    end zero = rank_0(1, "secret");
    lt_hello h;
    assert_ok(lt_token_draw(asked));
    assert_ok(lt_token_draw(other));
    assert_ok(lt_hello_make(&h, zero.rendezvous, asked));
    assert_true(lt_hello_is_proven(&h, zero.rendezvous, asked)); /* control */
    assert_null(strstr(h.proof, "secret"));
    assert_false(lt_hello_is_proven(&h, zero.rendezvous, other));
    assert_false(lt_hello_is_proven(&h, zero.rendezvous, "$6$x"));
    h.rank = 1;
    assert_false(lt_hello_is_proven(&h, zero.rendezvous, asked));
    lt_rendezvous_close(&zero.rendezvous);
}

static void another_version_is_rejected_with_the_reason(void **state)
{
    /* A hello with a different length, as sent by versions before 0.2. */
    struct {
        lt_socket_header header;
        char hello[600];
    } old = {.header = {LT_SOCKET_MAGIC, LT_SOCKET_HELLO, sizeof old.hello}};
    char asked[LT_TOKEN_NONCE], why[LT_SOCKET_TEXT];
    lt_socket_header header;
    (void)state;
    end zero = rank_0(20, NULL), one = rank_1(&zero, 20, NULL);
    start(&zero);
    const int fd = connect_to(&zero);
    const double deadline = lt_clock_seconds() + 20;
    assert_ok(lt_socket_recv(fd, LT_SOCKET_CHALLENGE, asked, sizeof asked, deadline));
    assert_int_equal(send(fd, &old, sizeof old, MSG_NOSIGNAL), sizeof old);
    assert_ok(lt_socket_recv_header(fd, &header, deadline));
    assert_int_equal(header.kind, LT_SOCKET_ABORT);
    assert_ok(lt_socket_recv_abort(fd, why, deadline));
    says(why, "different version of Lather");
    close(fd);
    start(&one);
    finish(&one);
    finish(&zero);
    assert_int_equal(zero.status, LT_OK);
}

static void many_short_connections_are_tolerated(void **state)
{
    enum { CONNECTIONS = 500 };
    (void)state;
    end zero = rank_0(20, NULL), one = rank_1(&zero, 20, NULL);
    start(&zero);
    for (int i = 0; i < CONNECTIONS; i++) {
        const int fd = try_to_connect(&zero);
        if (fd < 0 && i > CONNECTIONS / 2)
            break; /* all ranks have joined */
        assert_true(fd >= 0);
        if (i % 3 == 0)
            (void)!send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
        close(fd);
        if (i == CONNECTIONS / 2)
            start(&one);
    }
    finish(&one);
    finish(&zero);
    assert_int_equal(zero.status, LT_OK);
    assert_int_equal(one.status, LT_OK);
}

static void missing_file_descriptors_are_reported(void **state)
{
    struct rlimit old, few;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    end zero = rank_0(0.2, NULL);
    const int other = connect_to(&zero);
    few = old;
    few.rlim_cur = (rlim_t)other + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    start(&zero);
    finish(&zero);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    close(other);
    says(zero.why, "Too many open files");
    assert_true(zero.cpu < 0.04);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_peers_do_not_extend_the_timeout),
        cmocka_unit_test(silent_peers_do_not_keep_ranks_out),
        cmocka_unit_test(invalid_hellos_do_not_end_the_rendezvous),
        cmocka_unit_test(a_mismatched_rank_is_named_after_the_timeout),
        cmocka_unit_test(a_rank_without_the_token_cannot_join),
        cmocka_unit_test(a_rank_0_without_the_token_is_rejected),
        cmocka_unit_test(a_proof_cannot_be_replayed),
        cmocka_unit_test(another_version_is_rejected_with_the_reason),
        cmocka_unit_test(many_short_connections_are_tolerated),
        cmocka_unit_test(missing_file_descriptors_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
