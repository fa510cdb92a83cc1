/* From the options of train_resnet50, or a file of weights, to a network, and what tells it from others. */

#include "settings.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGENET_SIDE = 224, SMALL_SIDE = 64, USUAL_WIDTH = 64 };

static lt_status parse_depths(const char *text, int depth[LT_RESNET_STAGES])
{
    const char *at = text;
    for (int i = 0; i < LT_RESNET_STAGES; i++) {
        char *end;
        double value = strtod(at, &end);
        bool whole = value >= 0 && value <= INT32_MAX && value <= (double)(int)value;
        if (end == at || !whole || *end != (i < LT_RESNET_STAGES - 1 ? ',' : 0))
            return lt_fail(LT_E_ARG, "--depths: '%s' is not A,B,C,D", text);
        depth[i] = (int)value;
        at = end + 1;
    }
    return LT_OK;
}

/* The stem: by --stem, else by the metadata of --weights, else by size. */
lt_status settings_resolve(void *config, const lt_model_spec *spec, const lt_model_facts *known)
{
    settings *s = config;
    const char *text = lt_model_fact_text(known, "stem");
    s->small_stem = *text ? !strcmp(text, "small") : spec->size <= SMALL_SIDE;
    if (s->stem != STEM_AUTO)
        s->small_stem = s->stem == STEM_SMALL;
    return s->depths && *s->depths ? parse_depths(s->depths, s->depth) : LT_OK;
}

lt_resnet_config settings_config(const void *config, const lt_model_spec *spec)
{
    const settings *s = config;
    lt_resnet_config c = {
        .arch = s->arch,
        .width = (int)s->width,
        .classes = spec->classes,
        .channels = spec->channels,
        .small_stem = s->small_stem,
        .zero_init_last = s->zero_init_last,
        .seed = spec->seed,
    };
    memcpy(c.depths, s->depth, sizeof c.depths);
    return c;
}

lt_status settings_make(lt_module **out, lt_device *device, const void *config,
                        const lt_model_spec *spec)
{
    lt_resnet_config c = settings_config(config, spec);
    return lt_resnet_new(out, device, &c);
}

lt_status settings_cost(const void *config, const lt_model_spec *spec, lt_model_cost *out)
{
    lt_resnet_config c = settings_config(config, spec);
    return lt_resnet_count(out, &c, spec->size);
}

/* The name in the table of a network whose depths are known; NULL: it has none. */
static const char *find_name(const lt_resnet_config *c)
{
    const char *name;
    for (int i = 0; (name = lt_resnet_arch_name(i)); i++) {
        lt_resnet_config known = {.arch = name, .classes = 1};
        if (!lt_resnet_resolve(&known) && known.bottleneck == c->bottleneck
            && !memcmp(known.depths, c->depths, sizeof c->depths))
            return name;
    }
    return NULL;
}

/* c is resolved. Of other depths than the table's: the name that has these blocks. */
static void put_facts(lt_model_facts *out, const lt_resnet_config *c, const char *depths)
{
    const char *name = find_name(c), *kind = c->bottleneck ? "resnet50" : "resnet18";
    lt_model_fact_put(out, "arch", "%s", name ? name : kind);
    lt_model_fact_put(out, "depths", "%s", depths);
    lt_model_fact_put(out, "width", "%d", c->width);
    lt_model_fact_put(out, "stem", "%s", c->small_stem ? "small" : "imagenet")->input = true;
}

static void print_depths(char text[LT_FACT_BYTES], const int d[LT_RESNET_STAGES])
{
    snprintf(text, LT_FACT_BYTES, "%d,%d,%d,%d", d[0], d[1], d[2], d[3]);
}

/* "resnet18", or "resnet 1-1-2-1" where the table has none such; with the width if that is not 64. */
lt_status settings_describe(const void *config, const lt_model_spec *spec, lt_model_facts *out)
{
    const char *const stem[] = {"imagenet", "small"};
    char width[LT_FACT_BYTES] = "";
    lt_resnet_config c = settings_config(config, spec);
    LT_TRY(lt_resnet_resolve(&c));
    const int *d = c.depths;
    char depths[LT_FACT_BYTES], title[LT_FACT_BYTES];
    print_depths(depths, d);
    snprintf(title, sizeof title, "resnet %d-%d-%d-%d", d[0], d[1], d[2], d[3]);
    put_facts(out, &c, depths);
    if (c.width != USUAL_WIDTH)
        snprintf(width, sizeof width, " of width %d", c.width);
    const char *name = find_name(&c);
    snprintf(out->title, sizeof out->title, "%.26s%.15s, %s stem", name ? name : title, width,
             stem[c.small_stem]);
    return LT_OK;
}

/* Without a flag for the size, a network with ImageNet's stem gets ImageNet's size, however small the
 * images are. */
lt_status settings_infer(const char *path, lt_model_facts *out, lt_model_spec *spec)
{
    char depths[LT_FACT_BYTES] = "";
    lt_resnet_config c = {0};
    LT_TRY(lt_resnet_infer(path, &c));
    spec->channels = c.channels;
    spec->classes = c.classes;
    spec->size = c.small_stem ? 0 : IMAGENET_SIDE;
    if (!find_name(&c)) /* else arch says them */
        print_depths(depths, c.depths);
    put_facts(out, &c, depths);
    return LT_OK;
}
