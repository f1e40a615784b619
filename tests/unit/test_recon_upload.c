/* Samples that are gathered where a device's transfers read them: a pretended GPU with the CPU's leaves, which asks for
 * them in small pieces, out of order and by several threads at once; from the beginning of an upload on, or not before
 * its end. */
#include "gridding/base/dev_leaf.h"
#include "tests/unit/recon_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum { COILS = 3, NX = 16, NY = 12, READOUTS = 7 };

static size_t piece;     /* bytes: of a piece, a multiple of 64 */
static atomic_int asked; /* calls for pieces */
static bool refuses;     /* uploads fail */
static bool late;        /* no piece is asked for before the end */
static int scarce;       /* allocations from now on that fail */
static size_t room;      /* bytes of memory */
static struct dev_leaf leaf;

static struct {
    void *device;
    size_t bytes;
    struct dev_fill fill;
    pthread_t thread;
    bool under_way;
    bool looked, early; /* the job has asked for the free memory; had not when the upload began */
} filled;

static struct {
    void *memory[16];
    size_t bytes[16], all;
    int count;
} taken;

static void *pieces_write(void *none)
{
    const size_t pieces = (filled.bytes + piece - 1) / piece;
#pragma omp parallel for schedule(dynamic) num_threads(4)
    for (size_t i = 0; i < pieces; i++) {
        const size_t first = (pieces - 1 - i) * piece, rest = filled.bytes - first;
        filled.fill.write(filled.fill.of, first, rest < piece ? rest : piece, (char *)filled.device + first);
        asked++;
    }
    return none;
}

static void pretended_begin(struct dev *gpu, void *device, size_t bytes, const struct dev_fill *fill)
{
    (void)gpu;
    assert_false(filled.under_way);
    filled.device = device;
    filled.bytes = bytes;
    filled.fill = *fill;
    filled.under_way = true;
    filled.early = filled.early || !filled.looked;
    if (!late)
        assert_int_equal(pthread_create(&filled.thread, NULL, pieces_write, NULL), 0);
}

static int pretended_end(struct dev *gpu)
{
    (void)gpu;
    if (!filled.under_way)
        return 0;
    filled.under_way = false;
    if (late)
        pieces_write(NULL);
    else
        pthread_join(filled.thread, NULL);
    return refuses ? err_set(ERR_DEVICE, "The pretended GPU lost the samples that were on their way.") : 0;
}

static int pretended_memory(struct dev *gpu, size_t *available, size_t *total)
{
    (void)gpu;
    filled.looked = true;
    *available = room - taken.all;
    *total = room;
    return 0;
}

static int pretended_alloc(struct dev *gpu, size_t bytes, void **out)
{
    if (scarce > 0 && scarce--)
        return err_set(ERR_GPU_OOM, "The pretended GPU has no memory left.");
    int rc = dev_leaf_cpu.alloc(gpu, bytes, out);
    assert_true(rc == 0 && taken.count < 16);
    taken.memory[taken.count] = *out;
    taken.bytes[taken.count++] = bytes;
    taken.all += bytes;
    return rc;
}

static void pretended_release(struct dev *gpu, void *memory)
{
    int i = 0;
    while (i < taken.count && taken.memory[i] != memory)
        i++;
    assert_true(i < taken.count && !(filled.under_way && filled.device == memory));
    taken.all -= taken.bytes[i];
    taken.memory[i] = taken.memory[--taken.count];
    taken.bytes[i] = taken.bytes[taken.count];
    filled.looked = filled.looked && taken.count > 0; /* else the job is over */
    dev_leaf_cpu.release(gpu, memory);
}

static void pretend_gpu(bool gpu)
{
    leaf = dev_leaf_cpu;
    leaf.fill_begin = pretended_begin;
    leaf.fill_end = pretended_end;
    leaf.memory = pretended_memory;
    leaf.alloc = pretended_alloc;
    leaf.release = pretended_release;
    room = 1 << 30;
    filled.looked = filled.early = false;
    assert_int_equal(taken.count, 0); /* a job gives everything back */
    assert_false(filled.under_way);
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
    for (size_t i = 0; i < 2 * sizeof pieces / sizeof *pieces; i++) {
        pretend_gpu(true);
        late = i % 2;
        piece = pieces[i / 2];
        asked = 0;
        succeed(&flat, "dcf=none coils=none output=complex", &gpu);
        assert_true(asked > 0 && filled.early);
        pretend_gpu(false);
        assert_int_equal(images_of(&gpu)->channels, COILS);
        assert_memory_equal(images_of(&gpu)->data, images_of(&cpu)->data, COILS * NX * NY * sizeof(struct c32));
        assert_int_equal(json_array_size(json_object_get(gpu.report, "warnings")), 0);
        drop(&gpu);
    }
    drop(&cpu);
    flat_free(&flat);
}

/* The image of the CPU, and whether its upload began early; `needs`: memory, or NULL. */
static void image_compare(struct flat *flat, const char *parameters, bool early, size_t *needs)
{
    struct job_outcome cpu = {0}, gpu = {0};
    succeed(flat, parameters, &cpu);
    pretend_gpu(true);
    succeed(flat, parameters, &gpu);
    if (filled.early != early)
        fail_msg("%s: the upload began %s", parameters, early ? "late" : "early");
    pretend_gpu(false);
    const struct image_series *a = images_of(&cpu), *b = images_of(&gpu);
    const size_t values = a->count * a->channels * a->size[0] * a->size[1] * a->size[2] * (a->complex_valued ? 2 : 1);
    assert_int_equal(a->channels, b->channels);
    assert_memory_equal(a->data, b->data, values * sizeof(float));
    if (needs)
        *needs = (size_t)reported(&gpu, "device_memory_bytes");
    drop(&gpu);
    drop(&cpu);
}

/* Only what the image will need in the same order begins early, and all images are the CPU's. */
static void begins_early_or_not(void **state)
{
    (void)state;
    struct flat flat;
    piece = 256;
    late = false;
    scan_make(&flat);
    image_compare(&flat, "dcf=none", true, NULL);
    image_compare(&flat, "dcf=none coils=adaptive output=complex", true, NULL);
    image_compare(&flat, "dcf=none virtual_coils=2", false, NULL);
    image_compare(&flat, "dcf=none frames=2", false, NULL);
    flat.header.streamed = 1;
    image_compare(&flat, "dcf=none", false, NULL);
    flat.header.streamed = 0;
    flat_free(&flat);
    for (int coils = MOST_BATCH; coils <= MOST_BATCH + 1; coils++) {
        flat_init(&flat, NX, NY, 1);
        random_readout(&flat, 50, (unsigned)coils, 2, 2);
        image_compare(&flat, "dcf=none coils=none", coils <= MOST_BATCH, NULL);
        flat_free(&flat);
    }
}

/* The samples that are there already count once; without memory for them the upload begins with the image. */
static void memory_bounds_it(void **state)
{
    (void)state;
    struct flat flat;
    size_t needs;
    struct job_outcome out = {0};
    piece = 256;
    scan_make(&flat);
    image_compare(&flat, "dcf=none", true, &needs);
    pretend_gpu(true);
    room = needs;
    succeed(&flat, "dcf=none", &out);
    assert_true(filled.early);
    drop(&out);
    room = needs - 1;
    refuse(&flat, "dcf=none", ERR_GPU_OOM, -1);
    assert_int_equal(err_last()->required, needs);
    assert_int_equal(err_last()->available, needs - 1);
    pretend_gpu(false);
    scarce = 1;
    image_compare(&flat, "dcf=none", false, NULL);
    assert_int_equal(scarce, 0);
    flat_free(&flat);
}

static int stop_at(void *left, const struct step_progress *now)
{
    (void)now;
    return --*(int *)left < 0;
}

/* Whatever ends the job while its upload is under way, all is given back, and the job tells its own failure. */
static void a_job_that_ends_before_its_upload(void **state)
{
    (void)state;
    struct flat flat;
    int stopped = 0, rc = ERR_CANCELED;
    piece = 256;
    scan_make(&flat);
    for (int turn = 0; turn < 4; turn++) {
        late = turn % 2;
        pretend_gpu(true);
        refuses = turn >= 2;
        float *k = flat.traj + flat.readouts[4].traj, kept = *k;
        *k = NAN;
        asked = 0;
        refuse(&flat, "dcf=none", ERR_TRAJ_NONFINITE, flat.readouts[4].acquisition);
        assert_true(asked > 0);
        *k = kept;
        refuses = false;
        pretend_gpu(false);
    }
    for (int steps = 0; rc == ERR_CANCELED; steps++) {
        struct job_outcome out = {0};
        int left = steps;
        const struct job_listener listener = {&left, stop_at};
        pretend_gpu(true);
        late = steps % 2;
        asked = 0;
        rc = run(&flat, "dcf=none", &out, &listener);
        stopped += rc == ERR_CANCELED && asked > 0;
        assert_true(rc == ERR_CANCELED || rc == 0);
        pretend_gpu(false);
        if (rc == 0)
            drop(&out);
    }
    assert_true(stopped > 1);
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
        cmocka_unit_test_setup(begins_early_or_not, random_reset),
        cmocka_unit_test_setup(memory_bounds_it, random_reset),
        cmocka_unit_test_setup(a_job_that_ends_before_its_upload, random_reset),
        cmocka_unit_test_setup(zeros_are_told, random_reset),
        cmocka_unit_test_setup(not_finite_is_refused, random_reset),
        cmocka_unit_test_setup(a_device_that_refuses_ends_the_job, random_reset),
    };
    return cmocka_run_group_tests_name("recon_upload", tests, device_open, device_close);
}
