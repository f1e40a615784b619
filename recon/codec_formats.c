/* The file formats that mrirecon-codec reads and derives: one row each. */
#include "recon/codec/codec_formats.h"

#include "recon/codec/codec.h"
#include "recon/image/image.h"
#include "recon/scan/scan_build.h"

_Static_assert(sizeof(struct scan_wanted) <= CODEC_WANTED, "A request holds what is wanted of a scan.");

static int hdf5_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    return scan_hdf5_decode(memory, most_bytes, file, bytes, wanted);
}

static int stream_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    (void)wanted;
    return scan_stream_decode(memory, most_bytes, file, bytes);
}

static int npz_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    return scan_npz_decode(memory, most_bytes, file, bytes, wanted);
}

const struct codec_reader codec_readers[] = {
    {"hdf5", hdf5_decode},
    {"stream", stream_decode},
    {"npz", npz_decode},
    {.format = NULL},
};

static int image_convert(int in, int format, int out)
{
    struct image_series *series = NULL;
    int rc = image_read_h5_fd(&series, in);
    if (rc == 0)
        rc = image_write(series, (enum image_format)format, out);
    image_series_free(series);
    return rc;
}

const struct codec_converter codec_converters[] = {
    {&image_form, image_convert},
    {.form = NULL},
};

int codec_init(void)
{
    return scan_readers_init();
}

int codec_warm_up(void)
{
    return scan_hdf5_warm_up();
}
