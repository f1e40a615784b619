/* power.c: the largest eigenvalue by the power method. */
#include "recon/solve/solve_inside.h"

#include "gridding/base/err.h"
#include "gridding/base/vec.h"

#include <math.h>
#include <stdlib.h>

/* Pseudo-random numbers, the same on every run: splitmix64 (Steele et al. 2014, doi:10.1145/2660193.2660195). */
static float next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (float)(int32_t)((z ^ z >> 31) >> 32) * 0x1p-31f;
}

static int begin(struct dev *dev, size_t n, struct c32 *x)
{
    struct c32 *host = malloc(n * sizeof *host);
    uint64_t state = 1;
    if (!host)
        return err_no_memory_bytes(n * sizeof *host, "an eigenvector");
    for (size_t i = 0; i < n; i++)
        host[i] = (struct c32){next(&state), next(&state)};
    int rc = dev_upload(dev, x, host, n * sizeof *host);
    free(host);
    return rc;
}

int power_largest(struct dev *dev, const struct op *op, int iterations, const struct solve_listener *listener,
                  double *largest)
{
    struct c32 *vector[POWER_VECTORS] = {NULL};
    const size_t n = op->domain;
    double square = 0;
    int rc = solve_vectors(dev, n, POWER_VECTORS, vector);
    if (rc == 0)
        rc = begin(dev, n, vector[0]);
    if (rc == 0)
        rc = vec_dot(dev, n, vector[0], vector[0], &square);
    *largest = 0;
    for (int done = 0; done < iterations && rc == 0 && square > 0; done++) {
        struct c32 *x = vector[done & 1], *y = vector[!(done & 1)];
        rc = listener ? listener->iteration(listener->context, done, iterations) : 0;
        if (rc == 0)
            rc = vec_scale(dev, n, (float)(1 / sqrt(square)), x); /* x = x / |x| */
        if (rc == 0)
            rc = op->normal(op->of, x, y); /* y = N x */
        if (rc == 0)
            rc = vec_dot(dev, n, y, y, &square);
        if (rc == 0 && !isfinite(square))
            rc = solve_nonfinite("The power method", done, "");
        *largest = sqrt(square); /* |N x| */
    }
    dev_release(dev, vector[0]);
    return rc;
}
