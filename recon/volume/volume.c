#include "recon/volume/volume_leaf.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool volume_count(size_t frames, const size_t size[3], size_t *nodes)
{
    *nodes = frames;
    return size_mul(*nodes, size[0], nodes) && size_mul(*nodes, size[1], nodes) && size_mul(*nodes, size[2], nodes);
}

int volume_create(struct volume **out, size_t frames, const size_t size[3])
{
    size_t nodes, bytes;
    if (!volume_count(frames, size, &nodes) || !size_mul(nodes, sizeof(float), &bytes))
        return err_set(ERR_NO_MEMORY, "%zu volumes of %zu x %zu x %zu nodes exceed any memory.", frames, size[0],
                       size[1], size[2]);
    struct volume *volume = calloc(1, sizeof *volume);
    if (volume)
        volume->data = malloc(bytes ? bytes : 1);
    if (!volume || !volume->data) {
        volume_free(volume);
        return err_no_memory_bytes(bytes, "a volume of %zu bytes", bytes);
    }
    volume->frames = frames;
    memcpy(volume->size, size, sizeof volume->size);
    *out = volume;
    return 0;
}

void volume_free(struct volume *volume)
{
    if (!volume)
        return;
    free(volume->data);
    free(volume);
}

size_t volume_nodes(const struct volume *volume)
{
    return volume->frames * volume->size[0] * volume->size[1] * volume->size[2];
}
