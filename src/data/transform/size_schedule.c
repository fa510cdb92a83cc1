/* Schedule of input sizes over epochs (progressive resizing). Howard et al., "Training Imagenet in 3 hours for USD 25",
 * 2018; Tan & Le, "EfficientNetV2", ICML 2021, section 4. */

#include "lather/ext/fail.h"
#include "lather/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Parses a number and advances *at. */
static bool parse_number(const char **at, int64_t most, int64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    if (errno || value > most)
        return false;
    *at = end;
    *out = value;
    return true;
}

static bool parse_char(const char **at, char c)
{
    if (**at != c)
        return false;
    ++*at;
    return true;
}

lt_status lt_size_schedule_parse(lt_size_schedule *out, const char *text)
{
    lt_size_schedule s = {0};
    const char *at = text;
    do {
        int64_t epoch, size;
        if (s.count == LT_MAX_SIZES)
            return lt_fail(LT_E_ARG, "sizes '%s': want at most %d steps", text, LT_MAX_SIZES);
        if (!parse_number(&at, INT64_MAX, &epoch) || !parse_char(&at, ':')
            || !parse_number(&at, INT32_MAX, &size))
            return lt_fail(LT_E_ARG, "sizes '%s': want EPOCH:SIZE,EPOCH:SIZE,...", text);
        s.step[s.count++] = (lt_size_step){.epoch = epoch, .size = (int)size};
    } while (parse_char(&at, ','));
    if (*at)
        return lt_fail(LT_E_ARG, "sizes '%s': unexpected '%s' at the end", text, at);
    LT_TRY(lt_size_schedule_check(&s));
    *out = s;
    return LT_OK;
}

lt_status lt_size_schedule_check(const lt_size_schedule *s)
{
    if (s->count < 0 || s->count > LT_MAX_SIZES)
        return lt_fail(LT_E_ARG, "sizes: got %d steps, want at most %d", s->count, LT_MAX_SIZES);
    for (int i = 0; i < s->count; i++) {
        if (i ? s->step[i].epoch <= s->step[i - 1].epoch : s->step[i].epoch != 0)
            return lt_fail(LT_E_ARG,
                           "sizes: step %d begins at epoch %" PRId64
                           "; the first must begin at 0, each other one after the one before",
                           i + 1, s->step[i].epoch);
        if (s->step[i].size < 1)
            return lt_fail(LT_E_ARG, "sizes: size is %d from epoch %" PRId64 " on, want 1 or more",
                           s->step[i].size, s->step[i].epoch);
    }
    return LT_OK;
}

int lt_size_schedule_at(const lt_size_schedule *s, int64_t epoch)
{
    int i = 0;
    while (i + 1 < s->count && s->step[i + 1].epoch <= epoch)
        i++;
    return s->count ? s->step[i].size : 0;
}
