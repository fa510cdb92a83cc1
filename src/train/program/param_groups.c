/* --freeze, --freeze-bn and --param-group: settings of parameters whose names match a regular expression. --layer-decay:
 * learning rates by depth, as those of timm's param_groups_layer_decay() (Clark et al., "ELECTRA", ICLR 2020). */

#include "base/pattern.h"
#include "program.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names of blocks of residual networks, vision transformers and GPT. */
#define BLOCKS "^(layer[0-9]+[.][0-9]+|encoder[.]layers[.]encoder_layer_[0-9]+|h[.][0-9]+)[.]"
#define OF     group_options
/* clang-format off */
static const lt_option rows[] = {
{"Model", LIST("freeze", freeze), .meta = "REGEX", .common = true, .help = "do not train parameters whose name matches a POSIX extended regular expression; running statistics of their batch norms still change without --freeze-bn"},
{"Model", BOOL("freeze-bn", freeze_bn), .applies = "--freeze", .help = "batch norms that --freeze matches keep their running statistics, weight and bias, and normalize with them in training"},
{"Optimizer", INT("mup", mup, 0, 65536), .value = "0", .meta = "BASE_WIDTH", .help = "muP: scale learning rate, initial values and weight decay of each parameter so that settings tuned at --width BASE_WIDTH apply at --width; 0: off"},
{"Optimizer", LIST("param-group", param_group), .meta = "REGEX:lr=..,weight_decay=..", .help = "settings of parameters whose name matches; lr is absolute, replaces --lr, and follows the same schedule: with --lr 0.1, ^fc:lr=1 trains the last layer ten times as fast; the last match counts"},
{"Optimizer", NUM("layer-decay", layer_decay, 0, 1), .value = "1", .help = "factor of the learning rate from each block to the one before it, as timm's: 1 for the last layer, X for the last block and the norm after it, X^2 before; --param-group's lr replaces it"},
};
/* clang-format on */
OPTION_TABLE(lt_group_option_table, group_options, rows)

static bool name_matches(const regex_t *pattern, const lt_param *param)
{
    return !regexec(pattern, param->name, 0, NULL, 0);
}

static lt_status freeze_matching(const lt_params *params, const char *text)
{
    regex_t pattern;
    size_t found = 0;
    LT_TRY(lt_pattern_compile("--freeze", text, &pattern));
    for (size_t i = 0; i < params->count; i++) {
        lt_param *p = params->item[i];
        if (!lt_param_is_trained(p) || !name_matches(&pattern, p))
            continue;
        p->frozen = true;
        found++;
    }
    regfree(&pattern);
    return found ? LT_OK : lt_fail(LT_E_ARG, "--freeze: no parameter matches '%s'", text);
}

/* Returns true if both belong to one layer: names equal up to the last dot. */
static bool are_siblings(const lt_param *a, const lt_param *b)
{
    const char *dot = strrchr(a->name, '.');
    return dot && !strncmp(a->name, b->name, (size_t)(dot + 1 - a->name))
           && !strchr(b->name + (dot + 1 - a->name), '.');
}

/* --freeze-bn: freezes all of a batch norm of which something is frozen, with its statistics. */
static lt_status freeze_norms(const lt_params *params)
{
    size_t found = 0;
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i];
        if (p->role != LT_PARAM_NORM || !p->frozen)
            continue;
        for (size_t k = 0; k < params->count; k++)
            if (are_siblings(p, params->item[k]))
                params->item[k]->frozen = true;
        found++;
    }
    return found ? LT_OK : lt_fail(LT_E_ARG, "--freeze-bn: --freeze matches no batch norm");
}

lt_status lt_params_freeze(const lt_params *params, const lt_option_list *patterns, bool norms)
{
    for (size_t i = 0; i < patterns->count; i++)
        LT_TRY(freeze_matching(params, patterns->item[i]));
    if (norms)
        LT_TRY(freeze_norms(params));
    for (size_t i = 0; i < params->count; i++)
        if (lt_param_is_trained(params->item[i]))
            return LT_OK;
    return lt_fail(LT_E_ARG, "--freeze: nothing is left to train");
}

/* Parses "REGEX:lr=0.1,weight_decay=0"; the last colon ends the pattern. */
static lt_status parse_group(double lr, const char *text, char *pattern, lt_optim_group *group)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return lt_fail(LT_E_ARG, "--param-group: '%s' is not REGEX:lr=..,weight_decay=..", text);
    LT_TRY(lt_pattern_check_length("--param-group", (size_t)(colon - text)));
    memcpy(pattern, text, (size_t)(colon - text));
    pattern[colon - text] = 0;
    *group = (lt_optim_group){.lr_scale = (double)NAN, .weight_decay = (double)NAN};
    for (const char *item = colon + 1; *item;) {
        char *end;
        const char *equal = strchr(item, '=');
        double value = equal ? strtod(equal + 1, &end) : 0;
        if (!equal || end == equal + 1 || (*end && *end != ',') || !(value >= 0))
            return lt_fail(LT_E_ARG,
                           "--param-group: '%s' is not lr=NUMBER or "
                           "weight_decay=NUMBER, 0 or more",
                           item);
        if (!strncmp(item, "lr=", 3))
            group->lr_scale = lr > 0 ? value / lr : 0;
        else if (!strncmp(item, "weight_decay=", 13))
            group->weight_decay = value;
        else
            return lt_fail(LT_E_ARG, "--param-group: unknown setting '%s'; valid: lr, weight_decay",
                           item);
        item = end + (*end == ',');
    }
    return LT_OK;
}

static lt_status apply_group(const lt_params *params, lt_optim *optim, double lr, const char *text)
{
    char pattern_text[LT_PATTERN_BYTES];
    lt_optim_group group = {0};
    regex_t pattern;
    size_t found = 0;
    LT_TRY(parse_group(lr, text, pattern_text, &group));
    LT_TRY(lt_pattern_compile("--param-group", pattern_text, &pattern));
    lt_status st = LT_OK;
    for (size_t i = 0; i < params->count && !st; i++) {
        const lt_param *p = params->item[i];
        if (!lt_param_is_trained(p) || !name_matches(&pattern, p))
            continue;
        st = lt_optim_set_group(optim, p->name, group);
        found++;
    }
    regfree(&pattern);
    LT_TRY(st);
    return found ? LT_OK
                 : lt_fail(LT_E_ARG, "--param-group: no parameter matches '%s'", pattern_text);
}

/* Goes from the last parameter to the first: the last layer, norms after the blocks, the blocks, the stem. */
static lt_status decay_layers(const lt_params *params, lt_optim *optim, double decay,
                              const regex_t *block_name)
{
    const lt_param *last = params->item[params->count - 1];
    const char *block = "";
    double of_block = 1;
    size_t length = 0; /* bytes of the block's name; 0 before the last block */
    for (size_t i = params->count; i--;) {
        const lt_param *p = params->item[i];
        regmatch_t found[2];
        const bool is_block = !regexec(block_name, p->name, 2, found, 0);
        if (is_block && strncmp(p->name, block, length + 1) != 0) {
            length = (size_t)found[1].rm_eo;
            block = p->name;
            of_block *= decay;
        }
        const bool is_last = !length && are_siblings(p, last);
        const double scale = is_block ? of_block : is_last ? 1 : of_block * decay;
        if (lt_param_is_trained(p))
            LT_TRY(lt_optim_set_group(optim, p->name, (lt_optim_group){scale, (double)NAN}));
    }
    return length ? LT_OK
                  : lt_fail(LT_E_ARG, "--layer-decay: no parameter has a block's name, such as "
                                      "layer1.0., encoder.layers.encoder_layer_0. or h.0.");
}

lt_status lt_param_groups_apply(const lt_params *params, lt_optim *optim, double lr,
                                const group_options *o)
{
    regex_t blocks;
    lt_status st = LT_OK;
    if (o->layer_decay < 1) {
        if (regcomp(&blocks, BLOCKS, REG_EXTENDED))
            return lt_fail(LT_E_NOMEM, "--layer-decay: no memory for a pattern");
        st = decay_layers(params, optim, o->layer_decay, &blocks);
        regfree(&blocks);
    }
    for (size_t i = 0; i < o->param_group.count && !st; i++)
        st = apply_group(params, optim, lr, o->param_group.item[i]);
    return st;
}
