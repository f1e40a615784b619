/* libFuzzer target: the parts of MRD sessions that the daemon itself parses: message boundaries, configuration texts,
 * the list of clients. */
#include "daemon/base/options.h"
#include "daemon/mrd/mrd_clients.h"
#include "daemon/mrd/mrd_config.h"
#include "recon/scan/mrd_frame.h"
#include "tests/fuzz/fuzz.h"

#include <netinet/in.h>

/* State of a stream after some of its bytes. */
struct seen {
    uint64_t bytes, messages;
    int rc;
};

/* Read the stream in pieces: the parts must be its bytes, once and in order, and each message must have one first and
 * one last part. */
static struct seen stream_read(const uint8_t *stream, size_t size, size_t piece)
{
    struct mrd_frame frame = {0};
    struct seen seen = {0};
    bool within = false;
    for (size_t at = 0; at < size && !seen.rc; at += piece) {
        const uint8_t *from = stream + at, *end = stream + (size - at > piece ? at + piece : size);
        for (struct mrd_part part = {.count = 1}; part.count > 0 && !seen.rc;) {
            seen.rc = mrd_frame_next(&frame, &from, end, &part);
            check(frame.have <= sizeof frame.head && from <= end);
            if (seen.rc || part.count == 0)
                continue;
            check(part.first == !within && seen.bytes + part.count <= size);
            check(memcmp(stream + seen.bytes, part.bytes, part.count) == 0);
            seen.bytes += part.count;
            seen.messages += part.last;
            within = !part.last;
        }
        check(seen.rc || from == end);
    }
    check(seen.messages == frame.messages && (seen.rc || seen.bytes + (within ? 0 : frame.have) == size));
    check_result(seen.rc);
    return seen;
}

static void read_stream(const uint8_t *data, size_t size)
{
    const size_t piece = size > 0 ? 1 + data[0] : 1;
    const struct seen whole = stream_read(data, size, size + 1), cut = stream_read(data, size, piece);
    check(whole.rc == cut.rc && whole.bytes == cut.bytes && whole.messages == cut.messages);
}

/* An accepted text is a query; the job that it requests must give MRD images, or be refused. */
static void read_text(const uint8_t *data, size_t size)
{
    struct options options;
    struct job job = {.id = ""};
    char name[MRD_NAME], *queries[MRD_QUERIES] = {NULL};
    options_init(&options);
    if (size > MRD_TEXT_MOST || !check_result(mrd_text_read(&queries[1], name, (const char *)data, size)))
        return;
    check(strlen(name) < sizeof name);
    if (check_result(mrd_job_read(&job, &options, queries)))
        check(mrd_result(&job).format > 0 && json_array_size(job.formats) == 1);
    job_clear(&job);
    if (*name && check_result(mrd_config_find(&queries[0], "", name)))
        check(*queries[0]);
    free(queries[0]);
    free(queries[1]);
}

/* A refused list must let in nobody whom the entries before its error did not let in. */
static void read_clients(const uint8_t *data, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000207)};
    char client[JOB_CLIENT], *list = malloc(size + 1);
    check(list != NULL);
    memcpy(list, data, size);
    list[size] = '\0';
    const bool sound = check_result(mrd_clients_check(list));
    const int rc = mrd_clients_find(list, (const struct sockaddr *)&address, client);
    check_result(rc);
    check(!sound || rc == 0 || rc == ERR_FORBIDDEN);
    check(rc != 0 || *client);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const uint8_t *, size_t) = {read_stream, read_text, read_clients};
    if (size < 1)
        return 0;
    /* In a buffer of its exact length, so that an overrun is detected. */
    uint8_t *own = malloc(size - 1);
    check(own != NULL || size == 1);
    if (size > 1)
        memcpy(own, data + 1, size - 1);
    readers[(uint8_t)(data[0] - '0') % 3](own, size - 1);
    free(own);
    return 0;
}
