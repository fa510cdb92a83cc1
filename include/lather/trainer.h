/** Programs that train models: a program fills one table about its models and calls lt_classifier_main(), or
 *  lt_language_main() of lather/language.h. The library provides data, training, checkpoints, evaluation and
 *  ranks. */
#ifndef LATHER_TRAINER_H
#define LATHER_TRAINER_H

#include "lather/module.h"
#include "lather/onnx.h"
#include "lather/options.h"
#include "lather/tensor_parallel.h"
#include "lather/weights.h"

/** Input and output of a model, and its initial values. */
typedef struct lt_model_spec {
    int channels;   /**< channels of the images: 1 or 3; of a language model 0 */
    int size;       /**< side of the images in pixels, or tokens of a sequence; 0: unknown */
    int classes;    /**< logits per image or per token: ids of the vocabulary */
    uint64_t seed;  /**< seed of the initial values */
    bool is_loaded; /**< all values are loaded from a file later: make need not initialize them */
    /** Ranks that shard the model; borrowed for its lifetime. NULL: a whole model on each rank. */
    const lt_tensor_parallel *tensor_parallel;
} lt_model_spec;

/** Cost of one sample, in elements, not bytes. */
typedef struct lt_model_cost {
    int64_t params;        /**< trained elements of the model */
    int64_t multiply_adds; /**< multiply-adds of the forward pass */
    int64_t kept;          /**< elements of activations that backward reads */
    int64_t recomputable;  /**< elements of activations that --recompute can halve */
    int64_t largest;       /**< elements of the largest activation */
    /** a transformer's tokens per sample and width; 0: not a transformer */
    int64_t rows, features;
} lt_model_cost;

enum { LT_MODEL_FACTS = 16, LT_FACT_BYTES = 64 };

/** Certainty of a weight file's fact: contradicting one of the first three by a flag is an error; the flag
 *  overrides the others. */
typedef enum lt_fact_source {
    LT_FACT_SHAPES,   /**< known from names and shapes of tensors */
    LT_FACT_METADATA, /**< known from the file's metadata */
    LT_FACT_CONFIG,   /**< known from a config.json in the same folder, which infer() reads */
    LT_FACT_USUAL,    /**< assumed: common to all published models of these shapes */
    LT_FACT_GUESS     /**< guessed; without a flag an error that names it */
} lt_fact_source;

/** A property that distinguishes a model from others of its family: stored in the metadata of weights and in
 *  checkpoints, and a value of the family's options. */
typedef struct lt_model_fact {
    const char *key;          /**< name of the option: "hidden" */
    char text[LT_FACT_BYTES]; /**< value of the option as text: "128" */
    bool input;               /**< affects how images are read: listed with the input's metadata */
    lt_fact_source source;    /**< how certain the fact is; set by infer() */
} lt_model_fact;

typedef struct lt_model_facts {
    char title[LT_FACT_BYTES]; /**< "resnet18 of width 8, small stem"; "": the family's name */
    lt_model_fact item[LT_MODEL_FACTS];
    size_t count;
} lt_model_facts;

/** Appends a fact. Omits one with a text longer than LT_FACT_BYTES - 1, or beyond LT_MODEL_FACTS. Returns it, or
 *  NULL if omitted. */
LT_API lt_model_fact *lt_model_fact_put(lt_model_facts *facts, const char *key, const char *format,
                                        ...) LT_PRINTF(3, 4);
/** Returns the text of a fact; "" if absent. */
LT_API const char *lt_model_fact_text(const lt_model_facts *facts, const char *key);

/** A family of models. `config` is a zeroed struct of config_bytes, which the options fill. Required: program,
 *  name, make. All texts and functions must remain valid while the program runs; the functions are called by one
 *  thread. */
typedef struct lt_model_family {
    const char *program; /**< name of the program in messages and in --help: "train_mlp" */
    const char *name;    /**< name of a model without a fact "arch": "mlp" */
    const char *summary; /**< one line for --help; NULL: a default */
    const char *about;   /**< a sentence for --help: "Trains ... on images."; NULL: a default */
    /** prefix of the last layer's parameters, "fc.", which --reset-head initializes; NULL: --reset-head is
     *  rejected */
    const char *head;
    /** with --mup, prefix of the last norm's parameters if the embeddings are the last layer's weights: "ln_f.";
     *  NULL: they are not */
    const char *last_norm;
    /** folder of NAME.yaml for --recipe NAME, in the source tree; installed in share/lather/recipes; NULL:
     *  --recipe takes files only */
    const char *recipes;
    const char *recipe_names; /**< names of the recipes for --help: "paper, short"; NULL: none */
    const lt_option *option;  /**< rows of group "Model"; their names must be unique */
    size_t options, config_bytes;
    /** Makes the model, with its initial values. Errors: LT_E_ARG, LT_E_SHAPE, LT_E_NOMEM. */
    lt_status (*make)(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec);
    /** Checks that make can shard the model over spec->tensor_parallel, in batches of `batch` samples per replica:
     *  an error names the number that does not divide, its divisor, and the nearest number that does. forward gets
     *  all samples of the replica. Logits of an image classifier are then whole and equal on all ranks of a
     *  replica; for a language model a rank has its classes over row and, on a grid, the samples of its block of
     *  rows. NULL: the family has no tensor-parallel form. Errors: LT_E_ARG, LT_E_UNSUPPORTED. */
    lt_status (*check_parallel)(const void *config, const lt_model_spec *spec, int64_t batch);
    /** Called before the functions below: checks texts of options, and chooses values that they leave open, in
     *  fields of config; known: facts in the metadata of --weights. May be NULL. */
    lt_status (*resolve)(void *config, const lt_model_spec *spec, const lt_model_facts *known);
    /** Puts the facts of a model. NULL: the values of all options, at most LT_MODEL_FACTS. */
    lt_status (*describe)(const void *config, const lt_model_spec *spec, lt_model_facts *out);
    /** Reads the model of a weight file: values of options, channels and classes, and its usual input size (0:
     *  any); classes 0: the file has no last layer. NULL: only files written by this program are read, by their
     *  metadata. Errors: LT_E_IO, LT_E_FORMAT, LT_E_UNSUPPORTED. */
    lt_status (*infer)(const char *path, lt_model_facts *out, lt_model_spec *spec);
    /** Converts entries of --weights with other shapes than the model's; context: config. NULL: these are errors. */
    lt_weights_fit_fn *fit;
    const char *prefix; /**< prefix, unread and alias: as in lt_weights_config */
    const char *const *unread;
    const lt_weights_alias *alias;
    /** Counts the cost of a sample. NULL: activations are unknown before the first step. Errors: LT_E_ARG. */
    lt_status (*cost)(const void *config, const lt_model_spec *spec, lt_model_cost *out);
    /** Adds the nodes from "images" [N,channels,size,size] to "logits" [N,classes]; initializers have the names of
     *  parameters. NULL: `export` is rejected. */
    lt_status (*onnx)(lt_onnx *graph, const void *config, const lt_model_spec *spec);
} lt_model_family;

/** Reads a weight file into a model. Errors: as lt_weights_load(). */
LT_API LT_MUST_CHECK lt_status lt_weights_load_model(const char *path, lt_module *model);

/** Runs the whole program: trains, with --eval evaluates, and has the commands predict, export and reproduce.
 *  Returns the exit status: 0 done, 1 an error, 2 a wrong command line or family (two options with one name), 3
 *  interrupted after a checkpoint. Messages go to standard error. Threads: once per process, by its main thread;
 *  it installs signal handlers. */
LT_API int lt_classifier_main(int argc, char **argv, const lt_model_family *family);

#endif
