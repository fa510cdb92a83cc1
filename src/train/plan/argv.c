/* Command lines of candidates: training flags with a choice of --vary, after mpirun, and as text for a shell. */

#include "base/alloc.h"
#include "base/options/options.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

lt_status lt_plan_argv_add(plan_argv *w, const char *format, ...)
{
    va_list args;
    LT_TRY(LT_RESIZE(&w->word, w->count + 2));
    va_start(args, format);
    char *word = lt_format_list(format, args);
    va_end(args);
    if (!word)
        return LT_E_NOMEM;
    w->word[w->count++] = word;
    w->word[w->count] = NULL;
    return LT_OK;
}

void lt_plan_argv_free(plan_argv *w)
{
    lt_free_texts(w->word, (size_t)w->count);
    *w = (plan_argv){0};
}

/* --- Flags --- */

/* Returns true for a flag that is not passed to training; skip: its value is the next word. */
static bool is_not_for_training(const char *word, const plan_request *r, bool *skip)
{
    bool takes_value = false;
    *skip = false;
    if (strncmp(word, "--", 2) != 0)
        return false;
    const char *name = word + (strncmp(word, "--no-", 5) ? 2 : 5);
    const size_t bytes = strcspn(name, "=");
    bool out = lt_plan_is_own_flag(r->options, name, bytes, &takes_value);
    if (lt_options_is_named("plan", name, bytes))
        out = takes_value = true;
    for (int i = 0; i < r->axes; i++)
        if (lt_options_is_named(r->axis[i].flag, name, bytes))
            out = takes_value = true;
    *skip = out && takes_value && !name[bytes];
    return out;
}

lt_status lt_plan_training_argv(plan_argv *out, int argc, char *const *argv, const plan_request *r,
                                const lt_options *options)
{
    bool skip;
    size_t rest = 0; /* index of the next positional argument: a run folder as for --from */
    for (int i = 1; i < argc; i++) {
        const char *run = lt_options_positional(options, rest);
        const bool is_run = run && !strcmp(argv[i], run);
        rest += is_run;
        if (!is_not_for_training(argv[i], r, &skip) && !is_run)
            LT_TRY(lt_plan_argv_add(out, "%s", argv[i]));
        i += skip;
    }
    return LT_OK;
}

lt_status lt_plan_argv_add_flag(plan_argv *w, const lt_options *options, const char *flag,
                                const char *value)
{
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(options, i)); i++)
        if (!strcmp(o->name, flag) && o->type == LT_OPTION_BOOL) {
            const bool on = !strcmp(value, "true") || !strcmp(value, "on");
            if (!on && strcmp(value, "false") != 0 && strcmp(value, "off") != 0)
                return lt_fail(LT_E_ARG, "--vary %s=%s: want on or off", flag, value);
            return lt_plan_argv_add(w, on ? "--%s" : "--no-%s", flag);
        }
    return lt_plan_argv_add(w, "--%s=%s", flag, value);
}

lt_status lt_plan_candidate_argv(const plan *p, const int *choice, plan_argv *out)
{
    for (int i = 0; i < p->argv.count; i++)
        LT_TRY(lt_plan_argv_add(out, "%s", p->argv.word[i]));
    for (int i = 0; i < p->request.axes; i++) {
        const plan_axis *a = &p->request.axis[i];
        LT_TRY(lt_plan_argv_add_flag(out, p->trainer->line.options, a->flag, a->value[choice[i]]));
    }
    return LT_OK;
}

lt_status lt_plan_parse_candidate(const plan *p, const int *choice, lt_trainer *out)
{
    plan_argv w = {0};
    lt_status st = lt_plan_argv_add(&w, "%s", p->family->program);
    if (!st)
        st = lt_plan_candidate_argv(p, choice, &w);
    if (!st)
        st = lt_trainer_parse(out, p->family, p->program, NULL, w.count, w.word);
    if (!st)
        st = lt_trainer_check(out);
    lt_plan_argv_free(&w);
    return st;
}

/* --- The whole command --- */

lt_status lt_plan_launch_argv(const plan *p, const plan_candidate *c, const char *program,
                              plan_argv *out)
{
    const lt_plan_setup *u = &c->config.setup;
    if (u->ranks > 1) {
        LT_TRY(lt_plan_argv_add(out, "mpirun"));
        LT_TRY(lt_plan_argv_add(out, "-n"));
        LT_TRY(lt_plan_argv_add(out, "%d", u->ranks));
    }
    if (u->ranks > 1 && (p->options.simulate || p->options.nodes)) {
        LT_TRY(lt_plan_argv_add(out, "--map-by"));
        LT_TRY(lt_plan_argv_add(out, "ppr:%d:node", u->ranks_per_node));
    }
    LT_TRY(lt_plan_argv_add(out, "%s", program));
    LT_TRY(lt_plan_candidate_argv(p, c->choice, out));
    if (p->trainer->line.args.ranks.ranks_per_node
        > u->ranks) /* fewer ranks than the flag has per machine */
        LT_TRY(lt_plan_argv_add(out, "--ranks-per-node=%d", u->ranks));
    return LT_OK;
}

static void print_shell_quoted(FILE *out, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-_=./,:@%+";
    const bool plain = *word && word[strspn(word, safe)] == 0;
    fputs(plain ? "" : "'", out);
    for (; *word; word++)
        fprintf(out, *word == '\'' ? "'\\%c'" : "%c", *word);
    fputs(plain ? "" : "'", out);
}

char *lt_plan_command_text(const plan *p, const plan_candidate *c)
{
    plan_argv w = {0};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    const bool whole = out && !lt_plan_launch_argv(p, c, p->path, &w);
    for (int i = 0; i < w.count && whole; i++) {
        fputs(i ? " " : "", out);
        print_shell_quoted(out, w.word[i]);
    }
    if (out)
        fclose(out);
    lt_plan_argv_free(&w);
    return text;
}
