/* A GPU's memory: transfers of any size, refusals before any launch, batches and sums divided when memory is short.
 * Prints TAP; without a GPU, reports everything as skipped. */
#include "tests/gpu/outcome.h"

static void copy_part(void *from, size_t first, size_t bytes, void *out)
{
    memcpy(out, (const char *)from + first, bytes);
}

/* Transfers go through pinned buffers in chunks: sizes around one chunk and around several, at odd addresses. */
static void test_transfers(struct dev *gpu, bool filled)
{
    static const size_t sizes[] = {1, 4095, 1 << 20, (1 << 20) + 1, (2 << 20) - 1, (16 << 20) + 12345, 50000001};
    const size_t room = 50000001 + 64;
    unsigned char *sent = take(room), *back = take(room);
    char *there = device_copy(gpu, NULL, room);
    bool same = true;
    for (size_t i = 0; i < room; i++)
        sent[i] = (unsigned char)(splitmix(i / 8) >> (8 * (i % 8)));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        memset(back, 0x5a, room);
        must(dev_zero(gpu, there, room), "dev_zero");
        if (filled)
            must(dev_upload_fill(gpu, there + 5, n, &(struct dev_fill){copy_part, sent + 3 * i}), "dev_upload_fill");
        else
            must(dev_upload(gpu, there + 5, sent + 3 * i, n), "dev_upload");
        must(dev_upload_order(gpu), "dev_upload_order");
        must(dev_download(gpu, back + 1, there + 4, n + 2), "dev_download");
        same = same && back[0] == 0x5a && back[1] == 0 && memcmp(back + 2, sent + 3 * i, n) == 0 && back[n + 2] == 0 &&
               back[n + 3] == 0x5a;
    }
    verdict(same,
            filled ? "bytes that are written where transfers read them arrive, and touch no other"
                   : "transfers of any size keep every byte and touch no other",
            "bytes differ");
    dev_release(gpu, there);
    free(sent);
    free(back);
}

/* An upload that is begun goes on beside the device's other work, and beside other transfers, which it lets pass. */
static void test_begun(struct dev *gpu)
{
    const size_t bytes = 9 * (1 << 20) + 12345;
    unsigned char *sent = take(bytes), *back = take(bytes), small[4096], other[sizeof small];
    char *there = device_copy(gpu, NULL, bytes), *beside = device_copy(gpu, NULL, sizeof small);
    bool same = true;
    for (int turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < bytes; i++)
            sent[i] = (unsigned char)(splitmix(i / 8 + (size_t)turn) >> (8 * (i % 8)));
        memset(small, turn, sizeof small);
        memset(back, 0x5a, bytes);
        dev_fill_begin(gpu, there, bytes, &(struct dev_fill){copy_part, sent});
        if (turn % 2) {
            must(dev_upload(gpu, beside, small, sizeof small), "dev_upload");
            must(dev_download(gpu, other, beside, sizeof small), "dev_download");
            same = same && memcmp(small, other, sizeof small) == 0;
        }
        must(dev_fill_end(gpu), "dev_fill_end");
        must(dev_upload_order(gpu), "dev_upload_order");
        must(dev_download(gpu, back, there, bytes), "dev_download");
        same = same && memcmp(sent, back, bytes) == 0;
    }
    must(dev_fill_end(gpu), "dev_fill_end");
    verdict(same, "an upload that is begun ends beside others", "bytes differ");
    dev_release(gpu, beside);
    dev_release(gpu, there);
    free(sent);
    free(back);
}

static void test_memory(struct dev *gpu)
{
    size_t available, total;
    must(dev_memory(gpu, &available, &total), "dev_memory");
    verdict(available > 0 && available <= total, "memory is told", "numbers make no sense");
    char sent[1000], back[1000];
    for (int i = 0; i < 1000; i++)
        sent[i] = (char)(i * 7);
    char *there = device_copy(gpu, sent, sizeof sent);
    must(dev_zero(gpu, there + 100, 50), "dev_zero");
    must(dev_download(gpu, back, there, sizeof back), "dev_download");
    memset(sent + 100, 0, 50);
    verdict(memcmp(sent, back, sizeof sent) == 0, "what goes up comes down", "bytes differ");
    dev_release(gpu, there);
    test_transfers(gpu, false);
    test_transfers(gpu, true);
    test_begun(gpu);

    void *nothing = &tap;
    verdict(dev_alloc(gpu, 0, &nothing) == 0 && nothing == NULL, "no bytes are no memory", "not NULL");
    void *much = NULL;
    int rc = dev_alloc(gpu, total + total / 2, &much);
    verdict_code(rc, ERR_GPU_OOM, "more than the device has is gpu-oom");
    verdict(err_last()->required == (int64_t)(total + total / 2) && err_last()->available > 0,
            "gpu-oom tells required and available", "numbers are missing");

    /* A plan that cannot fit is refused before any launch, and the device remains usable. */
    must(dev_memory(gpu, &available, &total), "dev_memory");
    void *ballast = NULL;
    must(dev_alloc(gpu, available - (size_t)260e6, &ballast), "dev_alloc");
    struct test_case big = {"big", 3, {200, 200, 200}, 1, 1000, UNIFORM, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8};
    struct problem p;
    struct nufft *plan = NULL;
    problem_make(&p, &big, false);
    struct nufft_params params = params_of(&big);
    /* A grid of 400^3: 512 MB. */
    rc = nufft_create(&plan, gpu, &params, big.samples, p.k);
    verdict_code(rc, ERR_GPU_OOM, "a plan that does not fit is gpu-oom");
    verdict(plan == NULL && err_last()->required > err_last()->available, "and says how much it lacks",
            "numbers are missing");
    problem_free(&p);

    /* A batch that does not fit is processed in parts, with the same bits. */
    struct test_case wide = {"wide", 2,    {128, 128, 1},   256, 5000,
                             RADIAL, 1e-3, NUFFT_SEPARABLE, 4,   NUFFT_METHOD_BRICK2D};
    struct outcome tight, roomy;
    problem_make(&p, &wide, false);
    params = params_of(&wide); /* 564 kB per transform */
    run_problem(gpu, &p, &params, &tight);
    dev_release(gpu, ballast);
    run_problem(gpu, &p, &params, &roomy);
    verdict_way(&wide, &roomy.info);
    verdict(tight.info.bytes < roomy.info.bytes, "little memory: the batch is cut", "the plan is as large as ever");
    verdict(memcmp(tight.image, roomy.image, p.pixels * 256 * sizeof(struct c32)) == 0,
            "a cut batch gives the same bits", "they differ");
    outcome_free(&tight);
    outcome_free(&roomy);
    problem_free(&p);
}

/* The memory of bricks: their sums are computed in chunks of rows if they do not fit at once. */
static void test_chunks(struct dev *gpu)
{
    struct test_case c = {"chunks", 3,    {128, 120, 112}, 2, 400000,
                          UNIFORM,  1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8};
    struct problem p;
    struct outcome tight, roomy;
    struct nufft_params params = params_of(&c);
    size_t available, total;
    void *ballast = NULL;
    problem_make(&p, &c, false);
    run_problem(gpu, &p, &params, &roomy);
    must(dev_memory(gpu, &available, &total), "dev_memory");
    must(dev_alloc(gpu, available - (size_t)500e6, &ballast), "dev_alloc");
    run_problem(gpu, &p, &params, &tight);
    dev_release(gpu, ballast);
    verdict_way(&c, &roomy.info);
    /* All of the 56,000 bins of 4 x 5 x 13 cells have samples: 230 MB of slots per coil; half of the free memory is
     * used. */
    verdict(roomy.info.bytes > (size_t)280e6 && tight.info.bytes < (size_t)280e6,
            "little memory: rows of bins are summed in chunks", "the plan is as large as ever");
    size_t images = p.pixels * (size_t)c.batch;
    verdict(memcmp(tight.image, roomy.image, images * sizeof *roomy.image) == 0 &&
                memcmp(tight.squares, roomy.squares, p.pixels * sizeof(float)) == 0,
            "chunks give the same bits", "they differ");
    /* The convolution is summed into a grid. */
    verdict(memcmp(tight.convolved, roomy.convolved, c.samples * sizeof(float)) == 0,
            "chunks convolve to the same bits", "they differ");
    outcome_free(&tight);
    outcome_free(&roomy);
    problem_free(&p);

    /* A large plan with many coils takes at most 1.3 times a grid (400^3 cells) plus its samples (position, order and
     * value).
     */
    struct test_case coils = {"coils", 3,    {200, 200, 200}, 1, 1000000,
                              UNIFORM, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8};
    problem_make(&p, &coils, false);
    for (int width = 4; width <= 5; width++) {
        struct nufft_info info;
        struct nufft *plan = NULL;
        coils.width = width;
        coils.method = width == 4 ? NUFFT_METHOD_BRICK8 : NUFFT_METHOD_BRICK16;
        params = params_of(&coils);
        params.batch = 16;
        must(nufft_create(&plan, gpu, &params, coils.samples, p.k), "nufft_create");
        nufft_describe(plan, &info);
        verdict_way(&coils, &info);
        double most = 1.3 * (400.0 * 400 * 400 * 8 + 28e6);
        verdict((double)info.bytes <= most, "16 coils keep 1.3 times a grid and the samples", "the plan keeps more");
        nufft_free(plan);
    }
    problem_free(&p);
}

int main(void)
{
    struct dev *gpu = tap_gpu();
    test_memory(gpu);
    test_chunks(gpu);
    dev_free(gpu);
    return tap_end();
}
