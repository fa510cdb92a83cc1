/* Random words of elements: lather/detail/kernels.h. */
#ifndef LT_TENSOR_BACKEND_RANDOM_H
#define LT_TENSOR_BACKEND_RANDOM_H

#include "base/rng.h"

#include "lather/detail/kernels.h"

LT_PURE uint64_t lt_random_index(const lt_random *r, int64_t i)
{
    if (!r->width)
        return (uint64_t)i;
    return (uint64_t)((r->first + i / r->width * r->columns + i % r->width) / r->repeat);
}

/* Random words by element; four consecutive ones come from one call of Philox. Initialise with {.group =
 * -1}. */
typedef struct lt_random_words {
    int64_t group; /* index / 4 of the words in `word`; -1: no words yet */
    uint32_t word[4];
} lt_random_words;

LT_PURE uint32_t lt_random_word(lt_random_words *have, const lt_random *r, int64_t i)
{
    const uint64_t index = lt_random_index(r, i);
    if ((int64_t)(index / 4) != have->group) {
        have->group = (int64_t)(index / 4);
        lt_philox(r->key, r->counter, index / 4, have->word);
    }
    /* Selects by conditions: indexing the array would put it into a GPU's local memory. */
    const uint32_t *word = have->word, low = index % 2 ? word[1] : word[0],
                   high = index % 2 ? word[3] : word[2];
    return index % 4 < 2 ? low : high;
}

#endif
