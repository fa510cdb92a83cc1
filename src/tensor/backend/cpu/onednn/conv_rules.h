/* Primitives of oneDNN that are wrong, or write behind their memory, and are therefore never taken. */
#ifndef LT_BACKEND_CPU_CONV_RULES_H
#define LT_BACKEND_CPU_CONV_RULES_H

#include "lather/detail/backend.h"

typedef enum lt_conv_kind { LT_CONV, LT_CONV_GRAD_X, LT_CONV_GRAD_W } lt_conv_kind;

/* A convolution, or one of its gradients, with the shapes of what it is a gradient of. */
typedef struct lt_conv_form {
    lt_conv_kind kind;
    lt_conv2d_config config; /* nothing in it is 0 but padding */
    lt_shape x, w, y;
} lt_conv_form;

/* A convolution along one dimension of the image. */
typedef struct lt_conv_axis {
    int64_t size, taps, outputs, stride, pad, dilation;
} lt_conv_axis;

enum { LT_CONV_HEIGHT = 2, LT_CONV_WIDTH = 3 }; /* dimensions of a shape */

lt_conv_axis lt_conv_along(const lt_conv_form *form, int dim);
/* True if this tap meets only padding, in all outputs. */
bool lt_conv_is_idle(const lt_conv_axis *a, int64_t tap);

/* Implementations of one direction that are wrong for some forms. */
typedef struct lt_conv_rule {
    const char *name;
    int until; /* lt_dnnl_number() of the first version without the fault; 0: none is known */
    lt_conv_kind kind;
    const char *implementation; /* a part of its name, as dnnl_query_impl_info_str tells it */
    bool (*forbids)(const lt_conv_form *form);
    const char *except; /* part of the names that the rule leaves out; NULL: none */
} lt_conv_rule;

/* Versions as numbers that compare. */
static inline int lt_dnnl_number(int major, int minor)
{
    enum { MINORS = 1000 };
    return major * MINORS + minor;
}

/* The rule that forbids the implementation for this form, or NULL. */
const lt_conv_rule *lt_conv_forbidden(int version, const char *implementation,
                                      const lt_conv_form *form);

/* Rule i, or NULL past the last: for tests. */
const lt_conv_rule *lt_conv_rule_at(int i);

#endif
