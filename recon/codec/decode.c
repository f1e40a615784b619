#include "recon/codec/decode.h"

#include "gridding/base/err.h"
#include "recon/codec/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The slowest usual layout (a chunk per acquisition) is read at about 15 MB per second of processor time here, others
 * at 20 to 200, so the limit allows a machine a tenth as fast. */
#define BYTES_PER_SECOND (1 << 20)

/* Cut the memfd to its contents and, unless sealed_map() copies it, seal it permanently. The writing process may still
 * run and may be compromised: only the sealed or copied contents are used, and they are checked again. */
static int memory_seal(int memory, const struct decode_request *request)
{
    struct decode_head head;
    if (pread(memory, &head, sizeof head, 0) != sizeof head || head.magic != request->magic ||
        head.total_bytes > request->limits->bytes || head.total_bytes < sizeof head)
        return err_set(
            ERR_DECODER_DIED,
            "The decoder reported success but returned nothing. Try again, and report the file if it happens again.");
    bool bad = ftruncate(memory, (off_t)head.total_bytes) != 0;
    if (!bad && head.total_bytes > SEALED_COPIED_BYTES)
        bad = fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0;
    if (bad && errno == EBUSY)
        return err_set(ERR_DECODER_DIED, "The decoder reported success but did not release its memory. The file is "
                                         "damaged or hostile; nothing outside the decoder was affected.");
    return bad ? err_set(ERR_IO, "The decoded file cannot be sealed (%s).", strerror(errno)) : 0;
}

int decode_file(int *out, struct decoder *decoder, const struct decode_request *request)
{
    struct stat status;
    if (fstat(request->file, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(ERR_IO, "The input is not a regular file.");
    int memory = decoder_memory(decoder, request->limits->bytes);
    if (memory < 0)
        return memory;
    struct decoder_upload upload = {
        .file = request->file,
        .file_bytes = (uint64_t)status.st_size,
        .memory = memory,
        .format = request->format,
        .magic = request->magic,
        .wanted = request->wanted,
        .wanted_bytes = request->wanted_bytes,
        .limits = *request->limits,
        .canceled = request->canceled,
        .context = request->context,
        .meanwhile = request->meanwhile,
        .of = request->of,
    };
    /* The final size of an arriving file is unknown, but is limited by that of its decoded form. */
    const double most = request->limits->arriving ? (double)request->limits->bytes : (double)status.st_size;
    upload.limits.seconds += most / BYTES_PER_SECOND;
    if (request->limits->live)
        atomic_store(request->limits->live, fcntl(memory, F_DUPFD_CLOEXEC, 0));
    int rc = decoder_run(decoder, &upload);
    if (rc == 0)
        rc = memory_seal(memory, request);
    if (rc == 0)
        decoder_note(decoder, memory);
    if (rc == 0)
        *out = memory;
    else
        close(memory);
    return rc;
}
