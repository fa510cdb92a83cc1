/* Texts of ids, lists of ids, and checks, for all tokenizers. */

#include "data/tokens/vocabulary.h"

#include "base/alloc.h"
#include "base/encoding/utf8.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

lt_status lt_tokenizer_add_id(lt_tokenizer *t, const char *text, size_t bytes)
{
    const size_t count = (size_t)t->size, begin = count ? t->first[count] : 0;
    if (count == INT_MAX)
        return lt_fail(LT_E_FORMAT, "tokenizer: %s has more than %d ids", t->name, INT_MAX);
    LT_TRY(LT_GROW(&t->first, &t->first_capacity, count + 2));
    LT_TRY(LT_GROW(&t->text, &t->text_capacity, begin + bytes + 1));
    memcpy(t->text + begin, text, bytes);
    t->first[count] = begin;
    t->first[count + 1] = begin + bytes;
    t->size++;
    return LT_OK;
}

const char *lt_tokenizer_text(const lt_tokenizer *t, int32_t id, size_t *bytes)
{
    *bytes = 0;
    if (id < 0 || id >= t->size)
        return NULL;
    *bytes = t->first[id + 1] - t->first[id];
    return t->text + t->first[id];
}

lt_status lt_ids_add(lt_ids *ids, int32_t id)
{
    LT_TRY(LT_GROW(&ids->id, &ids->capacity, ids->count + 1));
    ids->id[ids->count++] = id;
    return LT_OK;
}

void lt_ids_clear(lt_ids *ids)
{
    lt_free(ids->id);
    *ids = (lt_ids){0};
}

const char *lt_text_part_name(const lt_text_part *text)
{
    return text->name ? text->name : "text";
}

lt_status lt_check_utf8(const lt_text_part *text)
{
    const char *end = text->text + text->bytes;
    for (const char *at = text->text; at < end;) {
        const int bytes = lt_utf8_length(at, end);
        if (!bytes)
            return lt_fail(LT_E_FORMAT, "%s: the byte 0x%02x at offset %" PRId64 " is not UTF-8",
                           lt_text_part_name(text), (unsigned char)*at,
                           text->offset + (at - text->text));
        at += bytes;
    }
    return LT_OK;
}

lt_status lt_vocabulary_check(const lt_vocabulary *a, const char *a_name, const lt_vocabulary *b,
                              const char *b_name)
{
    if (a->size == b->size && a->end == b->end && a->hash == b->hash)
        return LT_OK;
    return lt_fail(LT_E_FORMAT,
                   "%s has the vocabulary of '%.64s' (%d ids, hash %016" PRIx64
                   "), %s has that of '%.64s' (%d ids, hash %016" PRIx64 ")",
                   a_name, a->tokenizer, a->size, a->hash, b_name, b->tokenizer, b->size, b->hash);
}
