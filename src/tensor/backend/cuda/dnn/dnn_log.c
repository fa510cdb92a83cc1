/* Lines of the table of plans, for plans of cuDNN. */

#include "dnn_log.h"

#include "tensor/backend/cuda/plan_log.h"

#include <stdlib.h>

static const char *const way_name[LT_DNN_WAYS] = {[LT_DNN_BY_PROPERTIES] =
                                                      "for the handle's properties",
                                                  [LT_DNN_BY_ORDINAL] = "for the device's number",
                                                  [LT_DNN_BY_HANDLE] = "for the handle"};

const char *lt_dnn_way_name(lt_dnn_way way)
{
    return way_name[way];
}

static const char *kind_of(const lt_dnn_plan *plan)
{
    char *text;
    if (!plan->plan)
        return "composed";
    if (plan->unproven)
        return "from disk";
    if (plan->compiled || lt_dnn_plan_text(plan, &text))
        return "compiled";
    const bool hopper = lt_dnn_classify(text) == LT_DNN_HOPPER;
    free(text);
    return hopper ? "hopper" : "older";
}

void lt_dnn_log(const lt_cuda *c, const char *key, int candidate, const lt_dnn_plan *plan,
                float milliseconds, bool chosen)
{
    if (!lt_plan_log_wanted())
        return;
    lt_plan_log(c, &(lt_plan_line){.key = key,
                                   .kind = kind_of(plan),
                                   .candidate = candidate,
                                   .engine = plan->plan ? plan->engine : -1,
                                   .workspace = plan->workspace,
                                   .milliseconds = milliseconds,
                                   .chosen = chosen,
                                   .note = plan->plan ? lt_dnn_way_name(plan->way) : NULL});
}

void lt_dnn_log_failure(const lt_cuda *c, const char *key, const lt_dnn_choice *choice)
{
    lt_plan_log(c, &(lt_plan_line){.key = key,
                                   .kind = "none",
                                   .candidate = -1,
                                   .engine = choice->number,
                                   .milliseconds = -1,
                                   .note = lt_error_message()});
}
