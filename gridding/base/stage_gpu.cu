/* stage_gpu.cu: transfers between pageable memory and the device through pinned buffers. The driver copies pageable
 * memory with one thread (10 GB/s, while the bus has 55). Here several threads process chunks in turn, each with two
 * pinned buffers: while one is being transferred, the thread fills or empties the other. An upload's bytes may also be
 * computed there. */
#include "gridding/base/dev_gpu.cuh"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

/* A chunk's transfer takes some 20 us, several times the cost of starting a copy. Threads share a small transfer in
 * smaller ones. */
static const size_t CHUNK = (size_t)1 << 20, CHUNK_LEAST = (size_t)1 << 18, CHUNK_STEP = (size_t)1 << 16;
enum { THREADS_MOST = 8, CHUNKS_EACH = 2 };

struct transfer {
    const struct gpu *gpu;
    cudaStream_t stream;
    char *device;
    size_t bytes;
    char *host;                  /* of a download; else NULL */
    const struct dev_fill *fill; /* of an upload; else NULL */
    size_t each;                 /* bytes of a chunk */
    std::atomic<size_t> next;
    std::atomic<int> failed; /* the first failure, a cudaError_t */

    size_t chunks() const
    {
        return (bytes + each - 1) / each;
    }
    size_t length(size_t chunk) const
    {
        return std::min(each, bytes - chunk * each);
    }
    bool take(size_t *chunk)
    {
        *chunk = next.fetch_add(1);
        return *chunk * each < bytes && failed.load() == cudaSuccess;
    }
};

struct gpu_stage {
    std::mutex busy; /* one transfer at a time */
    int threads;
    char *pinned;                      /* [threads][2][CHUNK] */
    cudaEvent_t done[THREADS_MOST][2]; /* the buffer's last copy */
    /* Threads beside the caller's, which wait for the next transfer: to start one, with its first call of the driver,
     * takes longer than to copy a small scan. */
    std::thread others[THREADS_MOST];
    int started;
    std::mutex lock; /* of the following */
    std::condition_variable asked, left;
    struct transfer *now;
    int places, active; /* places: of threads that may still join the transfer; active: threads that have */
    bool ends;
    /* The upload that gpu_fill_begin() began, and whether it is still under way. Under `busy`. */
    struct transfer filled;
    struct dev_fill fill;
    bool filling;
};

static cudaError_t upload_chunks(struct transfer *t, int thread)
{
    size_t chunk;
    cudaError_t status = cudaSuccess;
    for (int turn = 0; status == cudaSuccess && t->take(&chunk); turn ^= 1) {
        cudaEvent_t event = t->gpu->stage->done[thread][turn];
        char *buffer = t->gpu->stage->pinned + (size_t)(2 * thread + turn) * CHUNK;
        status = cudaEventSynchronize(event);
        if (status == cudaSuccess) {
            t->fill->write(t->fill->of, chunk * t->each, t->length(chunk), buffer);
            status = cudaMemcpyAsync(t->device + chunk * t->each, buffer, t->length(chunk), cudaMemcpyHostToDevice,
                                     t->stream);
        }
        if (status == cudaSuccess)
            status = cudaEventRecord(event, t->stream);
    }
    return status;
}

static cudaError_t download_chunks(struct transfer *t, int thread)
{
    size_t chunk = 0, coming = 0;
    bool more = true, pending = false;
    cudaError_t status = cudaSuccess;
    for (int turn = 0; status == cudaSuccess && (more || pending); turn ^= 1) {
        const cudaEvent_t *event = t->gpu->stage->done[thread];
        char *buffer = t->gpu->stage->pinned + (size_t)(2 * thread) * CHUNK;
        more = more && t->take(&chunk);
        if (more) {
            status = cudaEventSynchronize(event[turn]); /* an upload in another stream may use the buffer */
            if (status == cudaSuccess)
                status = cudaMemcpyAsync(buffer + (size_t)turn * CHUNK, t->device + chunk * t->each, t->length(chunk),
                                         cudaMemcpyDeviceToHost, t->stream);
            if (status == cudaSuccess)
                status = cudaEventRecord(event[turn], t->stream);
        }
        if (pending && status == cudaSuccess)
            status = cudaEventSynchronize(event[turn ^ 1]);
        if (pending && status == cudaSuccess)
            memcpy(t->host + coming * t->each, buffer + (size_t)(turn ^ 1) * CHUNK, t->length(coming));
        pending = more;
        coming = chunk;
    }
    return status;
}

static void run_thread(struct transfer *t, int thread)
{
    cudaError_t status = cudaSetDevice(t->gpu->index);
    if (status == cudaSuccess)
        status = t->fill ? upload_chunks(t, thread) : download_chunks(t, thread);
    int none = cudaSuccess;
    if (status != cudaSuccess)
        t->failed.compare_exchange_strong(none, status);
}

/* One of the other threads: a transfer's numbers from 1 on are those of the threads that join it. */
static void wait_and_join(struct gpu_stage *stage)
{
    std::unique_lock<std::mutex> held(stage->lock);
    for (;;) {
        stage->asked.wait(held, [stage] { return stage->ends || stage->places > 0; });
        if (stage->ends)
            return;
        struct transfer *t = stage->now;
        const int number = stage->places--;
        stage->active++;
        held.unlock();
        run_thread(t, number);
        held.lock();
        if (--stage->active == 0)
            stage->left.notify_one();
    }
}

/* Bytes of a chunk of a transfer of so many. */
static size_t chunk_of(const struct gpu_stage *stage, size_t bytes)
{
    const size_t share = bytes / ((size_t)stage->threads * CHUNKS_EACH) / CHUNK_STEP * CHUNK_STEP + CHUNK_STEP;
    return std::min(CHUNK, std::max(CHUNK_LEAST, share));
}

/* Ask the other threads, one for each chunk but one. If the system starts fewer, or some wake late, those that are
 * there do all the work. */
static void others_ask(struct gpu_stage *stage, struct transfer *t)
{
    const int wanted = (int)std::min((size_t)stage->threads, t->chunks()) - 1;
    try {
        for (; stage->started < wanted; stage->started++)
            stage->others[stage->started] = std::thread(wait_and_join, stage);
    } catch (const std::system_error &) {
        /* The threads that did start process all chunks. */
    }
    if (wanted > 0) {
        std::lock_guard<std::mutex> held(stage->lock);
        stage->now = t;
        stage->places = wanted;
        stage->asked.notify_all();
    }
}

/* Take part in what is left of it. */
static void transfer_end(struct gpu_stage *stage, struct transfer *t)
{
    run_thread(t, 0);
    std::unique_lock<std::mutex> held(stage->lock);
    stage->places = 0;
    stage->left.wait(held, [stage] { return stage->active == 0; });
}

/* End the upload that was begun, if one is under way. */
static void filling_end(struct gpu_stage *stage)
{
    if (stage->filling)
        transfer_end(stage, &stage->filled);
    stage->filling = false;
}

static int run_transfer(struct transfer *t)
{
    struct gpu_stage *stage = t->gpu->stage;
    std::lock_guard<std::mutex> turn(stage->busy);
    filling_end(stage);
    t->each = chunk_of(stage, t->bytes);
    others_ask(stage, t);
    transfer_end(stage, t);
    return gpu_check((cudaError_t)t->failed.load(), t->fill ? "Upload" : "Download");
}

void gpu_fill_begin(struct gpu *gpu, cudaStream_t stream, void *device, size_t bytes, const struct dev_fill *fill)
{
    struct gpu_stage *stage = gpu->stage;
    std::lock_guard<std::mutex> turn(stage->busy);
    filling_end(stage);
    struct transfer *t = &stage->filled;
    stage->fill = *fill;
    t->gpu = gpu;
    t->stream = stream;
    t->device = (char *)device;
    t->bytes = bytes;
    t->fill = &stage->fill;
    t->each = chunk_of(stage, bytes);
    t->next = 0;
    t->failed = cudaSuccess;
    stage->filling = true;
    others_ask(stage, t);
}

int gpu_fill_end(struct gpu *gpu)
{
    struct gpu_stage *stage = gpu->stage;
    std::lock_guard<std::mutex> turn(stage->busy);
    filling_end(stage);
    return gpu_check((cudaError_t)stage->filled.failed.exchange(cudaSuccess), "Upload");
}

static void copy_fill(void *host, size_t first, size_t bytes, void *out)
{
    memcpy(out, (const char *)host + first, bytes);
}

int gpu_upload_start(struct gpu *gpu, cudaStream_t stream, void *device, const void *host, size_t bytes)
{
    const struct dev_fill fill = {copy_fill, const_cast<void *>(host)};
    struct transfer t = {gpu, stream, (char *)device, bytes, NULL, &fill, 0, {0}, {cudaSuccess}};
    return run_transfer(&t);
}

int gpu_upload(struct gpu *gpu, void *device, const void *host, size_t bytes)
{
    int rc = gpu_upload_start(gpu, gpu->stream, device, host, bytes);
    return rc ? rc : gpu_finish(gpu, "Upload");
}

int gpu_download(struct gpu *gpu, void *host, const void *device, size_t bytes)
{
    struct transfer t = {gpu, gpu->stream,  (char *)const_cast<void *>(device), bytes, (char *)host, NULL, 0,
                         {0}, {cudaSuccess}};
    return run_transfer(&t);
}

int gpu_stage_make(struct gpu_stage **out, int threads)
{
    struct gpu_stage *stage = new (std::nothrow) struct gpu_stage();
    if (!stage)
        return err_no_memory("transfers");
    stage->threads = std::min(threads, (int)THREADS_MOST);
    int rc = gpu_check(cudaHostAlloc((void **)&stage->pinned, (size_t)stage->threads * 2 * CHUNK, cudaHostAllocDefault),
                       "Pinning memory for transfers");
    for (int i = 0; !rc && i < 2 * stage->threads; i++)
        rc = gpu_check(cudaEventCreateWithFlags(&stage->done[i / 2][i % 2], cudaEventDisableTiming), "Making an event");
    if (rc)
        gpu_stage_free(stage);
    else
        *out = stage;
    return rc;
}

void gpu_stage_free(struct gpu_stage *stage)
{
    if (!stage)
        return;
    {
        std::lock_guard<std::mutex> held(stage->lock);
        stage->ends = true;
        stage->asked.notify_all();
    }
    for (int i = 0; i < stage->started; i++)
        stage->others[i].join();
    for (int i = 0; i < 2 * stage->threads; i++)
        if (stage->done[i / 2][i % 2]) {
            (void)cudaEventSynchronize(stage->done[i / 2][i % 2]);
            (void)cudaEventDestroy(stage->done[i / 2][i % 2]);
        }
    (void)cudaFreeHost(stage->pinned);
    delete stage;
}
