/* Byte-pair encoding: of all adjacent pairs of ids, the leftmost one with the lowest merge rank is merged, until no
 * pair has a merge. Sennrich, Haddow & Birch, "Neural machine translation of rare words with subword units", ACL 2016.
 *
 * Pairs are kept in a heap, so a word of n bytes takes O(n log n) steps. A cache has the ids of short words. */

#include "data/tokens/bpe.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "data/tokens/vocabulary.h"

#include <string.h>

enum { BYTES = 256, NONE = -1, WORDS = 1 << 15, WORD_BYTES = 20, WORD_IDS = 6 };

typedef struct merge {
    int32_t left, right; /* left: NONE marks an empty element */
    int32_t rank, merged;
} merge;

typedef struct symbol {
    int32_t id; /* NONE if merged into a symbol before it */
    uint32_t before,
        next; /* indices of the adjacent symbols; next is the number of symbols at the end */
} symbol;

/* A pair of adjacent symbols with a merge, as it was when it was added to the heap. */
typedef struct candidate {
    int32_t rank;
    uint32_t position; /* index of the left symbol */
} candidate;

typedef struct cached_word {
    uint8_t bytes, count; /* length of the word, 0 if the element is empty; number of ids */
    char word[WORD_BYTES];
    int32_t id[WORD_IDS];
} cached_word;

struct lt_bpe {
    int32_t byte[BYTES];
    merge *merges;   /* [capacity] hash table with open addressing */
    size_t capacity; /* a power of two */
    int32_t count;
    cached_word *cache; /* [WORDS], indexed by the hash of the word */
    symbol *symbols;    /* symbols of the current word */
    candidate *heap;
    size_t symbol_capacity, heap_capacity, heap_count;
};

/* --- Merges --- */

lt_status lt_bpe_new(lt_bpe **out, size_t merges)
{
    lt_bpe *b = NULL;
    LT_TRY(LT_ALLOC(&b, 1));
    for (b->capacity = 2; b->capacity < 2 * merges; b->capacity *= 2)
        continue;
    for (int i = 0; i < BYTES; i++)
        b->byte[i] = NONE;
    b->merges = lt_alloc(b->capacity, sizeof *b->merges);
    b->cache = lt_alloc(WORDS, sizeof *b->cache);
    if (!b->merges || !b->cache) {
        lt_bpe_free(&b);
        return LT_E_NOMEM;
    }
    for (size_t i = 0; i < b->capacity; i++)
        b->merges[i].left = NONE;
    *out = b;
    return LT_OK;
}

void lt_bpe_free(lt_bpe **bpe)
{
    lt_bpe *b = *bpe;
    *bpe = NULL;
    if (!b)
        return;
    lt_free(b->merges);
    lt_free(b->cache);
    lt_free(b->symbols);
    lt_free(b->heap);
    lt_free(b);
}

void lt_bpe_set_byte(lt_bpe *bpe, unsigned char byte, int32_t id)
{
    bpe->byte[byte] = id;
}

/* Returns the pair's element in the hash table, or the empty element where it would be. */
static merge *find_merge_slot(const lt_bpe *b, int32_t left, int32_t right)
{
    const int32_t pair[] = {left, right};
    uint64_t at = lt_fnv1a(LT_FNV1A_BEGIN, pair, sizeof pair);
    for (at ^= at >> 32;; at++) {
        merge *m = &b->merges[at & (b->capacity - 1)];
        if (m->left == NONE || (m->left == left && m->right == right))
            return m;
    }
}

bool lt_bpe_add_merge(lt_bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    merge *m = find_merge_slot(bpe, left, right);
    if (m->left != NONE)
        return false;
    LT_ASSERT((size_t)bpe->count + 1 < bpe->capacity);
    *m = (merge){.left = left, .right = right, .rank = bpe->count++, .merged = merged};
    return true;
}

/* --- The heap: the lowest rank on top; if equal, the lowest position --- */

static bool is_ranked_before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
}

static void push_candidate(lt_bpe *b, candidate c)
{
    size_t at = b->heap_count++;
    for (; at && is_ranked_before(c, b->heap[(at - 1) / 2]); at = (at - 1) / 2)
        b->heap[at] = b->heap[(at - 1) / 2];
    b->heap[at] = c;
}

static candidate pop_candidate(lt_bpe *b)
{
    const candidate top = b->heap[0], last = b->heap[--b->heap_count];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < b->heap_count; at = child) {
        if (child + 1 < b->heap_count && is_ranked_before(b->heap[child + 1], b->heap[child]))
            child++;
        if (!is_ranked_before(b->heap[child], last))
            break;
        b->heap[at] = b->heap[child];
    }
    b->heap[at] = last;
    return top;
}

/* --- A word --- */

/* Returns the merge of the symbol at position with the next one, or NULL. */
static const merge *merge_at(const lt_bpe *b, uint32_t position, uint32_t count)
{
    const symbol *s = &b->symbols[position];
    if (s->id == NONE || s->next == count)
        return NULL;
    const merge *m = find_merge_slot(b, s->id, b->symbols[s->next].id);
    return m->left == NONE ? NULL : m;
}

static void push_pair(lt_bpe *b, uint32_t position, uint32_t count)
{
    const merge *m = merge_at(b, position, count);
    if (m)
        push_candidate(b, (candidate){.rank = m->rank, .position = position});
}

/* Merges the symbol at position with the next one, and pushes the pairs that this creates. */
static void merge_symbols(lt_bpe *b, uint32_t position, uint32_t count, int32_t merged)
{
    symbol *s = &b->symbols[position], *next = &b->symbols[s->next];
    s->id = merged;
    next->id = NONE;
    s->next = next->next;
    if (s->next != count)
        b->symbols[s->next].before = position;
    push_pair(b, position, count);
    if (position)
        push_pair(b, s->before, count);
}

/* Grows symbols and heap for a word: each symbol is pushed once, each merge pushes at most two pairs. */
static lt_status reserve_word(lt_bpe *b, size_t bytes)
{
    LT_TRY(LT_GROW(&b->symbols, &b->symbol_capacity, bytes));
    LT_TRY(LT_GROW(&b->heap, &b->heap_capacity, 3 * bytes));
    return LT_OK;
}

static void merge_all(lt_bpe *b, uint32_t count)
{
    b->heap_count = 0;
    for (uint32_t i = 0; i < count; i++)
        push_pair(b, i, count);
    while (b->heap_count) {
        const candidate c = pop_candidate(b);
        const merge *m = merge_at(b, c.position, count);
        if (m && m->rank == c.rank)
            merge_symbols(b, c.position, count, m->merged);
    }
}

static lt_status encode_word(lt_bpe *b, const char *word, size_t bytes, lt_ids *ids,
                             size_t *unknown)
{
    if (bytes > UINT32_MAX / 4)
        return lt_fail(LT_E_FORMAT, "tokenizer: word of %zu bytes, want at most %u", bytes,
                       UINT32_MAX / 4);
    LT_TRY(reserve_word(b, bytes));
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = b->byte[(unsigned char)word[i]];
        b->symbols[i] = (symbol){.id = id, .before = (uint32_t)i - 1, .next = (uint32_t)i + 1};
        if (id == NONE) {
            *unknown = i;
            return LT_OK;
        }
    }
    merge_all(b, (uint32_t)bytes);
    for (size_t i = 0; i < bytes; i++)
        if (b->symbols[i].id != NONE)
            LT_TRY(lt_ids_add(ids, b->symbols[i].id));
    *unknown = bytes;
    return LT_OK;
}

static void cache_word(cached_word *r, const char *word, size_t bytes, const int32_t *id,
                       size_t count)
{
    if (count > WORD_IDS)
        return;
    r->bytes = (uint8_t)bytes;
    r->count = (uint8_t)count;
    memcpy(r->word, word, bytes);
    memcpy(r->id, id, count * sizeof *id);
}

lt_status lt_bpe_encode(lt_bpe *b, const char *word, size_t bytes, lt_ids *ids, size_t *unknown)
{
    const size_t count = ids->count;
    if (bytes > WORD_BYTES)
        return encode_word(b, word, bytes, ids, unknown);
    uint64_t at = lt_fnv1a(LT_FNV1A_BEGIN, word, bytes);
    cached_word *r = &b->cache[(at ^ at >> 32) & (WORDS - 1)];
    if (r->bytes == bytes && !memcmp(r->word, word, bytes)) {
        for (int i = 0; i < r->count; i++)
            LT_TRY(lt_ids_add(ids, r->id[i]));
        *unknown = bytes;
        return LT_OK;
    }
    LT_TRY(encode_word(b, word, bytes, ids, unknown));
    if (*unknown == bytes)
        cache_word(r, word, bytes, ids->id + count, ids->count - count);
    return LT_OK;
}
