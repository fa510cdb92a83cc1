/* Challenge-response: HMAC-SHA256, keyed by the secret, of both nonces and the side's label. */

#include "service/challenge_response.h"

#include <stdio.h>

void lt_proof_make(char out[LT_TOKEN_PROOF], const char *secret, const lt_nonces *nonces,
                   const char *side)
{
    char words[64];
    snprintf(words, sizeof words, "%s, %s of a connection", nonces->client, side);
    lt_token_prove(out, secret, nonces->service, words);
}

bool lt_proof_is_valid(const lt_frame *frame, const char *secret, const lt_nonces *nonces,
                       const char *side)
{
    char want[LT_TOKEN_PROOF];
    lt_proof_make(want, secret, nonces, side);
    return frame->bytes == sizeof want && lt_token_proofs_equal(frame->data, want);
}
