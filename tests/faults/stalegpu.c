/* A mrirecon-gpu.so of another build, to be laid where it is looked for: it takes a function that no program has. */
#include "gridding/base/dev_leaf.h"

const struct dev_leaf *function_of_another_build(void);

const struct dev_leaf *mrirecon_gpu_leaf(void)
{
    return function_of_another_build();
}
