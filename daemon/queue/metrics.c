#include "daemon/queue/metrics.h"

#include "daemon/base/clock.h"
#include "recon/recon.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NAMES = 32, NAME = 48, BUCKETS = 14, STATUSES = 600 };

/* Seconds; from one small 2-D scan to an hour. */
static const double bounds[BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300, 3600};

struct histogram {
    uint64_t bucket[BUCKETS + 1]; /* the last: above all bounds */
    double sum;
};

/* Counters and histograms by the value of a label; further values are counted as "other". */
struct named {
    char name[NAMES][NAME];
    int count;
    double value[NAMES];
    struct histogram histogram[NAMES];
};

/* Failures of a GPU. */
static const int gpu_kinds[] = {ERR_DEVICE, ERR_GPU_OOM};
enum { GPU_KINDS = sizeof gpu_kinds / sizeof *gpu_kinds };

enum { GET, HEAD, POST, DELETE, OTHER, METHODS };
static const char *const methods[METHODS] = {"GET", "HEAD", "POST", "DELETE", "other"};

struct metrics {
    pthread_mutex_t lock;
    double started; /* s since 1970 */
    struct named submitted, completed, duration, stages, samples, failed_kind, ingest_bytes;
    uint64_t failed[NAMES][ERR_COUNT]; /* [index in failed_kind][-code] */
    uint64_t rejected[ERR_COUNT], put_back[ERR_COUNT], canceled, retried;
    uint64_t answered[METHODS][STATUSES];
    uint64_t sessions_begun, sessions[METRICS_SESSIONS]; /* of MRD */
    struct histogram waited;
    double overflowed; /* samples */
    double fallbacks;
    double removed_old, removed_large, scans_dropped;
    struct named gpu_failures[GPU_KINDS]; /* by device */
    double last_success;                  /* s since 1970 */
};

void metrics_free(struct metrics *metrics)
{
    if (!metrics)
        return;
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

static int index_of(struct named *named, const char *name)
{
    for (int i = 0; i < named->count; i++)
        if (strcmp(named->name[i], name) == 0)
            return i;
    if (named->count == NAMES)
        return NAMES - 1;
    const char *kept = named->count == NAMES - 1 ? "other" : name;
    int i = named->count++, used = 0;
    /* Names go into a label between quotes. */
    for (; *kept && used < NAME - 1; kept++)
        named->name[i][used++] = strchr("\"\\\n", *kept) ? '_' : *kept;
    named->name[i][used] = '\0';
    return i;
}

int metrics_create(struct metrics **out)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics)
        return err_no_memory("the metrics");
    pthread_mutex_init(&metrics->lock, NULL);
    metrics->started = 1e-3 * (double)clock_milliseconds();
    /* Prometheus sees no increase if a counter first appears with its first event. */
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++) {
        index_of(&metrics->submitted, kind->name);
        index_of(&metrics->completed, kind->name);
        index_of(&metrics->duration, kind->name);
    }
    *out = metrics;
    return 0;
}

static void histogram_add(struct histogram *histogram, double value)
{
    int i = 0;
    while (i < BUCKETS && value > bounds[i])
        i++;
    histogram->bucket[i]++;
    histogram->sum += value;
}

void metrics_submitted(struct metrics *metrics, const char *kind)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->submitted.value[index_of(&metrics->submitted, kind)]++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_ingested(struct metrics *metrics, const char *format, int64_t bytes)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->ingest_bytes.value[index_of(&metrics->ingest_bytes, format)] += (double)bytes;
    pthread_mutex_unlock(&metrics->lock);
}

const char *metrics_session_name(enum metrics_session end)
{
    static const char *const names[METRICS_SESSIONS] = {"answered", "failed", "left", "refused", "broken", "empty"};
    return names[end];
}

void metrics_session_began(struct metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->sessions_begun++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_session_ended(struct metrics *metrics, enum metrics_session end)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->sessions[end]++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_rejected(struct metrics *metrics, int code)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->rejected[code <= 0 && code > -ERR_COUNT ? -code : ERR_INTERNAL_INDEX]++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_started(struct metrics *metrics, double waited)
{
    pthread_mutex_lock(&metrics->lock);
    /* The wall clock may have been set back meanwhile. */
    histogram_add(&metrics->waited, waited > 0 ? waited : 0);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_retried(struct metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->retried++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_put_back(struct metrics *metrics, int code)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->put_back[code <= 0 && code > -ERR_COUNT ? -code : ERR_INTERNAL_INDEX]++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_fell_back(struct metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->fallbacks++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_gpu_failed(struct metrics *metrics, const char *device, int code)
{
    pthread_mutex_lock(&metrics->lock);
    for (int kind = 0; kind < GPU_KINDS; kind++)
        if (gpu_kinds[kind] == code)
            metrics->gpu_failures[kind].value[index_of(&metrics->gpu_failures[kind], device)]++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_canceled(struct metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->canceled++;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_succeeded(struct metrics *metrics, const char *kind, double seconds, const json_t *report)
{
    const char *stage, *device = json_string_value(json_object_get(report, "device"));
    json_t *value;
    pthread_mutex_lock(&metrics->lock);
    metrics->completed.value[index_of(&metrics->completed, kind)]++;
    histogram_add(&metrics->duration.histogram[index_of(&metrics->duration, kind)], seconds);
    json_object_foreach (json_object_get(report, "stages"), stage, value)
        if (json_is_number(value))
            histogram_add(&metrics->stages.histogram[index_of(&metrics->stages, stage)], json_number_value(value));
    metrics->samples.value[index_of(&metrics->samples, device ? device : "unknown")] +=
        json_number_value(json_object_get(report, "samples"));
    metrics->overflowed += json_number_value(json_object_get(json_object_get(report, "overflow"), "samples"));
    metrics->last_success = 1e-3 * (double)clock_milliseconds();
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_failed(struct metrics *metrics, const char *kind, int code, double seconds)
{
    pthread_mutex_lock(&metrics->lock);
    metrics
        ->failed[index_of(&metrics->failed_kind, kind)][code <= 0 && code > -ERR_COUNT ? -code : ERR_INTERNAL_INDEX]++;
    histogram_add(&metrics->duration.histogram[index_of(&metrics->duration, kind)], seconds);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_removed(struct metrics *metrics, int old, int large, int scans)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->removed_old += old;
    metrics->removed_large += large;
    metrics->scans_dropped += scans;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_answered(struct metrics *metrics, const char *method, unsigned status)
{
    int m = 0;
    while (m < OTHER && strcmp(methods[m], method) != 0)
        m++;
    pthread_mutex_lock(&metrics->lock);
    metrics->answered[m][status < STATUSES ? status : 0]++;
    pthread_mutex_unlock(&metrics->lock);
}

/* ---- printing ---- */

#define PREFIX "mrirecond_"

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(FILE *out, const char *name, const char *type, const char *help, double value)
{
    head(out, name, type, help);
    fprintf(out, "%s %.17g\n", name, value);
}

static void print_named(FILE *out, const struct named *named, const char *name, const char *label, const char *help)
{
    head(out, name, "counter", help);
    for (int i = 0; i < named->count; i++)
        fprintf(out, "%s{%s=\"%s\"} %.17g\n", name, label, named->name[i], named->value[i]);
}

/* `label` is `stage="fft",` or empty. */
static void print_histogram(FILE *out, const struct histogram *histogram, const char *name, const char *label)
{
    uint64_t total = 0;
    for (int i = 0; i < BUCKETS; i++) {
        total += histogram->bucket[i];
        fprintf(out, "%s_bucket{%sle=\"%g\"} %llu\n", name, label, bounds[i], (unsigned long long)total);
    }
    total += histogram->bucket[BUCKETS];
    fprintf(out, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, label, (unsigned long long)total);
    char braces[NAME + 32] = "";
    if (*label)
        snprintf(braces, sizeof braces, "{%.*s}", (int)strlen(label) - 1, label);
    fprintf(out, "%s_sum%s %.17g\n%s_count%s %llu\n", name, braces, histogram->sum, name, braces,
            (unsigned long long)total);
}

static void print_histograms(FILE *out, const struct named *named, const char *name, const char *label,
                             const char *help)
{
    head(out, name, "histogram", help);
    for (int i = 0; i < named->count; i++) {
        char text[NAME + 24];
        snprintf(text, sizeof text, "%s=\"%s\",", label, named->name[i]);
        print_histogram(out, &named->histogram[i], name, text);
    }
}

/* One line for each code of an error that has a count, and for the code at index `always` (-1: none). */
static void print_reasons(FILE *out, const char *name, const uint64_t count[ERR_COUNT], int always)
{
    for (int i = 0; i < ERR_COUNT; i++)
        if (count[i] || i == always)
            fprintf(out, "%s{reason=\"%s\"} %llu\n", name, err_name(-i), (unsigned long long)count[i]);
}

static void print_jobs(const struct metrics *metrics, FILE *out)
{
    print_named(out, &metrics->submitted, PREFIX "jobs_submitted_total", "kind", "Jobs accepted.");
    print_named(out, &metrics->completed, PREFIX "jobs_completed_total", "kind", "Jobs that succeeded.");
    head(out, PREFIX "jobs_failed_total", "counter", "Jobs that failed, by the code of the reason.");
    for (int k = 0; k < metrics->failed_kind.count; k++)
        for (int i = 0; i < ERR_COUNT; i++)
            if (metrics->failed[k][i])
                fprintf(out, PREFIX "jobs_failed_total{kind=\"%s\",reason=\"%s\"} %llu\n", metrics->failed_kind.name[k],
                        err_name(-i), (unsigned long long)metrics->failed[k][i]);
    one(out, PREFIX "jobs_canceled_total", "counter", "Jobs canceled.", (double)metrics->canceled);
    one(out, PREFIX "jobs_retried_total", "counter", "Jobs run again because their worker died.",
        (double)metrics->retried);
    head(out, PREFIX "jobs_put_back_total", "counter",
         "Jobs put back into the queue because of a shortage on the server, by its code.");
    print_reasons(out, PREFIX "jobs_put_back_total", metrics->put_back, ERR_SPOOL_FULL_INDEX);
    head(out, PREFIX "job_queue_wait_seconds", "histogram", "Time between acceptance and start.");
    print_histogram(out, &metrics->waited, PREFIX "job_queue_wait_seconds", "");
    print_histograms(out, &metrics->duration, PREFIX "job_duration_seconds", "kind", "Time between start and end.");
    print_histograms(out, &metrics->stages, PREFIX "stage_duration_seconds", "stage", "Time in one stage of a job.");
    one(out, PREFIX "last_success_timestamp_seconds", "gauge", "When a job last succeeded; 0: never.",
        metrics->last_success);
}

static void print_devices(const struct metrics *metrics, FILE *out)
{
    print_named(out, &metrics->samples, PREFIX "samples_gridded_total", "device", "k-space samples gridded.");
    one(out, PREFIX "samples_overflowed_total", "counter",
        "k-space samples that the CPU gridded for a GPU whose bins were full.", metrics->overflowed);
    head(out, PREFIX "gpu_fallback_jobs_total", "counter",
         "Jobs that ran on the CPU because no GPU was available, by the reason.");
    fprintf(out, PREFIX "gpu_fallback_jobs_total{reason=\"no-device\"} %.0f\n", metrics->fallbacks);
    head(out, PREFIX "gpu_errors_total", "counter",
         "Failures of a GPU: the device, or its memory too small for a job.");
    for (int kind = 0; kind < GPU_KINDS; kind++)
        for (int i = 0; i < metrics->gpu_failures[kind].count; i++)
            fprintf(out, PREFIX "gpu_errors_total{gpu=\"%s\",kind=\"%s\"} %.0f\n", metrics->gpu_failures[kind].name[i],
                    err_name(gpu_kinds[kind]), metrics->gpu_failures[kind].value[i]);
}

static void print_requests(const struct metrics *metrics, FILE *out)
{
    print_named(out, &metrics->ingest_bytes, PREFIX "ingest_bytes_total", "format",
                "Bytes of accepted uploads, by their format.");
    head(out, PREFIX "ingest_rejected_total", "counter", "Uploads refused, by the code of the reason.");
    print_reasons(out, PREFIX "ingest_rejected_total", metrics->rejected, -1);
    head(out, PREFIX "http_requests_total", "counter", "Requests answered.");
    for (int m = 0; m < METHODS; m++)
        for (int s = 0; s < STATUSES; s++)
            if (metrics->answered[m][s])
                fprintf(out, PREFIX "http_requests_total{method=\"%s\",code=\"%d\"} %llu\n", methods[m], s,
                        (unsigned long long)metrics->answered[m][s]);
}

static void print_process(const struct metrics *metrics, FILE *out)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        one(out, "process_cpu_seconds_total", "counter", "CPU time of the daemon, without its workers.",
            (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%*d %ld", &pages) == 1)
        one(out, "process_resident_memory_bytes", "gauge", "Resident memory of the daemon.",
            (double)pages * (double)sysconf(_SC_PAGESIZE));
    if (file)
        fclose(file);
    int fds = -3; /* ".", "..", and the descriptor of the folder itself */
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        fds++;
    if (folder) {
        closedir(folder);
        one(out, "process_open_fds", "gauge", "Open file descriptors.", fds);
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        one(out, "process_max_fds", "gauge", "Most file descriptors that can be open.", (double)limit.rlim_cur);
    one(out, "process_start_time_seconds", "gauge", "When the daemon started.", metrics->started);
}

/* Results and scans of ended jobs, and their limits. */
static void print_kept(const struct metrics *metrics, const struct metrics_now *now, FILE *out)
{
    head(out, PREFIX "kept_jobs", "gauge", "Jobs that have ended and are kept, with their results.");
    for (int i = 0; i < JOB_STATES; i++)
        if (job_state_is_final((enum job_state)i))
            fprintf(out, PREFIX "kept_jobs{state=\"%s\"} %lld\n", job_state_name((enum job_state)i),
                    (long long)now->ended[i]);
    one(out, PREFIX "kept_results_bytes", "gauge", "Bytes of the results of ended jobs.",
        (double)now->kept.result_bytes);
    one(out, PREFIX "kept_scans", "gauge", "Scans of ended jobs that are kept.", (double)now->kept.scans);
    one(out, PREFIX "kept_scans_bytes", "gauge", "Bytes of scans of ended jobs.", (double)now->kept.scan_bytes);
    one(out, PREFIX "kept_limit_bytes", "gauge", "Bytes that results and scans of ended jobs may take; 0: any.",
        (double)now->keep_bytes);
    one(out, PREFIX "kept_limit_seconds", "gauge", "How long ended jobs are kept; 0: until they are deleted.",
        (double)now->keep_seconds);
    head(out, PREFIX "kept_jobs_removed_total", "counter",
         "Ended jobs that were removed, for their age or to free space.");
    fprintf(out, PREFIX "kept_jobs_removed_total{reason=\"age\"} %.17g\n", metrics->removed_old);
    fprintf(out, PREFIX "kept_jobs_removed_total{reason=\"room\"} %.17g\n", metrics->removed_large);
    one(out, PREFIX "kept_scans_removed_total", "counter",
        "Scans of ended jobs that were removed because uploads needed the space.", metrics->scans_dropped);
    one(out, PREFIX "disk_size_bytes", "gauge", "Bytes of the state folder's disk.", (double)now->disk_bytes);
    one(out, PREFIX "disk_free_bytes", "gauge", "Bytes free on it.", (double)now->disk_free);
}

static void print_workers(const struct metrics_now *now, FILE *out)
{
    one(out, PREFIX "workers", "gauge", "Workers that should run.", now->workers);
    one(out, PREFIX "workers_ready", "gauge", "Workers that are ready, and whose devices are not in back-off.",
        now->workers_ready);
    one(out, PREFIX "workers_resting", "gauge",
        "Workers in back-off because their device failed several jobs in a row.", now->workers_resting);
    head(out, PREFIX "gpu_memory_used_bytes", "gauge",
         "Memory in use on a GPU, by all processes, as its worker last reported.");
    for (int i = 0; i < now->gpus; i++)
        fprintf(out, PREFIX "gpu_memory_used_bytes{gpu=\"%s\"} %lld\n", now->gpu[i].device,
                (long long)now->gpu[i].used);
    head(out, PREFIX "gpu_memory_total_bytes", "gauge", "Memory of a GPU.");
    for (int i = 0; i < now->gpus; i++)
        fprintf(out, PREFIX "gpu_memory_total_bytes{gpu=\"%s\"} %lld\n", now->gpu[i].device,
                (long long)now->gpu[i].total);
}

static void print_sessions(const struct metrics *metrics, FILE *out)
{
    uint64_t ended = 0;
    head(out, PREFIX "mrd_sessions_total", "counter", "MRD sessions that have ended, by how.");
    for (int i = 0; i < METRICS_SESSIONS; i++) {
        fprintf(out, PREFIX "mrd_sessions_total{end=\"%s\"} %llu\n", metrics_session_name((enum metrics_session)i),
                (unsigned long long)metrics->sessions[i]);
        ended += metrics->sessions[i];
    }
    one(out, PREFIX "mrd_sessions", "gauge", "MRD sessions that are open.", (double)(metrics->sessions_begun - ended));
}

void metrics_print(struct metrics *metrics, const struct metrics_now *now, FILE *out)
{
    head(out, PREFIX "build_info", "gauge",
         "The version that runs, and the CUDA that it was built with (none: for CPUs alone); always 1.");
    fprintf(out, PREFIX "build_info{version=\"%s\",cuda=\"%s\"} 1\n", MRIRECON_VERSION, MRIRECON_CUDA);
    head(out, PREFIX "queue_jobs", "gauge", "Jobs waiting.");
    for (int i = 0; i < PRIORITIES; i++)
        fprintf(out, PREFIX "queue_jobs{priority=\"%s\"} %lld\n", job_priority_name((enum job_priority)i),
                (long long)now->waiting[i]);
    one(out, PREFIX "queue_held", "gauge", "1: no job starts because the disk is full or fails.", now->held);
    one(out, PREFIX "running_jobs", "gauge", "Jobs running.", (double)now->running);
    one(out, PREFIX "queue_capacity_jobs", "gauge", "Limit of waiting jobs.", (double)now->capacity);
    one(out, PREFIX "queue_oldest_enqueued_timestamp_seconds", "gauge",
        "When the longest-waiting job was accepted; 0: none waits.", 1e-3 * (double)now->oldest);
    one(out, PREFIX "spool_used_bytes", "gauge", "Bytes of waiting uploads and kept scans.", (double)now->spool_used);
    one(out, PREFIX "spool_free_bytes", "gauge", "Bytes that uploads may still take.", (double)now->spool_free);
    one(out, PREFIX "found_files", "gauge", "Scans and results without a job, set aside in found-TIME/.", now->found);
    one(out, PREFIX "event_streams", "gauge", "Streams of the events of all jobs that are open.", now->streams);
    one(out, PREFIX "sessions", "gauge", "Logins of browsers that have not ended.", now->sessions);
    one(out, PREFIX "ready", "gauge", "1: /readyz says ready.", now->ready);
    one(out, PREFIX "tls_certificate_expiry_timestamp_seconds", "gauge",
        "When the certificate in use expires; 0: plain HTTP.", (double)now->certificate_end);
    pthread_mutex_lock(&metrics->lock);
    for (int i = 0; i < now->gpus * GPU_KINDS; i++) /* 0 until the first failure */
        index_of(&metrics->gpu_failures[i % GPU_KINDS], now->gpu[i / GPU_KINDS].device);
    print_kept(metrics, now, out);
    print_jobs(metrics, out);
    print_devices(metrics, out);
    print_requests(metrics, out);
    print_sessions(metrics, out);
    pthread_mutex_unlock(&metrics->lock);
    print_workers(now, out);
    print_process(metrics, out);
}
