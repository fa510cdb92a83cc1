/* Ranking metrics of class scores, one class against the rest, averaged over the classes: the area under the ROC curve as
 * scikit-learn's roc_auc_score(multi_class="ovr"), and average_precision_score(); equal scores are one threshold. */

#include "train/classify/ranking.h"

#include <stdlib.h>

typedef struct scored {
    float score;
    bool is_positive;
} scored;

static int highest_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

/* Adds the metrics of sorted images, `positives` of which are of the class. */
static void add_class(const scored *list, size_t count, double positives, lt_ranking *sum)
{
    double hits = 0, seen = 0, pairs = 0, precision = 0;
    for (size_t i = 0; i < count;) {
        const float score = list[i].score;
        double equal = 0, equal_hits = 0;
        for (; i < count && !(list[i].score < score); i++, equal++)
            equal_hits += list[i].is_positive;
        pairs += (equal - equal_hits) * (hits + equal_hits / 2);
        hits += equal_hits;
        seen += equal;
        precision += equal_hits * hits / seen;
    }
    sum->auc += pairs / (positives * ((double)count - positives));
    sum->mean_precision += precision / positives;
}

bool lt_ranking_of_scores(lt_ranking *out, const float *rows, size_t count, int classes)
{
    const size_t stride = (size_t)classes + 1;
    scored *list = malloc((count + 1) * sizeof *list);
    int defined = 0;
    *out = (lt_ranking){0};
    for (int k = 0; k < classes && list; k++) {
        double positives = 0;
        for (size_t i = 0; i < count; i++) {
            list[i] = (scored){rows[i * stride + 1 + (size_t)k], (int)rows[i * stride] == k};
            positives += list[i].is_positive;
        }
        if (!(positives > 0 && positives < (double)count))
            continue;
        qsort(list, count, sizeof *list, highest_first);
        add_class(list, count, positives, out);
        defined++;
    }
    free(list);
    out->auc /= defined;
    out->mean_precision /= defined;
    return defined > 0;
}
