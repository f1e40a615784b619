/* Decodes an upload: has a decoder read it, and opens what that made. */
#include "gridding/base/err.h"
#include "recon/scan/decoder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The slowest layout that programs write (an acquisition a chunk) is read at some 15 MB a second of a processor here,
 * the others at 20 to 200: a machine a tenth as fast keeps up. */
#define BYTES_PER_SECOND (1 << 20)

/* Cut the memfd to what was written, and seal it for good. Its writer may still be there and lie: what is sealed is
 * what counts, and scan_open() looks at all of it. */
static int memory_seal(int memory, uint64_t cap)
{
    struct scan_header header;
    if (pread(memory, &header, sizeof header, 0) != sizeof header || header.magic != SCAN_MAGIC ||
        header.total_bytes > cap || header.total_bytes < sizeof header)
        return err_set(ERR_DECODER_DIED,
                       "The decoder ended well but left no scan. Try again, and report the file if it stays "
                       "so.");
    int bad = ftruncate(memory, (off_t)header.total_bytes) != 0 ||
              fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0;
    if (bad && errno == EBUSY)
        return err_set(ERR_DECODER_DIED, "The decoder said that it was done and held on to its scan. The file is "
                                         "damaged or hostile; nothing outside the decoder was touched.");
    if (bad)
        return err_set(ERR_IO, "The decoded scan cannot be sealed (%s).", strerror(errno));
    return 0;
}

int scan_decode(struct scan *out, struct decoder *decoder, int fd, const struct scan_wanted *wanted,
                const struct scan_limits *limits, int (*canceled)(void *context), void *context)
{
    struct stat status;
    const char *format = NULL;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(ERR_IO, "The scan is no regular file.");
    int rc = scan_sniff(&format, fd, (uint64_t)status.st_size);
    if (rc != 0)
        return rc;
    int memory = decoder_memory(decoder, limits->bytes);
    if (memory < 0)
        return memory;
    struct decoder_upload upload = {
        .file = fd,
        .file_bytes = (uint64_t)status.st_size,
        .memory = memory,
        .format = format,
        .wanted = wanted ? *wanted : (struct scan_wanted){.group = ""},
        .limits = *limits,
        .canceled = canceled,
        .context = context,
    };
    upload.limits.seconds += (double)status.st_size / BYTES_PER_SECOND;
    rc = decoder_run(decoder, &upload);
    if (rc == 0)
        rc = memory_seal(memory, limits->bytes);
    if (rc == 0)
        rc = scan_open(out, memory);
    /* The mapping keeps the memory. */
    close(memory);
    return rc;
}
