/* train_resnet50 export --weights FILE --output MODEL.onnx: writes network and weights for other runtimes. */

#include "train/classify/classifier.h"
#include "train/weights/onnx.h"

#include "lather/ext/fail.h"

typedef struct export_arguments {
    const char *weights, *output;
    image_options images; /* the subset that export has */
} export_arguments;

#define AT(field) .offset = offsetof(export_arguments, field)

/* clang-format off */
static const lt_option table[] = {
{"Options", .name = "weights", .type = LT_OPTION_STRING, AT(weights), .meta = "FILE", .help = "safetensors file written by training"},
{"Options", .name = "output", .alias = 'o', .type = LT_OPTION_STRING, AT(output), .meta = "FILE", .help = "ONNX file to write"},
{"Options", .name = "image-size", .type = LT_OPTION_INT, AT(images.image_size), .value = "0", .min = 0, .max = LT_TRANSFORM_MOST_SIZE, .help = "side of the input in pixels; 0: as in predict"},
{"Options", .name = "mean", .type = LT_OPTION_STRING, AT(images.mean), .meta = "R,G,B", .help = "mean for the metadata; default: from the weights"},
{"Options", .name = "std", .type = LT_OPTION_STRING, AT(images.std), .meta = "R,G,B", .help = "standard deviation for the metadata; default: from the weights"},
};
/* clang-format on */

static const lt_program program = {
    .summary = "write a network and its weights as ONNX",
    .usage = "--weights FILE --output MODEL.onnx",
    .description =
        "Input images [N,C,size,size], f32 RGB or grey, (pixel / 255 - mean) / std; output logits "
        "[N,classes]. N is free. Opset 13. The metadata are those of the weights: class_names,  "
        "mean, std, image_size, crop_pct, interpolation.\n\n"
        "Exit status: 0 done, 1 an error, 2 a wrong command line.",
    .option = table,
    .count = sizeof table / sizeof *table,
};

static lt_status write_model(classifier *s, const char *path)
{
    lt_metadata entry[META_ENTRIES];
    lt_onnx_model m = {.family = s->t->line.choice.family,
                       .config = s->t->line.choice.config,
                       .spec = *lt_trainer_spec(s->t),
                       .params = &s->t->model.params,
                       .metadata = entry};
    m.spec.size = s->transform.size;
    for (int key = 0; key < META_AUGMENT; key++)
        entry[m.metadata_count++] = (lt_metadata){lt_metadata_name[key], s->own.text[key]};
    if (s->known.names)
        entry[m.metadata_count++] = (lt_metadata){"class_names", s->known.names};
    return lt_onnx_save(&m, path);
}

static lt_status run(lt_trainer *t, const void *values, int *code)
{
    classifier *s = lt_classifier_of(t);
    const export_arguments *a = values;
    (void)code;
    if (!t->line.choice.family->onnx)
        return lt_fail(LT_E_UNSUPPORTED, "%s models have no ONNX graph; residual networks have one",
                       t->line.choice.family->name);
    if (!a->weights)
        return lt_fail(LT_E_ARG, "--weights: missing; a safetensors file");
    if (!a->output)
        return lt_fail(LT_E_ARG, "--output: missing; the file to write");
    s->args.images = a->images;
    LT_TRY(lt_classifier_open_weights(s, a->weights, "ref", 0));
    lt_trainer_end_checks(t);
    return write_model(s, a->output);
}

const lt_trainer_command lt_export_command = {
    .name = "export", .program = &program, .bytes = sizeof(export_arguments), .run = run};
