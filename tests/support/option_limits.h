/* Both sides of each limit of an option: the lowest and the highest value are accepted, the next ones are not. */
#ifndef TESTS_OPTION_LIMITS_H
#define TESTS_OPTION_LIMITS_H

#include "base/options/options.h"
#include "near.h"

#include <string.h>

static inline void check_value(const lt_option *option, double value, bool accepted)
{
    char text[64], message[160];
    snprintf(text, sizeof text, option->type == LT_OPTION_INT ? "%.0f" : "%.17g", value);
    const lt_status st = lt_options_check_value(option, text);
    if (st != (accepted ? LT_OK : LT_E_ARG))
        fail_msg("--%s=%s: %s", option->name, text, st ? lt_error_message() : "is accepted");
    snprintf(message, sizeof message, "--%s: %s is not in ", option->name, text);
    if (!accepted && !strstr(lt_error_message(), message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), message);
}

/* Returns the number of limits of that option. */
static inline int check_limits(const lt_option *option)
{
    const bool integer = option->type == LT_OPTION_INT;
    if ((!integer && option->type != LT_OPTION_DOUBLE) || !(option->min < option->max))
        return 0;
    const double low = option->min, high = option->max;
    check_value(option, low, true);
    check_value(option, integer ? low - 1 : nextafter(low, (double)-INFINITY), false);
    if (integer && isinf(high)) {
        assert_ok(lt_options_check_value(option, "9223372036854775807"));
        assert_status(lt_options_check_value(option, "9223372036854775808"), LT_E_ARG);
        return 2;
    }
    check_value(option, integer ? high - 1 : nextafter(high, low), true);
    check_value(option, high, !option->below && !isinf(high));
    check_value(option, integer ? high + 1 : nextafter(high, (double)INFINITY), false);
    if (isinf(high))
        assert_non_null(strstr(lt_error_message(), "inf)"));
    return 2;
}

#endif
