/* Included before every file that gcc -fanalyzer reads (tools/check_stages.sh): declares that
 * lt_fail() returns the status it is given, so that the analyzer does not follow a failure as a success. */
#ifndef LT_TOOLS_ANALYZER_H
#define LT_TOOLS_ANALYZER_H

#include "lather/ext/fail.h"

#define lt_fail(status, ...) ((void)(lt_fail)(status, __VA_ARGS__), (status))

#endif
