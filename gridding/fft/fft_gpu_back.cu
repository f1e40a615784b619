/* Passes to images, of the sizes of fft_sizes.cuh. */
#include "gridding/fft/fft_sizes.cuh"

void (*fft_back_kernel(int n, bool rows, fft_kind kind))(struct lines_args)
{
    if (kind == FFT_BACK_IMAGE)
        return kernel_of_size<false, FFT_BACK_IMAGE>(n);
    return rows ? kernel_of_size<true, FFT_BACK>(n) : kernel_of_size<false, FFT_BACK>(n);
}
