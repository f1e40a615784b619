/* The sizes of grids that are transformed in halves, the twiddle factors between their stages, and launches. */
#include "gridding/base/launch_gpu.cuh"
#include "gridding/fft/fft_halves_lines.cuh"

#include <cmath>

struct size {
    int n, radix_a, radix_b;
};

static const struct size sizes[] = {
#define SIZE(N, A, B, T) {N, A, B},
    HALVES(SIZE)
#undef SIZE
};

/* NULL: no such size. */
static const struct size *size_of(int n)
{
    for (const struct size &size : sizes)
        if (size.n == n)
            return &size;
    return NULL;
}

int fft_two_stage_size(int cells)
{
    for (const struct size &size : sizes)
        if (size.n >= cells)
            return size.n;
    return 0;
}

int fft_halves_turns(int n)
{
    const struct size *size = size_of(n);
    return size ? turns_count(size->radix_a, size->radix_b) : 0;
}

void fft_halves_turns_fill(int n, float2 *turns)
{
    const struct size *size = size_of(n);
    const int pairs = turn_pairs(size->radix_a), b = size->radix_b;
    for (int i = 0; i < fft_halves_turns(n); i++) {
        const int t = i / 2 % b, pair = i / 2 / b, q = pair / pairs, k1 = pair % pairs * 2 + i % 2;
        const double angle = 2 * M_PI * t * (2 * k1 + q) / n;
        turns[i] = make_float2((float)cos(angle), (float)sin(angle));
    }
}

int fft_halves_launch(struct gpu *gpu, const void *kernel, dim3 blocks, int threads, size_t shared, void *args)
{
    int rc = 0;
    if (shared > 48 * 1024)
        rc = gpu_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                       "Preparing a convolution's pass");
    return rc ? rc : gpu_launch_behind(gpu, kernel, blocks, threads, shared, args, "A convolution's pass");
}
