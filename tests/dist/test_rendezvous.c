/* TCP rendezvous: joining, data and aborts. */

#include "base/clock.h"
#include "dist/nccl/nccl.h"
#include "dist/rendezvous/internal.h"
#include "dist/rendezvous/rendezvous.h"
#include "near.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LONG = 300000 };

typedef struct player {
    lt_rendezvous_config config;
    lt_rendezvous *rendezvous;
    lt_status status;
    char why[512];
    bool leaves; /* closes once joined, as rank 0 waits up to 1 s for ranks to read its abort */
    pthread_t thread;
} player;

static player players[RANKS];

static void *join(void *context)
{
    player *p = context;
    p->status = lt_rendezvous_join(&p->rendezvous, &p->config);
    snprintf(p->why, sizeof p->why, "%s", lt_error_message());
    if (p->leaves)
        lt_rendezvous_close(&p->rendezvous);
    return NULL;
}

static int listen_on(int size, double patience)
{
    int port = 0;
    memset(players, 0, sizeof players);
    for (int r = 0; r < size; r++)
        players[r].config = (lt_rendezvous_config){
            .rank = r, .size = size, .address = "127.0.0.1", .timeout = patience};
    assert_ok(lt_rendezvous_listen(&players[0].rendezvous, &players[0].config, &port));
    for (int r = 0; r < size; r++)
        players[r].config.port = port;
    return port;
}

/* The ranks from first on. */
static void join_all(int first, int size)
{
    for (int r = first; r < size; r++)
        assert_int_equal(pthread_create(&players[r].thread, NULL, join, &players[r]), 0);
    for (int r = first; r < size; r++)
        pthread_join(players[r].thread, NULL);
}

static void open_all(int size)
{
    listen_on(size, 20);
    join_all(0, size);
    for (int r = 0; r < size; r++)
        if (players[r].status)
            fail_msg("rank %d: %s", r, players[r].why);
}

static void close_all(int size)
{
    for (int r = 0; r < size; r++)
        lt_rendezvous_close(&players[r].rendezvous);
}

static int all[RANKS][RANKS];
static char text[RANKS][LONG];

static void *exchange(void *context)
{
    player *p = context;
    const int rank = p->config.rank, mine = 10 * rank;
    memset(text[rank], rank ? 'x' : 'y', LONG);
    p->status = lt_rendezvous_allgather(p->rendezvous, &mine, all[rank], sizeof mine);
    if (!p->status)
        p->status = lt_rendezvous_broadcast(p->rendezvous, text[rank], LONG);
    return NULL;
}

static void data_reaches_all_ranks(void **state)
{
    (void)state;
    open_all(RANKS);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&players[r].thread, NULL, exchange, &players[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        pthread_join(players[r].thread, NULL);
        assert_int_equal(players[r].status, LT_OK);
    }
    for (int r = 0; r < RANKS; r++) {
        for (int q = 0; q < RANKS; q++)
            assert_int_equal(all[r][q], 10 * q);
        assert_memory_equal(text[r], text[0], LONG);
        assert_int_equal(text[r][LONG - 1], 'y');
    }
    close_all(RANKS);
}

/* Polls until an end is received: data on a socket takes a moment. */
static void wait_for_end(int rank, char *why, size_t bytes)
{
    for (int i = 0; i < 200000; i++)
        if (lt_rendezvous_poll_abort(players[rank].rendezvous, why, bytes))
            return;
    fail_msg("rank %d received nothing", rank);
}

static void an_abort_is_forwarded(void **state)
{
    char why[512];
    (void)state;
    open_all(3);
    for (int r = 0; r < 3; r++)
        assert_false(lt_rendezvous_poll_abort(players[r].rendezvous, why, sizeof why));
    lt_rendezvous_abort(players[1].rendezvous, "rank 1 has had enough");
    wait_for_end(0, why, sizeof why);
    assert_string_equal(why, "rank 1 has had enough");
    wait_for_end(2, why, sizeof why);
    assert_string_equal(why, "rank 1 has had enough");
    close_all(3);
}

static void a_rank_that_dies_is_named(void **state)
{
    char why[512];
    (void)state;
    open_all(3);
    lt_rendezvous_close(&players[2].rendezvous);
    wait_for_end(0, why, sizeof why);
    assert_non_null(strstr(why, "rank 2: closed the connection"));
    wait_for_end(1, why, sizeof why);
    assert_non_null(strstr(why, "rank 2: closed the connection"));
    close_all(3);
    open_all(2);
    assert_ok(lt_socket_send(players[1].rendezvous->socket[0], LT_SOCKET_DATA, NULL, 0,
                             lt_clock_seconds() + 20));
    wait_for_end(0, why, sizeof why);
    assert_string_equal(why, "comm: rank 1: sends an unexpected message of kind 2");
    close_all(2);
}

static void an_orderly_close_is_no_abort(void **state)
{
    char why[512];
    (void)state;
    open_all(3);
    for (int r = 0; r < 3; r++) {
        lt_rendezvous_leave(players[r].rendezvous);
        lt_rendezvous_close(&players[r].rendezvous);
        for (int q = r + 1; q < 3; q++)
            for (int i = 0; i < 100; i++)
                assert_false(lt_rendezvous_poll_abort(players[q].rendezvous, why, sizeof why));
    }
}

static void a_missing_rank_is_named(void **state)
{
    (void)state;
    listen_on(4, 0.2);
    players[2].config.rank = 1;
    players[2].leaves = true;
    players[1] = players[2]; /* ranks 2 and 3 do not join */
    join_all(0, 2);
    assert_int_equal(players[0].status, LT_E_COMM);
    assert_non_null(strstr(players[0].why, "these ranks have not joined: 2, 3"));
    close_all(4);
}

static void a_missing_rank_0_is_named(void **state)
{
    (void)state;
    const int port = listen_on(2, 0.2);
    lt_rendezvous_close(&players[0].rendezvous);
    join_all(1, 2);
    assert_int_equal(players[1].status, LT_E_COMM);
    char want[64];
    snprintf(want, sizeof want, "rank 0 at 127.0.0.1, port %d", port);
    assert_non_null(strstr(players[1].why, want));
}

/* Three ranks, of which the last claims to be `rank` of `size`. Returns true if rank 0's error contains `want`, retrying
 * with longer timeouts for busy machines. */
static bool join_with(int rank, int size, const char *want)
{
    bool said = false;
    for (double patience = 0.3; patience < 30 && !said; patience *= 8) {
        listen_on(3, patience);
        players[1].leaves = players[2].leaves = true;
        players[2].config.rank = rank;
        players[2].config.size = size;
        join_all(0, 3);
        said = strstr(players[0].why, want);
        close_all(3);
    }
    return said;
}

static void mismatched_groups_are_named(void **state)
{
    (void)state;
    assert_true(join_with(2, 5, "rank 2 expects 5 ranks, rank 0 expects 3"));
    assert_non_null(strstr(players[2].why, "rank 2 expects 5 ranks, rank 0 expects 3"));
    assert_true(join_with(1, 3, "two processes claim to be rank 1"));
}

static void a_taken_port_is_named(void **state)
{
    lt_rendezvous *second = NULL;
    (void)state;
    int port = listen_on(2, 1);
    const lt_rendezvous_config c = players[0].config;
    assert_status(lt_rendezvous_listen(&second, &c, &port), LT_E_COMM);
    assert_non_null(strstr(lt_error_message(), "cannot listen on 127.0.0.1"));
    const lt_rendezvous_config nowhere = {.size = 2, .address = "127.0.0.1/8", .timeout = 1};
    assert_fails(lt_rendezvous_listen(&second, &nowhere, &port), LT_E_COMM,
                 "comm: address 127.0.0.1/8 of rank 0: ");
    close_all(2);
}

/* torchrun's variables, and words of the expected error. */
typedef struct variables {
    const char *size, *rank, *address, *port, *words;
} variables;

static void set(const variables *v)
{
    const char *name[] = {"WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"};
    const char *value[] = {v->size, v->rank, v->address, v->port};
    for (int i = 0; i < 4; i++)
        assert_int_equal(value[i] ? setenv(name[i], value[i], 1) : unsetenv(name[i]), 0);
}

static void wrong_variables_are_named(void **state)
{
    static const variables rows[] = {
        {"0", "0", "127.0.0.1", "2", "WORLD_SIZE is '0', want 1 to"},
        {"x", "0", "127.0.0.1", "2", "WORLD_SIZE is 'x'"},
        {"2", NULL, "127.0.0.1", "2", "RANK is '', want 0 to 1"},
        {"2", "2", "127.0.0.1", "2", "RANK is '2', want 0 to 1"},
        {"2", "-1", "127.0.0.1", "2", "RANK is '-1'"},
        {"2", "1", NULL, "2", "MASTER_ADDR is not set"},
        {"2", "1", "127.0.0.1", NULL, "MASTER_PORT is ''"},
        {"2", "1", "127.0.0.1", "70000", "MASTER_PORT is '70000'"},
        {"2", "1", "127.0.0.1", "80 ", "MASTER_PORT is '80 '"},
    };
    lt_nccl_start start;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        set(&rows[i]);
        assert_status(lt_nccl_find_ranks(&start, lt_comm_open), LT_E_ARG);
        if (!strstr(lt_error_message(), rows[i].words))
            fail_msg("'%s', want '%s'", lt_error_message(), rows[i].words);
    }
    set(&(variables){"1", "0", NULL, NULL, NULL});
    assert_ok(lt_nccl_find_ranks(&start, lt_comm_open));
    assert_int_equal(start.size, 1);
    assert_null(start.rendezvous);
    set(&(variables){0});
}

/* A rank of three processes; rank 0 starts last. */
static int find_as(int rank, int port)
{
    char number[16], text_port[16];
    lt_nccl_start start = {0};
    int sum = 0, of[3], mine = 1 << rank;
    snprintf(number, sizeof number, "%d", rank);
    snprintf(text_port, sizeof text_port, "%d", port);
    set(&(variables){"3", number, "localhost", text_port, NULL});
    if (lt_nccl_find_ranks(&start, lt_comm_open)
        || lt_rendezvous_allgather(start.rendezvous, &mine, of, sizeof mine))
        return 1;
    for (int r = 0; r < 3; r++)
        sum += of[r];
    lt_rendezvous_leave(start.rendezvous);
    lt_rendezvous_close(&start.rendezvous);
    return sum != 7 || start.rank != rank || start.size != 3;
}

static void processes_of_torchrun_join(void **state)
{
    pid_t child[3];
    (void)state;
    const int port = listen_on(2, 1); /* finds a free port */
    lt_rendezvous_close(&players[0].rendezvous);
    for (int r = 2; r >= 0; r--) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (!child[r])
            _exit(find_as(r, port));
    }
    for (int r = 0; r < 3; r++) {
        int status = -1;
        assert_int_equal(waitpid(child[r], &status, 0), child[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_reaches_all_ranks),
        cmocka_unit_test(an_abort_is_forwarded),
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(an_orderly_close_is_no_abort),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(a_missing_rank_0_is_named),
        cmocka_unit_test(mismatched_groups_are_named),

        cmocka_unit_test(a_taken_port_is_named),
        cmocka_unit_test(wrong_variables_are_named),
        cmocka_unit_test(processes_of_torchrun_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
