/* solve_inside.h: what the solvers share. Only recon/solve/ includes this. */
#ifndef MRIRECON_SOLVE_INSIDE_H
#define MRIRECON_SOLVE_INSIDE_H

#include "recon/solve/solve.h"

/* `count` vectors of n elements in one allocation: vector[0 .. count). Release vector[0]. */
int solve_vectors(struct dev *dev, size_t n, int count, struct c32 **vector);

/* Before iteration `done`: tell the listener, look at the clock. *out is set where the time is over. */
int solve_turn(const struct solve_stop *stop, const struct solve_listener *listener, int done, double start,
               bool *over);

/* `value` of iteration `done` is not finite: ERR_DIVERGED with a sentence. */
int solve_nonfinite(const char *method, int done);

#endif
