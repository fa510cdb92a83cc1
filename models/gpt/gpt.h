/** GPT-2 and similar language models; the library lather-gpt. Radford et al., "Language models are unsupervised
 *  multitask learners", 2019. Names and shapes are those of HuggingFace's GPT-2. */
#ifndef LATHER_MODELS_GPT_H
#define LATHER_MODELS_GPT_H

#include "lather/trainer.h"
#include "lather/transformer.h"

typedef struct lt_gpt_config {
    const char *arch; /**< "gpt2": sets the next three fields where they are 0; NULL or "": gpt2 */
    int width, layers, heads;
    int kv_heads;   /**< heads of keys and values, a divisor of heads; 0: heads */
    int hidden;     /**< width of the mlp's hidden layer; 0: 4*width */
    int positions;  /**< longest sequence in tokens; with rotary positions only informative */
    int vocabulary; /**< number of ids; their embeddings are the weights of the last layer, too */
    bool rms;       /**< lt_rmsnorm() instead of lt_layernorm() */
    bool rotary;    /**< rotary positions instead of learned ones */
    lt_mlp_kind mlp;
    double dropout;         /**< after embeddings, attention and the mlp */
    double attention_scale; /**< factor of attention scores; 0: 1/sqrt(features per head) */
    uint64_t seed;          /**< seed of the initial values */
    bool is_loaded;         /**< weights are loaded later: no initial values are drawn */
    const lt_tensor_parallel *parallel; /**< ranks that shard it; NULL: one */
} lt_gpt_config;

/** Makes the network: ids LT_I32 [N,T] to logits [N,T,vocabulary]. Sharded, it takes a replica's ids on each of
 *  its ranks, and returns on each its shard of the vocabulary's logits, on a grid for its samples: the input of
 *  lt_parallel_softmax_xent(). Errors: LT_E_ARG (an unknown arch, a field out of range, heads that do not divide
 *  the width), LT_E_NOMEM; on the tape LT_E_SHAPE (more tokens than positions). */
LT_API LT_MUST_CHECK lt_status lt_gpt_new(lt_module **out, lt_device *device,
                                          const lt_gpt_config *config);

/** Checks that config->parallel can shard the network, with `batch` sequences per replica. Errors: LT_E_ARG (names
 *  the number that does not divide, the ranks, and a number that does), LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_gpt_check_parallel(const lt_gpt_config *config, int64_t batch);

/** Makes an empty cache for sequences of at most `capacity` tokens. Errors: LT_E_ARG (more than the model's
 *  positions), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_gpt_new_cache(lt_kv_cache **out, const lt_module *gpt,
                                                lt_device *device, int64_t batch, int64_t capacity);
/** Returns the logits [N,1,vocabulary] of the last of ids [N,T], which follow those in the cache; in a pass of the
 *  master dtype that does not record. */
LT_API lt_tensor *lt_gpt_forward_cached(lt_module *gpt, lt_tape *tape, lt_tensor *ids,
                                        lt_kv_cache *cache);

/** Determines the network of a weight file from its names and shapes. The number of heads is taken from its
 *  metadata (says_heads), otherwise from the arch of its width, otherwise heads are 64 features wide. arch remains
 *  NULL. Errors: LT_E_IO, LT_E_FORMAT (also a last layer other than the embeddings). */
LT_API LT_MUST_CHECK lt_status lt_gpt_infer_config(const char *path, lt_gpt_config *config,
                                                   bool *says_heads);

/** Replaces arch by its values. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_gpt_resolve(lt_gpt_config *config);

/** Returns the name of a resolved config's network, such as "gpt2"; NULL if it has none. */
LT_API const char *lt_gpt_name(const lt_gpt_config *config);

/** Counts the cost of a sequence of `length` tokens. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_gpt_count_cost(lt_model_cost *out, const lt_gpt_config *config,
                                                 int64_t length);

/** For lt_weights_config: prefix and unread entries of HuggingFace's files. */
#define LT_GPT_PREFIX "transformer."
#define LT_GPT_UNREAD \
    ((const char *const[]){".attn.bias", ".attn.masked_bias", "lm_head.weight", NULL})

/** Returns the family of train_gpt for lt_language_main() in a program of your own; a copy may have another
 *  `program`, the name in messages. */
LT_API const lt_model_family *lt_gpt_family(void);

#endif
