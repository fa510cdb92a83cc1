/* train_gpt sample --weights FILE: writes texts token by token, with a cache of keys and values. A text longer
 * than the model's positions continues from its last half. */

#include "sample.h"

#include "gpt.h"

#include "lather/ext/fail.h"
#include "lather/language.h"
#include "lather/sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct arguments {
    const char *weights, *tokenizer, *prompt, *device;
    int64_t count, tokens, top_k, seed, threads;
    double temperature, top_p;
    int bos;
    bool cache, speed;
} arguments;

enum { BOS_ON, BOS_OFF };

#define ROW(name) "Options", (name), 0
#define AT(field) offsetof(arguments, field)

/* clang-format off */
static const lt_option option[] = {
{ROW("weights"), LT_OPTION_STRING, AT(weights), .meta = "FILE", .help = "safetensors file written by training, or of HuggingFace's GPT-2"},
{ROW("tokenizer"), LT_OPTION_STRING, AT(tokenizer), .meta = "NAME", .help = "byte or gpt2:DIR; default: that of the weights"},
{ROW("prompt"), LT_OPTION_STRING, AT(prompt), "", .meta = "TEXT", .help = "beginning of the text; empty: the beginning of a document"},
{ROW("bos"), LT_OPTION_CHOICE, AT(bos), .choices = "on|off", .help = "on: start with <|endoftext|>, as before each document in training; off: start with the prompt, as HuggingFace and nanoGPT"},
{ROW("count"), LT_OPTION_INT, AT(count), "1", 1, 1000000, .help = "number of texts"},
{ROW("tokens"), LT_OPTION_INT, AT(tokens), "500", 1, 100000000, .also = "max-new-tokens", .help = "maximum number of tokens after the prompt"},
{ROW("temperature"), LT_OPTION_DOUBLE, AT(temperature), "0.8", 0, 1000, .help = "below 1: prefer more probable tokens; 0: always the most probable one"},
{ROW("top-k"), LT_OPTION_INT, AT(top_k), "0", 0, 100000000, .help = "sample from the K most probable tokens; 0: from all"},
{ROW("top-p"), LT_OPTION_DOUBLE, AT(top_p), "1", 0, 1, .help = "sample from the most probable tokens with this total probability; 0: the most probable one, as --temperature 0"},
{ROW("seed"), LT_OPTION_INT, AT(seed), "0", 0, 1e15, .help = "seed; equal seeds give equal texts"},
{ROW("cache"), LT_OPTION_BOOL, AT(cache), "true", .help = "cache keys and values; without it, each token recomputes the whole text"},
{ROW("speed"), LT_OPTION_BOOL, AT(speed), .help = "print tokens per second on standard error"},
{ROW("device"), LT_OPTION_STRING, AT(device), "cpu", .help = "cpu, ref, cuda[:N]"},
{ROW("threads"), LT_OPTION_INT, AT(threads), "0", 0, 4096, .help = "compute threads; 0: as many as allowed"},
};
/* clang-format on */

static const lt_program program = {
    .summary = "write text",
    .usage = "--weights FILE [OPTION]...",
    .description =
        "Prints texts that continue the prompt, token by token; several are separated by a line of "
        "dashes.",
    .option = option,
    .count = sizeof option / sizeof *option,
};

typedef struct writer {
    const arguments *a;
    lt_trainer *trainer;
    lt_tokenizer *tokenizer;
    lt_vocabulary vocabulary;
    lt_kv_cache *cache; /* NULL without --cache */
    int64_t capacity;   /* tokens that the model sees at once */
    int32_t *id;        /* ids of the text so far */
    size_t count;       /* number of ids */
    float *logits;      /* [vocabulary of the model] */
    size_t fed;         /* ids in the cache, or beyond the model's window */
    int64_t made;       /* number of tokens generated for all texts */
    double seconds;     /* seconds in which they were generated */
} writer;

static double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the last row of logits [1,T,V]. */
static lt_status read_logits(writer *w, lt_tensor *y)
{
    const int64_t rows = lt_tensor_shape(y).dim[1];
    lt_tape *tape = lt_trainer_tape(w->trainer);
    if (rows > 1)
        y = lt_slice(tape, y, 1, rows - 1, 1);
    LT_TRY(lt_tape_status(tape));
    return lt_tensor_read(y, w->logits, lt_tensor_bytes(y));
}

/* Computes the logits after `count` ids from index first. */
static lt_status run_model(writer *w, size_t first, size_t count)
{
    lt_tensor *ids = NULL;
    lt_tape *tape = lt_trainer_tape(w->trainer);
    lt_module *model = lt_trainer_model(w->trainer);
    LT_TRY(lt_tensor_new(&ids, lt_trainer_device(w->trainer), LT_I32, LT_SHAPE(1, (int64_t)count)));
    lt_status st = lt_tensor_write(ids, w->id + first, count * sizeof *w->id);
    lt_tape_reset(tape, LT_PASS_EVAL);
    if (!st) {
        lt_tensor *y = w->cache ? lt_gpt_forward_cached(model, tape, ids, w->cache)
                                : lt_module_forward(model, tape, ids);
        st = lt_tape_status(tape);
        if (!st)
            st = read_logits(w, y);
    }
    lt_tensor_free(&ids);
    return st;
}

/* Computes the logits after all ids that the model can see. */
static lt_status compute_next_logits(writer *w)
{
    const size_t count = w->count, most = (size_t)w->capacity;
    size_t first = w->fed;
    if (!w->cache)
        return run_model(w, count > most ? count - most : 0, count > most ? most : count);
    const size_t held = (size_t)lt_kv_cache_count(w->cache, 0);
    if (held + (count - first) > most) {
        lt_kv_cache_truncate(w->cache, 0);
        first = count - (most + 1) / 2;
    }
    w->fed = count;
    return run_model(w, first, count - first);
}

static lt_status print_token(const writer *w, int32_t id)
{
    size_t bytes = 0;
    const char *text = lt_tokenizer_text(w->tokenizer, id, &bytes);
    if (text && fwrite(text, 1, bytes, stdout) != bytes)
        return lt_fail(LT_E_IO, "sample: standard output cannot be written");
    fflush(stdout);
    return LT_OK;
}

/* Begins with the prompt, after an end-of-text id unless --bos off; allocates memory for the following tokens. */
static lt_status begin_text(writer *w)
{
    const lt_text_part prompt = {
        .text = w->a->prompt, .bytes = strlen(w->a->prompt), .name = "--prompt"};
    lt_ids ids = {0};
    if (w->cache)
        lt_kv_cache_truncate(w->cache, 0);
    LT_TRY(lt_tokenizer_encode(w->tokenizer, &prompt, &ids));
    free(w->id);
    w->count = w->fed = 0;
    w->id = malloc((ids.count + 1 + (size_t)w->a->tokens) * sizeof *w->id);
    lt_status st = w->id ? LT_OK : lt_fail(LT_E_NOMEM, "sample: no memory for a text");
    if (!st) {
        if (w->a->bos == BOS_ON || !ids.count)
            w->id[w->count++] = w->vocabulary.end;
        for (size_t i = 0; i < ids.count; i++)
            w->id[w->count++] = ids.id[i];
        printf("%s", w->a->prompt);
    }
    lt_ids_clear(&ids);
    return st;
}

/* Writes one text. Samples only ids that the tokenizer knows; the end-of-text id ends it. */
static lt_status write_text(writer *w, int64_t text)
{
    const lt_sampling config = {.temperature = w->a->top_p > 0 ? w->a->temperature : 0,
                                .top_k = (int)w->a->top_k,
                                .top_p = w->a->top_p,
                                .seed = (uint64_t)w->a->seed};
    LT_TRY(begin_text(w));
    const double begin = clock_seconds();
    for (int64_t i = 0; i < w->a->tokens; i++) {
        int32_t id;
        LT_TRY(compute_next_logits(w));
        LT_TRY(lt_sample_id(&id, w->logits, w->vocabulary.size, &config, text, i));
        w->made++;
        if (id == w->vocabulary.end)
            break;
        w->id[w->count++] = id;
        LT_TRY(print_token(w, id));
    }
    w->seconds += clock_seconds() - begin;
    printf("\n");
    return LT_OK;
}

static lt_status open_cache(writer *w)
{
    const int64_t positions = lt_trainer_spec(w->trainer)->size;
    const int64_t text = (int64_t)strlen(w->a->prompt) + w->a->tokens + 1;
    w->capacity = positions > 0 && positions < text ? positions : text;
    return w->a->cache ? lt_gpt_new_cache(&w->cache, lt_trainer_model(w->trainer),
                                          lt_trainer_device(w->trainer), 1, w->capacity)
                       : LT_OK;
}

static lt_status open_model_and_tokenizer(writer *w)
{
    const arguments *a = w->a;
    LT_TRY(lt_trainer_open_weights(w->trainer, a->weights, a->device, (int)a->threads));
    const int classes = lt_trainer_spec(w->trainer)->classes;
    LT_TRY(lt_language_open_tokenizer(&w->tokenizer, a->weights, a->tokenizer, classes));
    w->vocabulary = lt_tokenizer_vocabulary(w->tokenizer);
    w->logits = malloc((size_t)classes * sizeof *w->logits);
    if (!w->logits)
        return lt_fail(LT_E_NOMEM, "sample: no memory for %d logits", classes);
    return open_cache(w);
}

static lt_status write_texts(writer *w)
{
    LT_TRY(open_model_and_tokenizer(w));
    lt_trainer_end_checks(w->trainer);
    for (int64_t i = 0; i < w->a->count; i++) {
        if (i)
            printf("---\n");
        LT_TRY(write_text(w, i));
    }
    if (w->a->speed)
        fprintf(stderr, "%lld tokens, %.1f tok/s\n", (long long)w->made,
                (double)w->made / w->seconds);
    return LT_OK;
}

static lt_status run(lt_trainer *trainer, const void *values, int *code)
{
    writer w = {.a = values, .trainer = trainer};
    (void)code;
    if (!w.a->weights)
        return lt_fail(LT_E_ARG, "--weights: missing; a file that training wrote");
    lt_status st = write_texts(&w);
    lt_kv_cache_free(&w.cache);
    lt_tokenizer_free(&w.tokenizer);
    free(w.id);
    free(w.logits);
    return st;
}

const lt_trainer_command gpt_sample_command = {
    .name = "sample", .program = &program, .bytes = sizeof(arguments), .run = run};
