/* image_fixture.h: series of images whose pixels are all different, and the folder that they are written to. Each test
 * program is a single source file that includes this header. */
#ifndef MRIRECON_IMAGE_FIXTURE_H
#define MRIRECON_IMAGE_FIXTURE_H

#include "recon/image/image.h"

#include "gridding/base/err.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static inline int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_image.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_drop(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* Value of pixel (x, y, z) of channel c of image i: all different, none symmetric. */
static inline float value_at(size_t i, size_t c, size_t z, size_t y, size_t x)
{
    return (float)(1 + x + 10 * y + 100 * z + 1000 * c + 5000 * i);
}

/* Rotations by 30 degrees about z, then 20 about x: columns are read, phase, slice. */
static inline void orientation(struct image_info *info)
{
    double a = 30 * M_PI / 180, b = 20 * M_PI / 180;
    double read[3] = {cos(a), sin(a) * cos(b), sin(a) * sin(b)};
    double phase[3] = {-sin(a), cos(a) * cos(b), cos(a) * sin(b)};
    double slice[3] = {0, -sin(b), cos(b)};
    for (int d = 0; d < 3; d++) {
        info->read_dir[d] = (float)read[d];
        info->phase_dir[d] = (float)phase[d];
        info->slice_dir[d] = (float)slice[d];
    }
}

static inline struct image_series *series_make(size_t count, size_t channels, size_t nx, size_t ny, size_t nz,
                                               bool complex_valued)
{
    struct image_series *series = NULL;
    assert_int_equal(image_series_create(&series, count, channels, (const size_t[]){nx, ny, nz}, complex_valued), 0);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        struct image_info *info = &series->info[i];
        orientation(info);
        memcpy(info->position, (const float[]){12.5f, -40, 77}, sizeof info->position);
        memcpy(info->fov_mm, (const float[]){2.0f * (float)nx, 1.5f * (float)ny, 3.0f * (float)nz},
               sizeof info->fov_mm);
        info->repetition = (uint16_t)i;
        info->index = (uint16_t)(i + 1);
        info->measurement_uid = 77;
        for (size_t c = 0; c < channels; c++)
            for (size_t z = 0; z < nz; z++)
                for (size_t y = 0; y < ny; y++)
                    for (size_t x = 0; x < nx; x++) {
                        series->data[at++] = value_at(i, c, z, y, x);
                        if (complex_valued)
                            series->data[at++] = -2 * value_at(i, c, z, y, x);
                    }
    }
    series->xml = strdup("<ismrmrdHeader/>");
    return series;
}

static inline void path_make(char path[96], enum image_format format)
{
    snprintf(path, 96, "%s/image.%s", folder, image_format_name(format));
}

static inline void series_save(const struct image_series *series, enum image_format format, char path[96])
{
    path_make(path, format);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(image_write(series, format, fd), 0);
    close(fd);
}

#endif
