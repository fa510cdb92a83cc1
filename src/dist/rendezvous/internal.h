/* How the ranks of a star meet, and its connections then. */
#ifndef LT_DIST_MEET_H
#define LT_DIST_MEET_H

#include "dist/rendezvous/socket.h"
#include "dist/rendezvous/token.h"

struct lt_star {
    int rank, size, listener; /* -1: none */
    bool told;
    double patience;
    char token[LT_TOKEN_BYTES];
    const char *token_file; /* until all are there or it failed; on rank 0 removed then */
    int link[];             /* by rank: on rank 0 to each, elsewhere to rank 0 alone; -1: none */
};

void lt_star_hang_up(int *link);

/* Rank 0, then the others. Errors: LT_E_COMM. */
LT_MUST_CHECK lt_status lt_star_wait_for_all(lt_star *star);
LT_MUST_CHECK lt_status lt_star_reach(lt_star *star, const lt_star_config *config);

/* What a side says first: its place, its view of the group, and the two halves of the proof. */
typedef struct lt_hello {
    int32_t rank, size;
    char version[24];
    char nonce[LT_TOKEN_NONCE + 3]; /* its challenge to the other side */
    char proof[LT_TOKEN_PROOF];     /* its answer to the other side's challenge */
} lt_hello;

/* What h->proof must be if the challenge was asked. */
LT_MUST_CHECK lt_status lt_hello_prove(const lt_hello *h, const char *token, const char *asked,
                                       char proof[LT_TOKEN_PROOF]);
/* Answers the challenge asked, and draws its own, h->nonce. */
LT_MUST_CHECK lt_status lt_hello_make(lt_hello *h, const lt_star *star, const char *asked);
/* Whether its sender knows the token; terminates its texts. */
bool lt_hello_is_proven(lt_hello *h, const lt_star *star, const char *asked);
/* Whether a rank's hello does not fit rank 0's: words say what. */
bool lt_hello_is_wrong(const lt_hello *rank, const lt_hello *rank_0, char words[LT_WIRE_WORDS]);

#endif
