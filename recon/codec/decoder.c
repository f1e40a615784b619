#include "recon/codec/decoder.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "recon/codec/codec.h"
#include "recon/codec/codec_process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    POLL_MS = 50,           /* between two checks whether the job was canceled */
    SOON_CALLS = 100,       /* of upload.meanwhile that are a millisecond apart, before they are rarer */
    HEAP_BYTES = 1 << 30,   /* of a decoder; an acquisition of 65535 samples and 1024 channels takes 0.5 GB */
    ASIDE_BYTES = 16 << 20, /* limit of the memory reserved for the next scan */
    DECODER_HOW = 32,
    LINGERS_MS = 50,  /* at most: a decoder that has reported, while its stream is computed */
    MOST_TRIES = 2,   /* at an upload, if processes are killed from outside */
    CLOCK_FACTOR = 4, /* elapsed time allowed per processor time: other processes or a slow disk may delay it */
    REST_SECONDS = 1,
    REST_BYTES_PER_SECOND = 16 << 20 /* rest_seconds() */
};

struct decoder {
    struct codec_template template;
    struct codec_process ready[DECODER_MOST_READY]; /* the oldest first */
    int count;
    struct codec_process over;                        /* has reported and was killed, not yet reaped; pid 0: none */
    int lost;                                         /* processes that ended while ready */
    int killed;                                       /* processes killed from outside while reading */
    int aside;                                        /* memfd with allocated pages for the next scan; -1: none */
    uint64_t last_bytes;                              /* of the last decoded file */
    char how[DECODER_HOW], template_how[DECODER_HOW]; /* template_how: "": none has ended */
    char sentence[320];
};

/* ---- ready processes ---- */

static void over_collect(struct decoder *decoder)
{
    if (decoder->over.pid)
        codec_process_end(&decoder->over);
}

int decoder_create(struct decoder **out, const char *codec)
{
    struct decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder)
        return err_no_memory("a decoder");
    decoder->template.codec = codec;
    decoder->aside = -1;
    *out = decoder;
    return 0;
}

void decoder_free(struct decoder *decoder)
{
    if (!decoder)
        return;
    over_collect(decoder);
    while (decoder->count > 0)
        codec_process_end(&decoder->ready[--decoder->count]);
    if (decoder->template.process.pid)
        codec_process_end(&decoder->template.process);
    if (decoder->aside >= 0)
        close(decoder->aside);
    free(decoder);
}

/* Take a ready process. */
static struct codec_process ready_take(struct decoder *decoder, int at)
{
    struct codec_process taken = decoder->ready[at];
    decoder->count--;
    memmove(decoder->ready + at, decoder->ready + at + 1, (size_t)(decoder->count - at) * sizeof taken);
    return taken;
}

static void how_print(char how[DECODER_HOW], int status)
{
    if (WIFSIGNALED(status))
        snprintf(how, DECODER_HOW, "by signal %d", WTERMSIG(status));
    else
        snprintf(how, DECODER_HOW, "with status %d", WEXITSTATUS(status));
}

/* Record how a ready process ended. */
static void lost_note(struct decoder *decoder, int status)
{
    decoder->lost++;
    how_print(decoder->how, status);
}

static int process_start(struct decoder *decoder, struct codec_process *out)
{
    int status, rc = codec_process_start(out, &decoder->template, &status);
    if (status != 0)
        how_print(decoder->template_how, status);
    return rc;
}

int decoder_prepare(struct decoder *decoder, int count)
{
    over_collect(decoder);
    for (int i = 0; i < decoder->count;) {
        int status;
        if (waitpid(decoder->ready[i].pid, &status, WNOHANG) == decoder->ready[i].pid) {
            struct codec_process dead = ready_take(decoder, i);
            close(dead.socket);
            lost_note(decoder, status);
        } else {
            i++;
        }
    }
    int rc = codec_template_start(&decoder->template);
    while (rc == 0 && decoder->count < count && decoder->count < DECODER_MOST_READY) {
        rc = process_start(decoder, &decoder->ready[decoder->count]);
        decoder->count += rc == 0;
    }
    return rc == 0 ? codec_template_start(&decoder->template) : rc; /* it may have ended meanwhile */
}

const char *decoder_lost(struct decoder *decoder)
{
    char *text = decoder->sentence;
    const size_t room = sizeof decoder->sentence;
    size_t used = 0;
    if (*decoder->template_how)
        used += (size_t)snprintf(text, room, "The process that decoders are forked from ended (%s).",
                                 decoder->template_how);
    if (decoder->lost)
        used += (size_t)snprintf(text + used, room - used,
                                 "%s%d pre-started decoder%s ended before a scan came (the last %s).", used ? " " : "",
                                 decoder->lost, decoder->lost == 1 ? "" : "s", decoder->how);
    if (decoder->killed)
        used += (size_t)snprintf(text + used, room - used,
                                 "%s%d decoder%s killed from outside while reading a scan: is memory short?",
                                 used ? " " : "", decoder->killed, decoder->killed == 1 ? " was" : "s were");
    decoder->lost = decoder->killed = 0;
    decoder->template_how[0] = '\0';
    return used ? text : NULL;
}

/* ---- memory ---- */

static int memory_make(void)
{
    return memfd_create("mrirecon-scan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

void decoder_prepare_memory(struct decoder *decoder)
{
    uint64_t bytes = decoder->last_bytes < ASIDE_BYTES ? decoder->last_bytes : ASIDE_BYTES;
    if (decoder->aside < 0 && bytes)
        decoder->aside = memory_make();
    if (decoder->aside >= 0 && bytes)
        fallocate(decoder->aside, 0, 0, (off_t)bytes);
}

int decoder_memory(struct decoder *decoder, uint64_t cap)
{
    int memory = decoder->aside >= 0 ? decoder->aside : memory_make();
    decoder->aside = -1;
    if (memory < 0 || ftruncate(memory, (off_t)cap) != 0 || fcntl(memory, F_ADD_SEALS, F_SEAL_GROW) != 0) {
        int rc = err_no_memory("the decoded scan (%s)", strerror(errno));
        if (memory >= 0)
            close(memory);
        return rc;
    }
    return memory;
}

void decoder_note(struct decoder *decoder, int memory)
{
    struct stat status;
    if (fstat(memory, &status) == 0)
        decoder->last_bytes = (uint64_t)status.st_size;
}

/* ---- one upload ---- */

/* Send the process the upload, with its limits. Fails with ERR_DECODER_DIED if it has ended. */
static int upload_hand_over(const struct codec_process *process, const struct decoder_upload *upload)
{
    struct codec_request request = {
        .head = {CODEC_REQUEST_MAGIC, CODEC_VERSION},
        .magic = upload->magic,
        .file_bytes = upload->file_bytes,
        .most_bytes = upload->limits.bytes,
        .heap_bytes = HEAP_BYTES,
        .arriving = upload->limits.arriving != NULL,
        .cpu_seconds = ceil(upload->limits.seconds),
    };
    snprintf(request.format, sizeof request.format, "%s", upload->format);
    if (upload->wanted_bytes > 0)
        memcpy(request.wanted, upload->wanted, upload->wanted_bytes);
    const int fds[2] = {upload->file, upload->memory};
    if (codec_send(process->socket, &request, sizeof request, fds, 2))
        return 0;
    return err_set(errno == EPIPE || errno == ECONNRESET ? ERR_DECODER_DIED : ERR_IO,
                   "The upload cannot be passed to the decoder (%s).", strerror(errno));
}

/* Give the upload to a process: a ready one (*stood), or a new one. */
static int process_find(struct decoder *decoder, struct codec_process *process, const struct decoder_upload *upload,
                        bool *stood)
{
    *stood = true;
    while (decoder->count > 0) {
        *process = ready_take(decoder, 0);
        if (upload_hand_over(process, upload) == 0)
            return 0;
        lost_note(decoder, codec_process_end(process));
    }
    *stood = false;
    int rc = process_start(decoder, process);
    if (rc != 0)
        return rc;
    rc = upload_hand_over(process, upload);
    if (rc == 0 || rc == ERR_DECODER_DIED) /* its wait status gives the reason */
        return 0;
    codec_process_end(process);
    return rc;
}

static int time_over(const struct decoder_upload *upload)
{
    return err_set(
        ERR_LIMIT,
        "Reading the file of %llu bytes exceeded its %.0f s of processor time, and was stopped. The file is damaged, "
        "or built to keep a reader busy; or this machine is too slow or too busy for it (option decode-time).",
        (unsigned long long)upload->file_bytes, ceil(upload->limits.seconds));
}

/* Whether the time limit has passed or the job was canceled. */
static int patience_check(const struct decoder_upload *upload, double left)
{
    if (upload->canceled && upload->canceled(upload->context))
        return err_set(ERR_CANCELED, "The job was canceled while its file was read.");
    if (left <= 0)
        return time_over(upload);
    return 0;
}

/* ---- its report ---- */

/* The failures that a decoder may report: a compromised one must not report, say, a device failure. */
static bool may_report(int code)
{
    static const int codes[] = {
        ERR_INTERNAL,       ERR_NO_MEMORY,    ERR_IO,    ERR_BAD_PARAMETER,  ERR_UNKNOWN_FORMAT, ERR_MALFORMED_FILE,
        ERR_TRUNCATED,      ERR_HOSTILE_FILE, ERR_LIMIT, ERR_HEADER_INVALID, ERR_NO_IMAGE_DATA,  ERR_ENCODING_INVALID,
        ERR_DATA_NONFINITE,
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* Check a report of `got` received bytes, and return its failure. */
static int report_take(struct codec_report *report, ssize_t got)
{
    const bool known = got >= (ssize_t)sizeof report->head && report->head.magic == CODEC_REPORT_MAGIC;
    if (known && report->head.version != CODEC_VERSION)
        return err_set(ERR_INTERNAL,
                       "The codec uses protocol version %u, this program version %d: they belong to different "
                       "installations. Install both from the same build.",
                       report->head.version, CODEC_VERSION);
    if (known && got == sizeof *report && report->failure.code == 0)
        return 0;
    if (!known || got != sizeof *report || !may_report(report->failure.code))
        return err_set(ERR_DECODER_DIED, "The decoder's answer was not a report. The file is probably damaged in a way "
                                         "that misled it: export it again.");
    return err_restore(&report->failure);
}

/* The failure of a process that ended with this wait status before it reported. */
static int death_tell(const struct decoder_upload *upload, int status)
{
    if (!WIFSIGNALED(status))
        return err_set(ERR_DECODER_DIED,
                       "The decoder ended without a scan and without a reason. The file is probably damaged: "
                       "export it again.");
    int signal = WTERMSIG(status);
    if (signal == SIGXCPU)
        return time_over(upload);
    if (signal == SIGKILL)
        return err_set(ERR_NO_MEMORY,
                       "The process that read the file was killed from outside, twice, as the kernel does if memory "
                       "runs out. Send the scan again when less is running, or in parts.");
    if (signal == SIGSYS)
        return err_set(ERR_DECODER_DIED,
                       "Reading the file made the decoder try something forbidden, and it was stopped. The file is "
                       "damaged or hostile; nothing outside the decoder was affected.");
    return err_set(ERR_DECODER_DIED,
                   "The decoder crashed while reading the file (signal %d, %s). The file is probably damaged in a way "
                   "that libhdf5 does not notice: export it again, and check it with h5dump.",
                   signal, strsignal(signal));
}

/* The course of an upload. */
struct course {
    bool begun; /* the process has received the upload */
    bool ended; /* the process has ended and was reaped */
    int status; /* its wait status */
};

/* The elapsed time that a process may take, once the file that it followed is complete, for what it had not read yet. A
 * stream that broke off has no end: it would wait for more, and is then read again as what it is. */
static double rest_seconds(const struct decoder_upload *upload)
{
    struct stat status;
    const double bytes = fstat(upload->file, &status) == 0 ? (double)status.st_size : 0;
    return REST_SECONDS + bytes / REST_BYTES_PER_SECOND;
}

/* Wait for the report, or for the end of the process. One that closes its socket but keeps running is polled every
 * millisecond until the time limit. */
static int report_wait(const struct codec_process *process, const struct decoder_upload *upload, struct course *course)
{
    double end = clock_seconds() + CLOCK_FACTOR * upload->limits.seconds;
    struct pollfd socket = {.fd = process->socket, .events = POLLIN};
    struct codec_report report;
    bool closed = false, more = upload->meanwhile != NULL, arrives = upload->limits.arriving != NULL;
    int calls = 0;
    for (;;) {
        ssize_t got = closed ? 0 : recv(process->socket, &report, sizeof report, MSG_DONTWAIT | MSG_TRUNC);
        if (got == 1 && memcmp(&report, CODEC_BEGUN, 1) == 0 && !course->begun) {
            course->begun = true;
            continue;
        }
        if (got > 0)
            return report_take(&report, got);
        /* ECONNRESET: it ended with the upload unread; its earlier messages can still be read. */
        closed = got == 0 || (errno != EAGAIN && errno != EINTR && errno != ECONNRESET);
        if (closed && waitpid(process->pid, &course->status, WNOHANG) == process->pid) {
            course->ended = true;
            return death_tell(upload, course->status);
        }
        if (arrives) {
            arrives = *upload->limits.arriving;
            end = clock_seconds() + (arrives ? CLOCK_FACTOR * upload->limits.seconds : rest_seconds(upload));
        }
        const double left = end - clock_seconds();
        int rc = patience_check(upload, left);
        if (rc != 0)
            return rc;
        more = more && upload->meanwhile(upload->of);
        calls += more && calls < SOON_CALLS;
        int wait_ms = more && calls < SOON_CALLS ? 1 : left * 1000 < POLL_MS ? (int)(left * 1000) + 1 : POLL_MS;
        if (closed)
            poll(NULL, 0, 1);
        else
            poll(&socket, 1, wait_ms);
    }
}

/* Who reads the decoded form while it is written computes the last image now, and the end of the process, with sealing
 * and checking what it wrote, would take a processor from that for 2 ms: they wait for the job to begin. */
static int linger(const struct decoder_upload *upload)
{
    const struct decode_limits *limits = &upload->limits;
    int rc = 0;
    for (int ms = 0; ms < LINGERS_MS && rc == 0 && limits->live && *limits->live < 0 && *limits->arriving; ms++) {
        poll(NULL, 0, 1);
        rc = patience_check(upload, 1);
    }
    return rc;
}

static bool was_killed(const struct course *course)
{
    return course->ended && WIFSIGNALED(course->status) && WTERMSIG(course->status) == SIGKILL;
}

/* Whether another process is to read the upload, because this one ended through no fault of the upload. `tries`:
 * processes killed while reading it. */
static bool try_again(struct decoder *decoder, const struct decoder_upload *upload, const struct course *course,
                      bool stood, int *tries)
{
    if (course->ended && !course->begun && stood) {
        lost_note(decoder, course->status);
        return true;
    }
    if (!was_killed(course))
        return false;
    decoder->killed++;
    /* Clear what the first process has written. */
    return ++*tries < MOST_TRIES &&
           fallocate(upload->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)upload->limits.bytes) == 0;
}

int decoder_run(struct decoder *decoder, const struct decoder_upload *upload)
{
    struct codec_process process;
    struct course course;
    bool stood;
    int rc, tries = 0;
    if (upload->wanted_bytes > CODEC_WANTED || strlen(upload->format) >= CODEC_FORMAT)
        return err_set(ERR_INTERNAL, "The request to the decoder is too large: %zu bytes, format %s.",
                       upload->wanted_bytes, upload->format);
    over_collect(decoder);
    do {
        rc = process_find(decoder, &process, upload, &stood);
        if (rc != 0)
            return rc;
        course = (struct course){.begun = false};
        rc = report_wait(&process, upload, &course);
        if (course.ended)
            close(process.socket);
    } while (try_again(decoder, upload, &course, stood, &tries));
    if (rc == 0)
        rc = linger(upload);
    if (!course.ended) {
        /* The process has finished. Freeing its memory takes the kernel a while, so it is reaped later. */
        kill(process.pid, SIGKILL);
        decoder->over = process;
    }
    return rc;
}
