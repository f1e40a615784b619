/* A volume as a file of any format. */
#include "recon/volume/volume_leaf.h"

bool volume_file_most(const struct volume *shape, enum volume_format format, size_t *bytes)
{
    /* Upper bounds of a head and of a node as text. Incompressible data grow by less than a hundredth. */
    enum { HEAD = 64 << 10, TEXT = 17, PACKED_SHARE = 100 };
    size_t nodes, all, width, height;
    if (!volume_count(shape->frames, shape->size, &nodes))
        return false;
    if (format == VOLUME_PNG) {
        volume_picture_size(shape, &width, &height);
        all = width * height * 3;
        all += all / PACKED_SHARE;
    } else if (!size_mul(nodes, format == VOLUME_DX ? TEXT : sizeof(float), &all)) {
        return false;
    }
    return size_add(all, HEAD, bytes);
}

int volume_write(const struct volume *volume, enum volume_format format, int fd)
{
    static int (*const writers[VOLUME_FORMATS])(const struct volume *volume, int fd) = {
        [VOLUME_NPY] = volume_write_npy,
        [VOLUME_DX] = volume_write_dx,
        [VOLUME_MRC] = volume_write_mrc,
        [VOLUME_PNG] = volume_write_png,
    };
    return writers[format](volume, fd);
}

int volume_result_write(const void *volume, int format, int fd)
{
    return volume_write(volume, (enum volume_format)format, fd);
}

void volume_result_free(void *volume)
{
    volume_free(volume);
}

int volume_convert(int in, int format, int out)
{
    struct volume *volume = NULL;
    int rc = volume_read(&volume, in);
    if (rc == 0)
        rc = volume_write(volume, (enum volume_format)format, out);
    volume_free(volume);
    return rc;
}
