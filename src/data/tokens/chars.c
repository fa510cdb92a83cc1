/* Character tokenizer: one id per character. */

#include "base/alloc.h"
#include "base/encoding/utf8.h"
#include "data/tokens/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CODES = 0x110000, MOST_BYTES = 4 }; /* code points of Unicode; bytes of a character */

typedef struct character {
    uint32_t code;
    int32_t id;
} character;

typedef struct characters {
    character *of; /* [count], sorted by code */
    size_t count;
} characters;

static int by_code(const void *a, const void *b)
{
    const uint32_t x = ((const character *)a)->code, y = ((const character *)b)->code;
    return (x > y) - (x < y);
}

static lt_status encode_characters(lt_tokenizer *t, const lt_text_part *text, lt_ids *ids)
{
    const characters *c = t->state;
    int bytes;
    for (size_t at = 0; at < text->bytes; at += (size_t)bytes) {
        const character key = {.code = lt_utf8_decode(text->text + at, &bytes)};
        const character *found = bsearch(&key, c->of, c->count, sizeof *c->of, by_code);
        if (!found)
            return lt_fail(LT_E_FORMAT,
                           "%s: the character U+%04" PRIX32 " at offset %" PRId64
                           " is not one of the %zu of the vocabulary",
                           lt_text_part_name(text), key.code, text->offset + (int64_t)at, c->count);
        LT_TRY(lt_ids_add(ids, found->id));
    }
    return LT_OK;
}

static void free_characters(void *state)
{
    characters *c = state;
    lt_free(c->of);
    lt_free(c);
}

static lt_status add_characters(lt_tokenizer *t, characters *c, const char *text, size_t size)
{
    int bytes;
    for (size_t at = 0; at < size; at += (size_t)bytes) {
        const uint32_t code = lt_utf8_decode(text + at, &bytes);
        c->of[c->count++] = (character){.code = code, .id = t->size};
        LT_TRY(lt_tokenizer_add_id(t, text + at, (size_t)bytes));
    }
    qsort(c->of, c->count, sizeof *c->of, by_code);
    for (size_t i = 1; i < c->count; i++)
        if (c->of[i].code == c->of[i - 1].code)
            return lt_fail(LT_E_ARG, "tokenizer: the vocabulary char:... has U+%04" PRIX32 " twice",
                           c->of[i].code);
    t->end = t->size;
    return lt_tokenizer_add_id(t, LT_END_OF_TEXT, strlen(LT_END_OF_TEXT));
}

lt_status lt_tokenizer_init_chars(lt_tokenizer *t, const char *argument)
{
    static const lt_tokenizer_kind kind = {.encode = encode_characters, .destroy = free_characters};
    const lt_text_part text = {.text = argument, .bytes = strlen(argument), .name = "char"};
    LT_TRY(lt_check_utf8(&text));
    characters *c = NULL;
    LT_TRY(LT_ALLOC(&c, 1));
    t->kind = &kind;
    t->state = c;
    c->of = lt_alloc(text.bytes + 1, sizeof *c->of);
    return c->of ? add_characters(t, c, argument, text.bytes) : LT_E_NOMEM;
}

/* --- Sets of characters --- */

struct lt_char_set {
    uint8_t has[CODES / 8];
};

lt_status lt_char_set_new(lt_char_set **out)
{
    *out = lt_alloc(1, sizeof **out);
    return *out ? LT_OK : LT_E_NOMEM;
}

lt_status lt_char_set_add(lt_char_set *set, const lt_text_part *text)
{
    int bytes;
    LT_TRY(lt_check_utf8(text));
    for (size_t at = 0; at < text->bytes; at += (size_t)bytes) {
        const uint32_t code = lt_utf8_decode(text->text + at, &bytes);
        if (!code)
            return lt_fail(LT_E_FORMAT, "%s: not text: zero byte at offset %" PRId64,
                           lt_text_part_name(text), text->offset + (int64_t)at);
        set->has[code / 8] |= (uint8_t)(1U << code % 8);
    }
    return LT_OK;
}

static bool has_character(const lt_char_set *set, uint32_t code)
{
    return set->has[code / 8] >> code % 8 & 1;
}

char *lt_char_set_tokenizer_name(const lt_char_set *set)
{
    static const char prefix[] = "char:";
    size_t count = 0;
    for (uint32_t code = 1; code < CODES; code++)
        count += has_character(set, code);
    char *name = lt_alloc(sizeof prefix + count * MOST_BYTES, 1);
    if (!name)
        return NULL;
    memcpy(name, prefix, sizeof prefix);
    char *at = name + strlen(prefix);
    for (uint32_t code = 1; code < CODES; code++)
        if (has_character(set, code))
            at += lt_utf8_encode(at, code);
    *at = 0;
    return name;
}

void lt_char_set_free(lt_char_set **set)
{
    lt_free(*set);
    *set = NULL;
}
