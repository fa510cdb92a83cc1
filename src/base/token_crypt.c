/* Proofs by crypt(): SHA-256 with the nonce as salt, of words and token (Drepper, "Unix crypt using
 * SHA-256 and SHA-512", 2008). */

#include "base/token.h"

#include "lather/ext/fail.h"

#include <crypt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lt_status lt_token_prove(char out[LT_TOKEN_PROOF], const char *token, const char *nonce,
                         const char *words)
{
    char key[2 * LT_TOKEN_BYTES - 1], setting[64]; /* crypt() takes 511 bytes */
    snprintf(key, sizeof key, "%s, token %s", words, token);
    snprintf(setting, sizeof setting, "$5$rounds=1000$%s$", nonce); /* the fewest it takes */
    struct crypt_data *data = calloc(1, sizeof *data);              /* 32 kB */
    /* Not crypt_r(), which ASan has one of its own for: the linker then leaves libcrypt out. */
    const char *hash = data ? crypt_rn(key, setting, data, sizeof *data) : NULL;
    if (hash && *hash == '$')
        snprintf(out, LT_TOKEN_PROOF, "%s", hash);
    lt_status st = hash && *hash == '$'
                       ? LT_OK
                       : lt_fail(LT_E_UNSUPPORTED, "comm: crypt() does not know SHA-256");
    free(data);
    return st;
}
