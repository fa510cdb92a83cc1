/* How images become inputs. Each setting comes from the flag, else from the metadata of --weights, else it is the
 * usual one of this data or network; what is in force goes into the metadata of the weights that a run writes. */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 4096, NONE = -1 };

static const char *const filter_name[] = {
    [LT_FILTER_BILINEAR] = "bilinear", [LT_FILTER_BICUBIC] = "bicubic"};
static const char *const augment_name[] = {
    [LT_AUGMENT_NONE] = "none", [LT_AUGMENT_IMAGENET] = "imagenet", [LT_AUGMENT_SMALL] = "small"};

/* What the weights say; "": nothing. */
static const char *known(const classifier *s, metadata_key key)
{
    return s->known.text[key];
}

static lt_status fail_metadata(metadata_key key, const char *text, const char *want)
{
    char shown[NAME_TEXT], flag[META_BYTES];
    snprintf(flag, sizeof flag, "%s", lt_metadata_name[key]);
    for (char *c = flag; (c = strchr(c, '_'));)
        *c = '-'; /* as in the name of the option */
    return lt_fail(LT_E_FORMAT, "the weights' metadata: %s '%s', want %s; --%s overrides it",
                   lt_metadata_name[key], lt_text_escape(shown, sizeof shown, text), want, flag);
}

/* A number of the weights' metadata in least..most. */
static lt_status parse(metadata_key key, const char *text, double least, double most, double *value)
{
    char *end, want[META_BYTES];
    *value = strtod(text, &end);
    if (end != text && !*end && *value >= least && *value <= most)
        return LT_OK;
    snprintf(want, sizeof want, "a number in %g..%g", least, most);
    return fail_metadata(key, text, want);
}

static int find(const char *const *names, int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], text))
            return i;
    return NONE;
}

/* --- Each setting --- */

static lt_status choose_size(classifier *s, int usual)
{
    const arguments *a = &s->args;
    const char *text = known(s, META_IMAGE_SIZE);
    s->origin[META_IMAGE_SIZE] = FROM_FLAG;
    if (a->image_size_schedule)
        LT_TRY(lt_size_schedule_parse(&s->sizes, a->image_size_schedule));
    s->transform.size = (int)a->image_size;
    if (!s->transform.size && s->sizes.count)
        s->transform.size = s->sizes.step[s->sizes.count - 1].size;
    if (!s->transform.size && *text) {
        double side;
        LT_TRY(parse(META_IMAGE_SIZE, text, 1, MOST_SIDE, &side));
        s->transform.size = (int)side;
        s->origin[META_IMAGE_SIZE] = FROM_WEIGHTS;
    } else if (!s->transform.size) {
        s->transform.size = usual;
        s->origin[META_IMAGE_SIZE] = FROM_USUAL;
    }
    snprintf(s->own.text[META_IMAGE_SIZE], META_BYTES, "%d", s->transform.size);
    return LT_OK;
}

/* The share that the centre crop keeps; 0: the usual one. */
static lt_status choose_crop(classifier *s)
{
    const double least = 1e-3;
    const char *text = known(s, META_CROP_PCT);
    s->crop = s->args.crop_pct;
    s->origin[META_CROP_PCT] = s->crop > 0 ? FROM_FLAG : FROM_USUAL;
    if (s->crop > 0 || !*text)
        return LT_OK;
    s->origin[META_CROP_PCT] = FROM_WEIGHTS;
    return parse(META_CROP_PCT, text, least, 1, &s->crop);
}

/* The shortest number that has the same effect as s->crop, or as the usual resizing of this size. */
static void print_crop(classifier *s)
{
    enum { MOST_DIGITS = 17 };
    const double around = 256, size = s->transform.size;
    bool small = s->transform.size <= SMALL_SIDE;
    double usual = small ? size : floor(size * around / IMAGENET_SIDE + 0.5); /* before the crop */
    char *text = s->own.text[META_CROP_PCT];
    for (int digits = 1; digits <= MOST_DIGITS; digits++) {
        snprintf(text, META_BYTES, "%.*g", digits, s->crop > 0 ? s->crop : size / usual);
        const double crop = strtod(text, NULL), side = floor(size / crop);
        if (s->crop > 0 ? crop >= s->crop && crop <= s->crop : side >= usual && side <= usual)
            return;
    }
}

static lt_status choose_filter(classifier *s)
{
    enum { FILTERS = sizeof filter_name / sizeof *filter_name };
    const char *text = known(s, META_INTERPOLATION);
    int filter = s->args.interpolation - FILTER_BILINEAR;
    s->origin[META_INTERPOLATION] = FROM_FLAG;
    if (s->args.interpolation == FILTER_AUTO) {
        s->origin[META_INTERPOLATION] = *text ? FROM_WEIGHTS : FROM_USUAL;
        filter = *text ? find(filter_name, FILTERS, text) : LT_FILTER_BILINEAR;
    }
    if (filter == NONE)
        return fail_metadata(META_INTERPOLATION, text, "bilinear or bicubic");
    s->transform.filter = (lt_filter)filter;
    snprintf(s->own.text[META_INTERPOLATION], META_BYTES, "%s", filter_name[filter]);
    return LT_OK;
}

/* auto: as the weights were trained, if they were at this size; else by size. */
static lt_augment usual_augment(const classifier *s)
{
    enum { AUGMENTS = sizeof augment_name / sizeof *augment_name };
    int of_weights = find(augment_name, AUGMENTS, known(s, META_AUGMENT));
    if (of_weights != NONE && !strcmp(known(s, META_IMAGE_SIZE), s->own.text[META_IMAGE_SIZE]))
        return (lt_augment)of_weights;
    return s->transform.size <= SMALL_SIDE ? LT_AUGMENT_SMALL : LT_AUGMENT_IMAGENET;
}

static void choose_augmentation(classifier *s)
{
    static const lt_augment chosen[] = {LT_AUGMENT_NONE, LT_AUGMENT_NONE, LT_AUGMENT_IMAGENET,
                                        LT_AUGMENT_SMALL};
    s->transform.flip = s->args.flip;
    s->transform.trivial_augment = s->args.auto_augment != 0;
    s->transform.jitter = (lt_jitter){.brightness = s->args.color_jitter,
                                      .contrast = s->args.color_jitter,
                                      .saturation = s->args.color_jitter,
                                      .hue = s->args.color_jitter_hue};
    s->transform.erase = s->args.random_erase;
    s->transform.fast = s->args.decode != 0;
    s->transform.exif = s->args.exif != 0;
    s->transform.augment = chosen[s->args.augment];
    if (s->args.augment == AUGMENT_AUTO)
        s->transform.augment = usual_augment(s);
    if (s->args.overfit_batches)
        s->transform.augment = LT_AUGMENT_NONE;
    snprintf(s->own.text[META_AUGMENT], META_BYTES, "%s", augment_name[s->transform.augment]);
}

lt_status lt_classifier_choose_input(classifier *s, int usual)
{
    LT_TRY(choose_size(s, usual));
    LT_TRY(choose_crop(s));
    LT_TRY(choose_filter(s));
    print_crop(s);
    s->transform.limits =
        (lt_image_limits){.pixels = s->args.max_image_pixels, .seconds = s->args.max_image_seconds};
    choose_augmentation(s);
    return LT_OK;
}

/* --- What comes of it --- */

int lt_classifier_train_side(const classifier *s, int64_t epoch)
{
    return s->sizes.count ? lt_size_schedule_at(&s->sizes, epoch) : s->transform.size;
}

int lt_classifier_largest_side(const classifier *s)
{
    int side = s->transform.size;
    for (int i = 0; i < s->sizes.count; i++)
        side = s->sizes.step[i].size > side ? s->sizes.step[i].size : side;
    return side;
}

lt_transform lt_classifier_eval_transform(const classifier *s)
{
    lt_transform t = {.augment = LT_AUGMENT_NONE,
                      .size = s->transform.size,
                      .crop_ratio = s->crop,
                      .filter = s->transform.filter,
                      .exif = s->args.exif != 0,
                      .limits = s->transform.limits};
    if (t.size <= SMALL_SIDE && t.crop_ratio <= 0)
        t.resize = t.size; /* nothing to cut off */
    return t;
}

void lt_classifier_describe_input(const classifier *s)
{
    static const char *const from[] = {
        [FROM_USUAL] = "default", [FROM_FLAG] = "flag", [FROM_WEIGHTS] = "weights"};
    char other[3 * META_BYTES] = "";
    const char *side = known(s, META_IMAGE_SIZE), *own = s->own.text[META_IMAGE_SIZE];
    if (*side && strcmp(side, own) != 0) {
        char shown[META_BYTES];
        lt_text_escape(shown, sizeof shown, side);
        snprintf(other, sizeof other, "; the weights were trained at %s x %s", shown, shown);
    }
    lt_log(LT_LOG_INFO, "model", "%s, %s x %s pixels (%s), crop %s (%s), %s (%s)%s",
           s->choice.facts.title, own, own, from[s->origin[META_IMAGE_SIZE]],
           s->own.text[META_CROP_PCT], from[s->origin[META_CROP_PCT]],
           s->own.text[META_INTERPOLATION], from[s->origin[META_INTERPOLATION]], other);
}

/* The weights of the model that the file belongs to. */
static lt_status open_model(classifier *s, const char *path)
{
    family_choice *c = &s->choice;
    lt_model_facts found = {0};
    LT_TRY(lt_family_open_options(c));
    LT_TRY(lt_family_infer(c, path, &found, &c->spec));
    LT_TRY(lt_family_adopt(c, &found));
    LT_TRY(lt_family_resolve(c, path));
    LT_TRY(c->family->make(&s->model, s->device, c->config, &c->spec));
    return lt_weights_load_model(path, s->model);
}

lt_status lt_classifier_open_weights(classifier *s, const char *path)
{
    const int mnist = 28, cifar = 32; /* sides of images */
    const lt_model_spec *spec = &s->choice.spec;
    LT_TRY(open_model(s, path));
    LT_TRY(lt_metadata_read(&s->known, path));
    LT_TRY(lt_classifier_choose_pixels(s, spec->channels));
    int small = spec->channels == 1 ? mnist : cifar;
    LT_TRY(lt_classifier_choose_input(s, spec->size ? spec->size : small));
    lt_classifier_describe_input(s);
    return LT_OK;
}
