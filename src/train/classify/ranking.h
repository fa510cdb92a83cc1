/* Ranking metrics of class scores. */
#ifndef LT_CLASSIFY_RANKING_H
#define LT_CLASSIFY_RANKING_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lt_ranking {
    double auc, mean_precision; /* means over the classes that some but not all images have */
} lt_ranking;

/* Computes the metrics of count rows: a label, then a score per class. False: no class has both, or no memory. */
bool lt_ranking_of_scores(lt_ranking *out, const float *rows, size_t count, int classes);

#endif
