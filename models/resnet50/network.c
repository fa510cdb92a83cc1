/* Which network a run has: that of the checkpoint it goes on from, of --weights, or of the flags; and saying it, so
 * that weights, checkpoints and config.yaml tell it without the file that it came from. */

#include "session.h"

#include "lather/ext/fail.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static lt_status parse_depths(const char *text, int depths[LT_RESNET_STAGES])
{
    double value[LT_RESNET_STAGES];
    bool fits = arguments_numbers(text, value, LT_RESNET_STAGES) == LT_RESNET_STAGES;
    for (int i = 0; i < LT_RESNET_STAGES && fits; i++) {
        fits = value[i] <= INT_MAX && floor(value[i]) >= value[i];
        depths[i] = fits ? (int)value[i] : 0;
    }
    return fits ? LT_OK : lt_fail(LT_E_ARG, "--depths: '%s' is not A,B,C,D", text);
}

static lt_status choose_classes(session *s)
{
    const arguments *a = &s->args;
    int data = lt_dataset_classes(s->train_data ? s->train_data : s->val_data);
    s->shape.classes = a->num_classes ? (int)a->num_classes : data;
    if (data > s->shape.classes)
        return lt_fail(LT_E_ARG, "--num-classes %d: the data has %d", s->shape.classes, data);
    return LT_OK;
}

static bool any(const session *s, bool (*is)(const lt_options *options, const char *name))
{
    return is(s->options, "arch") || is(s->options, "depths") || is(s->options, "width")
           || is(s->options, "stem");
}

/* Without a flag for the network, it is that of --weights. */
static bool weights_decide(const session *s)
{
    return s->args.eval || (s->args.weights && !any(s, lt_options_is_set));
}

/* A checkpoint does so whatever its config.yaml says: earlier versions wrote resnet50 there for all --weights. */
static bool checkpoint_decides(const session *s)
{
    return s->folder[0] && !any(s, lt_options_is_typed);
}

/* Without a flag for the size, a network with ImageNet's stem gets ImageNet's size, however small the
 * pictures are. */
static lt_status shape_of_weights(session *s)
{
    int channels = lt_dataset_channels(s->val_data);
    LT_TRY(lt_resnet_infer(s->weights, &s->shape));
    if (s->origin[NOTE_IMAGE_SIZE] == FROM_USUAL && !s->shape.small_stem && weights_decide(s))
        LT_TRY(session_choose_input(s, IMAGENET_SIDE));
    if (channels == s->shape.channels)
        return LT_OK;
    return lt_fail(LT_E_SHAPE, "%s: the weights read %d channels, the pictures of %s have %d",
                   s->weights, s->shape.channels, s->args.data, channels);
}

const char *network_name(const lt_resnet_config *c)
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

/* What the flags would have said. */
static lt_status tell_options(session *s)
{
    const notes *n = &s->own;
    LT_TRY(lt_options_set(s->options, "arch", n->text[NOTE_ARCH]));
    if (!network_name(&s->shape))
        LT_TRY(lt_options_set(s->options, "depths", n->text[NOTE_DEPTHS]));
    LT_TRY(lt_options_set(s->options, "width", n->text[NOTE_WIDTH]));
    return lt_options_set(s->options, "stem", n->text[NOTE_STEM]);
}

static void print_number(session *s, note_key key, int value)
{
    snprintf(s->own.text[key], NOTE_BYTES, "%d", value);
}

/* Of other depths than the table's: the name that has these blocks. */
static lt_status describe(session *s)
{
    lt_resnet_config c = s->shape;
    LT_TRY(lt_resnet_resolve(&c));
    const char *name = network_name(&c);
    if (!name)
        name = c.bottleneck ? "resnet50" : "resnet18";
    snprintf(s->own.text[NOTE_ARCH], NOTE_BYTES, "%s", name);
    snprintf(s->own.text[NOTE_DEPTHS], NOTE_BYTES, "%d,%d,%d,%d", c.depths[0], c.depths[1],
             c.depths[2], c.depths[3]);
    snprintf(s->own.text[NOTE_STEM], NOTE_BYTES, "%s", c.small_stem ? "small" : "imagenet");
    print_number(s, NOTE_WIDTH, c.width);
    print_number(s, NOTE_CHANNELS, c.channels);
    print_number(s, NOTE_CLASSES, c.classes);
    return LT_OK;
}

static lt_status choose_shape(session *s)
{
    const arguments *a = &s->args;
    bool is_inferred = weights_decide(s) || checkpoint_decides(s);
    s->shape = (lt_resnet_config){
        .arch = a->arch,
        .width = (int)a->width,
        .channels = lt_dataset_channels(s->val_data),
        .small_stem = session_small_stem(s),
        .zero_init_last = a->zero_init_last,
        .seed = (uint64_t)a->seed,
    };
    if (is_inferred)
        LT_TRY(shape_of_weights(s));
    else if (a->depths)
        LT_TRY(parse_depths(a->depths, s->shape.depths));
    if (!a->eval)
        LT_TRY(choose_classes(s));
    LT_TRY(describe(s));
    return is_inferred && !a->eval ? tell_options(s) : LT_OK;
}

/* A file that does not fit says what it is, if it is something else; else what may be meant. */
static lt_status explain_weights(const session *s, lt_status failure)
{
    char why[512];
    lt_resnet_config found;
    snprintf(why, sizeof why, "%s", lt_error_message());
    LT_TRY(lt_resnet_infer(s->args.weights, &found));
    bool head = !s->args.reset_head && found.classes != s->shape.classes;
    return lt_fail(failure, "%s%s", why,
                   head ? "; --reset-head keeps the rest and makes a new last layer" : "");
}

/* A checkpoint has weights of its own. */
static lt_status load_weights(session *s)
{
    lt_weights_config config = {.skip = s->args.reset_head ? "fc." : NULL};
    if (!s->args.weights || s->folder[0])
        return LT_OK;
    lt_status st = lt_weights_load(s->args.weights, &s->params, &config);
    return st ? explain_weights(s, st) : LT_OK;
}

lt_status session_open_model(session *s)
{
    LT_TRY(choose_shape(s));
    LT_TRY(lt_resnet_new(&s->model, s->device, &s->shape));
    LT_TRY(lt_module_params(s->model, &s->params));
    LT_TRY(load_weights(s));
    return lt_tape_new(&s->tape, s->device);
}
