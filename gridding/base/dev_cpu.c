/* dev_cpu.c: the CPU as a device. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/ask.h"
#include "gridding/base/cpu_set.h"
#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

static int cpu_open(struct dev *dev, int index)
{
    (void)index;
    if (!fft_cpu_available())
        return err_set(ERR_NO_DEVICE,
                       "This program was built without FFTW (make FFTW=0) and computes on GPUs only%s%s.",
                       dev->note[0] != '\0' ? ": " : "", dev->note);
    struct asker *asker = NULL;
    int rc = asker_create(&asker, NULL);
    if (rc)
        return rc;
    dev->state = asker;
    static const char *const simd[] = {[CPU_SSE2] = "SSE2", [CPU_AVX2] = "AVX2", [CPU_AVX512] = "AVX-512"};
    snprintf(dev->name, sizeof dev->name, "cpu (%s, %d thread%s)", simd[cpu_set_best()], dev->threads,
             dev->threads == 1 ? "" : "s");
    return 0;
}

static void cpu_close(struct dev *dev)
{
    asker_free(dev->state);
}

static int cpu_memory(struct dev *dev, size_t *available, size_t *total)
{
    (void)dev;
    host_memory(available, total);
    return 0;
}

static int cpu_alloc(struct dev *dev, size_t bytes, void **out)
{
    (void)dev;
    size_t rounded;
    void *memory = NULL;
    if (size_add(bytes, ALIGNMENT - 1, &rounded))
        memory = aligned_alloc(ALIGNMENT, rounded / ALIGNMENT * ALIGNMENT);
    if (!memory)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)bytes, (int64_t)host_memory_available(),
                             "%zu bytes of memory were needed but not available.", bytes);
    *out = memory;
    return 0;
}

static void cpu_release(struct dev *dev, void *memory)
{
    (void)dev;
    free(memory);
}

static int cpu_copy(struct dev *dev, void *to, const void *from, size_t bytes)
{
    return asker_copy(dev_asker(dev), to, from, bytes);
}

static void cpu_fill(struct dev *dev, void *memory, size_t bytes, const struct dev_fill *fill)
{
    (void)dev;
    fill->write(fill->of, 0, bytes, memory);
}

/* Copies are complete. */
static int cpu_nothing(struct dev *dev)
{
    (void)dev;
    return 0;
}

static int cpu_copy_between(struct dev *to, void *there, struct dev *from, const void *here, size_t bytes)
{
    (void)from;
    return cpu_copy(to, there, here, bytes);
}

static int cpu_zero(struct dev *dev, void *memory, size_t bytes)
{
    return asker_zero(dev_asker(dev), memory, bytes);
}

const struct dev_leaf dev_leaf_cpu = {
    .abi = DEV_LEAF_ABI,
    .open = cpu_open,
    .close = cpu_close,
    .memory = cpu_memory,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_copy,
    .upload_begin = cpu_copy,
    .upload_order = cpu_nothing,
    .fill_begin = cpu_fill,
    .fill_end = cpu_nothing,
    .download = cpu_copy,
    .zero = cpu_zero,
    .finish = cpu_nothing,
    .copy = cpu_copy_between,
    .nufft = &nufft_leaf_cpu,
    .convolution = &convolution_leaf_cpu,
    .range = &range_leaf_cpu,
    .vec = &vec_leaf_cpu,
    .sparse = &sparse_leaf_cpu,
    .fft = &fft_leaf_cpu,
    .split = &split_leaf_cpu,
};
