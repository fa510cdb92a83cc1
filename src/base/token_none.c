/* Stands in for token_crypt.c in a build without libcrypt: the proof has the token itself in it. */

#include "base/token.h"

#include <stdio.h>

lt_status lt_token_prove(char out[LT_TOKEN_PROOF], const char *token, const char *nonce,
                         const char *words)
{
    snprintf(out, LT_TOKEN_PROOF, "%s, %s, token %s", nonce, words, token);
    return LT_OK;
}
