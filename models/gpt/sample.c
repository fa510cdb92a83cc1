/* train_gpt sample --weights FILE: writes texts token by token, with a cache of keys and values. A text longer
 * than the model's positions continues from its last half.
 *
 * Texts of a batch have the same length at each step: it begins at the shortest prompt, and a text whose prompt is
 * longer takes its next id from there instead of sampling it, as in the reference code of Llama (Touvron et al.,
 * arXiv:2302.13971). So prompts of any lengths need no padding and no mask. */

#include "sample.h"

#include "gpt.h"

#include "lather/ext/fail.h"
#include "lather/language.h"
#include "lather/sampling.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct arguments {
    const char *weights, *tokenizer, *device;
    lt_option_list prompt;
    int64_t count, batch, tokens, top_k, seed, threads;
    double temperature, top_p;
    int bos;
    bool end, cache, speed;
} arguments;

enum { BOS_ON, BOS_OFF };

#define ROW(name) "Options", (name), 0
#define AT(field) offsetof(arguments, field)

/* clang-format off */
static const lt_option option[] = {
{ROW("weights"), LT_OPTION_STRING, AT(weights), .meta = "FILE", .help = "safetensors file written by training, or of HuggingFace's GPT-2"},
{ROW("tokenizer"), LT_OPTION_STRING, AT(tokenizer), .meta = "NAME", .help = "byte or gpt2:DIR; default: that of the weights"},
{ROW("prompt"), LT_OPTION_LIST, AT(prompt), .meta = "TEXT", .help = "beginning of a text; may be repeated; none or empty: the beginning of a document"},
{ROW("bos"), LT_OPTION_CHOICE, AT(bos), .choices = "on|off", .help = "on: start with <|endoftext|>, as before each document in training; off: start with the prompt, as HuggingFace and nanoGPT"},
{ROW("count"), LT_OPTION_INT, AT(count), "1", 1, 1000000, .help = "number of texts for each prompt"},
{ROW("batch-size"), LT_OPTION_INT, AT(batch), "16", 1, 65536, .help = "texts generated together"},
{ROW("end-of-text"), LT_OPTION_BOOL, AT(end), "true", .help = "<|endoftext|> ends a text; without it, it is never sampled, and each text has --tokens tokens"},
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

typedef struct text {
    const char *prompt;    /* borrowed */
    int32_t *id;           /* ids of prompt and text; after its end, padding */
    size_t prompt_count;   /* ids of the prompt */
    size_t count, printed; /* ids without padding; ids printed, 0 before the prompt is */
    int64_t number, made;  /* number among all texts; tokens generated */
    bool is_done;
} text;

typedef struct writer {
    const arguments *a;
    lt_trainer *trainer;
    lt_tokenizer *tokenizer;
    lt_vocabulary vocabulary;
    lt_kv_cache *cache; /* NULL without --cache */
    int64_t capacity;   /* tokens that the model sees at once */
    lt_option_list prompt;
    text *text;           /* the batch */
    size_t batch, stride; /* texts in it; most ids of a text */
    size_t shown;         /* texts of it that were printed to their end */
    int32_t *id, *input;  /* [batch][stride] ids of the texts; those of a pass */
    size_t count;         /* ids of each text that the next pass may use */
    size_t fed;           /* ids in the cache, or beyond the model's window */
    float *logits;        /* [batch][classes] */
    int64_t made;         /* number of tokens generated for all texts */
    double seconds;       /* seconds in which they were generated */
} writer;

static double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads the last rows of logits [batch,T,V]. */
static lt_status read_logits(writer *w, lt_tensor *y)
{
    const int64_t rows = lt_tensor_shape(y).dim[1];
    lt_tape *tape = lt_trainer_tape(w->trainer);
    if (rows > 1)
        y = lt_slice(tape, y, 1, rows - 1, 1);
    LT_TRY(lt_tape_status(tape));
    return lt_tensor_read(y, w->logits, lt_tensor_bytes(y));
}

/* Computes the logits of each text after `count` ids from index first. */
static lt_status run_model(writer *w, size_t first, size_t count)
{
    lt_tensor *ids = NULL;
    lt_tape *tape = lt_trainer_tape(w->trainer);
    lt_module *model = lt_trainer_model(w->trainer);
    for (size_t i = 0; i < w->batch; i++)
        memcpy(w->input + i * count, w->text[i].id + first, count * sizeof *w->input);
    LT_TRY(lt_tensor_new(&ids, lt_trainer_device(w->trainer), LT_I32,
                         LT_SHAPE((int64_t)w->batch, (int64_t)count)));
    lt_status st = lt_tensor_write(ids, w->input, w->batch * count * sizeof *w->input);
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

/* Prints new ids of the first text that is not complete, and complete texts in order. */
static lt_status print_texts(writer *w)
{
    for (; w->shown < w->batch; w->shown++) {
        text *t = &w->text[w->shown];
        if (!t->printed)
            printf("%s%s", t->number ? "---\n" : "", t->prompt);
        for (size_t i = t->printed ? t->printed : t->prompt_count; i < t->count; i++) {
            size_t bytes = 0;
            const char *piece = lt_tokenizer_text(w->tokenizer, t->id[i], &bytes);
            if (piece)
                fwrite(piece, 1, bytes, stdout);
        }
        t->printed = t->count;
        if (!t->is_done)
            break;
        printf("\n");
    }
    return fflush(stdout) || ferror(stdout)
               ? lt_fail(LT_E_IO, "sample: standard output cannot be written")
               : LT_OK;
}

/* Begins a text with its prompt, after an end-of-text id unless --bos off. */
static lt_status begin_text(writer *w, text *t)
{
    const lt_text_part prompt = {.text = t->prompt, .bytes = strlen(t->prompt), .name = "--prompt"};
    lt_ids ids = {0};
    LT_TRY(lt_tokenizer_encode(w->tokenizer, &prompt, &ids));
    if (w->a->bos == BOS_ON || !ids.count)
        t->id[t->count++] = w->vocabulary.end;
    for (size_t i = 0; i < ids.count; i++)
        t->id[t->count++] = ids.id[i];
    t->prompt_count = t->count;
    w->count = t->count < w->count ? t->count : w->count;
    lt_ids_clear(&ids);
    return LT_OK;
}

/* Samples the next id of a text, of those that the tokenizer knows; the end-of-text id ends it. */
static lt_status extend_text(writer *w, text *t, float *logits)
{
    const lt_sampling config = {.temperature = w->a->top_p > 0 ? w->a->temperature : 0,
                                .top_k = (int)w->a->top_k,
                                .top_p = w->a->top_p,
                                .seed = (uint64_t)w->a->seed};
    const int32_t end = w->vocabulary.end;
    if (!w->a->end)
        logits[end] = -INFINITY;
    LT_TRY(lt_sample_id(&t->id[t->count], logits, w->vocabulary.size, &config, t->number, t->made));
    w->made++;
    t->is_done = t->id[t->count] == end || ++t->made == w->a->tokens;
    t->count += t->id[t->count] != end;
    return LT_OK;
}

/* Adds an id to each text: of its prompt, sampled, or padding after its end. */
static lt_status extend_texts(writer *w)
{
    const size_t classes = (size_t)lt_trainer_spec(w->trainer)->classes;
    LT_TRY(compute_next_logits(w));
    for (size_t i = 0; i < w->batch; i++) {
        text *t = &w->text[i];
        if (t->is_done)
            t->id[w->count] = w->vocabulary.end;
        else if (t->count == w->count)
            LT_TRY(extend_text(w, t, w->logits + i * classes));
    }
    w->count++;
    return LT_OK;
}

/* Writes the texts of a batch, from number `first` on. */
static lt_status write_batch(writer *w, int64_t first)
{
    if (w->cache)
        lt_kv_cache_truncate(w->cache, 0);
    w->fed = w->shown = 0;
    w->count = w->stride;
    for (size_t i = 0; i < w->batch; i++) {
        const int64_t number = first + (int64_t)i;
        w->text[i] = (text){.prompt = w->prompt.item[number / w->a->count],
                            .id = w->id + i * w->stride,
                            .number = number};
        LT_TRY(begin_text(w, &w->text[i]));
    }
    const double begin = clock_seconds();
    LT_TRY(print_texts(w));
    while (w->shown < w->batch) {
        LT_TRY(extend_texts(w));
        LT_TRY(print_texts(w));
    }
    w->seconds += clock_seconds() - begin;
    return LT_OK;
}

/* Allocates a batch: as many texts as there are, at most --batch-size. */
static lt_status open_batch(writer *w)
{
    const int64_t texts = (int64_t)w->prompt.count * w->a->count;
    for (size_t i = 0; i < w->prompt.count; i++) {
        const size_t most = strlen(w->prompt.item[i]) + 1 + (size_t)w->a->tokens;
        w->stride = most > w->stride ? most : w->stride;
    }
    w->batch = (size_t)(texts < w->a->batch ? texts : w->a->batch);
    w->text = calloc(w->batch, sizeof *w->text);
    w->id = calloc(w->batch * w->stride, sizeof *w->id);
    w->input = calloc(w->batch * w->stride, sizeof *w->input);
    w->logits = calloc(w->batch * (size_t)lt_trainer_spec(w->trainer)->classes, sizeof *w->logits);
    return w->text && w->id && w->input && w->logits
               ? LT_OK
               : lt_fail(
                   LT_E_NOMEM,
                   "sample: no memory for %zu texts of %zu tokens; a lower --batch-size or --tokens",
                   w->batch, w->stride);
}

/* Makes a cache for a batch; the last batch may be smaller. */
static lt_status open_cache(writer *w)
{
    const int64_t positions = lt_trainer_spec(w->trainer)->size;
    w->capacity = positions > 0 && (size_t)positions < w->stride ? positions : (int64_t)w->stride;
    lt_kv_cache_free(&w->cache);
    return w->a->cache
               ? lt_gpt_new_cache(&w->cache, lt_trainer_model(w->trainer),
                                  lt_trainer_device(w->trainer), (int64_t)w->batch, w->capacity)
               : LT_OK;
}

static lt_status open_model_and_tokenizer(writer *w)
{
    static char empty[] = "", *no_prompt[] = {empty};
    const arguments *a = w->a;
    LT_TRY(lt_trainer_open_weights(w->trainer, a->weights, a->device, (int)a->threads));
    const int classes = lt_trainer_spec(w->trainer)->classes;
    LT_TRY(lt_language_open_tokenizer(&w->tokenizer, a->weights, a->tokenizer, classes));
    w->vocabulary = lt_tokenizer_vocabulary(w->tokenizer);
    w->prompt = a->prompt.count ? a->prompt : (lt_option_list){no_prompt, 1};
    LT_TRY(open_batch(w));
    return open_cache(w);
}

static lt_status write_texts(writer *w)
{
    LT_TRY(open_model_and_tokenizer(w));
    lt_trainer_end_checks(w->trainer);
    const int64_t texts = (int64_t)w->prompt.count * w->a->count;
    for (int64_t first = 0; first < texts; first += (int64_t)w->batch) {
        if (texts - first < (int64_t)w->batch) {
            w->batch = (size_t)(texts - first);
            LT_TRY(open_cache(w));
        }
        LT_TRY(write_batch(w, first));
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
    signal(SIGPIPE, SIG_DFL); /* a reader that closes the pipe ends the program */
    lt_status st = write_texts(&w);
    lt_kv_cache_free(&w.cache);
    lt_tokenizer_free(&w.tokenizer);
    free(w.text);
    free(w.input);
    free(w.id);
    free(w.logits);
    return st;
}

const lt_trainer_command gpt_sample_command = {
    .name = "sample", .program = &program, .bytes = sizeof(arguments), .run = run};
