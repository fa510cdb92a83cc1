/* What the kinds of tokenizers share. */
#ifndef LT_DATA_VOCABULARY_H
#define LT_DATA_VOCABULARY_H

#include "lather/ext/fail.h"
#include "lather/tokenizer.h"

#include <stdbool.h>

#define LT_END_OF_TEXT "<|endoftext|>"

typedef struct lt_tokenizer_kind {
    /* Appends the ids of a text. Text of all kinds but "byte" is UTF-8 here. */
    lt_status (*encode)(lt_tokenizer *t, const lt_text_part *text, lt_ids *ids);
    bool any_bytes;               /* text need not be UTF-8 */
    void (*destroy)(void *state); /* NULL: no state */
} lt_tokenizer_kind;

struct lt_tokenizer {
    const lt_tokenizer_kind *kind;
    void *state; /* the kind's */
    char *name;
    int size, end;
    uint64_t hash;
    char *text;    /* of id i: text[first[i] .. first[i + 1] - 1] */
    size_t *first; /* [size + 1] */
    size_t text_capacity, first_capacity;
};

/* Gives the next id its bytes. Errors: LT_E_NOMEM. */
lt_status lt_tokenizer_add(lt_tokenizer *t, const char *text, size_t bytes);

/* Appends an id. Errors: LT_E_NOMEM. */
lt_status lt_ids_add(lt_ids *ids, int32_t id);

/* LT_E_FORMAT, naming the first byte that is not UTF-8. */
lt_status lt_check_utf8(const lt_text_part *text);
const char *lt_text_part_name(const lt_text_part *text);

/* The kinds: they fill t in. argument: of "char:ABC" ABC, of "gpt2:FOLDER" FOLDER. */
lt_status lt_tokenizer_bytes(lt_tokenizer *t);
lt_status lt_tokenizer_chars(lt_tokenizer *t, const char *argument);
lt_status lt_tokenizer_gpt2(lt_tokenizer *t, const char *argument);

/* Characters that occur in texts: a bit for each. */
typedef struct lt_char_set lt_char_set;
lt_status lt_char_set_new(lt_char_set **out);
/* Errors: LT_E_FORMAT: not UTF-8, or U+0000. */
lt_status lt_char_set_add(lt_char_set *set, const lt_text_part *text);
/* "char:" and the characters in order; lt_free() it. NULL: no memory. */
char *lt_char_set_name(const lt_char_set *set);
void lt_char_set_free(lt_char_set **set);

#endif
