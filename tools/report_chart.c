/* Line charts as inline SVG: no script, no file beside the page. */

#include "report.h"

#include "lather/text.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, HEIGHT = 260, LEFT = 58, RIGHT = 16, TOP = 34, BOTTOM = 34, TICKS = 5 };

typedef struct range {
    double low, high;
} range;

typedef struct plot {
    range x, y;
    double step; /* between the lines across */
} plot;

static void put_text(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

void report_escape(FILE *out, const char *text)
{
    const size_t bytes = lt_text_escape_bytes(text);
    char *shown = malloc(bytes);
    if (shown)
        put_text(out, lt_text_line(shown, bytes, text));
    free(shown);
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them fill the range.
 * Heckbert, "Nice numbers for graph labels", Graphics Gems, 1990. */
static double nice_step(range r)
{
    double rough = (r.high - r.low) / TICKS;
    double power = pow(10, floor(log10(rough)));
    double f = rough / power;
    return power * (f < 1.5 ? 1 : f < 3.5 ? 2 : f < 7.5 ? 5 : 10);
}

static void widen(range *r, const double *value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        r->low = fmin(r->low, value[i]);
        r->high = fmax(r->high, value[i]);
    }
}

/* False if there is nothing to see. */
static bool measure(plot *p, const report_chart *chart)
{
    p->x.low = p->y.low = HUGE_VAL;
    p->x.high = p->y.high = -HUGE_VAL;
    for (size_t i = 0; i < chart->count; i++) {
        const report_series *s = chart->line[i].series;
        widen(&p->x, s->x, s->count);
        widen(&p->y, s->y, s->count);
    }
    if (!(p->x.low <= p->x.high))
        return false;
    if (chart->from_zero)
        p->y.low = fmin(0, p->y.low);
    if (!(p->x.high > p->x.low)) {
        p->x.low -= 1;
        p->x.high += 1;
    }
    if (!(p->y.high > p->y.low)) {
        double around = fmax(1e-12, 0.1 * fabs(p->y.high));
        p->y.low -= around;
        p->y.high += around;
    }
    p->step = nice_step(p->y); /* before the range grows to whole steps */
    p->y.low = p->step * floor(p->y.low / p->step);
    p->y.high = p->step * ceil(p->y.high / p->step);
    return true;
}

static double at_x(const plot *p, double x)
{
    return LEFT + (x - p->x.low) / (p->x.high - p->x.low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const plot *p, double y)
{
    return HEIGHT - BOTTOM - (y - p->y.low) / (p->y.high - p->y.low) * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *out, const plot *p)
{
    double step = p->step;
    for (int i = 0; p->y.low + i * step <= p->y.high + step / 2; i++) {
        const double y = p->y.low + i * step;
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                LEFT, WIDTH - RIGHT, at_y(p, y), at_y(p, y), LEFT - 6, at_y(p, y) + 4,
                fabs(y) < step / 1000 ? 0.0 : y);
    }
    step = fmax(1, nice_step(p->x));
    const double first = step * ceil(p->x.low / step);
    for (int i = 0; first + i * step <= p->x.high; i++) {
        const double x = first + i * step;
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", at_x(p, x),
                HEIGHT - BOTTOM + 18, x);
    }
}

static void draw_line(FILE *out, const plot *p, const report_line *line, size_t colour)
{
    const report_series *s = line->series;
    fprintf(out, "<polyline class=\"c%zu\" points=\"", colour);
    for (size_t i = 0; i < s->count; i++)
        fprintf(out, "%.1f,%.1f ", at_x(p, s->x[i]), at_y(p, s->y[i]));
    fputs("\"/>\n", out);
    for (size_t i = 0; line->dots && i < s->count; i++)
        fprintf(out,
                "<circle class=\"c%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>step %.0f: "
                "%.4g</title></circle>\n",
                colour, at_x(p, s->x[i]), at_y(p, s->y[i]), s->x[i], s->y[i]);
}

void report_draw(FILE *out, const report_chart *chart)
{
    plot p;
    if (!measure(&p, chart))
        return;
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, HEIGHT);
    report_escape(out, chart->title);
    fprintf(out, "</title>\n<text class=\"head\" x=\"%d\" y=\"18\">", LEFT);
    report_escape(out, chart->title);
    fprintf(out, "%s%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>\n",
            *chart->unit ? ", " : "", chart->unit, WIDTH - RIGHT, HEIGHT - 2);
    draw_axes(out, &p);
    double right = WIDTH - RIGHT;
    for (size_t i = chart->count; i-- > 0;) {
        if (!chart->line[i].series->count)
            continue;
        draw_line(out, &p, &chart->line[i], i);
        if (chart->bare)
            continue;
        fprintf(out, "<text class=\"c%zu\" x=\"%.0f\" y=\"18\" text-anchor=\"end\">&#9632; ", i,
                right);
        report_escape(out, chart->line[i].label);
        fputs("</text>\n", out);
        right -= 110;
    }
    fputs("</svg>\n", out);
}
