/* fft_halves.cuh: the passes of a convolution on a grid of at least twice the image, which needs no transform of its
 * whole length: its even and its odd frequencies are each a transform of half as many cells, of which the image fills
 * all, the odd ones' after a turn of every cell. fft_convolve_rows() and fft_convolve_columns() take these passes for
 * sizes whose halves take two stages. */
#ifndef MRIRECON_FFT_HALVES_CUH
#define MRIRECON_FFT_HALVES_CUH

#include "gridding/fft/fft_gpu.cuh"

/* Where frequency f (0 .. n - 1, in FFT order) of a row of n cells stands in struct fft_rows' spectrum. */
int fft_rows_place(int n, int f);

/* Whether n is such a size; for those, fft_rows_place(), fft_convolve_rows() and fft_convolve_columns(). */
bool fft_in_halves(int n);
int fft_halves_place(int n, int f);
int fft_halves_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows);
int fft_halves_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass);

#endif
