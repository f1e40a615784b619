/* Volumes as MRC2014 (Cheng et al., doi:10.1016/j.jsb.2015.04.002), mode 2; CCP4's maps are the same. */
#include "recon/volume/volume_leaf.h"

#include "gridding/base/err.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MODE_FLOAT32 = 2, SPACE_GROUP_VOLUME = 1, SPACE_GROUP_STACK = 401, VERSION = 20140, LABEL = 80, LABELS = 10 };

/* The header of 1024 bytes, in native byte order, which the machine stamp states. */
struct mrc {
    int32_t size[3], mode, start[3], sampling[3];
    float cell[3], angle[3];
    int32_t axis[3]; /* of columns, rows, sections: 1 is x */
    float least, largest, mean;
    int32_t space_group, extra_bytes;
    char spare[8], extra_type[4];
    int32_t version;
    char more[84];
    float origin[3];
    char map[4];
    unsigned char stamp[4];
    float deviation;
    int32_t labels;
    char label[LABELS][LABEL];
};
_Static_assert(sizeof(struct mrc) == 1024, "An MRC header has 1024 bytes.");

static void statistics(struct mrc *mrc, const struct volume *volume)
{
    const size_t nodes = volume_nodes(volume);
    double sum = 0, squares = 0;
    mrc->least = mrc->largest = volume->data[0];
    for (size_t i = 0; i < nodes && result_goes_on(i); i++) {
        const float value = volume->data[i];
        mrc->least = value < mrc->least ? value : mrc->least;
        mrc->largest = value > mrc->largest ? value : mrc->largest;
        sum += (double)value;
    }
    const double mean = sum / (double)nodes;
    for (size_t i = 0; i < nodes && result_goes_on(i); i++)
        squares += ((double)volume->data[i] - mean) * ((double)volume->data[i] - mean);
    mrc->mean = (float)mean;
    mrc->deviation = (float)sqrt(squares / (double)nodes);
}

int volume_write_mrc(const struct volume *volume, int fd)
{
    const bool little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    struct mrc mrc = {
        .mode = MODE_FLOAT32,
        .angle = {90, 90, 90},
        .axis = {1, 2, 3},
        .space_group = volume->frames == 1 ? SPACE_GROUP_VOLUME : SPACE_GROUP_STACK,
        .version = VERSION,
        .map = {'M', 'A', 'P', ' '},
        .stamp = {little ? 0x44 : 0x11, little ? 0x44 : 0x11},
        .labels = 1,
    };
    size_t sections;
    if (!size_mul(volume->size[2], volume->frames, &sections) || sections > INT_MAX)
        return err_set(ERR_NOT_ACCEPTABLE,
                       "%zu frames of %zu sections exceed the MRC format's section count. Request npy.", volume->frames,
                       volume->size[2]);
    for (int d = 0; d < 3; d++) {
        mrc.size[d] = d < 2 ? (int32_t)volume->size[d] : (int32_t)sections;
        mrc.sampling[d] = (int32_t)volume->size[d];
        mrc.cell[d] = (float)((double)volume->size[d] * volume->spacing[d]);
        mrc.origin[d] = (float)volume->origin[d];
    }
    memset(mrc.label, ' ', sizeof mrc.label);
    memcpy(mrc.label[0], volume->title, strnlen(volume->title, LABEL));
    statistics(&mrc, volume);
    int rc = volume_put(fd, &mrc, sizeof mrc);
    return rc == 0 ? volume_put(fd, volume->data, volume_nodes(volume) * sizeof *volume->data) : rc;
}
