/* Random convolutions for conv_fuzz, and their description for benchdnn. */
#ifndef LT_TESTS_CONFORM_CONV_FORMS_H
#define LT_TESTS_CONFORM_CONV_FORMS_H

#include "conform.h"

enum { FORM_TEXT = 256 };

typedef struct form {
    conv_row row; /* its name is told's text */
    conv_way way;
    lt_dtype dtype;
    char told[FORM_TEXT]; /* options of oneDNN's benchdnn */
} form;

/* Returns form `index` of a seed, always the same. */
void form_draw(uint64_t seed, uint64_t index, form *out);

#endif
