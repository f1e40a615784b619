/* Passes that add up parts of sums as they read them, of the sizes of fft_sizes.cuh. */
#include "gridding/fft/fft_sizes.cuh"

void (*fft_sums_kernel(int n, fft_kind kind))(struct lines_args)
{
    return kind == FFT_BACK_SLOTS ? kernel_of_size<true, FFT_BACK_SLOTS>(n) : kernel_of_size<true, FFT_BACK_BRICKS>(n);
}
