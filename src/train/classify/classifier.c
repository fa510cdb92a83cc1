/* Functions shared by the commands and the program. */

#include "train/classify/classifier.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"

classifier *lt_classifier_of(lt_trainer *t)
{
    classifier *s = lt_trainer_context(t);
    s->t = t;
    return s;
}

lt_tensor *lt_classifier_forward(classifier *s, lt_tensor *images)
{
    lt_tensor *x = lt_normalize(lt_trainer_tape(s->t), images, &s->pixels);
    const classification c = {
        .model = lt_trainer_model(s->t), .mirror = s->mirror, .shift = {s->shift[0], s->shift[1]}};
    return lt_classification_logits(&c, lt_trainer_tape(s->t), x);
}

lt_status lt_classifier_make_tensor(lt_tensor **out, const classifier *s, lt_dtype dtype,
                                    void *host, int64_t count)
{
    lt_tensor_free(out);
    lt_status st = lt_tensor_new(out, s->t->model.device, dtype, LT_SHAPE(count));
    if (!st)
        st = lt_tensor_write(*out, host, (size_t)count * 4);
    lt_free(host);
    return st;
}
