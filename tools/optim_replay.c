/* optim_replay: runs an optimizer on recorded parameters and gradients, for comparing it with
 * another implementation number by number (tests/oracle/optim_model.py).
 *
 * The input holds param.NAME and grad.T.NAME (T = 1, 2, ...), the output param.T.NAME after every
 * step; with weight averaging also eval.T.NAME, the averaged weights. A missing grad.T.NAME means no gradient in that step;
 * steps end when no grad.T.* exists. */

#include "lather/ext/file.h"
#include "lather/optim_config.h"
#include "lather/plugin.h"
#include "lather/safetensors.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 512, EXIT_USAGE = 2 };

typedef struct options {
    const char *config, *in, *out, *device;
    const char *plugin; /* the last one; all are loaded from the command line */
} options;

typedef struct replay {
    lt_optim_config config;
    lt_device *device;
    lt_safetensors *in;
    lt_safetensors_writer *out;
    lt_param *param;
    size_t count;
    lt_params list;
    lt_optim *optim;
    void **result; /* written tensors: lent to the writer */
    size_t results, capacity;
} replay;

static const char usage[] =
    "usage: optim_replay --config C.json --in T.safetensors --out R.safetensors [--device NAME]\n"
    "                    [--plugin FILE.so]...\n"
    "  C.json   one object: \"optim\", \"lr\", and the optimizer's own keys\n"
    "  T        param.NAME, and grad.1.NAME, grad.2.NAME, ... (f32 or f64)\n"
    "  R        param.1.NAME, param.2.NAME, ...: after every step, in the config's dtype;\n"
    "           with iterate_averaging also eval.1.NAME, ..., the evaluation sequence\n";

static int complain(const char *what)
{
    fprintf(stderr, "optim_replay: %s\n", what);
    return EXIT_FAILURE;
}

static int fail(void)
{
    return complain(lt_error_message());
}

static int no_memory(void)
{
    return complain("out of memory");
}

/* --- Reading --- */

/* Reads the whole file, NUL-terminated; prints a message and returns NULL on error. */
static char *read_text(const char *path, size_t *bytes)
{
    enum { MOST = 1 << 20 };
    FILE *file;
    if (lt_file_open(&file, path)) {
        (void)fail();
        return NULL;
    }
    char *text = malloc(MOST + 1);
    if (!text) {
        (void)no_memory();
        fclose(file);
        return NULL;
    }
    *bytes = fread(text, 1, MOST + 1, file);
    bool bad = ferror(file) || *bytes > MOST;
    fclose(file);
    if (bad) {
        fprintf(stderr, "optim_replay: %s: not readable, or longer than 1 MiB\n", path);
        free(text);
        return NULL;
    }
    text[*bytes] = 0;
    return text;
}

static int read_config(replay *r, const char *path)
{
    size_t bytes;
    char *text = read_text(path, &bytes);
    if (!text)
        return EXIT_FAILURE;
    lt_status st = lt_optim_config_parse(&r->config, text, bytes);
    free(text);
    return st ? fail() : EXIT_SUCCESS;
}

/* A host array of the entry in the tensor's dtype. */
static void *converted(const lt_safetensors_entry *e, lt_dtype dtype)
{
    size_t count = (size_t)lt_shape_count(e->shape);
    char *out = malloc(count * lt_dtype_size(dtype));
    if (!out)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        float narrow;
        double wide;
        if (e->dtype == LT_F64) {
            memcpy(&wide, (const char *)e->data + i * sizeof wide, sizeof wide);
        } else {
            memcpy(&narrow, (const char *)e->data + i * sizeof narrow, sizeof narrow);
            wide = (double)narrow;
        }
        narrow = (float)wide;
        if (dtype == LT_F64)
            memcpy(out + i * sizeof wide, &wide, sizeof wide);
        else
            memcpy(out + i * sizeof narrow, &narrow, sizeof narrow);
    }
    return out;
}

static int write_tensor(lt_tensor *tensor, const lt_safetensors_entry *e)
{
    char want[LT_SHAPE_TEXT], got[LT_SHAPE_TEXT];
    if (e->dtype != LT_F32 && e->dtype != LT_F64) {
        fprintf(stderr, "optim_replay: %s is %s, want f32 or f64\n", e->name,
                lt_dtype_name(e->dtype));
        return EXIT_FAILURE;
    }
    if (!lt_shape_equal(e->shape, lt_tensor_shape(tensor))) {
        fprintf(stderr, "optim_replay: %s is %s, its parameter is %s\n", e->name,
                lt_shape_text(e->shape, got), lt_shape_text(lt_tensor_shape(tensor), want));
        return EXIT_FAILURE;
    }
    void *host = converted(e, lt_tensor_dtype(tensor));
    if (!host)
        return no_memory();
    lt_status st = lt_tensor_write(tensor, host, lt_tensor_bytes(tensor));
    free(host);
    return st ? fail() : EXIT_SUCCESS;
}

static int add_param(replay *r, const lt_safetensors_entry *e, const char *name)
{
    lt_param *p = &r->param[r->count];
    if (e->shape.ndim == 4 ? lt_param_init_filter(p, r->device, "", name, e->shape)
                           : lt_param_init(p, r->device, "", name, e->shape, 0))
        return fail();
    r->count++;
    if (lt_params_add(&r->list, p))
        return fail();
    return write_tensor(p->value, e);
}

static int read_params(replay *r)
{
    static const char prefix[] = "param.";
    size_t entries = lt_safetensors_count(r->in);
    r->param = calloc(entries ? entries : 1, sizeof *r->param);
    if (!r->param)
        return no_memory();
    for (size_t i = 0; i < entries; i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(r->in, i);
        if (strncmp(e->name, prefix, strlen(prefix)) != 0)
            continue;
        if (add_param(r, e, e->name + strlen(prefix)))
            return EXIT_FAILURE;
    }
    return r->count ? EXIT_SUCCESS : complain("the input has no param.NAME");
}

/* --- Steps --- */

/* Reads the gradients of a step; *any: true if one exists. */
static int read_gradients(replay *r, int64_t step, bool *any)
{
    *any = false;
    for (size_t i = 0; i < r->count; i++) {
        char name[NAME];
        snprintf(name, sizeof name, "grad.%" PRId64 ".%s", step, r->param[i].name);
        const lt_safetensors_entry *e = lt_safetensors_find(r->in, name);
        r->param[i].has_grad = e != NULL;
        if (e && write_tensor(r->param[i].grad, e))
            return EXIT_FAILURE;
        *any = *any || e;
    }
    return EXIT_SUCCESS;
}

static int keep(replay *r, void *memory)
{
    if (r->results == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        void **grown = realloc(r->result, capacity * sizeof *grown);
        if (!grown) {
            free(memory);
            return no_memory();
        }
        r->result = grown;
        r->capacity = capacity;
    }
    r->result[r->results++] = memory;
    return EXIT_SUCCESS;
}

/* kind: "param", "eval" */
static int write_params(replay *r, const char *kind, int64_t step)
{
    for (size_t i = 0; i < r->count; i++) {
        const lt_tensor *value = r->param[i].value;
        char name[NAME];
        snprintf(name, sizeof name, "%s.%" PRId64 ".%s", kind, step, r->param[i].name);
        void *host = malloc(lt_tensor_bytes(value));
        if (!host)
            return no_memory();
        if (keep(r, host))
            return EXIT_FAILURE;
        if (lt_tensor_read(value, host, lt_tensor_bytes(value))
            || lt_safetensors_add_host(r->out, name, lt_tensor_dtype(value), lt_tensor_shape(value),
                                       host))
            return fail();
    }
    return EXIT_SUCCESS;
}

/* Writes the averaged weights, which an evaluation would use; does nothing without weight averaging. */
static int write_eval(replay *r, int64_t step)
{
    if (!lt_optim_is_averaged(r->optim))
        return EXIT_SUCCESS;
    if (lt_optim_eval(r->optim))
        return fail();
    if (write_params(r, "eval", step))
        return EXIT_FAILURE;
    return lt_optim_train(r->optim) ? fail() : EXIT_SUCCESS;
}

static int run_steps(replay *r)
{
    for (int64_t t = 1;; t++) {
        lt_step step = {.attempt = t};
        bool any;
        if (read_gradients(r, t, &any))
            return EXIT_FAILURE;
        if (!any)
            return EXIT_SUCCESS;
        if (lt_optim_config_lr(&r->config, t, &step.lr) || lt_optim_step(r->optim, &step))
            return fail();
        if (write_params(r, "param", t) || write_eval(r, t))
            return EXIT_FAILURE;
    }
}

static int run(replay *r, const options *o)
{
    if (read_config(r, o->config))
        return EXIT_FAILURE;
    /* One thread: the tensors are small, and waking others would take longer. */
    const lt_device_config device = {.f64 = r->config.dtype == LT_F64, .threads = 1};
    if (lt_device_open(&r->device, o->device, &device) || lt_safetensors_open(&r->in, o->in))
        return fail();
    if (read_params(r))
        return EXIT_FAILURE;
    if (lt_optim_config_make(&r->optim, &r->config, &r->list)
        || lt_safetensors_create(&r->out, o->out))
        return fail();
    if (run_steps(r))
        return EXIT_FAILURE;
    return lt_safetensors_finish(&r->out) ? fail() : EXIT_SUCCESS;
}

static void clear(replay *r)
{
    lt_safetensors_discard(&r->out);
    for (size_t i = 0; i < r->results; i++)
        free(r->result[i]);
    free(r->result);
    lt_optim_free(&r->optim);
    for (size_t i = 0; i < r->count; i++)
        lt_param_clear(&r->param[i]);
    free(r->param);
    lt_params_clear(&r->list);
    lt_safetensors_close(&r->in);
    lt_device_close(&r->device);
    lt_optim_config_clear(&r->config);
}

/* --- The command line --- */

static const char **option_of(options *o, const char *flag)
{
    const struct {
        const char *flag;
        const char **value;
    } known[] = {{"--config", &o->config},
                 {"--in", &o->in},
                 {"--out", &o->out},
                 {"--device", &o->device},
                 {"--plugin", &o->plugin}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].flag, flag))
            return known[i].value;
    return NULL;
}

static int parse(options *o, int argc, char **argv)
{
    *o = (options){.device = "cpu"};
    for (int i = 1; i < argc; i += 2) {
        const char **value = option_of(o, argv[i]);
        if (!value || i + 1 == argc) {
            fprintf(stderr, "optim_replay: %s: %s\n%s", argv[i],
                    value ? "wants a value" : "no such option", usage);
            return EXIT_USAGE;
        }
        *value = argv[i + 1];
    }
    if (o->config && o->in && o->out)
        return EXIT_SUCCESS;
    fputs(usage, stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    options o;
    replay r = {0};
    signal(SIGXFSZ, SIG_IGN); /* EFBIG */
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    int code = parse(&o, argc, argv);
    if (!code && lt_plugin_load_arguments(argc, argv, "optim_replay"))
        code = fail();
    if (!code)
        code = run(&r, &o);
    clear(&r);
    return code;
}
