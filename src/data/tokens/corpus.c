/* Lists the documents of text files, and reads them in parts, as a corpus may be larger than memory. */

#include "data/tokens/corpus.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/files/files.h"
#include "data/tokens/kjv.h"
#include "data/tokens/vocabulary.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 }; /* bytes read at once */

/* --- Files --- */

static bool has_txt_extension(const char *name)
{
    const char *extension = strrchr(name, '.');
    return extension && !strcasecmp(extension, ".txt");
}

static bool is_hidden(const char *name)
{
    return *name == '.';
}

static lt_status add_folder(lt_corpus *c, const char *path)
{
    static const lt_paths_rule texts = {has_txt_extension, is_hidden, .keep_empty = false};
    LT_TRY(lt_paths_add_below(&c->files, path, &texts));
    return c->files.count ? LT_OK : lt_fail(LT_E_FORMAT, "%s: no .txt file in this folder", path);
}

/* --- Documents of a file --- */

/* State of the search for documents in a file. */
typedef struct scan {
    lt_corpus *c;
    size_t file;
    lt_documents kind;
    int64_t begin; /* offset of the document */
    int64_t line;  /* offset of the line */
    bool blank;    /* the line has been blank so far */
    bool content;  /* the document has a byte that is not blank */
    size_t match;  /* bytes of LT_END_OF_TEXT matched so far */
} scan;

static lt_status add_document(const scan *s, int64_t end)
{
    lt_corpus *c = s->c;
    if (!s->content)
        return LT_OK;
    LT_TRY(LT_GROW(&c->document, &c->capacity, c->documents + 1));
    c->document[c->documents++] =
        (lt_document){.file = s->file, .offset = s->begin, .bytes = end - s->begin};
    return LT_OK;
}

static lt_status end_document(scan *s, int64_t end, int64_t next)
{
    LT_TRY(add_document(s, end));
    s->begin = next;
    s->content = false;
    return LT_OK;
}

static bool is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* A blank line ends a document; further blank lines are skipped. */
static lt_status scan_for_blank_line(scan *s, char byte, int64_t at)
{
    s->blank = s->blank && is_blank(byte);
    s->content = s->content || !is_blank(byte);
    if (byte != '\n')
        return LT_OK;
    if (s->blank)
        LT_TRY(end_document(s, s->line, at + 1));
    s->line = at + 1;
    s->blank = true;
    return LT_OK;
}

/* Ends a document at LT_END_OF_TEXT. Its first byte occurs in it only once, so after a mismatch a new match can only
 * begin at the mismatching byte. */
static lt_status scan_for_end_of_text(scan *s, char byte, int64_t at)
{
    static const char end[] = LT_END_OF_TEXT;
    const size_t bytes = sizeof end - 1, before = s->match;
    s->match = byte == end[before] ? before + 1 : byte == *end;
    if (s->match < bytes) {
        const bool failed = s->match <= before;
        s->content = s->content || (failed && (before || !is_blank(byte)));
        return LT_OK;
    }
    s->match = 0;
    return end_document(s, at + 1 - (int64_t)bytes, at + 1);
}

static lt_status scan_block(scan *s, const char *block, size_t bytes, int64_t offset)
{
    for (size_t i = 0; i < bytes; i++) {
        const int64_t at = offset + (int64_t)i;
        LT_TRY(s->kind == LT_DOCUMENTS_BLANK_LINES ? scan_for_blank_line(s, block[i], at)
                                                   : scan_for_end_of_text(s, block[i], at));
    }
    return LT_OK;
}

static lt_status scan_fd(scan *s, int fd, int64_t size)
{
    const char *path = s->c->files.path[s->file];
    if (s->kind == LT_DOCUMENTS_FILES) {
        s->content = size > 0;
        return add_document(s, size);
    }
    char *block = lt_alloc(BLOCK, 1);
    lt_status st = block ? LT_OK : LT_E_NOMEM;
    for (int64_t at = 0; !st && at < size; at += BLOCK) {
        const size_t bytes = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        st = lt_read_at(fd, path, block, bytes, (uint64_t)at);
        if (!st)
            st = scan_block(s, block, bytes, at);
    }
    lt_free(block);
    s->content = s->content || s->match; /* an incomplete separator at the end is text */
    return st ? st : add_document(s, size);
}

static lt_status scan_file(lt_corpus *c, size_t file, lt_documents kind)
{
    scan s = {.c = c, .file = file, .kind = kind, .blank = true};
    struct stat info;
    int fd = -1;
    LT_TRY(lt_file_open_descriptor(&fd, &info, c->files.path[file]));
    lt_status st = scan_fd(&s, fd, info.st_size);
    close(fd);
    return st;
}

/* Scans the text of "kjv", which is decoded into memory. */
static lt_status scan_kjv(lt_corpus *c, const char *name, lt_documents kind)
{
    scan s = {.c = c, .kind = kind, .blank = true};
    size_t bytes = 0;
    LT_TRY(lt_paths_add(&c->files, lt_strdup(name)));
    LT_TRY(lt_kjv_text(&c->memory, &bytes));
    if (kind == LT_DOCUMENTS_FILES)
        s.content = bytes > 0;
    else
        LT_TRY(scan_block(&s, c->memory, bytes, 0));
    return add_document(&s, (int64_t)bytes);
}

static lt_status scan_files(lt_corpus *c, const char *path, lt_documents kind)
{
    LT_TRY(lt_is_folder(path) ? add_folder(c, path) : lt_paths_add(&c->files, lt_strdup(path)));
    for (size_t i = 0; i < c->files.count; i++)
        LT_TRY(scan_file(c, i, kind));
    return LT_OK;
}

lt_status lt_corpus_open(lt_corpus *c, const char *path, lt_documents kind)
{
    if ((int)kind < 0 || kind > LT_DOCUMENTS_END_OF_TEXT)
        return lt_fail(LT_E_ARG, "tokens: documents is %d, want 0 .. %d", (int)kind,
                       (int)LT_DOCUMENTS_END_OF_TEXT);
    LT_TRY(strcmp(path, "kjv") ? scan_files(c, path, kind) : scan_kjv(c, path, kind));
    return c->documents ? LT_OK : lt_fail(LT_E_FORMAT, "%s: no text", path);
}

void lt_corpus_clear(lt_corpus *c)
{
    lt_free_texts(c->files.path, c->files.count);
    lt_free(c->memory);
    lt_free(c->document);
    *c = (lt_corpus){0};
}

/* --- Training and validation data --- */

/* Returns the offset in the block of the first line that begins in it or, without any, of the first UTF-8 character. */
static int64_t find_line_start(const char *block, size_t bytes)
{
    const char *line = memchr(block, '\n', bytes - 1);
    size_t i = 0;
    while (!line && i + 1 < bytes && (block[i] & 0xc0) == 0x80)
        i++;
    return line ? line - block + 1 : (int64_t)i;
}

/* Sets *split to the beginning of a line at `at` or up to a block later; without any, to that of a character. */
static lt_status find_split_offset(const lt_corpus *c, size_t file, int64_t at, int64_t end,
                                   int64_t *split)
{
    const size_t bytes = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
    struct stat info;
    int fd = -1;
    if (c->memory) {
        *split = at + find_line_start(c->memory + at, bytes);
        return LT_OK;
    }
    LT_TRY(lt_file_open_descriptor(&fd, &info, c->files.path[file]));
    char *block = lt_alloc(BLOCK, 1);
    lt_status st =
        block ? lt_read_at(fd, c->files.path[file], block, bytes, (uint64_t)at) : LT_E_NOMEM;
    if (!st)
        *split = at + find_line_start(block, bytes);
    lt_free(block);
    close(fd);
    return st;
}

static lt_status split_only_document(lt_corpus *c, double fraction)
{
    const lt_document whole = c->document[0];
    const char *path = c->files.path[whole.file];
    int64_t split = 0, at = whole.bytes - (int64_t)((double)whole.bytes * fraction + 0.5);
    if (at < 1 || at >= whole.bytes)
        return lt_fail(LT_E_FORMAT,
                       "%s: %" PRId64 " bytes are too few for a validation fraction of %g", path,
                       whole.bytes, fraction);
    LT_TRY(find_split_offset(c, whole.file, whole.offset + at, whole.offset + whole.bytes, &split));
    LT_TRY(LT_GROW(&c->document, &c->capacity, 2));
    c->document[0].bytes = split - whole.offset;
    c->document[1] = (lt_document){.file = whole.file,
                                   .offset = split,
                                   .bytes = whole.offset + whole.bytes - split,
                                   .val = true};
    c->documents = 2;
    return LT_OK;
}

typedef struct ranked_document {
    uint64_t number;
    size_t document;
} ranked_document;

static int compare_random_numbers(const void *a, const void *b)
{
    const ranked_document *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->document > y->document) - (x->document < y->document);
}

static lt_status split_train_val(lt_corpus *c, double fraction)
{
    if (!(fraction > 0 && fraction < 1))
        return lt_fail(LT_E_ARG, "tokens: validation fraction is %g, want 0 < fraction < 1",
                       fraction);
    if (c->documents == 1)
        return split_only_document(c, fraction);
    ranked_document *d = NULL;
    LT_TRY(LT_ALLOC(&d, c->documents));
    for (size_t i = 0; i < c->documents; i++)
        d[i] = (ranked_document){.number = lt_rng_key(0, LT_STREAM_DATA, i, 0), .document = i};
    qsort(d, c->documents, sizeof *d, compare_random_numbers);
    size_t count = (size_t)((double)c->documents * fraction + 0.5);
    count = count < 1 ? 1 : count >= c->documents ? c->documents - 1 : count;
    for (size_t i = 0; i < count; i++)
        c->document[d[i].document].val = true;
    lt_free(d);
    return LT_OK;
}

/* --- Reading --- */

/* Returns the last offset in text where white space follows a printable ASCII character, or 0. */
static size_t last_boundary(const char *text, size_t bytes)
{
    for (size_t i = bytes - 1; i > 0; i--)
        if ((text[i] == ' ' || text[i] == '\n') && text[i - 1] > ' ' && text[i - 1] < 0x7f)
            return i;
    return 0;
}

typedef struct reader {
    const char *path;
    int fd;
    char *text; /* [capacity] */
    size_t capacity, bytes;
    int64_t at, end; /* offsets in the file: of text, of the end of the document */
} reader;

/* Reads the next block, or up to the end of the document. */
static lt_status read_more(reader *r)
{
    const int64_t left = r->end - r->at - (int64_t)r->bytes;
    const size_t more = left < BLOCK ? (size_t)left : BLOCK;
    LT_TRY(LT_GROW(&r->text, &r->capacity, r->bytes + more + 1));
    LT_TRY(lt_read_at(r->fd, r->path, r->text + r->bytes, more,
                      (uint64_t)(r->at + (int64_t)r->bytes)));
    r->bytes += more;
    return LT_OK;
}

static lt_status read_parts(reader *r, lt_corpus_visit *visit, void *context)
{
    while (r->at < r->end) {
        LT_TRY(read_more(r));
        const bool last = r->at + (int64_t)r->bytes == r->end;
        const size_t cut = last ? r->bytes : last_boundary(r->text, r->bytes);
        const lt_text_part part = {.text = r->text, .bytes = cut, .name = r->path, .offset = r->at};
        if (!cut)
            continue;
        LT_TRY(visit(context, &part));
        memmove(r->text, r->text + cut, r->bytes - cut);
        r->bytes -= cut;
        r->at += (int64_t)cut;
    }
    return LT_OK;
}

lt_status lt_corpus_read_document(const lt_corpus *c, const lt_document *d, lt_corpus_visit *visit,
                                  void *context)
{
    reader r = {
        .path = c->files.path[d->file], .fd = -1, .at = d->offset, .end = d->offset + d->bytes};
    struct stat info;
    if (c->memory) {
        const lt_text_part all = {.text = c->memory + d->offset,
                                  .bytes = (size_t)d->bytes,
                                  .name = r.path,
                                  .offset = d->offset};
        return visit(context, &all);
    }
    LT_TRY(lt_file_open_descriptor(&r.fd, &info, r.path));
    lt_status st = read_parts(&r, visit, context);
    close(r.fd);
    lt_free(r.text);
    return st;
}

static lt_status add_chars(void *context, const lt_text_part *text)
{
    return lt_char_set_add(context, text);
}

static lt_status open_char_tokenizer(const lt_corpus *c, lt_tokenizer **out)
{
    lt_char_set *set = NULL;
    LT_TRY(lt_char_set_new(&set));
    lt_status st = LT_OK;
    for (size_t i = 0; i < c->documents && !st; i++)
        st = lt_corpus_read_document(c, &c->document[i], add_chars, set);
    char *name = st ? NULL : lt_char_set_tokenizer_name(set);
    if (!st)
        st = name ? lt_tokenizer_open(out, name) : LT_E_NOMEM;
    lt_free(name);
    lt_char_set_free(&set);
    return st;
}

lt_status lt_corpus_open_and_split(lt_corpus *c, lt_tokenizer **tokenizer, const char *path,
                                   const lt_tokens_config *config)
{
    const double fraction = config->val_fraction == 0 ? 0.1 : config->val_fraction;
    const char *name = config->tokenizer ? config->tokenizer : "byte";
    LT_TRY(lt_corpus_open(c, path, config->documents));
    if (!(fraction < 0))
        LT_TRY(split_train_val(c, fraction));
    return strcmp(name, "char") ? lt_tokenizer_open(tokenizer, name)
                                : open_char_tokenizer(c, tokenizer);
}
