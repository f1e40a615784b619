/* Passes from images, of the sizes of fft_sizes.cuh. */
#include "gridding/fft/fft_sizes.cuh"

void (*fft_forth_kernel(int n, bool rows, fft_kind kind))(struct lines_args)
{
    if (kind == FFT_FORTH_IMAGE)
        return kernel_of_size<false, FFT_FORTH_IMAGE>(n);
    return rows ? kernel_of_size<true, FFT_FORTH>(n) : kernel_of_size<false, FFT_FORTH>(n);
}
