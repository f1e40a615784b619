/* scan.h: one scan as flat, validated memory: the decoder's output and a reconstruction's input.
 *
 * The decoder (a sandboxed process, mrirecon-codec) turns an uploaded file into one memfd of this layout and seals it;
 * scan_open() maps it and checks every number in it again, because the process that wrote it parsed hostile bytes.
 *
 *   struct scan_header | struct scan_encoding [encodings] | struct scan_readout [readouts] | xml | traj float32 | data
 * complex64 | maps complex64 | field float32 | times float32
 *
 * each part at the offset in the header, a multiple of 64. Native byte order: both sides run on the same machine.
 */
#ifndef MRIRECON_SCAN_H
#define MRIRECON_SCAN_H

#include "recon/codec/decoder.h"

enum {
    SCAN_VERSION = 9,
    SCAN_MAX_ENCODINGS = 64,
    SCAN_MAX_READOUTS = 1 << 26,
    SCAN_MAX_COILS = 1024,
    SCAN_MAX_SLICES = 1 << 16,
    SCAN_MAX_MATRIX = 2048,
    SCAN_MAX_XML = 16 << 20
};
#define SCAN_MAGIC    UINT64_C(0x4e4143534952524d) /* "MRRISCAN" */
#define SCAN_ARRIVING UINT64_C(0x45564c4953524d4d) /* "MMRSILVE": not complete yet (recon/scan/scan_live.h) */
#define SCAN_ARRIVED  UINT64_C(0x44564c4953524d4d) /* "MMRSILVD": likewise, but no readout will follow */

struct scan_header {
    uint64_t magic;
    uint32_t version, encodings;
    uint64_t total_bytes; /* the memfd's size */
    uint64_t readouts;
    uint64_t encodings_at, readouts_at, xml_at, traj_at, data_at; /* byte offsets from the start */
    uint64_t xml_bytes;  /* of the ISMRMRD header, unchanged; a NUL follows that is not counted */
    uint64_t traj_count; /* float32 */
    uint64_t data_count; /* complex64 */
    uint64_t ignored;    /* items in the file that were not read, e.g. waveforms */
    uint64_t headless;   /* 1: the file contains only arrays, and the header was made from struct scan_wanted; else 0 */
    /* The scan's coil maps: [map_coils][z][y][x] of the first encoding's matrix; map_coils 0: none. */
    uint64_t maps_at, map_coils;
    /* The scan's field maps, off-resonance in Hz: [field_maps][z][y][x] of the same matrix; field_maps 0: none, 1: one
     * for all slices, more: one for each slice, by its counter. */
    uint64_t field_at, field_maps;
    /* Seconds from the start of a readout to each of its samples, the same for all readouts; times_count 0: samples are
     * sample_time_us apart. */
    uint64_t times_at, times_count;
    /* 1: trajectories and samples are read in place, from the upload: traj_at and data_at are 0, the upload's
     * beginning, and traj_count and data_count as many as fit into it; 0: they are in this memory. */
    uint64_t in_place;
    uint64_t streamed; /* 1: the file is an MRD stream, which may come while it is measured; else 0 */
    /* Of a scan that arrives: scan_told(); a header that is read while it is written has another. */
    uint64_t told;
};

static inline uint64_t scan_told(const struct scan_header *header)
{
    const uint64_t counts[] = {header->total_bytes, header->readouts, header->traj_count, header->data_count};
    uint64_t told = header->magic;
    for (int i = 0; i < 4; i++)
        told = (told ^ counts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return told;
}

/* The trajectory element of an encoding. */
enum scan_trajectory { SCAN_CARTESIAN, SCAN_EPI, SCAN_RADIAL, SCAN_GOLDENANGLE, SCAN_SPIRAL, SCAN_OTHER };

/* The counters that tell the images of a repetition apart, most significant first. */
enum scan_place { SCAN_PLACE_PHASE, SCAN_PLACE_CONTRAST, SCAN_PLACE_SET, SCAN_PLACE_SLICE, SCAN_PLACES };

struct scan_encoding {
    uint32_t matrix[3], recon_matrix[3]; /* x, y, z; 1..SCAN_MAX_MATRIX */
    float fov_mm[3], recon_fov_mm[3];    /* > 0 */
    uint32_t trajectory;                 /* enum scan_trajectory */
    /* encodingLimits/kspace_encoding_step_2/center, the partition at kz = 0; by default half of matrix[2].
     */
    uint16_t partition_centre;
    /* Images of a repetition by encodingLimits: slices, phases, contrasts and sets, each its maximum + 1; 1 if missing.
     */
    uint32_t images;
    uint16_t most[SCAN_PLACES]; /* of these counters, in the order of enum scan_place: their maximum; 0 if missing */
    uint32_t views; /* readouts of an image by encodingLimits: steps 1 and 2, averages and segments, likewise */
    char trajectory_name[26]; /* as in the file, NUL-terminated */
};

/* ISMRMRD acquisition flags (bit n-1 of `flags`). */
enum scan_flag {
    SCAN_LAST_IN_SLICE = 8,
    SCAN_LAST_IN_REPETITION = 14,
    SCAN_NOISE = 19,
    SCAN_PARALLEL_CALIBRATION = 20,
    SCAN_CALIBRATION_AND_IMAGING = 21,
    SCAN_REVERSE = 22,
    SCAN_NAVIGATION = 23,
    SCAN_PHASECORR = 24,
    SCAN_HPFEEDBACK = 26,
    SCAN_DUMMY = 27,
    SCAN_RTFEEDBACK = 28,
    SCAN_PHASE_STAB_REFERENCE = 30,
    SCAN_PHASE_STAB = 31
};

/* Indexes into struct scan_readout.idx. */
enum scan_index {
    SCAN_STEP1,
    SCAN_STEP2,
    SCAN_AVERAGE,
    SCAN_SLICE,
    SCAN_CONTRAST,
    SCAN_PHASE,
    SCAN_REPETITION,
    SCAN_SET,
    SCAN_SEGMENT,
    SCAN_INDEXES
};
extern const enum scan_index scan_place_index[SCAN_PLACES]; /* of each enum scan_place */

/* One acquisition. Its samples are as stored: discard_pre and discard_post are still in place. */
struct scan_readout {
    uint64_t flags;
    uint64_t traj;        /* index of its first float32 in traj: [samples][traj_dims] */
    uint64_t data;        /* index of its first complex64 in data: [coils][samples] */
    uint32_t acquisition; /* index in the file */
    uint32_t scan_counter, time_stamp, measurement_uid;
    uint16_t samples, coils, traj_dims, discard_pre, discard_post, center_sample, encoding;
    uint16_t idx[SCAN_INDEXES];
    float sample_time_us;
    float position[3], read_dir[3], phase_dir[3], slice_dir[3], table_position[3]; /* mm; LPS */
};

/* A mapped scan. Read-only; pointers into the mappings of the flat scan and, if it contains the samples, of the upload.
 */
struct scan {
    const struct scan_header *header;
    const struct scan_encoding *encodings;
    const struct scan_readout *readouts;
    const char *xml;
    const float *traj;
    const struct c32 *data;
    const struct c32 *maps; /* NULL: none; likewise: */
    const float *field, *times;
    const void *upload; /* NULL: not mapped */
    size_t upload_bytes;
};

/* The counts of values in the header's coil maps and in its field maps; they fit 64 bits. */
static inline uint64_t scan_map_count(const struct scan_header *header, const struct scan_encoding *first)
{
    return header->map_coils * first->matrix[0] * first->matrix[1] * first->matrix[2];
}

static inline uint64_t scan_field_count(const struct scan_header *header, const struct scan_encoding *first)
{
    return header->field_maps * first->matrix[0] * first->matrix[1] * first->matrix[2];
}

/* Map or copy (recon/codec/sealed.h) and check the flat scan in `fd`, which stays the caller's, and
 * `upload`, the file that was decoded, if samples may be read in place (it must then not change until scan_close());
 * else -1. Fails with ERR_DECODER_DIED (not a flat scan as above), ERR_NO_MEMORY. */
int scan_open(struct scan *out, int fd, int upload);
void scan_close(struct scan *scan);

/* The bytes of the flat scan, including those of its readouts in the upload. */
uint64_t scan_bytes(const struct scan *scan);

/* The sender's parameters for reading the file. All 0: none. */
struct scan_wanted {
    char group[128];   /* HDF5 group; "": "dataset", or the first group that contains a scan */
    uint32_t size[3];  /* matrix of files without a header: x, y, z; z is 1 or 0 in 2-D */
    float fov_mm[3];   /* field of view of the same; 0: 1 mm a pixel */
    uint32_t in_place; /* 1: the file does not change, so its float32 samples can be read in place */
};

/* The name of the format of the file `fd`, of `bytes`: "hdf5", "stream" or "npz". Fails with ERR_UNKNOWN_FORMAT (the
 * sentence says what it seems to be), ERR_EMPTY_BODY, ERR_IO. */
int scan_sniff(const char **format, int fd, uint64_t bytes);

/* Decode the scan file in `fd` (a regular file, read-only; of a format that scan_sniff() recognises) in a sandboxed
 * process of `decoder` (recon/codec/decoder.h), and open the result. `wanted` may be NULL. `canceled` (may be NULL) is
 * polled; non-zero kills the child. Fails with the codes of "the file" in err.h, ERR_BAD_PARAMETER (`wanted` does not
 * fit the file), ERR_CANCELED, ERR_NO_MEMORY. */
int scan_decode(struct scan *out, struct decoder *decoder, int fd, const struct scan_wanted *wanted,
                const struct decode_limits *limits, int (*canceled)(void *context), void *context);

#endif
