/* fft_halves.cuh: the passes of a convolution on a grid of at least twice the image, without a transform of the whole
 * length: the even and the odd frequencies are each a transform of half as many cells, all filled by the image (for the
 * odd ones, after a phase factor for each cell). fft_convolve_rows() and fft_convolve_columns() use these passes for
 * sizes whose halves have two stages. */
#ifndef MRIRECON_FFT_HALVES_CUH
#define MRIRECON_FFT_HALVES_CUH

#include "gridding/fft/fft_gpu.cuh"

/* The index of frequency f (0 .. n - 1, in FFT order) of a row of n cells in struct fft_rows' spectrum. */
int fft_rows_place(int n, int f);

/* 2 L, A, B, threads of a transform (8 or 16: divisors of a warp), the smallest first; fft_halves_lines.cuh explains
 * them. */
#define HALVES(X)      \
    X(128, 8, 8, 8)    \
    X(160, 10, 8, 8)   \
    X(192, 12, 8, 8)   \
    X(224, 16, 7, 8)   \
    X(240, 15, 8, 8)   \
    X(256, 16, 8, 8)   \
    X(288, 9, 16, 16)  \
    X(320, 10, 16, 16) \
    X(384, 12, 16, 16) \
    X(480, 15, 16, 16) \
    X(512, 16, 16, 16)

/* Whether n is such a size; for those, fft_rows_place(), fft_convolve_rows() and fft_convolve_columns(). */
static constexpr bool fft_in_halves(int n)
{
#define SIZE(N, A, B, T) n == N ||
    return HALVES(SIZE) false;
#undef SIZE
}
int fft_halves_place(int n, int f);

/* The number of twiddle factors between the stages of lines of n cells (0: no such size), and their values. */
int fft_halves_turns(int n);
void fft_halves_turns_fill(int n, float2 *turns);

int fft_halves_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows);
int fft_halves_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass);

/* The passes of sum over coils of conj(map) K (map image), K being the convolution, of one image a frame: the columns
 * of a pass are multiplied by the map before they are transformed, and by its conjugate, and added to those of the
 * coils before, afterwards. Set f coils + c is coil c of frame f. */
struct fft_coils {
    int frames, coils;
    const float2 *maps; /* of coil c of frame f: maps + f maps_step + c map, laid out as the image */
    size_t maps_step, map;
    const int *running;   /* [frames]: frames with 0 are left out; NULL: none is */
    size_t spectrum_step; /* floats between the spectra of adjacent frames; 0: they share one */
};
/* pass->in of FFT_FORTH: images, pass->in_view.set apart. */
int fft_halves_columns_of_coils(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass,
                                const struct fft_coils *coils);
/* rows->sets_per_plane: coils. */
int fft_halves_rows_of_coils(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows,
                             const struct fft_coils *coils);
/* Back to images: pass->out_view.set apart. Where there are few frames, and with them few blocks, each coil's image
 * replaces the beginning of its columns first (pass->in, which is lost), and another pass adds these: the same bits. */
int fft_halves_columns_to_sums(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass,
                               const struct fft_coils *coils);

/* sum + conj(map) value, in the same order of roundings wherever it is compiled */
static __device__ __forceinline__ float2 fft_add_coil(float2 map, float2 value, float2 sum)
{
    return make_float2(fmaf(map.x, value.x, fmaf(map.y, value.y, sum.x)),
                       fmaf(map.x, value.y, fmaf(-map.y, value.x, sum.y)));
}

#endif
