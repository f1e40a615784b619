#include "recon/solve/solve_inside.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"

int solve_vectors(struct dev *dev, size_t n, int count, struct c32 **vector)
{
    size_t elements, bytes;
    if (!size_mul(n, (size_t)count, &elements) || !size_mul(elements, sizeof **vector, &bytes))
        return err_set(ERR_NO_MEMORY, "%d vectors of %zu elements cannot be counted in bytes.", count, n);
    int rc = dev_alloc(dev, bytes, (void **)&vector[0]);
    for (int i = 1; i < count && rc == 0; i++)
        vector[i] = vector[0] + (size_t)i * n;
    return rc;
}

int solve_iterate(void *of, int (*step)(void *of, int done), double (*residual)(const void *of),
                  const struct solve_stop *stop, const struct solve_listener *listener, struct solve_result *result)
{
    const double start = clock_seconds();
    for (int done = 0;; done++) {
        result->iterations = done;
        result->residual = done > 0 ? residual(of) : 1;
        result->end = done > 0 && result->residual <= stop->tolerance ? SOLVE_TOLERANCE : SOLVE_ITERATIONS;
        if (result->end == SOLVE_TOLERANCE || done == stop->iterations)
            return 0;
        if (stop->seconds > 0 && done > 0 && clock_seconds() - start > stop->seconds) {
            result->end = SOLVE_SECONDS;
            return 0;
        }
        int rc = listener ? listener->iteration(listener->context, done, stop->iterations) : 0;
        if (rc == 0)
            rc = step(of, done);
        if (rc != 0)
            return rc;
    }
}

int solve_nonfinite(const char *method, int done, const char *image)
{
    return err_set(
        ERR_DIVERGED,
        "%s met a value that is not finite in iteration %d%s: the k-space samples, the density weights or the "
        "coil maps are not what the method can use. method=adjoint shows an image of the same samples.",
        method, done + 1, image);
}
