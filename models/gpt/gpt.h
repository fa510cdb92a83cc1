/** GPT-2 and language models like it; the library lather-gpt. Radford et al., "Language models are
 *  unsupervised multitask learners", 2019. Names and shapes are those of HuggingFace's GPT-2. */
#ifndef LATHER_MODELS_GPT_H
#define LATHER_MODELS_GPT_H

#include "lather/trainer.h"
#include "lather/transformer.h"

typedef struct lt_gpt_config {
    const char *arch; /**< "gpt2": fills what is 0 of the next three; NULL or "": gpt2's */
    int width, layers, heads;
    int kv_heads;   /**< of keys and values, a divisor of heads; 0: heads */
    int hidden;     /**< of the mlp; 0: 4*width */
    int positions;  /**< tokens of the longest sequence; with rotary ones only of what is told */
    int vocabulary; /**< ids; their embeddings are the weights of the last layer, too */
    bool rms;       /**< lt_rmsnorm() instead of lt_layernorm() */
    bool rotary;    /**< rotary positions instead of learned ones */
    lt_mlp_kind mlp;
    double dropout;                     /**< behind embeddings, attention and the mlp */
    uint64_t seed;                      /**< of the initial values */
    bool is_loaded;                     /**< weights are loaded afterwards: no values are drawn */
    const lt_tensor_parallel *parallel; /**< ranks that it is divided over; NULL: one */
} lt_gpt_config;

/** The network: ids LT_I32 [N,T] to logits [N,T,vocabulary]. Divided, it takes a copy's ids on each of
 *  its ranks, and gives each its part of the vocabulary's logits, on a grid of its samples: what
 *  lt_parallel_softmax_xent() reads. Errors: LT_E_ARG (an unknown arch, a
 *  field out of range, heads that do not divide the width), LT_E_NOMEM; on the tape LT_E_SHAPE (more
 *  tokens than positions). */
LT_API LT_MUST_CHECK lt_status lt_gpt_new(lt_module **out, lt_device *device,
                                          const lt_gpt_config *config);

/** Whether config->parallel can divide the network, for batches of so many sequences a copy. Errors:
 *  LT_E_ARG (what does not divide, by how many ranks, and what would), LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_gpt_check_parallel(const lt_gpt_config *config, int64_t batch);

/** An empty cache for sequences of at most `capacity` tokens. Errors: LT_E_ARG (more than there are
 *  positions), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_gpt_cache(lt_kv_cache **out, const lt_module *gpt,
                                            lt_device *device, int64_t batch, int64_t capacity);
/** The logits [N,1,vocabulary] of the last of ids [N,T], which follow those in the cache; in a pass
 *  of the master dtype that does not record. */
LT_API lt_tensor *lt_gpt_forward_cached(lt_module *gpt, lt_tape *tape, lt_tensor *ids,
                                        lt_kv_cache *cache);

/** What network a file of weights belongs to, read off its names and shapes; the number of heads is
 *  its metadata's (says_heads), else that of the arch of its width, else heads are 64 features wide.
 *  arch stays NULL. Errors: LT_E_IO, LT_E_FORMAT (also a last layer that is not the embeddings). */
LT_API LT_MUST_CHECK lt_status lt_gpt_infer(const char *path, lt_gpt_config *config,
                                            bool *says_heads);

/** Replaces arch by what it stands for. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_gpt_resolve(lt_gpt_config *config);

/** "gpt2": the name of a resolved config's network, NULL if it has none. */
LT_API const char *lt_gpt_name(const lt_gpt_config *config);

/** What a sequence of `length` tokens costs. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_gpt_count(lt_model_cost *out, const lt_gpt_config *config,
                                            int64_t length);

/** For lt_weights_config: prefix and other entries of HuggingFace's files. */
#define LT_GPT_PREFIX "transformer."
#define LT_GPT_UNREAD \
    ((const char *const[]){".attn.bias", ".attn.masked_bias", "lm_head.weight", NULL})

#endif
