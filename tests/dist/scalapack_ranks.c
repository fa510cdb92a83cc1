/* Products on grids against ScaLAPACK's: scalapack_ranks, a rank of mpirun -n q*q. All ranks make y = x w^T,
 * dx = dy w and dw = dy^T x by PDGEMM, in blocks of 8 dealt round-robin; rank 0 then plays lt_linear_summa() on
 * meshes of threads and compares. Exit status 0: they agree to rounding; 1: they do not. */

#include "mesh_ranks.h"

#include "lather/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ScaLAPACK has no header. Matrices are column-major, indices begin at 1. */
void Cblacs_pinfo(int *rank, int *ranks);
void Cblacs_get(int context, int what, int *value);
void Cblacs_gridinit(int *context, const char *order, int rows, int columns);
void Cblacs_gridinfo(int context, int *rows, int *columns, int *row, int *column);
void Cblacs_exit(int more);
int numroc_(const int *n, const int *block, const int *index, const int *first, const int *parts);
void descinit_(int *desc, const int *m, const int *n, const int *mb, const int *nb, const int *row,
               const int *column, const int *context, const int *lead, int *info);
void pdgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
             const double *alpha, const double *a, const int *ia, const int *ja, const int *desca,
             const double *b, const int *ib, const int *jb, const int *descb, const double *beta,
             double *c, const int *ic, const int *jc, const int *descc);
void Cpdgemr2d(int m, int n, double *a, int ia, int ja, int *desca, double *b, int ib, int jb,
               int *descb, int context);

enum { X, W, DY, MATRICES };
enum { ROWS = 75, IN = 129, OUT = 61, BLOCK = 8, DESC = 9 };

/* --- ScaLAPACK --- */

typedef struct grid {
    int context, q, row, column;
    int alone; /* a context of rank 0 only; -1 on other ranks */
} grid;

typedef struct matrix {
    double *own; /* this rank's blocks */
    int desc[DESC];
} matrix;

static void *need(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static matrix make_matrix(const grid *g, int m, int n)
{
    const int zero = 0, block = BLOCK;
    const int rows = numroc_(&m, &block, &g->row, &zero, &g->q);
    const int columns = numroc_(&n, &block, &g->column, &zero, &g->q);
    const int lead = rows > 1 ? rows : 1;
    matrix a;
    int info;
    a.own = need(calloc((size_t)lead * (size_t)(columns > 1 ? columns : 1), sizeof *a.own));
    descinit_(a.desc, &m, &n, &block, &block, &zero, &zero, &g->context, &lead, &info);
    if (info)
        abort();
    return a;
}

/* Index of a rank's element among all, of one dimension. */
static int whole_index(int local, int rank, int ranks)
{
    return (local / BLOCK * ranks + rank) * BLOCK + local % BLOCK;
}

static matrix filled(const grid *g, int m, int n, int number)
{
    matrix a = make_matrix(g, m, n);
    const int lead = a.desc[DESC - 1];
    for (int i = 0; whole_index(i, g->row, g->q) < m; i++)
        for (int j = 0; whole_index(j, g->column, g->q) < n; j++)
            a.own[(size_t)j * (size_t)lead + (size_t)i] =
                fraction(number, whole_index(i, g->row, g->q), whole_index(j, g->column, g->q));
    return a;
}

/* op(a) op(b) of [m,k] and [k,n], row-major on rank 0; other ranks get zeros. */
static double *multiply(const grid *g, const char *op, const matrix *a, const matrix *b, int m,
                        int n, int k)
{
    const double one = 1, zero = 0;
    const int first = 1;
    matrix c = make_matrix(g, m, n);
    pdgemm_(op, op + 1, &m, &n, &k, &one, a->own, &first, &first, a->desc, b->own, &first, &first,
            b->desc, &zero, c.own, &first, &first, c.desc);
    double *columns = need(calloc((size_t)(m * n), sizeof *columns));
    double *out = need(calloc((size_t)(m * n), sizeof *out));
    int desc[DESC] = {1, -1, m, n, m, n, 0, 0, m};
    desc[1] = g->alone;
    Cpdgemr2d(m, n, c.own, 1, 1, c.desc, columns, 1, 1, desc, g->context);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            out[i * n + j] = columns[j * m + i];
    free(columns);
    free(c.own);
    return out;
}

/* --- The same by SUMMA --- */

typedef struct wanted {
    double *y, *dx, *dw;
} wanted;

/* A sum of n products, each below 1, in f64. */
static lt_status compare(const char *name, const lt_tensor *t, box b, const double *want,
                         int64_t columns, int n)
{
    double *got = need(malloc((size_t)(b.rows * b.columns) * sizeof *got));
    lt_status st = t ? read_doubles(t, got) : lt_fail(LT_E_ARG, "there is no %s", name);
    for (int64_t i = 0; i < b.rows * b.columns && !st; i++) {
        const int64_t row = b.row + i / b.columns, column = b.column + i % b.columns;
        const double theirs = want[row * columns + column];
        if (!(fabs(got[i] - theirs) <= n * 2.3e-16 * n))
            st = lt_fail(LT_E_SHAPE, "%s[%lld,%lld] is %.17g, ScaLAPACK has %.17g", name,
                         (long long)row, (long long)column, got[i], theirs);
    }
    free(got);
    return st;
}

static lt_status multiply_and_compare(mesh_rank *r, const blocks *o, lt_tensor *const t[MATRICES])
{
    const wanted *want = r->context;
    const lt_summa_config config = {.row = lt_mesh_group(r->mesh, LT_MESH_ROW),
                                    .column = lt_mesh_group(r->mesh, LT_MESH_COLUMN),
                                    .depth = lt_mesh_group(r->mesh, LT_MESH_DEPTH),
                                    .in = IN,
                                    .out = OUT};
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    lt_tensor *x = lt_tape_variable(r->tape, t[X]), *w = lt_tape_variable(r->tape, t[W]);
    lt_tensor *y = lt_linear_summa(r->tape, x, w, NULL, config);
    lt_tape_keep(r->tape, y);
    lt_tensor *loss = lt_sum(r->tape, lt_mul(r->tape, y, t[DY]), (lt_reduce_config){0});
    LT_TRY(lt_tape_status(r->tape));
    LT_TRY(lt_tape_backward(r->tape, loss, 1));
    LT_TRY(compare("y", y, o->y, want->y, OUT, IN));
    LT_TRY(compare("dx", lt_tape_gradient(r->tape, x), o->x, want->dx, IN, OUT));
    return compare("dw", lt_tape_gradient(r->tape, w), o->w, want->dw, IN, ROWS);
}

static lt_status on_a_rank(mesh_rank *r)
{
    const blocks o = blocks_of(r, ROWS, IN, OUT);
    const box at[MATRICES] = {o.x, o.w, o.y};
    lt_tensor *t[MATRICES] = {NULL};
    lt_status st = LT_OK;
    for (int i = 0; i < MATRICES && !st; i++)
        st = make_box(r, &t[i], at[i], i, fraction, false);
    if (!st)
        st = multiply_and_compare(r, &o, t);
    for (int i = 0; i < MATRICES; i++)
        lt_tensor_free(&t[i]);
    return st;
}

static int play_grids(const wanted *want)
{
    static const lt_mesh_config grids[] = {
        {1, 1, 1, 1, false}, {1, 1, 2, 2, false}, {1, 2, 2, 2, false},
        {1, 1, 3, 3, false}, {1, 3, 3, 3, false},
    };
    int wrong = 0;
    char why[MESH_WHY];
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        const lt_mesh_config *g = &grids[i];
        const mesh_rank model = {.config = g, .context = want, .fn = on_a_rank};
        const lt_status st = play_mesh(g->depth * g->rows * g->columns, true, model, NULL, why);
        printf("%d x %d x %d: %s\n", g->depth, g->rows, g->columns, st ? why : "as ScaLAPACK");
        wrong += st != LT_OK;
    }
    return wrong;
}

/* Control: an error of one element is found. */
static bool finds_an_error(const wanted *want)
{
    const lt_mesh_config g = {1, 1, 2, 2, false};
    const mesh_rank model = {.config = &g, .context = want, .fn = on_a_rank};
    char why[MESH_WHY];
    want->dw[IN + 1] += 1e-9;
    return play_mesh(4, true, model, NULL, why) && strstr(why, "dw[1,1]");
}

int main(void)
{
    int rank, ranks, wrong = 0;
    grid g = {0};
    Cblacs_pinfo(&rank, &ranks);
    while ((g.q + 1) * (g.q + 1) <= ranks)
        g.q++;
    Cblacs_get(-1, 0, &g.context);
    g.alone = g.context;
    Cblacs_gridinit(&g.context, "R", g.q, g.q);
    Cblacs_gridinit(&g.alone, "R", 1, 1);
    if (rank)
        g.alone = -1;
    if (rank < g.q * g.q) {
        Cblacs_gridinfo(g.context, &g.q, &g.q, &g.row, &g.column);
        matrix x = filled(&g, ROWS, IN, X), w = filled(&g, OUT, IN, W),
               dy = filled(&g, ROWS, OUT, DY);
        const wanted want = {multiply(&g, "NT", &x, &w, ROWS, OUT, IN),
                             multiply(&g, "NN", &dy, &w, ROWS, IN, OUT),
                             multiply(&g, "TN", &dy, &x, OUT, IN, ROWS)};
        if (rank == 0)
            wrong = play_grids(&want) + !finds_an_error(&want);
        double *const memory[] = {x.own, w.own, dy.own, want.y, want.dx, want.dw};
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
            free(memory[i]);
    }
    Cblacs_exit(0);
    return wrong != 0;
}
