/* num.h: the complex type of public headers, and overflow-checked arithmetic on sizes. */
#ifndef MRIRECON_NUM_H
#define MRIRECON_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A complex float32, laid out as `float _Complex`, fftwf_complex and cuComplex are. */
struct c32 {
    float re, im;
};

/* *out = a * b (or a + b); false, and *out unchanged, on overflow. */
static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
