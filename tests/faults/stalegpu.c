/* A mrirecon-gpu.so of another build, to be installed in place of the real one: it needs a function that no program
 * defines. */
#include "gridding/base/dev_leaf.h"

const struct dev_leaf *function_of_another_build(void);

const struct dev_leaf *mrirecon_gpu_leaf(void)
{
    return function_of_another_build();
}
