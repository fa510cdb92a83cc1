/* LATHER_VERIFY=1: compares the first run of each oneDNN convolution with the reference backend. */
#ifndef LT_BACKEND_CPU_CONV_VERIFY_H
#define LT_BACKEND_CPU_CONV_VERIFY_H

#include "conv_rules.h"

#include "lather/status.h"

/* A convolution that ran; for a gradient of x or w, that view is the result. */
typedef struct lt_conv_ran {
    const lt_conv_form *form;
    const char *implementation;
    const lt_view *x, *w, *b, *y; /* operands of the convolution; b may be NULL */
} lt_conv_ran;

/* Returns true if LATHER_VERIFY is set and not 0. */
bool lt_conv_verify_is_enabled(void);

/* Compares a few planes with the reference in double. Errors: LT_E_DEVICE if they differ by more than rounding, with
 * form, implementation and both numbers. */
lt_status lt_conv_verify(const lt_conv_ran *ran);

#endif
