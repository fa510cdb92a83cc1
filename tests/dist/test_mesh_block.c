/* A tensor-parallel transformer block with classifier, compared with one rank: the loss and all gradients. 1-D with
 * sequence parallelism, and on grids with depth. */

#include "mesh_ranks.h"
#include "near.h"

#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 5, SEQUENCES = 12, ROWS = TOKENS * SEQUENCES, WIDTH = 12, HEADS = 6, CLASSES = 11 };

enum { X, G1, B1, WQ, BQ, WP, BP, G2, B2, W1, C1, W2, C2, WV, TENSORS };

/* Shapes of the whole tensors. */
static const struct {
    const char *name;
    int64_t rows, columns;
    bool vector;
} whole[TENSORS] = {
    [X] = {"x", ROWS, WIDTH, false},
    [G1] = {"norm1.weight", 1, WIDTH, true},
    [B1] = {"norm1.bias", 1, WIDTH, true},
    [WQ] = {"qkv.weight", 3 * WIDTH, WIDTH, false},
    [BQ] = {"qkv.bias", 1, 3 * WIDTH, true},
    [WP] = {"projection.weight", WIDTH, WIDTH, false},
    [BP] = {"projection.bias", 1, WIDTH, true},
    [G2] = {"norm2.weight", 1, WIDTH, true},
    [B2] = {"norm2.bias", 1, WIDTH, true},
    [W1] = {"fc1.weight", 4 * WIDTH, WIDTH, false},
    [C1] = {"fc1.bias", 1, 4 * WIDTH, true},
    [W2] = {"fc2.weight", WIDTH, 4 * WIDTH, false},
    [C2] = {"fc2.bias", 1, WIDTH, true},
    [WV] = {"classes.weight", CLASSES, WIDTH, false},
};

typedef enum form { SERIAL, ONE_DIMENSION, GRID } form;

/* A rank's network and its shards of all tensors. */
typedef struct net {
    mesh_rank *r;
    form form;
    lt_process_group *row, *column, *depth;
    box box[TENSORS];
    int64_t q_first, q_width; /* this rank's range of each third of qkv */
    lt_tensor *tensor[TENSORS], *labels, *v[TENSORS], *loss;
} net;

/* --- Shards --- */

static void cut_rows(box *b, int64_t rows, int parts, int index)
{
    cut(rows, parts, index, &b->row, &b->rows);
}

static void cut_columns(box *b, int64_t columns, int parts, int index)
{
    cut(columns, parts, index, &b->column, &b->columns);
}

static void place_1d(net *n)
{
    const int t = n->row->size, j = n->row->rank;
    cut_rows(&n->box[X], ROWS, t, j);
    cut_rows(&n->box[W1], 4 * WIDTH, t, j);
    cut_columns(&n->box[C1], 4 * WIDTH, t, j);
    cut_columns(&n->box[W2], 4 * WIDTH, t, j);
    cut_columns(&n->box[WP], WIDTH, t, j);
    cut_rows(&n->box[WV], CLASSES, t, j);
}

static void place_grid(net *n)
{
    static const int vectors[] = {G1, B1, BP, G2, B2, C1, C2}, matrices[] = {WP, W1, W2, WV, WQ};
    const int q = n->row->size, i = n->column->rank, j = n->row->rank;
    cut_rows(&n->box[X], ROWS, q * n->depth->size, n->depth->rank * q + i);
    cut_columns(&n->box[X], WIDTH, q, j);
    for (size_t k = 0; k < COUNT_OF(vectors); k++)
        cut_columns(&n->box[vectors[k]], whole[vectors[k]].columns, q, j);
    for (size_t k = 0; k < COUNT_OF(matrices); k++) {
        cut_rows(&n->box[matrices[k]], whole[matrices[k]].rows, q, j);
        cut_columns(&n->box[matrices[k]], whole[matrices[k]].columns, q, i);
    }
}

static void place(net *n)
{
    for (int t = 0; t < TENSORS; t++)
        n->box[t] = (box){0, whole[t].rows, 0, whole[t].columns};
    cut(WIDTH, 1, 0, &n->q_first, &n->q_width);
    if (n->form == SERIAL)
        return;
    cut(WIDTH, n->row->size, n->row->rank, &n->q_first, &n->q_width);
    if (n->form == ONE_DIMENSION)
        place_1d(n);
    else
        place_grid(n);
    n->box[WQ].row = n->box[BQ].column = 0; /* a range of each third, concatenated: see at() */
    n->box[WQ].rows = n->box[BQ].columns = 3 * n->q_width;
}

/* Finds an element of a shard in the whole tensor. */
static void at(const net *n, int t, int64_t i, int64_t *row, int64_t *column)
{
    const box *b = &n->box[t];
    int64_t *joined = t == WQ ? row : t == BQ ? column : NULL;
    *row = b->row + i / b->columns;
    *column = b->column + i % b->columns;
    if (joined)
        *joined = *joined / n->q_width * WIDTH + n->q_first + *joined % n->q_width;
}

static lt_status make(net *n, int t)
{
    const box *b = &n->box[t];
    const int64_t count = b->rows * b->columns;
    double *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) {
        int64_t row, column;
        at(n, t, i, &row, &column);
        data[i] = fraction(t, row, column) + (t == G1 || t == G2 ? 1 : 0);
    }
    lt_status st =
        lt_tensor_new(&n->tensor[t], n->r->at.device, LT_F64,
                      whole[t].vector ? LT_SHAPE(b->columns) : LT_SHAPE(b->rows, b->columns));
    if (!st)
        st = lt_tensor_write(n->tensor[t], data, (size_t)count * sizeof *data);
    free(data);
    return st;
}

/* Labels of this rank's rows; one of them is ignored. */
static lt_status make_labels(net *n)
{
    const box *b = &n->box[X];
    const bool own = n->form == GRID;
    const int64_t first = own ? b->row : 0, rows = own ? b->rows : ROWS;
    int32_t label[ROWS];
    for (int64_t m = 0; m < rows; m++)
        label[m] = (int32_t)((first + m) * 7 % CLASSES);
    if (first == 0)
        label[2] = LT_IGNORED_LABEL;
    LT_TRY(lt_tensor_new(&n->labels, n->r->at.device, LT_I32, LT_SHAPE(rows)));
    return lt_tensor_write(n->labels, label, (size_t)rows * sizeof *label);
}

/* --- The network --- */

static lt_tensor *norm(net *n, lt_tensor *x, int gamma, int beta)
{
    lt_tape *tape = n->r->tape;
    lt_tensor *g = n->v[gamma], *b = n->v[beta];
    if (n->form == GRID)
        return lt_layernorm_sharded(
            tape, x, g, b,
            (lt_sharded_norm_config){
                .row = n->row, .column = n->column, .depth = n->depth, .features = WIDTH});
    if (n->form == ONE_DIMENSION) { /* each rank has different rows */
        g = lt_group_copy(tape, g, n->row);
        b = lt_group_copy(tape, b, n->row);
    }
    return lt_layernorm(tape, x, g, b, (lt_layernorm_config){0});
}

static lt_tensor *product(net *n, lt_tensor *x, int weight, lt_tensor *b, bool expands)
{
    lt_tape *tape = n->r->tape;
    lt_tensor *w = n->v[weight];
    if (n->form == GRID)
        return lt_linear_summa(tape, x, w, b,
                               (lt_summa_config){.row = n->row,
                                                 .column = n->column,
                                                 .depth = n->depth,
                                                 .in = whole[weight].columns,
                                                 .out = whole[weight].rows});
    if (n->form == ONE_DIMENSION)
        return expands ? lt_linear_column_parallel(tape, x, w, b, n->row, ROWS)
                       : lt_linear_row_parallel(tape, x, w, b, n->row);
    return lt_linear(tape, x, w, b);
}

static lt_tensor *attend(net *n, lt_tensor *x)
{
    lt_tape *tape = n->r->tape;
    if (n->form != SERIAL)
        return lt_attention_sharded(tape, x,
                                    (lt_sharded_attention_config){n->row, HEADS, TOKENS, true});
    x = lt_reshape(tape, x, LT_SHAPE(SEQUENCES, TOKENS, 3 * WIDTH));
    x = lt_attention(tape, x, NULL, NULL, (lt_attention_config){.heads = HEADS, .causal = true});
    return lt_reshape(tape, x, LT_SHAPE(ROWS, WIDTH));
}

/* The mean over all rows but the ignored one. */
static lt_tensor *loss_of(net *n, lt_tensor *logits)
{
    if (n->form == SERIAL)
        return lt_softmax_xent(n->r->tape, logits, n->labels, 0);
    const bool grid = n->form == GRID;
    return lt_softmax_xent_sharded(n->r->tape, logits, n->labels,
                                   (lt_sharded_xent_config){.row = n->row,
                                                            .column = grid ? n->column : NULL,
                                                            .depth = grid ? n->depth : NULL,
                                                            .classes = CLASSES,
                                                            .rows = ROWS - 1});
}

static lt_status run(net *n)
{
    lt_tape *tape = n->r->tape;
    lt_tape_reset(tape, LT_PASS_TRAIN);
    for (int t = 0; t < TENSORS; t++)
        n->v[t] = lt_tape_variable(tape, n->tensor[t]);
    lt_tensor *a = product(n, norm(n, n->v[X], G1, B1), WQ, n->v[BQ], true);
    lt_tensor *y = lt_add(tape, n->v[X], product(n, attend(n, a), WP, n->v[BP], false));
    lt_tensor *h = product(n, norm(n, y, G2, B2), W1, n->v[C1], true);
    h = product(n, lt_gelu(tape, h, LT_GELU_ERF), W2, n->v[C2], false);
    y = lt_add(tape, y, h);
    n->loss = loss_of(n, product(n, y, WV, NULL, true));
    LT_TRY(lt_tape_status(tape));
    return lt_tape_backward(tape, n->loss, 1);
}

static lt_status make_all(net *n)
{
    place(n);
    for (int t = 0; t < TENSORS; t++)
        LT_TRY(make(n, t));
    LT_TRY(make_labels(n));
    return run(n);
}

static void free_all(net *n)
{
    for (int t = 0; t < TENSORS; t++)
        lt_tensor_free(&n->tensor[t]);
    lt_tensor_free(&n->labels);
}

/* --- Comparison --- */

typedef struct result {
    double loss, *gradient[TENSORS];
} result;

static lt_status keep(const net *n, result *o)
{
    LT_TRY(lt_tensor_item(n->loss, &o->loss));
    for (int t = 0; t < TENSORS; t++) {
        const lt_tensor *g = lt_tape_gradient(n->r->tape, n->v[t]);
        if (!g)
            return lt_fail(LT_E_ARG, "%s has no gradient", whole[t].name);
        o->gradient[t] = malloc(lt_tensor_bytes(g));
        LT_TRY(lt_tensor_read(g, o->gradient[t], lt_tensor_bytes(g)));
    }
    return LT_OK;
}

static lt_status compare(const net *n, const result *serial, const result *own)
{
    static const double tolerance = 1e-10;
    if (!(fabs(serial->loss - own->loss) <= tolerance))
        return lt_fail(LT_E_SHAPE, "the loss is %.17g, want %.17g", own->loss, serial->loss);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < n->box[t].rows * n->box[t].columns; i++) {
            int64_t row, column;
            at(n, t, i, &row, &column);
            const double got = own->gradient[t][i];
            const double want = serial->gradient[t][row * whole[t].columns + column];
            if (!(fabs(got - want) <= tolerance))
                return lt_fail(LT_E_SHAPE, "gradient of %s[%lld,%lld] is %.17g, want %.17g",
                               whole[t].name, (long long)row, (long long)column, got, want);
        }
    return LT_OK;
}

static lt_status block(mesh_rank *r)
{
    const form *f = r->context;
    net serial = {.r = r, .form = SERIAL};
    net own = {.r = r,
               .form = *f,
               .row = lt_mesh_group(r->mesh, LT_MESH_ROW),
               .column = lt_mesh_group(r->mesh, LT_MESH_COLUMN),
               .depth = lt_mesh_group(r->mesh, LT_MESH_DEPTH)};
    result a = {0}, b = {0};
    lt_status st = make_all(&serial);
    if (!st)
        st = keep(&serial, &a);
    if (!st)
        st = make_all(&own);
    if (!st)
        st = keep(&own, &b);
    if (!st)
        st = compare(&own, &a, &b);
    for (int t = 0; t < TENSORS; t++) {
        free(a.gradient[t]);
        free(b.gradient[t]);
    }
    lt_tape_reset(r->tape, LT_PASS_EVAL);
    free_all(&serial);
    free_all(&own);
    return st;
}

static void play(form f, lt_mesh_config g)
{
    char why[MESH_WHY];
    g.force = true;
    if (play_mesh(g.depth * g.rows * g.columns, true,
                  (mesh_rank){.config = &g, .context = &f, .fn = block}, NULL, why))
        fail_msg("depth %d, %d rows, %d columns: %s", g.depth, g.rows, g.columns, why);
}

static void one_dimension(void **state)
{
    static const int sizes[] = {1, 2, 3, 6};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        play(ONE_DIMENSION, (lt_mesh_config){1, 1, 1, sizes[i], false});
}

static void grids(void **state)
{
    static const int grid[][2] = {{1, 1}, {3, 1}, {1, 2}, {2, 2},
                                  {3, 2}, {1, 3}, {2, 3}}; /* d, q */
    (void)state;
    for (size_t i = 0; i < COUNT_OF(grid); i++)
        play(GRID, (lt_mesh_config){1, grid[i][0], grid[i][1], grid[i][1], false});
}

/* --- Hits --- */

enum { HIT_ROWS = 12 };

/* Integers, so that many are equal; a NaN; labels that are ignored or out of range. */
static lt_status make_hits(mesh_rank *r, box b, lt_tensor **logits, lt_tensor **labels)
{
    double x[HIT_ROWS * CLASSES];
    int32_t label[HIT_ROWS];
    for (int64_t m = 0; m < b.rows; m++) {
        const int64_t row = b.row + m;
        label[m] = row == 3 ? LT_IGNORED_LABEL : row == 5 ? CLASSES : (int32_t)(row * 4 % CLASSES);
        for (int64_t k = 0; k < b.columns; k++) {
            const int64_t column = b.column + k;
            const bool wins = row % 3 == 0 && column == row * 4 % CLASSES;
            x[m * b.columns + k] = whole_number(1, row, column) + (wins ? 9 : 0);
            if (row == 9 && column == 10)
                x[m * b.columns + k] = (double)NAN;
        }
    }
    LT_TRY(lt_tensor_new(logits, r->at.device, LT_F64, LT_SHAPE(b.rows, b.columns)));
    LT_TRY(lt_tensor_write(*logits, x, (size_t)(b.rows * b.columns) * sizeof *x));
    LT_TRY(lt_tensor_new(labels, r->at.device, LT_I32, LT_SHAPE(b.rows)));
    return lt_tensor_write(*labels, label, (size_t)b.rows * sizeof *label);
}

static lt_status count(mesh_rank *r, box b, bool divided, int64_t hits[3])
{
    const lt_sharded_xent_config config = {.row = lt_mesh_group(r->mesh, LT_MESH_ROW),
                                           .column = lt_mesh_group(r->mesh, LT_MESH_COLUMN),
                                           .depth = lt_mesh_group(r->mesh, LT_MESH_DEPTH),
                                           .classes = CLASSES};
    lt_tensor *x = NULL, *labels = NULL, *found = NULL;
    lt_status st = make_hits(r, b, &x, &labels);
    st = st ? st : lt_tensor_new(&found, r->at.device, LT_I64, LT_SHAPE(3));
    st = st ? st : lt_tensor_write(found, hits, 3 * sizeof *hits);
    if (!st)
        st = divided ? lt_topk_hits_sharded(x, labels, found, config)
                     : lt_topk_hits(x, labels, found);
    st = st ? st : lt_tensor_read(found, hits, 3 * sizeof *hits);
    lt_tensor_free(&x);
    lt_tensor_free(&labels);
    lt_tensor_free(&found);
    return st;
}

static lt_status same_hits(mesh_rank *r)
{
    const lt_mesh_config c = lt_mesh_config_of(r->mesh);
    int64_t want[3] = {100, 200, 300}, got[3] = {100, 200, 300};
    box b = {0, HIT_ROWS, 0, CLASSES};
    LT_TRY(count(r, b, false, want));
    cut_rows(&b, HIT_ROWS, c.rows * c.depth, r->k * c.rows + r->i);
    cut_columns(&b, CLASSES, c.columns, r->j);
    LT_TRY(count(r, b, true, got));
    if (memcmp(want, got, sizeof want))
        return lt_fail(LT_E_SHAPE, "hits %lld, %lld, %lld, want %lld, %lld, %lld",
                       (long long)got[0], (long long)got[1], (long long)got[2], (long long)want[0],
                       (long long)want[1], (long long)want[2]);
    return want[0] > 100 && want[1] > want[0] - 100 + 200
               ? LT_OK
               : lt_fail(LT_E_SHAPE, "control: no hits, or all");
}

static void hits(void **state)
{
    static const lt_mesh_config mesh[] = {
        {1, 1, 1, 3, false}, {1, 1, 2, 2, false}, {1, 2, 2, 2, false}, {1, 1, 3, 3, false}};
    char why[MESH_WHY];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(mesh); i++)
        if (play_mesh(mesh[i].depth * mesh[i].rows * mesh[i].columns, true,
                      (mesh_rank){.config = &mesh[i], .fn = same_hits}, NULL, why))
            fail_msg("depth %d, %d rows, %d columns: %s", mesh[i].depth, mesh[i].rows,
                     mesh[i].columns, why);
}

/* --- Invalid arguments --- */

static lt_status refused(lt_tape *tape, const lt_tensor *y, const char *words)
{
    lt_status st = y ? LT_OK : lt_tape_status(tape);
    const bool good = st == LT_E_SHAPE && strstr(lt_error_message(), words);
    lt_tape_reset(tape, LT_PASS_TRAIN);
    return good ? LT_OK : lt_fail(LT_E_ARG, "not rejected with '%s'", words);
}

static lt_status wrong(mesh_rank *r)
{
    lt_tensor *x = NULL;
    lt_process_group *row = lt_mesh_group(r->mesh, LT_MESH_ROW);
    lt_tape *tape = r->tape;
    LT_TRY(make_box(r, &x, (box){0, 6, 0, 6}, 0, fraction, false));
    lt_tape_reset(tape, LT_PASS_TRAIN);
    const lt_sharded_attention_config heads = {row, 7, 3, false}, tokens = {row, 2, 4, false};
    lt_status st = refused(tape, lt_attention_sharded(tape, x, heads),
                           "7 heads are not divisible by 2 ranks; use 6 or 8");
    if (!st)
        st = refused(tape, lt_attention_sharded(tape, x, tokens), "want a multiple of 4 rows");
    if (!st)
        st = refused(tape,
                     lt_layernorm_sharded(tape, x, NULL, NULL,
                                          (lt_sharded_norm_config){.row = row, .features = 12}),
                     "gamma NULL");
    if (!st)
        st = refused(
            tape,
            lt_softmax_xent_sharded(tape, x, x, (lt_sharded_xent_config){.row = row, .classes = 9}),
            "of the 9 classes");
    lt_tensor_free(&x);
    return st;
}

static void refuse(void **state)
{
    char why[MESH_WHY];
    const lt_mesh_config g = {1, 1, 1, 2, false};
    (void)state;
    if (play_mesh(2, true, (mesh_rank){.config = &g, .fn = wrong}, NULL, why))
        fail_msg("%s", why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"1-D: loss and gradients equal one rank's within 1e-10", one_dimension, NULL, NULL, NULL},
        {"grids with depth: loss and gradients equal one rank's within 1e-10", grids, NULL, NULL,
         NULL},
        {"hits with sharded classes equal those of whole rows, with ties and NaN", hits, NULL, NULL,
         NULL},
        {"invalid heads, sequences and shapes are named", refuse, NULL, NULL, NULL},
    };
    return _cmocka_run_group_tests("mesh block", tests, COUNT_OF(tests), NULL, NULL);
}
