/* How the two ends of a connection prove to each other that they know the secret. */
#ifndef LT_SERVICE_PROOF_H
#define LT_SERVICE_PROOF_H

#include "base/token.h"

/* What each side says of itself in its proof, so that a proof cannot be sent back. */
#define LT_PROOF_SERVICE "service"
#define LT_PROOF_CLIENT  "client"

/* Nonce and proof, with a NUL behind each. */
typedef struct lt_challenge {
    char nonce[LT_TOKEN_NONCE];
    char proof[LT_TOKEN_PROOF];
} lt_challenge;

/* The service's answer to a client's nonce, with a nonce of its own. Errors: LT_E_FORMAT, LT_E_IO. */
LT_MUST_CHECK lt_status lt_challenge_make(lt_challenge *out, const char *secret, const char *nonce);
/* Whether proof is that of the side called words for nonce, in a time that does not depend on where it differs.
 * Errors: LT_E_COMM, it is not. */
LT_MUST_CHECK lt_status lt_proof_check(const char *proof, const char *secret, const char *nonce,
                                       const char *words);
/* Checks a secret's length; NULL is none. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_secret_check(const char *secret);

#endif
