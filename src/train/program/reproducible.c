/* --reproducible: the options that it excludes, because their results depend on times or on the number of ranks. */

#include "base/options/options.h"
#include "program.h"

#include "lather/ext/fail.h"
#include "lather/plugin.h"

#include <string.h>

/* An option whose other values are rejected. */
typedef struct rule {
    const char *name, *allowed; /* allowed: "VALUE|VALUE" */
    const char *why;
} rule;

/* clang-format off */
static const rule rules[] = {
    {"device", "cpu|ref", "a GPU adds in another order"},
    {"plan", "off", "it chooses settings by measured times"},
    {"drop-compute", "off", "the micro-batches of an update depend on their speed"},
    {"backup-workers", "0", "the ranks of an update depend on their speed"},
    {"local-steps", "0", "groups of ranks have different weights"},
    {"allreduce", "auto|flat", "sums over nodes depend on the number of ranks"},
    {"sums", "ordered", "MPI chooses the order"},
    {"compress", "off", "residuals depend on the number of ranks"},
    {"grad-comm-dtype", "f32", "gradients are rounded only if there are several ranks"},
    {"comm-dtype", "f32", "updates are rounded only if there are several ranks"},
    {"dist-bn", "reduce", "running statistics depend on the number of ranks"},
    {"sync-bn", "false", "statistics of a batch depend on the number of ranks"},
    {"tensor-parallel", "1", "partial sums depend on the number of ranks"},
};
/* clang-format on */

lt_status lt_reproducible_check_plugins(void)
{
    const lt_plugin_info *p;
    for (size_t i = 0; (p = lt_plugin_at(i)); i++)
        if (!p->reproducible)
            return lt_fail(
                LT_E_ARG,
                "plugin %s and --reproducible contradict each other: it does not declare "
                "LT_PLUGIN_REPRODUCIBLE of lather/plugin.h",
                p->path);
    return LT_OK;
}

lt_status lt_reproducible_check(const lt_options *options)
{
    char value[256];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        if (lt_options_find(options, r->name, strlen(r->name))
            && !lt_options_has_word(r->allowed,
                                    lt_options_text(options, r->name, value, sizeof value), "|"))
            return lt_fail(LT_E_ARG, "--%s %s and --reproducible contradict each other: %s",
                           r->name, value, r->why);
    }
    return lt_reproducible_check_plugins();
}
