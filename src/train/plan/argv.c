/* Command lines of candidates: the words of training with a choice of --vary, what starts them, and as text. */

#include "planner.h"

#include "lather/ext/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Words --- */

lt_status lt_plan_add_word(plan_words *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int bytes = vsnprintf(NULL, 0, format, args) + 1;
    va_end(args);
    if (w->count + 1 >= w->capacity) { /* NULL stays after the last */
        const int capacity = 2 * w->capacity + 8;
        char **word = realloc(w->word, (size_t)capacity * sizeof *word);
        if (!word)
            return lt_fail(LT_E_NOMEM, "no memory for a command line");
        w->word = word;
        w->capacity = capacity;
    }
    char *word = malloc((size_t)bytes);
    if (!word)
        return lt_fail(LT_E_NOMEM, "no memory for a command line");
    va_start(args, format);
    vsnprintf(word, (size_t)bytes, format, args);
    va_end(args);
    w->word[w->count++] = word;
    w->word[w->count] = NULL;
    return LT_OK;
}

void lt_plan_free_words(plan_words *w)
{
    for (int i = 0; i < w->count; i++)
        free(w->word[i]);
    free(w->word);
    *w = (plan_words){0};
}

/* True if a word is a flag that is not passed to training; skip: nor is the next word. */
static bool is_left_out(const char *word, const plan_request *r, bool *skip)
{
    bool takes_value = false;
    *skip = false;
    if (strncmp(word, "--", 2) != 0)
        return false;
    const char *name = word + (strncmp(word, "--no-", 5) ? 2 : 5);
    const size_t bytes = strcspn(name, "=");
    bool out = lt_plan_is_own_flag(name, bytes, &takes_value);
    if (bytes == strlen("plan") && !strncmp(name, "plan", bytes))
        out = takes_value = true;
    for (int i = 0; i < r->axes; i++)
        if (strlen(r->axis[i].flag) == bytes && !strncmp(r->axis[i].flag, name, bytes))
            out = takes_value = true;
    *skip = out && takes_value && !name[bytes];
    return out;
}

lt_status lt_plan_training_words(plan_words *out, int argc, char *const *argv,
                                 const plan_request *r, const lt_options *options)
{
    bool skip;
    size_t rest = 0; /* further runs of --from, in their order */
    for (int i = 1; i < argc; i++) {
        const char *run = lt_options_rest(options, rest);
        const bool is_run = run && !strcmp(argv[i], run);
        rest += is_run;
        if (!is_left_out(argv[i], r, &skip) && !is_run)
            LT_TRY(lt_plan_add_word(out, "%s", argv[i]));
        i += skip;
    }
    return LT_OK;
}

/* --- The starts --- */

lt_status lt_plan_add_flag(plan_words *w, const lt_options *options, const char *flag,
                           const char *value)
{
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(options, i)); i++)
        if (!strcmp(o->name, flag) && o->type == LT_OPTION_BOOL) {
            const bool on = !strcmp(value, "true") || !strcmp(value, "on");
            if (!on && strcmp(value, "false") != 0 && strcmp(value, "off") != 0)
                return lt_fail(LT_E_ARG, "--vary %s=%s: want on or off", flag, value);
            return lt_plan_add_word(w, on ? "--%s" : "--no-%s", flag);
        }
    return lt_plan_add_word(w, "--%s=%s", flag, value);
}

lt_status lt_plan_candidate_words(const plan *p, const int *choice, plan_words *out)
{
    for (int i = 0; i < p->words.count; i++)
        LT_TRY(lt_plan_add_word(out, "%s", p->words.word[i]));
    for (int i = 0; i < p->request.axes; i++) {
        const plan_axis *a = &p->request.axis[i];
        LT_TRY(lt_plan_add_flag(out, p->trainer->options, a->flag, a->value[choice[i]]));
    }
    return LT_OK;
}

static lt_status start(const plan *p, const plan_words *w, lt_trainer *out)
{
    LT_TRY(lt_trainer_start(out, p->family, p->program));
    LT_TRY(lt_trainer_open_options(out, NULL));
    LT_TRY(lt_trainer_parse(out, w->count, w->word));
    return lt_trainer_check(out);
}

lt_status lt_plan_start(const plan *p, const int *choice, lt_trainer *out)
{
    plan_words w = {0};
    lt_status st = lt_plan_add_word(&w, "%s", p->family->program);
    if (!st)
        st = lt_plan_candidate_words(p, choice, &w);
    if (!st)
        st = start(p, &w, out);
    lt_plan_free_words(&w);
    return st;
}

/* --- The command --- */

static size_t add(char *text, size_t size, size_t at, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-_=./,:@%+";
    const bool plain = *word && strspn(word, safe) == strlen(word);
    if (at + 8 >= size)
        return at;
    at += (size_t)snprintf(text + at, size - at, "%s%s", at ? " " : "", plain ? "" : "'");
    for (; *word && at + 8 < size; word++)
        if (*word == '\'')
            at += (size_t)snprintf(text + at, size - at, "'\\''");
        else
            text[at++] = *word;
    text[at] = 0;
    return plain ? at : at + (size_t)snprintf(text + at, size - at, "'");
}

lt_status lt_plan_start_words(const plan *p, const plan_candidate *c, const char *program,
                              plan_words *out)
{
    const lt_plan_setup *u = &c->setting.setup;
    if (u->ranks > 1) {
        LT_TRY(lt_plan_add_word(out, "mpirun"));
        LT_TRY(lt_plan_add_word(out, "-n"));
        LT_TRY(lt_plan_add_word(out, "%d", u->ranks));
    }
    if (u->ranks > 1 && (p->options.simulate || p->options.nodes)) {
        LT_TRY(lt_plan_add_word(out, "--map-by"));
        LT_TRY(lt_plan_add_word(out, "ppr:%d:node", u->ranks_per_node));
    }
    LT_TRY(lt_plan_add_word(out, "%s", program));
    LT_TRY(lt_plan_candidate_words(p, c->choice, out));
    if (p->trainer->args.ranks.ranks_per_node
        > u->ranks) /* what all machines have; this run is on a part of one */
        LT_TRY(lt_plan_add_word(out, "--ranks-per-node=%d", u->ranks));
    return LT_OK;
}

const char *lt_plan_command_text(const plan *p, const plan_candidate *c, char *text, size_t size)
{
    plan_words w = {0};
    size_t at = 0;
    *text = 0;
    const bool whole = !lt_plan_start_words(p, c, p->path, &w);
    for (int i = 0; i < w.count && whole; i++)
        at = add(text, size, at, w.word[i]);
    lt_plan_free_words(&w);
    return text;
}
