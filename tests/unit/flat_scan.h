/* flat_scan.h: scans in memory in the form in which the decoder delivers them (recon/scan/scan.h). */
#ifndef MRIRECON_FLAT_SCAN_H
#define MRIRECON_FLAT_SCAN_H

#include "recon/scan/scan.h"

#include <stdlib.h>
#include <string.h>

struct flat {
    struct scan scan; /* valid after flat_scan() */
    struct scan_header header;
    struct scan_encoding encodings[2];
    struct scan_readout *readouts;
    float *traj;
    struct c32 *data;
    const struct c32 *maps;     /* the caller's; header.map_coils: whether there are any */
    const float *field, *times; /* likewise, header.field_maps and header.times_count */
};

static inline void flat_init(struct flat *flat, unsigned nx, unsigned ny, unsigned nz)
{
    memset(flat, 0, sizeof *flat);
    flat->header = (struct scan_header){.magic = SCAN_MAGIC, .version = SCAN_VERSION, .encodings = 1};
    for (int e = 0; e < 2; e++)
        flat->encodings[e] = (struct scan_encoding){
            .matrix = {nx, ny, nz},
            .recon_matrix = {nx, ny, nz},
            .fov_mm = {2.0f * (float)nx, 3.0f * (float)ny, 4.0f * (float)nz},
            .recon_fov_mm = {2.0f * (float)nx, 3.0f * (float)ny, 4.0f * (float)nz},
            .trajectory = SCAN_OTHER,
            .trajectory_name = "other",
        };
}

/* Append a readout of zeros. The pointer is valid until the next call. */
static inline struct scan_readout *flat_add(struct flat *flat, unsigned samples, unsigned coils, unsigned dims)
{
    struct scan_header *h = &flat->header;
    size_t traj = (size_t)samples * dims, data = (size_t)samples * coils;
    flat->readouts = realloc(flat->readouts, (h->readouts + 1) * sizeof *flat->readouts);
    flat->traj = realloc(flat->traj, (h->traj_count + traj + 1) * sizeof *flat->traj);
    flat->data = realloc(flat->data, (h->data_count + data + 1) * sizeof *flat->data);
    memset(flat->traj + h->traj_count, 0, traj * sizeof *flat->traj);
    memset(flat->data + h->data_count, 0, data * sizeof *flat->data);
    struct scan_readout *readout = &flat->readouts[h->readouts];
    *readout = (struct scan_readout){
        .traj = h->traj_count,
        .data = h->data_count,
        .acquisition = (uint32_t)h->readouts,
        .samples = (uint16_t)samples,
        .coils = (uint16_t)coils,
        .traj_dims = (uint16_t)dims,
        .read_dir = {1, 0, 0},
        .phase_dir = {0, 1, 0},
        .slice_dir = {0, 0, 1},
    };
    h->readouts++;
    h->traj_count += traj;
    h->data_count += data;
    return readout;
}

static inline const struct scan *flat_scan(struct flat *flat)
{
    flat->header.total_bytes = flat->header.traj_count * 4 + flat->header.data_count * 8;
    flat->scan = (struct scan){.header = &flat->header,
                               .encodings = flat->encodings,
                               .readouts = flat->readouts,
                               .xml = "<ismrmrdHeader/>",
                               .traj = flat->traj,
                               .data = flat->data,
                               .maps = flat->maps,
                               .field = flat->field,
                               .times = flat->times};
    return &flat->scan;
}

static inline void flat_free(struct flat *flat)
{
    free(flat->readouts);
    free(flat->traj);
    free(flat->data);
}

#endif
