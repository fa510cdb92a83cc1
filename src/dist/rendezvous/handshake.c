/* Handshake of two ranks, and a rank's connection to rank 0. Another process may listen at that address: after a failure
 * before rank 0 has proven the token, the rank retries until its timeout. */

#include "base/clock.h"
#include "dist/rendezvous/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

void lt_hello_prove(const lt_hello *hello, const char *token, const char *challenge,
                    char proof[LT_TOKEN_PROOF])
{
    char text[128];
    snprintf(text, sizeof text, "rank %d of %d, version %s, asking %s", (int)hello->rank,
             (int)hello->size, hello->version, hello->nonce);
    lt_token_prove(proof, token, challenge, text);
}

lt_status lt_hello_make(lt_hello *hello, const lt_rendezvous *r, const char *challenge)
{
    *hello = (lt_hello){.rank = r->rank, .size = r->size};
    snprintf(hello->version, sizeof hello->version, "%s", LT_VERSION);
    LT_TRY(lt_token_draw(hello->nonce));
    lt_hello_prove(hello, r->token, challenge, hello->proof);
    return LT_OK;
}

bool lt_hello_is_proven(lt_hello *hello, const lt_rendezvous *r, const char *challenge)
{
    char proof[LT_TOKEN_PROOF];
    hello->version[sizeof hello->version - 1] = 0;
    hello->nonce[sizeof hello->nonce - 1] = 0;
    if (!lt_token_is_nonce(hello->nonce))
        return false;
    lt_hello_prove(hello, r->token, challenge, proof);
    return lt_token_proofs_equal(hello->proof, proof);
}

lt_status lt_hello_check(const lt_hello *rank, const lt_hello *rank_0)
{
    if (strcmp(rank->version, rank_0->version) != 0)
        return lt_fail(LT_E_COMM, "comm: rank %d has version %s, rank 0 has %s", (int)rank->rank,
                       rank->version, rank_0->version);
    if (rank->size != rank_0->size)
        return lt_fail(LT_E_COMM, "comm: rank %d expects %d ranks, rank 0 expects %d",
                       (int)rank->rank, (int)rank->size, (int)rank_0->size);
    if (rank->rank < 1 || rank->rank >= rank_0->size)
        return lt_fail(LT_E_COMM, "comm: rank %d, want 1 to %d", (int)rank->rank,
                       (int)rank_0->size - 1);
    return LT_OK;
}

enum { RETRY_MS = 50, MOST_RETRY_MS = 1000 };

/* Exchanges challenges and proofs. *final: rank 0 of this job answered, so a failure must not be retried. */
static lt_status shake_hands(lt_rendezvous *r, double deadline, bool *final)
{
    char challenge[LT_TOKEN_NONCE];
    lt_hello own, rank_0;
    const int fd = r->socket[0];
    LT_TRY(lt_socket_recv(fd, LT_SOCKET_CHALLENGE, challenge, sizeof challenge, deadline));
    /* Rank 0 writes its file before it sends a challenge, so the file is not an older run's. */
    if (r->token_file)
        LT_TRY(lt_token_read(r->token, r->token_file));
    if (!lt_token_is_nonce(challenge))
        return lt_fail(LT_E_COMM, "sends an invalid challenge");
    LT_TRY(lt_hello_make(&own, r, challenge));
    LT_TRY(lt_socket_send(fd, LT_SOCKET_HELLO, &own, sizeof own, deadline));
    LT_TRY(lt_socket_recv(fd, LT_SOCKET_HELLO, &rank_0, sizeof rank_0, deadline));
    if (!lt_hello_is_proven(&rank_0, r, own.nonce) || rank_0.rank)
        return lt_fail(LT_E_COMM, "does not have this job's token");
    *final = true;
    return lt_hello_check(&own, &rank_0);
}

static lt_status try_to_connect(lt_rendezvous *r, const struct addrinfo *all, double deadline,
                                bool *final)
{
    r->socket[0] = lt_socket_connect(all);
    if (r->socket[0] < 0)
        return lt_fail(LT_E_COMM, "%s", strerror(errno));
    lt_socket_set_options(r->socket[0]);
    return shake_hands(r, deadline, final);
}

lt_status lt_rendezvous_connect(lt_rendezvous *r, const char *address, int port)
{
    const double deadline = lt_clock_seconds() + r->timeout;
    struct addrinfo *all;
    char why[LT_SOCKET_TEXT] = "";
    bool final = false;
    lt_status st;
    LT_TRY(
        lt_socket_resolve(address, port, false, &all)); /* rank 0 may start later than this one */
    for (int wait = RETRY_MS; (st = try_to_connect(r, all, deadline, &final)) && !final;
         wait *= 2) {
        const double left = 1e3 * (deadline - lt_clock_seconds());
        if (left > 0 || !*why) /* the last attempt may fail for lack of time only */
            snprintf(why, sizeof why, "%s", lt_error_message());
        lt_socket_close(&r->socket[0]);
        if (left <= 0)
            break;
        wait = wait < MOST_RETRY_MS ? wait : MOST_RETRY_MS;
        poll(NULL, 0, left < wait ? (int)left + 1 : wait);
    }
    freeaddrinfo(all);
    if (!st || final)
        return st;
    return lt_fail(LT_E_COMM,
                   "comm: rank %d of %d cannot reach rank 0 at %s, port %d, within %g s: %s",
                   r->rank, r->size, address, port, r->timeout, why);
}
