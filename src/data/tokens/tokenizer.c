/* Functions of all tokenizers, and the byte tokenizer. */

#include "base/alloc.h"
#include "base/hash.h"
#include "data/tokens/vocabulary.h"

#include <string.h>

enum { BYTES = 256 };

/* Hashes the texts of all ids with their lengths, as ("ab", "c") and ("a", "bc") are different vocabularies. */
static uint64_t hash_vocabulary(const lt_tokenizer *t)
{
    uint64_t hash = LT_FNV1A_BEGIN;
    for (int32_t id = 0; id < t->size; id++) {
        size_t bytes;
        const char *text = lt_tokenizer_text(t, id, &bytes);
        const uint32_t count = (uint32_t)bytes;
        hash = lt_fnv1a(lt_fnv1a(hash, &count, sizeof count), text, bytes);
    }
    const int32_t end = t->end;
    return lt_fnv1a(hash, &end, sizeof end);
}

/* --- Bytes --- */

static lt_status encode_bytes(lt_tokenizer *t, const lt_text_part *text, lt_ids *ids)
{
    (void)t;
    const unsigned char *byte = (const unsigned char *)text->text;
    LT_TRY(LT_GROW(&ids->id, &ids->capacity, ids->count + text->bytes));
    for (size_t i = 0; i < text->bytes; i++)
        ids->id[ids->count++] = byte[i];
    return LT_OK;
}

static lt_status init_bytes(lt_tokenizer *t)
{
    static const lt_tokenizer_kind bytes = {.encode = encode_bytes, .any_bytes = true};
    t->kind = &bytes;
    for (int i = 0; i < BYTES; i++) {
        const char byte = (char)(unsigned char)i;
        LT_TRY(lt_tokenizer_add_id(t, &byte, 1));
    }
    t->end = t->size;
    return lt_tokenizer_add_id(t, LT_END_OF_TEXT, strlen(LT_END_OF_TEXT));
}

/* --- All --- */

static lt_status open_kind(lt_tokenizer *t)
{
    if (!strcmp(t->name, "byte"))
        return init_bytes(t);
    if (!strncmp(t->name, "char:", strlen("char:")))
        return lt_tokenizer_init_chars(t, t->name + strlen("char:"));
    if (!strncmp(t->name, "gpt2:", strlen("gpt2:")))
        return lt_tokenizer_init_gpt2(t, t->name + strlen("gpt2:"));
    return lt_fail(LT_E_ARG, "tokenizer: got '%s', want byte, char or gpt2:FOLDER", t->name);
}

lt_status lt_tokenizer_open(lt_tokenizer **out, const char *name)
{
    lt_tokenizer *t = NULL;
    LT_TRY(LT_ALLOC(&t, 1));
    t->end = -1;
    t->name = lt_strdup(name);
    lt_status st = t->name ? open_kind(t) : LT_E_NOMEM;
    if (st) {
        lt_tokenizer_free(&t);
        return st;
    }
    t->hash = hash_vocabulary(t);
    *out = t;
    return LT_OK;
}

void lt_tokenizer_free(lt_tokenizer **tokenizer)
{
    lt_tokenizer *t = *tokenizer;
    *tokenizer = NULL;
    if (!t)
        return;
    if (t->kind && t->kind->destroy && t->state)
        t->kind->destroy(t->state);
    lt_free(t->name);
    lt_free(t->text);
    lt_free(t->first);
    lt_free(t);
}

lt_vocabulary lt_tokenizer_vocabulary(const lt_tokenizer *t)
{
    return (lt_vocabulary){.tokenizer = t->name, .size = t->size, .end = t->end, .hash = t->hash};
}

lt_status lt_tokenizer_encode(lt_tokenizer *t, const lt_text_part *text, lt_ids *ids)
{
    if (!t->kind->any_bytes)
        LT_TRY(lt_check_utf8(text));
    return t->kind->encode(t, text, ids);
}
