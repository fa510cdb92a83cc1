/* Random convolutions for conv_fuzz, and how they are told to others. */
#ifndef LT_TESTS_CONFORM_CONV_FORMS_H
#define LT_TESTS_CONFORM_CONV_FORMS_H

#include "conform.h"

enum { FORM_TEXT = 256 };

typedef struct form {
    conv_row row; /* its name is told's text */
    conv_way way;
    lt_dtype dtype;
    char told[FORM_TEXT]; /* as oneDNN's benchdnn takes it */
} form;

/* Form number index of a seed: the same wherever and whenever it is asked for. */
void form_draw(uint64_t seed, uint64_t index, form *out);

#endif
