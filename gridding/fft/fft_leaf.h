/* fft_leaf.h: the functions behind fft.h and fields.h, for each kind of device. Only gridding/fft/ includes this. */
#ifndef MRIRECON_FFT_LEAF_H
#define MRIRECON_FFT_LEAF_H

#include "gridding/base/dev_leaf.h"
#include "gridding/fft/fft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of fields.h. */
struct fields_leaf {
    bool (*serves)(int n);
    size_t (*bytes)(int n);
    int (*create)(void **state, struct dev *dev, int n, const float *factor);
    void (*destroy)(void *state);
    int (*run)(void *state, float *grid);
};

struct fft_leaf {
    bool (*serves)(int n);
    int (*create)(void **state, struct dev *dev, int n);
    void (*destroy)(void *state, struct dev *dev);
    int (*centred)(void *state, struct dev *dev, size_t sets, size_t columns, struct c32 *values);
    const struct fields_leaf *fields; /* NULL: this device has none */
};

extern const struct fields_leaf fields_leaf_gpu;

#ifdef __cplusplus
}
#endif
#endif
