/* Rules that exclude oneDNN implementations with wrong results or out-of-bounds writes. */
#ifndef LT_BACKEND_CPU_CONV_RULES_H
#define LT_BACKEND_CPU_CONV_RULES_H

#include "tensor/backend/cpu/conv/conv_call.h"

/* A convolution or one of its gradients; shapes are the forward pass's. */
typedef struct lt_conv_form {
    lt_conv_kind kind;
    lt_conv2d_config config; /* geometry, with defaults applied: only padding may be 0 */
    lt_shape x, w, y;
} lt_conv_form;

/* A convolution along one dimension of the image. */
typedef struct lt_conv_axis {
    int64_t size, taps, outputs, stride, pad, dilation;
} lt_conv_axis;

enum { LT_CONV_HEIGHT = 2, LT_CONV_WIDTH = 3 }; /* indices of the image's dimensions in a shape */

lt_conv_axis lt_conv_get_axis(const lt_conv_form *form, int dim);
/* Returns true if this tap sees only padding in all outputs. */
bool lt_conv_tap_sees_only_padding(const lt_conv_axis *a, int64_t tap);

/* An implementation of one direction that is wrong for some forms. */
typedef struct lt_conv_rule {
    const char *name;
    int until; /* lt_dnnl_version_number() of the first fixed version; 0: not known to be fixed */
    lt_conv_kind kind;
    const char *implementation; /* the implementation, as a substring of dnnl_query_impl_info_str */
    bool (*forbids)(const lt_conv_form *form);
    const char *except; /* substring of implementations that the rule skips, or NULL */
} lt_conv_rule;

/* Returns a version as one comparable number. */
static inline int lt_dnnl_version_number(int major, int minor)
{
    enum { MINORS = 1000 };
    return major * MINORS + minor;
}

/* Returns the rule that forbids the implementation for this form, or NULL. */
const lt_conv_rule *lt_conv_find_forbidding_rule(int version, const char *implementation,
                                                 const lt_conv_form *form);

/* Returns rule i, or NULL past the last; for tests. */
const lt_conv_rule *lt_conv_rule_at(int i);

#endif
