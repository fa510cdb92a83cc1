/* A training program of your own: images that the program makes in memory, and a small convolutional network for them.
 * The library has the rest: flags, batches, Shampoo, evaluation, checkpoints, resuming, ranks (docs/guides/train-your-own-model.md).
 *
 *     cc train.c $(pkg-config --cflags --libs lather) -lm -o train
 *     ./train --data stripes --optim shampoo --batch-size 32 --epochs 2 --output run
 *     ./train --data stripes --optim shampoo --batch-size 32 --epochs 4 --output run --resume auto */

#include "lather/ext/dataset.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/trainer.h"

#include <stdlib.h>
#include <string.h>

/* --- The data: stripes across, down and aslant, under noise --- */

enum { SIDE = 16, PIXELS = SIDE * SIDE, CLASSES = 3, TRAIN = 1536, EVAL = 384 };
typedef struct stripes {
    lt_dataset base;
    uint8_t pixel[TRAIN][PIXELS];
} stripes;

static void draw_stripes(uint8_t *pixel, int label, unsigned *random)
{
    const int width = 2 + rand_r(random) % 4, shift = rand_r(random) % 8;
    for (int i = 0; i < PIXELS; i++) {
        const int y = i / SIDE, x = i % SIDE, along[CLASSES] = {y, x, x + y};
        pixel[i] = (uint8_t)(60 + (along[label] + shift) / width % 2 * 60 + rand_r(random) % 128);
    }
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    LT_TRY(lt_record_reserve(record, PIXELS));
    memcpy(record->bytes, ((const stripes *)self)->pixel[index], PIXELS);
    record->size = PIXELS;
    record->encoding = LT_ENCODING_PLANES;
    record->width = record->height = SIDE;
    record->channels = 1;
    record->label = (int32_t)(index % CLASSES);
    return LT_OK;
}

static lt_status open_stripes(lt_dataset **out, const char *spec, bool train)
{
    static const lt_dataset_ops ops = {"stripes", sizeof(stripes), .read = read_sample};
    unsigned random = train ? 1 : 2;
    (void)spec; /* "stripes" */
    LT_TRY(lt_dataset_new(out, &ops));
    (*out)->count = train ? TRAIN : EVAL;
    (*out)->classes = CLASSES;
    (*out)->channels = 1;
    for (int64_t i = 0; i < (*out)->count; i++)
        draw_stripes(((stripes *)*out)->pixel[i], (int)(i % CLASSES), &random);
    return LT_OK;
}

/* --- The model: two convolutions with batch norms, a mean over pixels, a linear layer --- */

typedef struct settings {
    int64_t width;
} settings;
static const lt_option width = {"Model",
                                "width",
                                0,
                                LT_OPTION_INT,
                                offsetof(settings, width),
                                "8",
                                1,
                                1024,
                                .help = "channels of the first convolution"};

static lt_status add_block(lt_module *model, lt_device *device, const char *conv, const char *norm,
                           lt_conv2d_layer shape)
{
    lt_module *layer = NULL;
    const lt_batchnorm2d_config relu = {.relu = true};
    LT_TRY(lt_layer_conv2d(&layer, device, conv, shape));
    LT_TRY(lt_sequential_add(model, &layer));
    LT_TRY(lt_layer_batchnorm2d(&layer, device, norm, shape.out, relu));
    return lt_sequential_add(model, &layer);
}

static lt_status add_layers(lt_module *model, lt_device *device, int width,
                            const lt_model_spec *spec)
{
    lt_module *pool = NULL, *flatten = NULL, *linear = NULL;
    LT_TRY(add_block(model, device, "conv1", "bn1",
                     (lt_conv2d_layer){.in = spec->channels, .out = width, .kernel = 3, .pad = 1}));
    LT_TRY(add_block(model, device, "conv2", "bn2",
                     (lt_conv2d_layer){.in = width, .out = 2 * width, .kernel = 3, .stride = 2}));
    LT_TRY(lt_layer_avgpool2d(&pool, (lt_pool2d_config){0})); /* over the whole image */
    LT_TRY(lt_sequential_add(model, &pool));
    LT_TRY(lt_layer_flatten(&flatten));
    LT_TRY(lt_sequential_add(model, &flatten));
    LT_TRY(lt_layer_linear(&linear, device, "fc", 2 * width, spec->classes, true));
    LT_TRY(lt_sequential_add(model, &linear));
    return lt_init_module(model, spec->seed);
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    LT_TRY(lt_layer_sequential(out));
    return add_layers(*out, device, (int)((const settings *)config)->width, spec);
}

int main(int argc, char **argv)
{
    static const lt_dataset_kind kind = {"stripes", open_stripes};
    static const lt_model_family family = {.program = "train",
                                           .name = "small-cnn",
                                           .head = "fc.",
                                           .option = &width,
                                           .options = 1,
                                           .config_bytes = sizeof(settings),
                                           .make = make};
    return lt_dataset_register(&kind) ? 1 : lt_classifier_main(argc, argv, &family);
}
