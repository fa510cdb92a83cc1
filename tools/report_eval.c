/* The part of a page about an evaluation: eval.json, as train_resnet50 --eval writes it. The file is not trusted:
 * numbers are checked, text is escaped, of images only BMP, PNG and JPEG in base64 are taken. */

#include "report.h"

#include "lather/ext/fail.h"
#include "lather/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MATRIX_CLASSES = 40, WORST = 20, MOST_PAIRS = 20, MOST_SAMPLES = 24 };

typedef const lt_json_value value;

typedef struct evaluation {
    value *root;
    value **kind; /* classes; owned */
    size_t count;
} evaluation;

static double number(value *object, const char *key)
{
    value *v = lt_json_member(object, key);
    return v && v->type == LT_JSON_NUMBER ? v->number : 0;
}

static value *list(value *object, const char *key)
{
    value *v = lt_json_member(object, key);
    return v && v->type == LT_JSON_ARRAY ? v : NULL;
}

static void write_text(FILE *out, value *object, const char *key)
{
    value *v = lt_json_member(object, key);
    if (v && v->type == LT_JSON_STRING)
        report_escape(out, v->string);
}

/* The name of a class, else its number. */
static void write_class(FILE *out, const evaluation *e, double index)
{
    bool listed = index >= 0 && index < (double)e->count;
    value *name = listed ? lt_json_member(e->kind[(size_t)index], "name") : NULL;
    if (name && name->type == LT_JSON_STRING)
        report_escape(out, name->string);
    else
        fprintf(out, "class %.0f", index);
}

/* --- Classes --- */

static int by_accuracy(const void *a, const void *b, void *context)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    const evaluation *e = context;
    double p = number(e->kind[x], "top1"), q = number(e->kind[y], "top1");
    if (p < q || p > q)
        return p < q ? -1 : 1;
    return (x > y) - (x < y);
}

static void write_row(FILE *out, const evaluation *e, size_t index)
{
    value *c = e->kind[index], *precision = lt_json_member(c, "precision");
    double accuracy = number(c, "top1"), images = number(c, "images");
    fputs("<tr><td>", out);
    write_class(out, e, (double)index);
    fputs("<td>", out);
    if (images > 0)
        fprintf(out, "%.2f %%<td><span class=\"bar\" style=\"width:%.0fpx\"></span>", accuracy,
                accuracy < 0 || accuracy > 100 ? 0 : accuracy);
    else
        fputs("<td>", out);
    fprintf(out, "<td>%.0f of %.0f<td>", number(c, "correct"), images);
    if (precision && precision->type == LT_JSON_NUMBER)
        fprintf(out, "%.2f %%", precision->number);
    fputs("</tr>\n", out);
}

/* All, or of many the worst that have pictures. */
static lt_status write_classes(FILE *out, evaluation *e)
{
    bool many = e->count > MATRIX_CLASSES;
    size_t *order = calloc(e->count, sizeof *order), count = 0;
    if (!order)
        return lt_fail(LT_E_NOMEM, "report: no memory for %zu classes", e->count);
    for (size_t i = 0; i < e->count; i++)
        if (!many || number(e->kind[i], "images") > 0)
            order[count++] = i;
    if (many)
        qsort_r(order, count, sizeof *order, by_accuracy, e);
    if (many && count > WORST)
        count = WORST;
    fprintf(
        out,
        "<h2>%s</h2>\n<div class=\"wide\"><table>\n<tr><th>class<th>accuracy<th><th>pictures"
        "<th title=\"of the pictures taken for this class, those that are of it\">precision</tr>\n",
        many ? "Classes with the least accuracy" : "Classes");
    for (size_t i = 0; i < count; i++)
        write_row(out, e, order[i]);
    fputs("</table></div>\n", out);
    free(order);
    return LT_OK;
}

/* --- What is taken for what --- */

static void write_cell(FILE *out, double count, double all, bool hit)
{
    const double strongest = 0.85;
    fprintf(out, "<td%s", hit ? " class=\"hit\"" : "");
    if (count > 0 && count <= all)
        fprintf(out, " style=\"background:rgba(%s,%.2f)\"", hit ? "58,157,93" : "181,64,58",
                strongest * count / all);
    if (count > 0)
        fprintf(out, ">%.0f", count);
    else
        fputs(">", out);
}

static void write_matrix(FILE *out, const evaluation *e, value *matrix)
{
    fputs("<h2>Confusion matrix</h2>\n<p>Rows: what pictures show. Columns: what they are taken "
          "for.</p>\n<div class=\"wide\"><table class=\"matrix\">\n<tr><th>",
          out);
    for (size_t k = 0; k < e->count; k++) {
        fputs("<th class=\"up\">", out);
        write_class(out, e, (double)k);
    }
    fputs("</tr>\n", out);
    value *row = matrix->child;
    for (size_t i = 0; row && i < e->count; i++, row = row->next) {
        fputs("<tr><th>", out);
        write_class(out, e, (double)i);
        value *cell = row->type == LT_JSON_ARRAY ? row->child : NULL;
        for (size_t k = 0; cell && k < e->count; k++, cell = cell->next)
            write_cell(out, cell->type == LT_JSON_NUMBER ? cell->number : 0,
                       number(e->kind[i], "images"), i == k);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void write_pairs(FILE *out, const evaluation *e, value *pairs)
{
    fputs("<h2>Most confused classes</h2>\n<div class=\"wide\"><table>\n"
          "<tr><th>pictures of<th>taken for<th>times</tr>\n",
          out);
    value *p = pairs->child;
    for (int i = 0; p && i < MOST_PAIRS; i++, p = p->next) {
        fputs("<tr><td>", out);
        write_class(out, e, number(p, "label"));
        fputs("<td>", out);
        write_class(out, e, number(p, "predicted"));
        fprintf(out, "<td>%.0f</tr>\n", number(p, "count"));
    }
    fputs("</table></div>\n", out);
}

static void write_confusion(FILE *out, const evaluation *e)
{
    value *matrix = list(e->root, "confusion"), *pairs = list(e->root, "confused");
    if (matrix && e->count <= MATRIX_CLASSES)
        write_matrix(out, e, matrix);
    else if (pairs && pairs->child)
        write_pairs(out, e, pairs);
}

/* --- Sample pictures --- */

/* Whether it is a data URI that shows a picture and does nothing else. */
static bool is_picture(const char *uri)
{
    static const char *const schemes[] = {"data:image/bmp;base64,", "data:image/png;base64,",
                                          "data:image/jpeg;base64,"};
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t bytes = strlen(schemes[i]);
        if (!strncmp(uri, schemes[i], bytes))
            return !uri[bytes + strspn(uri + bytes, digits)];
    }
    return false;
}

static void write_guess(FILE *out, const evaluation *e, value *guess)
{
    const double percent = 100;
    fprintf(out, "<br>%.1f %% ", percent * number(guess, "probability"));
    write_class(out, e, number(guess, "index"));
}

static void write_sample(FILE *out, const evaluation *e, value *s)
{
    const double percent = 100;
    value *image = lt_json_member(s, "image"), *guesses = list(s, "predictions");
    value *guess = guesses ? guesses->child : NULL;
    if (!image || image->type != LT_JSON_STRING || !is_picture(image->string) || !guess)
        return;
    double label = number(s, "label"), best = number(guess, "index");
    bool right = label >= best && label <= best;
    fprintf(out, "<figure class=\"%s\"><img alt=\"\" src=\"%s\" title=\"",
            right ? "right" : "wrong", image->string);
    write_text(out, s, "path");
    fputs("\"><figcaption><b>", out);
    write_class(out, e, label);
    fprintf(out, "</b> %.1f %%", percent * number(s, "probability"));
    for (int i = 0; guess && i < 3; i++, guess = guess->next)
        write_guess(out, e, guess);
    fputs("</figcaption></figure>\n", out);
}

static void write_samples(FILE *out, const evaluation *e)
{
    value *samples = list(e->root, "samples"), *s = samples ? samples->child : NULL;
    if (!s)
        return;
    fputs(
        "<h2>Sample pictures</h2>\n<p>As the network sees them; in bold what they show and the "
        "probability given to that, below what they are taken for. First those that are taken for "
        "something else (red), the worst first; then those right (green), the least certain "
        "first.</p>\n<div class=\"samples\">\n",
        out);
    for (int i = 0; s && i < MOST_SAMPLES; i++, s = s->next)
        write_sample(out, e, s);
    fputs("</div>\n", out);
}

/* --- All of it --- */

static lt_status write_all(FILE *out, evaluation *e)
{
    fputs("<h2>Evaluation of ", out);
    write_text(out, e->root, "data");
    fprintf(out, "</h2>\n<p>top-1 %.2f %%, top-5 %.2f %%, loss %.4f over %.0f pictures, of ",
            number(e->root, "top1"), number(e->root, "top5"), number(e->root, "loss"),
            number(e->root, "images"));
    write_text(out, e->root, "weights");
    fputs("</p>\n", out);
    LT_TRY(write_classes(out, e));
    write_confusion(out, e);
    write_samples(out, e);
    return LT_OK;
}

static lt_status find_classes(evaluation *e, const char *path)
{
    value *classes = list(e->root, "classes");
    if (!classes || !classes->count)
        return lt_fail(LT_E_FORMAT, "%s: no classes in it", path);
    e->kind = calloc(classes->count, sizeof(value *));
    if (!e->kind)
        return lt_fail(LT_E_NOMEM, "report: no memory for %zu classes", classes->count);
    for (value *c = classes->child; c; c = c->next)
        e->kind[e->count++] = c;
    return LT_OK;
}

lt_status report_evaluation(FILE *out, const char *path)
{
    lt_json *file = NULL;
    evaluation e = {0};
    if (access(path, F_OK))
        return LT_OK;
    LT_TRY(lt_json_load(&file, path));
    e.root = lt_json_root(file);
    lt_status st = find_classes(&e, path);
    if (!st)
        st = write_all(out, &e);
    free(e.kind);
    lt_json_free(&file);
    return st;
}
