/* A secret of one job's ranks, and how they prove that they know it: each side answers the other's
 * challenge, a nonce, with a hash of nonce and token, so that the token itself is not sent. */
#ifndef LT_BASE_TOKEN_H
#define LT_BASE_TOKEN_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LT_TOKEN_BYTES = 256, /* of a token, with its NUL */
    LT_TOKEN_NONCE = 17,  /* 16 characters of 6 bits: a salt of crypt() */
    LT_TOKEN_PROOF = 512, /* a hash, or without libcrypt all that would be hashed */
};

/* 16 random characters. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_token_draw(char out[LT_TOKEN_NONCE]);
bool lt_token_is_nonce(const char *text);

/* The proof that the sender of words knows the token. Errors: LT_E_UNSUPPORTED. */
LT_MUST_CHECK lt_status lt_token_prove(char out[LT_TOKEN_PROOF], const char *token,
                                       const char *nonce, const char *words);

/* A file that only this user can read, new; an old one of the same user is replaced. */
LT_MUST_CHECK lt_status lt_token_write(const char *path, const char *token);
/* Its first line. Errors: those of lt_shared_open(); LT_E_ARG: it belongs to another user, or others can read it. */
LT_MUST_CHECK lt_status lt_token_read(char out[LT_TOKEN_BYTES], const char *path);

#endif
