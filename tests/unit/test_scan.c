/* scan_open() with malformed flat scans, and the two parsers that run in the decoder: XML headers and MRD streams. */
#include "gridding/base/err.h"
#include "recon/codec/sealed.h"
#include "recon/scan/scan_build.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SPACE(name, x, fov)                                                                  \
    "<" name "><matrixSize><x>" x "</x><y>7</y><z>1</z></matrixSize><fieldOfView_mm><x>" fov \
    "</x><y>2.5e2</y><z>5</z></fieldOfView_mm></" name ">"
#define ENCODING(x, fov, trajectory)                                                                     \
    "<encoding>" SPACE("encodedSpace", x, fov) SPACE("reconSpace", "6", "100") "<trajectory>" trajectory \
                                                                               "</trajectory></encoding>"
#define HEADER(encodings) "<ismrmrdHeader xmlns=\"http://www.ismrm.org/ISMRMRD\">" encodings "</ismrmrdHeader>"
#define GOOD              HEADER(ENCODING("8", "200", "radial"))

/* ---- scan_open ---- */

enum { READOUTS = 3, SAMPLES = 5, COILS = 2, DIMS = 2 };

static int memory_of(const void *bytes, size_t length, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* A valid flat scan of READOUTS readouts, made by the builder; the caller frees it. */
static char *flat_create(size_t *length)
{
    struct scan_builder *b = malloc(sizeof *b);
    struct scan_readout readouts[READOUTS];
    float traj[SAMPLES * DIMS];
    struct c32 data[SAMPLES * COILS];
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(b && fd >= 0);
    assert_int_equal(scan_builder_begin(b, fd, 1 << 20, 1 << 20, GOOD, strlen(GOOD), READOUTS), 0);
    for (int i = 0; i < READOUTS; i++)
        readouts[i] = (struct scan_readout){.acquisition = (uint32_t)i,
                                            .samples = SAMPLES,
                                            .coils = COILS,
                                            .traj_dims = DIMS,
                                            .discard_pre = 1,
                                            .discard_post = 4};
    assert_int_equal(scan_builder_readouts(b, readouts, READOUTS), 0);
    assert_int_equal(scan_builder_layout(b), 0);
    for (int i = 0; i < READOUTS; i++) {
        for (int j = 0; j < SAMPLES * DIMS; j++)
            traj[j] = (float)(100 * i + j);
        for (int j = 0; j < SAMPLES * COILS; j++)
            data[j] = (struct c32){(float)(1000 * i + j), (float)-j};
        assert_int_equal(scan_builder_samples(b, &readouts[i], traj, data), 0);
        assert_int_equal(scan_builder_flush(b), 0);
    }
    assert_int_equal(scan_builder_finish(b), 0);
    *length = b->header.total_bytes;
    free(b);
    char *flat = malloc(*length);
    assert_int_equal(pread(fd, flat, *length, 0), (ssize_t)*length);
    close(fd);
    return flat;
}

enum { SEALED = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

static int open_flat(struct scan *scan, const char *flat, size_t length)
{
    int fd = memory_of(flat, length, SEALED);
    int rc = scan_open(scan, fd, -1);
    close(fd);
    return rc;
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    size_t length;
    char *flat = flat_create(&length);
    struct scan scan;
    assert_int_equal(open_flat(&scan, flat, length), 0);
    assert_int_equal(scan.header->readouts, READOUTS);
    assert_string_equal(scan.xml, GOOD);
    for (int i = 0; i < READOUTS; i++) {
        const struct scan_readout *r = &scan.readouts[i];
        for (int j = 0; j < SAMPLES * DIMS; j++)
            assert_true(scan.traj[r->traj + (size_t)j] == (float)(100 * i + j));
        for (int j = 0; j < SAMPLES * COILS; j++)
            assert_true(scan.data[r->data + (size_t)j].re == (float)(1000 * i + j));
    }
    scan_close(&scan);
    assert_null(scan.header);
    scan_close(&scan);
    scan_close(NULL);
    free(flat);
}

static void every_wrong_field_is_refused(void **state)
{
    (void)state;
    /* part_at: 0 for a field of the header, else the offset in the header of the field that locates the part. */
    static const struct {
        const char *name;
        size_t part_at, offset, size;
        uint64_t value;
    } wrong[] = {
#define HEAD(member, value)                                                                                    \
    {#member " = " #value, 0, offsetof(struct scan_header, member), sizeof(((struct scan_header *)0)->member), \
     (uint64_t)(value)}
#define PART(part, type, member, value)                                                                                \
    {                                                                                                                  \
#member " = " #value, offsetof(struct scan_header, part), offsetof(type, member), sizeof(((type *)0)->member), \
            (uint64_t)(value)                                                                                          \
    }
#define ENC(member, value)  PART(encodings_at, struct scan_encoding, member, value)
#define READ(member, value) PART(readouts_at, struct scan_readout, member, value)
        HEAD(magic, 0),
        HEAD(version, SCAN_VERSION + 1),
        HEAD(map_coils, 1),
        HEAD(map_coils, SCAN_MAX_COILS + 1),
        HEAD(field_maps, 1),
        HEAD(field_maps, SCAN_MAX_SLICES + 1),
        HEAD(times_count, 1),
        HEAD(times_count, UINT64_MAX / 4 + 2),
        HEAD(headless, 2),
        HEAD(streamed, 2),
        HEAD(in_place, 1),
        HEAD(in_place, 2),
        HEAD(encodings, 0),
        HEAD(encodings, SCAN_MAX_ENCODINGS + 1),
        HEAD(encodings, 60),
        HEAD(total_bytes, 64),
        HEAD(total_bytes, UINT64_MAX),
        HEAD(readouts, 0),
        HEAD(readouts, 1000),
        HEAD(readouts, UINT64_MAX / 100),
        HEAD(encodings_at, 0),
        HEAD(encodings_at, 161),
        HEAD(encodings_at, UINT64_MAX - 63),
        HEAD(readouts_at, UINT64_MAX - 63),
        HEAD(readouts_at, 64 * 1024),
        HEAD(xml_at, 64 * 1024),
        HEAD(traj_at, UINT64_MAX - 63),
        HEAD(data_at, 64 * 1024),
        HEAD(xml_bytes, 3),
        HEAD(xml_bytes, UINT64_MAX),
        HEAD(xml_bytes, SCAN_MAX_XML + 1),
        HEAD(traj_count, 0),
        HEAD(traj_count, UINT64_MAX / 4 + 2),
        HEAD(data_count, 1),
        HEAD(data_count, UINT64_MAX / 8 + 2),
        ENC(matrix[0], 0),
        ENC(matrix[2], SCAN_MAX_MATRIX + 1),
        ENC(recon_matrix[1], 0),
        ENC(recon_matrix[1], UINT32_MAX),
        ENC(fov_mm[0], 0),
        ENC(fov_mm[1], 0x80000001),
        ENC(fov_mm[2], 0x7fc00000),
        ENC(recon_fov_mm[0], 0x7f800000),
        ENC(recon_fov_mm[2], 0xbf800000),
        ENC(trajectory, SCAN_OTHER + 1),
        ENC(trajectory, UINT32_MAX),
        ENC(trajectory_name[1], 0x1b),
        ENC(trajectory_name[1], 0xff),
        READ(traj, READOUTS * SAMPLES * DIMS),
        READ(traj, UINT64_MAX),
        READ(data, READOUTS * SAMPLES * COILS - 1),
        READ(data, UINT64_MAX - 3),
        READ(samples, 0),
        READ(samples, UINT16_MAX),
        READ(coils, 0),
        READ(coils, SCAN_MAX_COILS + 1),
        READ(coils, 100),
        READ(traj_dims, UINT16_MAX),
        READ(discard_pre, 2),
        READ(discard_post, UINT16_MAX),
        READ(encoding, 1),
    };
    size_t length;
    char *flat = flat_create(&length), *copy = malloc(length);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t part = 0;
        struct scan scan = {0};
        memcpy(copy, flat, length);
        if (wrong[i].part_at)
            memcpy(&part, copy + wrong[i].part_at, sizeof part);
        memcpy(copy + part + wrong[i].offset, &wrong[i].value, wrong[i].size);
        int rc = open_flat(&scan, copy, length);
        if (rc != ERR_DECODER_DIED || scan.header)
            fail_msg("%s: %s", wrong[i].name, rc == 0 ? "accepted" : err_name(rc));
    }
    free(copy);
    free(flat);
}

static void an_unterminated_name_is_refused(void **state)
{
    (void)state;
    size_t length;
    char *flat = flat_create(&length);
    struct scan scan;
    const struct scan_header *h = (const void *)flat;
    struct scan_encoding *e = (void *)(flat + h->encodings_at);
    memset(e->trajectory_name, 'x', sizeof e->trajectory_name);
    assert_int_equal(open_flat(&scan, flat, length), ERR_DECODER_DIED);
    free(flat);
}

/* `flat`, which it frees, with its header's total raised to `length`. */
static char *flat_stretch(char *flat, size_t *length, size_t to)
{
    char *longer = calloc(1, to);
    memcpy(longer, flat, *length);
    ((struct scan_header *)(void *)longer)->total_bytes = *length = to;
    free(flat);
    return longer;
}

static void short_or_unsealed_memory_is_refused(void **state)
{
    (void)state;
    static const int seals[] = {0, F_SEAL_WRITE, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_GROW};
    size_t length;
    char *flat = flat_create(&length);
    struct scan scan;
    for (size_t cut = 0; cut < length; cut += 7)
        assert_int_equal(open_flat(&scan, flat, cut), ERR_DECODER_DIED);
    assert_int_equal(scan_open(&scan, -1, -1), ERR_DECODER_DIED);
    flat = flat_stretch(flat, &length, SEALED_COPIED_BYTES + 1);
    assert_int_equal(open_flat(&scan, flat, length), 0);
    scan_close(&scan);
    for (size_t i = 0; i < sizeof seals / sizeof *seals; i++) {
        int fd = memory_of(flat, length, seals[i]);
        assert_int_equal(scan_open(&scan, fd, -1), ERR_DECODER_DIED);
        close(fd);
    }
    free(flat);
}

/* Whoever has written it may write on. */
static void small_memory_is_copied(void **state)
{
    (void)state;
    size_t length;
    char *flat = flat_stretch(flat_create(&length), &length, SEALED_COPIED_BYTES), *zeros = calloc(1, length);
    struct scan scan;
    int fd = memory_of(flat, length, 0);
    assert_int_equal(scan_open(&scan, fd, -1), 0);
    assert_int_equal(pwrite(fd, zeros, length, 0), (ssize_t)length);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_memory_equal(scan.header, flat, length);
    scan_close(&scan);
    close(fd);
    free(zeros);
    free(flat);
}

/* ---- the builder ---- */

static void a_scan_of_too_many_bytes_is_refused(void **state)
{
    (void)state;
    struct scan_builder *b = malloc(sizeof *b);
    int fd = memfd_create("test", MFD_CLOEXEC);
    struct scan_readout huge[2];
    for (int i = 0; i < 2; i++)
        huge[i] = (struct scan_readout){.samples = UINT16_MAX, .coils = SCAN_MAX_COILS, .traj_dims = UINT16_MAX};
    assert_int_equal(scan_builder_begin(b, fd, UINT64_MAX, 1, GOOD, strlen(GOOD), SCAN_MAX_READOUTS + 1ULL), ERR_LIMIT);
    assert_int_equal(scan_builder_begin(b, fd, UINT64_MAX, 1, GOOD, strlen(GOOD), UINT64_MAX), ERR_LIMIT);
    assert_int_equal(scan_builder_begin(b, fd, UINT64_MAX, 1, GOOD, strlen(GOOD), 0), ERR_NO_IMAGE_DATA);
    assert_int_equal(scan_builder_begin(b, fd, 1000, 1, GOOD, strlen(GOOD), SCAN_MAX_READOUTS), ERR_LIMIT);
    /* A scan may take 16 times its file plus 64 MB, which a 1-byte file exceeds here, and no more than the memory. */
    assert_int_equal(scan_builder_begin(b, fd, UINT64_MAX, 1, GOOD, strlen(GOOD), 2), 0);
    assert_int_equal(scan_builder_readouts(b, huge, 2), 0);
    assert_int_equal(scan_builder_layout(b), ERR_HOSTILE_FILE);
    assert_int_equal(scan_builder_begin(b, fd, 1 << 20, UINT64_C(1) << 40, GOOD, strlen(GOOD), 2), 0);
    assert_int_equal(scan_builder_readouts(b, huge, 2), 0);
    assert_int_equal(scan_builder_layout(b), ERR_LIMIT);
    close(fd);
    free(b);
}

/* ---- the XML header ---- */

static void headers_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *xml;
        int code;
        const char *words;
    } rows[] = {
        {GOOD, 0, NULL},
        {HEADER(ENCODING(" 8\n", "2e2", "radial") ENCODING("9", "1", "custom")), 0, NULL},
        {"<m:ismrmrdHeader xmlns:m=\"http://www.ismrm.org/ISMRMRD\">" ENCODING("8", "200",
                                                                               "radial") "</m:ismrmrdHeader>",
         0, NULL},
        {HEADER(ENCODING("-1", "200", "radial")), ERR_HEADER_INVALID, "encodedSpace/matrixSize/x is \"-1\""},
        {HEADER(ENCODING("70000", "200", "radial")), ERR_HEADER_INVALID, "\"70000\""},
        {HEADER(ENCODING("abc", "200", "radial")), ERR_HEADER_INVALID, "\"abc\""},
        {HEADER(ENCODING("8.5", "200", "radial")), ERR_HEADER_INVALID, "\"8.5\""},
        {HEADER(ENCODING("0", "200", "radial")), ERR_HEADER_INVALID, "\"0\""},
        {HEADER(ENCODING("", "200", "radial")), ERR_HEADER_INVALID, "\"\""},
        {HEADER(ENCODING("99999999999999999999", "200", "radial")), ERR_HEADER_INVALID, "99999"},
        {HEADER(ENCODING("8", "0", "radial")), ERR_HEADER_INVALID, "encodedSpace/fieldOfView_mm/x"},
        {HEADER(ENCODING("8", "nan", "radial")), ERR_HEADER_INVALID, "nan"},
        {HEADER(ENCODING("8", "1e99", "radial")), ERR_HEADER_INVALID, "1e99"},
        {HEADER(ENCODING("8", "-3", "radial")), ERR_HEADER_INVALID, "-3"},
        {HEADER("<encoding/>"), ERR_HEADER_INVALID, "trajectory"},
        {HEADER("<encoding><trajectory>epi</trajectory></encoding>"), ERR_HEADER_INVALID, "encodedSpace"},
        {HEADER("<encoding><trajectory>epi</trajectory>" SPACE("encodedSpace", "8", "8") "</encoding>"),
         ERR_HEADER_INVALID, "reconSpace"},
        {HEADER(""), ERR_HEADER_INVALID, "no encoding"},
        {"<html/>", ERR_HEADER_INVALID, "html"},
        {"", ERR_HEADER_INVALID, "empty"},
        {"<ismrmrdHeader>", ERR_HEADER_INVALID, "well-formed"},
        {"<!DOCTYPE ismrmrdHeader SYSTEM \"file:///etc/passwd\">" GOOD, ERR_HEADER_INVALID, "DOCTYPE"},
        {"<!DOCTYPE ismrmrdHeader [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>" HEADER(ENCODING("&a;", "1", "epi")),
         ERR_HEADER_INVALID, "DOCTYPE"},
    };
    struct scan_encoding encodings[SCAN_MAX_ENCODINGS];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t count = 0;
        int rc = scan_xml_parse(encodings, &count, rows[i].xml, strlen(rows[i].xml));
        if (rc != rows[i].code || (rc != 0 && !strstr(err_last()->text, rows[i].words)))
            fail_msg("row %zu: %s", i, rc == 0 ? "accepted" : err_last()->text);
        if (i == 1) {
            assert_int_equal(count, 2);
            assert_int_equal(encodings[0].matrix[0], 8);
            assert_true(encodings[0].fov_mm[0] == 200 && encodings[0].fov_mm[1] == 250 && encodings[1].fov_mm[0] == 1);
            assert_int_equal(encodings[0].recon_matrix[0], 6);
            assert_int_equal(encodings[0].trajectory, SCAN_RADIAL);
            assert_int_equal(encodings[1].trajectory, SCAN_OTHER);
            assert_string_equal(encodings[1].trajectory_name, "custom");
        }
    }
}

/* An encoding of 1 x 1 x 16 with this encodingLimits. */
static struct scan_encoding limits_parse(const char *limits)
{
    static const char space[] = "<matrixSize><x>1</x><y>1</y><z>16</z></matrixSize>"
                                "<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm>";
    struct scan_encoding encodings[SCAN_MAX_ENCODINGS];
    char xml[1024];
    uint32_t count = 0;
    int bytes = snprintf(xml, sizeof xml,
                         "<ismrmrdHeader><encoding>%s<encodedSpace>%s</encodedSpace><reconSpace>%s</reconSpace>"
                         "<trajectory>radial</trajectory></encoding></ismrmrdHeader>",
                         limits, space, space);
    assert_int_equal(scan_xml_parse(encodings, &count, xml, (size_t)bytes), 0);
    return encodings[0];
}

static void the_limits_of_images_and_views_are_read(void **state)
{
    (void)state;
#define UP_TO(counter, most) "<" counter "><maximum>" most "</maximum></" counter ">"
    static const struct {
        const char *limits;
        uint32_t images, views;
        uint16_t most[SCAN_PLACES];
    } rows[] = {
        {"", 1, 1, {0}},
        {UP_TO("slice", "3") UP_TO("contrast", "1"), 8, 1, {[SCAN_PLACE_SLICE] = 3, [SCAN_PLACE_CONTRAST] = 1}},
        {UP_TO("phase", "9") UP_TO("set", "x") UP_TO("repetition", "7"), 10, 1, {[SCAN_PLACE_PHASE] = 9}},
        {UP_TO("kspace_encoding_step_1", "29") UP_TO("kspace_encoding_step_2", "1") UP_TO("segment", "2"), 1, 180, {0}},
        {UP_TO("average", "1") UP_TO("set", "4"), 5, 2, {[SCAN_PLACE_SET] = 4}},
        {UP_TO("slice", "65535") UP_TO("set", "65535"),
         UINT32_MAX,
         1,
         {[SCAN_PLACE_SLICE] = 65535, [SCAN_PLACE_SET] = 65535}},
    };
#undef UP_TO
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char limits[512];
        snprintf(limits, sizeof limits, "<encodingLimits>%s</encodingLimits>", rows[i].limits);
        const struct scan_encoding encoding = limits_parse(limits);
        assert_int_equal(encoding.images, rows[i].images);
        assert_int_equal(encoding.views, rows[i].views);
        assert_memory_equal(encoding.most, rows[i].most, sizeof rows[i].most);
    }
}

static void the_centre_of_partitions_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *limits;
        int centre;
    } rows[] = {
        {"", 8},
        {"<encodingLimits/>", 8},
        {"<encodingLimits><kspace_encoding_step_2><center> 5 </center></kspace_encoding_step_2></encodingLimits>", 5},
        {"<encodingLimits><kspace_encoding_step_2><center>-1</center></kspace_encoding_step_2></encodingLimits>", 8},
        {"<encodingLimits><kspace_encoding_step_2><center>x</center></kspace_encoding_step_2></encodingLimits>", 8},
        {"<encodingLimits><kspace_encoding_step_1><center>5</center></kspace_encoding_step_1></encodingLimits>", 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(limits_parse(rows[i].limits).partition_centre, rows[i].centre);
}

static void too_many_encodings_are_refused(void **state)
{
    (void)state;
    static const char start[] = "<ismrmrdHeader>", one[] = ENCODING("8", "200", "radial"), end[] = "</ismrmrdHeader>";
    struct scan_encoding encodings[SCAN_MAX_ENCODINGS];
    uint32_t count;
    char *xml = calloc(SCAN_MAX_ENCODINGS + 2, sizeof one), *to = xml;
    to = stpcpy(to, start);
    for (int i = 0; i <= SCAN_MAX_ENCODINGS; i++)
        to = stpcpy(to, one);
    strcpy(to, end);
    assert_int_equal(scan_xml_parse(encodings, &count, xml, strlen(xml)), ERR_LIMIT);
    free(xml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_files_are_read_back),      cmocka_unit_test(every_wrong_field_is_refused),
        cmocka_unit_test(an_unterminated_name_is_refused),  cmocka_unit_test(short_or_unsealed_memory_is_refused),
        cmocka_unit_test(small_memory_is_copied),           cmocka_unit_test(a_scan_of_too_many_bytes_is_refused),
        cmocka_unit_test(headers_are_read_strictly),        cmocka_unit_test(the_limits_of_images_and_views_are_read),
        cmocka_unit_test(the_centre_of_partitions_is_read), cmocka_unit_test(too_many_encodings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
