/* The GPU's leaf: opening a device, its memory, and the table that dev.c finds in mrirecon-gpu.so. */
#include "gridding/base/dev_gpu.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void leaf_close(struct dev *dev)
{
    struct gpu *gpu = gpu_of(dev);
    if (!gpu)
        return;
    if (cudaSetDevice(gpu->index) == cudaSuccess) {
        gpu_stage_free(gpu->stage);
        if (gpu->sums)
            (void)cudaFreeHost(gpu->sums);
        if (gpu->uploads)
            (void)cudaStreamDestroy(gpu->uploads);
        if (gpu->reached)
            (void)cudaEventDestroy(gpu->reached);
        if (gpu->uploaded)
            (void)cudaEventDestroy(gpu->uploaded);
        if (gpu->pool)
            (void)cudaMemPoolDestroy(gpu->pool);
        if (gpu->stream)
            (void)cudaStreamDestroy(gpu->stream);
    }
    free(gpu);
    dev->state = NULL;
}

static int open_stream_and_pool(struct gpu *gpu)
{
    struct cudaMemPoolProps props;
    uint64_t keep = UINT64_MAX; /* the next plan reuses memory without a call of the driver */
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = gpu->index;
    int rc = gpu_check(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), "Making a stream");
    if (!rc)
        rc = gpu_check(cudaStreamCreateWithFlags(&gpu->uploads, cudaStreamNonBlocking), "Making a stream");
    if (!rc)
        rc = gpu_check(cudaEventCreateWithFlags(&gpu->uploaded, cudaEventDisableTiming), "Making an event");
    if (!rc)
        rc = gpu_check(cudaEventCreateWithFlags(&gpu->reached, cudaEventDisableTiming), "Making an event");
    if (!rc)
        rc = gpu_check(cudaMemPoolCreate(&gpu->pool, &props), "Making a memory pool");
    if (!rc)
        rc = gpu_check(cudaMemPoolSetAttribute(gpu->pool, cudaMemPoolAttrReleaseThreshold, &keep),
                       "Setting up the memory pool");
    return rc;
}

/* Whether this code runs on GPU `index`, without waking it. */
static int is_usable(int index, struct cudaDeviceProp *properties)
{
    int mode = cudaComputeModeDefault;
    int rc = gpu_check(cudaGetDeviceProperties(properties, index), "Asking for the device's properties");
    if (!rc)
        rc = gpu_check(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index), "Asking for the device's mode");
    if (rc)
        return rc;
    if (properties->major < 8)
        return err_set(ERR_NO_DEVICE, "GPU %d (%s) has compute capability %d.%d; 8.0 or newer is needed.", index,
                       properties->name, properties->major, properties->minor);
    if (mode == cudaComputeModeProhibited)
        return err_set(ERR_NO_DEVICE, "GPU %d (%s) is closed to programs (nvidia-smi shows its compute mode).", index,
                       properties->name);
    return 0;
}

/* CUDA's own text for a missing driver speaks of its version. */
static int no_gpu(cudaError_t status)
{
    int serves = 0;
    if (status != cudaErrorInsufficientDriver || cudaDriverGetVersion(&serves) != cudaSuccess)
        return err_set(ERR_NO_DEVICE, "No GPU can be used: %s.", cudaGetErrorString(status));
    if (serves == 0)
        return err_set(ERR_NO_DEVICE, "No GPU can be used: no NVIDIA driver (libcuda.so.1) was found.");
    return err_set(ERR_NO_DEVICE,
                   "No GPU can be used: NVIDIA's driver here serves CUDA %d.%d at most, and this build needs %d.%d. "
                   "Install a newer driver.",
                   serves / 1000, serves % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static int leaf_open(struct dev *dev, int index)
{
    int count = 0;
    struct cudaDeviceProp properties;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess)
        return no_gpu(status);
    for (int i = 0; i < count && i < DEV_GPUS_MOST; i++)
        if (is_usable(i, &properties) == 0)
            dev->gpus |= (uint64_t)1 << i;
    if (index == DEV_ANY)
        index = dev->gpus ? __builtin_ctzll(dev->gpus) : 0;
    if (index < 0 || index >= count)
        return err_set(ERR_NO_DEVICE, "There is no GPU %d: this machine has %d, counted from 0.", index, count);
    int rc = is_usable(index, &properties);
    if (rc)
        return rc;
    struct gpu *gpu = (struct gpu *)calloc(1, sizeof *gpu);
    if (!gpu)
        return err_no_memory("opening GPU %d", index);
    gpu->index = index;
    gpu->multiprocessors = properties.multiProcessorCount;
    gpu->shared_most = properties.sharedMemPerBlockOptin;
    dev->state = gpu;
    rc = gpu_enter(gpu);
    if (!rc)
        rc = open_stream_and_pool(gpu);
    if (!rc)
        rc = gpu_stage_make(&gpu->stage, dev->threads);
    if (!rc)
        rc = gpu_check(cudaMallocHost((void **)&gpu->sums, GPU_SUMS * sizeof *gpu->sums), "Pinning memory");
    if (rc)
        leaf_close(dev);
    else
        snprintf(dev->name, sizeof dev->name, "gpu %d (%.100s)", index, properties.name);
    return rc;
}

static int leaf_memory(struct dev *dev, size_t *available, size_t *total)
{
    int rc = gpu_enter(gpu_of(dev));
    return rc ? rc : gpu_available(gpu_of(dev), available, total);
}

static int leaf_alloc(struct dev *dev, size_t bytes, void **out)
{
    int rc = gpu_enter(gpu_of(dev));
    if (!rc)
        rc = gpu_alloc(gpu_of(dev), bytes, out, "A buffer");
    return rc ? rc : gpu_finish(gpu_of(dev), "A buffer"); /* it may be used in other streams */
}

static int leaf_upload(struct dev *dev, void *device, const void *host, size_t bytes)
{
    int rc = gpu_enter(gpu_of(dev));
    return rc ? rc : gpu_upload(gpu_of(dev), device, host, bytes);
}

static int leaf_upload_begin(struct dev *dev, void *device, const void *host, size_t bytes)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    return rc ? rc : gpu_upload_start(gpu, gpu->uploads, device, host, bytes);
}

static void leaf_fill_begin(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill)
{
    gpu_fill_begin(gpu_of(dev), gpu_of(dev)->uploads, device, bytes, fill);
}

static int leaf_fill_end(struct dev *dev)
{
    return gpu_fill_end(gpu_of(dev));
}

static int leaf_upload_order(struct dev *dev)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (!rc)
        rc = gpu_check(cudaEventRecord(gpu->uploaded, gpu->uploads), "Ordering uploads");
    return rc ? rc : gpu_check(cudaStreamWaitEvent(gpu->stream, gpu->uploaded, 0), "Ordering uploads");
}

static void leaf_release(struct dev *dev, void *memory)
{
    /* An upload into it may be in progress. */
    if (leaf_upload_order(dev) == 0)
        gpu_release(gpu_of(dev), memory);
}

static int leaf_download(struct dev *dev, void *host, const void *device, size_t bytes)
{
    int rc = gpu_enter(gpu_of(dev));
    return rc ? rc : gpu_download(gpu_of(dev), host, device, bytes);
}

static int leaf_zero(struct dev *dev, void *device, size_t bytes)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (!rc && bytes)
        rc = gpu_check(cudaMemsetAsync(device, 0, bytes, gpu->stream), "Clearing memory");
    return rc ? rc : gpu_finish(gpu, "Clearing memory");
}

static int leaf_finish(struct dev *dev)
{
    int rc = gpu_enter(gpu_of(dev));
    return rc ? rc : gpu_finish(gpu_of(dev), "Waiting for the device");
}

/* Let `to` access the memory of `from` directly if the machine supports it; otherwise the driver copies through the
 * host. */
static int peer_allow(const struct gpu *to, struct gpu *from)
{
    int can = 0;
    cudaMemAccessDesc access;
    if (to->index == from->index || from->peers >> to->index & 1)
        return 0;
    from->peers |= (uint64_t)1 << to->index;
    int rc = gpu_check(cudaDeviceCanAccessPeer(&can, to->index, from->index), "Asking for peer access");
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = to->index;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    return rc || !can ? rc : gpu_check(cudaMemPoolSetAccess(from->pool, &access, 1), "Allowing peer access");
}

/* Order later work of `later` after the present work of `earlier`. */
static int stream_follow(const struct gpu *later, const struct gpu *earlier)
{
    int rc = gpu_enter(earlier);
    if (!rc)
        rc = gpu_check(cudaEventRecord(earlier->reached, earlier->stream), "Ordering devices");
    if (!rc)
        rc = gpu_enter(later);
    return rc ? rc : gpu_check(cudaStreamWaitEvent(later->stream, earlier->reached, 0), "Ordering devices");
}

static int leaf_copy(struct dev *to, void *there, struct dev *from, const void *here, size_t bytes)
{
    struct gpu *source = gpu_of(from), *target = gpu_of(to);
    int rc = peer_allow(target, source);
    if (!rc)
        rc = peer_allow(source, target);
    if (!rc)
        rc = stream_follow(target, source);
    if (!rc)
        rc = gpu_check(cudaMemcpyPeerAsync(there, target->index, here, source->index, bytes, target->stream),
                       "Copying between devices");
    return rc ? rc : stream_follow(source, target); /* later work may overwrite the source */
}

extern "C" const struct dev_leaf *mrirecon_gpu_leaf(void)
{
    static const struct dev_leaf leaf = {
        DEV_LEAF_ABI,
        leaf_open,
        leaf_close,
        leaf_memory,
        leaf_alloc,
        leaf_release,
        leaf_upload,
        leaf_upload_begin,
        leaf_upload_order,
        leaf_fill_begin,
        leaf_fill_end,
        leaf_download,
        leaf_zero,
        leaf_finish,
        leaf_copy,
        &nufft_leaf_gpu,
        &convolution_leaf_gpu,
        &vec_leaf_gpu,
        &range_leaf_gpu,
        &sparse_leaf_gpu,
        &fft_leaf_gpu,
        &split_leaf_gpu,
        &espirit_leaf_gpu,
    };
    return &leaf;
}
