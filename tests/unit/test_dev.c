/* Devices: their memory, their names, and errors if a device is not available. */
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif

enum { BYTES = 100003 };

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 7);
}

static struct dev *open_cpu(int threads)
{
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    assert_non_null(dev);
    return dev;
}

static void cpu_is_described(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(3);
    assert_false(dev_is_gpu(dev));
    assert_int_equal(dev_threads(dev), 3);
    assert_string_equal(dev_note(dev), "");
    assert_true(strncmp(dev_name(dev), "cpu (", 5) == 0);
    assert_non_null(strstr(dev_name(dev), ", 3 threads)"));
    const char *set = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
                          ? "AVX-512"
                      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "AVX2"
                                                                                        : "SSE2";
    assert_non_null(strstr(dev_name(dev), set));
    dev_free(dev);
    dev = open_cpu(1);
    assert_non_null(strstr(dev_name(dev), ", 1 thread)"));
    dev_free(dev);
    dev = open_cpu(0);
    assert_in_range(dev_threads(dev), 1, 4096);
    dev_free(dev);
    dev_free(NULL);
}

static void cpu_memory_is_reported(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(1);
    size_t available = 0, total = 0;
    assert_int_equal(dev_memory(dev, &available, &total), 0);
    assert_true(available > 0 && available <= total);
    dev_free(dev);
}

/* ---- the host's memory ---- */

/* Write `text` to the file `name` in the folder. */
static void put(const char *folder, const char *name, const char *text)
{
    char path[512], command[640];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(command, sizeof command, "mkdir -p $(dirname %s)", path);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void told(const char *folder, size_t available, size_t total)
{
    size_t seen_available = 0, seen_total = 0;
    host_memory_below(folder, &seen_available, &seen_total);
    assert_int_equal(seen_available, available);
    assert_int_equal(seen_total, total);
}

/* The minimum over the machine, the control group and its parents, in both cgroup versions; page cache counts as
 * free. */
static void memory_of_control_groups_counts(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_dev.XXXXXX", command[64];
    const size_t kib = 1024;
    assert_non_null(mkdtemp(folder));
    told(folder, SIZE_MAX / 2, SIZE_MAX / 2); /* no file sets a limit */
    put(folder, "proc/meminfo", "MemTotal: 8000 kB\nMemFree: 1 kB\nMemAvailable: 5000 kB\n");
    told(folder, 5000 * kib, 8000 * kib);
    put(folder, "proc/self/cgroup", "0::/system.slice/a.service\n");
    put(folder, "sys/fs/cgroup/system.slice/a.service/memory.max", "max\n");
    put(folder, "sys/fs/cgroup/system.slice/a.service/memory.high", "max\n");
    told(folder, 5000 * kib, 8000 * kib);
    put(folder, "sys/fs/cgroup/system.slice/a.service/memory.max", "4096000\n"); /* 4,000 KiB, of which 1,000 left */
    put(folder, "sys/fs/cgroup/system.slice/a.service/memory.current", "3072000\n");
    told(folder, 1000 * kib, 4000 * kib);
    put(folder, "sys/fs/cgroup/system.slice/a.service/memory.stat",
        "anon 1\ninactive_file 307200\nactive_file 204800\n");
    told(folder, 1500 * kib, 4000 * kib);
    put(folder, "sys/fs/cgroup/system.slice/a.service/memory.high", "3072000\n");
    told(folder, 500 * kib, 3000 * kib);
    put(folder, "sys/fs/cgroup/system.slice/memory.max", "2048000\n"); /* usage above the limit: nothing is left */
    put(folder, "sys/fs/cgroup/system.slice/memory.current", "2150400\n");
    told(folder, 0, 2000 * kib);
    /* Version 1, in a container: /proc names the group as seen from outside, and the mount is the container's group. */
    put(folder, "proc/self/cgroup", "9:cpu,memory:/docker/0123\n0::/\n");
    told(folder, 5000 * kib, 8000 * kib);
    put(folder, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(folder, "sys/fs/cgroup/memory/memory.usage_in_bytes", "4096000\n");
    told(folder, 5000 * kib, 8000 * kib);
    put(folder, "sys/fs/cgroup/memory/memory.limit_in_bytes", "5120000\n");
    put(folder, "sys/fs/cgroup/memory/memory.stat",
        "inactive_file 9\ntotal_inactive_file 204800\ntotal_active_file 204800\n");
    told(folder, 1400 * kib, 5000 * kib);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* dev_fill.write: the bytes of `from` [BYTES] in reverse order. */
static void fill_backwards(void *from, size_t first, size_t bytes, void *out)
{
    const unsigned char *last = (const unsigned char *)from + BYTES - 1;
    assert_int_equal(first % 64, 0);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = *(last - first - i);
}

/* Uploaded data come back unchanged and in place; zeroing touches only the requested range. */
static void round_trip(struct dev *dev)
{
    static unsigned char sent[BYTES], expected[BYTES], got[BYTES];
    void *memory = NULL, *other = NULL;
    assert_int_equal(dev_alloc(dev, BYTES, &memory), 0);
    assert_int_equal(dev_alloc(dev, 1, &other), 0);
    assert_non_null(memory);
    assert_ptr_not_equal(memory, other);
    fill(sent, BYTES, 1);
    memcpy(expected, sent, BYTES);
    assert_int_equal(dev_upload(dev, memory, sent, BYTES), 0);
    memset(sent, 0xee, BYTES); /* complete on return */
    assert_int_equal(dev_download(dev, got, memory, BYTES), 0);
    assert_memory_equal(got, expected, BYTES);
    assert_int_equal(dev_zero(dev, (char *)memory + 17, 1000), 0);
    memset(expected + 17, 0, 1000);
    assert_int_equal(dev_download(dev, got, memory, BYTES), 0);
    assert_memory_equal(got, expected, BYTES);
    fill(sent, BYTES, 9);
    memcpy(expected, sent, BYTES);
    assert_int_equal(dev_upload_begin(dev, memory, sent, BYTES), 0);
    memset(sent, 0xee, BYTES); /* the host's copy may change on return */
    assert_int_equal(dev_upload_order(dev), 0);
    assert_int_equal(dev_download(dev, got, memory, BYTES), 0);
    assert_memory_equal(got, expected, BYTES);
    assert_int_equal(dev_upload_fill(dev, memory, BYTES, &(struct dev_fill){fill_backwards, expected}), 0);
    assert_int_equal(dev_upload_order(dev), 0);
    assert_int_equal(dev_download(dev, got, memory, BYTES), 0);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(got[i], expected[BYTES - 1 - i]);
    assert_int_equal(dev_zero(dev, memory, BYTES), 0);
    dev_fill_begin(dev, memory, BYTES, &(struct dev_fill){fill_backwards, expected});
    assert_int_equal(dev_upload(dev, other, sent, 1), 0); /* between */
    assert_int_equal(dev_fill_end(dev), 0);
    assert_int_equal(dev_fill_end(dev), 0); /* of nothing */
    assert_int_equal(dev_upload_order(dev), 0);
    assert_int_equal(dev_download(dev, got, memory, BYTES), 0);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(got[i], expected[BYTES - 1 - i]);
    /* A length of 0 needs no address. */
    assert_int_equal(dev_upload(dev, NULL, NULL, 0), 0);
    assert_int_equal(dev_upload_fill(dev, NULL, 0, NULL), 0);
    assert_int_equal(dev_upload_begin(dev, NULL, NULL, 0), 0);
    assert_int_equal(dev_upload_order(dev), 0);
    assert_int_equal(dev_download(dev, NULL, NULL, 0), 0);
    assert_int_equal(dev_zero(dev, NULL, 0), 0);
    dev_release(dev, other);
    dev_release(dev, memory);
    dev_release(dev, NULL);
    void *none = &other;
    assert_int_equal(dev_alloc(dev, 0, &none), 0);
    assert_null(none);
}

static void cpu_round_trip(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(2);
    round_trip(dev);
    for (size_t bytes = 1; bytes < 300; bytes += 13) {
        void *memory = NULL;
        assert_int_equal(dev_alloc(dev, bytes, &memory), 0);
        assert_int_equal((uintptr_t)memory % 64, 0);
        assert_ptr_equal(dev_direct(dev, memory), memory);
        memset(memory, 1, bytes);
        dev_release(dev, memory);
    }
    dev_free(dev);
}

/* A request for too much memory is refused with an error that names both sizes; the caller's pointer is unchanged. */
static void too_large_an_allocation_is_refused(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(1);
    static const size_t sizes[] = {
        SIZE_MAX, SIZE_MAX - 62,
#ifndef SANITIZED
        SIZE_MAX / 2, /* the sanitizer's malloc ends the program here */
#endif
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int own = 0;
        void *memory = &own;
        assert_int_equal(dev_alloc(dev, sizes[i], &memory), ERR_NO_MEMORY);
        assert_ptr_equal(memory, &own);
        char number[32];
        snprintf(number, sizeof number, "%zu", sizes[i]);
        assert_non_null(strstr(err_last()->text, number));
        assert_int_equal(err_last()->required, (int64_t)sizes[i]);
        assert_true(err_last()->available > 0);
    }
    dev_free(dev);
}

/* DEV_AUTO opens a GPU or reports why not; the opened device works. */
static void automatic(void **state)
{
    (void)state;
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_AUTO, 0, 2), 0);
    if (dev_is_gpu(dev)) {
        char name[16];
        assert_string_equal(dev_note(dev), "");
        assert_true(dev_gpus(dev) != 0);
        snprintf(name, sizeof name, "gpu %d (", __builtin_ctzll(dev_gpus(dev)));
        assert_true(strncmp(dev_name(dev), name, strlen(name)) == 0);
        assert_null(dev_direct(dev, dev));
    } else {
        assert_true(strlen(dev_note(dev)) > 20);
        assert_true(strncmp(dev_name(dev), "cpu (", 5) == 0);
    }
    assert_int_equal(dev_threads(dev), 2);
    round_trip(dev);
    dev_free(dev);
}

/* No machine has a GPU 4711. */
static void a_gpu_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    int own = 0;
    struct dev *dev = (struct dev *)(void *)&own;
    assert_int_equal(dev_create(&dev, DEV_GPU, 4711, 1), ERR_NO_DEVICE);
    assert_ptr_equal(dev, &own);
    assert_true(strncmp(err_last()->text, "GPU 4711 cannot be used: ", 25) == 0);
    assert_true(strlen(err_last()->text) > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_is_described),
        cmocka_unit_test(cpu_memory_is_reported),
        cmocka_unit_test(cpu_round_trip),
        cmocka_unit_test(memory_of_control_groups_counts),
        cmocka_unit_test(too_large_an_allocation_is_refused),
        cmocka_unit_test(automatic),
        cmocka_unit_test(a_gpu_that_does_not_exist_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
