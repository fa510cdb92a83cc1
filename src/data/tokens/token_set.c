/* A data set of windows of tokens, from a token file or from text in memory.
 *
 * The targets of an epoch are the ids at indices 1 .. n-1, as a ring. Sample k has `length` targets from k * length +
 * shift on, the last sample the rest; shift is drawn from the epoch's key. So for any shift an epoch has the same
 * number of samples, and each target once. The input of the first target is the id at index 0, the end-of-text id
 * before the first document. */

#include "base/alloc.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/files/files.h"
#include "data/tokens/corpus.h"
#include "data/tokens/token_file.h"
#include "data/tokens/vocabulary.h"

#include "lather/ext/dataset.h"
#include "lather/ops/loss.h"
#include "lather/tokens.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

typedef struct tokens {
    lt_dataset base;
    int64_t count;           /* number of tokens */
    lt_token_file file;      /* fd is -1 if the tokens are in memory */
    lt_ids ids;              /* tokens in memory */
    lt_tokenizer *tokenizer; /* for tokens in memory */
    lt_vocabulary vocabulary;
    char *path;
} tokens;

/* --- Windows --- */

static lt_status read_ids(const tokens *t, int64_t first, int64_t count, int32_t *out)
{
    if (t->file.fd >= 0)
        return lt_token_file_read(&t->file, first, count, out);
    memcpy(out, t->ids.id + first, (size_t)count * sizeof *out);
    return LT_OK;
}

/* Reads inputs from index first on, and their labels, which follow them. Does not wrap around the ring. */
static lt_status read_inputs_and_labels(const tokens *t, int64_t first, int64_t count,
                                        int32_t *input, int32_t *label, int32_t *buffer)
{
    if (!count)
        return LT_OK;
    LT_TRY(read_ids(t, first, count + 1, buffer));
    memcpy(input, buffer, (size_t)count * sizeof *input);
    memcpy(label, buffer + 1, (size_t)count * sizeof *label);
    return LT_OK;
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const tokens *t = (const tokens *)self;
    const int64_t length = self->shape.dim[0], targets = t->count - 1, begin = index * length;
    lt_rng rng = {.key = record->epoch_key};
    const int64_t shift = record->epoch_key ? lt_rng_below(&rng, (uint32_t)length) : 0;
    const int64_t count = targets - begin < length ? targets - begin : length;
    const int64_t first = (begin + shift) % targets; /* index of the first input */
    const int64_t run = targets - first < count ? targets - first : count;
    LT_TRY(lt_record_reserve(record, (size_t)(3 * length + 1) * sizeof(int32_t)));
    int32_t *input = (int32_t *)(void *)record->bytes, *label = input + length,
            *buffer = label + length;
    LT_TRY(read_inputs_and_labels(t, first, run, input, label, buffer));
    LT_TRY(read_inputs_and_labels(t, 0, count - run, input + run, label + run, buffer));
    for (int64_t i = count; i < length; i++) {
        input[i] = t->vocabulary.end;
        label[i] = LT_IGNORED_LABEL;
    }
    record->size = (size_t)(2 * length) * sizeof(int32_t);
    record->encoding = LT_ENCODING_TOKENS;
    record->label = 0;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    (void)index;
    return ((const tokens *)self)->path;
}

static void destroy(lt_dataset *self)
{
    tokens *t = (tokens *)self;
    lt_token_file_close(&t->file);
    lt_ids_clear(&t->ids);
    lt_tokenizer_free(&t->tokenizer);
    lt_free(t->path);
}

static uint64_t fingerprint(const lt_dataset *self, uint64_t hash)
{
    const tokens *t = (const tokens *)self;
    enum { RUN = 256, RUNS = 4096 }; /* all tokens of a short text, a million of a long one */
    int32_t ids[RUN];
    const int64_t step = t->count / RUN > RUNS ? t->count / RUNS : RUN;
    hash = lt_fnv1a(hash, &t->vocabulary.hash, sizeof t->vocabulary.hash);
    hash = lt_fnv1a(hash, &t->count, sizeof t->count);
    for (int64_t i = 0; i < t->count; i += step) {
        const int64_t count = t->count - i < RUN ? t->count - i : RUN;
        if (!read_ids(t, i, count, ids)) /* ignores errors, which the loader will report */
            hash = lt_fnv1a(hash, ids, (size_t)count * sizeof *ids);
    }
    return hash;
}

static const lt_dataset_ops ops = {
    .name = "tokens",
    .bytes = sizeof(tokens),
    .read = read_sample,
    .sample_name = sample_name,
    .fingerprint = fingerprint,
    .destroy = destroy,
};

/* --- Opening --- */

static lt_status set_shape_and_count(tokens *t, int length)
{
    if (t->count < 2)
        return lt_fail(LT_E_FORMAT, "%s: %" PRId64 " tokens, want at least 2", t->path, t->count);
    t->base.count = (t->count - 1 + length - 1) / length;
    t->base.classes = t->vocabulary.size;
    t->base.shape = LT_SHAPE(length);
    t->base.tokens = true;
    return LT_OK;
}

static lt_status open_file(tokens *t, const char *path)
{
    const lt_token_header *h = &t->file.header;
    LT_TRY(lt_token_file_open(&t->file, path));
    t->count = (int64_t)h->count;
    t->vocabulary = (lt_vocabulary){
        .tokenizer = t->file.name, .size = (int)h->size, .end = (int)h->end, .hash = h->hash};
    return LT_OK;
}

static lt_status encode_part(void *context, const lt_text_part *text)
{
    tokens *t = context;
    return lt_tokenizer_encode(t->tokenizer, text, &t->ids);
}

static lt_status open_text(tokens *t, const char *path, const lt_tokens_config *config, bool train)
{
    lt_corpus c = {0};
    if (config->val_fraction < 0)
        return lt_fail(LT_E_ARG, "tokens: validation fraction is %g, want 0 < fraction < 1",
                       config->val_fraction);
    lt_status st = lt_corpus_open_and_split(&c, &t->tokenizer, path, config);
    if (!st)
        t->vocabulary = lt_tokenizer_vocabulary(t->tokenizer);
    for (size_t i = 0; i < c.documents && !st; i++) {
        if (c.document[i].val == train)
            continue;
        st = lt_ids_add(&t->ids, t->vocabulary.end);
        if (!st)
            st = lt_corpus_read_document(&c, &c.document[i], encode_part, t);
    }
    t->count = (int64_t)t->ids.count;
    lt_corpus_clear(&c);
    return st;
}

/* Sets *out to FOLDER/train.tokens or FOLDER/val.tokens if it exists; lt_free() it. If neither exists, leaves *out
 * unchanged. */
static lt_status find_split_file(char **out, const char *folder, bool train)
{
    char *split = lt_format("%s/%s.tokens", folder, train ? "train" : "val"),
         *other = lt_format("%s/%s.tokens", folder, train ? "val" : "train");
    const bool found = split && !access(split, F_OK), has_other = other && !access(other, F_OK);
    lt_status st = split && other ? LT_OK : LT_E_NOMEM;
    if (!st && has_other && !found)
        st = lt_fail(LT_E_IO, "%s: no such file, although %s exists", split, other);
    lt_free(other);
    if (!st && found)
        *out = split;
    else
        lt_free(split);
    return st;
}

static lt_status open_path(tokens *t, const char *path, const lt_tokens_config *config, bool train)
{
    char *split = NULL;
    if (lt_is_folder(path))
        LT_TRY(find_split_file(&split, path, train));
    t->path = split ? split : lt_strdup(path);
    if (!t->path)
        return LT_E_NOMEM;
    LT_TRY(split || lt_is_token_file(path) ? open_file(t, t->path)
                                           : open_text(t, path, config, train));
    return set_shape_and_count(t, config->length);
}

lt_status lt_dataset_tokens(lt_dataset **out, const char *path, const lt_tokens_config *config,
                            bool train)
{
    enum { MOST = 1 << 24 };
    if (config->length < 1 || config->length > MOST)
        return lt_fail(LT_E_ARG, "tokens: length is %d tokens, want 1 .. %d", config->length, MOST);
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    tokens *t = (tokens *)d;
    t->file.fd = -1;
    return lt_dataset_set_or_free(out, d, open_path(t, path, config, train));
}

/* --- Getters --- */

lt_status lt_dataset_vocabulary(const lt_dataset *dataset, lt_vocabulary *out)
{
    if (dataset->ops != &ops)
        return lt_fail(LT_E_ARG, "data: a data set '%s' has no tokens", dataset->ops->name);
    *out = ((const tokens *)dataset)->vocabulary;
    return LT_OK;
}

int64_t lt_dataset_token_count(const lt_dataset *dataset)
{
    return dataset->ops == &ops ? ((const tokens *)dataset)->count : 0;
}
