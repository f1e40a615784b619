/* Scans whose samples stay in the upload: the samples equal those that are copied out of it, and offsets outside the
 * upload are refused. */
#include "tests/unit/decode_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

static int decode_both(const struct place *p, int fd, const char *group, struct scan *copied, struct scan *placed)
{
    struct decoder *decoder = NULL;
    struct scan_wanted wanted = {.group = ""};
    snprintf(wanted.group, sizeof wanted.group, "%s", group);
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    int rc = scan_decode(copied, decoder, fd, &wanted, &roomy, NULL, NULL);
    wanted.in_place = 1;
    assert_int_equal(scan_decode(placed, decoder, fd, &wanted, &roomy, NULL, NULL), rc);
    decoder_free(decoder);
    return rc;
}

/* How often the open file is mapped. */
static int mappings(int fd)
{
    char link[64], path[512], line[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    FILE *maps = fopen("/proc/self/maps", "re");
    int count = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, path) != NULL;
    fclose(maps);
    return count;
}

/* Everything but the samples' offsets must be equal. */
static void same(const char *name, const struct scan *a, const struct scan *b)
{
    if (a->header->readouts != b->header->readouts || a->header->ignored != b->header->ignored ||
        strcmp(a->xml, b->xml) != 0)
        fail_msg("%s: another scan", name);
    for (uint64_t i = 0; i < a->header->readouts; i++) {
        struct scan_readout of_a = a->readouts[i], of_b = b->readouts[i];
        const size_t samples = of_a.samples;
        if (memcmp(a->traj + of_a.traj, b->traj + of_b.traj, samples * of_a.traj_dims * sizeof(float)) != 0 ||
            memcmp(a->data + of_a.data, b->data + of_b.data, samples * of_a.coils * sizeof(struct c32)) != 0)
            fail_msg("%s: samples of readout %llu", name, (unsigned long long)i);
        of_a.traj = of_b.traj = of_a.data = of_b.data = 0;
        if (memcmp(&of_a, &of_b, sizeof of_a) != 0)
            fail_msg("%s: head of readout %llu", name, (unsigned long long)i);
    }
}

static void samples_in_place_equal_copied_ones(void **state)
{
    const struct place *p = *state;
    char path[128], line[512], name[64], group[64];
    snprintf(path, sizeof path, "%s/manifest", p->folder);
    FILE *manifest = fopen(path, "r");
    int placed_files = 0, copied_files = 0;
    assert_non_null(manifest);
    while (fgets(line, sizeof line, manifest)) {
        struct scan copied = {0}, placed = {0};
        assert_int_equal(sscanf(line, "%63[^\t]\t%63[^\t]\t", name, group), 2);
        int fd = open_file(p, name);
        if (decode_both(p, fd, strcmp(group, "-") == 0 ? "" : group, &copied, &placed) == 0) {
            assert_int_equal(copied.header->in_place, 0);
            same(name, &copied, &placed);
            if (strcmp(name, "plain") == 0) {
                assert_int_equal(placed.header->in_place, 1);
                assert_true(placed.header->total_bytes < copied.header->total_bytes);
                assert_in_range(scan_bytes(&placed), copied.header->total_bytes - 512, copied.header->total_bytes);
            }
            assert_int_equal(mappings(fd), placed.header->in_place == 1);
            placed_files += placed.header->in_place == 1;
            copied_files += placed.header->in_place == 0;
        }
        scan_close(&copied);
        scan_close(&placed);
        assert_null(placed.upload);
        assert_int_equal(mappings(fd), 0);
        close(fd);
    }
    fclose(manifest);
    assert_true(placed_files > 3 && copied_files > 0); /* numbers of other types, and other formats, are copied */
}

/* A file whose lists begin at offsets that are no multiple of 8: each collection of libhdf5's heap is moved. */
static int file_moved(const struct place *p)
{
    enum { MOVES = 64, ODD = 4, REFERENCE = 8 };
    size_t bytes;
    char *file = read_file(p, "plain", &bytes), *moved = calloc(3, bytes);
    size_t end = bytes / 8 * 8 + 8 + ODD;
    memcpy(moved, file, bytes);
    for (size_t at = 0; at + 16 < bytes; at += 8) {
        uint64_t length, from = at, to = end;
        memcpy(&length, file + at + 8, sizeof length);
        if (memcmp(file + at, "GCOL", 4) != 0 || length > bytes - at)
            continue;
        memcpy(moved + end, file + at, length);
        end += (length + 7) / 8 * 8;
        for (size_t of = 0; of + REFERENCE <= bytes; of++)
            if (memcmp(file + of, &from, REFERENCE) == 0)
                memcpy(moved + of, &to, REFERENCE);
    }
    int fd = memfd_create("moved", MFD_CLOEXEC);
    assert_true(end > bytes + 8 + ODD && end < 3 * bytes);
    assert_int_equal(write(fd, moved, end), (ssize_t)end);
    free(moved);
    free(file);
    return fd;
}

static void lists_at_odd_offsets_are_copied(void **state)
{
    const struct place *p = *state;
    struct scan copied = {0}, placed = {0}, plain = {0};
    int fd = file_moved(p), original = open_file(p, "plain");
    assert_int_equal(decode_both(p, fd, "", &copied, &placed), 0);
    assert_int_equal(placed.header->in_place, 0);
    same("moved", &copied, &placed);
    assert_int_equal(decode_fd(p, &plain, original, NULL), 0);
    same("plain", &plain, &placed);
    scan_close(&plain);
    scan_close(&copied);
    scan_close(&placed);
    close(original);
    close(fd);
}

/* Open a copy of a flat scan with this header, with an upload of `bytes`; -1: without one. */
static int open_with(const struct scan *scan, const struct scan_header *header, int64_t bytes)
{
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    int flat = memfd_create("flat", MFD_CLOEXEC | MFD_ALLOW_SEALING), upload = -1;
    struct scan opened = {0};
    assert_int_equal(write(flat, scan->header, scan->header->total_bytes), (ssize_t)scan->header->total_bytes);
    assert_int_equal(pwrite(flat, header, sizeof *header, 0), (ssize_t)sizeof *header);
    assert_int_equal(fcntl(flat, F_ADD_SEALS, seals), 0);
    if (bytes >= 0) {
        upload = memfd_create("upload", MFD_CLOEXEC);
        assert_int_equal(ftruncate(upload, bytes), 0);
    }
    int rc = scan_open(&opened, flat, upload);
    scan_close(&opened);
    if (upload >= 0)
        close(upload);
    close(flat);
    return rc;
}

static void places_outside_the_upload_are_refused(void **state)
{
    const struct place *p = *state;
    struct scan copied = {0}, placed = {0};
    struct stat status;
    int fd = open_file(p, "plain");
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(decode_both(p, fd, "", &copied, &placed), 0);
    const struct scan_header good = *placed.header;
    struct scan_header header = good;
    assert_int_equal(open_with(&placed, &header, status.st_size), 0);
    assert_int_equal(open_with(&placed, &header, -1), ERR_DECODER_DIED);
    assert_int_equal(open_with(&placed, &header, status.st_size / 2), ERR_DECODER_DIED);
    assert_int_equal(open_with(&placed, &header, 0), ERR_DECODER_DIED);
    header.traj_count++;
    assert_int_equal(open_with(&placed, &header, status.st_size), ERR_DECODER_DIED);
    header = good;
    header.data_count = UINT64_MAX / 8 + 2;
    assert_int_equal(open_with(&placed, &header, status.st_size), ERR_DECODER_DIED);
    header = good;
    header.data_at = 64;
    assert_int_equal(open_with(&placed, &header, status.st_size), ERR_DECODER_DIED);
    header = good;
    header.in_place = 2;
    assert_int_equal(open_with(&placed, &header, status.st_size), ERR_DECODER_DIED);
    header.in_place = 0; /* offsets into the upload, as if they were offsets into the flat scan */
    assert_int_equal(open_with(&placed, &header, status.st_size), ERR_DECODER_DIED);
    scan_close(&copied);
    scan_close(&placed);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_in_place_equal_copied_ones),
        cmocka_unit_test(lists_at_odd_offsets_are_copied),
        cmocka_unit_test(places_outside_the_upload_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
