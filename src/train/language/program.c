/* lt_language_main(): the program for language models, a table for the trainer. */

#include "train/language/language.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>

enum { USUAL_LENGTH = 256 }; /* tokens: nanoGPT's for characters */

#define OF language_options
/* clang-format off */
static const lt_option data_rows[] = {
{"Data", INT("seq-len", seq_len, 0, MOST_LENGTH), .value = "0", .also = "block-size", .common = true, .help = "tokens of a sequence; 0: as --weights were trained, otherwise 256"},
{"Data", TEXT("tokenizer", tokenizer), .meta = "NAME", .common = true, .help = "tokenizer of a text: byte, char (the characters of the text) or gpt2:DIR; default: that of --weights, otherwise byte; a token file has its own"},
{"Data", PICK("documents", documents, "files|blank-lines|end-of-text"), .help = "documents of a text: files, parts between blank lines, or parts between <|endoftext|>"},
{"Data", NUM("val-fraction", val_fraction, 1e-6, 0.9), .value = "0.1", .also = "val-split", .help = "fraction of a text's documents, or of the end of a single one, to evaluate on"},
};
static const lt_option own_rows[] = {
{"Model", INT("vocab-size", vocab_size, 0, 1000000), .value = "0", .common = true, .help = "number of ids of a new model; 0: as in the vocabulary"},
{"Evaluation", NUM("target-perplexity", target_perplexity, 0, 1e9), .value = "0", .after = "eval-batch-size", .help = "perplexity of an evaluation at which training stops; 0: never"},
};
/* clang-format on */

static void get_option_tables(void *context, lt_option_table *data, lt_option_table *own)
{
    language_options *o = &((language *)context)->args;
    *data = (lt_option_table){data_rows, sizeof data_rows / sizeof *data_rows, o};
    *own = (lt_option_table){own_rows, sizeof own_rows / sizeof *own_rows, o};
}

static lt_status check_options(const void *context, const lt_trainer *t)
{
    const language_options *o = &((const language *)context)->args;
    return lt_check_target("target-perplexity", o->target_perplexity, &t->line.args.evaluation);
}

/* --- Data and model --- */

/* Reads the weights' vocabulary and sequence length; the length from the shapes if our metadata are missing. */
static lt_status read_weights(language *l, const lt_trainer *t)
{
    const char *path = lt_trainer_weights(t);
    lt_model_facts facts = {0};
    lt_model_spec found = {0};
    if (!*path)
        return LT_OK;
    LT_TRY(lt_language_read_metadata(&l->known, path));
    if (l->known.length || l->args.seq_len)
        return LT_OK;
    LT_TRY(lt_family_infer(&t->line.choice, path, &facts, &found));
    l->known.length = found.size;
    return LT_OK;
}

static lt_status open_token_dataset(language *l, const lt_trainer *t, lt_dataset **out, bool train)
{
    const language_options *o = &l->args;
    const lt_tokens_config c = {.length = (int)l->length,
                                .tokenizer = o->tokenizer ? o->tokenizer : l->known.tokenizer,
                                .documents = (lt_documents)o->documents,
                                .val_fraction = o->val_fraction};
    return lt_dataset_tokens(out, lt_trainer_data(t), &c, train);
}

/* Checks that both parts of the data and the weights have one vocabulary. */
static lt_status check_vocabularies(language *l, const lt_trainer *t, const lt_dataset *train,
                                    const lt_dataset *val)
{
    const char *data = lt_trainer_data(t);
    lt_vocabulary of_train;
    LT_TRY(lt_dataset_vocabulary(val, &l->vocabulary));
    if (train) {
        LT_TRY(lt_dataset_vocabulary(train, &of_train));
        LT_TRY(lt_vocabulary_check(&of_train, "the training data", &l->vocabulary,
                                   "the evaluation data"));
    }
    return lt_language_check_vocabulary(&l->known, lt_trainer_weights(t), &l->vocabulary, data);
}

static lt_status open_data(void *context, lt_trainer *t, lt_dataset **train, lt_dataset **val)
{
    language *l = context;
    LT_TRY(read_weights(l, t));
    l->length = l->args.seq_len;
    if (!l->length)
        l->length = l->known.length ? l->known.length : USUAL_LENGTH;
    if (!lt_trainer_evaluates(t))
        LT_TRY(open_token_dataset(l, t, train, true));
    LT_TRY(open_token_dataset(l, t, val, false));
    return check_vocabularies(l, t, *train, *val);
}

static lt_status check_ranks_agree(void *context, lt_trainer *t)
{
    const language *l = context;
    LT_TRY(lt_trainer_same_number(t, "the length of a sequence", l->length));
    LT_TRY(lt_trainer_same_number(t, "the size of the vocabulary", l->vocabulary.size));
    return lt_ranks_same_hash(&t->ranks, "the vocabulary", l->vocabulary.hash);
}

/* Checks the vocabulary size against weights without metadata; --vocab-size may confirm a larger one. */
static lt_status check_vocabulary_size(const language *l, const lt_trainer *t,
                                       const lt_model_spec *found)
{
    const lt_vocabulary *v = &l->vocabulary;
    const bool is_said = l->known.tokenizer || l->args.vocab_size == found->classes;
    if (v->size == found->classes || (v->size < found->classes && is_said))
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: the model has %d ids, but the tokenizer %s of %s has %d%s",
                   lt_trainer_weights(t), found->classes, v->tokenizer, lt_trainer_data(t), v->size,
                   v->size < found->classes
                       ? "; if it belongs to the weights, set --vocab-size to the larger number"
                       : "");
}

static lt_status choose_model_spec(void *context, lt_trainer *t, const lt_model_spec *found,
                                   bool of_weights, lt_model_spec *out)
{
    const language *l = context;
    const int64_t asked = l->args.vocab_size;
    (void)of_weights;
    out->channels = 0;
    out->size = (int)l->length;
    out->classes = asked ? (int)asked : l->vocabulary.size;
    if (found) {
        if (asked && asked != found->classes)
            return lt_fail(LT_E_ARG, "--vocab-size %lld: %s has %d", (long long)asked,
                           lt_trainer_weights(t), found->classes);
        LT_TRY(check_vocabulary_size(l, t, found));
        out->classes = found->classes;
    }
    return out->classes >= l->vocabulary.size
               ? LT_OK
               : lt_fail(LT_E_ARG, "--vocab-size %d: the tokenizer %s has %d ids", out->classes,
                         l->vocabulary.tokenizer, l->vocabulary.size);
}

static size_t list_metadata(void *context, const lt_trainer *t,
                            lt_metadata out[LT_TRAINER_METADATA])
{
    return lt_language_metadata(context, t, out);
}

/* --- A run --- */

static void fill_sample_size_and_text(const void *context, const lt_trainer *t,
                                      lt_trainer_sample *out)
{
    const language *l = context;
    (void)t;
    out->size = out->largest = (int)l->length;
    out->bytes = 2.0 * sizeof(int32_t) * (double)l->length; /* inputs and labels */
    snprintf(out->text, sizeof out->text, "sequence of %d tokens", out->size);
}

static void *task_context(void *context, lt_trainer *t)
{
    language *l = context;
    const lt_model_spec *spec = lt_trainer_spec(t);
    l->task =
        (language_model){lt_trainer_model(t), l->length, spec->tensor_parallel, spec->classes};
    return &l->task;
}

/* Logs the model, sequence length and vocabulary. */
static void log_model_and_vocabulary(const void *context, lt_trainer *t)
{
    const language *l = context;
    lt_log(LT_LOG_INFO, "model", "%s, sequences of %lld tokens, %d ids of the tokenizer %.64s",
           lt_trainer_facts(t)->title, (long long)l->length, l->vocabulary.size,
           l->vocabulary.tokenizer);
}

static double perplexity_target(const void *context)
{
    return ((const language *)context)->args.target_perplexity;
}

static void print_evaluation(const void *context, const lt_evaluation *e)
{
    (void)context;
    printf("perplexity %.4f, loss %.5f, accuracy %.3f %% over %.0f tokens",
           lt_language_perplexity(&e->sums), e->sums.loss, lt_language_accuracy(&e->sums),
           lt_language_target_count(&e->sums));
    if (e->samples < e->total)
        printf(", %lld of %lld sequences", (long long)e->samples, (long long)e->total);
    printf("\n");
}

static void close_language(void *context)
{
    lt_language_clear_metadata(&((language *)context)->known);
}

static const char *const local[] = {"tokenizer", NULL};

static const lt_trainer_command *const commands[] = {&lt_plan_command};

static const lt_trainer_program program = {
    .summary = "train, evaluate and use a language model",
    .about = "Trains a language model on text.",
    .packer = "lather-tokenize makes token files",
    .usage = "--data FILE|DIR [OPTION]...  |  reproduce PLAN",
    .data_meta = "FILE|DIR",
    .data_help =
        "a token file, a folder with train.tokens and val.tokens, a text file, or a folder of text files "
        "(.txt), of which --val-fraction is evaluated; kjv: the King James Bible",
    .data_missing = "give a token file, a text file, a folder of these, or kjv",
    .local = local,
    .size_key = "sequence_length",
    .classes_key = "classes",
    .task = &lt_language_task,
    .context_bytes = sizeof(language),
    .command = commands,
    .commands = sizeof commands / sizeof *commands,
    .options = get_option_tables,
    .check = check_options,
    .open_data = open_data,
    .agree = check_ranks_agree,
    .spec = choose_model_spec,
    .metadata = list_metadata,
    .sample = fill_sample_size_and_text,
    .task_context = task_context,
    .describe = log_model_and_vocabulary,
    .target = perplexity_target,
    .report = print_evaluation,
    .close = close_language,
};

const lt_trainer_program *lt_language_program(void)
{
    return &program;
}

int lt_language_main(int argc, char **argv, const lt_model_family *family)
{
    return lt_trainer_main(argc, argv, family, &program);
}
