/* mrirecon-worker: runs one job from the command line, or jobs of a daemon. */
#include "daemon/worker/worker.h"

#include "daemon/wire.h"
#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "recon/codec/decoder.h"
#include "recon/codec/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USAGE = 2 };

static const char help[] =
    "mrirecon-worker: run the jobs of mrirecond, one at a time.\n"
    "\n"
    "  mrirecon-worker run --in FILE --out FILE [OPTION ...] [PARAMETER=VALUE ...]\n"
    "  mrirecon-worker serve [OPTION ...]        run the jobs of mrirecond, which starts it (socket: file descriptor "
    "3)\n"
    "\n"
    "  --in FILE            the input: of kind recon an ISMRMRD HDF5 file or stream, or .npz\n"
    "  --out [RESULT=]FILE  a result, by default the first; the extension selects the format: of an image .h5, "
    ".nii.gz,\n"
    "                       .png, .npy, .dcm, .dcm.zip, .cfl.tar or .mrd. Can be repeated\n"
    "  --report FILE        decisions, warnings and timings of the job, as JSON\n"
    "  --kind KIND          kind of job (default recon)\n"
    "  --device DEVICE      auto, cpu, gpu, gpu:N, or gpu:N+M for jobs that two GPUs share (default auto:\n"
    "                       the first usable GPU, else the CPU)\n"
    "  --threads N          CPU threads (default: one per available core)\n"
    "  --memory BYTES       maximum memory of a decoded input (default: three quarters of the free memory)\n"
    "  --decode-seconds S   CPU seconds that reading an input may take, plus one per MiB of it (default 5)\n"
    "  --codec FILE         path of mrirecon-codec (default: in this program's folder)\n"
    "  --help, --version\n";

struct command {
    struct worker_options options;
    const char *in, *report, *out[KIND_MAX_FILES]; /* out: paths */
    char result[KIND_MAX_FILES][KIND_FILE_NAME];   /* result that goes to each of these; "": the default one */
    struct result_file file[KIND_MAX_FILES];
    int outs;
    const struct kind *kind;
    struct param_values values;
    char folder[PATH_MAX]; /* this program's */
    char codec[PATH_MAX + 16];
};

static int failed(int status)
{
    fprintf(stderr, "mrirecon-worker: %s\n", err_last()->text);
    return status;
}

static int usage(const char *words, const char *value)
{
    fprintf(stderr, "mrirecon-worker: %s%s%s See mrirecon-worker --help.\n", words, value, *value ? "." : "");
    return USAGE;
}

/* Print `text` in lines of at most 100 columns; all but the first are indented. */
static void lines_print(const char *text)
{
    size_t length;
    for (; *text; text += length + strspn(text + length, " ")) {
        length = text_line(text, 94);
        printf("%.*s\n%s", (int)length, text, text[length] ? "      " : "");
    }
}

static void parameters_print(void)
{
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++) {
        printf("\nParameters of kind %s (%s)\n\n", kind->name, kind->help);
        for (const struct param *p = kind->params; p->name; p++) {
            char values[1024];
            size_t used = (size_t)snprintf(values, sizeof values, "%s = ", p->name);
            for (int i = 0; p->choices && p->choices[i] && used < sizeof values; i++)
                used +=
                    (size_t)snprintf(values + used, sizeof values - used, "%s%s", p->choices[i],
                                     p->choices[i + 1] || p->type == PARAM_INT || p->type == PARAM_REAL ? " | " : "");
            if ((p->type == PARAM_INT || p->type == PARAM_REAL) && used < sizeof values)
                used += (size_t)snprintf(values + used, sizeof values - used, "%.10g .. %.10g", p->min, p->max);
            if (used < sizeof values)
                snprintf(values + used, sizeof values - used, "%s (default %s)", p->type == PARAM_TEXT ? "text" : "",
                         *p->fallback ? p->fallback : "empty");
            printf("  ");
            lines_print(values);
            printf("      ");
            lines_print(p->help);
        }
    }
}

/* "auto", "cpu", "gpu", "gpu:1", "gpu:0+1". */
static bool device_parse(const char *text, struct worker_options *options)
{
    char *end = NULL;
    options->device_index = 0;
    options->device = strcmp(text, "cpu") == 0 ? DEV_CPU : strncmp(text, "gpu", 3) == 0 ? DEV_GPU : DEV_AUTO;
    if (strncmp(text, "gpu:", 4) == 0 && text[4] >= '0' && text[4] <= '9') {
        options->device_index = (int)strtol(text + 4, &end, 10);
        for (options->joined = 0; *end == '+' && end[1] >= '0' && end[1] <= '9'; options->joined++) {
            if (options->joined == DEV_PARTS_MOST - 1)
                return false;
            options->joined_index[options->joined] = (int)strtol(end + 1, &end, 10);
        }
        return *end == '\0' && options->device_index < 1024;
    }
    return strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "gpu") == 0;
}

static int device_open(struct dev **dev, const struct worker_options *options)
{
    int rc = dev_create(dev, options->device, options->device_index, options->threads);
    for (int i = 0; i < options->joined && rc == 0; i++)
        rc = dev_join(*dev, options->joined_index[i]);
    return rc;
}

static bool option_number(const char *text, double most, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out <= most;
}

/* mrirecon-codec beside this program. */
static void codec_find(struct command *command)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    snprintf(command->folder, sizeof command->folder, "%s", dirname(self));
    snprintf(command->codec, sizeof command->codec, "%s/mrirecon-codec", command->folder);
    command->options.codec = command->codec;
}

static int parameter_set(struct command *command, const char *text)
{
    char name[64];
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof name)
        return usage("A parameter has the form NAME=VALUE: ", text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    return param_values_set(command->kind, &command->values, name, equals + 1) == 0 ? 0 : failed(USAGE);
}

/* "image=FILE": a name without a slash before the first =. */
static void out_take(struct command *command, const char *text)
{
    const size_t length = strcspn(text, "=/");
    const bool named = text[length] == '=' && length > 0 && length < KIND_FILE_NAME;
    snprintf(command->result[command->outs], KIND_FILE_NAME, "%.*s", named ? (int)length : 0, text);
    command->out[command->outs++] = named ? text + length + 1 : text;
}

/* An option and its value, in optarg: 0, or the exit status. */
static int option_take(struct command *command, int letter, const char **kind)
{
    struct worker_options *options = &command->options;
    double number = 0;
    bool valid = true;
    switch (letter) {
    case 'i':
        command->in = optarg;
        break;
    case 'r':
        command->report = optarg;
        break;
    case 'k':
        *kind = optarg;
        break;
    case 'c':
        options->codec = optarg;
        break;
    case 'd':
        valid = device_parse(optarg, options);
        break;
    case 'o':
        if (command->outs == KIND_MAX_FILES)
            return usage("--out was given too often: ", optarg);
        out_take(command, optarg);
        break;
    case 't':
        valid = option_number(optarg, 4096, &number);
        options->threads = valid ? (int)number : 0;
        break;
    case 'm':
        valid = option_number(optarg, 1e18, &number);
        options->memory_bytes = valid ? (uint64_t)number : 0;
        break;
    default: /* 's' */
        valid = option_number(optarg, 1e9, &options->decode_seconds);
    }
    return valid ? 0 : usage("An option's value is out of range: ", optarg);
}

/* Fills *command. 0, the exit status, or -1 if it was --help or --version. */
static int command_parse(struct command *command, int argc, char **argv)
{
    static const struct option known[] = {
        {"in", 1, NULL, 'i'},     {"out", 1, NULL, 'o'},     {"report", 1, NULL, 'r'},         {"kind", 1, NULL, 'k'},
        {"device", 1, NULL, 'd'}, {"threads", 1, NULL, 't'}, {"memory", 1, NULL, 'm'},         {"codec", 1, NULL, 'c'},
        {"help", 0, NULL, 'h'},   {"version", 0, NULL, 'v'}, {"decode-seconds", 1, NULL, 's'}, {NULL, 0, NULL, 0},
    };
    const char *kind = "recon";
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (letter == '?')
            return usage("Unknown option, or its value is missing: ", argv[optind - 1]);
        if (letter == 'v') {
            puts("mrirecon-worker " MRIRECON_VERSION);
            return -1;
        }
        if (letter == 'h') {
            fputs(help, stdout);
            parameters_print();
            return -1;
        }
        int status = option_take(command, letter, &kind);
        if (status)
            return status;
    }
    command->kind = kind_find(kind);
    if (!command->kind)
        return usage("There is no job kind ", kind);
    param_values_init(command->kind, &command->values);
    return 0;
}

/* ---- run ---- */

/* SIGINT and SIGTERM are blocked, and checked here, between pieces of work. */
static int interrupted(void *context, const struct step_progress *now)
{
    (void)now;
    const struct timespec none = {0, 0};
    return sigtimedwait(context, NULL, &none) > 0;
}

static int format_of(const struct result_form *form, const char *path)
{
    size_t length = strlen(path);
    for (int i = 0; form->formats[i].name; i++) {
        const char *ending = form->formats[i].name;
        size_t n = strlen(ending);
        if (length > n + 1 && path[length - n - 1] == '.' && strcmp(path + length - n, ending) == 0)
            return i;
    }
    return -1;
}

static int save_failed(const char *path)
{
    return err_set(errno == ENOSPC ? ERR_SPOOL_FULL : ERR_IO, "%s could not be written: %s.", path, strerror(errno));
}

/* Let `write` fill a temporary file beside `path`, and rename it to `path` when it is complete. */
static int file_save(const char *path, int (*write)(void *context, int fd), void *context)
{
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        return err_no_memory("writing %s", path);
    int rc = 0, fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        rc = save_failed(path);
        free(temporary);
        return rc;
    }
    mode_t mask = umask(0);
    umask(mask);
    rc = write(context, fd);
    if (rc == 0 && (fchmod(fd, 0666 & ~mask) != 0 || rename(temporary, path) != 0))
        rc = save_failed(path);
    if (rc != 0)
        unlink(temporary);
    close(fd);
    free(temporary);
    return rc;
}

struct result_save {
    const struct job_result *result;
    int format;
};

static int result_put_into(void *context, int fd)
{
    const struct result_save *save = context;
    return save->result->write(save->result->of, save->format, fd);
}

static int report_put_into(void *context, int fd)
{
    return json_dumpfd(context, fd, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0
               ? 0
               : err_set(ERR_IO, "The report could not be written: %s.", strerror(errno));
}

static int results_save(const struct command *command, const struct job_outcome *outcome)
{
    int rc = 0;
    double start = clock_seconds();
    for (int i = 0; i < command->outs && rc == 0; i++) {
        const char *name = command->kind->results[command->file[i].result].name;
        struct result_save save = {job_outcome_find(outcome, name), command->file[i].format};
        rc = save.result ? file_save(command->out[i], result_put_into, &save)
                         : err_set(ERR_INTERNAL, "The job made no result \"%s\".", name);
    }
    json_object_set_new(json_object_get(outcome->report, "stages"), "write", json_real(clock_seconds() - start));
    if (rc == 0 && command->report)
        rc = file_save(command->report, report_put_into, outcome->report);
    return rc;
}

/* Detect an unwritable folder before the job runs. */
static bool folder_writable(const char *path)
{
    char *folder = strdup(path);
    bool writable = folder && access(dirname(folder), W_OK | X_OK) == 0;
    free(folder);
    return writable;
}

/* Find the result and format of each --out. */
static int outs_find(struct command *command)
{
    const struct kind *kind = command->kind;
    const char *wanted = NULL;
    for (int i = 0; kind->params[i].name; i++)
        if (strcmp(kind->params[i].name, "results") == 0)
            wanted = command->values.value[i].text;
    for (int i = 0; i < command->outs; i++) {
        const char *name = command->result[i];
        const int result = *name ? kind_result_find(kind, name) : kind_result_default(kind, wanted);
        if (result < 0 || !(kind_results_wanted(kind, wanted) >> result & 1))
            return usage("The job makes no result of this name: ", name);
        const struct result_form *form = kind->results[result].form;
        const int format = format_of(form, command->out[i]);
        if (format < 0) {
            char text[256];
            size_t used = 0;
            for (int f = 0; form->formats[f].name && used < sizeof text; f++)
                used += (size_t)snprintf(text + used, sizeof text - used, "%s.%s",
                                         f == 0                      ? ""
                                         : form->formats[f + 1].name ? ", "
                                                                     : " or ",
                                         form->formats[f].name);
            fprintf(stderr,
                    "mrirecon-worker: The ending of a result file \"%s\" is %s, not that of %s. See "
                    "mrirecon-worker --help.\n",
                    kind->results[result].name, text, command->out[i]);
            return USAGE;
        }
        command->file[i] = (struct result_file){result, format};
    }
    return 0;
}

static int run_check(struct command *command)
{
    struct stat status;
    if (!command->in || command->outs == 0)
        return usage("run needs --in and --out.", "");
    int rc = outs_find(command);
    if (rc != 0)
        return rc;
    for (int i = 0; i <= command->outs; i++) {
        const char *path = i < command->outs ? command->out[i] : command->report;
        if (path && stat(path, &status) == 0 && !S_ISREG(status.st_mode))
            return usage("The output exists and is not a regular file: ", path);
        if (path && !folder_writable(path))
            return usage("The folder of this output does not exist, or is not writable: ", path);
    }
    return 0;
}

static int run(struct command *command)
{
    int status = run_check(command);
    if (status != 0)
        return status;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    const struct job_listener listener = {&signals, interrupted};
    struct job_outcome outcome = {0};
    struct dev *dev = NULL;
    struct decoder *decoder = NULL;
    int rc = 0, input = open(command->in, O_RDONLY | O_CLOEXEC);
    if (input < 0)
        rc = err_set(ERR_IO, "%s cannot be read: %s.", command->in, strerror(errno));
    if (rc == 0)
        rc = decoder_create(&decoder, command->options.codec);
    /* The decoder starts while the device warms up. If it cannot, decoding reports why. */
    if (rc == 0)
        decoder_prepare(decoder, 1);
    if (rc == 0)
        rc = device_open(&dev, &command->options);
    struct job_request request = worker_request(&command->options, command->kind, &command->values, input, decoder);
    request.room = (struct job_room){.files = command->file, .count = command->outs};
    if (rc == 0)
        rc = kind_run_job(&outcome, dev, &request, &listener);
    if (rc == 0)
        rc = results_save(command, &outcome);
    job_outcome_free(&outcome);
    dev_free(dev);
    decoder_free(decoder);
    if (input >= 0)
        close(input);
    return rc == 0 ? 0 : failed(1);
}

/* ---- serve ---- */

/* From here on this process can only open files of its installation and of the system. */
static int confine(const struct command *command, bool *landlock)
{
    /* dev_create() looks for the GPU library here. */
    char libraries[PATH_MAX + 8], beside[PATH_MAX + 32];
    snprintf(libraries, sizeof libraries, "%s/../lib", command->folder);
    snprintf(beside, sizeof beside, "%s/mrirecon-gpu.so", command->folder);
    const char *const readable[] = {command->options.codec, libraries, beside, NULL};
    return sandbox_enter_worker(readable, landlock);
}

/* Keep the memory of one job for the next: a new page takes longer to get than to fill. These are what malloc() sets by
 * itself once a block of this size is freed. */
static void memory_keep(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

static int serve(const struct command *command)
{
    struct dev *dev = NULL;
    bool landlock = false;
    if (fcntl(WIRE_FD, F_SETFD, FD_CLOEXEC) != 0)
        return usage("serve is for the daemon, which hands over a socket.", "");
    sandbox_follow_parent(WIRE_FD);
    /* Who looks for a stream's next readouts sleeps for so short a time; threads inherit it. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    memory_keep();
    /* Load all kernels now, not each at its first use in a job. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    /* Before a device's driver starts threads. */
    int rc = confine(command, &landlock);
    if (rc == 0)
        rc = device_open(&dev, &command->options);
    if (rc == 0)
        rc = worker_probe(dev);
    if (rc != 0) {
        struct err failure = *err_last();
        json_t *message = json_pack("{s:s, s:s, s:o, s:b}", "type", "failed", "id", "", "error",
                                    wire_error_pack(&failure), "fatal", true);
        wire_send(WIRE_FD, message, NULL, 0);
        json_decref(message);
        dev_free(dev);
        err_restore(&failure);
        return failed(1);
    }
    return worker_serve(WIRE_FD, dev, &command->options, landlock);
}

int main(int argc, char **argv)
{
    struct command command = {.options = {.device = DEV_AUTO}};
    codec_find(&command);
    int status = command_parse(&command, argc, argv);
    if (status != 0)
        return status < 0 ? 0 : status;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const char *verb = optind < argc ? argv[optind] : "";
    for (int i = optind + 1; i < argc; i++) {
        status = parameter_set(&command, argv[i]);
        if (status != 0)
            return status;
    }
    if (kind_check(command.kind, &command.values) != 0)
        return failed(USAGE);
    if (strcmp(verb, "run") == 0)
        return run(&command);
    if (strcmp(verb, "serve") == 0)
        return serve(&command);
    return *verb ? usage("There is no command ", verb) : usage("A command is missing: run or serve.", "");
}
