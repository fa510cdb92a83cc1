/* A data set of windows of tokens, from a token file or from text in memory.
 *
 * Ids 1 .. n-1 are the targets of an epoch, one after the other around a circle. Sample k takes
 * length of them from number k * length + shift on, the last sample the rest; shift is drawn from
 * the epoch's key. So whatever shift is, an epoch has the same number of samples, and each target
 * once. Where the circle closes, the input is id 0, the end-of-text id before the first document. */

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
    int64_t count;           /* of tokens */
    lt_token_file file;      /* fd -1: text in memory */
    lt_ids ids;              /* of such text */
    lt_tokenizer *tokenizer; /* likewise */
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

/* count inputs, and their labels from target number place on; both within the circle. */
static lt_status read_run(const tokens *t, int64_t place, int64_t count, int32_t *input,
                          int32_t *label, int32_t *spare)
{
    if (!count)
        return LT_OK;
    LT_TRY(read_ids(t, place, count + 1, spare));
    memcpy(input, spare, (size_t)count * sizeof *input);
    memcpy(label, spare + 1, (size_t)count * sizeof *label);
    return LT_OK;
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const tokens *t = (const tokens *)self;
    const int64_t length = self->shape.dim[0], targets = t->count - 1, begin = index * length;
    lt_rng rng = {.key = record->epoch_key};
    const int64_t shift = record->epoch_key ? lt_rng_below(&rng, (uint32_t)length) : 0;
    const int64_t count = targets - begin < length ? targets - begin : length;
    const int64_t place = (begin + shift) % targets; /* inputs begin at this id, labels behind it */
    const int64_t run = targets - place < count ? targets - place : count;
    LT_TRY(lt_record_reserve(record, (size_t)(3 * length + 1) * sizeof(int32_t)));
    int32_t *input = (int32_t *)(void *)record->bytes, *label = input + length,
            *spare = label + length;
    LT_TRY(read_run(t, place, run, input, label, spare));
    LT_TRY(read_run(t, 0, count - run, input + run, label + run, spare));
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
        if (!read_ids(t, i, count, ids)) /* else training on it will fail */
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

static lt_status finish(tokens *t, int length)
{
    if (t->count < 2)
        return lt_fail(LT_E_FORMAT, "%s: %" PRId64 " tokens; want 2 or more", t->path, t->count);
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
    enum { TENTH = 10 };
    const double fraction = config->val_fraction == 0 ? 1.0 / TENTH : config->val_fraction;
    lt_corpus c = {0};
    lt_status st = lt_corpus_open(&c, path, config->documents);
    if (!st)
        st = lt_corpus_divide(&c, fraction);
    if (!st)
        st = lt_corpus_tokenizer(&c, config->tokenizer, &t->tokenizer);
    if (!st)
        t->vocabulary = lt_tokenizer_vocabulary(t->tokenizer);
    for (size_t i = 0; i < c.documents && !st; i++) {
        if (c.document[i].val == train)
            continue;
        st = lt_ids_add(&t->ids, t->vocabulary.end);
        if (!st)
            st = lt_corpus_read(&c, &c.document[i], encode_part, t);
    }
    t->count = (int64_t)t->ids.count;
    lt_corpus_clear(&c);
    return st;
}

/* FOLDER/train.tokens or FOLDER/val.tokens if one of them is there, else NULL in *out. */
static lt_status find_part(char **out, const char *folder, bool train)
{
    char *part = lt_format("%s/%s.tokens", folder, train ? "train" : "val"),
         *other = lt_format("%s/%s.tokens", folder, train ? "val" : "train");
    const bool found = part && !access(part, F_OK), one = other && !access(other, F_OK);
    lt_status st = part && other ? LT_OK : LT_E_NOMEM;
    if (!st && one && !found)
        st = lt_fail(LT_E_IO, "%s: no such file, but %s is there", part, other);
    lt_free(other);
    if (!st && found)
        *out = part;
    else
        lt_free(part);
    return st;
}

static lt_status open_path(tokens *t, const char *path, const lt_tokens_config *config, bool train)
{
    char *part = NULL;
    if (lt_is_folder(path))
        LT_TRY(find_part(&part, path, train));
    t->path = part ? part : lt_strdup(path);
    if (!t->path)
        return LT_E_NOMEM;
    LT_TRY(part || lt_is_token_file(path) ? open_file(t, t->path)
                                          : open_text(t, path, config, train));
    return finish(t, config->length);
}

lt_status lt_dataset_tokens(lt_dataset **out, const char *path, const lt_tokens_config *config,
                            bool train)
{
    enum { MOST = 1 << 24 };
    if (config->length < 1 || config->length > MOST)
        return lt_fail(LT_E_ARG, "tokens: samples of %d tokens, not 1 .. %d", config->length, MOST);
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    tokens *t = (tokens *)d;
    t->file.fd = -1;
    lt_status st = open_path(t, path, config, train);
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}

/* --- What they say of themselves --- */

lt_status lt_dataset_vocabulary(const lt_dataset *dataset, lt_vocabulary *out)
{
    if (dataset->ops != &ops)
        return lt_fail(LT_E_ARG, "data: a data set '%s' is not of tokens", dataset->ops->name);
    *out = ((const tokens *)dataset)->vocabulary;
    return LT_OK;
}

int64_t lt_dataset_token_count(const lt_dataset *dataset)
{
    return dataset->ops == &ops ? ((const tokens *)dataset)->count : 0;
}
