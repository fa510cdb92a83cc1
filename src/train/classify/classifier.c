/* Functions shared by the commands and the program. */

#include "train/classify/classifier.h"

classifier *lt_classifier_of(lt_trainer *t)
{
    classifier *s = lt_trainer_context(t);
    s->t = t;
    return s;
}

lt_tensor *lt_classifier_forward(classifier *s, lt_tensor *images)
{
    lt_tensor *x = lt_normalize(s->t->tape, images, &s->pixels);
    return lt_module_forward(s->t->model, s->t->tape, x);
}
