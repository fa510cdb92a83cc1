/* Interprets pickle opcodes (CPython's Lib/pickletools.py, protocols 2 to 5) on a stack. Each opcode makes at most one
 * value, and values refer to each other without copies, so that memory is proportional to the input. A class or
 * function is a name: those of the table below have a meaning here, all others are refused when they are named. */

#include "tensor/weight_file/pickle.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 1 << 26, MAX_VALUES = 1 << 22, NAME_BYTES = 200 };

typedef struct machine {
    const char *path;
    const char *at, *end;
    lt_arena *arena;
    lt_pickle_list stack, memo, *storages;
    size_t bytes, values;
    lt_status status;       /* the first failure, after which nothing happens */
    lt_pickle_value absent; /* stands for values that a failure left out */
    bool stopped;
} machine;

/* Meanings of the classes and functions that a file may name. */
enum { STORAGE_CLASS, REBUILD_TENSOR, REBUILD_PARAMETER, MAKE_DICT, MAKE_LIST, MAKE_OBJECT };

static const struct global {
    const char *name;
    int meaning;
    const char *dtype;
} globals[] = {
    {"torch.FloatStorage", STORAGE_CLASS, "F32"},
    {"torch.DoubleStorage", STORAGE_CLASS, "F64"},
    {"torch.HalfStorage", STORAGE_CLASS, "F16"},
    {"torch.BFloat16Storage", STORAGE_CLASS, "BF16"},
    {"torch.LongStorage", STORAGE_CLASS, "I64"},
    {"torch.IntStorage", STORAGE_CLASS, "I32"},
    {"torch.ShortStorage", STORAGE_CLASS, "I16"},
    {"torch.CharStorage", STORAGE_CLASS, "I8"},
    {"torch.ByteStorage", STORAGE_CLASS, "U8"},
    {"torch.BoolStorage", STORAGE_CLASS, "BOOL"},
    {"torch.ComplexFloatStorage", STORAGE_CLASS, "C64"},
    {"torch._utils._rebuild_tensor", REBUILD_TENSOR, NULL},
    {"torch._utils._rebuild_tensor_v2", REBUILD_TENSOR, NULL},
    {"torch._utils._rebuild_parameter", REBUILD_PARAMETER, NULL},
    {"collections.OrderedDict", MAKE_DICT, NULL},
    {"torch.Size", MAKE_LIST, NULL},
    {"builtins.set", MAKE_LIST, NULL},
    {"__builtin__.set", MAKE_LIST, NULL},
    {"argparse.Namespace", MAKE_OBJECT, NULL}, /* options of a training script */
};

static void fail(machine *m, const char *what)
{
    if (!m->status)
        m->status = lt_fail(LT_E_FORMAT, "%s: invalid pickle at byte %zu: %s", m->path,
                            m->bytes - (size_t)(m->end - m->at), what);
}

static lt_status add_to_list(lt_pickle_list *list, lt_pickle_value *value)
{
    LT_TRY(LT_GROW(&list->item, &list->capacity, list->count + 1));
    list->item[list->count++] = value;
    return LT_OK;
}

/* --- Reading bytes --- */

/* Returns the next *bytes bytes; after a failure *bytes is 0. */
static const char *take(machine *m, uint64_t *bytes)
{
    const char *data = m->at;
    if (*bytes > (uint64_t)(m->end - m->at)) {
        fail(m, "truncated");
        *bytes = 0;
    }
    m->at += *bytes;
    return data;
}

/* Reads an unsigned little-endian number of 1 to 8 bytes. */
static uint64_t take_number(machine *m, int size)
{
    uint64_t value = 0, bytes = (uint64_t)size;
    const char *data = take(m, &bytes);
    for (uint64_t i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)data[i] << (8 * i);
    return value;
}

/* --- Values and the stack --- */

static void push(machine *m, lt_pickle_value *v)
{
    lt_status st = m->status ? m->status : add_to_list(&m->stack, v);
    if (!m->status)
        m->status = st;
}

static lt_pickle_value *push_new(machine *m, int kind)
{
    lt_pickle_value *v = NULL;
    if (++m->values > MAX_VALUES)
        fail(m, "too many values");
    if (!m->status) {
        v = lt_arena_alloc(m->arena, sizeof *v);
        m->status = v ? LT_OK : LT_E_NOMEM;
    }
    v = v ? v : &m->absent;
    v->kind = (lt_pickle_kind)kind;
    push(m, v);
    return v;
}

static lt_pickle_value *pop(machine *m)
{
    if (m->stack.count)
        return m->stack.item[--m->stack.count];
    fail(m, "the stack is empty");
    return &m->absent;
}

static lt_pickle_value *peek(machine *m)
{
    lt_pickle_value *v = pop(m);
    m->stack.count += !m->status;
    return v;
}

/* Returns the index after the topmost mark. */
static size_t find_mark(machine *m)
{
    size_t i = m->stack.count;
    while (i && m->stack.item[i - 1]->kind != LT_PICKLE_MARK)
        i--;
    if (!i)
        fail(m, "no mark on the stack");
    return i;
}

static void append(machine *m, lt_pickle_value *to, lt_pickle_value **item, size_t count)
{
    if (m->status || !count)
        return;
    if (to->count + count > to->capacity) {
        const size_t capacity = 2 * (to->count + count);
        lt_pickle_value **grown = lt_arena_alloc(m->arena, capacity * sizeof(lt_pickle_value *));
        if (!grown) {
            m->status = LT_E_NOMEM;
            return;
        }
        if (to->count)
            memcpy(grown, to->item, to->count * sizeof(lt_pickle_value *));
        to->item = grown;
        to->capacity = capacity;
    }
    memcpy(to->item + to->count, item, count * sizeof(lt_pickle_value *));
    to->count += count;
}

/* --- Opcodes of plain values and containers; argument: of the table --- */

static void skip_bytes(machine *m, int size)
{
    uint64_t bytes = (uint64_t)size;
    (void)take(m, &bytes);
}

static void push_kind(machine *m, int kind)
{
    (void)push_new(m, kind);
}

static void push_bool(machine *m, int value)
{
    push_new(m, LT_PICKLE_INT)->integer = value;
}

static void push_integer(machine *m, int bytes)
{
    const uint64_t value = take_number(m, bytes);
    push_new(m, LT_PICKLE_INT)->integer =
        bytes == 4 ? (int32_t)(uint32_t)value : (int64_t)value; /* BININT is signed */
}

static void push_float(machine *m, int bytes)
{
    skip_bytes(m, bytes);
    push_kind(m, LT_PICKLE_PLAIN);
}

static lt_pickle_value *push_bytes(machine *m, int kind, int length_bytes)
{
    uint64_t length = take_number(m, length_bytes);
    const char *data = take(m, &length);
    lt_pickle_value *v = push_new(m, kind);
    v->text = data;
    v->bytes = (size_t)length;
    return v;
}

static void push_text(machine *m, int length_bytes)
{
    (void)push_bytes(m, LT_PICKLE_TEXT, length_bytes);
}

/* Pushes an integer in two's complement. */
static void push_long(machine *m, int length_bytes)
{
    uint64_t value = 0;
    lt_pickle_value *v = push_bytes(m, LT_PICKLE_PLAIN, length_bytes);
    if (!v->bytes || v->bytes > sizeof value)
        return;
    if (v->text[v->bytes - 1] & 0x80)
        value = UINT64_MAX;
    for (size_t i = v->bytes; i-- > 0;)
        value = value << 8 | (unsigned char)v->text[i];
    v->integer = (int64_t)value;
    v->kind = LT_PICKLE_INT;
}

/* Moves the values from `first` on into the container below them: a list, or with pairs a dict. */
static void add_items(machine *m, size_t first, int kind)
{
    const size_t count = m->stack.count - first;
    m->stack.count = first;
    lt_pickle_value *to = peek(m);
    if (to->kind != (lt_pickle_kind)kind || (kind == LT_PICKLE_DICT && count % 2))
        fail(m, "items for a value that is not their container");
    append(m, to, m->stack.item + first, count);
}

static void add_marked(machine *m, int kind)
{
    const size_t first = find_mark(m), count = m->stack.count - first;
    if (m->status)
        return;
    memmove(m->stack.item + first - 1, m->stack.item + first, count * sizeof(lt_pickle_value *));
    m->stack.count--; /* the mark */
    add_items(m, first - 1, kind);
}

static void add_top(machine *m, int kind)
{
    const size_t count = kind == LT_PICKLE_DICT ? 2 : 1;
    if (m->stack.count < count)
        fail(m, "the stack is empty");
    else
        add_items(m, m->stack.count - count, kind);
}

static void make_tuple(machine *m, int count)
{
    if (m->stack.count < (size_t)count) {
        fail(m, "the stack is empty");
        return;
    }
    lt_pickle_value *v = push_new(m, LT_PICKLE_LIST);
    if (m->status)
        return;
    m->stack.count -= (size_t)count + 1;
    append(m, v, m->stack.item + m->stack.count, (size_t)count);
    push(m, v);
}

static void make_marked(machine *m, int unused)
{
    const size_t first = find_mark(m), count = m->stack.count - first;
    (void)unused;
    if (m->status)
        return;
    make_tuple(m, (int)count);
    if (m->status)
        return;
    m->stack.item[first - 1] = m->stack.item[first]; /* over the mark */
    m->stack.count--;
}

/* --- Memo --- */

static void put_memo(machine *m, uint64_t index)
{
    lt_pickle_value *v = peek(m);
    if (index >= m->bytes) /* picklers count from 0: each index needs an opcode */
        fail(m, "a memo index larger than the pickle");
    while (!m->status && m->memo.count <= index)
        m->status = add_to_list(&m->memo, NULL);
    if (!m->status)
        m->memo.item[index] = v;
}

static void put(machine *m, int bytes)
{
    put_memo(m, take_number(m, bytes));
}

static void memoize(machine *m, int unused)
{
    (void)unused;
    put_memo(m, m->memo.count);
}

static void get(machine *m, int bytes)
{
    const uint64_t index = take_number(m, bytes);
    if (index >= m->memo.count || !m->memo.item[index])
        fail(m, "an unknown memo index");
    else
        push(m, m->memo.item[index]);
}

/* --- Classes and functions --- */

/* Pushes a class or function if it is in the table. */
static void push_named(machine *m, const char *module, size_t module_bytes, const char *name,
                       size_t name_bytes)
{
    enum { MOST = NAME_BYTES / 2 - 1 };
    char full[NAME_BYTES];
    if (m->status)
        return;
    snprintf(full, sizeof full, "%.*s.%.*s", (int)(module_bytes < MOST ? module_bytes : MOST),
             module, (int)(name_bytes < MOST ? name_bytes : MOST), name);
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (!strcmp(full, globals[i].name)) {
            lt_pickle_value *v = push_new(m, LT_PICKLE_GLOBAL);
            v->integer = globals[i].meaning;
            v->text = globals[i].dtype;
            return;
        }
    for (char *c = full; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
    m->status =
        lt_fail(LT_E_UNSUPPORTED,
                "%s: refuses to run %s: only tensors, containers and plain values are read; "
                "save model.state_dict()",
                m->path, full);
}

/* Reads a line without its newline. */
static const char *take_line(machine *m, size_t *bytes)
{
    const char *line = m->at, *newline = memchr(line, '\n', (size_t)(m->end - line));
    if (!newline)
        fail(m, "truncated");
    *bytes = newline ? (size_t)(newline - line) : 0;
    m->at = newline ? newline + 1 : m->at;
    return line;
}

static void push_global(machine *m, int unused)
{
    size_t a, b;
    const char *module = take_line(m, &a), *name = take_line(m, &b);
    (void)unused;
    push_named(m, module, a, name, b);
}

static void push_stack_global(machine *m, int unused)
{
    const lt_pickle_value *name = pop(m), *module = pop(m);
    (void)unused;
    if (name->kind != LT_PICKLE_TEXT || module->kind != LT_PICKLE_TEXT)
        fail(m, "a class without name");
    push_named(m, module->text, module->bytes, name->text, name->bytes);
}

static bool is_kind(const lt_pickle_value *list, size_t i, lt_pickle_kind kind)
{
    return i < list->count && list->item[i]->kind == kind;
}

static void rebuild_tensor(machine *m, const lt_pickle_value *args)
{
    if (is_kind(args, 0, LT_PICKLE_STORAGE) && is_kind(args, 1, LT_PICKLE_INT)
        && is_kind(args, 2, LT_PICKLE_LIST) && is_kind(args, 3, LT_PICKLE_LIST))
        append(m, push_new(m, LT_PICKLE_TENSOR), args->item, 4);
    else
        fail(m, "a tensor without storage, offset, sizes and strides");
}

/* Makes a dict, from the list of pairs that Python 2 wrote or empty. */
static void make_dict(machine *m, const lt_pickle_value *args)
{
    lt_pickle_value *v = push_new(m, LT_PICKLE_DICT);
    const lt_pickle_value *pairs = is_kind(args, 0, LT_PICKLE_LIST) ? args->item[0] : NULL;
    for (size_t i = 0; pairs && i < pairs->count; i++)
        if (pairs->item[i]->kind == LT_PICKLE_LIST && pairs->item[i]->count == 2)
            append(m, v, pairs->item[i]->item, 2);
}

static void call(machine *m, int unused)
{
    const lt_pickle_value *args = pop(m), *callee = pop(m);
    (void)unused;
    const int64_t meaning = callee->kind == LT_PICKLE_GLOBAL ? callee->integer : STORAGE_CLASS;
    if (args->kind != LT_PICKLE_LIST || meaning == STORAGE_CLASS)
        fail(m, "a call of a value that is not a function");
    else if (meaning == REBUILD_TENSOR)
        rebuild_tensor(m, args);
    else if (meaning == MAKE_DICT)
        make_dict(m, args);
    else if (meaning == MAKE_OBJECT)
        push_kind(m, LT_PICKLE_PLAIN);
    else if (is_kind(args, 0, meaning == MAKE_LIST ? LT_PICKLE_LIST : LT_PICKLE_TENSOR))
        push(m, args->item[0]);
    else
        fail(m, "a size or a parameter without its value");
}

/* Ignores attributes: _metadata of a state_dict, options of a Namespace. */
static void set_state(machine *m, int unused)
{
    (void)unused;
    (void)pop(m);
    (void)peek(m);
}

static void load_storage(machine *m, int unused)
{
    const lt_pickle_value *id = pop(m);
    (void)unused;
    if (id->kind != LT_PICKLE_LIST || !is_kind(id, 0, LT_PICKLE_TEXT)
        || !is_kind(id, 1, LT_PICKLE_GLOBAL) || !id->item[1]->text
        || !is_kind(id, 2, LT_PICKLE_TEXT) || !is_kind(id, 4, LT_PICKLE_INT)) {
        fail(m, "a persistent id that is not a storage");
        return;
    }
    lt_pickle_value *v = push_new(m, LT_PICKLE_STORAGE);
    append(m, v, id->item, id->count);
    if (!m->status)
        m->status = add_to_list(m->storages, v);
}

static void stop(machine *m, int unused)
{
    (void)unused;
    m->stopped = true;
}

static const struct opcode {
    void (*run)(machine *m, int argument);
    int argument;
} opcodes[256] = {
    [0x80] = {skip_bytes, 1},              /* PROTO */
    [0x95] = {skip_bytes, 8},              /* FRAME */
    ['N'] = {push_kind, LT_PICKLE_PLAIN},  /* NONE */
    [0x88] = {push_bool, 1},               /* NEWTRUE */
    [0x89] = {push_bool, 0},               /* NEWFALSE */
    ['J'] = {push_integer, 4},             /* BININT */
    ['K'] = {push_integer, 1},             /* BININT1 */
    ['M'] = {push_integer, 2},             /* BININT2 */
    [0x8a] = {push_long, 1},               /* LONG1 */
    [0x8b] = {push_long, 4},               /* LONG4 */
    ['G'] = {push_float, 8},               /* BINFLOAT */
    ['X'] = {push_text, 4},                /* BINUNICODE */
    [0x8c] = {push_text, 1},               /* SHORT_BINUNICODE */
    [0x8d] = {push_text, 8},               /* BINUNICODE8 */
    ['T'] = {push_text, 4},                /* BINSTRING */
    ['U'] = {push_text, 1},                /* SHORT_BINSTRING */
    ['B'] = {push_text, 4},                /* BINBYTES */
    ['C'] = {push_text, 1},                /* SHORT_BINBYTES */
    [0x8e] = {push_text, 8},               /* BINBYTES8 */
    ['('] = {push_kind, LT_PICKLE_MARK},   /* MARK */
    [']'] = {push_kind, LT_PICKLE_LIST},   /* EMPTY_LIST */
    [')'] = {push_kind, LT_PICKLE_LIST},   /* EMPTY_TUPLE */
    [0x8f] = {push_kind, LT_PICKLE_LIST},  /* EMPTY_SET */
    ['}'] = {push_kind, LT_PICKLE_DICT},   /* EMPTY_DICT */
    ['a'] = {add_top, LT_PICKLE_LIST},     /* APPEND */
    ['e'] = {add_marked, LT_PICKLE_LIST},  /* APPENDS */
    [0x90] = {add_marked, LT_PICKLE_LIST}, /* ADDITEMS */
    ['s'] = {add_top, LT_PICKLE_DICT},     /* SETITEM */
    ['u'] = {add_marked, LT_PICKLE_DICT},  /* SETITEMS */
    ['t'] = {make_marked, 0},              /* TUPLE */
    [0x91] = {make_marked, 0},             /* FROZENSET */
    [0x85] = {make_tuple, 1},              /* TUPLE1 */
    [0x86] = {make_tuple, 2},              /* TUPLE2 */
    [0x87] = {make_tuple, 3},              /* TUPLE3 */
    ['q'] = {put, 1},                      /* BINPUT */
    ['r'] = {put, 4},                      /* LONG_BINPUT */
    [0x94] = {memoize, 0},                 /* MEMOIZE */
    ['h'] = {get, 1},                      /* BINGET */
    ['j'] = {get, 4},                      /* LONG_BINGET */
    ['c'] = {push_global, 0},              /* GLOBAL */
    [0x93] = {push_stack_global, 0},       /* STACK_GLOBAL */
    ['R'] = {call, 0},                     /* REDUCE */
    [0x81] = {call, 0},                    /* NEWOBJ */
    ['b'] = {set_state, 0},                /* BUILD */
    ['Q'] = {load_storage, 0},             /* BINPERSID */
    ['.'] = {stop, 0},                     /* STOP */
};

static void run(machine *m)
{
    while (!m->stopped && !m->status) {
        const int code = (int)take_number(m, 1);
        const struct opcode *op = &opcodes[code];
        if (op->run)
            op->run(m, op->argument);
        else if (!m->status)
            m->status = lt_fail(LT_E_UNSUPPORTED,
                                "%s: pickle opcode 0x%02x, which torch.save() does not write",
                                m->path, (unsigned)code);
    }
}

lt_status lt_pickle_read(lt_pickle_value **root, const char **at, const char *end, const char *path,
                         lt_arena *arena, lt_pickle_list *storages)
{
    machine m = {.path = path, .at = *at, .end = end, .arena = arena, .storages = storages};
    m.bytes = (size_t)(end - *at);
    if (m.bytes > MAX_BYTES) { /* older files continue with data */
        m.bytes = MAX_BYTES;
        m.end = *at + MAX_BYTES;
    }
    run(&m);
    *root = pop(&m);
    *at = m.at;
    lt_free(m.stack.item);
    lt_free(m.memo.item);
    return m.status;
}
