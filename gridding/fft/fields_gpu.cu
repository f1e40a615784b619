/* fields_gpu.cu: the potential of a density on a mesh, and its gradient, on a GPU (fields.h): one transform forth, and
 * four back of its waves multiplied. */
#include "gridding/fft/fft_leaf.h"
#include "gridding/fft/filter_gpu.cuh"

#include <cstdlib>

namespace
{

const char what[] = "The fields of a mesh";

enum { THREADS = 128, POTENTIAL = 3 }; /* POTENTIAL: the field after the derivatives along three axes */

struct fields_gpu {
    struct gpu *gpu;
    int n;
    struct filter_gpu *filter;
    float *factor; /* [n / 2 + 1][n / 2 + 1][n / 2 + 1] */
    float2 *waves; /* of a field */
};

struct filter_shape shape_of(int n)
{
    const struct filter_shape shape = {{n, n, n}, {n, n, n}, {n, n, n}};
    return shape;
}

size_t waves_count(int n)
{
    const struct filter_shape shape = shape_of(n);
    return (size_t)n * (size_t)n * (size_t)filter_gpu_waves_x(&shape);
}

size_t factor_count(int n)
{
    const size_t half = (size_t)n / 2 + 1;
    return half * half * half;
}

size_t bytes(int n)
{
    const struct filter_shape shape = shape_of(n);
    return filter_gpu_bytes(&shape, 0) + waves_count(n) * sizeof(float2) + factor_count(n) * sizeof(float);
}

void destroy(void *state)
{
    struct fields_gpu *f = (struct fields_gpu *)state;
    filter_gpu_free(f->filter);
    if (gpu_enter(f->gpu) == 0) {
        gpu_release(f->gpu, f->factor);
        gpu_release(f->gpu, f->waves);
    }
    free(f);
}

int create(void **state, struct dev *dev, int n, const float *factor)
{
    struct fields_gpu *f = (struct fields_gpu *)calloc(1, sizeof *f);
    if (!f)
        return err_no_memory("the fields of a mesh");
    f->gpu = gpu_of(dev);
    f->n = n;
    const struct filter_shape shape = shape_of(n);
    int rc = filter_gpu_create(&f->filter, f->gpu, &shape, NULL);
    if (!rc)
        rc = gpu_array(f->gpu, waves_count(n), &f->waves, what);
    if (!rc)
        rc = gpu_array(f->gpu, factor_count(n), &f->factor, what);
    if (!rc)
        rc = gpu_upload(f->gpu, f->factor, factor, factor_count(n) * sizeof *factor);
    if (rc)
        destroy(f);
    else
        *state = f;
    return rc;
}

/* Blocks: along x, y and z of the waves. `to` = the waves of a field: of the potential, or times -i k. */
__global__ void multiply(int n, int waves_x, int field, const float *factor, const float2 *from, float2 *to)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z, half = n / 2;
    if (x >= waves_x)
        return;
    const size_t at = ((size_t)z * n + y) * waves_x + x;
    const int wave[3] = {x, y < half ? y : y - n, z < half ? z : z - n};
    if (y == half || z == half) {
        to[at] = make_float2(0, 0);
        return;
    }
    const size_t edge = (size_t)half + 1;
    const float f = factor[((size_t)abs(wave[2]) * edge + abs(wave[1])) * edge + x];
    const float2 v = from[at];
    const float k = field == POTENTIAL ? 1.f : 6.283185307179586f / (float)n * (float)wave[field], by = f * k;
    to[at] = field == POTENTIAL ? make_float2(by * v.x, by * v.y) : make_float2(by * v.y, -by * v.x);
}

int run(void *state, float *grid)
{
    struct fields_gpu *f = (struct fields_gpu *)state;
    const struct filter_shape shape = shape_of(f->n);
    const int n = f->n, waves_x = filter_gpu_waves_x(&shape);
    const size_t nodes = (size_t)n * (size_t)n * (size_t)n;
    const dim3 blocks(gpu_blocks((size_t)waves_x, THREADS), (unsigned)n, (unsigned)n);
    const float2 *waves;
    int rc = filter_gpu_forth(f->filter, grid, &waves);
    for (int field = 0; field <= POTENTIAL && !rc; field++) {
        multiply<<<blocks, THREADS, 0, f->gpu->stream>>>(n, waves_x, field, f->factor, waves, f->waves);
        rc = gpu_launched(what);
        if (!rc)
            rc = filter_gpu_back(f->filter, f->waves, grid + (size_t)field * nodes);
    }
    return rc;
}

} // namespace

extern "C" const struct fields_leaf fields_leaf_gpu;
const struct fields_leaf fields_leaf_gpu = {filter_gpu_serves, bytes, create, destroy, run};
