/* An MRD version 1 stream of images, as Gadgetron's and FIRE's clients read it: the scan's header (message 3), each
 * image (1022: header, length of its attributes, attributes, pixels), and the end (4); little-endian. */
#include "gridding/base/err.h"
#include "recon/image/image_head.h"
#include "recon/image/image_leaf.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are written as they stand in memory: little-endian"
#endif

enum { MESSAGE_HEADER = 3, MESSAGE_CLOSE = 4, MESSAGE_IMAGE = 1022 };

_Static_assert(sizeof(ISMRMRD_ImageHeader) == 198, "packed, as it is sent");

static int header_put(const char *xml, int fd)
{
    const uint16_t id = MESSAGE_HEADER;
    const uint32_t length = (uint32_t)strlen(xml);
    int rc = image_put(fd, &id, sizeof id);
    if (rc == 0)
        rc = image_put(fd, &length, sizeof length);
    return rc == 0 ? image_put(fd, xml, length) : rc;
}

static size_t pixel_bytes(const struct image_series *series)
{
    return series->channels * image_pixels(series) * image_lanes(series) * sizeof(float);
}

size_t image_message_bytes(const struct image_series *series)
{
    return sizeof(uint16_t) + sizeof(ISMRMRD_ImageHeader) + sizeof(uint64_t) + strlen(image_attributes) +
           pixel_bytes(series);
}

/* Everything before the pixels: its bytes. */
static size_t beginning_put(const struct image_series *series, size_t index, char *to)
{
    const uint16_t id = MESSAGE_IMAGE;
    ISMRMRD_ImageHeader head;
    char *at = to;
    image_head_fill(&head, series, index);
    const uint64_t attributes = head.attribute_string_len;
    at = mempcpy(at, &id, sizeof id);
    at = mempcpy(at, &head, sizeof head);
    at = mempcpy(at, &attributes, sizeof attributes);
    at = mempcpy(at, image_attributes, attributes);
    return (size_t)(at - to);
}

const void *image_message_piece(const struct image_series *series, size_t index, size_t at,
                                char beginning[IMAGE_BEGINNING], size_t *count)
{
    const size_t all = image_message_bytes(series), begins = all - pixel_bytes(series);
    if (image_head_check(series) != 0)
        return NULL;
    if (at < begins) {
        *count = beginning_put(series, index, beginning) - at;
        return beginning + at;
    }
    *count = all - at;
    return (const char *)image_plane(series, index, 0) + (at - begins);
}

static int message_put(const struct image_series *series, size_t index, int fd)
{
    char beginning[IMAGE_BEGINNING];
    int rc = 0;
    for (size_t at = 0, count; at < image_message_bytes(series) && rc == 0; at += count) {
        const void *piece = image_message_piece(series, index, at, beginning, &count);
        rc = piece ? image_put(fd, piece, count) : err_last()->code;
    }
    return rc;
}

int image_write_mrd(const struct image_series *series, int fd)
{
    const uint16_t end = MESSAGE_CLOSE;
    int rc = image_head_check(series);
    if (rc == 0 && series->xml)
        rc = header_put(series->xml, fd);
    for (size_t i = 0; i < series->count && rc == 0; i++)
        rc = message_put(series, i, fd);
    return rc == 0 ? image_put(fd, &end, sizeof end) : rc;
}
