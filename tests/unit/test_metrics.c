/* /metrics before any event, and each event counted in its metric. */
#include "daemon/queue/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *print(struct metrics *metrics, const struct metrics_now *now)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    metrics_print(metrics, now, out);
    fclose(out);
    return text;
}

static void says(struct metrics *metrics, const struct metrics_now *now, const char *line)
{
    char *text = print(metrics, now), whole[200];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(text, whole))
        fail_msg("no line \"%s\" in:\n%s", line, text);
    free(text);
}

static void counters_begin_at_zero(void **state)
{
    (void)state;
    struct metrics *metrics;
    const struct metrics_gpu gpu = {"gpu 0 (H200)", 1, 2};
    const struct metrics_now now = {.gpu = &gpu, .gpus = 1};
    assert_int_equal(metrics_create(&metrics), 0);
    says(metrics, &now, "mrirecond_jobs_submitted_total{kind=\"recon\"} 0");
    says(metrics, &now, "mrirecond_jobs_completed_total{kind=\"recon\"} 0");
    says(metrics, &now, "mrirecond_job_duration_seconds_count{kind=\"recon\"} 0");
    says(metrics, &now, "mrirecond_gpu_errors_total{gpu=\"gpu 0 (H200)\",kind=\"device-failed\"} 0");
    says(metrics, &now, "mrirecond_gpu_errors_total{gpu=\"gpu 0 (H200)\",kind=\"gpu-oom\"} 0");
    metrics_gpu_failed(metrics, gpu.device, ERR_DEVICE);
    says(metrics, &now, "mrirecond_gpu_errors_total{gpu=\"gpu 0 (H200)\",kind=\"device-failed\"} 1");
    metrics_failed(metrics, "recon", ERR_TRUNCATED, 1);
    says(metrics, &now, "mrirecond_jobs_failed_total{kind=\"recon\",reason=\"truncated-file\"} 1");
    says(metrics, &now, "mrirecond_job_duration_seconds_count{kind=\"recon\"} 1");
    metrics_free(metrics);
}

static void uploads_are_counted_by_format(void **state)
{
    (void)state;
    struct metrics *metrics;
    const struct metrics_now now = {.ready = true, .certificate_end = 1800000000};
    assert_int_equal(metrics_create(&metrics), 0);
    metrics_ingested(metrics, "hdf5", 1000);
    metrics_ingested(metrics, "hdf5", 1);
    metrics_ingested(metrics, "stream", 7);
    says(metrics, &now, "mrirecond_ingest_bytes_total{format=\"hdf5\"} 1001");
    says(metrics, &now, "mrirecond_ingest_bytes_total{format=\"stream\"} 7");
    says(metrics, &now, "mrirecond_ready 1");
    says(metrics, &now, "mrirecond_tls_certificate_expiry_timestamp_seconds 1800000000");
    metrics_free(metrics);
}

static void kept_jobs_are_reported_with_their_limits(void **state)
{
    (void)state;
    struct metrics *metrics;
    const struct metrics_now now = {.ended[JOB_FAILED] = 3,
                                    .kept = {.scans = 2, .scan_bytes = 40, .result_bytes = 5},
                                    .keep_bytes = 1000,
                                    .keep_seconds = 60,
                                    .disk_bytes = 2000,
                                    .disk_free = 1500};
    assert_int_equal(metrics_create(&metrics), 0);
    says(metrics, &now, "mrirecond_kept_jobs{state=\"succeeded\"} 0");
    says(metrics, &now, "mrirecond_kept_jobs{state=\"failed\"} 3");
    says(metrics, &now, "mrirecond_kept_results_bytes 5");
    says(metrics, &now, "mrirecond_kept_scans 2");
    says(metrics, &now, "mrirecond_kept_scans_bytes 40");
    says(metrics, &now, "mrirecond_kept_limit_bytes 1000");
    says(metrics, &now, "mrirecond_kept_limit_seconds 60");
    says(metrics, &now, "mrirecond_disk_size_bytes 2000");
    says(metrics, &now, "mrirecond_disk_free_bytes 1500");
    says(metrics, &now, "mrirecond_kept_jobs_removed_total{reason=\"age\"} 0");
    metrics_removed(metrics, 1, 2, 3);
    metrics_removed(metrics, 0, 1, 0);
    says(metrics, &now, "mrirecond_kept_jobs_removed_total{reason=\"age\"} 1");
    says(metrics, &now, "mrirecond_kept_jobs_removed_total{reason=\"room\"} 3");
    says(metrics, &now, "mrirecond_kept_scans_removed_total 3");
    metrics_free(metrics);
}

/* Device names come from a worker, which may be compromised. */
static void label_values_are_limited_and_sanitized(void **state)
{
    (void)state;
    struct metrics *metrics;
    char name[32];
    const struct metrics_now now = {.ready = false};
    assert_int_equal(metrics_create(&metrics), 0);
    metrics_gpu_failed(metrics, "a\"} 1\nforged", ERR_DEVICE);
    says(metrics, &now, "mrirecond_gpu_errors_total{gpu=\"a_} 1_forged\",kind=\"device-failed\"} 1");
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "gpu %d", i);
        metrics_gpu_failed(metrics, name, ERR_DEVICE);
    }
    says(metrics, &now, "mrirecond_gpu_errors_total{gpu=\"other\",kind=\"device-failed\"} 70");
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_begin_at_zero),
        cmocka_unit_test(uploads_are_counted_by_format),
        cmocka_unit_test(kept_jobs_are_reported_with_their_limits),
        cmocka_unit_test(label_values_are_limited_and_sanitized),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
