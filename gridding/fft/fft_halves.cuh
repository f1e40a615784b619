/* fft_halves.cuh: the passes of a convolution on a grid of at least twice the image, without a transform of the whole
 * length: the even and the odd frequencies are each a transform of half as many cells, all filled by the image (for the
 * odd ones, after a phase factor for each cell). fft_convolve_rows() and fft_convolve_columns() use these passes for
 * sizes whose halves have two stages. */
#ifndef MRIRECON_FFT_HALVES_CUH
#define MRIRECON_FFT_HALVES_CUH

#include "gridding/fft/fft_gpu.cuh"

/* The index of frequency f (0 .. n - 1, in FFT order) of a row of n cells in struct fft_rows' spectrum. */
int fft_rows_place(int n, int f);

/* Whether n is such a size; for those, fft_rows_place(), fft_convolve_rows() and fft_convolve_columns(). */
bool fft_in_halves(int n);
int fft_halves_place(int n, int f);

/* The number of twiddle factors between the stages of lines of n cells (0: no such size), and their values. */
int fft_halves_turns(int n);
void fft_halves_turns_fill(int n, float2 *turns);

int fft_halves_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows);
int fft_halves_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass);

#endif
