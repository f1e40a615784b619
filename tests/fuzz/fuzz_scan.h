/* fuzz_scan.h: shared by the fuzz targets of scan readers. */
#ifndef MRIRECON_TESTS_FUZZ_SCAN_H
#define MRIRECON_TESTS_FUZZ_SCAN_H

#include "recon/scan/scan_build.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SEALED = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

/* Everything that a reconstruction would read lies inside the scan. */
static inline void check_scan(const struct scan *scan)
{
    const struct scan_header *h = scan->header;
    static volatile float read; /* volatile, so that the reads are not optimised away */
    check(h->readouts >= 1 && h->encodings >= 1 && strlen(scan->xml) == h->xml_bytes);
    for (uint64_t i = 0; i < h->readouts; i++) {
        const struct scan_readout *r = &scan->readouts[i];
        size_t traj = (size_t)r->samples * r->traj_dims, data = (size_t)r->samples * r->coils;
        check(data > 0 && r->data + data <= h->data_count && r->traj + traj <= h->traj_count);
        if (traj)
            read = scan->traj[r->traj] + scan->traj[r->traj + traj - 1];
        read = scan->data[r->data].re + scan->data[r->data + data - 1].im + scan->encodings[r->encoding].fov_mm[0];
    }
    if (scan->maps)
        read = scan->maps[0].re + scan->maps[scan_map_count(h, scan->encodings) - 1].im;
    (void)read;
    check(8 * h->data_count + 4 * h->traj_count + h->readouts * sizeof *scan->readouts <= h->total_bytes);
}

#endif
