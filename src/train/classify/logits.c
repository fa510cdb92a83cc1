/* --save-logits: logits [N,classes] f32 and labels [N] i64 of every image, in file order. */

#include "base/alloc.h"
#include "train/classify/classifier.h"

#include "lather/ext/fail.h"
#include "lather/safetensors.h"

typedef struct logits {
    float *values;
    int64_t *labels;
    int64_t count, classes;
} logits;

static lt_status compute_batch_logits(classifier *s, const lt_batch *batch, logits *all)
{
    lt_tape_reset(lt_trainer_tape(s->t), lt_trainer_pass(s->t, false));
    lt_tensor *y = lt_cast(lt_trainer_tape(s->t), lt_classifier_forward(s, batch->inputs), LT_F32);
    LT_TRY(lt_tape_status(lt_trainer_tape(s->t)));
    LT_TRY(lt_tensor_read(y, all->values + all->count * all->classes, lt_tensor_bytes(y)));
    int32_t *labels;
    LT_TRY(LT_ALLOC(&labels, batch->count));
    lt_status st = lt_tensor_read(batch->labels, labels, (size_t)batch->count * sizeof *labels);
    for (int i = 0; i < batch->count && !st; i++)
        all->labels[all->count + i] = labels[i];
    lt_free(labels);
    all->count += batch->count;
    return st;
}

static lt_status compute_all_logits(classifier *s, logits *all)
{
    lt_loader *loader = NULL;
    lt_loader_config c = {.transform = lt_classifier_eval_transform(s),
                          .batch = (int)s->t->line.args.batch_size,
                          .threads = (int)s->t->line.args.loader.workers,
                          .max_bad = 0}; /* a missing row would shift all others */
    LT_TRY(lt_loader_new(&loader, s->t->input.val, lt_trainer_device(s->t), &c));
    lt_batch batch;
    lt_status st;
    while (!(st = lt_loader_next(loader, &batch)))
        if ((st = compute_batch_logits(s, &batch, all)))
            break;
    lt_loader_free(&loader);
    return st == LT_END ? LT_OK : st;
}

static lt_status write_file(const char *path, const logits *all)
{
    lt_safetensors_writer *w = NULL;
    LT_TRY(lt_safetensors_create(&w, path));
    lt_status st = lt_safetensors_add_host(w, "logits", LT_F32, LT_SHAPE(all->count, all->classes),
                                           all->values);
    if (!st)
        st = lt_safetensors_add_host(w, "labels", LT_I64, LT_SHAPE(all->count), all->labels);
    if (st) {
        lt_safetensors_discard(&w);
        return st;
    }
    return lt_safetensors_finish(&w);
}

lt_status lt_classifier_save_logits(classifier *s, const char *path)
{
    logits all = {.classes = lt_trainer_spec(s->t)->classes};
    size_t count = (size_t)lt_dataset_count(s->t->input.val);
    lt_status st = LT_ALLOC(&all.values, count * (size_t)all.classes);
    if (!st)
        st = LT_ALLOC(&all.labels, count);
    if (!st)
        st = compute_all_logits(s, &all);
    if (!st)
        st = write_file(path, &all);
    lt_free(all.values);
    lt_free(all.labels);
    return st;
}
