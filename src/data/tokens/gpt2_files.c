/* Reads byte-level vocabularies: vocab.json and merges.txt, or tokenizer.json, as published with GPT-2 and as Hugging
 * Face's libraries write them. */

#include "data/tokens/gpt2_files.h"

#include "base/alloc.h"
#include "base/encoding/json.h"
#include "base/encoding/utf8.h"
#include "data/tokens/vocabulary.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 16, MOST_IDS = 1 << 24 };

/* --- Characters and bytes --- */

/* GPT-2 writes a byte as a visible character: its Latin-1 character if that is visible, otherwise U+0100 and following,
 * in the order of the bytes. */
static bool is_visible(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

/* Returns the byte that a character represents, or -1. */
static int byte_of(uint32_t code)
{
    enum { BYTES = 256 };
    if (code < BYTES)
        return is_visible(code) ? (int)code : -1;
    uint32_t other = code - BYTES;
    for (unsigned byte = 0; byte < BYTES; byte++)
        if (!is_visible(byte) && other-- == 0)
            return (int)byte;
    return -1;
}

bool lt_gpt2_decode_bytes(const char *text, size_t size, char *to, size_t *bytes)
{
    int step;
    *bytes = 0;
    for (size_t at = 0; at < size; at += (size_t)step) {
        const int byte = byte_of(lt_utf8_decode(text + at, &step));
        if (byte < 0)
            return false;
        to[(*bytes)++] = (char)(unsigned char)byte;
    }
    return true;
}

/* --- Ids --- */

/* Grows the list so that it contains id. */
static lt_status reserve_entry(lt_gpt2_files *f, const char *text, int64_t id)
{
    if (id < 0 || id >= MOST_IDS)
        return lt_fail(LT_E_FORMAT, "%s: '%s' has the id %" PRId64 "; want 0 .. %d", f->path, text,
                       id, MOST_IDS - 1);
    const size_t want = (size_t)id + 1;
    LT_TRY(LT_GROW(&f->entry, &f->capacity, want));
    if (want > f->count) {
        memset(f->entry + f->count, 0, (want - f->count) * sizeof *f->entry);
        f->count = want;
    }
    return LT_OK;
}

static lt_status add_entry(lt_gpt2_files *f, const char *text, int64_t id)
{
    const size_t size = strlen(text);
    LT_TRY(reserve_entry(f, text, id));
    lt_gpt2_entry *e = &f->entry[id];
    if (e->text)
        return lt_fail(LT_E_FORMAT, "%s: '%s' has the id %" PRId64 ", which another entry has too",
                       f->path, text, id);
    LT_TRY(LT_ALLOC(&e->text, size + 1));
    if (!size || !lt_gpt2_decode_bytes(text, size, e->text, &e->bytes))
        return lt_fail(LT_E_FORMAT, "%s: the entry '%s' (id %" PRId64 ") represents no bytes",
                       f->path, text, id);
    return LT_OK;
}

/* Reads the vocabulary, a JSON object {"TEXT": ID, ...}. */
static lt_status read_vocabulary(lt_gpt2_files *f, const lt_json_value *object)
{
    if (!object || object->type != LT_JSON_OBJECT || !object->count)
        return lt_fail(LT_E_FORMAT, "%s: the vocabulary is not an object of texts and ids",
                       f->path);
    for (const lt_json_value *v = object->child; v; v = v->next) {
        if (v->type != LT_JSON_NUMBER || !v->is_integer)
            return lt_fail(LT_E_FORMAT, "%s: the id of '%s' is not an integer", f->path, v->key);
        LT_TRY(add_entry(f, v->key, v->integer));
    }
    return LT_OK;
}

static lt_status check_no_missing_ids(const lt_gpt2_files *f)
{
    for (size_t id = 0; id < f->count; id++)
        if (!f->entry[id].text)
            return lt_fail(LT_E_FORMAT, "%s: id %zu is missing; the largest id is %zu", f->path, id,
                           f->count - 1);
    return LT_OK;
}

/* --- Merges --- */

static lt_status add_merge(lt_gpt2_files *f, const char *left, size_t left_bytes, const char *right)
{
    LT_TRY(LT_GROW(&f->merge, &f->merge_capacity, f->merges + 1));
    f->merge[f->merges++] = (lt_gpt2_merge){.left = left, .left_bytes = left_bytes, .right = right};
    return LT_OK;
}

/* Reads "LEFT RIGHT". */
static lt_status read_merge(lt_gpt2_files *f, const char *text)
{
    const char *space = strchr(text, ' ');
    if (!space || space == text || !space[1] || strchr(space + 1, ' '))
        return lt_fail(LT_E_FORMAT, "%s: merge %zu is '%s', want two texts separated by a space",
                       f->merges_path, f->merges + 1, text);
    return add_merge(f, text, (size_t)(space - text), space + 1);
}

/* Reads merges.txt, which may begin with a line "#version". */
static lt_status read_merges_txt(lt_gpt2_files *f, size_t bytes)
{
    char *at = f->text, *end = f->text + bytes;
    const lt_text_part all = {.text = at, .bytes = bytes, .name = f->merges_path};
    LT_TRY(lt_check_utf8(&all));
    if (!strncmp(at, "#version", strlen("#version")))
        at += strcspn(at, "\n");
    while (at < end) {
        at += *at == '\n';
        const size_t line = strcspn(at, "\n");
        char *next = at + line;
        if (at + strlen(at) < next)
            break;
        *next = 0;
        if (line && next[-1] == '\r')
            next[-1] = 0;
        if (*at)
            LT_TRY(read_merge(f, at));
        at = next + 1;
    }
    return LT_OK;
}

static lt_status read_vocab_and_merges(lt_gpt2_files *f)
{
    size_t bytes = 0;
    LT_TRY(lt_json_load(&f->json, f->path));
    LT_TRY(read_vocabulary(f, lt_json_root(f->json)));
    LT_TRY(lt_json_read_file(f->merges_path, &f->text, &bytes));
    return read_merges_txt(f, bytes);
}

/* --- tokenizer.json --- */

static bool is_unset(const lt_json_value *v)
{
    return !v || v->type == LT_JSON_NULL || (v->type == LT_JSON_STRING && !*v->string)
           || (v->type == LT_JSON_BOOL && !v->boolean);
}

static bool json_string_equals(const lt_json_value *v, const char *text)
{
    return v && v->type == LT_JSON_STRING && !strcmp(v->string, text);
}

/* Rejects rules that would make other ids than GPT-2's. */
static lt_status check_rules(const lt_gpt2_files *f, const lt_json_value *root,
                             const lt_json_value *model)
{
    static const char *const others[] = {"dropout", "continuing_subword_prefix",
                                         "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    const lt_json_value *words = lt_json_member(root, "pre_tokenizer"),
                        *regex = lt_json_member(words, "use_regex");
    if (!json_string_equals(lt_json_member(model, "type"), "BPE"))
        return lt_fail(LT_E_UNSUPPORTED, "%s: the model's type is not BPE", f->path);
    if (!is_unset(lt_json_member(root, "normalizer")))
        return lt_fail(LT_E_UNSUPPORTED, "%s: normalizers are not supported", f->path);
    if (!json_string_equals(lt_json_member(words, "type"), "ByteLevel")
        || !is_unset(lt_json_member(words, "add_prefix_space")) || (regex && is_unset(regex)))
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: unsupported pre_tokenizer; want ByteLevel without add_prefix_space, as "
                       "in GPT-2",
                       f->path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!is_unset(lt_json_member(model, others[i])))
            return lt_fail(LT_E_UNSUPPORTED, "%s: the model option %s is not supported", f->path,
                           others[i]);
    return LT_OK;
}

/* Reads an added token, whose text is not in GPT-2's characters. It may also be in the vocabulary. */
static lt_status read_added_token(lt_gpt2_files *f, const lt_json_value *v)
{
    int64_t id = 0;
    const char *text = NULL;
    LT_TRY(lt_json_integer(v, "id", &id));
    LT_TRY(lt_json_string(v, "content", &text));
    LT_TRY(reserve_entry(f, text, id));
    lt_gpt2_entry *e = &f->entry[id];
    lt_free(e->text);
    e->text = lt_strdup(text);
    e->bytes = strlen(text);
    e->special = true;
    return e->text ? LT_OK : LT_E_NOMEM;
}

/* Reads "LEFT RIGHT" or, as in newer files, ["LEFT", "RIGHT"]. */
static lt_status read_json_merge(lt_gpt2_files *f, const lt_json_value *v)
{
    if (v->type == LT_JSON_STRING)
        return read_merge(f, v->string);
    const lt_json_value *left = v->child, *right = left ? left->next : NULL;
    if (v->type != LT_JSON_ARRAY || !right || v->count != 2 || left->type != LT_JSON_STRING
        || right->type != LT_JSON_STRING)
        return lt_fail(LT_E_FORMAT, "%s: merge %zu is not a pair of texts", f->path, f->merges + 1);
    return add_merge(f, left->string, strlen(left->string), right->string);
}

static lt_status read_tokenizer_json(lt_gpt2_files *f)
{
    LT_TRY(lt_json_load(&f->json, f->path));
    const lt_json_value *root = lt_json_root(f->json), *model = lt_json_member(root, "model"),
                        *merges = lt_json_member(model, "merges"),
                        *added = lt_json_member(root, "added_tokens");
    LT_TRY(check_rules(f, root, model));
    LT_TRY(read_vocabulary(f, lt_json_member(model, "vocab")));
    for (const lt_json_value *v = added ? added->child : NULL; v; v = v->next)
        LT_TRY(read_added_token(f, v));
    for (const lt_json_value *v = merges ? merges->child : NULL; v; v = v->next)
        LT_TRY(read_json_merge(f, v));
    return LT_OK;
}

lt_status lt_gpt2_files_read(lt_gpt2_files *f, const char *folder)
{
    f->path = lt_format("%s/vocab.json", folder);
    f->merges_path = lt_format("%s/merges.txt", folder);
    if (!f->path || !f->merges_path)
        return LT_E_NOMEM;
    char *whole = lt_format("%s/tokenizer.json", folder);
    if (!whole)
        return LT_E_NOMEM;
    const bool one = access(f->path, F_OK) && !access(whole, F_OK);
    if (one) {
        lt_free(f->path);
        lt_free(f->merges_path);
        f->path = whole;
        f->merges_path = lt_strdup(whole);
    } else {
        lt_free(whole);
    }
    LT_TRY(!f->merges_path ? LT_E_NOMEM : one ? read_tokenizer_json(f) : read_vocab_and_merges(f));
    return check_no_missing_ids(f);
}

void lt_gpt2_files_clear(lt_gpt2_files *f)
{
    for (size_t i = 0; i < f->count; i++)
        lt_free(f->entry[i].text);
    lt_free(f->entry);
    lt_free(f->merge);
    lt_free(f->path);
    lt_free(f->merges_path);
    lt_free(f->text);
    lt_json_free(&f->json);
    *f = (lt_gpt2_files){0};
}
