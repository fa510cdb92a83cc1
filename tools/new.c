/* `lather new KIND NAME`: a folder with an optimizer, a data set, a model or an operation, which builds
 * and passes its test at once. Its files are those of templates/KIND with "new_name" replaced by NAME, and "NEW_NAME"
 * by NAME in capitals, in their names too. */

#include "new.h"

#include "lather/ext/dataset.h"
#include "lather/ext/file.h"
#include "lather/optim_config.h"
#include "lather/options.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 40, FILES = 16, FILE_BYTES = 1 << 16 };

typedef struct arguments {
    const char *folder;
} arguments;

static const char *const kinds[] = {"optimizer", "dataset", "model", "op"};

static const lt_option options[] = {
    {"New", "folder", 0, LT_OPTION_STRING, offsetof(arguments, folder), .meta = "DIR",
     .help = "folder to write; files that exist are never overwritten; default: NAME"},
};

static const lt_program program = {
    .name = "lather new",
    .summary = "writes a folder with an optimizer, a data set, a model or an operation of your own",
    .usage = "optimizer|dataset|model|op NAME [OPTION]...",
    .description =
        "The folder has the source, a test that compares it with its formula, a meson.build and a README.md "
        "with the commands to build and use it. An optimizer or a dataset is a plugin for --plugin, a model is a "
        "training program, an op is a function for models. NAME is a C identifier in lower case.\n\n"
        "Exit status: 0 written, 1 an error, 2 a wrong command line.",
    .option = options,
    .count = sizeof options / sizeof *options,
    .rest = true,
};

/* A folder to write. */
typedef struct new_folder {
    const char *path, *name;
    char templates[PATH_MAX];
    char template[FILES][NAME_MAX + 1], file[FILES][PATH_MAX]; /* file names; paths of the copies */
    int count;
} new_folder;

/* --- The command line --- */

static lt_status check_kind(const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i]))
            return LT_OK;
    return lt_fail(LT_E_ARG, "unknown kind '%s'; kinds: optimizer, dataset, model, op", kind);
}

static lt_status open_nothing(lt_dataset **out, const char *spec, bool train)
{
    (void)out;
    (void)spec;
    (void)train;
    return LT_E_UNSUPPORTED;
}

/* Fails if the library has an optimizer or a data set of this name, as its plugin could not be loaded. */
static lt_status check_is_free(const char *kind, const char *name)
{
    static lt_dataset_kind dataset = {NULL, open_nothing};
    char other[2 * NAME_BYTES];
    dataset.usage = name;
    if (!strcmp(kind, "dataset") && lt_dataset_register(&dataset))
        return lt_fail(LT_E_ARG, "%s: choose another name", lt_error_message());
    for (size_t i = 0; !strcmp(kind, "optimizer") && lt_optim_name_at(i, other, sizeof other); i++)
        if (!strcmp(other, name))
            return lt_fail(LT_E_ARG, "the library has an optimizer '%s'; choose another name",
                           name);
    return LT_OK;
}

static lt_status check_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    const size_t bytes = strlen(name);
    if (strspn(name, allowed) == bytes && !isdigit((unsigned char)*name) && bytes
        && bytes <= NAME_BYTES)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "the name '%s' is not a C identifier in lower case: a to z, '_' and, not first, 0 "
        "to 9, at most %d of them",
        name, NAME_BYTES);
}

/* --- Templates --- */

/* Returns a copy of text with the name put in, which the caller frees; NULL: no memory. */
static char *put_name(const char *text, const char *name)
{
    static const char lower[] = "new_name", upper[] = "NEW_NAME";
    const size_t length = sizeof lower - 1;
    char *result = NULL;
    size_t bytes;
    FILE *out = open_memstream(&result, &bytes);
    if (!out)
        return NULL;
    for (; *text; text++) {
        const bool is_upper = !strncmp(text, upper, length);
        if (!is_upper && strncmp(text, lower, length) != 0) {
            putc(*text, out);
            continue;
        }
        for (const char *c = name; *c; c++)
            putc(is_upper ? toupper((unsigned char)*c) : *c, out);
        text += length - 1;
    }
    if (!fclose(out))
        return result;
    free(result);
    return NULL;
}

/* Adds a file. Errors: LT_E_ARG (it exists). */
static lt_status add_file(new_folder *f, const char *template)
{
    struct stat info;
    char *path = f->file[f->count], *own = put_name(template, f->name);
    if (!own)
        return lt_fail(LT_E_NOMEM, "%s: no memory", template);
    const int bytes = snprintf(path, PATH_MAX, "%s/%s", f->path, own);
    free(own);
    if (bytes >= PATH_MAX)
        return lt_fail(LT_E_ARG, "--folder: a path of %d bytes; less than %d are possible", bytes,
                       PATH_MAX);
    if (!lstat(path, &info))
        return lt_fail(LT_E_ARG, "%s exists and is not overwritten; see --folder DIR", path);
    snprintf(f->template[f->count++], NAME_MAX + 1, "%s", template);
    return LT_OK;
}

static lt_status list_files(new_folder *f)
{
    struct dirent **entry;
    const int count = scandir(f->templates, &entry, NULL, alphasort);
    lt_status st = count < 0 ? lt_fail(LT_E_IO, "%s: %s", f->templates, strerror(errno)) : LT_OK;
    for (int i = 0; i < count; i++) {
        if (!st && entry[i]->d_name[0] != '.' && f->count < FILES)
            st = add_file(f, entry[i]->d_name);
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
    return st;
}

/* --- Writing --- */

static lt_status write_file(const new_folder *f, int i)
{
    static char text[FILE_BYTES];
    char path[2 * PATH_MAX];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", f->templates, f->template[i]);
    LT_TRY(lt_file_open(&file, path));
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    const bool is_whole = !ferror(file) && feof(file);
    fclose(file);
    char *own = is_whole ? put_name(text, f->name) : NULL;
    if (!own)
        return lt_fail(LT_E_IO, "%s: cannot be read", path);
    const lt_status st = lt_file_save(f->file[i], own, strlen(own));
    free(own);
    return st;
}

/* Writes all files, or none. */
static lt_status write_files(const new_folder *f)
{
    lt_status st = lt_make_folders(f->path);
    for (int i = 0; i < f->count && !st; i++)
        st = write_file(f, i);
    for (int i = 0; i < f->count && st; i++)
        unlink(f->file[i]);
    return st;
}

static lt_status write_folder(const char *kind, const char *name, const char *path)
{
    static new_folder f;
    char source[64], installed[64];
    f.path = path;
    f.name = name;
    LT_TRY(check_kind(kind));
    LT_TRY(check_name(name));
    LT_TRY(check_is_free(kind, name));
    snprintf(source, sizeof source, "tools/templates/%s", kind);
    snprintf(installed, sizeof installed, "share/lather/templates/%s", kind);
    LT_TRY(lt_file_find_near_program(f.templates, sizeof f.templates, source, installed));
    LT_TRY(list_files(&f));
    LT_TRY(write_files(&f));
    for (int i = 0; i < f.count; i++)
        printf("%s\n", f.file[i]);
    printf("next, in %s: meson setup build && meson test -C build, or see README.md\n", path);
    return LT_OK;
}

int new_main(int argc, char *const *argv)
{
    arguments a;
    lt_options *parsed = NULL;
    lt_status st = lt_options_new(&parsed, &program, &a);
    if (!st)
        st = lt_options_parse(parsed, argc, argv);
    const char *name = st ? NULL : lt_options_positional(parsed, 1);
    if (!st && lt_options_requested(parsed) != LT_OPTIONS_RUN)
        st = lt_options_print_request(parsed, stdout);
    else if (!st && lt_options_positional_count(parsed) != 2)
        st = lt_fail(LT_E_ARG, "want a kind and a name: optimizer|dataset|model|op NAME");
    else if (!st && a.folder && !*a.folder)
        st = lt_fail(LT_E_ARG, "--folder: empty");
    else if (!st)
        st = write_folder(lt_options_positional(parsed, 0), name, a.folder ? a.folder : name);
    if (st)
        fprintf(stderr, "lather new: %s\n", lt_error_message());
    lt_options_free(&parsed);
    return st == LT_E_ARG ? 2 : st ? 1 : 0;
}
