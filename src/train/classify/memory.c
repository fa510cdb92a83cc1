/* What a run will need, said before its first step, and refused if the machine has not got it. */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"
#include "lather/shampoo_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double gib = 0x1p30;

/* Bytes of activations that live at the end of the forward pass: what backward reads. With cheap
 * recomputation the outputs of batch norm within blocks are made again; about half of
 * the recomputable is left. */
static double activation_bytes(const classifier *s, const lt_model_cost *cost)
{
    double item = s->args.training.amp == AMP_BF16 || s->args.training.amp == AMP_F16 ? 2 : 4;
    double outputs = (double)cost->recomputable * (s->args.training.recompute ? 0.5 : 1);
    double gradients = 3 * (double)cost->largest;
    return (double)s->args.training.batch_size * item * ((double)cost->kept + outputs + gradients);
}

/* Batches of pixels that a loader makes ahead. */
static double loader_bytes(const classifier *s)
{
    enum { SLOTS = 4 };
    double side = lt_classifier_largest_side(s);
    return SLOTS * (double)s->args.training.batch_size * s->choice.spec.channels * side * side;
}

/* First number after key in a file of the kernel's, or -1. */
static double read_number(const char *path, const char *key)
{
    char line[256];
    double value = -1;
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    while (value < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) {
            char *end;
            const double number = strtod(line + strlen(key), &end);
            value = end > line + strlen(key) ? number : -1; /* memory.max may say "max" */
        }
    fclose(f);
    return value;
}

/* Bytes that this process can still get: what the machine has free, and what its control group
 * leaves, whose file pages can be taken back. Negative: unknown. */
static double available_bytes(void)
{
    const double kib = 1024;
    double free = read_number("/proc/meminfo", "MemAvailable:") * kib;
    double limit = read_number("/sys/fs/cgroup/memory.max", "");
    double used = read_number("/sys/fs/cgroup/memory.current", "");
    double cached = read_number("/sys/fs/cgroup/memory.stat", "file ");
    if (limit < 0 || used < 0)
        return free;
    double rest = limit - used + (cached > 0 ? cached : 0);
    return free >= 0 && free < rest ? free : rest;
}

/* Of parameters and gradients. */
static double param_bytes(const classifier *s)
{
    double bytes = 0;
    for (size_t i = 0; i < s->params.count; i++) {
        const lt_param *p = s->params.item[i];
        bytes += (double)lt_tensor_bytes(p->value);
        bytes += p->grad ? (double)lt_tensor_bytes(p->grad) : 0;
    }
    return bytes;
}

/* Without the family's own count: the parameters alone. */
static lt_status count_cost(const classifier *s, int size, lt_model_cost *out)
{
    const family_choice *c = &s->choice;
    lt_model_spec spec = c->spec;
    spec.size = size;
    if (c->family->cost)
        return c->family->cost(c->config, &spec, out);
    *out = (lt_model_cost){0};
    for (size_t i = 0; i < s->params.count; i++)
        if (lt_param_is_trained(s->params.item[i]))
            out->params += lt_tensor_count(s->params.item[i]->value);
    return LT_OK;
}

lt_status lt_classifier_check_memory(const classifier *s)
{
    lt_model_cost cost;
    LT_TRY(count_cost(s, lt_classifier_largest_side(s), &cost));
    double need = activation_bytes(s, &cost) + loader_bytes(s), rest = available_bytes();
    if (!s->state.folder
             [0]) /* of a checkpoint it was read already, of a new run it is made in step 1 */
        need += (double)lt_optim_state_bytes(s->optim);
    rest /= s->ranks.local;
    if (rest < 0 || need <= rest)
        return LT_OK;
    return lt_fail(LT_E_NOMEM,
                   "memory: a step needs about %.1f GiB more, and %.1f GiB are free; a smaller "
                   "--batch-size with --grad-accum needs less",
                   need / gib, rest / gib);
}

/* Before its first roots Shampoo's updates are those of the grafted method: nothing else would show it. */
static void note_late_roots(classifier *s)
{
    const lt_shampoo_config *c = lt_shampoo_settings(s->optim);
    if (c && c->start_preconditioning_step > s->total_steps)
        lt_run_note(
            s->run,
            "shampoo: its first roots come at step %lld, and this run has %lld: none of its "
            "updates is preconditioned (--precondition-frequency, "
            "--start-preconditioning-step)",
            (long long)c->start_preconditioning_step, (long long)s->total_steps);
}

/* Options of the family that were left to it, and what they came to: " --stem small". */
static void list_resolved(const classifier *s, char *text, size_t size)
{
    char value[LT_FACT_BYTES];
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < s->choice.family->options && used < size; i++) {
        const char *name = s->choice.family->option[i].name,
                   *fact = lt_model_fact_text(&s->choice.facts, name);
        if (*fact && !strcmp(lt_options_text(s->options, name, value, sizeof value), "auto"))
            used += (size_t)snprintf(text + used, size - used, " --%s %s", name, fact);
    }
}

/* What --stem auto and --augment auto came to, as small images get another network and training. */
static void note_choices(const classifier *s)
{
    char resolved[NAME_TEXT] = "";
    static const char *const augment[] = {[LT_AUGMENT_NONE] = "none",
                                          [LT_AUGMENT_IMAGENET] = "imagenet",
                                          [LT_AUGMENT_SMALL] = "small"};
    const bool crops = s->args.images.augment == AUGMENT_AUTO && !s->args.loader.overfit_batches;
    if (!s->args.weights)
        list_resolved(s, resolved, sizeof resolved);
    if (*resolved || crops)
        lt_run_note(s->run, "chosen by the size of the input:%s%s%s%s", resolved,
                    *resolved && crops ? "," : "", crops ? " --augment " : "",
                    crops ? augment[s->transform.augment] : "");
}

lt_status lt_classifier_summary(classifier *s)
{
    const double train_factor = 3; /* backward costs two forward passes */
    lt_model_cost cost;
    LT_TRY(count_cost(s, s->transform.size, &cost));
    if (s->ranks.count > 1)
        lt_run_note(s->run, "%d ranks, %d compute threads on rank 0, %lld images in an update",
                    s->ranks.count, lt_device_threads(s->device),
                    (long long)s->state.now.global_batch);
    double held = param_bytes(s) + (double)lt_optim_state_bytes(s->optim);
    if (s->choice.family->cost)
        lt_run_note(s->run, "%s: %.2f M parameters, %.3f GFLOP per image of %d x %d to train",
                    lt_family_arch(&s->choice), 1e-6 * (double)cost.params,
                    2e-9 * train_factor * (double)cost.multiply_adds, s->transform.size,
                    s->transform.size);
    else
        lt_run_note(s->run, "%s: %.2f M parameters", lt_family_arch(&s->choice),
                    1e-6 * (double)cost.params);
    note_choices(s);
    char more[64] = "";
    if (s->choice.family->cost)
        snprintf(more, sizeof more, ", about %.2f GiB more in a step",
                 (activation_bytes(s, &cost) + loader_bytes(s)) / gib);
    lt_run_note(s->run, "memory: %.2f GiB parameters, gradients and %s state%s", held / gib,
                lt_optim_name(s->optim), more);
    note_late_roots(s);
    return lt_blocks_report(s->optim, s->run, s->ranks.rank, s->args.output.verbose);
}
