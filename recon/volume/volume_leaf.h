/* volume_leaf.h: what the writers of volumes share. Only recon/volume/ includes this. */
#ifndef MRIRECON_VOLUME_LEAF_H
#define MRIRECON_VOLUME_LEAF_H

#include "recon/result_file.h"
#include "recon/volume/volume.h"

/* Nodes of all frames; false: too many to be counted. */
bool volume_count(size_t frames, const size_t size[3], size_t *nodes);
/* Of a volume that there is. */
size_t volume_nodes(const struct volume *volume);

/* Write all of the bytes. Fails with ERR_SPOOL_FULL (no space left), ERR_IO. */
static inline int volume_put(int fd, const void *bytes, size_t count)
{
    return result_put(fd, bytes, count, "The volume");
}

/* How many pixels across and down the picture of a volume of this shape has. */
void volume_picture_size(const struct volume *shape, size_t *width, size_t *height);

int volume_write_npy(const struct volume *volume, int fd);
int volume_write_dx(const struct volume *volume, int fd);
int volume_write_mrc(const struct volume *volume, int fd);
int volume_write_png(const struct volume *volume, int fd);

#endif
