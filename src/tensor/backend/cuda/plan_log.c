/* The log of autotuning in the file that LATHER_PLAN_LOG names. */

#include "plan_log.h"

#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 6144, MODE = 0644 };

static const char columns[] =
    "device\tkey\tsettings\tcandidate\tkind\tengine\tworkspace\tmilliseconds\tchosen\tnote\n";

static const char *log_path(void)
{
    const char *name = getenv("LATHER_PLAN_LOG");
    if (!name)
        name = getenv("LATHER_PLANS"); /* name of 0.1 */
    return name && *name ? name : NULL;
}

bool lt_plan_log_is_enabled(void)
{
    return log_path() != NULL;
}

/* Appends in one write, so that lines of several processes do not mix. */
static bool write_text(int file, const char *text)
{
    const size_t bytes = strlen(text);
    return write(file, text, bytes) == (ssize_t)bytes;
}

/* The process that creates the file writes the names of its columns. */
static int open_log_file(const char *name)
{
    int file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, MODE);
    if (file >= 0)
        (void)write_text(file, columns);
    else if (errno == EEXIST)
        file = open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
    return file;
}

static void append_to_log(const char *text)
{
    static __thread bool told;
    const int file = log_path() ? open_log_file(log_path()) : -1;
    const bool written = file >= 0 && write_text(file, text);
    if (!written && !told)
        lt_log(LT_LOG_WARN, "tensor", "LATHER_PLAN_LOG=%s: %s", log_path() ? log_path() : "",
               strerror(errno));
    told = told || !written;
    if (file >= 0)
        close(file);
}

/* Replaces tabs and line breaks, which separate fields and lines. */
static void replace_separators(char *text)
{
    for (char *at = text; *at; at++)
        if (*at == '\t' || *at == '\n' || *at == '\r')
            *at = ' ';
}

void lt_plan_log_remark(const lt_cuda *c, const char *what, const char *text)
{
    char line[LINE], flat[LINE - 128];
    if (!lt_plan_log_is_enabled())
        return;
    snprintf(flat, sizeof flat, "%s", text);
    replace_separators(flat);
    snprintf(line, sizeof line, "# cuda:%d %s: %s\n", c->ordinal, what, flat);
    append_to_log(line);
}

void lt_plan_log(const lt_cuda *c, const lt_plan_line *l)
{
    static const char *const fused[] = {
        [LT_FUSED_AUTO] = "auto", [LT_FUSED_ON] = "on", [LT_FUSED_OFF] = "off"};
    char line[LINE], note[512], time[32] = "";
    if (!lt_plan_log_is_enabled())
        return;
    snprintf(note, sizeof note, "%s", l->note ? l->note : "");
    replace_separators(note);
    if (l->milliseconds > 0)
        snprintf(time, sizeof time, "%.5f", (double)l->milliseconds);
    else if (l->milliseconds < 0)
        snprintf(time, sizeof time, "failed");
    snprintf(line, sizeof line,
             "cuda:%d\t%s\ttf32 %d deterministic %d fused %s\t%d\t%s\t%lld\t%zu\t%s\t%d\t%s\n",
             c->ordinal, l->key, c->tf32, c->deterministic, fused[c->fused], l->candidate, l->kind,
             l->engine, l->workspace, time, l->chosen, note);
    append_to_log(line);
}
