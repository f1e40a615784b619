/* The picture of a mesh as PNG. */
#include "recon/mesh/mesh_leaf.h"

#include "gridding/base/err.h"

#include <png.h>
#include <stdlib.h>

static int picture_encode(const struct mesh_picture *picture, int fd)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)picture->width,
                       .height = (png_uint_32)picture->height,
                       .format = PNG_FORMAT_RGB};
    struct mesh_sink sink = {.fd = fd};
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *memory = malloc(bytes);
    if (!memory)
        return err_no_memory("encoding the picture of a mesh");
    if (png_image_write_to_memory(&image, memory, &bytes, 0, picture->rgb, 0, NULL)) {
        mesh_put(&sink, memory, bytes);
        mesh_sink_end(&sink);
    } else {
        sink.rc = err_set(ERR_INTERNAL, "The picture could not be encoded: %s.", image.message);
    }
    free(memory);
    return sink.rc;
}

int mesh_write_png(const struct mesh *mesh, int fd)
{
    struct mesh_picture picture;
    int rc = mesh_render(&picture, mesh);
    if (rc != 0)
        return rc;
    rc = picture_encode(&picture, fd);
    free(picture.rgb);
    return rc;
}
