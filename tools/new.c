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
#include <fcntl.h>
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

/* A file to write. */
typedef struct output {
    char path[PATH_MAX];
    char *text;
} output;

typedef struct outputs {
    output file[FILES];
    int count;
} outputs;

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

/* Finds the templates of a kind: in the source tree above a build, or in PREFIX/share of PREFIX/bin. */
static lt_status find_templates(char path[PATH_MAX], const char *kind)
{
    static const char *const places[] = {"tools/templates", "share/lather/templates"};
    enum { LEVELS = 5 };
    char folder[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[bytes > 0 ? bytes : 0] = 0;
    for (int level = 0; level < LEVELS && strrchr(folder, '/'); level++) {
        *strrchr(folder, '/') = 0;
        for (int i = 0; i < 2; i++) {
            const int length = snprintf(path, PATH_MAX, "%s/%s/%s", folder, places[i], kind);
            if (length < PATH_MAX && !access(path, R_OK))
                return LT_OK;
        }
    }
    return lt_fail(LT_E_IO, "%s/%s: not found, nor %s/%s, in the folders above the program",
                   places[0], kind, places[1], kind);
}

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
    while (*text) {
        const bool is_upper = !strncmp(text, upper, length);
        if (!is_upper && strncmp(text, lower, length) != 0) {
            putc(*text++, out);
            continue;
        }
        for (const char *c = name; *c; c++)
            putc(is_upper ? toupper((unsigned char)*c) : *c, out);
        text += length;
    }
    if (!fclose(out))
        return result;
    free(result);
    return NULL;
}

static lt_status read_template(output *out, const char *path, const char *name)
{
    static char text[FILE_BYTES];
    FILE *file;
    LT_TRY(lt_file_open(&file, path));
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    const bool is_whole = !ferror(file) && feof(file);
    fclose(file);
    out->text = is_whole ? put_name(text, name) : NULL;
    return out->text ? LT_OK : lt_fail(LT_E_IO, "%s: cannot be read", path);
}

/* Adds the output of a template file. Errors: LT_E_ARG (the output exists). */
static lt_status add_output(outputs *all, const char *templates, const char *file,
                            const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    output *out = &all->file[all->count];
    char *own = put_name(file, name);
    if (!own)
        return lt_fail(LT_E_NOMEM, "%s: no memory", file);
    const int from = snprintf(path, sizeof path, "%s/%s", templates, file);
    const int to = snprintf(out->path, sizeof out->path, "%s/%s", folder, own);
    free(own);
    if (from >= PATH_MAX || to >= PATH_MAX)
        return lt_fail(LT_E_ARG, "--folder: a path of %d bytes; less than %d are possible", to,
                       PATH_MAX);
    if (!lstat(out->path, &info))
        return lt_fail(LT_E_ARG, "%s exists and is not overwritten; see --folder DIR", out->path);
    LT_TRY(read_template(out, path, name));
    all->count++;
    return LT_OK;
}

static lt_status list_outputs(outputs *all, const char *templates, const char *folder,
                              const char *name)
{
    struct dirent **entry;
    const int count = scandir(templates, &entry, NULL, alphasort);
    lt_status st = count < 0 ? lt_fail(LT_E_IO, "%s: %s", templates, strerror(errno)) : LT_OK;
    for (int i = 0; i < count; i++) {
        if (!st && entry[i]->d_name[0] != '.' && all->count < FILES)
            st = add_output(all, templates, entry[i]->d_name, folder, name);
        free(entry[i]);
    }
    if (count >= 0)
        free(entry);
    return st;
}

/* --- Writing --- */

static lt_status make_folders(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/", folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
        *slash = '/';
    }
    return LT_OK;
}

static lt_status write_output(const output *out)
{
    const int fd = open(out->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    const bool failed = !file || fputs(out->text, file) < 0;
    if (!(file && fclose(file)) && !failed)
        return LT_OK;
    const lt_status st = lt_fail(LT_E_IO, "%s: %s", out->path, strerror(errno));
    if (fd >= 0)
        unlink(out->path);
    return st;
}

/* Writes all files, or none. */
static lt_status write_outputs(const outputs *all, const char *folder)
{
    LT_TRY(make_folders(folder));
    for (int i = 0; i < all->count; i++) {
        const lt_status st = write_output(&all->file[i]);
        if (!st)
            continue;
        while (i--)
            unlink(all->file[i].path);
        return st;
    }
    return LT_OK;
}

static lt_status write_folder(const char *kind, const char *name, const char *folder)
{
    static outputs all;
    char templates[PATH_MAX];
    LT_TRY(check_kind(kind));
    LT_TRY(check_name(name));
    LT_TRY(check_is_free(kind, name));
    LT_TRY(find_templates(templates, kind));
    lt_status st = list_outputs(&all, templates, folder, name);
    if (!st)
        st = write_outputs(&all, folder);
    for (int i = 0; i < all.count; i++) {
        if (!st)
            printf("%s\n", all.file[i].path);
        free(all.file[i].text);
    }
    if (!st)
        printf("next, in %s: meson setup build && meson test -C build, or see README.md\n", folder);
    return st;
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
