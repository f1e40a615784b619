/* libFuzzer target: this project's own scan parsers: the MRD version 1 stream, and the check of flat scans. The first
 * byte selects. libhdf5 is left out, because its own bugs (the reason why it runs in a sandbox) would stop the fuzzer
 * and say nothing about this code; tests/unit/test_mutants.c mutates HDF5 files through the sandboxed decoder. The
 * header's XML is in fuzz_header.c. */
#include "recon/scan/scan_build.h"
#include "tests/fuzz/fuzz_scan.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The limits of a scan in bytes: one that no input reaches, and one that some inputs exceed. */
enum { CAP = 4 << 20, CAP_SMALL = 2 << 10 };

/* An accepted scan must be one that a worker accepts, with no more samples than the file has bytes for; a refused one
 * must leave none. */
static void decode(int fd, uint64_t cap, const uint8_t *bytes, size_t length)
{
    struct scan scan;
    bool decoded = check_result(scan_stream_decode(fd, cap, bytes, length));
    check(fcntl(fd, F_ADD_SEALS, SEALED) == 0);
    check(check_result(scan_open(&scan, fd, -1)) == decoded);
    if (!decoded)
        return;
    check_scan(&scan);
    check(scan.header->total_bytes <= cap);
    check(8 * scan.header->data_count + 4 * scan.header->traj_count + scan.header->xml_bytes <= length);
    check(memmem(bytes, length, scan.xml, scan.header->xml_bytes) != NULL);
    scan_close(&scan);
}

static void read_stream(int fd, const uint8_t *bytes, size_t length)
{
    decode(fd, CAP, bytes, length);
}

/* The messages that follow a valid header. */
static void read_messages(int fd, const uint8_t *bytes, size_t length)
{
    static const char header[] =
        "<ismrmrdHeader><encoding><trajectory>radial</trajectory>"
        "<encodedSpace><matrixSize><x>4</x><y>4</y><z>1</z></matrixSize>"
        "<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></encodedSpace>"
        "<reconSpace><matrixSize><x>4</x><y>4</y><z>1</z></matrixSize>"
        "<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></reconSpace></encoding></ismrmrdHeader>";
    static const uint8_t lead[] = {3, 0, sizeof header & 0xff, sizeof header >> 8, 0, 0}; /* message 3, its length */
    uint8_t *whole = malloc(sizeof lead + sizeof header + length);
    check(whole != NULL);
    memcpy(whole, lead, sizeof lead);
    memcpy(whole + sizeof lead, header, sizeof header);
    memcpy(whole + sizeof lead + sizeof header, bytes, length);
    decode(fd, CAP_SMALL, whole, sizeof lead + sizeof header + length);
    free(whole);
}

static void read_flat(int fd, const uint8_t *bytes, size_t length)
{
    struct scan scan;
    check(write(fd, bytes, length) == (ssize_t)length && fcntl(fd, F_ADD_SEALS, SEALED) == 0);
    if (!check_result(scan_open(&scan, fd, -1)))
        return;
    check_scan(&scan);
    scan_close(&scan);
}

/* A flat scan whose header states its actual length, whatever that is. */
static void read_sized_flat(int fd, const uint8_t *bytes, size_t length)
{
    struct scan_header header;
    if (length < sizeof header)
        return;
    memcpy(&header, bytes, sizeof header);
    header.total_bytes = length;
    check(pwrite(fd, &header, sizeof header, 0) == sizeof header && lseek(fd, sizeof header, SEEK_SET) > 0);
    read_flat(fd, bytes + sizeof header, length - sizeof header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(int fd, const uint8_t *, size_t) = {read_flat, read_stream, read_messages,
                                                                       read_sized_flat};
    if (size < 1)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(fd >= 0);
    readers[data[0] % (sizeof readers / sizeof *readers)](fd, data + 1, size - 1);
    close(fd);
    return 0;
}
