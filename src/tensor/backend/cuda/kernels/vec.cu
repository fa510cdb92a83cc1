/* Elementwise expressions of optimizers, up to LT_VEC_JOBS per launch. Those of a list share one pass over memory: a
 * thread evaluates all of them on each of its elements and keeps scratch in registers. */

#include "optim.cuh"
#include "tensor/backend/cuda/cast_cache.h"
#include "vec.cuh"

namespace
{

static_assert(sizeof(lt_vec_batch) + 64 <= MAX_PARAMETERS,
              "a batch fits into a kernel's parameters");

/* Not inlined: together with evaluate_four() in one loop, registers would spill. */
__device__ __attribute__((noinline)) void evaluate_element(const lt_vec_expression &s,
                                                           const lt_vec_numbers &n, int64_t i)
{
    int64_t at[LT_ITER_OPERANDS];
    lt_iter_offsets(&s.iter, i, at);
    if (s.dtype[0] == LT_F64) {
        const double a = lt_element(s.data[1], s.dtype[1], at[1]);
        const double b = s.data[2] ? lt_element(s.data[2], s.dtype[2], at[2]) : 0;
        const double y = n.beta == 0 ? 0 : lt_element(s.data[0], s.dtype[0], at[0]);
        lt_set_element(s.data[0], s.dtype[0], at[0], evaluate_operation(s.op, n, a, b, y));
    } else {
        const vec_numbers_f32 m(n);
        const float a = lt_element_f32(s.data[1], s.dtype[1], at[1]);
        const float b = s.data[2] ? lt_element_f32(s.data[2], s.dtype[2], at[2]) : 0;
        const float y = n.beta == 0 ? 0 : lt_element_f32(s.data[0], s.dtype[0], at[0]);
        const float made = evaluate_operation(s.op, m, a, b, y);
        lt_set_element_f32(s.data[0], s.dtype[0], at[0], made);
        if (s.cast)
            lt_set_element_f32(s.cast, s.cast_dtype, at[0], made);
    }
}

/* Loads four elements of a, which may be a gradient in 16 bits. */
__device__ float4 load_four_of_a(const lt_vec_expression &s, int64_t at)
{
    if (s.dtype[1] == LT_F32)
        return *(const float4 *)((const float *)s.data[1] + at);
    float v[4];
    load_four_16_bit(s.data[1], s.dtype[1], at, v);
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* Evaluates elements i to i + 3; i: a multiple of 4. held: the list's scratch. */
__device__ void evaluate_four(const lt_vec_expression &s, const vec_numbers_f32 &n, int64_t i,
                              float4 &held)
{
    int64_t at[LT_ITER_OPERANDS];
    lt_iter_offsets(&s.iter, i, at);
    float4 *const to = (float4 *)((float *)s.data[0] + at[0]), none = make_float4(0, 0, 0, 0);
    const float4 a = s.held & LT_VEC_HELD_A ? held : load_four_of_a(s, at[1]);
    const float4 b = s.held & LT_VEC_HELD_B ? held
                     : s.data[2]            ? *(const float4 *)((const float *)s.data[2] + at[2])
                                            : none;
    float4 y = n.beta == 0 ? none : s.held & LT_VEC_HELD_OLD ? held : *to;
    y.x = evaluate_operation(s.op, n, a.x, b.x, y.x);
    y.y = evaluate_operation(s.op, n, a.y, b.y, y.y);
    y.z = evaluate_operation(s.op, n, a.z, b.z, y.z);
    y.w = evaluate_operation(s.op, n, a.w, b.w, y.w);
    if (s.held & LT_VEC_HELD_Y) {
        held = y;
        return;
    }
    store_16(to, y);
    if (s.cast) {
        const float made[4] = {y.x, y.y, y.z, y.w};
        lt_store_four_16_bit(s.cast, s.cast_dtype, at[0], made);
    }
}

/* Evaluates those expressions of the list that can by fours, the others element by element. A thread has the same
 * elements in all expressions, so that no barrier is needed. */
__device__ void evaluate_block(const lt_vec_expression *s, int length, const lt_vec_numbers *n,
                               int64_t begin, int64_t end)
{
    bool any = false;
    for (int k = 0; k < length; k++)
        any = any || s[k].fours;
    const int64_t fours = any ? begin + (end - begin) / 4 * 4 : begin;
    for (int64_t i = begin + threadIdx.x * 4; i < fours; i += THREADS * 4) {
        float4 held = make_float4(0, 0, 0, 0);
        for (int k = 0; k < length; k++) {
            if (s[k].fours)
                evaluate_four(s[k], vec_numbers_f32(n[k]), i, held);
            else
                for (int j = 0; j < 4; j++)
                    evaluate_element(s[k], n[k], i + j);
        }
    }
    for (int64_t i = fours + threadIdx.x; i < end; i += THREADS)
        for (int k = 0; k < length; k++)
            evaluate_element(s[k], n[k], i);
}

/* With more than four blocks the compiler would spill for compute capability 12.0. */
__global__ void __launch_bounds__(THREADS, 4)
    run_batch(const __grid_constant__ lt_vec_batch batch, const lt_scalars *scalars)
{
    __shared__ lt_vec_numbers numbers[LT_VEC_LIST_LENGTH];
    if (scalars && !scalars->finite)
        return;
    const int64_t mine = lt_find_item_of_block(&batch.list->first_block, sizeof *batch.list,
                                               batch.lists, blockIdx.x);
    const int length = batch.list[mine].length;
    const lt_vec_expression *s = &batch.expression[batch.list[mine].first];
    if ((int)threadIdx.x < length)
        numbers[threadIdx.x] = lt_vec_resolve_numbers(&s[threadIdx.x], scalars);
    __syncthreads();
    const int64_t begin = (int64_t)(blockIdx.x - batch.list[mine].first_block) * LT_VEC_BLOCK;
    evaluate_block(s, length, numbers, begin, min(begin + LT_VEC_BLOCK, s->iter.count));
}

void attach_cached_cast(const lt_cuda *c, lt_vec_expression *s)
{
    s->cast = s->dtype[0] == LT_F32 ? lt_cast_element_address(c, s->data[0], &s->cast_dtype) : NULL;
    s->fours = s->fours && ((uintptr_t)s->cast & 7) == 0;
}

lt_status run_lists(lt_cuda *c, const lt_vec_list *list, size_t count, const lt_scalars *scalars)
{
    lt_vec_batch batch;
    for (size_t i = 0, taken = 0; i < count; i += taken) {
        LT_TRY(lt_vec_fill_batch(&batch, list + i, count - i, &taken));
        for (int j = 0; j < batch.expressions; j++)
            attach_cached_cast(c, &batch.expression[j]);
        lt_vec_hold_scratch(&batch);
        if (batch.blocks > 0)
            run_batch<<<(unsigned)batch.blocks, THREADS, 0, main_stream(c)>>>(batch, scalars);
    }
    return lt_cuda_end(c);
}

lt_status vec_lists(void *ctx, const lt_vec_list *list, size_t count, const lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "vec_lists"));
    return run_lists(c, list, count, scalars);
}

lt_status vec(void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    lt_vec_list list[LT_VEC_JOBS];
    LT_TRY(lt_cuda_begin(c, "vec"));
    for (size_t i = 0; i < count; i += LT_VEC_JOBS) {
        const size_t some = count - i < LT_VEC_JOBS ? count - i : (size_t)LT_VEC_JOBS;
        for (size_t j = 0; j < some; j++) {
            list[j].job = job + i + j;
            list[j].count = 1;
            list[j].scratch = NULL;
        }
        LT_TRY(run_lists(c, list, some, scalars));
    }
    return LT_OK;
}

} /* namespace */

extern "C" void lt_cuda_install_vec(lt_backend *be)
{
    be->vec = vec;
    be->vec_lists = vec_lists;
}
