/* Fills, copies and converts elements of any dtype and strides. */

#include "launch.cuh"

namespace
{

__global__ void fill_kernel(lt_iter iter, lt_view y, double value)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_ITER_OPERANDS];
    if (i >= iter.count)
        return;
    lt_iter_offsets(&iter, i, at);
    lt_set_element(y.data, y.dtype, at[0], value);
}

lt_status fill(void *ctx, double value, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    lt_iter iter;
    LT_TRY(lt_cuda_begin(c, "fill"));
    lt_iter_memory_order(&iter, &y, 1);
    if (value == 0 && !signbit(value) && lt_iter_is_dense(&iter)) { /* all bits 0 in every dtype */
        LT_CUDA_TRY(c, "cudaMemsetAsync",
                    cudaMemsetAsync(y->data, 0, (size_t)iter.count * lt_dtype_size(y->dtype),
                                    main_stream(c)));
    } else {
        fill_kernel<<<blocks_for(iter.count, THREADS), THREADS, 0, main_stream(c)>>>(iter, *y,
                                                                                     value);
    }
    return lt_cuda_end(c);
}

/* Dense floating data of two dtypes: vectors of eight, and single elements at the end. */
template <class From, class To> __global__ void convert(const From *x, To *y, int64_t count)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LT_VECTOR_WIDTH;
    if (i + LT_VECTOR_WIDTH <= count) {
        float v[LT_VECTOR_WIDTH];
        load_vector(x + i, v);
        store_vector(y + i, v);
        return;
    }
    for (int64_t k = i; k < count; k++)
        store_float(y + k, to_float(x[k]));
}

/* Equal dtypes: copies bits. */
template <class Bits> __global__ void copy_strided(lt_iter iter, const Bits *x, Bits *y)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_ITER_OPERANDS];
    if (i >= iter.count)
        return;
    lt_iter_offsets(&iter, i, at);
    y[at[0]] = x[at[1]];
}

__global__ void convert_strided(lt_iter iter, lt_view y, lt_view x)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t at[LT_ITER_OPERANDS];
    if (i >= iter.count)
        return;
    lt_iter_offsets(&iter, i, at);
    lt_set_element(y.data, y.dtype, at[0], lt_element(x.data, x.dtype, at[1]));
}

lt_status copy_elements(lt_cuda *c, const lt_iter *iter, const lt_view *x, const lt_view *y)
{
    const size_t size = lt_dtype_size(y->dtype);
    const unsigned blocks = blocks_for(iter->count, THREADS);
    if (lt_iter_is_dense(iter))
        LT_CUDA_TRY(c, "cudaMemcpyAsync",
                    cudaMemcpyAsync(y->data, x->data, (size_t)iter->count * size,
                                    cudaMemcpyDeviceToDevice, main_stream(c)));
    else if (size == 1)
        copy_strided<<<blocks, THREADS, 0, main_stream(c)>>>(*iter, (const uint8_t *)x->data,
                                                             (uint8_t *)y->data);
    else if (size == 2)
        copy_strided<<<blocks, THREADS, 0, main_stream(c)>>>(*iter, (const uint16_t *)x->data,
                                                             (uint16_t *)y->data);
    else if (size == 4)
        copy_strided<<<blocks, THREADS, 0, main_stream(c)>>>(*iter, (const uint32_t *)x->data,
                                                             (uint32_t *)y->data);
    else
        copy_strided<<<blocks, THREADS, 0, main_stream(c)>>>(*iter, (const uint64_t *)x->data,
                                                             (uint64_t *)y->data);
    return LT_OK;
}

bool can_vectorize(const lt_view *x, const lt_view *y)
{
    return x->dtype <= LT_BF16 && y->dtype <= LT_BF16 && x->dtype != LT_F64 && y->dtype != LT_F64
           && is_aligned(x->data) && is_aligned(y->data);
}

template <class From>
lt_status convert_dense(lt_cuda *c, const From *x, const lt_view *y, int64_t count)
{
    WITH_TYPE(c, y->dtype,
              convert<<<blocks_for(count, THREADS * LT_VECTOR_WIDTH), THREADS, 0, main_stream(c)>>>(
                  x, (T *)y->data, count))
    return LT_OK;
}

lt_status cast(void *ctx, const lt_view *x, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_view *const view[] = {y, x};
    lt_iter iter;
    LT_TRY(lt_cuda_begin(c, "cast"));
    lt_iter_memory_order(&iter, view, 2);
    if (x->dtype == y->dtype) {
        LT_TRY(copy_elements(c, &iter, x, y));
    } else if (can_vectorize(x, y) && lt_iter_is_dense(&iter)) {
        WITH_TYPE(c, x->dtype, LT_TRY(convert_dense(c, (const T *)x->data, y, iter.count)))
    } else {
        convert_strided<<<blocks_for(iter.count, THREADS), THREADS, 0, main_stream(c)>>>(iter, *y,
                                                                                         *x);
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_cast(lt_backend *be)
{
    be->fill = fill;
    be->cast = cast;
}
