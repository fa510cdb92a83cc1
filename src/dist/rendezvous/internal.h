/* Inside of the rendezvous: its struct, and the handshake of two ranks. */
#ifndef LT_DIST_RENDEZVOUS_INTERNAL_H
#define LT_DIST_RENDEZVOUS_INTERNAL_H

#include "base/token.h"
#include "dist/rendezvous/socket.h"

typedef struct lt_rendezvous {
    int rank, size, listener; /* -1: none */
    bool aborted;
    double timeout;
    char token[LT_TOKEN_BYTES];
    const char *token_file; /* until all have joined or it failed; on rank 0 removed then */
    int socket[];           /* by rank: on rank 0 to each, on the others to rank 0; -1: none */
} lt_rendezvous;

/* Rank 0, then the others. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_rendezvous_accept(lt_rendezvous *r);
LT_MUST_CHECK lt_status lt_rendezvous_connect(lt_rendezvous *r, const char *address, int port);

/* The first message of each side: its rank, the size of its group, its challenge and its proof. */
typedef struct lt_hello {
    int32_t rank, size;
    char version[24];
    char nonce[LT_TOKEN_NONCE + 3]; /* its challenge to the other side */
    char proof[LT_TOKEN_PROOF + 3]; /* its answer to the other side's challenge */
} lt_hello;

/* Writes what hello->proof must be as the answer to challenge. */
void lt_hello_prove(const lt_hello *hello, const char *token, const char *challenge,
                    char proof[LT_TOKEN_PROOF]);
/* Answers challenge, and draws its own, hello->nonce. */
LT_MUST_CHECK lt_status lt_hello_make(lt_hello *hello, const lt_rendezvous *r,
                                      const char *challenge);
/* Whether its sender knows the token; terminates its texts. */
bool lt_hello_is_proven(lt_hello *hello, const lt_rendezvous *r, const char *challenge);
/* LT_E_COMM: version, size or rank do not fit rank 0's. */
LT_MUST_CHECK lt_status lt_hello_check(const lt_hello *rank, const lt_hello *rank_0);

#endif
