/** Command lines: one table of options makes the parser, --help, the config file and the man page. */
#ifndef LATHER_OPTIONS_H
#define LATHER_OPTIONS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum lt_option_type {
    LT_OPTION_BOOL,   /**< a bool: --name, --no-name */
    LT_OPTION_INT,    /**< an int64_t */
    LT_OPTION_DOUBLE, /**< a double */
    LT_OPTION_STRING, /**< a const char *, owned by lt_options; NULL if it has no default */
    LT_OPTION_CHOICE, /**< an int: index in choices */
    LT_OPTION_LIST,   /**< an lt_option_list: may be given several times */
    LT_OPTION_PAIR    /**< no field: NAME=VALUE sets the option NAME that is set through this one */
} lt_option_type;

typedef struct lt_option_list {
    char **item; /**< strings of the list; owned by lt_options */
    size_t count;
} lt_option_list;

/** One option: a row of a table. In names that a user writes, '_' counts as '-'. */
typedef struct lt_option {
    const char *group; /**< group of --help that lists the option */
    const char *name;  /**< name without dashes: "batch-size" */
    char alias;        /**< short form: 'b' for -b; 0: none */
    lt_option_type type;
    size_t offset;     /**< offset of its field in the program's struct: offsetof(...) */
    const char *value; /**< default, as one would write it; NULL: false, 0, "", the first choice */
    double min, max;   /**< numbers: allowed range, both ends included; equal: no limits */
    bool below;        /**< max itself is not allowed */
    const char *choices; /**< names of the choices: "off|bf16|f16" */
    /** choices of the selector that read it: "adam shampoo"; or options of which one must be set: "--eval --watch",
     *  "--sched=step|plateau"; NULL: it is always read */
    const char *applies;
    const char *defaults; /**< default by choice of the selector: "sgd=0.1 shampoo=0.05" */
    const char *meta;     /**< placeholder of the value in --help: "DIR"; NULL: by type */
    const char *help;     /**< help text: one sentence, no full stop */
    const char *also;     /**< aliases, "wd l2"; NULL: none */
    bool once;            /**< belongs to a start, not to a run: lt_options_write_run() omits it */
    /** Row after which --help lists it; NULL, or no such row: at the end of its group. */
    const char *after;
    const char *through; /**< the LT_OPTION_PAIR that sets it on the command line; NULL: --name */
    bool common;      /**< listed by --help without a topic, as all rows of a table without one */
    const char *hint; /**< end of the message about an unknown choice: where others come from */
    /** choices of the selector whose checkpointed state depends on it: "adam lion"; "*": all; NULL: none */
    const char *in_state;
} lt_option;

/** A command line program. --help [TOPIC], --help-man, --version, --config FILE and --print-config are
 *  added to its table. */
typedef struct lt_program {
    const char *name;        /**< name of the program: "train_resnet50" */
    const char *summary;     /**< one line on the purpose of the program */
    const char *usage;       /**< synopsis after the name: "--data DIR [OPTION]..." */
    const char *description; /**< paragraphs for --help and the man page; may be NULL */
    const lt_option *option; /**< option table for lt_options_new() */
    size_t count;
    const char *selector; /**< option that `applies` and `defaults` refer to: "optim"; or NULL */
    bool rest;            /**< the program takes positional arguments */
    bool lists_all;       /**< --help without a topic also lists options that are not common */
} lt_program;

/** Options that fill one struct. A program has one table or several: each is defined in the file
 *  that reads its struct. */
typedef struct lt_option_table {
    const lt_option *option;
    size_t count;
    void *values; /**< the struct that the options fill */
} lt_option_table;

typedef struct lt_options lt_options;

/** The request of the command line: to run the program, or to print something. */
typedef enum lt_options_request {
    LT_OPTIONS_RUN,
    LT_OPTIONS_HELP,
    LT_OPTIONS_MAN,
    LT_OPTIONS_VERSION,
    LT_OPTIONS_PRINT_CONFIG
} lt_options_request;

/** Fills values with the defaults. Borrows program and values for its lifetime.
 *  Errors: LT_E_NOMEM; LT_E_ARG (an invalid table: a name or alias that two rows share, an invalid
 *  default, an unknown choice of the selector). */
LT_API LT_MUST_CHECK lt_status lt_options_new(lt_options **out, const lt_program *program,
                                              void *values);
/** As lt_options_new(), with the options of all these tables instead of the
 *  program's table. Rows of the same group are adjacent, those of earlier tables
 *  first. Borrows the tables' rows and values. Errors: as lt_options_new(). */
LT_API LT_MUST_CHECK lt_status lt_options_compose(lt_options **out, const lt_program *program,
                                                  const lt_option_table *table, size_t count);
LT_API void lt_options_free(lt_options **options);

/** Parses the arguments from argv[1]; `--` ends the options. The command line overrides --config,
 *  which overrides defaults. Errors: LT_E_ARG (an unknown option, with the nearest known one; a
 *  value that is missing, invalid or out of range; an option that the selector's choice does not
 *  read), LT_E_IO, LT_E_FORMAT (the config file), LT_E_UNSUPPORTED (--config without libyaml). */
LT_API LT_MUST_CHECK lt_status lt_options_parse(lt_options *options, int argc, char *const *argv);
/** Reads a config file, like --config; options that are already set keep their values. */
LT_API LT_MUST_CHECK lt_status lt_options_load(lt_options *options, const char *path);
/** Does the same as lt_options_load(), but only for options for which wanted() returns true. */
LT_API LT_MUST_CHECK lt_status lt_options_load_some(lt_options *options, const char *path,
                                                    bool (*wanted)(const lt_option *option));
/** Sets one option from text, as if the user had. Errors: as lt_options_parse(). */
LT_API LT_MUST_CHECK lt_status lt_options_set(lt_options *options, const char *name,
                                              const char *value);

LT_API lt_options_request lt_options_requested(const lt_options *options);
/** Prints the output of the request (nothing for LT_OPTIONS_RUN). Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_options_print_request(const lt_options *options, FILE *out);

/** Row number index of all tables, in the order of --help; NULL past the end. */
LT_API const lt_option *lt_options_at(const lt_options *options, size_t index);
/** Returns whether the command line or the config file sets the option. */
LT_API bool lt_options_is_set(const lt_options *options, const char *name);
/** Returns whether the command line sets the option, not only a config file. */
LT_API bool lt_options_is_typed(const lt_options *options, const char *name);
/** Returns whether the selector's choice reads the option. */
LT_API bool lt_options_applies(const lt_options *options, const char *name);
/** Returns the name of the current choice: "shampoo". Borrowed. */
LT_API const char *lt_options_choice(const lt_options *options, const char *name);
/** Formats the value as a user writes it, items of a list separated by blanks, into text. Returns text. */
LT_API const char *lt_options_text(const lt_options *options, const char *name, char *text,
                                   size_t size);
/** Returns the number of positional arguments; lt_options_positional() returns one of them. */
LT_API size_t lt_options_positional_count(const lt_options *options);
LT_API const char *lt_options_positional(const lt_options *options, size_t index);
/** Returns an argument of the original command line. index 0 is the program; NULL past the end. */
LT_API const char *lt_options_argument(const lt_options *options, int index);

/** Writes name: value for every option that applies: a file for --config. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_options_write_config(const lt_options *options, FILE *out);
/** Does the same as lt_options_write_config() without the options that have `once`. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_options_write_run(const lt_options *options, FILE *out);

#endif
