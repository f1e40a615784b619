/* A GPU that fails on command, for tests. It takes the place of mrirecon-gpu.so, forwards every call to
 * mrirecon-gpu-real.so beside it, and reads the file $MRIRECON_POISON before an upload of at least LEAST bytes. If that
 * contains a number above 0, it decrements the number and launches a kernel that writes to an invalid address: a real
 * sticky error, after which no call of this process succeeds on the device. Smaller uploads are spared, so that a
 * worker's device test succeeds at its start. */
#include "gridding/base/dev_leaf.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

enum { LEAST = 32768 };

static struct dev_leaf leaf;
static const struct dev_leaf *real_leaf;

/* <<<1, 1>>> */
static __global__ void write_nowhere(int *nowhere)
{
    *nowhere = 1;
}

static void poison(size_t bytes)
{
    if (bytes < LEAST)
        return;
    const char *path = getenv("MRIRECON_POISON");
    int left = 0;
    FILE *file = path ? fopen(path, "r+e") : NULL;
    if (!file)
        return;
    if (fscanf(file, "%d", &left) == 1 && left > 0) {
        rewind(file);
        fprintf(file, "%d\n", left - 1);
        fflush(file);
        write_nowhere<<<1, 1>>>(NULL);
        (void)cudaDeviceSynchronize(); /* its error is left for the real leaf to find */
    }
    fclose(file);
}

static int upload(struct dev *dev, void *device, const void *host, size_t bytes)
{
    poison(bytes);
    return real_leaf->upload(dev, device, host, bytes);
}

static int upload_begin(struct dev *dev, void *device, const void *host, size_t bytes)
{
    poison(bytes);
    return real_leaf->upload_begin(dev, device, host, bytes);
}

static void fill_begin(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill)
{
    poison(bytes);
    real_leaf->fill_begin(dev, device, bytes, fill);
}

extern "C" const struct dev_leaf *mrirecon_gpu_leaf(void)
{
    Dl_info self;
    char path[4096];
    if (!dladdr((void *)mrirecon_gpu_leaf, &self) || !strrchr(self.dli_fname, '/'))
        return NULL;
    snprintf(path, sizeof path, "%.*s/mrirecon-gpu-real.so", (int)(strrchr(self.dli_fname, '/') - self.dli_fname),
             self.dli_fname);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct dev_leaf *(*open_leaf)(void) =
        library ? (const struct dev_leaf *(*)(void))dlsym(library, DEV_GPU_SYMBOL) : NULL;
    if (!open_leaf)
        return NULL;
    real_leaf = open_leaf();
    leaf = *real_leaf;
    leaf.upload = upload;
    leaf.upload_begin = upload_begin;
    leaf.fill_begin = fill_begin;
    return &leaf;
}
