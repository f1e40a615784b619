/* volume_leaf.h: declarations shared by the writers of volumes. Only recon/volume/ includes this. */
#ifndef MRIRECON_VOLUME_LEAF_H
#define MRIRECON_VOLUME_LEAF_H

#include "recon/result_file.h"
#include "recon/volume/volume.h"

/* Number of nodes of all frames; false: it overflows. */
bool volume_count(size_t frames, const size_t size[3], size_t *nodes);
/* The same for a volume in memory, where it cannot overflow. */
size_t volume_nodes(const struct volume *volume);

/* Write all of the bytes. Fails with ERR_SPOOL_FULL (no space left), ERR_IO. */
static inline int volume_put(int fd, const void *bytes, size_t count)
{
    return result_put(fd, bytes, count, "The volume");
}

/* Size in pixels of the picture of a volume of this shape. */
void volume_picture_size(const struct volume *shape, size_t *width, size_t *height);

int volume_write_npy(const struct volume *volume, int fd);
int volume_write_dx(const struct volume *volume, int fd);
int volume_write_mrc(const struct volume *volume, int fd);
int volume_write_png(const struct volume *volume, int fd);

#endif
