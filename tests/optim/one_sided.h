/* The optimizer of examples/one_sided.c, compiled into the test: registered as by a program that loads the plugin. */
#ifndef LT_TESTS_OPTIM_ONE_SIDED_H
#define LT_TESTS_OPTIM_ONE_SIDED_H

#include "makers.h"

#include "lather/ext/fail.h"
#include "lather/optim_config.h"
#include "lather/plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

lt_status lt_plugin(const lt_plugin_host *host);

static inline void register_one_sided(void)
{
    assert_ok(lt_plugin(&(lt_plugin_host){sizeof(lt_plugin_host), LT_VERSION, "test"}));
}

/* Makes it from members of a JSON object. */
static inline lt_status make_one_sided_by(lt_optim **out, const lt_params *params, const char *json)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char text[320];
    lt_optim_config c = {0};
    (void)pthread_once(&once, register_one_sided);
    snprintf(text, sizeof text, "{\"optim\": \"one_sided\", \"lr\": 1, %s}", json);
    LT_TRY(lt_optim_config_parse(&c, text, strlen(text)));
    lt_status st = lt_optim_config_make(out, &c, params);
    lt_optim_config_clear(&c);
    return st;
}

/* Refreshes every three steps, in blocks of 3 rows. */
static inline lt_status make_one_sided(lt_optim **out, const lt_params *params)
{
    return make_one_sided_by(out, params,
                             "\"precondition_frequency\": 3, \"max_preconditioner_dim\": 3, "
                             "\"epsilon\": 1e-4, \"beta2\": 0.9");
}

#endif
