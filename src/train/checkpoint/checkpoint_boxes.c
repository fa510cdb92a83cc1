/* Parameters of which ranks hold boxes: rank 0 makes whole tensors of them, one at a time, as it writes. */

#include "base/alloc.h"
#include "checkpoint.h"
#include "dist/place.h"
#include "tensor/safetensors.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

/* A whole tensor that is made when it is written. */
typedef struct lt_checkpoint_boxes {
    lt_checkpoint_queue *queue;
    const lt_tensor *own;
    const lt_place_holder *holder;
    size_t holders;
    lt_place_holder alone; /* the holder, where all is here */
    lt_dtype dtype;        /* in the file */
} lt_checkpoint_boxes;

static bool is_divided(const lt_param *p)
{
    return p->place && !lt_place_is_whole(p->place);
}

static bool is_placed(const lt_param *p)
{
    return p->place;
}

static const lt_param *first_that(bool (*is)(const lt_param *p), const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++)
        if (is(params->item[i]))
            return params->item[i];
    return NULL;
}

lt_status lt_checkpoint_find_boxes(lt_checkpoint_queue *q, const lt_params *params, size_t extra)
{
    char text[LT_PLACE_TEXT];
    const bool alone = !q->comm || q->comm->size == 1;
    const lt_param *divided = first_that(is_divided, params);
    if (!first_that(is_placed, params))
        return LT_OK;
    if (alone && divided)
        return lt_fail(LT_E_ARG, "checkpoint: %s is the box %s: save with all ranks", divided->name,
                       lt_place_text(divided->place, text));
    q->params = alone ? NULL : params;
    q->boxes = lt_alloc(params->count + extra, sizeof *q->boxes);
    if (!q->boxes)
        return LT_E_NOMEM;
    return alone ? LT_OK : lt_place_map_new(&q->map, q->comm, params);
}

/* None of a whole parameter. */
static const lt_place_holder *holders_of(const lt_checkpoint_queue *q, const lt_param *param,
                                         size_t *count)
{
    *count = 0;
    for (size_t i = 0; param && param->place && q->map && i < q->params->count; i++)
        if (q->params->item[i] == param)
            return lt_place_map_holders(q->map, i, count);
    return NULL;
}

lt_status lt_checkpoint_list_boxes(lt_checkpoint_queue *q, const lt_param *param, lt_dtype dtype)
{
    size_t count;
    const lt_place_holder *h = holders_of(q, param, &count);
    for (size_t i = 0; i < count; i++) {
        if (!h[i].rank || q->comm->rank)
            continue;
        lt_state_entry *grown = lt_grow(q->entry, &q->capacity, q->count + 1, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        q->entry = grown;
        q->entry[q->count++] = (lt_state_entry){
            .owner = h[i].rank, .dtype = dtype, .extent = LT_SHAPE(lt_place_count(&h[i].place))};
    }
    return LT_OK;
}

lt_status lt_checkpoint_send_boxes(const lt_checkpoint_queue *q, const lt_param *param,
                                   const lt_tensor *own)
{
    size_t count;
    const lt_place_holder *h = holders_of(q, param, &count);
    for (size_t i = 0; i < count; i++)
        if (h[i].rank && h[i].rank == q->comm->rank)
            return lt_place_send(q->comm, own, 0);
    return LT_OK;
}

/* What is left of the queue is the next holder's. */
static lt_status take_box(const lt_checkpoint_boxes *b, const lt_place_holder *h, void *whole)
{
    const size_t element = lt_dtype_size(lt_tensor_dtype(b->own));
    const size_t bytes = (size_t)lt_place_count(&h->place) * element;
    void *box = lt_alloc_aligned(64, bytes);
    if (!box)
        return LT_E_NOMEM;
    lt_status st =
        h->rank ? lt_checkpoint_receive(b->queue, box, bytes) : lt_tensor_read(b->own, box, bytes);
    if (!st)
        lt_place_write(&h->place, box, whole, element);
    lt_free(box);
    return st;
}

static lt_status gather(void *context, void *host, size_t bytes)
{
    const lt_checkpoint_boxes *b = context;
    const size_t count = bytes / lt_dtype_size(b->dtype);
    const bool narrow = lt_tensor_dtype(b->own) != b->dtype;
    double *wide = narrow ? lt_alloc_aligned(64, count * sizeof *wide) : NULL;
    lt_status st = narrow && !wide ? LT_E_NOMEM : LT_OK;
    for (size_t i = 0; i < b->holders && !st; i++)
        st = take_box(b, &b->holder[i], narrow ? (void *)wide : host);
    for (size_t i = 0; narrow && i < count && !st; i++)
        ((float *)host)[i] = (float)wide[i];
    lt_free(wide);
    return st;
}

lt_status lt_checkpoint_add_boxes(lt_checkpoint_queue *q, lt_safetensors_writer *w,
                                  const char *name, const lt_tensor *own, const lt_param *param,
                                  lt_dtype dtype)
{
    size_t count;
    const lt_place_holder *h = holders_of(q, param, &count);
    if (!param || !param->place)
        return lt_safetensors_add(w, name, own);
    if (!h && is_divided(param))
        return lt_fail(LT_E_ARG, "checkpoint: '%s' is a box of a parameter that is not saved",
                       name);
    lt_checkpoint_boxes *b = &q->boxes[q->box_count++];
    *b = (lt_checkpoint_boxes){q, own, h, count, {0, *param->place}, dtype};
    if (!h) {
        b->holder = &b->alone;
        b->holders = 1;
    }
    return lt_safetensors_add_source(w, name, dtype, param->place->logical, gather, b);
}
