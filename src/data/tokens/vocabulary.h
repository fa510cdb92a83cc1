/* Internal interface of the tokenizers. */
#ifndef LT_DATA_VOCABULARY_H
#define LT_DATA_VOCABULARY_H

#include "lather/ext/fail.h"
#include "lather/tokenizer.h"

#include <stdbool.h>

#define LT_END_OF_TEXT "<|endoftext|>"

typedef struct lt_tokenizer_kind {
    /* Appends the ids of a text, which is valid UTF-8 unless any_bytes is set. */
    lt_status (*encode)(lt_tokenizer *t, const lt_text_part *text, lt_ids *ids);
    bool any_bytes;               /* accepts text that is not UTF-8 */
    void (*destroy)(void *state); /* frees the state; NULL without state */
} lt_tokenizer_kind;

struct lt_tokenizer {
    const lt_tokenizer_kind *kind;
    void *state; /* state of this kind of tokenizer */
    char *name;
    int size, end;
    uint64_t hash;
    char *text;    /* the text of id i is text[first[i] .. first[i + 1] - 1] */
    size_t *first; /* [size + 1] offset of each id's text */
    size_t text_capacity, first_capacity;
};

/* Adds the next id with its bytes. Errors: LT_E_NOMEM, LT_E_FORMAT (too many ids). */
lt_status lt_tokenizer_add_id(lt_tokenizer *t, const char *text, size_t bytes);

/* Appends an id. Errors: LT_E_NOMEM. */
lt_status lt_ids_add(lt_ids *ids, int32_t id);

/* Checks that a text is UTF-8. Errors: LT_E_FORMAT with the first byte that is not. */
lt_status lt_check_utf8(const lt_text_part *text);
const char *lt_text_part_name(const lt_text_part *text);

/* Initialize t as a character or GPT-2 tokenizer. argument: its name after the colon ("gpt2:FOLDER"). */
lt_status lt_tokenizer_init_chars(lt_tokenizer *t, const char *argument);
lt_status lt_tokenizer_init_gpt2(lt_tokenizer *t, const char *argument);

/* The set of characters that occur in texts. */
typedef struct lt_char_set lt_char_set;
lt_status lt_char_set_new(lt_char_set **out);
/* Adds all characters of a text. Errors: LT_E_FORMAT (not UTF-8, or U+0000). */
lt_status lt_char_set_add(lt_char_set *set, const lt_text_part *text);
/* Returns the tokenizer name, "char:" and the characters sorted by code, or NULL if out of memory; lt_free() it. */
char *lt_char_set_tokenizer_name(const lt_char_set *set);
void lt_char_set_free(lt_char_set **set);

#endif
