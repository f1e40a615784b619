#include "recon/nbody/nbody_mesh.h"

#include "gridding/base/err.h"
#include "gridding/fft/fft_cpu.h"
#include "gridding/fft/fields.h"
#include "gridding/range/kernel.h"
#include "recon/nbody/nbody_gravity.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct nbody_mesh {
    struct dev *dev;
    int cells, threads;
    double split, reach;
    double *damping;           /* [cells]: of an axis, exp(-k^2 r_s^2) over the window's transform squared */
    double *k;                 /* [cells]: radians a cell; of derivatives 0 at the highest */
    float *grid;               /* [4][z][y][x] in device memory; the first also holds the masses */
    struct fields *fields;     /* on the device, which needs none of the members below; NULL: transforms on the host */
    float *plain;              /* [2][z][y][x] in host memory, for transfers; NULL: the grid is in host memory */
    struct c32 *work[2];       /* [z][y][x] in host memory, as are the next members */
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

enum { ALIGNMENT = 64 }; /* FFTW's vectors */

static size_t aligned_bytes(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool nbody_mesh_serves(const struct dev *dev, int cells)
{
    return dev_is_gpu(dev) && fields_available(dev, cells);
}

static size_t factor_count(int cells)
{
    const size_t half = (size_t)cells / 2 + 1;
    return half * half * half;
}

void nbody_mesh_memory(const struct dev *dev, int cells, bool on_host, uint64_t *device, uint64_t *host)
{
    const uint64_t n = (uint64_t)cells, nodes = n * n * n;
    *device = 4 * nodes * sizeof(float) + ALIGNMENT;
    *host = 2 * n * sizeof(double) + sizeof(struct nbody_mesh) + 8 * (uint64_t)ALIGNMENT;
    if (!on_host && nbody_mesh_serves(dev, cells)) {
        *device += fields_bytes(dev, cells);
        *host += factor_count(cells) * sizeof(float);
        return;
    }
    *host += (2 * nodes + (uint64_t)dev_threads(dev) * n * n) * sizeof(struct c32) +
             (dev_is_gpu(dev) ? 2 * nodes * sizeof(float) : 0);
}

static int grid_create(struct nbody_mesh *mesh)
{
    const size_t n = (size_t)mesh->cells;
    void *grid = NULL;
    int rc = dev_alloc(mesh->dev, 4 * n * n * n * sizeof *mesh->grid, &grid);
    mesh->grid = grid;
    mesh->damping = malloc(n * sizeof *mesh->damping);
    mesh->k = malloc(n * sizeof *mesh->k);
    return rc != 0 || (mesh->damping && mesh->k) ? rc : err_no_memory("a mesh of %d cells an axis", mesh->cells);
}

/* What transforms on the host need. */
static int host_create(struct nbody_mesh *mesh)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
    const bool direct = dev_direct(mesh->dev, mesh->grid);
    int rc = 0;
    for (int i = 0; i < 2; i++)
        mesh->work[i] = aligned_alloc(ALIGNMENT, aligned_bytes(nodes * sizeof **mesh->work));
    mesh->slab = aligned_alloc(ALIGNMENT, aligned_bytes((size_t)mesh->threads * n * n * sizeof *mesh->slab));
    mesh->plain = direct ? NULL : malloc(2 * nodes * sizeof *mesh->plain);
    if (!mesh->work[0] || !mesh->work[1] || !mesh->slab || (!mesh->plain && !direct))
        return err_no_memory("a mesh of %d cells an axis", mesh->cells);
    for (int sign = 0; sign < 2 && rc == 0; sign++) {
        rc = fft_cpu_create(&mesh->fft[sign][0], mesh->cells, 1, 2 * sign - 1);
        if (rc == 0)
            rc = fft_cpu_create(&mesh->fft[sign][1], mesh->cells, mesh->cells, 2 * sign - 1);
    }
    return rc;
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

/* The same at the waves x, y, z, over the number of nodes. */
static double green_at(const struct nbody_mesh *mesh, int x, int y, int z)
{
    const double kx = mesh->k[x], ky = mesh->k[y], kz = mesh->k[z], n = mesh->cells;
    return green(mesh, kx * kx + ky * ky + kz * kz, mesh->damping[x] * mesh->damping[y] * mesh->damping[z]) /
           (n * n * n);
}

static int device_create(struct nbody_mesh *mesh)
{
    const int edge = mesh->cells / 2 + 1;
    float *factor = malloc(factor_count(mesh->cells) * sizeof *factor);
    if (!factor)
        return err_no_memory("a mesh of %d cells an axis", mesh->cells);
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (int z = 0; z < edge; z++)
        for (int y = 0; y < edge; y++)
            for (int x = 0; x < edge; x++)
                factor[((size_t)z * (size_t)edge + (size_t)y) * (size_t)edge + (size_t)x] =
                    (float)green_at(mesh, x, y, z);
    int rc = fields_create(&mesh->fields, mesh->dev, mesh->cells, factor);
    free(factor);
    return rc;
}

int nbody_mesh_create(struct nbody_mesh **out, struct dev *dev, int cells, double split, double reach, bool on_host)
{
    struct nbody_mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh)
        return err_no_memory("a mesh");
    mesh->dev = dev;
    mesh->cells = cells;
    mesh->threads = dev_threads(dev);
    mesh->split = split;
    mesh->reach = reach;
    int rc = grid_create(mesh);
    for (int i = 0; i < cells && rc == 0; i++) {
        const int wave = i <= cells / 2 ? i : i - cells;
        const double k = 2 * KERNEL_PI * wave / cells;
        const double window = kernel_transform(NBODY_WINDOW, window_beta(), (double)wave / cells);
        mesh->k[i] = k;
        mesh->damping[i] = exp(-k * k * split * split) / (window * window);
    }
    if (rc == 0)
        rc = !on_host && nbody_mesh_serves(dev, cells) ? device_create(mesh) : host_create(mesh);
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
    fields_free(mesh->fields);
    for (int i = 0; i < 4; i++)
        fft_cpu_free(mesh->fft[i / 2][i % 2]);
    dev_release(mesh->dev, mesh->grid);
    free(mesh->plain);
    free(mesh->work[0]);
    free(mesh->work[1]);
    free(mesh->slab);
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

/* Steps of the progress, all about as long: spreading, four passes over the mesh, interpolation. */
enum { SPREAD, FIRST_PASS, INTERPOLATE = FIRST_PASS + 4, MESH_STEPS };

/* Cancelation of a pass over the mesh: the calling thread polls once per plane; the other threads read the flag. */
struct pass {
    const struct listener *listener;
    size_t step;
    atomic_bool stopped;
};

static bool pass_stopped(struct pass *pass)
{
    if (omp_get_thread_num() == 0 && !atomic_load(&pass->stopped) &&
        pass->listener->progress(pass->listener->context, pass->step, MESH_STEPS))
        atomic_store(&pass->stopped, true);
    return atomic_load_explicit(&pass->stopped, memory_order_relaxed);
}

static int pass_rc(struct pass *pass)
{
    return atomic_load(&pass->stopped) ? err_set(ERR_CANCELED, "The job was canceled while it was running.") : 0;
}

/* sign 0: of waves exp(-i k x), 1: exp(+i k x); unscaled. */
static int transform(const struct nbody_mesh *mesh, struct c32 *values, int sign, struct pass *pass)
{
    const size_t n = (size_t)mesh->cells;
    const struct fft_cpu *line = mesh->fft[sign][0], *slab = mesh->fft[sign][1];
#pragma omp parallel for num_threads(mesh->threads) schedule(dynamic)
    for (size_t z = 0; z < n; z++) {
        if (pass_stopped(pass))
            continue;
        for (size_t y = 0; y < n; y++)
            fft_cpu_run(line, values + (z * n + y) * n);
        fft_cpu_run(slab, values + z * n * n);
    }
#pragma omp parallel for num_threads(mesh->threads) schedule(dynamic)
    for (size_t y = 0; y < n; y++) {
        if (pass_stopped(pass))
            continue;
        struct c32 *own = mesh->slab + (size_t)omp_get_thread_num() * n * n;
        for (size_t z = 0; z < n; z++)
            memcpy(own + z * n, values + (z * n + y) * n, n * sizeof *own);
        fft_cpu_run(slab, own);
        for (size_t z = 0; z < n; z++)
            memcpy(values + (z * n + y) * n, own + z * n, n * sizeof *own);
    }
    return pass_rc(pass);
}

/* masses: the transform of masses. Writes the transform of acceleration x + i y to `pair[0]`, and that of acceleration
 * z + i potential to `pair[1]` (= masses). */
static int fields_of(const struct nbody_mesh *mesh, const struct c32 *masses, struct c32 *const pair[2],
                     struct pass *pass)
{
    const int n = mesh->cells, half = n / 2;
#pragma omp parallel for num_threads(mesh->threads) schedule(dynamic)
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n && !pass_stopped(pass); y++)
            for (int x = 0; x < n; x++) {
                const size_t at = ((size_t)z * (size_t)n + (size_t)y) * (size_t)n + (size_t)x;
                const double kx = mesh->k[x], ky = mesh->k[y], kz = mesh->k[z];
                const double factor = green_at(mesh, x, y, z);
                const double re = factor * (double)masses[at].re, im = factor * (double)masses[at].im;
                /* -i k potential; a wave of the highest frequency has no derivative at nodes. */
                const double dx = x == half ? 0 : kx, dy = y == half ? 0 : ky, dz = z == half ? 0 : kz;
                pair[0][at] = (struct c32){(float)(dx * im + dy * re), (float)(dy * im - dx * re)};
                pair[1][at] = (struct c32){(float)(dz * im - im), (float)(re - dz * re)};
            }
    return pass_rc(pass);
}

/* Copy the masses from the grid, as complex values. */
static int take_masses(const struct nbody_mesh *mesh, struct c32 *to)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
    const float *masses = mesh->plain ? mesh->plain : mesh->grid;
    int rc = mesh->plain ? dev_download(mesh->dev, mesh->plain, mesh->grid, nodes * sizeof *mesh->plain) : 0;
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (size_t i = 0; i < nodes; i++)
        to[i] = (struct c32){masses[i], 0};
    return rc;
}

/* Copy real and imaginary parts to the grids `first` and `first` + 1. */
static int give_fields(const struct nbody_mesh *mesh, const struct c32 *values, int first)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
    float *grid = mesh->grid + (size_t)first * nodes, *real = mesh->plain ? mesh->plain : grid;
#pragma omp parallel for num_threads(mesh->threads) schedule(static)
    for (size_t i = 0; i < nodes; i++) {
        real[i] = values[i].re;
        real[nodes + i] = values[i].im;
    }
    return mesh->plain ? dev_upload(mesh->dev, grid, mesh->plain, 2 * nodes * sizeof *grid) : 0;
}

/* The fields of the masses in the first grid, by transforms on the host. */
static int host_fields(const struct nbody_mesh *mesh, struct pass *pass)
{
    int rc = take_masses(mesh, mesh->work[1]);
    if (rc == 0)
        rc = transform(mesh, mesh->work[1], 0, pass);
    pass->step++;
    if (rc == 0)
        rc = fields_of(mesh, mesh->work[1], mesh->work, pass);
    for (int i = 0; i < 2 && rc == 0; i++) {
        pass->step++;
        rc = transform(mesh, mesh->work[i], 1, pass);
        if (rc == 0)
            rc = give_fields(mesh, mesh->work[i], 2 * i);
    }
    return rc;
}

/* A sum of the mesh: one step of it. */
struct mesh_sum {
    const struct listener *listener;
    size_t step;
};

static int hear(void *context, size_t done, size_t most)
{
    const struct mesh_sum *sum = context;
    return sum->listener->progress(sum->listener->context, sum->step * most + done, MESH_STEPS * most);
}

int nbody_mesh_fields(struct nbody_mesh *mesh, const struct range_points *points, double cell, const float *mass,
                      float *fields, const struct listener *listener)
{
    const size_t n = (size_t)mesh->cells, nodes = n * n * n;
    struct range_law window;
    struct pass pass = {.listener = listener, .step = FIRST_PASS};
    struct mesh_sum spreads = {listener, SPREAD}, interpolates = {listener, INTERPOLATE};
    const struct listener of_spread = {&spreads, hear}, of_interpolation = {&interpolates, hear};
    int rc = nbody_mesh_window(&window, cell);
    if (rc == 0)
        rc = dev_zero(mesh->dev, mesh->grid, nodes * sizeof *mesh->grid);
    if (rc == 0)
        rc = range_scatter(points, &window, 1, mass, mesh->grid, &of_spread);
    if (rc == 0)
        rc = mesh->fields ? fields_run(mesh->fields, mesh->grid) : host_fields(mesh, &pass);
    if (rc == 0)
        rc = range_gather(points, &window, 4, mesh->grid, fields, &of_interpolation);
    return rc;
}
