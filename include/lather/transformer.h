/** Transformers' layers: attention, mlp, the block of both, and a cache for sampling. */
#ifndef LATHER_TRANSFORMER_H
#define LATHER_TRANSFORMER_H

#include "lather/detail/transformer_layers.h"

typedef struct lt_attention_layer {
    int width, heads; /**< heads must divide width */
    int kv_heads;     /**< of k and v, a divisor of heads; 0: heads */
    bool causal;      /**< a row sees itself and those before it */
    bool bias;
    bool in_out;   /**< weights are [in,out], as GPT-2's Conv1D stores them */
    double rotary; /**< base of lt_rotary() of q and k; 0: none */
    /** Names below the layer's; NULL: in_proj_weight, in_proj_bias, out_proj. */
    const char *qkv_weight, *qkv_bias, *out;
    const lt_tensor_parallel *parallel; /**< ranks among which heads are divided; NULL: none */
} lt_attention_layer;

/** Self-attention of x [B,T,width]: y = out(attention(qkv(x))). Parameters: in_proj_weight
 *  [width + 2*kv_width,width], rows of q, then k, then v, in_proj_bias; out_proj.weight [width,width],
 *  out_proj.bias; kv_width = kv_heads*width/heads. Zeros until lt_init_*() fills them.
 *  Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_attention(lt_module **out, lt_device *device,
                                                  const char *name, lt_attention_layer config);

typedef enum lt_mlp_kind {
    LT_MLP_GELU,      /**< down(gelu(up(x))), gelu by erf */
    LT_MLP_GELU_TANH, /**< the same, gelu by tanh */
    LT_MLP_SWIGLU     /**< down(silu(gate(x)) * up(x)) */
} lt_mlp_kind;

typedef struct lt_mlp_layer {
    int width, hidden;
    lt_mlp_kind kind;
    bool bias, in_out; /**< as of lt_attention_layer */
    double dropout;    /**< behind the activation and behind down */
    /** Names below the layer's; NULL: up, gate, down. */
    const char *up, *gate, *down;
    const lt_tensor_parallel *parallel; /**< ranks among which hidden is divided; NULL: none */
} lt_mlp_layer;

/** Two or three linear layers of x [..,width]. Parameters: up.weight [hidden,width], up.bias; with
 *  LT_MLP_SWIGLU gate, alike; down.weight [width,hidden], down.bias. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_mlp(lt_module **out, lt_device *device, const char *name,
                                            lt_mlp_layer config);

/** Names of a block's layers below its own. */
typedef struct lt_transformer_names {
    const char *norm1, *qkv_weight, *qkv_bias, *out, *norm2, *up, *gate, *down;
} lt_transformer_names;

/** Initialisers of it: torchvision's vision transformers, and HuggingFace's GPT-2. */
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
    int kv_heads;             /**< 0: heads */
    int hidden;               /**< of the mlp; 0: 4*width */
    bool causal;              /**< a decoder's block; else an encoder's */
    lt_layernorm_config norm; /**< .rms: lt_rmsnorm(), without shifts */
    lt_mlp_kind mlp;
    double rotary;                      /**< base of lt_rotary(); 0: none */
    bool bias;                          /**< of the linear layers */
    bool in_out;                        /**< as of lt_attention_layer */
    double dropout;                     /**< behind the attention, and in the mlp */
    double drop_path;                   /**< of each branch */
    lt_transformer_names names;         /**< norm1 NULL: torchvision's */
    const lt_tensor_parallel *parallel; /**< ranks that it is divided over; NULL: none */
} lt_transformer_config;

/** A block with its norms in front: x = x + attention(norm1(x)), y = x + mlp(norm2(x)), x [B,T,width].
 *  Errors: LT_E_ARG, LT_E_NOMEM. Source: Xiong et al., "On layer normalization in the transformer
 *  architecture", ICML 2020, figure 1 (b). */
LT_API LT_MUST_CHECK lt_status lt_layer_transformer(lt_module **out, lt_device *device,
                                                    const char *name, lt_transformer_config config);
/** The first row of what the block makes of x: [B,1,width]; the other rows are not computed behind
 *  the attention. A classifier that reads the class token alone takes its last block so. */
LT_API lt_tensor *lt_transformer_forward_first(lt_module *block, lt_tape *tape, lt_tensor *x);
/** Of a divided block: what it makes of this rank's rows. Where rows are not divided, x is [B,T,width]. */
LT_API lt_tensor *lt_transformer_forward_rows(lt_module *block, lt_tape *tape, lt_tensor *x,
                                              lt_token_rows rows);
/** lt_transformer_forward_first() of a divided block: the rows of {rows.sequences, 1} that this rank has;
 *  where rows are divided in one dimension there are at least as many sequences as ranks. */
LT_API lt_tensor *lt_transformer_forward_first_rows(lt_module *block, lt_tape *tape, lt_tensor *x,
                                                    lt_token_rows rows);
/** Whether config.parallel can divide such a block. Errors: LT_E_ARG (heads or hidden, the ranks that do
 *  not divide them, and what would do), LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_transformer_check_parallel(const char *name,
                                                             const lt_transformer_config *config);

/** Keys and values of the rows that a decoder has seen, on the device; for sampling. */
typedef struct lt_kv_cache lt_kv_cache;

typedef struct lt_kv_cache_config {
    int layers;       /**< blocks */
    int64_t batch;    /**< sequences, B */
    int64_t capacity; /**< rows of each */
    int width;        /**< kv_heads*width/heads */
    lt_dtype dtype;   /**< of the pass */
} lt_kv_cache_config;

/** An empty cache; borrows the device. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_kv_cache_new(lt_kv_cache **out, lt_device *device,
                                               lt_kv_cache_config config);
LT_API void lt_kv_cache_free(lt_kv_cache **cache);
/** Rows that block `layer` has seen: the position of its next one. */
LT_API int64_t lt_kv_cache_count(const lt_kv_cache *cache, int layer);
/** Keeps the first `count` rows of each block, at most as many as there are; 0 begins anew. */
LT_API void lt_kv_cache_truncate(lt_kv_cache *cache, int64_t count);
/** What a causal block makes of x [B,T,width], rows that follow those in the cache; they attend over
 *  all, and the cache has them too afterwards. layer: the block's place, from 0. In passes that do not
 *  record. Errors on the tape: LT_E_ARG, LT_E_SHAPE (more rows than the capacity). */
LT_API lt_tensor *lt_transformer_forward_cached(lt_module *block, lt_tape *tape, lt_tensor *x,
                                                lt_kv_cache *cache, int layer);

#endif
