/* Vision transformers and language models with known values, on one rank or tensor-parallel. */
#ifndef LT_TESTS_MODELS_PARALLEL_NET_H
#define LT_TESTS_MODELS_PARALLEL_NET_H

#include "mesh_ranks.h"

#include "lather/module.h"
#include "lather/tensor_parallel.h"

enum {
    WIDTH = 24,
    HEADS = 12,
    HIDDEN = 30,
    LAYERS = 2,
    CLASSES = 29,
    SIDE = 6,
    PATCH = 2,
    TOKENS = 7
};
enum { MOST_SAMPLES = 6, MOST_PARAMS = 64, MOST_LOGITS = MOST_SAMPLES * TOKENS * CLASSES };

typedef enum family { VIT_TOKEN, VIT_MEAN, GPT2, LLAMA, LLAMA_FEW_KEYS } family;

typedef struct plan {
    family family;
    lt_mesh_config mesh;
    bool sequence, f32, noise; /* noise: dropout and stochastic depth */
    int samples;
    lt_dtype dtype; /* dtype of the pass */
    double tolerance;
} plan;

/* A network on one rank, with its inputs and results. */
typedef struct net {
    const plan *plan;
    const lt_tensor_parallel *parallel;
    mesh_rank *r;
    lt_module *model;
    lt_params params;
    lt_tensor *inputs, *labels, *found; /* found: top-k hits */
    double loss, logits[MOST_LOGITS], *gradient[MOST_PARAMS];
    int64_t hits[3];
    int64_t logit_count;
} net;

bool is_vit(family f);
/* Makes the same network on every rank, whole (parallel NULL) or tensor-parallel; net_clear() frees it even after
 * a failure. */
lt_status net_make(net *n, const plan *p, mesh_rank *r, const lt_tensor_parallel *parallel);
void net_clear(net *n);
/* Forward and backward; stores loss, logits, hits and gradients. */
lt_status net_keep(net *n);
lt_tensor_parallel net_groups(const mesh_rank *r, bool sequence, bool overlap);
/* Runs fn on every rank of the plan's mesh; fails the test if a rank fails. */
void net_play(plan p, lt_status (*fn)(mesh_rank *r), uint64_t *bytes);

#endif
