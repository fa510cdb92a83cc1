/* Regular expressions that select parameters by name. */

#include "names.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

lt_status lt_name_regex_set(lt_name_regex *to, const char *what, const char *text)
{
    regex_t compiled;
    if (!strcmp(text, "none"))
        text = "";
    if (strlen(text) >= sizeof to->text)
        return lt_fail(LT_E_ARG, "%s: pattern of %zu bytes exceeds the limit of %zu", what,
                       strlen(text), sizeof to->text - 1);
    if (*text) {
        LT_TRY(lt_pattern_compile(what, text, &compiled));
        regfree(&compiled);
    }
    *to = (lt_name_regex){.optional = false};
    memcpy(to->text, text, strlen(text));
    return LT_OK;
}

lt_status lt_name_regex_set_from_json(lt_name_regex *to, const lt_json_value *v)
{
    char what[96];
    snprintf(what, sizeof what, "optimizer config: %s", v->key);
    if (v->type != LT_JSON_STRING && v->type != LT_JSON_NULL)
        return lt_fail(LT_E_ARG, "%s must be a string or null", what);
    return lt_name_regex_set(to, what, v->type == LT_JSON_NULL ? "" : v->string);
}

lt_status lt_name_regex_match(const lt_name_regex *names, const char *what, const lt_optim *optim,
                              bool *match)
{
    regex_t compiled;
    size_t found = 0;
    for (size_t i = 0; i < optim->count; i++)
        match[i] = false;
    if (!*names->text)
        return LT_OK;
    LT_TRY(lt_pattern_compile(what, names->text, &compiled));
    for (size_t i = 0; i < optim->count; i++) {
        match[i] = !regexec(&compiled, optim->slot[i].param->name, 0, NULL, 0);
        found += match[i];
    }
    regfree(&compiled);
    return found || names->optional
               ? LT_OK
               : lt_fail(LT_E_ARG, "%s: no trained parameter matches '%s'", what, names->text);
}
