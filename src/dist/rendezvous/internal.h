/* Private declarations of the rendezvous: its struct and the handshake. */
#ifndef LT_DIST_RENDEZVOUS_INTERNAL_H
#define LT_DIST_RENDEZVOUS_INTERNAL_H

#include "base/token.h"
#include "dist/rendezvous/socket.h"

typedef struct lt_rendezvous {
    int rank, size, listener; /* listener: socket that accepts other ranks; -1 if absent */
    bool aborted;
    double timeout;
    char token[LT_TOKEN_BYTES];
    const char *
        token_file; /* file with the token; NULL if unused or once joining has ended, when rank 0 removes it */
    int socket[]; /* [size] on rank 0 to each rank, on the others to rank 0 only; else -1 */
} lt_rendezvous;

/* Rank 0 accepts all others; another rank connects to rank 0. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_rendezvous_accept_ranks(lt_rendezvous *r);
LT_MUST_CHECK lt_status lt_rendezvous_connect(lt_rendezvous *r, const char *address, int port);

/* First message of each side of a connection. */
typedef struct lt_hello {
    int32_t rank, size;
    char version[24];
    char nonce[LT_TOKEN_NONCE + 3]; /* challenge to the other side */
    char proof[LT_TOKEN_PROOF + 3]; /* response to the other side's challenge */
} lt_hello;

/* Computes the proof that hello must contain as response to challenge. */
void lt_hello_prove(const lt_hello *hello, const char *token, const char *challenge,
                    char proof[LT_TOKEN_PROOF]);
/* Fills hello with the response to challenge and a random hello->nonce. */
LT_MUST_CHECK lt_status lt_hello_make(lt_hello *hello, const lt_rendezvous *r,
                                      const char *challenge);
/* Returns true if the sender of hello has the token; terminates the texts of hello. */
bool lt_hello_is_proven(lt_hello *hello, const lt_rendezvous *r, const char *challenge);
/* Checks a rank's hello against rank 0's. Errors: LT_E_COMM (version, size or rank do not match). */
LT_MUST_CHECK lt_status lt_hello_check(const lt_hello *rank, const lt_hello *rank_0);

#endif
