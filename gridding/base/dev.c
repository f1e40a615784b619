#include "gridding/base/cores.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Load the library of the GPU's leaves. It stays open: the CUDA runtime does not survive being unloaded. */
static int library_load(const char *path, const struct dev_leaf **leaf)
{
    static const char advice[] = "Install both from the same build, or remove it to compute on the CPU";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(
            ERR_INTERNAL,
            "The library mrirecon-gpu.so cannot be loaded: it is of another build than this program, damaged, or not "
            "readable in the folder where it is or leads to. %s (%.400s).",
            advice, dlerror());
    const struct dev_leaf *(*open_leaf)(void);
    *(void **)&open_leaf = dlsym(library, DEV_GPU_SYMBOL);
    *leaf = open_leaf ? open_leaf() : NULL;
    if (!*leaf || (*leaf)->abi != DEV_LEAF_ABI)
        return err_set(
            ERR_INTERNAL,
            "The library mrirecon-gpu.so is of another build than this program. %s (its interface differs: %.400s).",
            advice, path);
    return 0;
}

/* Find mrirecon-gpu.so, relative to the program, as in an installation, a bundle or a build folder. *leaf is NULL, and
 * `note` has the reason, if there is no such file. A file that cannot be loaded is a failure: the installation is
 * broken, and computing on the CPU instead would hide that. */
static int gpu_leaf(const struct dev_leaf **leaf, char *note, size_t note_size)
{
    static const char *const places[] = {"/../lib/mrirecon/mrirecon-gpu.so", "/mrirecon-gpu.so"};
    char program[PATH_MAX], path[PATH_MAX + 64];
    *leaf = NULL;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) {
        snprintf(note, note_size, "the program's own path cannot be read, so mrirecon-gpu.so was not looked for");
        return 0;
    }
    program[length] = '\0';
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s", program, places[i]);
        if (access(path, R_OK) == 0)
            return library_load(path, leaf);
    }
    snprintf(note, note_size, "this program was built without CUDA (no mrirecon-gpu.so beside it)");
    return 0;
}

int dev_create(struct dev **out, enum dev_kind kind, int index, int threads)
{
    struct dev *dev = calloc(1, sizeof *dev);
    if (!dev)
        return err_no_memory("a device");
    dev->threads = threads > 0 ? threads : cores_available();
    dev->parts = 1;
    if (kind != DEV_CPU) {
        int rc = gpu_leaf(&dev->leaf, dev->note, sizeof dev->note);
        if (rc) {
            free(dev);
            return rc;
        }
        if (dev->leaf) {
            dev->gpu = true;
            if (dev->leaf->open(dev, kind == DEV_AUTO ? DEV_ANY : index) == 0) {
                *out = dev;
                return 0;
            }
            dev->gpu = false;
            snprintf(dev->note, sizeof dev->note, "%.200s", err_last()->text);
        }
        if (kind == DEV_GPU) {
            rc = err_set(ERR_NO_DEVICE, "GPU %d cannot be used: %s", index, dev->note);
            free(dev);
            return rc;
        }
    }
    dev->leaf = &dev_leaf_cpu;
    int rc = dev->leaf->open(dev, 0);
    if (rc) {
        free(dev);
        return rc;
    }
    *out = dev;
    return 0;
}

void dev_free(struct dev *dev)
{
    if (!dev)
        return;
    for (int p = 1; p < dev->parts; p++)
        dev_free(dev->part[p - 1]);
    dev->leaf->close(dev);
    free(dev);
}

int dev_parts(const struct dev *dev)
{
    return dev->parts;
}

struct dev *dev_part(struct dev *dev, int part)
{
    return part == 0 ? dev : dev->part[part - 1];
}

int dev_finish(struct dev *dev)
{
    return dev->leaf->finish(dev);
}

int dev_copy(struct dev *to, void *there, struct dev *from, const void *here, size_t bytes)
{
    return bytes == 0 ? 0 : to->leaf->copy(to, there, from, here, bytes);
}

bool dev_is_gpu(const struct dev *dev)
{
    return dev->gpu;
}

const char *dev_name(const struct dev *dev)
{
    return dev->name;
}

const char *dev_note(const struct dev *dev)
{
    return dev->note;
}

int dev_threads(const struct dev *dev)
{
    return dev->threads;
}

uint64_t dev_gpus(const struct dev *dev)
{
    return dev->gpus;
}

int dev_memory(struct dev *dev, size_t *available, size_t *total)
{
    return dev->leaf->memory(dev, available, total);
}

int dev_alloc(struct dev *dev, size_t bytes, void **out)
{
    if (bytes == 0) {
        *out = NULL;
        return 0;
    }
    return dev->leaf->alloc(dev, bytes, out);
}

void dev_release(struct dev *dev, void *memory)
{
    if (memory)
        dev->leaf->release(dev, memory);
}

int dev_upload_begin(struct dev *dev, void *device, const void *host, size_t bytes)
{
    return bytes == 0 ? 0 : dev->leaf->upload_begin(dev, device, host, bytes);
}

void dev_fill_begin(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill)
{
    if (bytes > 0)
        dev->leaf->fill_begin(dev, device, bytes, fill);
}

int dev_fill_end(struct dev *dev)
{
    return dev->leaf->fill_end(dev);
}

int dev_upload_fill(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill)
{
    dev_fill_begin(dev, device, bytes, fill);
    return dev_fill_end(dev);
}

int dev_upload_order(struct dev *dev)
{
    return dev->leaf->upload_order(dev);
}

int dev_upload(struct dev *dev, void *device, const void *host, size_t bytes)
{
    return bytes == 0 ? 0 : dev->leaf->upload(dev, device, host, bytes);
}

int dev_download(struct dev *dev, void *host, const void *device, size_t bytes)
{
    return bytes == 0 ? 0 : dev->leaf->download(dev, host, device, bytes);
}

int dev_zero(struct dev *dev, void *device, size_t bytes)
{
    return bytes == 0 ? 0 : dev->leaf->zero(dev, device, bytes);
}

/* The first copy between two devices sets up their access to each other's memory: here, before a job's time runs. */
static int access_set_up(struct dev *dev, struct dev *part)
{
    void *here = NULL, *there = NULL;
    int rc = dev_alloc(dev, 1, &here);
    if (rc == 0)
        rc = dev_zero(dev, here, 1);
    if (rc == 0)
        rc = dev_alloc(part, 1, &there);
    if (rc == 0)
        rc = dev_copy(part, there, dev, here, 1);
    dev_release(part, there);
    dev_release(dev, here);
    return rc;
}

int dev_join(struct dev *dev, int index)
{
    struct dev *part = NULL;
    if (dev->parts == DEV_PARTS_MOST)
        return err_set(ERR_BAD_PARAMETER, "At most %d devices share one job.", DEV_PARTS_MOST);
    int rc = dev_create(&part, dev->gpu ? DEV_GPU : DEV_CPU, index, dev->threads);
    if (rc)
        return rc;
    rc = access_set_up(dev, part);
    if (rc) {
        dev_free(part);
        return rc;
    }
    const size_t length = strlen(dev->name);
    snprintf(dev->name + length, sizeof dev->name - length, " + %s", part->name);
    dev->part[dev->parts++ - 1] = part;
    return 0;
}

void *dev_direct(const struct dev *dev, void *device)
{
    return dev->gpu ? NULL : device;
}
