/* The file formats that mrirecon-codec reads and derives: one row each. */
#include "recon/codec/codec_formats.h"

#include "recon/codec/codec.h"
#include "recon/image/image.h"
#include "recon/mesh/mesh.h"
#include "recon/nbody/nbody.h"
#include "recon/particle/particles_build.h"
#include "recon/scan/scan_build.h"
#include "recon/volume/volume.h"

_Static_assert(sizeof(struct scan_wanted) <= CODEC_WANTED, "A request holds what is wanted of a scan.");

static int hdf5_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    return scan_hdf5_decode(memory, most_bytes, file, bytes, wanted);
}

static int hdf5_follow(int memory, uint64_t most_bytes, int file, const void *wanted, void (*done)(void))
{
    return scan_hdf5_follow(memory, most_bytes, file, wanted, done);
}

static int stream_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    (void)wanted;
    return scan_stream_decode(memory, most_bytes, file, bytes);
}

static int stream_follow(int memory, uint64_t most_bytes, int file, const void *wanted, void (*done)(void))
{
    (void)wanted;
    return scan_stream_follow(memory, most_bytes, file, done);
}

static int npz_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    return scan_npz_decode(memory, most_bytes, file, bytes, wanted);
}

const struct codec_reader codec_readers[] = {
    {SCAN_MAGIC, "hdf5", hdf5_decode, hdf5_follow},
    {SCAN_MAGIC, "stream", stream_decode, stream_follow},
    {SCAN_MAGIC, "npz", npz_decode, NULL},
    {PARTICLES_MAGIC, "pqr", particles_pqr_decode, NULL},
    {PARTICLES_MAGIC, "pdb", particles_pdb_decode, NULL},
    {PARTICLES_MAGIC, "xyz", particles_xyz_decode, NULL},
    {PARTICLES_MAGIC, "csv", particles_csv_decode, NULL},
    {PARTICLES_MAGIC, "npy", particles_npy_decode, NULL},
    {PARTICLES_MAGIC, "npz", particles_npz_decode, NULL},
    {PARTICLES_MAGIC, "gadget", particles_gadget_decode, NULL},
    {PARTICLES_MAGIC, "hdf5", particles_gadget_h5_decode, NULL},
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

static int image_view(int in, const struct result_view *view, int out)
{
    struct image_series *series = NULL;
    int rc = image_read_h5_fd(&series, in);
    if (rc == 0)
        rc = image_write_view(series, view, out);
    image_series_free(series);
    return rc;
}

const struct codec_converter codec_converters[] = {
    {&image_form, image_convert, image_view}, {&volume_form, volume_convert, volume_view},
    {&mesh_form, mesh_convert, NULL},         {&bodies_form, bodies_convert, NULL},
    {&series_form, series_convert, NULL},     {.form = NULL},
};

int codec_init(void)
{
    return scan_readers_init();
}

int codec_warm_up(void)
{
    return scan_hdf5_warm_up();
}
