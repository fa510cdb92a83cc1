/* The vocabulary in the metadata of a weight file: without it, ids have no meaning. */

#include "base/alloc.h"
#include "train/language/language.h"

#include "lather/ext/fail.h"
#include "lather/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tokenizer_key[] = "tokenizer", size_key[] = "vocabulary_size",
                  hash_key[] = "vocabulary_hash", length_key[] = "sequence_length";

/* Reads a number of the metadata in 0..most; 0 if absent. */
static lt_status read_number(const lt_safetensors *file, const char *path, const char *key,
                             int base, uint64_t most, uint64_t *out)
{
    const char *text = lt_safetensors_metadata(file, key);
    char *end = NULL;
    *out = text ? strtoull(text, &end, base) : 0;
    if (!text || (*text && *text != '-' && !*end && *out <= most))
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: metadata: %s is not a number up to %" PRIu64, path, key, most);
}

static lt_status read_fields(language_metadata *m, const lt_safetensors *file, const char *path)
{
    const char *name = lt_safetensors_metadata(file, tokenizer_key);
    uint64_t size, length;
    LT_TRY(read_number(file, path, size_key, 10, INT32_MAX, &size));
    LT_TRY(read_number(file, path, length_key, 10, MOST_LENGTH, &length));
    LT_TRY(read_number(file, path, hash_key, 16, UINT64_MAX, &m->hash));
    m->size = (int)size;
    m->length = (int)length;
    m->tokenizer = name ? lt_strdup(name) : NULL;
    return name && !m->tokenizer ? LT_E_NOMEM : LT_OK;
}

lt_status lt_language_read_metadata(language_metadata *out, const char *path)
{
    lt_safetensors *file = NULL;
    language_metadata m = {0};
    LT_TRY(lt_weights_open(&file, path));
    lt_status st = read_fields(&m, file, path);
    lt_safetensors_close(&file);
    if (st)
        return st;
    lt_language_clear_metadata(out);
    *out = m;
    return LT_OK;
}

void lt_language_clear_metadata(language_metadata *m)
{
    lt_free(m->tokenizer);
    *m = (language_metadata){0};
}

lt_status lt_language_check_vocabulary(const language_metadata *m, const char *path,
                                       const lt_vocabulary *vocabulary, const char *name)
{
    const lt_vocabulary known = {
        .tokenizer = m->tokenizer, .size = m->size, .end = vocabulary->end, .hash = m->hash};
    return m->tokenizer ? lt_vocabulary_check(&known, path, vocabulary, name) : LT_OK;
}

size_t lt_language_metadata(language *l, const lt_trainer *t, lt_metadata out[LT_TRAINER_METADATA])
{
    const lt_model_facts *f = lt_trainer_facts(t);
    size_t count = 0;
    snprintf(l->classes_text, sizeof l->classes_text, "%d", lt_trainer_spec(t)->classes);
    snprintf(l->size_text, sizeof l->size_text, "%d", l->vocabulary.size);
    snprintf(l->length_text, sizeof l->length_text, "%" PRId64, l->length);
    snprintf(l->hash_text, sizeof l->hash_text, "%016" PRIx64, l->vocabulary.hash);
    out[count++] = (lt_metadata){tokenizer_key, l->vocabulary.tokenizer};
    out[count++] = (lt_metadata){size_key, l->size_text};
    out[count++] = (lt_metadata){hash_key, l->hash_text};
    out[count++] = (lt_metadata){length_key, l->length_text};
    out[count++] = (lt_metadata){"classes", l->classes_text};
    for (size_t i = 0; i < f->count; i++)
        out[count++] = (lt_metadata){f->item[i].key, f->item[i].text};
    return count;
}

lt_status lt_language_open_tokenizer(lt_tokenizer **out, const char *weights, const char *name,
                                     int classes)
{
    language_metadata m = {0};
    lt_tokenizer *tokenizer = NULL;
    LT_TRY(lt_language_read_metadata(&m, weights));
    lt_status st = LT_OK;
    if (!name && !m.tokenizer)
        st = lt_fail(LT_E_ARG, "%s: its metadata have no tokenizer; set --tokenizer", weights);
    if (!st)
        st = lt_tokenizer_open(&tokenizer, name ? name : m.tokenizer);
    if (!st) {
        const lt_vocabulary v = lt_tokenizer_vocabulary(tokenizer);
        st = lt_language_check_vocabulary(&m, weights, &v, "the tokenizer");
        if (!st && v.size > classes)
            st = lt_fail(LT_E_FORMAT, "%s: the model has %d ids, but the tokenizer %s has %d",
                         weights, classes, v.tokenizer, v.size);
    }
    lt_language_clear_metadata(&m);
    if (st)
        lt_tokenizer_free(&tokenizer);
    else
        *out = tokenizer;
    return st;
}
