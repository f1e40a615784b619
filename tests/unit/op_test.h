/* op_test.h: the two identities of a linear operator (gridding/op.h), checked with random vectors and products in
 * double precision: <A x, y> = <x, A' y>     and, where there is a normal operator, normal = A' A. Include it after
 * cmocka.h and what that needs. */
#ifndef OP_TEST_H
#define OP_TEST_H

#include "gridding/op.h"
#include "tests/random.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

static inline struct c32 *op_test_random(struct dev *dev, size_t n, uint64_t seed)
{
    struct c32 *host = malloc((n + 1) * sizeof *host), *out = NULL;
    assert_non_null(host);
    for (size_t i = 0; i < n; i++)
        host[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.5)};
    assert_int_equal(dev_alloc(dev, (n + 1) * sizeof *out, (void **)&out), 0);
    assert_int_equal(dev_upload(dev, out, host, n * sizeof *out), 0);
    free(host);
    return out;
}

static inline double complex op_test_dot(struct dev *dev, size_t n, const struct c32 *a, const struct c32 *b)
{
    struct c32 *x = malloc((n + 1) * sizeof *x), *y = malloc((n + 1) * sizeof *y);
    double complex sum = 0;
    assert_true(x && y);
    assert_int_equal(dev_download(dev, x, a, n * sizeof *x), 0);
    assert_int_equal(dev_download(dev, y, b, n * sizeof *y), 0);
    for (size_t i = 0; i < n; i++)
        sum += conj((double)x[i].re + I * (double)x[i].im) * ((double)y[i].re + I * (double)y[i].im);
    free(x);
    free(y);
    return sum;
}

/* |a - b| / |b| */
static inline double op_test_distance(struct dev *dev, size_t n, const struct c32 *a, const struct c32 *b)
{
    const double aa = creal(op_test_dot(dev, n, a, a)), bb = creal(op_test_dot(dev, n, b, b));
    const double ab = creal(op_test_dot(dev, n, a, b));
    return sqrt(fmax(0, aa - 2 * ab + bb) / bb);
}

/* `adjoint_error` bounds |<A x, y> - <x, A' y>| relative to |A x| |y|; `normal_error` bounds |normal - A' A| relative
 * to |A' A x|. */
static inline void op_test(struct dev *dev, const struct op *op, double adjoint_error, double normal_error)
{
    struct c32 *x = op_test_random(dev, op->domain, 7), *y = op_test_random(dev, op->range, 8);
    struct c32 *ax = op_test_random(dev, op->range, 9), *ay = op_test_random(dev, op->domain, 10);
    assert_int_equal(op->forward(op->of, x, ax), 0);
    assert_int_equal(op->adjoint(op->of, y, ay), 0);
    const double size = sqrt(creal(op_test_dot(dev, op->range, ax, ax)) * creal(op_test_dot(dev, op->range, y, y)));
    const double complex left = op_test_dot(dev, op->range, ax, y), right = op_test_dot(dev, op->domain, x, ay);
    assert_true(size > 0);
    if (cabs(left - right) > adjoint_error * size)
        fail_msg("<Ax,y> and <x,A'y> differ by %g of |Ax||y|, allowed %g", cabs(left - right) / size, adjoint_error);
    if (op->normal) {
        assert_int_equal(op->adjoint(op->of, ax, ay), 0);
        struct c32 *r = op_test_random(dev, op->domain, 11);
        assert_int_equal(op->normal(op->of, x, r), 0);
        const double off = op_test_distance(dev, op->domain, r, ay);
        if (!(off <= normal_error))
            fail_msg("normal and A'A differ by %g, allowed %g", off, normal_error);
        dev_release(dev, r);
    }
    dev_release(dev, x);
    dev_release(dev, y);
    dev_release(dev, ax);
    dev_release(dev, ay);
}

#endif
