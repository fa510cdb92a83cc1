/* LATHER_VERIFY=1: the first use of each of oneDNN's convolutions is compared with ref. */
#ifndef LT_BACKEND_CPU_CONV_VERIFY_H
#define LT_BACKEND_CPU_CONV_VERIFY_H

#include "conv_rules.h"

#include "lather/status.h"

/* A convolution that ran: of a gradient, the view of what it is a gradient of is the result. */
typedef struct lt_conv_ran {
    const lt_conv_form *form;
    const char *implementation;
    const lt_view *x, *w, *b, *y; /* b may be NULL */
} lt_conv_ran;

/* Whether the variable is set. */
bool lt_conv_verify_wanted(void);

/* Compares a few planes of the result with ref's in double. LT_E_DEVICE, with form,
 * implementation and both numbers in the message, where they are further apart than rounding. */
lt_status lt_conv_verify(const lt_conv_ran *ran);

#endif
