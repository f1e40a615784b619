/* fft_none.c: replaces fft_cpu.c in a build without FFTW (make FFTW=0): the CPU is then not available as a device. */
#include "gridding/fft/fft_cpu.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

bool fft_cpu_available(void)
{
    return false;
}

int fft_cpu_create(struct fft_cpu **out, int n, int columns, int sign)
{
    (void)out;
    (void)columns;
    (void)sign;
    return err_set(ERR_NO_DEVICE, "There is no FFT of %d points on the CPU: this program was built without FFTW.", n);
}

void fft_cpu_free(struct fft_cpu *fft)
{
    (void)fft;
}

void fft_cpu_run(const struct fft_cpu *fft, struct c32 *values)
{
    (void)fft;
    (void)values;
}

int fft_cpu_real_create(struct fft_cpu **out, int n, int sign)
{
    return fft_cpu_create(out, n, 1, sign);
}

void fft_cpu_real_forth(const struct fft_cpu *fft, float *values, struct c32 *waves)
{
    (void)fft;
    (void)values;
    (void)waves;
}

void fft_cpu_real_back(const struct fft_cpu *fft, struct c32 *waves, float *values)
{
    (void)fft;
    (void)waves;
    (void)values;
}
