/* train_speedrun: trains networks of few wide convolutions on small images. */

#include "speedrun.h"

#include "lather/ext/fail.h"

#include <stdio.h>

typedef struct settings {
    const char *widths;
    speedrun_config net; /* set by resolve() */
} settings;

/* clang-format off */
static const lt_option option[] = {
{"Model", "widths", 0, LT_OPTION_STRING, offsetof(settings, widths), "32,64,128", .meta = "A,B,C", .common = true, .help = "channels of each of the three stages; multiples of 32 are fast"},
};
/* clang-format on */

static lt_status resolve(void *config, const lt_model_spec *spec, const lt_model_facts *known)
{
    settings *s = config;
    int *width = s->net.widths;
    char rest;
    (void)known;
    s->net = (speedrun_config){.channels = spec->channels,
                               .classes = spec->classes,
                               .size = spec->size,
                               .seed = spec->seed};
    /* NOLINTNEXTLINE(cert-err34-c): widths are checked later */
    if (sscanf(s->widths, "%d,%d,%d%c", &width[0], &width[1], &width[2], &rest) != SPEEDRUN_STAGES)
        return lt_fail(LT_E_ARG, "--widths: '%s' is not A,B,C, such as 32,64,128", s->widths);
    return LT_OK;
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    (void)spec;
    return speedrun_new(out, device, &((const settings *)config)->net);
}

static lt_status cost(const void *config, const lt_model_spec *spec, lt_model_cost *out)
{
    speedrun_config net = ((const settings *)config)->net;
    net.size = spec->size;
    speedrun_count_cost(out, &net);
    return LT_OK;
}

static const lt_model_family family = {
    .program = "train_speedrun",
    .name = "speedrun",
    .summary = "train small convolutional networks in minutes",
    .about = "Trains a network of few wide convolutions on images of up to 64 pixels.",
    .head = "fc.",
    .recipes = "models/speedrun/recipes",
    .recipe_names = "fashion-94, cifar10",
    .option = option,
    .options = sizeof option / sizeof *option,
    .config_bytes = sizeof(settings),
    .make = make,
    .resolve = resolve,
    .cost = cost,
};

int main(int argc, char **argv)
{
    return lt_classifier_main(argc, argv, &family);
}
