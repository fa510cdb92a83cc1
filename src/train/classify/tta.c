/* --tta: columns and rows of mirrored and shifted images, by which evaluations select their views. */

#include "base/alloc.h"
#include "train/classify/classifier.h"

#include <stdlib.h>

/* Makes the columns step * i + start of an image; those beyond the edge are reflected. */
static lt_status make_columns(lt_tensor **out, const classifier *s, int32_t step, int32_t start)
{
    const int32_t width = s->transform.size, last = width - 1;
    int32_t *column;
    LT_TRY(LT_ALLOC(&column, width));
    for (int32_t i = 0; i < width; i++) {
        const int32_t at = last ? abs(step * i + start) : 0;
        column[i] = at > last ? 2 * last - at : at;
    }
    return lt_classifier_make_tensor(out, s, LT_I32, column, width);
}

lt_status lt_classifier_open_tta(classifier *s)
{
    if (!s->args.tta)
        return LT_OK;
    LT_TRY(make_columns(&s->mirror, s, -1, s->transform.size - 1));
    if (s->args.tta == TTA_HFLIP)
        return LT_OK;
    LT_TRY(make_columns(&s->shift[0], s, 1, 1));
    return make_columns(&s->shift[1], s, 1, -1);
}
