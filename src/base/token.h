/* A secret shared by a job's ranks, and challenge-response authentication by it: each side answers the other's nonce
 * with its HMAC keyed by the token, so that the token itself is never sent. */
#ifndef LT_BASE_TOKEN_H
#define LT_BASE_TOKEN_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LT_TOKEN_BYTES = 256, /* largest size of a token in bytes, with its NUL */
    LT_TOKEN_LEAST = 16,  /* smallest length of a token in bytes, without its NUL */
    LT_TOKEN_NONCE = 17,  /* size of a nonce: 16 characters of 6 bits, with the NUL */
    LT_TOKEN_PROOF = 65,  /* size of a proof: 64 hexadecimal digits, with the NUL */
};

/* Draws 16 random characters. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_token_draw(char out[LT_TOKEN_NONCE]);
/* Returns true if text has the form of a nonce. */
bool lt_token_is_nonce(const char *text);

/* Computes the response to a challenge: HMAC-SHA256 of nonce and words, keyed by the token. */
void lt_token_prove(char out[LT_TOKEN_PROOF], const char *token, const char *nonce,
                    const char *words);
/* Compares a received proof with the expected one in constant time. */
bool lt_token_proofs_equal(const char got[LT_TOKEN_PROOF], const char want[LT_TOKEN_PROOF]);
/* Checks the length of a token; NULL (no token) passes. name: prefix of the message. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_token_check(const char *token, const char *name);

/* Writes a token to a new file readable by this user only; replaces an old file of this user. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_token_write(const char *path, const char *token);
/* Reads the first line of a token file. Errors: LT_E_IO; LT_E_ARG (wrong length, another user's, readable by
 * others). */
LT_MUST_CHECK lt_status lt_token_read(char out[LT_TOKEN_BYTES], const char *path);

#endif
