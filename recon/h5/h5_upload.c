/* A libhdf5 file driver for the upload: it is read in place, and reports the address of an item in memory. */
#include "recon/h5/h5_upload.h"

#include "gridding/base/err.h"
#include "recon/h5/h5_length.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Between two looks for more bytes: at first, and as the sender rests. */
    WAIT_SOON_NS = 50000,
    WAIT_MOST_NS = 2000000,
    SOON_NS = 20000000 /* how long it is "at first" */
};

void h5_upload_wait(struct h5_upload *h5, uint64_t end)
{
    for (long waited = 0; h5->growing >= 0 && h5->there < end;) {
        const off_t size = lseek(h5->growing, 0, SEEK_END);
        const uint64_t there = size > 0 ? (uint64_t)size : 0;
        waited = there > h5->there ? 0 : waited;
        h5->there = there;
        if (there >= end)
            return;
        const long ns = waited < SOON_NS ? WAIT_SOON_NS : WAIT_MOST_NS;
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        waited += waited < SOON_NS ? ns : 0;
    }
}

/* The driver's open file: H5FD_t first. */
struct open_file {
    H5FD_t base;
    struct h5_upload *h5;
    haddr_t allocated;
};

static H5FD_t *upload_open(const char *name, unsigned flags, hid_t plist, haddr_t most)
{
    (void)name;
    (void)flags;
    (void)most;
    struct h5_upload *const *h5 = H5Pget_driver_info(plist);
    struct open_file *file = h5 ? calloc(1, sizeof *file) : NULL;
    if (!file)
        return NULL;
    file->h5 = *h5;
    return &file->base;
}

static herr_t upload_close(H5FD_t *base)
{
    free(base);
    return 0;
}

static haddr_t upload_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct open_file *)base)->allocated;
}

static herr_t upload_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t at)
{
    (void)type;
    ((struct open_file *)base)->allocated = at;
    return 0;
}

static haddr_t upload_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct open_file *)base)->h5->bytes;
}

static herr_t upload_read(H5FD_t *base, H5FD_mem_t type, hid_t plist, haddr_t at, size_t size, void *buffer)
{
    (void)plist;
    struct h5_upload *h5 = ((struct open_file *)base)->h5;
    if (at > h5->bytes || size > h5->bytes - at)
        return -1;
    h5_upload_wait(h5, at + size);
    if (h5->place && type == H5FD_MEM_DRAW)
        *h5->place = (struct h5_place){h5->image + at, size};
    else
        memcpy(buffer, h5->image + at, size);
    return 0;
}

static herr_t upload_write(H5FD_t *base, H5FD_mem_t type, hid_t plist, haddr_t at, size_t size, const void *buffer)
{
    (void)base;
    (void)type;
    (void)plist;
    (void)at;
    (void)size;
    (void)buffer;
    return -1;
}

static hid_t driver_register(void)
{
    static const H5FD_class_t driver = {
        .name = "mrirecon-upload",
        .maxaddr = HADDR_MAX,
        .fc_degree = H5F_CLOSE_STRONG,
        .fapl_size = sizeof(struct h5_upload *),
        .open = upload_open,
        .close = upload_close,
        .get_eoa = upload_get_eoa,
        .set_eoa = upload_set_eoa,
        .get_eof = upload_get_eof,
        .read = upload_read,
        .write = upload_write,
        .fl_map = H5FD_FLMAP_SINGLE,
    };
    return H5FDregister(&driver);
}

/* libhdf5 keeps the lists that it has read in its metadata cache, of up to 32 MB by default. None is read twice, so 1
 * MB is enough. */
static herr_t cache_set(hid_t plist)
{
    enum { BYTES = 1 << 20 };
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(plist, &config) < 0)
        return -1;
    config.set_initial_size = 1;
    config.initial_size = config.max_size = config.min_size = BYTES;
    return H5Pset_mdc_config(plist, &config);
}

/* Addresses and lengths in the file have 8 bytes, as libhdf5 writes them, so items have the same size in the file as in
 * memory. Addresses count from the end of the user block. */
static bool layout_read(struct h5_upload *h5)
{
    hid_t plist = H5Fget_create_plist(h5->file);
    size_t address = 0, length = 0;
    hsize_t block = 0;
    bool read = plist >= 0 && H5Pget_sizes(plist, &address, &length) >= 0 && H5Pget_userblock(plist, &block) >= 0;
    H5Pclose(plist);
    h5->base = block;
    return read && address == 8 && length == 8 && block <= h5->bytes;
}

int h5_upload_open(struct h5_upload *h5, const void *image, size_t bytes, int growing)
{
    *h5 = (struct h5_upload){.file = -1, .driver = -1, .image = image, .bytes = bytes, .growing = growing};
    h5_upload_wait(h5, bytes < H5_LENGTH_HEAD ? bytes : H5_LENGTH_HEAD);
    uint64_t promised = h5_length(image, growing < 0 || bytes < H5_LENGTH_HEAD ? bytes : H5_LENGTH_HEAD);
    if (promised > bytes)
        return err_set_bytes(ERR_TRUNCATED, promised > INT64_MAX ? INT64_MAX : (int64_t)promised, (int64_t)bytes,
                             "The HDF5 file is truncated: it should have %llu bytes and has only %zu. The transfer, or "
                             "the program that wrote it, was interrupted: send the complete file.",
                             (unsigned long long)promised, bytes);
    h5->driver = driver_register();
    hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
    if (h5->driver >= 0 && plist >= 0 && H5Pset_driver(plist, h5->driver, &h5) >= 0 &&
        H5Pset_fclose_degree(plist, H5F_CLOSE_STRONG) >= 0 && cache_set(plist) >= 0)
        h5->file = H5Fopen("scan", H5F_ACC_RDONLY, plist);
    H5Pclose(plist);
    if (h5->file < 0 || !layout_read(h5))
        return err_set(ERR_MALFORMED_FILE, "The file begins like HDF5, but is damaged and cannot be opened. Send it "
                                           "again, and check it with h5dump -H.");
    return 0;
}

void h5_upload_close(struct h5_upload *h5)
{
    if (h5->file >= 0)
        H5Fclose(h5->file);
    if (h5->driver >= 0)
        H5FDunregister(h5->driver); /* libhdf5 reads it after its last file was closed */
    h5->file = h5->driver = -1;
}
