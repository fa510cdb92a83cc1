/* A secret of one job's ranks, and how they prove that they know it: each side answers the other's
 * challenge, a nonce, with an HMAC of it, whose key is the token, so that the token itself is not sent. */
#ifndef LT_BASE_TOKEN_H
#define LT_BASE_TOKEN_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    LT_TOKEN_BYTES = 256, /* of a token, with its NUL */
    LT_TOKEN_LEAST = 16,  /* bytes of a token that is to keep others out, without its NUL */
    LT_TOKEN_NONCE = 17,  /* 16 characters of 6 bits, with the NUL */
    LT_TOKEN_PROOF = 65,  /* 64 hexadecimal digits, with the NUL */
};

/* 16 random characters. Errors: LT_E_IO. */
LT_MUST_CHECK lt_status lt_token_draw(char out[LT_TOKEN_NONCE]);
bool lt_token_is_nonce(const char *text);

/* The proof that the sender of words knows the token: HMAC-SHA256 of nonce and words. */
void lt_token_prove(char out[LT_TOKEN_PROOF], const char *token, const char *nonce,
                    const char *words);
/* Compares a received proof with the right one in a time that depends on neither. */
bool lt_token_is_proof(const char got[LT_TOKEN_PROOF], const char want[LT_TOKEN_PROOF]);
/* Checks the length of a token; NULL (no token) passes. name: for the message. Errors: LT_E_ARG. */
LT_MUST_CHECK lt_status lt_token_check(const char *token, const char *name);

/* A file that only this user can read, new; an old one of the same user is replaced. */
LT_MUST_CHECK lt_status lt_token_write(const char *path, const char *token);
/* Its first line. Errors: those of lt_shared_open() and lt_token_check(); LT_E_ARG: it belongs to another user, or
 * others can read it. */
LT_MUST_CHECK lt_status lt_token_read(char out[LT_TOKEN_BYTES], const char *path);

#endif
