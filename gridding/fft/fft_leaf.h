/* fft_leaf.h: the functions behind fft.h, for each kind of device. Only gridding/fft/ includes this. */
#ifndef MRIRECON_FFT_LEAF_H
#define MRIRECON_FFT_LEAF_H

#include "gridding/base/dev_leaf.h"
#include "gridding/fft/fft.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fft_leaf {
    bool (*serves)(int n);
    int (*create)(void **state, struct dev *dev, int n);
    void (*destroy)(void *state, struct dev *dev);
    int (*centred)(void *state, struct dev *dev, size_t sets, size_t columns, struct c32 *values);
};

#ifdef __cplusplus
}
#endif
#endif
