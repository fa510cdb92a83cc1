/* train_resnet50 serve-data --data DIR: reads, decodes and augments images for trainers on other machines. */

#include "train/classify/classifier.h"

#include "lather/data_service.h"
#include "lather/ext/fail.h"

#include <signal.h>
#include <stdio.h>

typedef struct serve_arguments {
    const char *data, *address, *val_split, *val_split_seed;
    int64_t threads;
} serve_arguments;

#define AT(field) .offset = offsetof(serve_arguments, field)

/* clang-format off */
static const lt_option table[] = {
{"Options", .name = "data", .type = LT_OPTION_STRING, AT(data), .meta = "DIR", .help = "dataset, as in training"},
{"Options", .name = "val-split", .type = LT_OPTION_STRING, AT(val_split), .meta = "FRACTION", .also = "val-fraction", .help = "fraction of each class's training images to serve for evaluation instead of training, as in training"},
{"Options", .name = "val-split-seed", .type = LT_OPTION_STRING, AT(val_split_seed), .meta = "N", .applies = "--val-split", .help = "choice of the images that are held back; default: 0"},
{"Options", .name = "address", .type = LT_OPTION_STRING, AT(address), .value = "tcp://127.0.0.1:0", .meta = "URL", .help = "address to listen on: tcp://HOST:PORT, 0.0.0.0 for any of this machine, port 0 for a free one; or ipc:///PATH. Other machines need a secret of at least 16 bytes, the same as the trainers': LATHER_JOB_TOKEN, or a file of mode 0600 that LATHER_JOB_TOKEN_FILE names"},
{"Options", .name = "threads", .type = LT_OPTION_INT, AT(threads), .value = "0", .min = 0, .max = 4096, .help = "images to process at once; 0: one per available processor"},
};
/* clang-format on */

static const lt_program program = {
    .summary = "prepare training images on this machine for trainers on others",
    .usage = "--data DIR [--address URL]",
    .description =
        "Prints its address; training with --data service:ADDRESS[,ADDRESS] then receives the batches that "
        "it would make from DIR itself, byte for byte, whichever of several services makes them. The service "
        "handles any number of trainers, keeps no state between requests, and ends on SIGINT or "
        "SIGTERM.\n\n"
        "Exit status: 0 done, 1 an error, 2 a wrong command line.",
    .option = table,
    .count = sizeof table / sizeof *table,
};

static lt_status announce(const lt_trainer *t, const lt_data_service *service)
{
    printf("%s\n", lt_data_service_address(service));
    fprintf(stderr, "serving %lld images to train on, %lld to evaluate\n",
            (long long)lt_dataset_count(t->input.train), (long long)lt_dataset_count(t->input.val));
    return fflush(stdout) ? lt_fail(LT_E_IO, "cannot write to standard output") : LT_OK;
}

static lt_status open_val(lt_trainer *t, const serve_arguments *a)
{
    classifier *s = lt_classifier_of(t);
    const image_options o = {.val_split = a->val_split, .val_split_seed = a->val_split_seed};
    LT_TRY(lt_val_split_parse(&o, &s->split));
    LT_TRY(lt_dataset_open(&t->input.val, a->data, s->split.fraction > 0));
    return s->split.fraction > 0 ? lt_classifier_split(s) : LT_OK;
}

static lt_status run(lt_trainer *t, const void *values, int *code)
{
    const serve_arguments *a = values;
    lt_data_service *service = NULL;
    sigset_t ends;
    int signal;
    (void)code;
    if (!a->data)
        return lt_fail(LT_E_ARG, "--data: missing; the images to serve");
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* in the service's threads, too */
    LT_TRY(lt_dataset_open(&t->input.train, a->data, true));
    LT_TRY(open_val(t, a));
    const lt_data_service_config c = {.address = a->address,
                                      .threads = (int)a->threads,
                                      .train = t->input.train,
                                      .val = t->input.val};
    LT_TRY(lt_data_service_open(&service, &c));
    lt_trainer_end_checks(t);
    lt_status st = announce(t, service);
    if (!st)
        sigwait(&ends, &signal);
    fprintf(stderr, "%lld images made\n", (long long)lt_data_service_samples(service));
    lt_data_service_close(&service);
    return st;
}

const lt_trainer_command lt_serve_data_command = {
    .name = "serve-data", .program = &program, .bytes = sizeof(serve_arguments), .run = run};
