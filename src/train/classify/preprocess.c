/* Preprocessing of images. Each setting comes from a flag, otherwise from the metadata of --weights, otherwise it
 * is the default for this data or network. The settings used are stored in the metadata of the weights that a run
 * writes. */

#include "train/classify/classifier.h"
#include "train/loop/option_rows.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF image_options
/* clang-format off */
static const lt_option rows[] = {
{"Data", TEXT("val-split", val_split), .meta = "FRACTION", .common = true, .also = "val-fraction validation-split", .help = "fraction of each class's training images to evaluate on instead of training on them, such as 0.1; default: evaluate the data's own validation part"},
{"Data", TEXT("val-split-seed", val_split_seed), .meta = "N", .applies = "--val-split", .help = "choice of the images that are held back; --seed does not change it; default: 0"},
{"Data", TEXT("labels", labels), .meta = "FILE", .help = "labels of the images below --data: CSV with a header, or JSON lines; images are named by path or file name, with or without extension"},
{"Data", TEXT("labels-columns", labels_columns), .meta = "IMAGE,LABEL", .applies = "--labels", .help = "names of the two columns that --labels reads; default: usual ones (image, filename, id, ...; label, class, category, ...), or the only two"},
{"Data", TEXT("val-labels", val_labels), .meta = "FILE", .help = "labels of the images in a flat val/: FILE LABEL per line, or LABEL for the files in the order of their names; a label is a class name, a number from 0, or a number of ILSVRC2012_validation_ground_truth.txt with map_clsloc.txt in the same folder; with --labels: a file like that, of the images to evaluate"},
{"Data", PICK("augment", augment, "auto|none|imagenet|small"), .common = true, .help = "random crops and flips; auto: as --weights of this size were trained, otherwise small up to 64 pixels, imagenet above"},
{"Data", NUM("flip", flip, 0, 1), .value = "0.5", .also = "hflip", .applies = "--augment=auto|imagenet|small", .help = "probability of a horizontal flip"},
{"Data", NUM("vflip", vflip, 0, 1), .value = "0", .applies = "--augment=auto|imagenet|small", .help = "probability of a vertical flip"},
{"Data", TEXT("scale", scale), .value = "0.08,1", .meta = "LOW,HIGH", .applies = "--augment=auto|imagenet", .help = "area of the random crop, as a fraction of the image"},
{"Data", TEXT("ratio", ratio), .value = "0.75,1.3333333333333333", .meta = "LOW,HIGH", .applies = "--augment=auto|imagenet", .help = "width of the random crop over its height"},
{"Data", NUM("rotation", rotation, 0, 180), .value = "0", .applies = "--augment=auto|imagenet|small", .help = "maximum angle of a random rotation, in degrees"},
{"Data", TEXT("auto-augment", auto_augment), .value = "none", .meta = "none|ta_wide|ra[:N[:M]]", .common = true, .also = "aa", .applies = "--augment=auto|imagenet|small", .help = "random operations on each image: ta_wide: one, with random strength (TrivialAugmentWide); ra: RandAugment, N operations with strength M, of torchvision's 31: ra:2:9"},
{"Data", NUM("color-jitter", color_jitter, 0, LT_JITTER_MOST), .value = "0", .applies = "--augment=auto|imagenet|small", .help = "maximum change of brightness, contrast and saturation, as a factor"},
{"Data", NUM("grayscale-prob", grayscale, 0, 1), .value = "0", .applies = "--augment=auto|imagenet|small", .help = "probability of turning an image grey"},
{"Data", NUM("gaussian-blur-prob", blur, 0, 1), .value = "0", .applies = "--augment=auto|imagenet|small", .help = "probability of a Gaussian blur by 0.1 to 2 pixels"},
{"Data", NUM("random-erase", random_erase, 0, 1), .value = "0", .also = "reprob", .applies = "--augment=auto|imagenet|small", .help = "probability of erasing a random rectangle"},
{"Data", NUM("mixup-alpha", mixup_alpha, 0, 100), .value = "0", .also = "mixup", .common = true, .help = "mix images and targets; parameter of the Beta distribution; 0: off"},
{"Data", NUM("cutmix-alpha", cutmix_alpha, 0, 100), .value = "0", .also = "cutmix", .help = "paste a part of another image into each; with --mixup-alpha: one of both at random; 0: off"},
{"Data", PICK("exif", exif, "off|on"), .help = "rotate JPEG images by their EXIF orientation; off: pixels as stored, as torchvision's ImageFolder reads them"},
{"Data", TEXT("mean", mean), .meta = "R,G,B", .help = "per-channel mean subtracted from pixels in [0,1]; default: the weights', otherwise ImageNet's, for one channel Fashion-MNIST's"},
{"Data", TEXT("std", std), .meta = "R,G,B", .help = "per-channel standard deviation that pixels are divided by; default: as for --mean"},
{"Data", INT("image-size", image_size, 0, LT_TRANSFORM_MOST_SIZE), .value = "0", .common = true, .also = "img-size", .help = "side of the input in pixels; 0: as --weights were trained, otherwise the images' own up to 64 pixels, otherwise 224"},
{"Data", TEXT("image-size-schedule", image_size_schedule), .meta = "EPOCH:SIZE,...", .help = "progressive resizing: side of the training input from these epochs on, the first from 0; evaluations use --image-size, otherwise the last"},
{"Data", INT("repeated-aug", repeated_aug, 1, 1000), .value = "1", .help = "visits of each image per epoch, each with a different augmentation; an epoch then has as many fewer images"},
{"Data", PICK("interpolation", interpolation, "auto|bilinear|bicubic"), .help = "resizing filter, antialiased, in training and evaluation; auto: the weights', otherwise bilinear"},
{"Data", NUM("crop-pct", crop_pct, 0, 1), .value = "0", .help = "evaluation: fraction of the short side that the center crop keeps; 0: the weights', otherwise 224 of 256 (0.875), or all up to 64 pixels"},
{"Data", PICK("decode", decode, "exact|fast"), .help = "fast: decode large crops of JPEG training images at 1/2, 1/4 or 1/8 of their size"},
{"Data", TEXT("cache-ram", cache_ram), .meta = "SIZE", .after = "shuffle", .help = "memory for decoded training images, in bytes per rank: 500M, 16G; default: no cache"},
{"Data", INT("max-bad-images", max_bad_images, -1, MANY), .value = "100", .after = "cache-ram", .help = "corrupt images to skip before the run ends; -1: any number"},
{"Data", INT("max-image-pixels", max_image_pixels, 1, MANY), .value = "100000000", .after = "max-bad-images", .help = "maximum width times height of an image; larger ones count as corrupt"},
{"Data", NUM("max-image-seconds", max_image_seconds, 0.001, MANY), .value = "10", .after = "max-image-pixels", .help = "maximum core seconds to decode an image, except WebP and AVIF; slower ones count as corrupt"},
};
/* clang-format on */
OPTION_TABLE(lt_image_option_table, image_options, rows)

enum { NONE = -1, CHANNELS = 3 };
static const double white = 255;

static const char *const filter_name[] = {
    [LT_FILTER_BILINEAR] = "bilinear", [LT_FILTER_BICUBIC] = "bicubic"};
static const char *const augment_name[] = {
    [LT_AUGMENT_NONE] = "none", [LT_AUGMENT_IMAGENET] = "imagenet", [LT_AUGMENT_SMALL] = "small"};

/* Returns a setting of the weights' metadata; "" if absent. */
static const char *weights_metadata(const classifier *s, metadata_key key)
{
    return s->known.text[key];
}

static lt_status fail_metadata(metadata_key key, const char *text, const char *want)
{
    char shown[NAME_TEXT], flag[META_BYTES];
    snprintf(flag, sizeof flag, "%s", lt_metadata_name[key]);
    for (char *c = flag; (c = strchr(c, '_'));)
        *c = '-'; /* option names have dashes */
    return lt_fail(LT_E_FORMAT, "the weights' metadata: %s '%s', expected %s; --%s overrides it",
                   lt_metadata_name[key], lt_text_escape(shown, sizeof shown, text), want, flag);
}

/* Parses a number of the weights' metadata in least..most. */
static lt_status parse_metadata_number(metadata_key key, const char *text, double least,
                                       double most, double *value)
{
    char *end, want[META_BYTES];
    *value = strtod(text, &end);
    if (end != text && !*end && *value >= least && *value <= most)
        return LT_OK;
    snprintf(want, sizeof want, "a number in %g..%g", least, most);
    return fail_metadata(key, text, want);
}

static int find_name(const char *const *names, int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], text))
            return i;
    return NONE;
}

/* --- Each setting --- */

static lt_status choose_size(classifier *s, int usual)
{
    const image_options *o = &s->args.images;
    const char *text = weights_metadata(s, META_IMAGE_SIZE);
    s->origin[META_IMAGE_SIZE] = FROM_FLAG;
    if (o->image_size_schedule)
        LT_TRY(lt_size_schedule_parse(&s->sizes, o->image_size_schedule));
    s->transform.size = (int)o->image_size;
    if (!s->transform.size && s->sizes.count)
        s->transform.size = s->sizes.step[s->sizes.count - 1].size;
    if (!s->transform.size && *text) {
        double side;
        LT_TRY(parse_metadata_number(META_IMAGE_SIZE, text, 1, LT_TRANSFORM_MOST_SIZE, &side));
        s->transform.size = (int)side;
        s->origin[META_IMAGE_SIZE] = FROM_WEIGHTS;
    } else if (!s->transform.size) {
        s->transform.size = usual;
        s->origin[META_IMAGE_SIZE] = FROM_USUAL;
    }
    snprintf(s->own.text[META_IMAGE_SIZE], META_BYTES, "%d", s->transform.size);
    return LT_OK;
}

/* Sets the fraction that the center crop keeps; 0: default. */
static lt_status choose_crop(classifier *s)
{
    const double least = 1e-3;
    const char *text = weights_metadata(s, META_CROP_PCT);
    s->crop = s->args.images.crop_pct;
    s->origin[META_CROP_PCT] = s->crop > 0 ? FROM_FLAG : FROM_USUAL;
    if (s->crop > 0 || !*text)
        return LT_OK;
    s->origin[META_CROP_PCT] = FROM_WEIGHTS;
    return parse_metadata_number(META_CROP_PCT, text, least, 1, &s->crop);
}

/* Writes the shortest number with the same effect as s->crop, or as the default resizing for this size. */
static void format_crop_ratio(classifier *s)
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
    const char *text = weights_metadata(s, META_INTERPOLATION);
    int filter = s->args.images.interpolation - FILTER_BILINEAR;
    s->origin[META_INTERPOLATION] = FROM_FLAG;
    if (s->args.images.interpolation == FILTER_AUTO) {
        s->origin[META_INTERPOLATION] = *text ? FROM_WEIGHTS : FROM_USUAL;
        filter = *text ? find_name(filter_name, FILTERS, text) : LT_FILTER_BILINEAR;
    }
    if (filter == NONE)
        return fail_metadata(META_INTERPOLATION, text, "bilinear or bicubic");
    s->transform.filter = (lt_filter)filter;
    snprintf(s->own.text[META_INTERPOLATION], META_BYTES, "%s", filter_name[filter]);
    return LT_OK;
}

/* Returns the augmentation of --augment auto: the weights' if they were trained at this size, otherwise by size. */
static lt_augment resolve_auto_augment(const classifier *s)
{
    enum { AUGMENTS = sizeof augment_name / sizeof *augment_name };
    int of_weights = find_name(augment_name, AUGMENTS, weights_metadata(s, META_AUGMENT));
    if (of_weights != NONE
        && !strcmp(weights_metadata(s, META_IMAGE_SIZE), s->own.text[META_IMAGE_SIZE]))
        return (lt_augment)of_weights;
    return s->transform.size <= SMALL_SIDE ? LT_AUGMENT_SMALL : LT_AUGMENT_IMAGENET;
}

/* Parses an optional ":N" at *at, and advances past it. */
static bool take_number(const char **at, int least, int most, int *value)
{
    char *end;
    if (**at != ':')
        return true;
    const long number = strtol(*at + 1, &end, 10);
    const bool fits = end > *at + 1 && number >= least && number <= most;
    *value = (int)number;
    *at = end;
    return fits;
}

lt_status lt_parse_auto_augment(const image_options *o, bool *trivial, lt_rand_augment *rand)
{
    const char *text = o->auto_augment ? o->auto_augment : "none", *at;
    int operations = 2, magnitude = 9;
    *trivial = !strcmp(text, "ta_wide");
    *rand = (lt_rand_augment){0};
    if (*trivial || !strcmp(text, "none"))
        return LT_OK;
    at = text + (strncmp(text, "ra", strlen("ra")) ? 0 : strlen("ra"));
    if (at == text || !take_number(&at, 1, LT_RAND_AUGMENT_MOST_OPS, &operations)
        || !take_number(&at, 0, LT_RAND_AUGMENT_MOST, &magnitude) || *at)
        return lt_fail(LT_E_ARG,
                       "--auto-augment: expected none, ta_wide, ra, ra:N or ra:N:M with N "
                       "from 1 to %d, M from 0 to %d, got '%s'",
                       LT_RAND_AUGMENT_MOST_OPS, LT_RAND_AUGMENT_MOST, text);
    *rand = (lt_rand_augment){operations, magnitude};
    return LT_OK;
}

/* Parses LOW,HIGH; NULL, in commands without the option, leaves the default. */
static lt_status parse_range(const char *flag, const char *text, double *low, double *high)
{
    double number[2];
    if (!text)
        return LT_OK;
    if (lt_text_numbers(text, number, 2) != 2 || !(number[0] > 0 && number[0] <= number[1]))
        return lt_fail(LT_E_ARG, "--%s: '%s' is not LOW,HIGH with 0 < LOW <= HIGH", flag, text);
    *low = number[0];
    *high = number[1];
    return LT_OK;
}

static lt_status choose_augmentation(classifier *s)
{
    static const lt_augment chosen[] = {LT_AUGMENT_NONE, LT_AUGMENT_NONE, LT_AUGMENT_IMAGENET,
                                        LT_AUGMENT_SMALL};
    const image_options *o = &s->args.images;
    s->transform.flip = o->flip;
    s->transform.vflip = o->vflip;
    s->transform.rotation = o->rotation;
    s->transform.grayscale = o->grayscale;
    s->transform.blur = o->blur;
    LT_TRY(parse_range("scale", o->scale, &s->transform.min_scale, &s->transform.max_scale));
    LT_TRY(parse_range("ratio", o->ratio, &s->transform.min_ratio, &s->transform.max_ratio));
    LT_TRY(lt_parse_auto_augment(o, &s->transform.trivial_augment, &s->transform.rand_augment));
    s->transform.jitter = (lt_jitter){
        .brightness = o->color_jitter, .contrast = o->color_jitter, .saturation = o->color_jitter};
    s->transform.erase = o->random_erase;
    s->transform.fast = o->decode != 0;
    s->transform.exif = o->exif != 0;
    s->transform.augment = chosen[o->augment];
    if (o->augment == AUGMENT_AUTO)
        s->transform.augment = resolve_auto_augment(s);
    if (s->t->line.args.loader.overfit_batches)
        s->transform.augment = LT_AUGMENT_NONE;
    if (s->transform.augment == LT_AUGMENT_NONE) /* as in evaluations */
        s->transform.crop_ratio = lt_classifier_eval_transform(s).crop_ratio;
    snprintf(s->own.text[META_AUGMENT], META_BYTES, "%s", augment_name[s->transform.augment]);
    return LT_OK;
}

lt_status lt_classifier_choose_input(classifier *s, int usual)
{
    LT_TRY(choose_size(s, usual));
    LT_TRY(choose_crop(s));
    LT_TRY(choose_filter(s));
    format_crop_ratio(s);
    s->transform.limits = (lt_image_limits){.pixels = s->args.images.max_image_pixels,
                                            .seconds = s->args.images.max_image_seconds};
    LT_TRY(choose_augmentation(s));
    return LT_OK;
}

/* --- Resulting settings --- */

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
                      .exif = s->args.images.exif != 0,
                      .limits = s->transform.limits};
    if (t.size <= SMALL_SIDE && t.crop_ratio <= 0)
        t.crop_ratio = 1; /* no border to cut off */
    return t;
}

void lt_classifier_log_input(const classifier *s)
{
    static const char *const from[] = {
        [FROM_USUAL] = "default", [FROM_FLAG] = "flag", [FROM_WEIGHTS] = "weights"};
    char other[3 * META_BYTES] = "";
    const char *side = weights_metadata(s, META_IMAGE_SIZE), *own = s->own.text[META_IMAGE_SIZE];
    if (*side && strcmp(side, own) != 0) {
        char shown[META_BYTES];
        lt_text_escape(shown, sizeof shown, side);
        snprintf(other, sizeof other, "; the weights were trained at %s x %s", shown, shown);
    }
    lt_log(LT_LOG_INFO, "model", "%s, %s x %s pixels (%s), crop %s (%s), %s (%s)%s",
           lt_trainer_facts(s->t)->title, own, own, from[s->origin[META_IMAGE_SIZE]],
           s->own.text[META_CROP_PCT], from[s->origin[META_CROP_PCT]],
           s->own.text[META_INTERPOLATION], from[s->origin[META_INTERPOLATION]], other);
}

/* --- Pixels --- */

/* Writes the shortest "0.485,0.456,0.406" that reads back as the same floats. */
static void format_pixel_values(char text[META_BYTES], const float *value, int channels)
{
    enum { MOST_DIGITS = 9 }; /* enough for any float */
    size_t at = 0;
    for (int c = 0; c < channels; c++) {
        char number[32] = "";
        for (int digits = 3; digits <= MOST_DIGITS; digits++) {
            snprintf(number, sizeof number, "%.*g", digits, (double)value[c] / white);
            float again = (float)(white * strtod(number, NULL));
            if (again <= value[c] && again >= value[c])
                break;
        }
        at += (size_t)snprintf(text + at, META_BYTES - at, "%s%s", c ? "," : "", number);
    }
}

/* Parses numbers of pixels. what: source of the text, for messages. */
static lt_status parse_pixels(const char *what, const char *text, int channels, double least,
                              float *value)
{
    double number[CHANNELS];
    int count = lt_text_numbers(text, number, CHANNELS);
    bool fits = count == channels;
    for (int c = 0; c < count; c++)
        fits = fits && number[c] >= least && number[c] <= 1;
    if (!fits)
        return lt_fail(LT_E_ARG, "%s: '%s' is not %s in %g..1, of %d channels", what, text,
                       channels == 1 ? "a number" : "R,G,B", least, channels);
    for (int c = 0; c < channels; c++)
        value[c] = (float)(white * number[c]);
    return LT_OK;
}

/* Returns the default normalization: ImageNet's, or for one channel that of Fashion-MNIST's training part. */
static lt_normalize_config default_normalization(int channels)
{
    return channels == 1 ? (lt_normalize_config){.mean = {72.94F}, .deviation = {90.02F}}
                         : LT_NORMALIZE_IMAGENET;
}

/* Sets *value from the flag, otherwise from the weights; leaves it unchanged without either. */
static lt_status choose_pixel_values(const char *flag, const char *given, const char *known,
                                     int channels, double least, float *value)
{
    if (given)
        return parse_pixels(flag, given, channels, least, value);
    if (!*known || !parse_pixels(flag + strlen("--"), known, channels, least, value))
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "the weights' metadata: %s; %s overrides it", lt_error_message(),
                   flag);
}

lt_status lt_classifier_choose_mean_std(classifier *s, int channels)
{
    const double least_deviation = 1e-4;
    s->pixels = default_normalization(channels);
    LT_TRY(choose_pixel_values("--mean", s->args.images.mean, s->known.text[META_MEAN], channels, 0,
                               s->pixels.mean));
    LT_TRY(choose_pixel_values("--std", s->args.images.std, s->known.text[META_STD], channels,
                               least_deviation, s->pixels.deviation));
    format_pixel_values(s->own.text[META_MEAN], s->pixels.mean, channels);
    format_pixel_values(s->own.text[META_STD], s->pixels.deviation, channels);
    return LT_OK;
}

/* --- Weights without data --- */

lt_status lt_classifier_open_weights(classifier *s, const char *path, const char *device,
                                     int threads)
{
    const int mnist = 28, cifar = 32; /* sides of images */
    const lt_model_spec *spec = lt_trainer_spec(s->t);
    LT_TRY(lt_trainer_open_weights(s->t, path, device, threads));
    LT_TRY(lt_metadata_read(&s->known, path));
    LT_TRY(lt_classifier_choose_mean_std(s, spec->channels));
    int small = spec->channels == 1 ? mnist : cifar;
    LT_TRY(lt_classifier_choose_input(s, spec->size ? spec->size : small));
    lt_classifier_log_input(s);
    return LT_OK;
}
