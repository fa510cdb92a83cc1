/* env.json: machine, build and command line of a run. */

#include "env.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "base/plugins/elf.h"
#include "base/shared_file.h"
#include "processor.h"
#include "tensor/tensor.h"

#include "lather/data.h"
#include "lather/device.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Reads the first line of a file in a folder. */
static bool read_line(const char *folder, const char *name, char *text, size_t size)
{
    char *path = lt_format("%s/%s", folder, name);
    FILE *file = path ? fopen(path, "r") : NULL;
    bool found = file && fgets(text, (int)size, file);
    if (file)
        fclose(file);
    lt_free(path);
    if (found)
        text[strcspn(text, "\n")] = 0;
    return found;
}

/* Reads the first line of .git/NAME in the working folder or one above it, without running git. */
static bool read_git(const char *name, char *text, size_t size)
{
    char folder[1024];
    if (!getcwd(folder, sizeof folder))
        return false;
    char *git = lt_format(".git/%s", name);
    bool found = false;
    for (char *end = folder + strlen(folder); git && !found && end; end = strrchr(folder, '/')) {
        *end = 0;
        found = read_line(folder, git, text, size);
    }
    lt_free(git);
    return found;
}

/* Writes the commit that .git/HEAD names, directly or through a loose reference. */
static void put_commit(lt_json_writer *w)
{
    char head[256], commit[256];
    if (!read_git("HEAD", head, sizeof head))
        return;
    bool is_reference = !strncmp(head, "ref: ", 5);
    if (is_reference && !read_git(head + 5, commit, sizeof commit))
        return;
    lt_json_put_string(w, "git_commit", is_reference ? commit : head);
}

static void put_host(lt_json_writer *w, bool reproducible)
{
    char text[512];
    struct utsname name;
    lt_processor_write_json(w, reproducible);
    lt_json_put_string(w, "cpu_flags", lt_machine_features(text, sizeof text));
    lt_json_put_integer(w, "cpu_threads", lt_cpu_threads());
    lt_json_put_string(w, "os", lt_machine_os(text, sizeof text));
    if (!uname(&name)) {
        lt_json_put_string(w, "kernel", name.release);
        lt_json_put_string(w, "machine", name.machine);
        lt_json_put_string(w, "host", name.nodename);
    }
    lt_json_put_integer(w, "memory_bytes",
                        (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE));
}

static void put_build(lt_json_writer *w)
{
    const char *line;
    char id[LT_BUILD_ID_TEXT];
    lt_elf_build_id(id);
    lt_json_put_string(w, "version", lt_version());
    lt_json_put_string(w, "build_id", id);
    lt_json_put_string(w, "compiler", __VERSION__);
    lt_json_begin_array(w, "build");
    for (int i = 0; (line = lt_build_info_line(i, false)); i++)
        lt_json_put_string(w, NULL, line);
    lt_json_end(w);
    lt_json_put_string(w, "jpeg", lt_jpeg_library());
}

lt_status lt_run_write_env(const char *folder, const lt_run_config *config, const char *id)
{
    const lt_options *options = config->options;
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    lt_json_writer w = {0};
    lt_json_begin_object(&w, NULL);
    if (id)
        lt_json_put_string(&w, "run", id);
    lt_json_put_string(&w, "started", date);
    if (config->ranks)
        lt_json_put_integer(&w, "ranks", config->ranks);
    put_build(&w);
    put_host(&w, config->reproducible);
    put_commit(&w);
    const char *argument;
    lt_json_begin_array(&w, "arguments");
    for (int i = 0; options && (argument = lt_options_argument(options, i)); i++)
        lt_json_put_string(&w, NULL, argument);
    lt_json_end(&w);
    lt_json_end(&w);
    char *path = lt_format("%s/env.json", folder);
    const char *text;
    size_t bytes;
    lt_json_put_raw(&w, "\n");
    lt_status st = path ? lt_json_text(&w, &text, &bytes) : LT_E_NOMEM;
    if (!st)
        st = lt_shared_save(path, text, bytes);
    lt_free(path);
    lt_json_writer_clear(&w);
    return st;
}
