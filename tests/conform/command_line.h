/* Command lines of test programs. */
#ifndef LT_TESTS_CONFORM_COMMAND_LINE_H
#define LT_TESTS_CONFORM_COMMAND_LINE_H

#include "lather/options.h"

/* Exit status if a program must not run. */
enum { USAGE_OK = 0, USAGE_ERROR = 2, RUN = -1 };

/* Reads a command line into values; prints help if it asks for it, or the error. Returns RUN, or the exit
 * status. *options owns the values' texts; the caller frees it with lt_options_free() in all cases. */
static inline int read_command_line(lt_options **options, const lt_program *program, void *values,
                                    int argc, char **argv)
{
    *options = NULL;
    lt_status st = lt_options_new(options, program, values);
    if (!st)
        st = lt_options_parse(*options, argc, argv);
    if (!st && lt_options_requested(*options) == LT_OPTIONS_RUN)
        return RUN;
    if (!st)
        st = lt_options_print_request(*options, stdout);
    if (st)
        fprintf(stderr, "%s: %s\n", program->name, lt_error_message());
    return st ? USAGE_ERROR : USAGE_OK;
}

#endif
