/* The tokenize program: writes token files for training language models. */

#include "lather/options.h"
#include "lather/tokens.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef struct arguments {
    const char *tokenizer;
    int documents;
    double val_fraction;
    bool verify, only_verify, quiet;
} arguments;

static const lt_option table[] = {
    {"Tokens", "tokenizer", 't', LT_OPTION_STRING, offsetof(arguments, tokenizer), .value = "byte",
     .meta = "NAME",
     .help =
         "byte, char (the characters of the text) or gpt2:FOLDER with vocab.json and merges.txt "
         "or tokenizer.json"},
    {"Tokens", "documents", 'd', LT_OPTION_CHOICE, offsetof(arguments, documents), .value = "files",
     .choices = "files|blank-lines|end-of-text",
     .help = "one document per file, or documents separated by blank lines or <|endoftext|>"},
    {"Tokens", "val-fraction", 0, LT_OPTION_DOUBLE, offsetof(arguments, val_fraction),
     .value = "0.1", .min = 0, .max = 0.99, .also = "val-split",
     .help = "fraction of the documents, or of a single document, for validation; 0: none"},
    {"Tokens", "verify", 0, LT_OPTION_BOOL, offsetof(arguments, verify),
     .help = "read all ids after writing"},
    {"Tokens", "only-verify", 0, LT_OPTION_BOOL, offsetof(arguments, only_verify),
     .help = "verify token files, write nothing"},
    {"Tokens", "quiet", 0, LT_OPTION_BOOL, offsetof(arguments, quiet), .help = "print no progress"},
};

static const lt_program program = {
    .name = "tokenize",
    .summary = "convert text to token files",
    .usage = "[OPTION]... TEXT FOLDER | --only-verify FILE...",
    .description =
        "TEXT is a text file, a folder with .txt files, or kjv. FOLDER must not exist; it "
        "gets train.tokens and val.tokens, for --data FOLDER of a language model.",
    .option = table,
    .count = sizeof table / sizeof *table,
    .rest = true,
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static bool show(void *context, const lt_tokens_report *r)
{
    const arguments *a = context;
    static int64_t shown;
    const bool last = r->bytes == r->all_bytes;
    if (!a->quiet && isatty(2) && (last || r->bytes - shown > r->all_bytes / 100)) {
        fprintf(stderr, "\r%.1f of %.1f MB%s", (double)r->bytes * 1e-6, (double)r->all_bytes * 1e-6,
                last ? "\n" : "");
        shown = r->bytes;
    }
    return !stop;
}

static lt_status verify(const char *path)
{
    int64_t tokens = 0;
    lt_status st = lt_tokens_verify(path, &tokens);
    if (!st)
        printf("%s: %" PRId64 " tokens verified\n", path, tokens);
    return st;
}

static lt_status verify_folder(const char *folder, bool val)
{
    char path[4096];
    lt_status st = LT_OK;
    for (int part = val ? 0 : 1; part < 2 && !st; part++) {
        snprintf(path, sizeof path, "%s/%s.tokens", folder, part ? "train" : "val");
        st = verify(path);
    }
    return st;
}

static lt_status pack(arguments *a, const char *text, const char *folder)
{
    const lt_tokens_config c = {.tokenizer = a->tokenizer,
                                .documents = (lt_documents)a->documents,
                                .val_fraction = a->val_fraction == 0 ? -1 : a->val_fraction};
    lt_tokens_report r;
    lt_status st = lt_tokens_pack(folder, text, &c, show, a, &r);
    if (st)
        return st;
    printf("%s: %" PRId64 " tokens of %" PRId64 " documents for training, %" PRId64 " of %" PRId64
           " for validation; %.2f bytes of text per token\n",
           folder, r.tokens[1], r.documents[1], r.tokens[0], r.documents[0],
           (double)r.bytes / (double)(r.tokens[0] + r.tokens[1]));
    return a->verify ? verify_folder(folder, a->val_fraction > 0) : LT_OK;
}

static lt_status run(const lt_options *options, arguments *a)
{
    lt_status st = LT_OK;
    if (!a->only_verify)
        return pack(a, lt_options_positional(options, 0), lt_options_positional(options, 1));
    for (size_t i = 0; i < lt_options_positional_count(options) && !st; i++)
        st = verify(lt_options_positional(options, i));
    return st;
}

static int report(lt_status st)
{
    if (st)
        fprintf(stderr, "tokenize: %s\n", lt_error_message());
    return st ? 1 : 0;
}

int main(int argc, char **argv)
{
    arguments a = {0};
    lt_options *options = NULL;
    int status = 2;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGXFSZ, SIG_IGN); /* EFBIG */
    if (lt_options_new(&options, &program, &a) || lt_options_parse(options, argc, argv))
        fprintf(stderr, "tokenize: %s\n", lt_error_message());
    else if (lt_options_requested(options) != LT_OPTIONS_RUN)
        status = report(lt_options_print_request(options, stdout));
    else if (a.only_verify ? !lt_options_positional_count(options)
                           : lt_options_positional_count(options) != 2)
        fprintf(stderr, "tokenize: %s\n",
                a.only_verify ? "--only-verify needs FILE..."
                              : "the arguments TEXT and FOLDER are required");
    else
        status = report(run(options, &a));
    lt_options_free(&options);
    return status;
}
