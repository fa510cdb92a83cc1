/* train_resnet50: residual networks in the library's trainer. */

#include "settings.h"

#define ROW(name) "Model", (name), 0
#define AT(field) offsetof(settings, field)

/* clang-format off */
static const lt_option option[] = {
{ROW("arch"), LT_OPTION_STRING, AT(arch), "resnet50", .help = "resnet10, 14, 18, 34, 50, 101 or 152; with --weights alone: what the file holds"},
{ROW("width"), LT_OPTION_INT, AT(width), "64", 1, 4096, .help = "channels of the first stage"},
{ROW("depths"), LT_OPTION_STRING, AT(depths), .meta = "A,B,C,D", .help = "blocks of each stage instead of arch's"},
{ROW("stem"), LT_OPTION_CHOICE, AT(stem), .choices = "auto|imagenet|small", .help = "small: a 3x3 convolution without pooling; auto: as --weights have it, else small up to 64 pixels"},
{ROW("zero-init-last"), LT_OPTION_BOOL, AT(zero_init_last), "true", .help = "start each block as the identity", .after = "num-classes"},
};
/* clang-format on */

static const lt_model_family family = {
    .program = "train_resnet50",
    .name = "resnet",
    .summary = "train, evaluate and use residual networks",
    .about = "Trains a residual network on pictures.",
    .head = "fc.",
    .recipes = "models/resnet50/recipes",
    .recipe_names = "nesterov-90e, shampoo-paper, shampoo-60e, torchvision-v1, ffcv-16e",
    .option = option,
    .options = sizeof option / sizeof *option,
    .config_bytes = sizeof(settings),
    .make = settings_make,
    .resolve = settings_resolve,
    .describe = settings_describe,
    .infer = settings_infer,
    .cost = settings_cost,
    .onnx = settings_onnx,
};

int main(int argc, char **argv)
{
    return lt_classifier_main(argc, argv, &family);
}
