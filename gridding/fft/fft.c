#include "gridding/fft/fft.h"

#include "gridding/base/err.h"
#include "gridding/fft/fft_leaf.h"

#include <stdlib.h>

struct fft {
    struct dev *dev;
    void *state;
};

bool fft_serves(const struct dev *dev, int n)
{
    return n >= 1 && dev->leaf->fft && dev->leaf->fft->serves(n);
}

int fft_create(struct fft **out, struct dev *dev, int n)
{
    if (!fft_serves(dev, n))
        return err_set(ERR_NO_DEVICE, "Device %s has no Fourier transform of %d points.", dev->name, n);
    struct fft *fft = calloc(1, sizeof *fft);
    if (!fft)
        return err_no_memory("a Fourier transform");
    fft->dev = dev;
    int rc = dev->leaf->fft->create(&fft->state, dev, n);
    if (rc == 0)
        *out = fft;
    else
        free(fft);
    return rc;
}

void fft_free(struct fft *fft)
{
    if (!fft)
        return;
    fft->dev->leaf->fft->destroy(fft->state, fft->dev);
    free(fft);
}

int fft_centred(struct fft *fft, size_t sets, size_t columns, struct c32 *values)
{
    return sets == 0 || columns == 0 ? 0 : fft->dev->leaf->fft->centred(fft->state, fft->dev, sets, columns, values);
}
