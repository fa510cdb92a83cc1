/** Layers of transformers: attention, MLP, the block of both, and a cache of keys and values for
 *  sampling. */
#ifndef LATHER_TRANSFORMER_H
#define LATHER_TRANSFORMER_H

#include "lather/detail/transformer_layers.h"

typedef struct lt_attention_layer {
    int width, heads; /**< features, and heads, which must divide width */
    int kv_heads;     /**< heads of k and v, a divisor of heads; 0: heads */
    bool causal;      /**< a token attends to itself and earlier tokens only */
    bool bias;
    bool in_out;   /**< weights are [in,out], as in GPT-2's Conv1D */
    double rotary; /**< base of lt_rotary() for q and k; 0: no rotary positions */
    double scale;  /**< factor of the scores q k^T; 0: 1/sqrt(features per head) */
    /** Parameter names below the layer's name; NULL: in_proj_weight, in_proj_bias, out_proj. */
    const char *qkv_weight, *qkv_bias, *out;
    const lt_tensor_parallel *parallel; /**< ranks that shard the heads; NULL: one rank */
} lt_attention_layer;

/** Creates self-attention of x [B,T,width]: y = out(attention(qkv(x))). Parameters:
 *  in_proj_weight [width + 2*kv_width,width] (rows of q, then k, then v), in_proj_bias,
 *  out_proj.weight [width,width], out_proj.bias; kv_width = kv_heads*width/heads. Zeros until
 *  lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_attention(lt_module **out, lt_device *device,
                                                  const char *name, lt_attention_layer config);

typedef enum lt_mlp_kind {
    LT_MLP_GELU,      /**< gelu with erf: down(gelu(up(x))) */
    LT_MLP_GELU_TANH, /**< gelu with tanh approximation: down(gelu(up(x))) */
    LT_MLP_SWIGLU     /**< gated by silu: down(silu(gate(x)) * up(x)) */
} lt_mlp_kind;

typedef struct lt_mlp_layer {
    int width, hidden;
    lt_mlp_kind kind;
    bool bias, in_out; /**< linear layers have biases; weights are [in,out] */
    double dropout;    /**< dropout probability, after the activation and after down */
    /** Parameter names below the layer's name; NULL: up, gate, down. */
    const char *up, *gate, *down;
    const lt_tensor_parallel *parallel; /**< ranks that shard the hidden features; NULL: one rank */
} lt_mlp_layer;

/** Creates an MLP of two or three linear layers on x [..,width]. Parameters: up.weight
 *  [hidden,width], up.bias; with LT_MLP_SWIGLU also gate.weight and gate.bias of the same
 *  shapes; down.weight [width,hidden], down.bias. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_mlp(lt_module **out, lt_device *device, const char *name,
                                            lt_mlp_layer config);

/** Names of a block's layers, below the block's name. */
typedef struct lt_transformer_names {
    const char *norm1, *qkv_weight, *qkv_bias, *out, *norm2, *up, *gate, *down;
} lt_transformer_names;

/** Initialisers of lt_transformer_names: torchvision's vision transformers, and Hugging Face's
 *  GPT-2. */
#define LT_TRANSFORMER_TORCHVISION                                              \
    {                                                                           \
        "ln_1", "self_attention.in_proj_weight", "self_attention.in_proj_bias", \
            "self_attention.out_proj", "ln_2", "mlp.0", "mlp.gate", "mlp.3"     \
    }
#define LT_TRANSFORMER_GPT2                                                                  \
    {                                                                                        \
        "ln_1", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj", "ln_2", "mlp.c_fc", \
            "mlp.c_gate", "mlp.c_proj"                                                       \
    }

typedef struct lt_transformer_config {
    int width, heads;
    int kv_heads;             /**< heads of k and v; 0: heads */
    int hidden;               /**< width of the MLP's hidden layer; 0: 4*width */
    bool causal;              /**< decoder block; false: encoder block */
    lt_layernorm_config norm; /**< layer norm or, with .rms, lt_rmsnorm(), which has no biases */
    lt_mlp_kind mlp;
    double rotary;                      /**< base of lt_rotary(); 0: no rotary positions */
    double attention_scale;             /**< scale of lt_attention_layer */
    bool bias;                          /**< linear layers have biases */
    bool in_out;                        /**< weights are [in,out], as in lt_attention_layer */
    double dropout;                     /**< probability, after the attention and in the MLP */
    double drop_path;                   /**< probability of dropping each branch */
    lt_transformer_names names;         /**< all names; norm1 NULL: LT_TRANSFORMER_TORCHVISION */
    const lt_tensor_parallel *parallel; /**< ranks that shard the block; NULL: one rank */
} lt_transformer_config;

/** Creates a pre-norm block: x = x + attention(norm1(x)), y = x + mlp(norm2(x)), x [B,T,width].
 *  Errors: LT_E_ARG, LT_E_NOMEM. Source: Xiong et al., "On layer normalization in the
 *  transformer architecture", ICML 2020, figure 1 (b). */
LT_API LT_MUST_CHECK lt_status lt_layer_transformer(lt_module **out, lt_device *device,
                                                    const char *name, lt_transformer_config config);
/** Runs a block but returns only its first row, [B,1,width]; after the attention the other rows
 *  are not computed. For the last block of a classifier that reads the class token alone. */
LT_API lt_tensor *lt_transformer_forward_first(lt_module *block, lt_tape *tape, lt_tensor *x);
/** Runs a sharded block on this rank's rows. If rows are not sharded, x is [B,T,width]. */
LT_API lt_tensor *lt_transformer_forward_rows(lt_module *block, lt_tape *tape, lt_tensor *x,
                                              lt_token_rows rows);
/** Runs lt_transformer_forward_first() of a sharded block; returns this rank's rows of
 *  {rows.sequences, 1}. If rows are sharded in one dimension, there must be at least as many
 *  sequences as ranks. */
LT_API lt_tensor *lt_transformer_forward_first_rows(lt_module *block, lt_tape *tape, lt_tensor *x,
                                                    lt_token_rows rows);
/** Checks that config.parallel can shard such a block. Errors: LT_E_ARG (heads or hidden are not
 *  divisible by the number of ranks: names both and numbers that work), LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_transformer_check_parallel(const char *name,
                                                             const lt_transformer_config *config);

/** Keys and values of the tokens that a decoder has processed, on the device; for sampling. */
typedef struct lt_kv_cache lt_kv_cache;

typedef struct lt_kv_cache_config {
    int layers;       /**< number of blocks with a cache */
    int64_t batch;    /**< number of sequences, B */
    int64_t capacity; /**< most tokens per sequence */
    int width;        /**< features of keys or values: kv_heads*width/heads */
    lt_dtype dtype;   /**< dtype of the pass, and of keys and values */
} lt_kv_cache_config;

/** Creates an empty cache. Borrows the device. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_kv_cache_new(lt_kv_cache **out, lt_device *device,
                                               lt_kv_cache_config config);
LT_API void lt_kv_cache_free(lt_kv_cache **cache);
/** Returns the number of tokens in the cache of block `layer`: the position of its next token. */
LT_API int64_t lt_kv_cache_count(const lt_kv_cache *cache, int layer);
/** Keeps the first `count` tokens of each block, or all if there are fewer; 0 empties the cache. */
LT_API void lt_kv_cache_truncate(lt_kv_cache *cache, int64_t count);
/** Runs a causal block on x [B,T,width], tokens that follow those in the cache, attends to all,
 *  and appends their keys and values to the cache. layer: index of the block. Only in passes
 *  that do not record. Errors on the tape: LT_E_ARG, LT_E_SHAPE (more tokens than the capacity). */
LT_API lt_tensor *lt_transformer_forward_cached(lt_module *block, lt_tape *tape, lt_tensor *x,
                                                lt_kv_cache *cache, int layer);

#endif
