/* The counters that lt_optim_visit() shows, by their names: what they may be. */

#include "optim/optim.h"

#include <string.h>

void lt_optim_number_range(const char *name, int64_t attempt, int64_t *low, int64_t *high)
{
    /* Roots that pend come into use one interval behind the step in which they were due, which is
     * not before the end of the first interval. */
    const int64_t swap = 2 * attempt;
    const struct {
        const char *prefix;
        int64_t low, high;
    } known[] = {
        {"attempt", attempt, attempt}, {"applied", 0, attempt}, {"updates.", 0, attempt},
        {"failures.", 0, attempt},     {"rooted.", 0, attempt}, {"swap.", 0, swap},
        {"pending.", LT_OK, LT_END},
    };
    *low = INT64_MIN; /* an optimizer outside the library: no range is known */
    *high = INT64_MAX;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(name, known[i].prefix, strlen(known[i].prefix))) {
            *low = known[i].low;
            *high = known[i].high;
            return;
        }
}
