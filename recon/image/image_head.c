#include "recon/image/image_head.h"

#include "gridding/base/err.h"

#include <string.h>

enum { LONGEST = 65535 /* matrix_size, channels, image_index are uint16 */ };

const char image_attributes[] = "<?xml version=\"1.0\"?>\n<ismrmrdMeta><meta><name>ImageProcessingHistory</name>"
                                "<value>mrirecond " MRIRECON_VERSION "</value></meta></ismrmrdMeta>\n";
/* A message's number, its header, the length of the attributes, and these. */
_Static_assert(sizeof(uint16_t) + sizeof(ISMRMRD_ImageHeader) + sizeof(uint64_t) + sizeof image_attributes - 1 <=
                   IMAGE_BEGINNING,
               "image_message_piece() puts them into memory of this size");

/* Members of an image's header that are also in struct image_info, under the second name. */
#define SHARED_MEMBERS(X)                     \
    X(measurement_uid, measurement_uid)       \
    X(field_of_view, fov_mm)                  \
    X(position, position)                     \
    X(read_dir, read_dir)                     \
    X(phase_dir, phase_dir)                   \
    X(slice_dir, slice_dir)                   \
    X(patient_table_position, table_position) \
    X(average, average)                       \
    X(slice, slice)                           \
    X(contrast, contrast)                     \
    X(phase, phase)                           \
    X(repetition, repetition)                 \
    X(set, set)                               \
    X(acquisition_time_stamp, time_stamp)     \
    X(image_index, index)                     \
    X(image_series_index, series)
#define SAME_SIZE(a, b) \
    _Static_assert(sizeof((ISMRMRD_ImageHeader){0}.a) == sizeof((struct image_info){0}.b), "copied as a whole");
SHARED_MEMBERS(SAME_SIZE)
#undef SAME_SIZE

int image_head_check(const struct image_series *series)
{
    if (series->count > LONGEST || series->channels > LONGEST || series->size[0] > LONGEST ||
        series->size[1] > LONGEST || series->size[2] > LONGEST)
        return err_set(
            ERR_LIMIT,
            "An ISMRMRD image file holds at most %d images, channels and pixels along an axis; this series has "
            "%zu images. Ask for npy.",
            LONGEST, series->count);
    return 0;
}

void image_head_fill(ISMRMRD_ImageHeader *head, const struct image_series *series, size_t index)
{
    const struct image_info *info = &series->info[index];
    memset(head, 0, sizeof *head);
    head->version = 1;
    head->data_type = series->complex_valued ? ISMRMRD_CXFLOAT : ISMRMRD_FLOAT;
    head->image_type = series->complex_valued ? ISMRMRD_IMTYPE_COMPLEX
                       : series->phases       ? ISMRMRD_IMTYPE_PHASE
                                              : ISMRMRD_IMTYPE_MAGNITUDE;
    for (int d = 0; d < 3; d++)
        head->matrix_size[d] = (uint16_t)series->size[d];
    head->channels = (uint16_t)series->channels;
#define TO_HEAD(a, b) memcpy(&head->a, &info->b, sizeof head->a);
    SHARED_MEMBERS(TO_HEAD)
#undef TO_HEAD
    head->attribute_string_len = (uint32_t)strlen(image_attributes);
}

void image_head_read(struct image_info *info, const ISMRMRD_ImageHeader *head)
{
#define TO_INFO(a, b) memcpy(&info->b, &head->a, sizeof info->b);
    SHARED_MEMBERS(TO_INFO)
#undef TO_INFO
}
