/** Sampling: draws the next token from a language model's logits. */
#ifndef LATHER_SAMPLING_H
#define LATHER_SAMPLING_H

#include "lather/status.h"

#include <stdint.h>

/** Sampling options. All zeros: greedy, the most likely id. */
typedef struct lt_sampling {
    double temperature; /**< divisor of the logits; 0: the id with the largest logit */
    int top_k;          /**< number of most likely ids to draw from; 0: all */
    double top_p;       /**< draw from the fewest most likely ids with this probability; 0: 1 */
    uint64_t seed;
} lt_sampling;

/**
 * Draws the next id from softmax(logits / temperature), restricted to the ids selected by top_k and
 * then top_p. Ties go to the lower id. The random number depends only on (seed, text, place), so a
 * text is reproducible whatever else is sampled.
 *
 * text and place: numbers of the text and of the id in it. logits: [count], on the host; -inf
 * excludes an id.
 *
 * Errors  LT_E_ARG (a field out of range, a logit that is NaN or +inf, no logit above -inf),
 *         LT_E_NOMEM
 * Source  Fan, Lewis & Dauphin, "Hierarchical neural story generation", ACL 2018 (top_k); Holtzman
 *         et al., "The curious case of neural text degeneration", ICLR 2020 (top_p)
 */
LT_API LT_MUST_CHECK lt_status lt_sample_id(int32_t *id, const float *logits, int count,
                                            const lt_sampling *config, int64_t text, int64_t place);

#endif
