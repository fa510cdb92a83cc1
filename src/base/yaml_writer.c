/* YAML scalars (YAML 1.2, sections 7.3.1 and 7.3.3): plain where nothing can be misread, else double
 * quoted. */

#include "base/yaml.h"

#include <ctype.h>
#include <string.h>

static int is_plain(const char *value)
{
    if (!isalnum((unsigned char)value[0]) && !strchr("/._-+", value[0]))
        return 0;
    if (value[0] == '-' && !isalnum((unsigned char)value[1]))
        return 0;
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/._-+=,", *c))
            return 0;
    return 1;
}

void lt_yaml_put(FILE *out, const char *value)
{
    if (value && *value && is_plain(value)) {
        fputs(value, out);
        return;
    }
    fputc('"', out);
    for (const char *c = value ? value : ""; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            fprintf(out, "\\x%02x", (unsigned)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}
