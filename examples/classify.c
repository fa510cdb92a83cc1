/* Classifies an image with a ResNet's weights, as training or torchvision writes them: reads the
 * network off the file, folds the batch norms into the convolutions, prints the likeliest classes.
 *
 *     cc classify.c $(pkg-config --cflags --libs lather-resnet) -lm -o classify
 *     ./classify model.safetensors cat.jpg */

#include "lather/data.h"
#include "lather/models/resnet.h"
#include "lather/ops.h"

#include <math.h>
#include <stdio.h>

enum { SIZE = 224, TOP = 5, MOST = 1000 }; /* MOST: the number of ImageNet's classes */

/* Prints the classes with the largest probabilities. */
static void print_top(float *logit, int classes)
{
    double sum = 0;
    for (int k = 0; k < classes; k++)
        sum += exp(logit[k]);
    for (int rank = 0; rank < TOP && rank < classes; rank++) {
        int best = 0;
        for (int k = 1; k < classes; k++)
            best = logit[k] > logit[best] ? k : best;
        printf("%4d  %5.2f %%\n", best, 100 * exp(logit[best]) / sum);
        logit[best] = -INFINITY;
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: classify WEIGHTS.safetensors IMAGE\n");
        return 2;
    }
    lt_device *device = NULL;
    lt_module *model = NULL;
    lt_tape *tape = NULL;
    lt_dataset *files = NULL;
    lt_loader *loader = NULL;
    lt_resnet_config net;
    lt_batch batch;
    float logit[MOST];
    const char *image = argv[2];
    const lt_loader_config loading = {.transform = {.size = SIZE}, .batch = 1, .threads = 1};

    lt_status st = lt_device_open(&device, "cpu", NULL);
    st = st ? st : lt_tape_new(&tape, device);
    st = st ? st : lt_resnet_load(&model, device, argv[1], &net);
    st = st ? st : lt_module_fold(model);
    if (!st && net.classes > MOST)
        st = LT_E_UNSUPPORTED;
    st = st ? st : lt_dataset_files(&files, &image, 1, net.channels);
    st = st ? st : lt_loader_new(&loader, files, device, &loading);
    st = st ? st : lt_loader_next(loader, &batch);
    if (!st) {
        lt_tape_reset(tape, LT_PASS_EVAL);
        lt_tensor *x = lt_normalize(tape, batch.inputs, &LT_NORMALIZE_IMAGENET);
        lt_tensor *y = lt_module_forward(model, tape, x);
        st = lt_tape_status(tape); /* the first failure of the whole pass */
        st = st ? st : lt_tensor_read(y, logit, sizeof *logit * (size_t)net.classes);
    }
    if (st)
        fprintf(stderr, "classify: %s: %s\n", lt_status_help(st), lt_error_message());
    else
        print_top(logit, net.classes);

    lt_loader_free(&loader);
    lt_dataset_free(&files);
    lt_module_free(&model);
    lt_tape_free(&tape);
    lt_device_close(&device);
    return st ? 1 : 0;
}
