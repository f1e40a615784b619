/* libFuzzer on the parsers that are ours: the ISMRMRD header, the MRD version 1 stream, and the check of flat scans.
 * The first byte chooses. libhdf5 is left out: its own bugs (it has some, which is why it runs in a sandbox) would end
 * the fuzzer and say nothing of this code; HDF5 files are mutated through the sandboxed child by
 * tests/unit/test_decode.c. Seeds: tests/fuzz/decoder_seeds.py FOLDER; then fuzz_decoder -max_total_time=60 FOLDER. */
#include "recon/scan_build.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { CAP = 4 << 20, SEALED = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

/* Open what is in `fd` and read all that a reconstruction would. */
static void open_and_read(int fd)
{
    struct scan scan;
    volatile float sum = 0;
    if (fcntl(fd, F_ADD_SEALS, SEALED) != 0 || scan_open(&scan, fd) != 0)
        return;
    for (uint64_t i = 0; i < scan.header->readouts; i++) {
        const struct scan_readout *r = &scan.readouts[i];
        size_t traj = (size_t)r->samples * r->traj_dims, data = (size_t)r->samples * r->coils;
        if (traj)
            sum += scan.traj[r->traj] + scan.traj[r->traj + traj - 1];
        sum += scan.data[r->data].re + scan.data[r->data + data - 1].im + scan.encodings[r->encoding].fov_mm[0];
    }
    sum += (float)strlen(scan.xml);
    scan_close(&scan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct scan_encoding encodings[SCAN_MAX_ENCODINGS];
    uint32_t count;
    if (length == 0)
        return 0;
    int which = bytes[0] % 3;
    bytes++;
    length--;
    if (which == 0) {
        scan_xml_parse(encodings, &count, (const char *)bytes, length);
        return 0;
    }
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        abort();
    if (which == 1) {
        if (scan_stream_decode(fd, CAP, bytes, length) == 0)
            open_and_read(fd);
    } else if (write(fd, bytes, length) == (ssize_t)length) {
        open_and_read(fd);
    }
    close(fd);
    return 0;
}
