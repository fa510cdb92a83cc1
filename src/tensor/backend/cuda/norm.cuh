/* What the kernels of batch normalisation share. */
#ifndef LT_CUDA_NORM_CUH
#define LT_CUDA_NORM_CUH

#include "launch.cuh"
#include "norm.h"

/* PACK channels of a row: a 16-byte access, or one element anywhere. */
template <int PACK> struct pack;

template <> struct pack<LT_PACK> {
    template <class T>
    static __device__ void load(const T *data, const lt_rows &, int64_t place, float (&v)[LT_PACK])
    {
        load_pack(data + place, v);
    }
    template <class T>
    static __device__ void store(T *data, int64_t place, const float (&v)[LT_PACK])
    {
        store_pack(data + place, v);
    }
};

template <> struct pack<1> {
    template <class T>
    static __device__ void load(const T *data, const lt_rows &, int64_t place, float (&v)[1])
    {
        v[0] = to_float(data[place]);
    }
    template <class T> static __device__ void store(T *data, int64_t place, const float (&v)[1])
    {
        set(data + place, v[0]);
    }
};

/* A 4-D operand: its data and how its rows lie. */
template <class T> struct tensor4 {
    T *data;
    lt_rows rows;
    template <int PACK> __device__ void load(int64_t row, int64_t channel, float (&v)[PACK]) const
    {
        pack<PACK>::load(data, rows, lt_rows_place(&rows, row, channel), v);
    }
    template <int PACK>
    __device__ void store(int64_t row, int64_t channel, const float (&v)[PACK]) const
    {
        pack<PACK>::store(data, lt_rows_place(&rows, row, channel), v);
    }
};

template <class T> static inline tensor4<T> tensor_of(const lt_view *view)
{
    tensor4<T> t;
    const bool there = view && view->data;
    t.data = there ? (T *)view->data : (T *)NULL;
    t.rows = there ? rows_of(view) : lt_rows();
    return t;
}

/* Where the thread is in a cut of rows. */
struct place_in_cut {
    int lane, line;
    int64_t channel, begin, end;
};

template <int PACK> __device__ place_in_cut place_of(const lt_row_cut &cut, int64_t rows)
{
    place_in_cut p;
    p.lane = threadIdx.x % cut.lanes;
    p.line = threadIdx.x / cut.lanes;
    p.channel = ((int64_t)blockIdx.x * cut.lanes + p.lane) * PACK;
    p.begin = blockIdx.y * cut.length;
    p.end = min(p.begin + cut.length, rows);
    return p;
}

/* The gradient that comes in, as lt_batchnorm_grad says, in a kernel's terms. */
template <class T> struct norm_gradient {
    tensor4<T> dy, dy2, x;
    const float *coef; /* [4,C] */
    const uint8_t *mask;
    int64_t channels;
    bool relu;

    /* g and x of a pack; scale and shift are its coefficients. */
    template <int PACK>
    __device__ void load(int64_t row, int64_t channel, const float (&scale)[PACK],
                         const float (&shift)[PACK], float (&g)[PACK], float (&v)[PACK]) const
    {
        dy.load(row, channel, g);
        x.load(row, channel, v);
        if (dy2.data) {
            float more[PACK];
            dy2.load(row, channel, more);
#pragma unroll
            for (int k = 0; k < PACK; k++)
                g[k] += more[k];
        }
        if (!relu)
            return;
        const int64_t bit = row * channels + channel;
        const unsigned bits = mask ? (unsigned)mask[bit / 8] >> bit % 8 : 0;
#pragma unroll
        for (int k = 0; k < PACK; k++)
            if (mask ? !(bits >> k & 1) : !(lt_norm_affine(v[k], scale[k], shift[k]) > 0))
                g[k] = 0;
    }
};

template <class T> static inline norm_gradient<T> gradient_of(const lt_batchnorm_grad *in)
{
    norm_gradient<T> g;
    g.dy = tensor_of<T>(&in->dy[0]);
    g.dy2 = tensor_of<T>(&in->dy[1]);
    g.x = tensor_of<T>(in->x);
    g.coef = (const float *)in->coef->data;
    g.mask = in->mask && in->mask->data ? (const uint8_t *)in->mask->data : (const uint8_t *)NULL;
    g.channels = in->x->shape.dim[1];
    g.relu = in->relu;
    return g;
}

static inline bool gradient_has_packs(const lt_batchnorm_grad *in)
{
    return has_packs(&in->dy[0]) && has_packs(&in->dy[1]) && has_packs(in->x);
}

/* Whether all operands are of dtype, and masters are f32. */
static inline lt_status want_dtype(const lt_cuda *c, const lt_view *view, lt_dtype dtype)
{
    if (!view || !view->data || view->dtype == dtype)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s: a tensor is %s, want %s", c->ordinal,
                   c->operation, lt_dtype_name(view->dtype), lt_dtype_name(dtype));
}

#endif
