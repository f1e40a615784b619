/* A GPU for machines without one, to be installed in place of mrirecon-gpu.so: the CPU's leaves under a GPU's name.
 * While the file $MRIRECON_FAKE_GPU contains a number, an upload of at least that many bytes fails with ERR_DEVICE, and
 * after it every call of this process on the device, as after a sticky error. While it contains "wrong", downloads
 * return twice the right values. $MRIRECON_FAKE_GPUS has a bit for each usable GPU (1: GPU 0 alone). With
 * $MRIRECON_FAKE_ABI the leaves have another version of the interface. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dev_leaf leaf;
static bool lost;

static int lose(void)
{
    lost = true;
    return err_set(ERR_DEVICE, "The upload failed: the pretended GPU is broken.");
}

static void order_read(char order[32])
{
    const char *path = getenv("MRIRECON_FAKE_GPU");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file || fscanf(file, "%31s", order) != 1)
        order[0] = '\0';
    if (file)
        fclose(file);
}

static bool breaks(size_t bytes)
{
    char order[32];
    size_t least;
    order_read(order);
    return lost || (sscanf(order, "%zu", &least) == 1 && bytes >= least);
}

static int fake_open(struct dev *dev, int index)
{
    const char *gpus = getenv("MRIRECON_FAKE_GPUS");
    dev->gpus = gpus ? strtoull(gpus, NULL, 0) : 1;
    if (index == DEV_ANY)
        for (index = 0; index < 63 && !(dev->gpus >> index & 1); index++)
            ;
    if (!(dev->gpus >> index & 1))
        return err_set(ERR_NO_DEVICE, "There is no pretended GPU %d.", index);
    int rc = dev_leaf_cpu.open(dev, index);
    snprintf(dev->name, sizeof dev->name, "gpu %d (pretended)", index);
    return rc;
}

static int fake_upload(struct dev *dev, void *device, const void *host, size_t bytes)
{
    return breaks(bytes) ? lose() : dev_leaf_cpu.upload(dev, device, host, bytes);
}

static void fake_fill_begin(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill)
{
    lost = breaks(bytes); /* the end tells it */
    if (!lost)
        dev_leaf_cpu.fill_begin(dev, device, bytes, fill);
}

static int fake_fill_end(struct dev *dev)
{
    return lost ? lose() : dev_leaf_cpu.fill_end(dev);
}

static int fake_download(struct dev *dev, void *host, const void *device, size_t bytes)
{
    if (lost)
        return lose();
    char order[32];
    order_read(order);
    int rc = dev_leaf_cpu.download(dev, host, device, bytes);
    for (size_t i = 0; strcmp(order, "wrong") == 0 && i < bytes / sizeof(float); i++)
        ((float *)host)[i] *= 2;
    return rc;
}

static int fake_zero(struct dev *dev, void *device, size_t bytes)
{
    return lost ? lose() : dev_leaf_cpu.zero(dev, device, bytes);
}

const struct dev_leaf *mrirecon_gpu_leaf(void)
{
    leaf = dev_leaf_cpu;
    leaf.open = fake_open;
    leaf.upload = leaf.upload_begin = fake_upload;
    leaf.fill_begin = fake_fill_begin;
    leaf.fill_end = fake_fill_end;
    leaf.download = fake_download;
    leaf.zero = fake_zero;
    leaf.abi += getenv("MRIRECON_FAKE_ABI") != NULL;
    return &leaf;
}
