/* The passes along columns of a convolution in halves, of coil images that exist only within the passes: an image times
 * a coil's map forth, and the sum over coils of conj(map) times what comes back. */
#include "gridding/fft/fft_halves_columns.cuh"

struct coils_args {
    struct columns_args columns;
    struct fft_coils of;
    int each; /* coils that a block adds; 1: none, their images are stored */
};

static __device__ __forceinline__ bool ended(const struct fft_coils &of, unsigned frame)
{
    return of.running && !of.running[frame];
}

/* Blocks of columns x (frame, coil). */
template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(T *COLUMNS, COLUMN_THREADS / (T * COLUMNS))
    coils_forth(const __grid_constant__ struct coils_args c)
{
    extern __shared__ float2 shared[];
    const struct columns_args &a = c.columns;
    const struct column_place<A, B, T> at(shared);
    const unsigned frame = blockIdx.y / (unsigned)c.of.coils, coil = blockIdx.y - frame * (unsigned)c.of.coils;
    const float2 *map = c.of.maps + frame * c.of.maps_step + coil * c.of.map + at.column + steps(at.t, a.in_step);
    const float2 *in = a.in + frame * a.in_set + at.column + steps(at.t, a.in_step);
    gpu_begin_behind();
    if (ended(c.of, frame))
        return;
    column_forth<A, B, T, WHOLE>(a, at, a.out + (size_t)blockIdx.y * a.out_set + at.column,
                                 [&](int j) { return conj(mul(in[steps(j, a.in_step)], map[steps(j, a.in_step)])); });
}

/* Blocks of columns x frame, or x (frame, coil) where a block has one coil. The sums are in shared memory behind the
 * transforms', [kept][COLUMNS]: each thread has its own. */
template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(T *COLUMNS, COLUMN_THREADS / (T * COLUMNS))
    coils_back(const __grid_constant__ struct coils_args c)
{
    extern __shared__ float2 shared[];
    const struct columns_args &a = c.columns;
    const struct column_place<A, B, T> at(shared);
    const unsigned per_frame = (unsigned)(c.of.coils / c.each), frame = blockIdx.y / per_frame;
    float2 *sums = shared + 2 * A * B * COLUMNS + COLUMNS * at.t + threadIdx.x % COLUMNS;
    const float2 *in = a.in + (size_t)blockIdx.y * (unsigned)c.each * a.in_set + at.column;
    float2 *out = a.out + (size_t)blockIdx.y * a.out_set + at.column + steps(at.t, a.out_step);
    const float2 *map = c.of.maps + frame * c.of.maps_step + at.column + steps(at.t, a.out_step);
    gpu_begin_behind();
    if (ended(c.of, frame))
        return;
    for (int coil = 0; coil < c.each; coil++, in += a.in_set, map += c.of.map) {
        const bool first = coil == 0, last = coil == c.each - 1;
        column_back<A, B, T, WHOLE>(a, at, in, [&](int j, float2 value) {
            if (c.each > 1) {
                float2 *sum = sums + COLUMNS * j;
                value = fft_add_coil(map[steps(j, a.out_step)], value, first ? make_float2(0.f, 0.f) : *sum);
                if (!last)
                    *sum = value;
            }
            if (last)
                out[steps(j, a.out_step)] = value;
        });
        __syncthreads();
    }
}

struct size {
    int n, threads; /* of a transform */
    void (*forth[2])(struct coils_args);
    void (*back[2])(struct coils_args);
};

static const struct size sizes[] = {
#define SIZE(N, A, B, T)                                        \
    {N,                                                         \
     T,                                                         \
     {coils_forth<A, B, T, false>, coils_forth<A, B, T, true>}, \
     {coils_back<A, B, T, false>, coils_back<A, B, T, true>}},
    HALVES(SIZE)
#undef SIZE
};

int fft_halves_columns_of_coils(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass,
                                const struct fft_coils *coils)
{
    const struct size *size = halves_of(sizes, plan->n);
    struct coils_args args = {columns_args_of(plan, pass), *coils, 1};
    const dim3 blocks(gpu_blocks((size_t)pass->lines, COLUMNS), (unsigned)(coils->frames * coils->coils));
    return fft_halves_launch(gpu, (const void *)size->forth[columns_whole(plan, pass)], blocks, size->threads * COLUMNS,
                             (size_t)plan->n * COLUMNS * sizeof(float2), &args);
}

/* Blocks of 256; a thread owns a pixel of a frame, which is at the same place in a coil's image. */
static __global__ void add_coils(const __grid_constant__ struct fft_coils of, const float2 *images, size_t image,
                                 float2 *sums, size_t sum_step)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= of.map || ended(of, blockIdx.y))
        return;
    const float2 *map = of.maps + blockIdx.y * of.maps_step + i, *from = images + blockIdx.y * of.coils * image + i;
    float2 sum = make_float2(0.f, 0.f);
#pragma unroll 4
    for (int c = 0; c < of.coils; c++)
        sum = fft_add_coil(map[c * of.map], from[c * image], sum);
    sums[blockIdx.y * sum_step + i] = sum;
}

int fft_halves_columns_to_sums(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass,
                               const struct fft_coils *coils)
{
    const struct size *size = halves_of(sizes, plan->n);
    const unsigned columns = gpu_blocks((size_t)pass->lines, COLUMNS);
    const size_t transforms = (size_t)plan->n * COLUMNS * sizeof(float2),
                 sums = (size_t)pass->kept * COLUMNS * sizeof(float2);
    const bool few = coils->coils == 1 || columns * (unsigned)coils->frames < (unsigned)gpu->multiprocessors;
    struct coils_args args = {columns_args_of(plan, pass), *coils, few ? 1 : coils->coils};
    if (few) {
        args.columns.out = const_cast<float2 *>(pass->in);
        args.columns.out_step = args.columns.in_step;
        args.columns.out_set = args.columns.in_set;
    }
    const dim3 blocks(columns, (unsigned)(coils->frames * (few ? coils->coils : 1)));
    int rc = fft_halves_launch(gpu, (const void *)size->back[columns_whole(plan, pass)], blocks,
                               size->threads * COLUMNS, transforms + (few ? 0 : sums), &args);
    if (rc || !few)
        return rc;
    add_coils<<<dim3(gpu_blocks(coils->map, 256), (unsigned)coils->frames), 256, 0, gpu->stream>>>(
        *coils, pass->in, pass->in_view.set, pass->out, pass->out_view.set);
    return gpu_launched("Adding coils");
}
