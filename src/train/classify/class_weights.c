/* --class-weights: factors of the training loss of each class, as the weight of PyTorch's CrossEntropyLoss; balanced: those
 * of scikit-learn's compute_class_weight(). */

#include "base/alloc.h"
#include "train/classify/classifier.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sets the weight of a class to samples / (classes * samples of the class); 0 for a class without samples. */
static lt_status balance(const lt_dataset *train, int classes, float *weight)
{
    const int64_t count = lt_dataset_count(train);
    int label;
    memset(weight, 0, (size_t)classes * sizeof *weight);
    for (int64_t i = 0; i < count; i++) {
        LT_TRY(lt_dataset_label(train, i, &label));
        weight[label]++;
    }
    for (int k = 0; k < classes; k++)
        weight[k] = weight[k] > 0 ? (float)((double)count / classes / (double)weight[k]) : 0;
    return LT_OK;
}

/* Returns the class with this name, or this number if classes have no names; -1: none. */
static int find_class(const lt_dataset *train, const char *name, size_t bytes, int classes)
{
    for (int k = 0; k < classes; k++) {
        const char *own = lt_dataset_class_name(train, k);
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        own = own ? own : number;
        if (strlen(own) == bytes && !strncmp(own, name, bytes))
            return k;
    }
    return -1;
}

/* Parses NAME=WEIGHT,...; other classes have weight 1. */
static lt_status parse_weights(const lt_dataset *train, const char *text, int classes,
                               float *weight)
{
    for (int k = 0; k < classes; k++)
        weight[k] = 1;
    for (const char *at = text; *at;) {
        const size_t name = strcspn(at, "=");
        char *end;
        const double value = at[name] ? strtod(at + name + 1, &end) : -1;
        const int k = find_class(train, at, name, classes);
        if (!(value >= 0 && isfinite(value)) || (*end && *end != ',') || end == at + name + 1)
            return lt_fail(LT_E_ARG,
                           "--class-weights: '%s' is not NAME=WEIGHT with a weight of 0 or more",
                           at);
        if (k < 0)
            return lt_fail(LT_E_ARG, "--class-weights: no class '%.*s' in the data", (int)name, at);
        weight[k] = (float)value;
        at = *end ? end + 1 : end;
    }
    return LT_OK;
}

lt_status lt_classifier_open_class_weights(classifier *s, int classes)
{
    const char *text = s->args.class_weights;
    const lt_dataset *train = s->t->input.train;
    if (!text || !train)
        return LT_OK;
    float *weight;
    LT_TRY(LT_ALLOC(&weight, classes));
    const lt_status st = strcmp(text, "balanced") ? parse_weights(train, text, classes, weight)
                                                  : balance(train, classes, weight);
    if (st)
        lt_free(weight);
    return st ? st : lt_classifier_make_tensor(&s->class_weight, s, LT_F32, weight, classes);
}
