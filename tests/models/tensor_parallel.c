/* Tensor-parallel vision transformers and language models, compared with the same model on one rank: logits, loss
 * and every gradient; then training steps. */

#include "full.h"
#include "gpt.h"
#include "near.h"
#include "parallel_net.h"
#include "vit.h"

#include "lather/detail/mesh_cost.h"
#include "lather/ops.h"

#include <stdlib.h>

/* --- Comparison --- */

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(1, fabs(b));
}

/* Returns the index among all logits of element i of this rank's logits. */
static int64_t logit_at(const net *own, int64_t i)
{
    const lt_tensor_parallel *p = own->parallel;
    if (is_vit(own->plan->family))
        return i;
    const int64_t classes = lt_even_shard_size(CLASSES, p->row->size, p->row->rank);
    const lt_token_rows rows = lt_parallel_rows(p, own->plan->samples, TOKENS);
    const int64_t first = p->column ? lt_parallel_local_rows(p, rows).first : 0;
    return (first + i / classes) * CLASSES
           + lt_even_shard_offset(CLASSES, p->row->size, p->row->rank) + i % classes;
}

static lt_status compare_logits(const net *serial, const net *own)
{
    for (int64_t i = 0; i < own->logit_count; i++) {
        const int64_t at = logit_at(own, i);
        if (at < serial->logit_count
            && !near(own->logits[i], serial->logits[at], own->plan->tolerance))
            return lt_fail(LT_E_SHAPE, "logit %lld is %.17g, want %.17g", (long long)at,
                           own->logits[i], serial->logits[at]);
    }
    return LT_OK;
}

static lt_status compare(const net *serial, const net *own)
{
    const double tolerance = own->plan->tolerance;
    if (!near(own->loss, serial->loss, tolerance))
        return lt_fail(LT_E_SHAPE, "the loss is %.17g, want %.17g", own->loss, serial->loss);
    LT_TRY(compare_logits(serial, own));
    if (!own->plan->dtype && memcmp(own->hits, serial->hits, sizeof own->hits))
        return lt_fail(LT_E_SHAPE, "%lld rows are correct, %lld in the top 5, want %lld and %lld",
                       (long long)own->hits[0], (long long)own->hits[1], (long long)serial->hits[0],
                       (long long)serial->hits[1]);
    for (size_t p = 0; p < own->params.count; p++) {
        const lt_param *param = own->params.item[p];
        const lt_shard_spec spec = lt_param_shard_spec(param);
        if (strcmp(param->name, serial->params.item[p]->name))
            return lt_fail(LT_E_SHAPE, "%s is in the position of %s", param->name,
                           serial->params.item[p]->name);
        for (int64_t i = 0; i < lt_tensor_count(param->value); i++) {
            const int64_t at = lt_shard_spec_index(&spec, i);
            if (!near(own->gradient[p][i], serial->gradient[p][at], tolerance))
                return lt_fail(LT_E_SHAPE, "gradient %lld of %s is %.17g, want %.17g",
                               (long long)at, param->name, own->gradient[p][i],
                               serial->gradient[p][at]);
        }
    }
    return LT_OK;
}

/* Requires bitwise identical results with and without overlap. */
static lt_status compare_bits(const net *a, const net *b)
{
    if (memcmp(&a->loss, &b->loss, sizeof a->loss))
        return lt_fail(LT_E_SHAPE, "the loss is %a without overlap, %a with it", b->loss, a->loss);
    for (size_t p = 0; p < a->params.count; p++)
        if (memcmp(a->gradient[p], b->gradient[p],
                   (size_t)lt_tensor_count(a->params.item[p]->value) * sizeof(double)))
            return lt_fail(LT_E_SHAPE, "%s has a different gradient without overlap",
                           a->params.item[p]->name);
    return LT_OK;
}

static lt_status one_pass(mesh_rank *r)
{
    const plan *p = r->context;
    const lt_tensor_parallel with = net_groups(r, p->sequence, true),
                             without = net_groups(r, p->sequence, false);
    net *n = calloc(3, sizeof *n);
    lt_status st = net_make(&n[0], p, r, NULL);
    st = st ? st : net_keep(&n[0]);
    st = st ? st : net_make(&n[1], p, r, &with);
    st = st ? st : net_keep(&n[1]);
    st = st ? st : compare(&n[0], &n[1]);
    st = st ? st : net_make(&n[2], p, r, &without);
    st = st ? st : net_keep(&n[2]);
    st = st ? st : compare_bits(&n[1], &n[2]);
    for (int i = 0; i < 3; i++)
        if (n[i].r)
            net_clear(&n[i]);
    free(n);
    return st;
}

static const double f64_tolerance = 1e-10, f32_tolerance = 1e-4;

static void one_dimension(void **state)
{
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA_FEW_KEYS; f++)
        for (int t = 1; t <= 4; t++)
            for (int sequence = 0; sequence < 2; sequence++)
                if (f != LLAMA_FEW_KEYS || t < 4) /* 4 ranks do not divide its 6 KV heads */
                    net_play((plan){.family = (family)f,
                                    .mesh = {1, 1, 1, t, false},
                                    .sequence = sequence,
                                    .samples = 3,
                                    .tolerance = f64_tolerance},
                             one_pass, NULL);
}

static void grids(void **state)
{
    static const int grid[][3] = {{1, 2, 5}, {2, 2, 5}, {2, 2, 3}, {1, 3, 3}}; /* d, q, samples */
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA; f++)
        for (size_t g = 0; g < COUNT_OF(grid); g++)
            if (test_full() || g < 2 || (size_t)f % 2 == g % 2)
                net_play((plan){.family = (family)f,
                                .mesh = {1, grid[g][0], grid[g][1], grid[g][1], true},
                                .samples = grid[g][2],
                                .tolerance = f64_tolerance},
                         one_pass, NULL);
}

static void noise(void **state)
{
    static const struct {
        lt_mesh_config mesh;
        bool sequence;
    } to[] = {
        {{1, 1, 1, 3, false}, true}, {{1, 1, 1, 2, false}, false}, {{1, 2, 2, 2, false}, false}};
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA_FEW_KEYS; f++)
        for (size_t i = 0; i < COUNT_OF(to); i++)
            if (f != LLAMA_FEW_KEYS || to[i].mesh.rows == 1)
                net_play((plan){.family = (family)f,
                                .mesh = to[i].mesh,
                                .sequence = to[i].sequence,
                                .noise = true,
                                .samples = 5,
                                .tolerance = f64_tolerance},
                         one_pass, NULL);
}

static void narrow(void **state)
{
    (void)state;
    for (int f = VIT_TOKEN; f <= LLAMA; f += GPT2 - VIT_TOKEN) {
        plan p = {.family = (family)f,
                  .mesh = {1, 1, 1, 2, false},
                  .sequence = true,
                  .f32 = true,
                  .samples = 3,
                  .tolerance = f32_tolerance};
        net_play(p, one_pass, NULL);
        p.mesh = (lt_mesh_config){1, 2, 2, 2, true};
        net_play(p, one_pass, NULL);
        p.mesh = (lt_mesh_config){1, 1, 1, 2, false};
        p.dtype = LT_BF16;
        p.tolerance = 0.05;
        net_play(p, one_pass, NULL);
    }
}

/* --- Steps --- */

/* Final values of each rank, written by its own thread; the ranks are compared afterwards. */
static struct {
    size_t params;
    lt_shard_spec spec[MOST_PARAMS];
    float *value[MOST_PARAMS];
} ends[MOST_RANKS];

static lt_status descend(net *n)
{
    static const double rate = 0.02;
    for (size_t p = 0; p < n->params.count; p++) {
        lt_tensor *t = n->params.item[p]->value;
        const int64_t count = lt_tensor_count(t);
        double *value = malloc((size_t)count * sizeof *value);
        LT_TRY(read_doubles(t, value));
        for (int64_t i = 0; i < count; i++)
            value[i] -= rate * n->gradient[p][i];
        lt_status st = write_doubles(t, value);
        free(value);
        LT_TRY(st);
    }
    return LT_OK;
}

static lt_status step_both(net *serial, net *own)
{
    LT_TRY(net_keep(serial));
    LT_TRY(net_keep(own));
    if (!(fabs(own->loss - serial->loss) <= 1e-5))
        return lt_fail(LT_E_SHAPE, "the loss is %.9g, want %.9g", own->loss, serial->loss);
    LT_TRY(descend(serial));
    return descend(own);
}

static lt_status store_end(const net *n, int rank)
{
    ends[rank].params = n->params.count;
    for (size_t p = 0; p < n->params.count; p++) {
        const lt_tensor *t = n->params.item[p]->value;
        ends[rank].spec[p] = lt_param_shard_spec(n->params.item[p]);
        ends[rank].value[p] = malloc(lt_tensor_bytes(t));
        LT_TRY(lt_tensor_read(t, ends[rank].value[p], lt_tensor_bytes(t)));
    }
    return LT_OK;
}

static lt_status several_steps(mesh_rank *r)
{
    const int count = test_full() ? 50 : 10;
    const plan *p = r->context;
    const lt_tensor_parallel to = net_groups(r, p->sequence, true);
    net *n = calloc(2, sizeof *n);
    lt_status st = net_make(&n[0], p, r, NULL);
    st = st ? st : net_make(&n[1], p, r, &to);
    for (int i = 0; i < count && !st; i++)
        if ((st = step_both(&n[0], &n[1])))
            st = lt_fail(st, "step %d: %s", i, lt_error_message());
    st = st ? st : store_end(&n[1], lt_comm_rank(r->at.comm));
    for (int i = 0; i < 2; i++)
        if (n[i].r)
            net_clear(&n[i]);
    free(n);
    return st;
}

/* Ranks with the same shard must have bitwise identical values. Returns the number of shards that an earlier rank
 * has too. */
static int compare_replicas(int rank)
{
    int shared = 0;
    for (size_t p = 0; p < ends[rank].params; p++)
        for (int other = 0; other < rank; other++) {
            const size_t bytes = (size_t)lt_shard_spec_count(&ends[rank].spec[p]) * sizeof(float);
            if (!lt_shard_spec_equal(&ends[rank].spec[p], &ends[other].spec[p]))
                continue;
            shared++;
            if (memcmp(ends[rank].value[p], ends[other].value[p], bytes))
                fail_msg("parameter %zu differs between ranks %d and %d", p, rank, other);
        }
    return shared;
}

static void compare_steps(plan p)
{
    const int ranks = p.mesh.depth * p.mesh.rows * p.mesh.columns;
    int shared = 0;
    memset(ends, 0, sizeof ends);
    net_play(p, several_steps, NULL);
    for (int rank = 0; rank < ranks; rank++)
        shared += compare_replicas(rank);
    assert_true(shared > 0);
    for (int rank = 0; rank < ranks; rank++)
        for (size_t i = 0; i < ends[rank].params; i++)
            free(ends[rank].value[i]);
}

static void steps(void **state)
{
    static const struct {
        lt_mesh_config mesh;
        family family;
        bool sequence;
    } to[] = {{{1, 1, 1, 2, false}, GPT2, true},
              {{1, 1, 1, 3, false}, VIT_TOKEN, false},
              {{1, 1, 2, 2, false}, VIT_TOKEN, false},
              {{1, 2, 2, 2, false}, GPT2, false}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(to); i++)
        compare_steps((plan){.family = to[i].family,
                             .mesh = to[i].mesh,
                             .sequence = to[i].sequence,
                             .f32 = true,
                             .samples = 4});
}

/* --- Traffic --- */

enum {
    BLOCK_WIDTH = 16,
    BLOCK_HEADS = 4,
    BLOCK_TOKENS = 6,
    BLOCK_SAMPLES = 4,
    BLOCK_ROWS = BLOCK_SAMPLES * BLOCK_TOKENS
};

/* Forward and backward pass of one block without biases. */
static lt_status one_block(mesh_rank *r)
{
    const plan *p = r->context;
    const lt_tensor_parallel to = net_groups(r, p->sequence, true);
    const lt_transformer_config config = {
        .width = BLOCK_WIDTH, .heads = BLOCK_HEADS, .parallel = &to};
    const lt_token_rows rows = {BLOCK_SAMPLES, BLOCK_TOKENS};
    const int64_t own = lt_parallel_local_rows(&to, rows).count;
    const int64_t width = BLOCK_WIDTH / (to.column ? to.row->size : 1);
    lt_module *block = NULL;
    lt_tensor *x = NULL;
    LT_TRY(lt_layer_transformer(&block, r->at.device, "block", config));
    lt_status st = make_box(r, &x, (box){0, own, 0, width}, 0, fraction, false);
    if (!st) {
        lt_tape_reset(r->tape, LT_PASS_TRAIN);
        lt_tensor *y =
            lt_transformer_forward_rows(block, r->tape, lt_tape_variable(r->tape, x), rows);
        st = lt_tape_backward(r->tape, lt_sum(r->tape, y, (lt_reduce_config){0}), 1);
    }
    lt_tape_reset(r->tape, LT_PASS_EVAL);
    lt_module_free(&block);
    lt_tensor_free(&x);
    return st;
}

/* Elements that normalization moves on all ranks: statistics summed over rows, and gradients summed over ranks
 * with other rows. An all-reduce of n elements over m ranks moves 2(m-1)n. */
static double norms(const lt_mesh_config *m)
{
    const double q = m->columns, d = m->depth, h = BLOCK_WIDTH, t = BLOCK_ROWS;
    if (m->rows == 1)
        return 2 * (q - 1) * 4 * h;
    return 2 * (q - 1) * 8 * t + 2 * (q - 1) * d * 4 * h + 2 * (d - 1) * q * 4 * h;
}

static void bytes_of(lt_mesh_config m)
{
    double layer;
    uint64_t sent = 0;
    const int ranks = m.depth * m.rows * m.columns;
    assert_ok(lt_mesh_cost_layer(&layer, &m, BLOCK_ROWS, BLOCK_WIDTH));
    net_play((plan){.mesh = m, .sequence = true, .samples = BLOCK_SAMPLES}, one_block, &sent);
    const double want = (layer * ranks + norms(&m)) * sizeof(double);
    if (!(fabs((double)sent - want) <= 1e-6))
        fail_msg("depth %d, %d x %d: %llu bytes, want %.1f", m.depth, m.rows, m.columns,
                 (unsigned long long)sent, want);
}

static void bytes(void **state)
{
    (void)state;
    bytes_of((lt_mesh_config){1, 1, 1, 2, false});
    bytes_of((lt_mesh_config){1, 1, 1, 4, false});
    bytes_of((lt_mesh_config){1, 1, 2, 2, false});
    bytes_of((lt_mesh_config){1, 2, 2, 2, false});
    bytes_of((lt_mesh_config){1, 1, 4, 4, false});
}

/* --- Invalid divisions --- */

static lt_process_group group_of(int size)
{
    return (lt_process_group){.size = size};
}

static void refuse(void **state)
{
    (void)state;
    lt_process_group five = group_of(5), two = group_of(2), three = group_of(3);
    const lt_tensor_parallel line = {.row = &five, .model = &five},
                             grid = {.row = &two, .column = &two, .depth = &three, .model = &five};
    lt_vit_config vit = {.arch = "vit_ti_16", .classes = 10, .size = 224, .parallel = &line};
    assert_fails(lt_vit_check_parallel(&vit, 8), LT_E_ARG,
                 "vit: 3 heads are not divisible by 5 ranks; use 5");
    vit.parallel = &grid;
    vit.heads = 6;
    assert_fails(lt_vit_check_parallel(&vit, 8), LT_E_ARG,
                 "vit: a batch of 8 is not divisible by the grid's 6 rows; use 6");
    assert_ok(lt_vit_check_parallel(&vit, 12));
    lt_gpt_config gpt = {.width = 60, .layers = 1, .heads = 6, .positions = 8, .vocabulary = 9};
    gpt.parallel = &line;
    assert_fails(lt_gpt_check_parallel(&gpt, 6), LT_E_ARG,
                 "gpt: 6 heads are not divisible by 5 ranks; use 5 or 10");
    gpt.parallel = &grid;
    gpt.kv_heads = 2;
    assert_fails(lt_gpt_check_parallel(&gpt, 6), LT_E_UNSUPPORTED,
                 "6 heads with 2 of k and v are not supported on grids");
    gpt.kv_heads = 3;
    assert_fails(lt_gpt_check_parallel(&gpt, 6), LT_E_ARG,
                 "3 heads of k and v are not divisible by 2 ranks; use 2 or 4");
    gpt = (lt_gpt_config){.width = 60, .layers = 1, .heads = 5, .hidden = 3, .vocabulary = 4};
    gpt.positions = 8;
    gpt.parallel = &line;
    assert_fails(lt_gpt_check_parallel(&gpt, 6), LT_E_ARG,
                 "3 hidden features of the MLP are fewer than 5 ranks");
    gpt.hidden = 0;
    assert_fails(lt_gpt_check_parallel(&gpt, 6), LT_E_ARG,
                 "a vocabulary of 4 is smaller than 5 ranks");
}

static lt_status without_a_cache(mesh_rank *r)
{
    const plan *p = r->context;
    const lt_tensor_parallel to = net_groups(r, true, true);
    lt_kv_cache *cache = NULL;
    net *n = calloc(1, sizeof *n);
    lt_status st = net_make(n, p, r, &to);
    st = st ? st : lt_gpt_new_cache(&cache, n->model, r->at.device, 3, TOKENS);
    if (!st) {
        lt_tape_reset(r->tape, LT_PASS_EVAL);
        const bool refused = !lt_gpt_forward_cached(n->model, r->tape, n->inputs, cache)
                             && lt_tape_status(r->tape) == LT_E_UNSUPPORTED;
        st = refused ? LT_OK : lt_fail(LT_E_ARG, "a tensor-parallel model accepted a KV cache");
    }
    lt_kv_cache_free(&cache);
    net_clear(n);
    free(n);
    return st;
}

static void refuse_a_cache(void **state)
{
    (void)state;
    net_play((plan){.family = GPT2, .mesh = {1, 1, 1, 2, false}, .samples = 3}, without_a_cache,
             NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"in one dimension, logits, loss and gradients equal one rank's within 1e-10",
         one_dimension, NULL, NULL, NULL},
        {"on grids they do too, for any batch", grids, NULL, NULL, NULL},
        {"dropout masks equal those of one rank", noise, NULL, NULL, NULL},
        {"they do in f32 and, in one dimension, in bf16", narrow, NULL, NULL, NULL},
        {"training losses equal one rank's within 1e-5, and replicas are bitwise identical", steps,
         NULL, NULL, NULL},
        {"a block moves the bytes of the formula", bytes, NULL, NULL, NULL},
        {"an indivisible size is named, with a valid one", refuse, NULL, NULL, NULL},
        {"a tensor-parallel model rejects a KV cache", refuse_a_cache, NULL, NULL, NULL},
    };
    return _cmocka_run_group_tests("tensor-parallel models", tests, COUNT_OF(tests), NULL, NULL);
}
