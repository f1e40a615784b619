/* Samples that are gathered where a device's transfers read them: a pretended GPU with the CPU's leaves, which asks for
 * them in small pieces, out of order and by several threads at once. */
#include "gridding/base/dev_leaf.h"
#include "tests/unit/recon_fixture.h"

#include <stdatomic.h>

enum { COILS = 3, NX = 16, NY = 12, READOUTS = 7 };

static size_t piece;     /* bytes: of a piece, a multiple of 64 */
static atomic_int asked; /* calls for pieces */
static bool refuses;     /* uploads fail */
static struct dev_leaf leaf;

static int upload_pieces(struct dev *gpu, void *device, size_t bytes, const struct dev_fill *fill)
{
    (void)gpu;
    const size_t pieces = (bytes + piece - 1) / piece;
#pragma omp parallel for schedule(dynamic) num_threads(4)
    for (size_t i = 0; i < pieces; i++) {
        const size_t first = (pieces - 1 - i) * piece;
        fill->write(fill->of, first, bytes - first < piece ? bytes - first : piece, (char *)device + first);
        asked++;
    }
    return refuses ? err_set(ERR_DEVICE, "The pretended GPU lost the samples that were on their way.") : 0;
}

static void pretend_gpu(bool gpu)
{
    leaf = dev_leaf_cpu;
    leaf.upload_fill = upload_pieces;
    dev->leaf = gpu ? &leaf : &dev_leaf_cpu;
    dev->gpu = gpu;
}

/* Readouts of different lengths, of some of which samples are discarded. */
static void scan_make(struct flat *flat)
{
    static const unsigned samples[READOUTS] = {37, 1, 64, 5, 90, 8, 23};
    flat_init(flat, NX, NY, 1);
    for (int i = 0; i < READOUTS; i++) {
        struct scan_readout *readout = random_readout(flat, samples[i], COILS, 2, 2);
        readout->discard_pre = i == 2 ? 7 : i == 5 ? 3 : 0;
        readout->discard_post = i == 4 ? 11 : i == 5 ? 4 : 0;
    }
}

static struct c32 *sample(struct flat *flat, int readout, int coil, int at)
{
    const struct scan_readout *of = &flat->readouts[readout];
    return flat->data + of->data + coil * of->samples + at;
}

/* The images are those of the CPU, bit for bit, for pieces shorter and longer than readouts and coils. */
static void pieces_are_the_samples(void **state)
{
    (void)state;
    static const size_t pieces[] = {64, 192, 1024, 1 << 20};
    struct flat flat;
    struct job_outcome cpu = {0}, gpu = {0};
    scan_make(&flat);
    succeed(&flat, "dcf=none coils=none output=complex", &cpu);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        pretend_gpu(true);
        piece = pieces[i];
        asked = 0;
        succeed(&flat, "dcf=none coils=none output=complex", &gpu);
        pretend_gpu(false);
        assert_int_equal(images_of(&gpu)->channels, COILS);
        assert_memory_equal(images_of(&gpu)->data, images_of(&cpu)->data, COILS * NX * NY * sizeof(struct c32));
        assert_int_equal(json_array_size(json_object_get(gpu.report, "warnings")), 0);
        assert_true(asked > 0);
        drop(&gpu);
    }
    drop(&cpu);
    flat_free(&flat);
}

static void zeros_are_told(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    scan_make(&flat);
    for (int r = 0; r < READOUTS; r++)
        memset(sample(&flat, r, 1, 0), 0, flat.readouts[r].samples * sizeof(struct c32));
    sample(&flat, 2, 1, 6)->re = 1; /* discarded */
    pretend_gpu(true);
    piece = 128;
    succeed(&flat, "dcf=none", &out);
    json_t *warnings = json_object_get(out.report, "warnings");
    assert_int_equal(json_array_size(warnings), 1);
    assert_non_null(
        strstr(json_string_value(json_array_get(warnings, 0)), "1 of 3 coils contain only zeros: number 1,"));
    drop(&out);
    pretend_gpu(false);
    flat_free(&flat);
}

/* The first acquisition of all is named, whichever piece is filled first. */
static void not_finite_is_refused(void **state)
{
    (void)state;
    static const struct {
        int readout, coil, at;
        float value;
    } bad[] = {{6, 0, 22, NAN}, {4, 2, 78, -INFINITY}, {2, 1, 7, NAN}, {0, 2, 36, INFINITY}};
    struct flat flat;
    struct job_outcome out = {0};
    scan_make(&flat);
    sample(&flat, 2, 0, 6)->im = NAN; /* discarded, as the next */
    sample(&flat, 4, 0, 79)->re = NAN;
    pretend_gpu(true);
    piece = 64;
    succeed(&flat, "dcf=none", &out);
    drop(&out);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sample(&flat, bad[i].readout, bad[i].coil, bad[i].at)->im = bad[i].value;
        refuse(&flat, "dcf=none", ERR_DATA_NONFINITE, flat.readouts[bad[i].readout].acquisition);
    }
    pretend_gpu(false);
    flat_free(&flat);
}

static void a_device_that_refuses_ends_the_job(void **state)
{
    (void)state;
    struct flat flat;
    scan_make(&flat);
    *sample(&flat, 0, 0, 0) = (struct c32){NAN, 0}; /* the device's failure comes first */
    pretend_gpu(true);
    refuses = true;
    refuse(&flat, "dcf=none", ERR_DEVICE, -1);
    refuses = false;
    pretend_gpu(false);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pieces_are_the_samples, random_reset),
        cmocka_unit_test_setup(zeros_are_told, random_reset),
        cmocka_unit_test_setup(not_finite_is_refused, random_reset),
        cmocka_unit_test_setup(a_device_that_refuses_ends_the_job, random_reset),
    };
    return cmocka_run_group_tests_name("recon_upload", tests, device_open, device_close);
}
