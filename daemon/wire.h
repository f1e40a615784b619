/* wire.h: what the daemon and a worker say to each other, over one AF_UNIX SOCK_SEQPACKET pair (the worker's is fd 3).
 * All files that a worker reads or writes for a job come with its message: it opens none by name.
 *
 * Each message is one JSON object of at most WIRE_MAX bytes with a member "type", and up to WIRE_FDS file descriptors.
 *
 *   worker -> daemon
 *     hello    {version, device, gpu: bool, gpus: [numbers of all that can be used], note, landlock: bool, pid}
 *              once, when the device is warm
 *     progress {id, fraction: 0..1, step: name, iteration, iterations}  of a job, not of what is only prepared; 0 of 0
 *              iterations: the step has none. At most ten a second, and none that says what was said before
 *     shown    {id, bytes}
 *              so many bytes of the live file are complete images; of a job, or of one that is only prepared
 *     done     {id, report: {...}}
 *              every result is written, and the worker has closed it; the daemon syncs them
 *     failed   {id, error: {code, detail, acquisition_index?, required_bytes?, available_bytes?}, fatal: bool,
 *              put_back?: bool}
 *              fatal: the device is gone; the worker exits and the job may be tried on another. put_back: the
 *              results could not be written, or will have no room, which is no fault of the job. In place of hello (id
 *              ""): there is no such device, or it cannot be used
 *     status   {memory_available, memory_total}                         the answer to ping
 *   daemon -> worker
 *     job      {id, kind, parameters: {name: text}, files: ["image.h5", ...], room: {most, most_of, free},
 *               checkpoint: bool, live?: bytes}
 *              + fds [input file, an empty file for each of `files`, in their order: the native one of each result that
 *              the parameters ask for, the default result's first, and those of other formats that the sender waits
 *              for. One of these stays empty where the result cannot be brought into its format; a native one never;
 *              and, with `checkpoint`, the file of the job's checkpoint, as an earlier attempt left it; and, with
 *              `live` (-1: none), a file to which the default result's images are appended as messages of an MRD
 * stream, each as soon as it is made, behind the `live` bytes that were told of before (daemon/queue/live.h)] room:
 * bytes that the results may take together, as struct job_room (recon/kind_run.h) has them prepare  {id, kind,
 * parameters, arriving: bool, live?: bytes} + fds [input file; its live file, as with a job] a hint, answered by
 * nothing: this job may be next. Its input is read beside the job that runs, or before there is one. A second hint
 * replaces the first. arriving: the file is still being written, and complete when its job begins. A worker without a
 * job computes of it what is complete forget   {id}                    it will not come cancel   {id} answered by
 * failed with code "canceled" ping     {}                      answered also while a job runs
 *
 * The daemon closing its end tells the worker to stop at once.
 */
#ifndef MRIRECON_WIRE_H
#define MRIRECON_WIRE_H

#include "gridding/base/err.h"
#include "recon/recon.h"

#include <jansson.h>
#include <stdbool.h>

enum { WIRE_VERSION = 9, WIRE_FD = 3, WIRE_MAX = 128 * 1024, WIRE_FDS = 3 + KIND_MAX_FILES };
enum { WIRE_REPORT_MAX = 64 * 1024, WIRE_REPORT_DEEP = 8 };

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

#endif
