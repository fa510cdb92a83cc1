/* Divides text into GPT-2's words, the units of byte-pair encoding. */
#ifndef LT_DATA_WORDS_H
#define LT_DATA_WORDS_H

#include <stddef.h>
#include <stdint.h>

typedef enum lt_char_class {
    LT_CHAR_OTHER,
    LT_CHAR_LETTER, /* letters: \p{L} */
    LT_CHAR_NUMBER, /* numbers: \p{N} */
    LT_CHAR_SPACE   /* white space, \s: Unicode's White_Space */
} lt_char_class;

/* Returns the bytes of the first word of a UTF-8 text, which is not empty. */
size_t lt_gpt2_word_bytes(const char *text, size_t bytes);

#endif
