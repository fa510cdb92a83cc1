/* Writes the documents of a corpus to token files. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "data/tokens/corpus.h"
#include "data/tokens/token_file.h"
#include "data/tokens/vocabulary.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { VAL, TRAIN, SPLITS };

typedef struct packer {
    lt_corpus corpus;
    lt_tokenizer *tokenizer;
    lt_ids ids;
    lt_token_writer writer[SPLITS];
    lt_token_writer *to; /* writer of the current document */
    lt_atomic_dir commit;
    lt_tokens_progress_fn *progress; /* may be NULL */
    void *context;
    lt_tokens_report report;
} packer;

static lt_status encode_and_write(void *context, const lt_text_part *text)
{
    packer *p = context;
    p->ids.count = 0;
    p->report.bytes += (int64_t)text->bytes;
    LT_TRY(lt_tokenizer_encode(p->tokenizer, text, &p->ids));
    return lt_token_writer_add(p->to, p->ids.id, p->ids.count);
}

static lt_status add_document(packer *p, const lt_document *d)
{
    const int split = d->val ? VAL : TRAIN;
    p->to = &p->writer[split];
    LT_TRY(lt_token_writer_begin_document(p->to));
    LT_TRY(lt_corpus_read_document(&p->corpus, d, encode_and_write, p));
    p->report.documents[split]++;
    p->report.tokens[split] = (int64_t)p->to->header.count;
    if (p->progress && !p->progress(p->context, &p->report))
        return lt_fail(LT_END, "tokenize: stopped");
    return LT_OK;
}

static lt_status open_writer(packer *p, int split)
{
    const lt_vocabulary v = lt_tokenizer_vocabulary(p->tokenizer);
    char *path = lt_format("%s/%s.tokens", p->commit.temp, split == TRAIN ? "train" : "val");
    lt_status st = path ? lt_token_writer_open(&p->writer[split], path, &v) : LT_E_NOMEM;
    lt_free(path);
    return st;
}

static lt_status write_token_files(packer *p, bool val)
{
    for (int split = val ? VAL : TRAIN; split < SPLITS; split++)
        LT_TRY(open_writer(p, split));
    for (size_t i = 0; i < p->corpus.documents; i++)
        LT_TRY(add_document(p, &p->corpus.document[i]));
    for (int split = val ? VAL : TRAIN; split < SPLITS; split++)
        LT_TRY(lt_token_writer_finish(&p->writer[split]));
    return lt_atomic_dir_commit(&p->commit);
}

static lt_status open_corpus(packer *p, const char *path, const lt_tokens_config *config)
{
    LT_TRY(lt_corpus_open_and_split(&p->corpus, &p->tokenizer, path, config));
    for (size_t i = 0; i < p->corpus.documents; i++)
        p->report.all_bytes += p->corpus.document[i].bytes;
    return LT_OK;
}

static lt_status check_folder_is_new(const char *folder)
{
    struct stat info;
    if (!lstat(folder, &info))
        return lt_fail(LT_E_IO, "%s: already exists; give the name of a new folder", folder);
    return errno == ENOENT ? LT_OK : lt_fail(LT_E_IO, "%s: %s", folder, strerror(errno));
}

lt_status lt_tokens_pack(const char *folder, const char *path, const lt_tokens_config *config,
                         lt_tokens_progress_fn *progress, void *context, lt_tokens_report *report)
{
    packer p = {.progress = progress, .context = context};
    lt_status st = check_folder_is_new(folder);
    if (!st)
        st = open_corpus(&p, path, config);
    if (!st)
        st = lt_atomic_dir_begin(&p.commit, folder);
    if (!st)
        st = write_token_files(&p, !(config->val_fraction < 0));
    for (int split = 0; split < SPLITS; split++)
        lt_token_writer_abandon(&p.writer[split]);
    lt_atomic_dir_abandon(&p.commit);
    lt_ids_clear(&p.ids);
    lt_tokenizer_free(&p.tokenizer);
    lt_corpus_clear(&p.corpus);
    if (report)
        *report = p.report;
    return st;
}

static lt_status verify_all_ids(const lt_token_file *f)
{
    int32_t id[LT_TOKEN_CHUNK];
    const int64_t all = (int64_t)f->header.count;
    for (int64_t at = 0; at < all; at += LT_TOKEN_CHUNK)
        LT_TRY(
            lt_token_file_read(f, at, all - at < LT_TOKEN_CHUNK ? all - at : LT_TOKEN_CHUNK, id));
    return LT_OK;
}

lt_status lt_tokens_verify(const char *path, int64_t *tokens)
{
    lt_token_file f = {.fd = -1};
    lt_status st = lt_token_file_open(&f, path);
    if (!st)
        st = verify_all_ids(&f);
    *tokens = (int64_t)f.header.count;
    lt_token_file_close(&f);
    return st;
}
