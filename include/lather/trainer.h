/** Programs that train models: a program fills one table about its models and calls
 *  lt_classifier_main(), or lt_language_main() of lather/language.h. Data, training, checkpoints,
 *  evaluation and ranks are the library's. */
#ifndef LATHER_TRAINER_H
#define LATHER_TRAINER_H

#include "lather/module.h"
#include "lather/onnx.h"
#include "lather/options.h"
#include "lather/tensor_parallel.h"
#include "lather/weights.h"

/** What a model is made for. */
typedef struct lt_model_spec {
    int channels;   /**< of the images: 1 or 3; of a language model 0 */
    int size;       /**< side of the images in pixels, or tokens of a sequence; 0: not known */
    int classes;    /**< logits for each image, or each token: ids of the vocabulary */
    uint64_t seed;  /**< of the initial values */
    bool is_loaded; /**< all values come from a file afterwards: make need not draw them */
    /** Ranks that the model is divided over; borrowed for its life. NULL: a whole model on each. */
    const lt_tensor_parallel *tensor_parallel;
} lt_model_spec;

/** What one sample costs, in numbers, not bytes. */
typedef struct lt_model_cost {
    int64_t params;        /**< trained numbers of the model */
    int64_t multiply_adds; /**< of the forward pass */
    int64_t kept;          /**< activations that backward reads */
    int64_t recomputable;  /**< activations that --recompute can halve */
    int64_t largest;       /**< of the largest activation */
    int64_t rows,
        features; /**< of a transformer's activations: tokens of a sample, width; 0: none */
} lt_model_cost;

enum { LT_MODEL_FACTS = 16, LT_FACT_BYTES = 64 };

/** How sure a fact of a file of weights is: a flag that contradicts the first three is an error, it
 *  overrides the others. */
typedef enum lt_fact_source {
    LT_FACT_SHAPES,   /**< names and shapes of tensors */
    LT_FACT_METADATA, /**< the file's metadata */
    LT_FACT_CONFIG,   /**< a config.json in the same folder, which infer() reads */
    LT_FACT_USUAL,    /**< that of all published models of these shapes */
    LT_FACT_GUESS     /**< a warning names the flag */
} lt_fact_source;

/** What tells a model from others of its family: in the metadata of weights, in checkpoints, and as
 *  values of the family's options. */
typedef struct lt_model_fact {
    const char *key;          /**< "hidden", as the option is called */
    char text[LT_FACT_BYTES]; /**< "128" */
    bool input;               /**< how it reads images: metadata lists it with the input's facts */
    lt_fact_source source;    /**< of infer() */
} lt_model_fact;

typedef struct lt_model_facts {
    char title[LT_FACT_BYTES]; /**< "resnet18 of width 8, small stem"; "": the family's name */
    lt_model_fact item[LT_MODEL_FACTS];
    size_t count;
} lt_model_facts;

/** Appends a fact; one whose text is longer than LT_FACT_BYTES - 1, or that finds no place, is left
 *  out. Returns it, or NULL. */
LT_API lt_model_fact *lt_model_fact_put(lt_model_facts *facts, const char *key, const char *format,
                                        ...) LT_PRINTF(3, 4);
/** Text of a fact; "" if there is none. */
LT_API const char *lt_model_fact_text(const lt_model_facts *facts, const char *key);

/** A family of models. `config` is a struct of config_bytes, zeroed, which the options fill. Required:
 *  program, name, make. All texts and functions stay valid while the program runs; the functions are
 *  called by one thread. */
typedef struct lt_model_family {
    const char *program; /**< "train_mlp": in messages and in --help */
    const char *name;    /**< "mlp": names a model that has no fact "arch" */
    const char *summary; /**< one line for --help; NULL: a general one */
    const char *about;   /**< a sentence for --help: "Trains ... on images."; NULL: a general one */
    const char *head;    /**< prefix of the last layer's parameters, "fc.", which --reset-head makes
                              anew; NULL: --reset-head is refused */
    const char
        *recipes; /**< folder of NAME.yaml for --recipe NAME, in the source tree; installed they
                              are in share/lather/recipes; NULL: --recipe takes files alone */
    const char *recipe_names; /**< for --help: "paper, short"; NULL: none */
    const lt_option *option;  /**< rows of group "Model"; their names must be free */
    size_t options, config_bytes;
    /** The model, with its initial values. Errors: LT_E_ARG, LT_E_SHAPE, LT_E_NOMEM. */
    lt_status (*make)(lt_module **out, lt_device *device, const void *config,
                      const lt_model_spec *spec);
    /** Whether make can divide the model over spec->tensor_parallel, in batches of so many samples a
     *  copy: an error says which number does not divide, by what, and the nearest that does. Logits of
     *  an image classifier are then whole and equal on all ranks of a copy; of a language model a rank
     *  has its classes over row and, on a grid, the samples of its block of rows. What is given to
     *  forward are all samples of the copy. NULL: the family has no tensor-parallel form.
     *  Errors: LT_E_ARG, LT_E_UNSUPPORTED. */
    lt_status (*check_parallel)(const void *config, const lt_model_spec *spec, int64_t batch);
    /** Before everything below: checks texts of options, and chooses what they leave open, into
     *  fields of its own; known: what the metadata of --weights say. NULL: nothing to do. */
    lt_status (*resolve)(void *config, const lt_model_spec *spec, const lt_model_facts *known);
    /** The facts of a model. NULL: the values of all options, at most LT_MODEL_FACTS of them. */
    lt_status (*describe)(const void *config, const lt_model_spec *spec, lt_model_facts *out);
    /** What a file of weights holds: values of options, channels and classes, and the size that it
     *  reads usually (0: any); classes 0: the file has no last layer. NULL: what the metadata of a file that this program wrote say.
     *  Errors: LT_E_IO, LT_E_FORMAT, LT_E_UNSUPPORTED. */
    lt_status (*infer)(const char *path, lt_model_facts *out, lt_model_spec *spec);
    /** For entries of --weights that have another shape than the model's; context: config. NULL: they
     *  are errors. */
    lt_weights_fit_fn *fit;
    const char *prefix; /**< of lt_weights_config, as unread and alias are */
    const char *const *unread;
    const lt_weights_alias *alias;
    /** NULL: activations are not counted before the first step. Errors: LT_E_ARG. */
    lt_status (*cost)(const void *config, const lt_model_spec *spec, lt_model_cost *out);
    /** Nodes from "images" [N,channels,size,size] to "logits" [N,classes]; parameters go by their
     *  names. NULL: `export` is refused. */
    lt_status (*onnx)(lt_onnx *graph, const void *config, const lt_model_spec *spec);
} lt_model_family;

/** Reads a file of weights into a model. Errors: as lt_weights_load(). */
LT_API LT_MUST_CHECK lt_status lt_weights_load_model(const char *path, lt_module *model);

/** The whole program: trains, with --eval evaluates, and has the commands predict, export and
 *  reproduce. Returns the exit status: 0 done, 1 an error, 2 a wrong command line or family (two
 *  options of one name), 3 interrupted after a checkpoint. Messages go to standard error.
 *  Threads: once in a process, by its main thread; it installs signal handlers. */
LT_API int lt_classifier_main(int argc, char **argv, const lt_model_family *family);

#endif
