/* --val-split: evaluates on a part of the training data, the same one whenever the run is resumed or its weights are
 * evaluated. The weights' metadata has "FRACTION seed SEED of DATA", with a hash of the data. */

#include "base/alloc.h"
#include "base/hash.h"
#include "train/classify/classifier.h"

#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char seed_word[] = " seed ", data_word[] = " of ";

static lt_status parse_seed(const char *text, uint64_t *seed)
{
    char *end = NULL;
    errno = 0;
    *seed = text ? strtoull(text, &end, 10) : 0;
    return !text || (*text >= '0' && *text <= '9' && !*end && !errno)
               ? LT_OK
               : lt_fail(LT_E_ARG, "--val-split-seed: '%s' is not an integer from 0", text);
}

lt_status lt_val_split_parse(const image_options *o, val_split *out)
{
    const char *text = o->val_split;
    char *end = NULL;
    *out = (val_split){.fraction = text ? strtod(text, &end) : 0};
    if (text && (end == text || *end || !(out->fraction > 0 && out->fraction < 1)))
        return lt_fail(LT_E_ARG,
                       "--val-split %s: want the fraction of each class's training images to "
                       "evaluate on, above 0 and below 1, such as 0.1",
                       text);
    if (text) { /* as the metadata has it */
        char digits[META_BYTES];
        snprintf(digits, sizeof digits, "%.9g", out->fraction);
        out->fraction = strtod(digits, NULL);
    }
    if (o->val_labels && text)
        return lt_fail(LT_E_ARG, "--val-split and --val-labels contradict each other: both choose "
                                 "the images to evaluate");
    return parse_seed(o->val_split_seed, &out->seed);
}

/* Parses the metadata of weights; fraction 0 if there is no split. */
static val_split parse_metadata(const char *text)
{
    char *end;
    val_split v = {.fraction = strtod(text, &end)};
    if (!strncmp(end, seed_word, sizeof seed_word - 1))
        v.seed = strtoull(end + sizeof seed_word - 1, &end, 10);
    if (!strncmp(end, data_word, sizeof data_word - 1))
        v.data = strtoull(end + sizeof data_word - 1, &end, 16);
    return v.fraction > 0 && v.fraction < 1 && v.data && !*end ? v : (val_split){0};
}

/* Formats fraction and seed, and the data's fingerprint unless it is 0. */
static void format(const val_split *v, char text[META_BYTES])
{
    int used = snprintf(text, META_BYTES, "%.9g%s%" PRIu64, v->fraction, seed_word, v->seed);
    if (v->data)
        snprintf(text + used, META_BYTES - (size_t)used, "%s%016" PRIx64, data_word, v->data);
}

static lt_status split(lt_dataset **data, const val_split *v, bool train)
{
    const lt_status st = lt_dataset_split(data, v->fraction, v->seed, train);
    return st ? lt_fail(st, "--val-split: %s", lt_error_message()) : LT_OK;
}

/* Hashes names, and the contents of a few samples, as other data may have the same names. Never 0. */
static uint64_t identify(const lt_dataset *d)
{
    enum { SAMPLES = 16 };
    const int64_t count = lt_dataset_count(d);
    uint64_t hash = lt_dataset_fingerprint(d);
    lt_record r = {0};
    for (int64_t i = 0; i < SAMPLES && i < count && !d->remote; i++) {
        if (d->ops->read(d, i * count / (count < SAMPLES ? count : SAMPLES), &r))
            r.size = 0; /* a corrupt sample, which the loader reports */
        hash = lt_fnv1a(hash, r.bytes, r.size);
    }
    lt_free(r.bytes);
    return hash ? hash : 1;
}

lt_status lt_classifier_split(classifier *s)
{
    lt_train_input *in = &s->t->input;
    val_split *v = &s->split;
    v->data = identify(in->val);
    v->other_val = !in->val->unsplit;
    LT_TRY(split(&in->val, v, false));
    if (in->train)
        LT_TRY(split(&in->train, v, true));
    format(v, s->own.text[META_VAL_SPLIT]);
    format(&(val_split){.fraction = v->fraction, .seed = v->seed}, in->val_split);
    return LT_OK;
}

lt_status lt_classifier_split_as_weights(classifier *s)
{
    lt_train_input *in = &s->t->input;
    const val_split v = parse_metadata(s->known.text[META_VAL_SPLIT]);
    if (v.fraction <= 0 || !in->val->unsplit || in->val->remote || v.data != identify(in->val))
        return LT_OK;
    const int64_t all = lt_dataset_count(in->val);
    LT_TRY(split(&in->val, &v, false));
    lt_log(LT_LOG_INFO, "data",
           "%s: evaluates the %" PRId64 " of %" PRId64
           " images that the training of these weights held back (--val-split %g)",
           s->t->line.args.data, lt_dataset_count(in->val), all, v.fraction);
    return LT_OK;
}

void lt_classifier_note_split(const classifier *s)
{
    const lt_trainer *t = s->t;
    if (s->split.fraction > 0)
        lt_run_note(t->output.run,
                    "--val-split %g: trains on %" PRId64 " images, evaluates on %" PRId64
                    ", the same share of each class, seed %" PRIu64 "%s",
                    s->split.fraction, lt_dataset_count(t->input.train),
                    lt_dataset_count(t->input.val), s->split.seed,
                    s->split.other_val ? "; the data's own validation part is not used" : "");
}

lt_status lt_classifier_check_split(const classifier *s, const metadata *found)
{
    const val_split was = parse_metadata(found->text[META_VAL_SPLIT]), *now = &s->split;
    char before[META_BYTES] = "none", after[META_BYTES] = "none";
    if (was.fraction == now->fraction && was.seed == now->seed)
        return LT_OK;
    if (was.fraction > 0)
        format(&(val_split){.fraction = was.fraction, .seed = was.seed}, before);
    if (now->fraction > 0)
        format(&(val_split){.fraction = now->fraction, .seed = now->seed}, after);
    return lt_fail(
        LT_E_ARG,
        "%s: was trained with --val-split %s, this start has %s, and would evaluate images that "
        "were trained on; give the flags of the run",
        s->t->state.folder, before, after);
}
