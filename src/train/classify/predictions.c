/* Output of predict for an image: plain lines, JSON Lines, or CSV. Names come from files and are escaped. */

#include "train/classify/predictions.h"

#include "base/alloc.h"
#include "base/os.h"
#include "train/classify/task.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

lt_status lt_predictions_open(predictions *out, int classes)
{
    out->classes = classes;
    out->top = out->top < classes ? out->top : classes;
    LT_TRY(LT_ALLOC(&out->order, classes));
    return LT_ALLOC(&out->probability, classes);
}

void lt_predictions_close(predictions *s)
{
    lt_free(s->order);
    lt_free(s->probability);
    lt_json_writer_clear(&s->line);
}

static int by_probability(const void *a, const void *b, void *context)
{
    const int x = *(const int *)a, y = *(const int *)b;
    const double *p = context;
    if (p[x] > p[y] || p[x] < p[y])
        return p[x] > p[y] ? -1 : 1;
    return (x > y) - (x < y);
}

enum { SHOWN_BYTES = 4 * NAME_TEXT }; /* a byte may become \xHH */

static const char *class_name(const predictions *s, int label, char shown[SHOWN_BYTES])
{
    char name[NAME_TEXT];
    snprintf(name, sizeof name, "class %d", label);
    (void)lt_metadata_class_name(s->names, label, name, sizeof name);
    return lt_text_escape(shown, SHOWN_BYTES, name);
}

/* Prints a CSV field (RFC 4180): quoted if it has a comma, a quote or blanks at its ends; inner quotes are
 * doubled. */
static void put_field(const char *text)
{
    size_t bytes = strlen(text);
    bool plain = bytes && !strpbrk(text, ",\"") && *text != ' ' && text[bytes - 1] != ' ';
    if (plain) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_text(const predictions *s, const char *name)
{
    const double percent = 100;
    char shown[SHOWN_BYTES];
    printf("%s\n", name);
    for (int i = 0; i < s->top; i++)
        printf("  %6.2f %%  %s\n", percent * s->probability[s->order[i]],
               class_name(s, s->order[i], shown));
}

static void print_csv(predictions *s, const char *name)
{
    char shown[SHOWN_BYTES];
    if (!s->begun)
        puts("path,rank,index,class,probability");
    s->begun = true;
    for (int i = 0; i < s->top; i++) {
        put_field(name);
        printf(",%d,%d,", i + 1, s->order[i]);
        put_field(class_name(s, s->order[i], shown));
        printf(",%.9g\n", s->probability[s->order[i]]);
    }
}

static lt_status print_line(predictions *s)
{
    const char *text;
    size_t bytes;
    LT_TRY(lt_json_text(&s->line, &text, &bytes));
    puts(text);
    return LT_OK;
}

static lt_status print_json(predictions *s, const char *name)
{
    char shown[SHOWN_BYTES];
    lt_json_writer *w = &s->line;
    lt_json_rewind(w);
    lt_json_begin_object(w, NULL);
    lt_json_put_string(w, "path", name);
    lt_json_begin_array(w, "predictions");
    for (int i = 0; i < s->top; i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_integer(w, "index", s->order[i]);
        lt_json_put_string(w, "class", class_name(s, s->order[i], shown));
        lt_json_put_number(w, "probability", s->probability[s->order[i]]);
        lt_json_end(w);
    }
    lt_json_end(w);
    lt_json_end(w);
    return print_line(s);
}

/* Returns the escaped text, or NULL with the message set; free with lt_free(). */
static char *escape(const char *text)
{
    size_t bytes = lt_text_escape_bytes(text);
    char *shown = lt_alloc(bytes, 1);
    if (shown)
        lt_text_escape(shown, bytes, text);
    return shown;
}

lt_status lt_predictions_print(predictions *s, const char *name, const double *logits)
{
    lt_status st = LT_OK;
    char *shown = escape(name);
    if (!shown)
        return LT_E_NOMEM;
    memcpy(s->probability, logits, (size_t)s->classes * sizeof *logits);
    lt_classification_softmax(s->probability, s->classes);
    for (int k = 0; k < s->classes; k++)
        s->order[k] = k;
    lt_os_sort(s->order, (size_t)s->classes, sizeof *s->order, by_probability, s->probability);
    if (s->form == OUTPUT_JSON)
        st = print_json(s, shown);
    else if (s->form == OUTPUT_CSV)
        print_csv(s, shown);
    else
        print_text(s, shown);
    lt_free(shown);
    return st;
}

lt_status lt_predictions_print_failure(predictions *s, const char *name, const char *why)
{
    lt_status st = LT_OK;
    char *path = escape(name);
    if (!path)
        st = LT_E_NOMEM;
    else
        fprintf(stderr, "%s predict: %s: %s\n", s->program, path, why); /* messages are escaped */
    if (!st && s->form == OUTPUT_JSON) {
        lt_json_rewind(&s->line);
        lt_json_begin_object(&s->line, NULL);
        lt_json_put_string(&s->line, "path", path);
        lt_json_put_string(&s->line, "error", why);
        lt_json_end(&s->line);
        st = print_line(s);
    }
    lt_free(path);
    return st;
}
