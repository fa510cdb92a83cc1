/* Challenges and proofs. */

#include "service/proof.h"

#include "lather/ext/fail.h"

#include <string.h>

static bool equal(const char *a, const char *b)
{
    const size_t bytes = strlen(a);
    unsigned differ = bytes != strlen(b);
    for (size_t i = 0; !differ && i < bytes; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return !differ;
}

lt_status lt_challenge_make(lt_challenge *out, const char *secret, const char *nonce)
{
    memset(out, 0, sizeof *out);
    if (!lt_token_is_nonce(nonce))
        return lt_fail(LT_E_FORMAT, "service: a greeting without a nonce");
    LT_TRY(lt_token_draw(out->nonce));
    return lt_token_prove(out->proof, secret, nonce, LT_PROOF_SERVICE);
}

lt_status lt_proof_check(const char *proof, const char *secret, const char *nonce,
                         const char *words)
{
    char want[LT_TOKEN_PROOF];
    if (!lt_token_is_nonce(nonce))
        return lt_fail(LT_E_COMM, "service: a proof that was not asked for");
    LT_TRY(lt_token_prove(want, secret, nonce, words));
    return equal(want, proof) ? LT_OK : lt_fail(LT_E_COMM, "service: a proof of another secret");
}

lt_status lt_secret_check(const char *secret)
{
    const size_t bytes = secret ? strlen(secret) : 1;
    if (bytes < 1 || bytes >= LT_TOKEN_BYTES)
        return lt_fail(LT_E_ARG, "service: a secret of %zu bytes, want 1 to %d", bytes,
                       LT_TOKEN_BYTES - 1);
    return LT_OK;
}
