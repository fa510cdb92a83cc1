/* Logging through one callback, with a level per area. */

#include "lather/log.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1024, MAX_AREAS = 16, AREA_BYTES = 16 };

typedef struct area_level {
    char area[AREA_BYTES];
    lt_log_level level;
} area_level;

typedef struct log_filter {
    lt_log_level level;
    area_level area[MAX_AREAS];
    int areas;
} log_filter;

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static log_filter filter = {.level = LT_LOG_INFO};
static lt_log_fn *writer;
static void *writer_context;
static int log_rank = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool parse_level(const char *text, size_t bytes, lt_log_level *level)
{
    for (unsigned i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strlen(level_names[i]) == bytes && !strncmp(text, level_names[i], bytes)) {
            *level = (lt_log_level)i;
            return true;
        }
    return false;
}

static lt_status parse_area_level(log_filter *f, const char *item, size_t bytes)
{
    const char *equal = memchr(item, '=', bytes);
    if (!equal) {
        if (parse_level(item, bytes, &f->level))
            return LT_OK;
        return lt_fail(LT_E_ARG,
                       "log filter: unknown level '%.*s'; valid: error, warn, info, debug",
                       (int)bytes, item);
    }
    size_t name = (size_t)(equal - item);
    area_level *a = &f->area[f->areas];
    if (f->areas == MAX_AREAS || name >= AREA_BYTES
        || !parse_level(equal + 1, bytes - name - 1, &a->level))
        return lt_fail(LT_E_ARG, "log filter: '%.*s' is not AREA=LEVEL", (int)bytes, item);
    memcpy(a->area, item, name);
    a->area[name] = 0;
    f->areas++;
    return LT_OK;
}

static lt_status parse_filter(const char *text, log_filter *out)
{
    log_filter f = {.level = LT_LOG_INFO};
    while (*text) {
        size_t bytes = strcspn(text, ",");
        LT_TRY(parse_area_level(&f, text, bytes));
        text += bytes + (text[bytes] == ',');
    }
    *out = f;
    return LT_OK;
}

static void read_environment(void)
{
    const char *text = getenv("LATHER_LOG");
    if (text && parse_filter(text, &filter))
        fprintf(stderr, "lather warn base: LATHER_LOG: %s\n", lt_error_message());
}

static bool is_shown(lt_log_level level, const char *area)
{
    if (log_rank > 0 && level > LT_LOG_WARN)
        return false;
    for (int i = 0; i < filter.areas; i++)
        if (!strcmp(filter.area[i].area, area))
            return level <= filter.area[i].level;
    return level <= filter.level;
}

void lt_log_set(lt_log_fn *fn, void *context)
{
    writer = fn;
    writer_context = context;
}

lt_status lt_log_filter(const char *text)
{
    pthread_once(&once, read_environment);
    return parse_filter(text, &filter);
}

void lt_log_rank(int rank)
{
    log_rank = rank;
}

void lt_log(lt_log_level level, const char *area, const char *fmt, ...)
{
    pthread_once(&once, read_environment);
    if (!is_shown(level, area))
        return;
    char raw[TEXT_BYTES], text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    lt_text_line(text, sizeof text, raw); /* escapes names from files */
    if (writer)
        writer(writer_context, level, area, text);
    else if (log_rank >= 0)
        fprintf(stderr, "lather[rank %d] %s %s: %s\n", log_rank, level_names[level], area, text);
    else
        fprintf(stderr, "lather %s %s: %s\n", level_names[level], area, text);
}
