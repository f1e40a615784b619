#include "recon/nbody/nbody_mesh.h"

#include "gridding/base/err.h"
#include "gridding/fft/fft_cpu.h"
#include "gridding/range/kernel.h"
#include "recon/nbody/nbody_gravity.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct nbody_mesh {
    struct dev *dev;
    int cells, threads;
    double split, reach;
    double *damping;           /* [cells]: of an axis, exp(-k^2 r_s^2) over the window's transform squared */
    double *k;                 /* [cells]: radians a cell; of derivatives 0 at the highest */
    float *grid;               /* [4][z][y][x]; the first holds masses, too */
    struct c32 *work[2];       /* [z][y][x] */
    struct fft_cpu *fft[2][2]; /* [-1 or +1][a line, a slab] */
    struct c32 *slab;          /* [threads][cells][cells] */
};

/* Aliases of a wave are as small as the window makes them where Gaussian damping leaves it; found by the errors that
 * tests/unit/test_nbody.c measures against Ewald sums. */
static double window_beta(void)
{
    return 2.0 * NBODY_WINDOW;
}

int nbody_mesh_round(int cells)
{
    for (int even = (cells + 1) / 2 * 2;; even += 2) {
        int rest = even;
        for (int prime = 2; prime <= 5; prime += prime == 2 ? 1 : 2)
            while (rest % prime == 0)
                rest /= prime;
        if (rest == 1)
            return even;
    }
}

int64_t nbody_mesh_bytes(int cells)
{
    const int64_t nodes = (int64_t)cells * cells * cells;
    return nodes * (int64_t)(4 * sizeof(float) + 2 * sizeof(struct c32));
}

static int allocate(struct nbody_mesh *mesh)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
    const size_t slabs = (size_t)mesh->threads * n * n * sizeof *mesh->slab;
    void *memory[4] = {NULL};
    int rc = dev_alloc(mesh->dev, 4 * nodes * sizeof *mesh->grid, &memory[0]);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = dev_alloc(mesh->dev, nodes * sizeof **mesh->work, &memory[1 + i]);
    if (rc == 0)
        rc = dev_alloc(mesh->dev, slabs, &memory[3]);
    mesh->grid = memory[0];
    mesh->work[0] = memory[1];
    mesh->work[1] = memory[2];
    mesh->slab = memory[3];
    mesh->damping = malloc(n * sizeof *mesh->damping);
    mesh->k = malloc(n * sizeof *mesh->k);
    if (rc == 0 && (!mesh->damping || !mesh->k))
        rc = err_no_memory("a mesh of %d cells an axis", mesh->cells);
    for (int sign = 0; sign < 2 && rc == 0; sign++) {
        rc = fft_cpu_create(&mesh->fft[sign][0], mesh->cells, 1, 2 * sign - 1);
        if (rc == 0)
            rc = fft_cpu_create(&mesh->fft[sign][1], mesh->cells, mesh->cells, 2 * sign - 1);
    }
    return rc;
}

int nbody_mesh_create(struct nbody_mesh **out, struct dev *dev, int cells, double split, double reach)
{
    struct nbody_mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh)
        return err_no_memory("a mesh");
    mesh->dev = dev;
    mesh->cells = cells;
    mesh->threads = dev_threads(dev);
    mesh->split = split;
    mesh->reach = reach;
    int rc = allocate(mesh);
    for (int i = 0; i < cells && rc == 0; i++) {
        const int wave = i <= cells / 2 ? i : i - cells;
        const double k = 2 * KERNEL_PI * wave / cells;
        const double window = kernel_transform(NBODY_WINDOW, window_beta(), (double)wave / cells);
        mesh->k[i] = k;
        mesh->damping[i] = exp(-k * k * split * split) / (window * window);
    }
    if (rc == 0)
        *out = mesh;
    else
        nbody_mesh_free(mesh);
    return rc;
}

void nbody_mesh_free(struct nbody_mesh *mesh)
{
    if (!mesh)
        return;
    for (int i = 0; i < 4; i++)
        fft_cpu_free(mesh->fft[i / 2][i % 2]);
    dev_release(mesh->dev, mesh->grid);
    dev_release(mesh->dev, mesh->work[0]);
    dev_release(mesh->dev, mesh->work[1]);
    dev_release(mesh->dev, mesh->slab);
    free(mesh->damping);
    free(mesh->k);
    free(mesh);
}

static double window_value(const void *of, double t)
{
    const double beta = *(const double *)of;
    return kernel_bessel_i0(beta * sqrt(t)) / kernel_bessel_i0(beta);
}

int nbody_mesh_window(struct range_law *law, double cell)
{
    const double beta = window_beta();
    return range_law_make(law,
                          &(struct range_law_params){
                              .form = RANGE_SEPARABLE, .reach = NBODY_WINDOW / 2.0 * cell, .power = 1, .error = 1e-7},
                          window_value, &beta);
}

/* ---- the transform ---- */

/* sign 0: of waves exp(-i k x), 1: exp(+i k x); unscaled. */
static void transform(const struct nbody_mesh *mesh, struct c32 *values, int sign)
{
    const size_t n = (size_t)mesh->cells;
    const struct fft_cpu *line = mesh->fft[sign][0], *slab = mesh->fft[sign][1];
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (size_t z = 0; z < n; z++) {
        for (size_t y = 0; y < n; y++)
            fft_cpu_run(line, values + (z * n + y) * n);
        fft_cpu_run(slab, values + z * n * n);
    }
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (size_t y = 0; y < n; y++) {
        struct c32 *own = mesh->slab + (size_t)omp_get_thread_num() * n * n;
        for (size_t z = 0; z < n; z++)
            memcpy(own + z * n, values + (z * n + y) * n, n * sizeof *own);
        fft_cpu_run(slab, own);
        for (size_t z = 0; z < n; z++)
            memcpy(values + (z * n + y) * n, own + z * n, n * sizeof *own);
    }
}

/* The transform of the potential of a unit mass, over that of the mass: negative. Units of cells. */
static double green(const struct nbody_mesh *mesh, double k2, double damping)
{
    if (mesh->reach > 0) {
        const double half = 0.5 * mesh->reach, sine = sin(sqrt(k2) * half);
        return -8 * KERNEL_PI * (k2 > 0 ? sine * sine / k2 : half * half) * damping;
    }
    return k2 > 0 ? -4 * KERNEL_PI / k2 * damping : 0;
}

/* masses: the transform of masses. To `pair[0]` that of acceleration x + i y, to `pair[1]` (= masses) that of
 * acceleration z + i potential. */
static void fields_of(const struct nbody_mesh *mesh, const struct c32 *masses, struct c32 *pair[2])
{
    const int n = mesh->cells, half = n / 2;
    const double scale = 1.0 / ((double)n * n * n);
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n; y++)
            for (int x = 0; x < n; x++) {
                const size_t at = ((size_t)z * (size_t)n + (size_t)y) * (size_t)n + (size_t)x;
                const double kx = mesh->k[x], ky = mesh->k[y], kz = mesh->k[z];
                const double damping = mesh->damping[x] * mesh->damping[y] * mesh->damping[z];
                const double factor = scale * green(mesh, kx * kx + ky * ky + kz * kz, damping);
                const double re = factor * (double)masses[at].re, im = factor * (double)masses[at].im;
                /* -i k potential; a wave of the highest frequency has no derivative at nodes. */
                const double dx = x == half ? 0 : kx, dy = y == half ? 0 : ky, dz = z == half ? 0 : kz;
                pair[0][at] = (struct c32){(float)(dx * im + dy * re), (float)(dy * im - dx * re)};
                pair[1][at] = (struct c32){(float)(dz * im - im), (float)(re - dz * re)};
            }
}

/* Real and imaginary parts to grids of their own. */
static void part(const struct nbody_mesh *mesh, const struct c32 *values, float *real, float *imaginary)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (size_t i = 0; i < nodes; i++) {
        real[i] = values[i].re;
        imaginary[i] = values[i].im;
    }
}

static int stopped(int (*stop)(void *context), void *context)
{
    return stop && stop(context) ? err_set(ERR_CANCELED, "The job was canceled while it was running.") : 0;
}

struct stop {
    int (*stop)(void *context);
    void *context;
};

static int hear(void *context, size_t done, size_t most)
{
    const struct stop *stop = context;
    (void)done;
    (void)most;
    return stopped(stop->stop, stop->context);
}

int nbody_mesh_fields(struct nbody_mesh *mesh, const struct range_points *points, double cell, const float *mass,
                      float *fields, int (*stop)(void *context), void *context)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
    struct range_law window;
    struct stop asked = {stop, context};
    const struct listener listener = {&asked, hear};
    int rc = nbody_mesh_window(&window, cell);
    if (rc == 0)
        rc = dev_zero(mesh->dev, mesh->grid, nodes * sizeof *mesh->grid);
    if (rc == 0)
        rc = range_scatter(points, &window, 1, mass, mesh->grid, &listener);
    if (rc == 0)
        rc = stopped(stop, context);
    if (rc != 0)
        return rc;
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (size_t i = 0; i < nodes; i++)
        mesh->work[1][i] = (struct c32){mesh->grid[i], 0};
    transform(mesh, mesh->work[1], 0);
    fields_of(mesh, mesh->work[1], mesh->work);
    rc = stopped(stop, context);
    for (int i = 0; i < 2 && rc == 0; i++) {
        transform(mesh, mesh->work[i], 1);
        part(mesh, mesh->work[i], mesh->grid + (size_t)(2 * i) * nodes, mesh->grid + (size_t)(2 * i + 1) * nodes);
        rc = stopped(stop, context);
    }
    if (rc == 0)
        rc = range_gather(points, &window, 4, mesh->grid, fields, &listener);
    return rc;
}
