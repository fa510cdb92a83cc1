/* The model of a run: the program's family, with the values of this run's options or weight file. */
#ifndef LT_TRAINER_FAMILY_H
#define LT_TRAINER_FAMILY_H

#include "lather/ext/program.h"

typedef struct family_choice {
    const lt_model_family *family;
    const lt_trainer_program *program; /* kind of task; its metadata keys describe lt_model_spec */
    lt_options *options;               /* options with the family's rows; borrowed, or own */
    lt_options *own;                   /* options made here; NULL if options is borrowed */
    lt_program own_program;            /* borrowed by own, so that the choice must not move */
    void *config;                      /* owned; family->config_bytes long */
    lt_model_spec spec;
    lt_model_facts facts; /* facts of the model; set by lt_family_resolve() */
    bool trains;          /* flags override metadata, which may have options that the model lacks */
    bool new_head;        /* --reset-head: files may lack the last layer */
} family_choice;
/* Type of lt_options_is_set() and lt_options_is_typed(). */
typedef bool lt_option_question(const lt_options *options, const char *name);

/* Allocates the family's config, for a table of options. Errors: LT_E_NOMEM. */
lt_status lt_family_open(family_choice *c, const lt_model_family *family);
/* Makes options of the family alone, for a command without flags for them. */
lt_status lt_family_open_options(family_choice *c);
void lt_family_close(family_choice *c);

/* Reads the model of a weight file: values of options from metadata, config.json, shapes or a guess, in this
 * order; and all of spec but the seed. Errors: as lt_weights_open(); LT_E_FORMAT, LT_E_UNSUPPORTED. */
lt_status lt_family_infer(const family_choice *c, const char *path, lt_model_facts *facts,
                          lt_model_spec *spec);
/* Calls lt_family_resolve(); returns true if the current options then describe the file's model. */
bool lt_family_fits(family_choice *c, const lt_model_facts *facts, const char *path);
/* Sets the options that the file determines and the user leaves open, then resolves. by_user returns true if the
 * user set an option. Errors: LT_E_ARG, naming a flag that contradicts the file, and both values. */
lt_status lt_family_set_options(family_choice *c, const lt_model_facts *facts, const char *path,
                                lt_option_question *by_user);
/* Chooses the values that complete options and spec leave open, and sets c->facts. weights: file whose metadata
 * help to choose; NULL or "": no file. */
lt_status lt_family_resolve(family_choice *c, const char *weights);
/* Returns how weight files are read into the model. */
lt_weights_config lt_family_weights_config(const family_choice *c);
/* Returns true if an option is a fact of the model. */
bool lt_family_has_fact(const family_choice *c, const char *option);

/* Returns the name of the model: the fact "arch", or the family's name. */
const char *lt_family_arch(const family_choice *c);
/* Writes all facts but "arch" into text: "depths 1,1,1,1 width 64 channels 3". */
void lt_family_format_facts(const family_choice *c, char *text, size_t size);

#endif
