/* A bigram language model, in which each token depends only on the one before it, defined outside the trainer. */

#include "lather/detail/transformer_layers.h"
#include "lather/ext/fail.h"
#include "lather/ext/program.h"
#include "lather/init.h"
#include "lather/language.h"
#include "lather/layers.h"

#include <stdio.h>
#include <string.h>

typedef struct bigram {
    int64_t width, positions;
} bigram;

static const lt_option option[] = {
    {"Model", "width", 0, LT_OPTION_INT, offsetof(bigram, width), "16", 1, 100000,
     .help = "embedding width"},
    {"Model", "positions", 0, LT_OPTION_INT, offsetof(bigram, positions), "64", 1, 100000,
     .help = "longest sequence"},
};

/* Adds a layer to the chain, which takes it over. */
static lt_status add(lt_module *chain, lt_status made, lt_module **layer)
{
    LT_TRY(made);
    lt_status st = lt_sequential_add(chain, layer);
    lt_module_free(layer);
    return st;
}

static lt_status make(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec)
{
    const bigram *c = config;
    const int width = (int)c->width;
    lt_module *m = NULL, *layer = NULL;
    if (spec->size > c->positions)
        return lt_fail(LT_E_ARG, "--seq-len %d: the model has %lld positions", spec->size,
                       (long long)c->positions);
    LT_TRY(lt_layer_sequential(&m));
    lt_status st =
        add(m, lt_layer_embedding(&layer, device, "tokens", spec->classes, width), &layer);
    if (!st)
        st = add(m, lt_layer_relu(&layer), &layer);
    if (!st)
        st = add(m, lt_layer_linear(&layer, device, "head", width, spec->classes, true), &layer);
    if (!st)
        st = lt_init_module(m, spec->seed);
    if (st)
        lt_module_free(&m);
    else
        *out = m;
    return st;
}

/* The program's own command: prints the token ids of a text, with the tokenizer stored in the weights. */
typedef struct ids_arguments {
    const char *weights, *tokenizer, *text;
} ids_arguments;

static const lt_option ids_rows[] = {
    {"Options", "weights", 0, LT_OPTION_STRING, offsetof(ids_arguments, weights), .help = "model"},
    {"Options", "tokenizer", 0, LT_OPTION_STRING, offsetof(ids_arguments, tokenizer),
     .help = "tokenizer; default: that of the weights"},
    {"Options", "text", 0, LT_OPTION_STRING, offsetof(ids_arguments, text),
     .help = "text to tokenize"},
};

static const lt_program ids_program = {
    .summary = "show ids", .usage = "--weights FILE --text TEXT", .option = ids_rows, .count = 3};

static lt_status show_ids(lt_trainer *t, const void *values, int *code)
{
    const ids_arguments *a = values;
    lt_tokenizer *tokenizer = NULL;
    lt_ids ids = {0};
    (void)code;
    if (!a->weights || !a->text)
        return lt_fail(LT_E_ARG, "--weights and --text: one is missing");
    LT_TRY(lt_trainer_open_weights(t, a->weights, "ref", 0));
    lt_trainer_end_checks(t);
    LT_TRY(lt_language_open_tokenizer(&tokenizer, a->weights, a->tokenizer,
                                      lt_trainer_spec(t)->classes));
    lt_status st = lt_tokenizer_encode(
        tokenizer, &(lt_text_part){.text = a->text, .bytes = strlen(a->text)}, &ids);
    for (size_t i = 0; i < ids.count; i++)
        printf("%d\n", (int)ids.id[i]);
    lt_ids_clear(&ids);
    lt_tokenizer_free(&tokenizer);
    return st;
}

int main(int argc, char **argv)
{
    static const lt_model_family family = {
        .program = "train_bigram",
        .name = "bigram",
        .option = option,
        .options = sizeof option / sizeof *option,
        .config_bytes = sizeof(bigram),
        .make = make,
    };
    static const lt_trainer_command ids = {
        .name = "ids", .program = &ids_program, .bytes = sizeof(ids_arguments), .run = show_ids};
    static const lt_trainer_command *const commands[] = {&ids, &lt_plan_command};
    lt_trainer_program program = *lt_language_program();
    program.command = commands;
    program.commands = sizeof commands / sizeof *commands;
    return lt_trainer_main(argc, argv, &family, &program);
}
