/* The program lather: `lather launch run.ini --on local` starts programs of several processes, `lather doctor RUN`
 * examines a run, `lather verify RUN` repeats one, `lather race` compares optimizers on fixed tasks, `lather new` writes
 * a folder for an optimizer, a data set, a model or an operation, `lather completion` prints completion for a shell. */

#include "new.h"

#include "lather/device.h"
#include "lather/ext/file.h"
#include "lather/launch.h"
#include "lather/options.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    int on;
    int64_t slots;
    double grace;
    bool dry_run, host_check;
    const char *folder, *log, *hosts, *spares;
} arguments;

static const lt_option table[] = {
    {"Launch", "on", 0, LT_OPTION_CHOICE, offsetof(arguments, on), .value = "local",
     .choices = "threads|local|mpirun|slurm", .help = "place in which nodes run"},
    {"Launch", "dry-run", 'n', LT_OPTION_BOOL, offsetof(arguments, dry_run),
     .help = "print the commands to standard output; start nothing, write no file"},
    {"Launch", "slots", 0, LT_OPTION_INT, offsetof(arguments, slots), .value = "0", .min = 0,
     .max = 1e6, .help = "maximum number of ranks of a gang; 0: no limit"},
    {"Launch", "grace", 0, LT_OPTION_DOUBLE, offsetof(arguments, grace), .value = "5", .min = 0.01,
     .max = 86400, .help = "seconds between asking a node to end and killing it"},
    {"Launch", "folder", 0, LT_OPTION_STRING, offsetof(arguments, folder), .meta = "DIR",
     .help =
         "private folder, visible on all machines, in which nodes find each other; default: a temporary one"},
    {"Launch", "hosts", 0, LT_OPTION_STRING, offsetof(arguments, hosts), .meta = "FILE|LIST",
     .help =
         "machines of --on mpirun: a file with lines NAME slots=N, or NAME:SLOTS,...; default: the file of PBS_NODEFILE or "
         "OMPI_MCA_orte_default_hostfile, else mpirun chooses"},
    {"Launch", "spare-hosts", 0, LT_OPTION_STRING, offsetof(arguments, spares), .meta = "FILE|LIST",
     .help = "machines that take the place of failed ones, as in --hosts"},
    {"Launch", "host-check", 0, LT_OPTION_BOOL, offsetof(arguments, host_check), .value = "true",
     .help =
         "check that hosts are reached and have memory, disk space and the right time before ranks start on them"},
    {"Launch", "log", 0, LT_OPTION_STRING, offsetof(arguments, log), .meta = "FILE",
     .help = "file for the lines of all nodes; default: standard output"},
};

static const lt_program program = {
    .name = "lather launch",
    .summary = "starts the nodes of a program, and supervises them",
    .usage = "PROGRAM.ini [OPTION]...",
    .description =
        "A program is an INI file: a section is a group of like nodes with a kind (function, service, gang), "
        "an entry of a shared object or a command, and arguments with placeholders such as "
        "${buffer.address}. The same file runs in threads, in processes, by mpirun and by srun.\n\n"
        "Exit status: 0 all functions and gangs ended well, 1 an error, 2 a wrong command line.",
    .option = table,
    .count = sizeof table / sizeof *table,
    .rest = true,
};

static lt_status launch(const lt_options *options, const arguments *a)
{
    char self[PATH_MAX] = "";
    lt_job_graph *graph = NULL;
    lt_launch_config config = {.platform = (lt_launch_platform)a->on,
                               .slots = (int)a->slots,
                               .folder = a->folder,
                               .grace = a->grace,
                               .dry_run = a->dry_run};
    const bool to_file = a->log && !a->dry_run;
    FILE *log = to_file ? fopen(a->log, "w") : NULL;
    if (to_file && !log) {
        fprintf(stderr, "lather: %s cannot be written\n", a->log);
        return LT_E_IO;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
        config.program = self;
    config.log = log;
    lt_status st = lt_job_graph_load(&graph, lt_options_positional(options, 0));
    if (!st)
        st = lt_job_graph_launch_on(graph, &config,
                                    &(lt_launch_hosts_config){.hosts = a->hosts,
                                                              .spares = a->spares,
                                                              .no_check = !a->host_check});
    if (st)
        fprintf(stderr, "lather: %s\n", lt_error_message());
    lt_job_graph_free(&graph);
    if (log)
        fclose(log);
    return st;
}

static int launch_main(int argc, char *const *argv)
{
    arguments a;
    lt_options *options = NULL;
    int status = 2;
    lt_status st = lt_options_new(&options, &program, &a);
    if (!st)
        st = lt_options_parse(options, argc, argv);
    if (st)
        fprintf(stderr, "lather: %s\n", lt_error_message());
    else if (lt_options_requested(options) != LT_OPTIONS_RUN)
        status = lt_options_print_request(options, stdout) ? 1 : 0;
    else if (lt_options_positional_count(options) != 1)
        fprintf(stderr, "lather: want one program, PROGRAM.ini; see lather launch --help\n");
    else
        status = launch(options, &a) ? 1 : 0;
    lt_options_free(&options);
    return status;
}

/* Programs lather-NAME in the folder of tools. */
static const char *const programs[] = {"doctor", "report",   "inspect", "bench", "reproduce",
                                       "pack",   "tokenize", "verify",  "race"};

static bool is_program(const char *name)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(name, programs[i]))
            return true;
    return false;
}

/* Executes the program argv[1]. Returns only if that fails. */
static int execute(char **argv)
{
    char tool[PATH_MAX], built[64], installed[64];
    snprintf(built, sizeof built, "tools/%s", argv[1]);
    snprintf(installed, sizeof installed, "bin/lather-%s", argv[1]);
    if (lt_file_find_near_program(tool, sizeof tool, built, installed)) {
        fprintf(stderr, "lather: %s\n", lt_error_message());
        return 1;
    }
    argv[1] = tool;
    execv(tool, argv + 1);
    fprintf(stderr, "lather: %s: %s\n", tool, strerror(errno));
    return 1;
}

/* Bash function that completes the options that `PROGRAM --help all` prints, and the values of choices. */
static const char completion[] =
    "_lather() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} help choices=\n"
    "    local program=(\"${COMP_WORDS[0]}\") words\n"
    "    if [[ ${program##*/} == lather ]]; then\n"
    "        program+=(\"${COMP_WORDS[1]}\")\n"
    "    fi\n"
    "    help=$(\"${program[@]}\" --help all 2>/dev/null)\n"
    "    if [[ $before == --* ]]; then\n"
    "        choices=$(sed -nE \"s/^  (-., )?$before ([^ ]*[|][^ ]*).*/\\2/p\" <<<\"$help\")\n"
    "    fi\n"
    "    words=$(sed -nE 's/^  (-., )?(--[^ ,]*).*/\\2/p' <<<\"${help//\\[no-\\]/}\")\n"
    "    if [[ ${program##*/} == lather ]] && ((COMP_CWORD == 1)); then\n"
    "        COMPREPLY=($(compgen -W \"$_lather_commands\" -- \"$word\"))\n"
    "    elif [[ $choices ]]; then\n"
    "        COMPREPLY=($(compgen -W \"${choices//|/ }\" -- \"$word\"))\n"
    "    elif [[ $word == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
    "    else\n"
    "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _lather lather train_resnet50 train_vit train_gpt train_speedrun";

static int print_completion(const char *shell)
{
    const bool zsh = shell && !strcmp(shell, "zsh");
    if (!zsh && (!shell || strcmp(shell, "bash") != 0)) {
        fprintf(stderr,
                "lather: completion: want bash or zsh, as in: source <(lather completion bash)\n");
        return 2;
    }
    printf("%s_lather_commands='launch new completion",
           zsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "");
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        printf(" %s", programs[i]);
    printf("'\n%s", completion);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        printf(" lather-%s", programs[i]);
    printf("\n");
    return 0;
}

static int print_usage(const char *command)
{
    static const char usage[] =
        "usage: lather launch PROGRAM.ini [OPTION]...   (lather launch --help)\n"
        "       lather doctor RUN... [--json]           (lather doctor --help)\n"
        "       lather verify RUN [--from-step K]       (lather verify --help)\n"
        "       lather race run|verify|board ...        (lather race --help)\n"
        "       lather new KIND NAME [--folder DIR]     (lather new --help)\n"
        "       lather completion bash|zsh              (source <(lather completion bash))\n"
        "       lather report|inspect|bench|reproduce|pack|tokenize ...   the programs lather-report, ...\n";
    const bool asked = command && !strcmp(command, "--help");
    if (command && !asked)
        fprintf(stderr, "lather: no command '%s'\n", command);
    fputs(usage, asked ? stdout : stderr);
    return asked ? 0 : 2;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : NULL;
    if (!command)
        return print_usage(NULL);
    if (!strcmp(command, "launch"))
        return launch_main(argc - 1, argv + 1);
    if (is_program(command))
        return execute(argv);
    if (!strcmp(command, "new"))
        return new_main(argc - 1, argv + 1);
    if (!strcmp(command, "completion"))
        return print_completion(argv[2]);
    if (!strcmp(command, "node"))
        return lt_launch_node_main(argc - 1, argv + 1);
    if (!strcmp(command, "--version")) {
        const char *line;
        for (int i = 0; (line = lt_build_info(i)); i++)
            printf("%s\n", line);
        return 0;
    }
    return print_usage(command);
}
