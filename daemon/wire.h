/* wire.h: the messages between the daemon and a worker, over an AF_UNIX SOCK_SEQPACKET pair (the worker's end is fd 3).
 * All files that a worker reads or writes for a job come with its message: it opens none by name.
 *
 * Each message is one JSON object of at most WIRE_MAX bytes with a member "type", and up to WIRE_FDS file descriptors.
 *
 *   worker -> daemon
 *     hello    {version, device, gpu: bool, gpus: [numbers of all usable GPUs], note, landlock: bool, pid}
 *              once, when the device is warm
 *     progress {id, fraction: 0..1, step: name, iteration, iterations}
 *              of a running job (not of a prepared one); iterations 0: the step has none. At most ten a second, none
 *              equal to the one before
 *     shown    {id, bytes}
 *              the first `bytes` of the live file are images, the last of which may not be whole yet, and will not
 *              change; of a running or a prepared job
 *     made     {id, report: {...}}
 *              of a prepared job: all results are written to the files that came with "prepare", and closed. Then the
 *              job need not be sent. Ignored if it was sent meanwhile
 *     done     {id, report: {...}}
 *              all results are written, and the worker has closed them; the daemon syncs them
 *     failed   {id, error: {code, detail, acquisition_index?, required_bytes?, available_bytes?}, fatal: bool,
 *              put_back?: bool}
 *              fatal: the device is lost; the worker exits, and the job may be tried on another. put_back: the results
 *              could not be written, or would not fit, through no fault of the job. In place of hello (id ""): the
 *              device does not exist or cannot be used. After hello (id "", fatal): the device was lost while a
 *              prepared job was computed; a job that has been sent meanwhile was not begun, and counts as failed by it
 *     status   {memory_available, memory_total}
 *              the answer to ping
 *   daemon -> worker
 *     job      {id, kind, parameters: {name: text}, files: ["image.h5", ...], room: {most, most_of, free},
 *              checkpoint: bool, live?: bytes}
 *              + fds [input; an empty file for each of `files`, in this order; the checkpoint; the live file]
 *              files: the native file of each result that the parameters ask for, the default result's first; then
 *              those of other formats that the sender waits for, which stay empty if the result cannot be converted.
 *              room: bytes that all results may take together (struct job_room, recon/kind_run.h). With `checkpoint`,
 *              the job's checkpoint as an earlier attempt left it. With `live`, a file to which the worker appends each
 *              image of the default result as it is completed, large ones in pieces, as messages of an MRD stream; its
 *              first `live` bytes were reported before (daemon/queue/live.h)
 *     prepare  {id, kind, parameters, files, room, arriving, live?: bytes}
 *              + fds [input; the live file; an empty file for each of `files`, or none]
 *              a hint, not answered: this job may be next. Its input is read while another job runs, or none. A second
 *              hint replaces the first. arriving: "no", or the input is still being written, and complete when the
 *              job begins: "stream", of use as far as it is there, or "file", of use as a whole. A worker without a job
 *              computes what it can within `room` (as in "job"), and keeps it to itself until the job begins, except
 *              for the images of a live file, and for "made". Results may be written to the files, which come again
 *              with the job, or others instead of them
 *     forget   {id}
 *              the prepared job will not come
 *     cancel   {id}
 *              answered by failed with code "canceled"
 *     ping     {}
 *              answered while a job runs, too
 *
 * When the daemon closes its end, the worker stops at once.
 */
#ifndef MRIRECON_WIRE_H
#define MRIRECON_WIRE_H

#include "gridding/base/err.h"
#include "recon/recon.h"

#include <jansson.h>
#include <stdbool.h>

enum { WIRE_VERSION = 14, WIRE_FD = 3, WIRE_MAX = 128 * 1024, WIRE_FDS = 3 + KIND_MAX_FILES };
enum { WIRE_REPORT_MAX = 64 * 1024, WIRE_REPORT_DEEP = 8 };

/* Whether a prepared input is still being written. */
enum wire_arriving { ARRIVING_NOT, ARRIVING_STREAM, ARRIVING_FILE };
const char *wire_arriving_name(enum wire_arriving arriving);
enum wire_arriving wire_arriving_find(const char *name); /* ARRIVING_NOT: it is another word */

/* Send `message` (stays the caller's). Fails with ERR_WORKER_DIED (the other side is gone), ERR_IO. */
int wire_send(int socket, json_t *message, const int *fds, int fd_count);

/* Receive one message, waiting for it. *message is the caller's; *fd_count descriptors (close-on-exec) are put in
 * fds[WIRE_FDS]. Fails with ERR_WORKER_DIED at the end of the stream, ERR_IO, ERR_BAD_REQUEST (not as above; nothing
 * leaks). */
int wire_receive(int socket, json_t **message, int fds[WIRE_FDS], int *fd_count);

/* Whether `report` is what "done" may carry: an object of at most WIRE_REPORT_MAX bytes and WIRE_REPORT_DEEP levels,
 * itself one of them. */
bool wire_report_is_sound(const json_t *report);

/* A failure as the problem members of "failed" and of an HTTP problem document: {code, detail, ...}. New reference. */
json_t *wire_error_pack(const struct err *failure);
/* The reverse; missing members are filled with what is safe. */
void wire_error_unpack(const json_t *object, struct err *failure);

/* A time (ms since 1970) as text (RFC 3339); null for 0. New reference. */
json_t *wire_time_pack(int64_t milliseconds);

#endif
