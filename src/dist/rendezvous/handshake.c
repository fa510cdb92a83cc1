/* What ranks say to each other first. */

#include "dist/rendezvous/internal.h"

#include <stdio.h>
#include <string.h>

lt_status lt_hello_prove(const lt_hello *h, const char *token, const char *asked,
                         char proof[LT_TOKEN_PROOF])
{
    char words[128];
    snprintf(words, sizeof words, "rank %d of %d, version %s, asking %s", (int)h->rank,
             (int)h->size, h->version, h->nonce);
    return lt_token_prove(proof, token, asked, words);
}

lt_status lt_hello_make(lt_hello *h, const lt_star *star, const char *asked)
{
    *h = (lt_hello){.rank = star->rank, .size = star->size};
    snprintf(h->version, sizeof h->version, "%s", LT_VERSION);
    LT_TRY(lt_token_draw(h->nonce));
    return lt_hello_prove(h, star->token, asked, h->proof);
}

bool lt_hello_is_proven(lt_hello *h, const lt_star *star, const char *asked)
{
    char proof[LT_TOKEN_PROOF];
    h->version[sizeof h->version - 1] = 0;
    h->nonce[sizeof h->nonce - 1] = 0;
    h->proof[sizeof h->proof - 1] = 0;
    return lt_token_is_nonce(h->nonce) && !lt_hello_prove(h, star->token, asked, proof)
           && !strcmp(proof, h->proof);
}

bool lt_hello_is_wrong(const lt_hello *rank, const lt_hello *rank_0, char words[LT_WIRE_WORDS])
{
    if (strcmp(rank->version, rank_0->version) != 0)
        snprintf(words, LT_WIRE_WORDS, "comm: rank %d is of version %s, rank 0 of %s",
                 (int)rank->rank, rank->version, rank_0->version);
    else if (rank->size != rank_0->size)
        snprintf(words, LT_WIRE_WORDS, "comm: rank %d is one of %d, rank 0 one of %d",
                 (int)rank->rank, (int)rank->size, (int)rank_0->size);
    else if (rank->rank < 1 || rank->rank >= rank_0->size)
        snprintf(words, LT_WIRE_WORDS, "comm: rank %d of %d", (int)rank->rank, (int)rank_0->size);
    else
        return false;
    return true;
}
