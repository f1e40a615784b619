#include "recon/image/image_h5_fd.h"

#include "recon/result_file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* State of an open file: H5FD_t must be first. */
struct h5_file {
    H5FD_t base;
    struct h5_fd *io;
    haddr_t allocated, end;
};

static H5FD_t *fd_open(const char *name, unsigned flags, hid_t plist, haddr_t most)
{
    (void)name;
    (void)flags;
    (void)most;
    struct h5_fd *const *io = H5Pget_driver_info(plist);
    /* Without fstat, which the codec's sandbox refuses: glibc implements it with a system call that can also look up
     * names. */
    off_t end = io ? lseek((*io)->fd, 0, SEEK_END) : -1;
    if (end < 0)
        return NULL;
    struct h5_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->io = *io;
    file->end = (haddr_t)end;
    return &file->base;
}

static herr_t fd_close(H5FD_t *base)
{
    free(base);
    return 0;
}

static herr_t fd_query(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t fd_get_eoa(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct h5_file *)base)->allocated;
}

static herr_t fd_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t at)
{
    (void)type;
    ((struct h5_file *)base)->allocated = at;
    return 0;
}

static haddr_t fd_get_eof(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const struct h5_file *)base)->end;
}

static herr_t fd_read(H5FD_t *base, H5FD_mem_t type, hid_t plist, haddr_t at, size_t size, void *buffer)
{
    (void)type;
    (void)plist;
    struct h5_file *file = (struct h5_file *)base;
    char *to = buffer;
    while (size) {
        ssize_t done = pread(file->io->fd, to, size, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            if (!file->io->error) /* data of a dropped write cannot be read back */
                file->io->error = done < 0 ? errno : EIO;
            return -1;
        }
        to += done;
        at += (haddr_t)done;
        size -= (size_t)done;
    }
    return 0;
}

/* After a failed write, all further writes are dropped and reported as successful: if it learns of a failure, HDF5
 * keeps the file open and writes again when the process ends, or crashes. The caller checks h5_fd.error. */
static herr_t fd_write(H5FD_t *base, H5FD_mem_t type, hid_t plist, haddr_t at, size_t size, const void *buffer)
{
    (void)type;
    (void)plist;
    struct h5_file *file = (struct h5_file *)base;
    const char *from = buffer;
    if (at + size > file->end)
        file->end = at + size;
    while (size && !file->io->error) {
        if (result_canceled()) {
            file->io->error = ECANCELED;
            break;
        }
        ssize_t done = pwrite(file->io->fd, from, size < RESULT_PIECE ? size : RESULT_PIECE, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            file->io->error = done < 0 ? errno : EIO;
            break;
        }
        from += done;
        at += (haddr_t)done;
        size -= (size_t)done;
    }
    return 0;
}

static herr_t fd_truncate(H5FD_t *base, hid_t plist, hbool_t closing)
{
    (void)plist;
    (void)closing;
    struct h5_file *file = (struct h5_file *)base;
    if (file->allocated != file->end && !file->io->error && ftruncate(file->io->fd, (off_t)file->allocated) != 0)
        file->io->error = errno;
    file->end = file->allocated;
    return 0;
}

hid_t h5_fd_register(void)
{
    static const H5FD_class_t driver = {
        .name = "mrirecon-fd",
        .maxaddr = HADDR_MAX,
        .fc_degree = H5F_CLOSE_STRONG,
        .fapl_size = sizeof(struct h5_fd *),
        .open = fd_open,
        .close = fd_close,
        .query = fd_query,
        .get_eoa = fd_get_eoa,
        .set_eoa = fd_set_eoa,
        .get_eof = fd_get_eof,
        .read = fd_read,
        .write = fd_write,
        .truncate = fd_truncate,
        .fl_map = H5FD_FLMAP_DICHOTOMY,
    };
    return H5FDregister(&driver);
}
