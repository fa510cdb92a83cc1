/* GPT-2's tokenizer: divides text into words by GPT-2's pattern and applies byte-pair encoding to the bytes of each
 * word. */

#include "base/alloc.h"
#include "base/hash.h"
#include "data/tokens/bpe.h"
#include "data/tokens/gpt2_files.h"
#include "data/tokens/vocabulary.h"
#include "data/tokens/words.h"

#include <inttypes.h>
#include <string.h>

static lt_status encode_words(lt_tokenizer *t, const lt_text_part *text, lt_ids *ids)
{
    size_t unknown = 0, word;
    for (size_t at = 0; at < text->bytes; at += word) {
        word = lt_gpt2_word_bytes(text->text + at, text->bytes - at);
        LT_TRY(lt_bpe_encode(t->state, text->text + at, word, ids, &unknown));
        if (unknown < word)
            return lt_fail(LT_E_FORMAT,
                           "%s: the byte 0x%02x at offset %" PRId64 " is not in the vocabulary",
                           lt_text_part_name(text), (unsigned char)text->text[at + unknown],
                           text->offset + (int64_t)(at + unknown));
    }
    return LT_OK;
}

static void free_bpe(void *state)
{
    lt_bpe *bpe = state;
    lt_bpe_free(&bpe);
}

/* --- Ids by their bytes, to resolve the texts of merges --- */

typedef struct id_index {
    const lt_gpt2_files *files;
    int32_t *id;     /* [capacity] hash table with open addressing; -1 if empty */
    size_t capacity; /* a power of two */
} id_index;

/* Returns the hash table element of the id with these bytes, or the empty element where it would be. */
static int32_t *find_id_slot(const id_index *x, const char *text, size_t bytes)
{
    uint64_t at = lt_fnv1a(LT_FNV1A_BEGIN, text, bytes);
    for (at ^= at >> 32;; at++) {
        int32_t *id = &x->id[at & (x->capacity - 1)];
        const lt_gpt2_entry *e = *id < 0 ? NULL : &x->files->entry[*id];
        if (!e || (e->bytes == bytes && !memcmp(e->text, text, bytes)))
            return id;
    }
}

static lt_status fill_index(id_index *x, const lt_gpt2_files *f)
{
    for (x->capacity = 2; x->capacity < 2 * f->count; x->capacity *= 2)
        continue;
    x->files = f;
    LT_TRY(LT_ALLOC(&x->id, x->capacity));
    memset(x->id, 0xff, x->capacity * sizeof *x->id); /* -1 */
    for (size_t i = 0; i < f->count; i++) {
        const lt_gpt2_entry *e = &f->entry[i];
        if (!e->special) /* texts differ, as keys of an object do, and so do their bytes */
            *find_id_slot(x, e->text, e->bytes) = (int32_t)i;
    }
    return LT_OK;
}

/* Looks up the id of a text in GPT-2's characters. buffer: size bytes of workspace. */
static lt_status look_up_id(const id_index *x, size_t rank, const char *text, size_t size,
                            char *buffer, int32_t *id)
{
    const lt_gpt2_files *f = x->files;
    size_t bytes = 0;
    *id = -1;
    if (lt_gpt2_decode_bytes(text, size, buffer, &bytes))
        *id = *find_id_slot(x, buffer, bytes);
    return *id >= 0 ? LT_OK
                    : lt_fail(LT_E_FORMAT, "%s: merge %zu has '%.*s', which is not in %s",
                              f->merges_path, rank + 1, (int)size, text, f->path);
}

static lt_status add_merge(lt_bpe *bpe, const id_index *x, size_t rank)
{
    const lt_gpt2_merge *m = &x->files->merge[rank];
    const size_t right_bytes = strlen(m->right), size = m->left_bytes + right_bytes;
    char *buffer = lt_alloc(size + 1, 2);
    if (!buffer)
        return LT_E_NOMEM;
    char *both = buffer + size + 1;
    memcpy(both, m->left, m->left_bytes);
    memcpy(both + m->left_bytes, m->right, right_bytes);
    int32_t left, right = -1, merged = -1;
    lt_status st = look_up_id(x, rank, m->left, m->left_bytes, buffer, &left);
    if (!st)
        st = look_up_id(x, rank, m->right, right_bytes, buffer, &right);
    if (!st)
        st = look_up_id(x, rank, both, size, buffer, &merged);
    if (!st && !lt_bpe_add_merge(bpe, left, right, merged))
        st = lt_fail(LT_E_FORMAT, "%s: merge %zu, '%.*s %s', occurs twice", x->files->merges_path,
                     rank + 1, (int)m->left_bytes, m->left, m->right);
    lt_free(buffer);
    return st;
}

static lt_status fill_bpe(lt_bpe *bpe, const lt_gpt2_files *f)
{
    enum { BYTES = 256 };
    id_index x = {0};
    lt_status st = fill_index(&x, f);
    for (int i = 0; i < BYTES && !st; i++) {
        const char byte = (char)(unsigned char)i;
        lt_bpe_set_byte(bpe, (unsigned char)i, *find_id_slot(&x, &byte, 1));
    }
    for (size_t i = 0; i < f->merges && !st; i++)
        st = add_merge(bpe, &x, i);
    lt_free(x.id);
    return st;
}

/* --- The tokenizer --- */

static lt_status fill_tokenizer(lt_tokenizer *t, const lt_gpt2_files *f)
{
    static const lt_tokenizer_kind kind = {.encode = encode_words, .destroy = free_bpe};
    lt_bpe *bpe = NULL;
    for (size_t i = 0; i < f->count; i++) {
        const lt_gpt2_entry *e = &f->entry[i];
        if (e->bytes == strlen(LT_END_OF_TEXT) && !memcmp(e->text, LT_END_OF_TEXT, e->bytes))
            t->end = t->size;
        LT_TRY(lt_tokenizer_add_id(t, e->text, e->bytes));
    }
    if (t->end < 0)
        return lt_fail(LT_E_FORMAT, "%s: the vocabulary lacks %s", f->path, LT_END_OF_TEXT);
    LT_TRY(lt_bpe_new(&bpe, f->merges));
    t->kind = &kind;
    t->state = bpe;
    return fill_bpe(bpe, f);
}

lt_status lt_tokenizer_init_gpt2(lt_tokenizer *t, const char *argument)
{
    lt_gpt2_files f = {0};
    lt_status st = lt_gpt2_files_read(&f, argument);
    if (!st)
        st = fill_tokenizer(t, &f);
    lt_gpt2_files_clear(&f);
    return st;
}
