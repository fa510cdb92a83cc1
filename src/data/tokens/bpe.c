/* Byte-pair encoding: of all neighbours, those whose merge has the lowest rank become one id, the
 * first of them first, until no neighbours have a merge. Sennrich, Haddow & Birch, "Neural machine
 * translation of rare words with subword units", ACL 2016.
 *
 * Neighbours wait in a heap, so that a word of n bytes takes n log n steps however long it is. Short
 * words are remembered. */

#include "data/tokens/bpe.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "data/tokens/vocabulary.h"

#include <string.h>

enum { BYTES = 256, NONE = -1, WORDS = 1 << 15, WORD_BYTES = 20, WORD_IDS = 6 };

typedef struct merge {
    int32_t left, right; /* left NONE: an empty place */
    int32_t rank, merged;
} merge;

typedef struct symbol {
    int32_t id;            /* NONE: it is part of the one before */
    uint32_t before, next; /* places; next == count: none */
} symbol;

/* Neighbours that may become one: what they were when they came into the heap. */
typedef struct candidate {
    int32_t rank;
    uint32_t place;
} candidate;

typedef struct remembered {
    uint8_t bytes, count; /* bytes 0: nothing */
    char word[WORD_BYTES];
    int32_t id[WORD_IDS];
} remembered;

struct lt_bpe {
    int32_t byte[BYTES];
    merge *merges; /* [places], a power of two: open addressing */
    size_t places;
    int32_t count;
    remembered *words; /* [WORDS], at the hash of the word */
    symbol *symbols;   /* of the word at hand */
    candidate *heap;
    size_t symbol_capacity, heap_capacity, heap_count;
};

/* --- Merges --- */

lt_status lt_bpe_new(lt_bpe **out, size_t merges)
{
    lt_bpe *b = lt_alloc(1, sizeof *b);
    if (!b)
        return LT_E_NOMEM;
    for (b->places = 2; b->places < 2 * merges; b->places *= 2)
        continue;
    for (int i = 0; i < BYTES; i++)
        b->byte[i] = NONE;
    b->merges = lt_alloc(b->places, sizeof *b->merges);
    b->words = lt_alloc(WORDS, sizeof *b->words);
    if (!b->merges || !b->words) {
        lt_bpe_free(&b);
        return LT_E_NOMEM;
    }
    for (size_t i = 0; i < b->places; i++)
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
    lt_free(b->words);
    lt_free(b->symbols);
    lt_free(b->heap);
    lt_free(b);
}

void lt_bpe_set_byte(lt_bpe *bpe, unsigned char byte, int32_t id)
{
    bpe->byte[byte] = id;
}

/* The pair's place, or the empty one where it would be. */
static merge *find(const lt_bpe *b, int32_t left, int32_t right)
{
    const int32_t pair[] = {left, right};
    uint64_t at = lt_fnv1a(LT_FNV1A_BEGIN, pair, sizeof pair);
    for (at ^= at >> 32;; at++) {
        merge *m = &b->merges[at & (b->places - 1)];
        if (m->left == NONE || (m->left == left && m->right == right))
            return m;
    }
}

bool lt_bpe_add(lt_bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    merge *m = find(bpe, left, right);
    if (m->left != NONE)
        return false;
    LT_ASSERT((size_t)bpe->count + 1 < bpe->places);
    *m = (merge){.left = left, .right = right, .rank = bpe->count++, .merged = merged};
    return true;
}

/* --- The heap: the lowest rank, and of those the first place, on top --- */

static bool before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.place < b.place;
}

static void push(lt_bpe *b, candidate c)
{
    size_t at = b->heap_count++;
    for (; at && before(c, b->heap[(at - 1) / 2]); at = (at - 1) / 2)
        b->heap[at] = b->heap[(at - 1) / 2];
    b->heap[at] = c;
}

static candidate pop(lt_bpe *b)
{
    const candidate top = b->heap[0], last = b->heap[--b->heap_count];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < b->heap_count; at = child) {
        if (child + 1 < b->heap_count && before(b->heap[child + 1], b->heap[child]))
            child++;
        if (!before(b->heap[child], last))
            break;
        b->heap[at] = b->heap[child];
    }
    b->heap[at] = last;
    return top;
}

/* --- A word --- */

/* The merge of the symbol at place with the next one; NULL: none. */
static const merge *merge_at(const lt_bpe *b, uint32_t place, uint32_t count)
{
    const symbol *s = &b->symbols[place];
    if (s->id == NONE || s->next == count)
        return NULL;
    const merge *m = find(b, s->id, b->symbols[s->next].id);
    return m->left == NONE ? NULL : m;
}

static void offer(lt_bpe *b, uint32_t place, uint32_t count)
{
    const merge *m = merge_at(b, place, count);
    if (m)
        push(b, (candidate){.rank = m->rank, .place = place});
}

/* The symbol at place and the next one become one; its neighbours are offered anew. */
static void join(lt_bpe *b, uint32_t place, uint32_t count, int32_t merged)
{
    symbol *s = &b->symbols[place], *next = &b->symbols[s->next];
    s->id = merged;
    next->id = NONE;
    s->next = next->next;
    if (s->next != count)
        b->symbols[s->next].before = place;
    offer(b, place, count);
    if (place)
        offer(b, s->before, count);
}

/* A symbol is offered once at the beginning, and at most twice more for each merge. */
static lt_status reserve(lt_bpe *b, size_t bytes)
{
    symbol *symbols = lt_grow(b->symbols, &b->symbol_capacity, bytes, sizeof *symbols);
    if (!symbols)
        return LT_E_NOMEM;
    b->symbols = symbols;
    candidate *heap = lt_grow(b->heap, &b->heap_capacity, 3 * bytes, sizeof *heap);
    if (!heap)
        return LT_E_NOMEM;
    b->heap = heap;
    return LT_OK;
}

static void merge_all(lt_bpe *b, uint32_t count)
{
    b->heap_count = 0;
    for (uint32_t i = 0; i < count; i++)
        offer(b, i, count);
    while (b->heap_count) {
        const candidate c = pop(b);
        const merge *m = merge_at(b, c.place, count);
        if (m && m->rank == c.rank)
            join(b, c.place, count, m->merged);
    }
}

static lt_status encode(lt_bpe *b, const char *word, size_t bytes, lt_ids *ids, size_t *bad)
{
    if (bytes > UINT32_MAX / 4)
        return lt_fail(LT_E_FORMAT, "a word of %zu bytes", bytes);
    LT_TRY(reserve(b, bytes));
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = b->byte[(unsigned char)word[i]];
        b->symbols[i] = (symbol){.id = id, .before = (uint32_t)i - 1, .next = (uint32_t)i + 1};
        if (id == NONE) {
            *bad = i;
            return LT_OK;
        }
    }
    merge_all(b, (uint32_t)bytes);
    for (size_t i = 0; i < bytes; i++)
        if (b->symbols[i].id != NONE)
            LT_TRY(lt_ids_add(ids, b->symbols[i].id));
    *bad = bytes;
    return LT_OK;
}

static void remember(remembered *r, const char *word, size_t bytes, const int32_t *id, size_t count)
{
    if (count > WORD_IDS)
        return;
    r->bytes = (uint8_t)bytes;
    r->count = (uint8_t)count;
    memcpy(r->word, word, bytes);
    memcpy(r->id, id, count * sizeof *id);
}

lt_status lt_bpe_encode(lt_bpe *b, const char *word, size_t bytes, lt_ids *ids, size_t *bad)
{
    const size_t count = ids->count;
    if (bytes > WORD_BYTES)
        return encode(b, word, bytes, ids, bad);
    uint64_t at = lt_fnv1a(LT_FNV1A_BEGIN, word, bytes);
    remembered *r = &b->words[(at ^ at >> 32) & (WORDS - 1)];
    if (r->bytes == bytes && !memcmp(r->word, word, bytes)) {
        for (int i = 0; i < r->count; i++)
            LT_TRY(lt_ids_add(ids, r->id[i]));
        *bad = bytes;
        return LT_OK;
    }
    LT_TRY(encode(b, word, bytes, ids, bad));
    if (*bad == bytes)
        remember(r, word, bytes, ids->id + count, ids->count - count);
    return LT_OK;
}
