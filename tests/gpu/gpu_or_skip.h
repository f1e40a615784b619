/* gpu_or_skip.h: the start of each program of GPU tests. */
#ifndef MRIRECON_GPU_OR_SKIP_H
#define MRIRECON_GPU_OR_SKIP_H

#include "gridding/base/dev.h"
#include "gridding/base/err.h"

#include <stdio.h>
#include <stdlib.h>

/* Without a GPU the program ends here and reports all its tests as skipped. If a GPU exists but cannot be opened (for
 * instance because its library cannot be loaded), the program fails. */
static inline void gpu_or_skip(void)
{
    struct dev *dev;
    const int rc = dev_create(&dev, DEV_GPU, 0, 0);
    if (!rc) {
        dev_free(dev);
        return;
    }
    printf(rc == ERR_NO_DEVICE ? "1..0 # SKIP %s\n" : "Bail out! %s\n", err_last()->text);
    exit(rc == ERR_NO_DEVICE ? 0 : 1);
}

#endif
