/* Status names and the thread's last error message. */

#include "lather/status.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];

static const char *const names[] = {
#define X(name, help) "LT_" #name,
    LT_STATUS_LIST(X)
#undef X
};

static const char *const helps[] = {
#define X(name, help) help,
    LT_STATUS_LIST(X)
#undef X
};

static const char *look_up_text(const char *const *table, lt_status status)
{
    return (unsigned)status < sizeof names / sizeof *names ? table[status] : "unknown status";
}

const char *lt_status_name(lt_status status)
{
    return look_up_text(names, status);
}

const char *lt_status_help(lt_status status)
{
    return look_up_text(helps, status);
}

const char *lt_error_message(void)
{
    return message;
}

const char *lt_version(void)
{
    return LT_VERSION;
}

lt_status(lt_fail)(lt_status status, const char *fmt, ...) /* also where lt_fail is a macro */
{
    /* Formats to a copy: an argument may be the old message. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    lt_text_line(message, sizeof message, text); /* escapes names from files */
    return status;
}

void lt_assert_failed(const char *file, int line, const char *expr)
{
    fprintf(stderr, "lather: %s:%d: broken invariant: %s\n", file, line, expr);
    abort();
}
