/* The model of a run: what the program's table of it says, for this run's options or file of weights. */
#ifndef LT_TRAINER_FAMILY_H
#define LT_TRAINER_FAMILY_H

#include "lather/ext/program.h"

typedef struct family_choice {
    const lt_model_family *family;
    const lt_trainer_program *program; /* whose weights' metadata say lt_model_spec */
    lt_options *options;               /* that have the family's rows; borrowed, or own */
    lt_options *own;                   /* NULL: options is borrowed */
    void *config;                      /* owned; of family->config_bytes */
    lt_model_spec spec;
    lt_model_facts facts; /* lt_family_resolve() */
    bool trains;          /* flags override metadata, which may hold options beyond the model's */
    bool new_head;        /* --reset-head: files may lack the last layer */
} family_choice;
/* lt_options_is_set(), lt_options_is_typed() */
typedef bool lt_option_question(const lt_options *options, const char *name);

/* Memory of the family's config, for a table of options. Errors: LT_E_NOMEM. */
lt_status lt_family_open(family_choice *c, const lt_model_family *family);
/* Options of the family alone, for a command without flags for them. */
lt_status lt_family_open_options(family_choice *c);
void lt_family_close(family_choice *c);

/* Reads the model of a weights file: values of options, each from metadata, config.json, shapes or a guess, in
 * this order; and all of spec but the seed. Errors: as lt_weights_open(); LT_E_FORMAT, LT_E_UNSUPPORTED. */
lt_status lt_family_infer(const family_choice *c, const char *path, lt_model_facts *facts,
                          lt_model_spec *spec);
/* Resolves; returns whether the options as they are make the file's model. */
bool lt_family_fits(family_choice *c, const lt_model_facts *facts, const char *path);
/* Sets the options that the file says and the user leaves open, then resolves. by_user: whether an option is
 * the user's. Errors: LT_E_ARG, naming a flag that contradicts the file, and both values. */
lt_status lt_family_adopt(family_choice *c, const lt_model_facts *facts, const char *path,
                          lt_option_question *by_user);
/* With spec and options complete: what they leave open, and c->facts. weights: its metadata help to
 * choose; NULL or "": there are none. */
lt_status lt_family_resolve(family_choice *c, const char *weights);
/* How files of weights are read into the model. */
lt_weights_config lt_family_weights(const family_choice *c);
/* Whether an option is a fact of a model. */
bool lt_family_has_fact(const family_choice *c, const char *option);

/* What stands where a model is named: the fact "arch", or the family's name. */
const char *lt_family_arch(const family_choice *c);
/* The other facts: "depths 1,1,1,1 width 64 channels 3". */
void lt_family_print(const family_choice *c, char *text, size_t size);

#endif
