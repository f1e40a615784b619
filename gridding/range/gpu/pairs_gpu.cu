/* pairs_gpu.cu: sums over pairs of points on a GPU. */
#include "gridding/range/gpu/pair_plan.cuh"
#include "gridding/range/gpu/pair_sums.cuh"
#include "gridding/range/gpu/slices_gpu.cuh"

#include <algorithm>
#include <cstring>

static const char what[] = "Sums over pairs of points";

static const uint32_t ONE_LAUNCH = 1u << 30;

/* ---- laws ---- */

/* 1 / r^power minus a polynomial, which is 0 for a law with a cut-off. */
static bool is_hot(const struct range_law *law, int power)
{
    if (!law)
        return true;
    const struct range_law_params *p = &law->params;
    const bool cut = p->form == RANGE_INVERSE && law->degree == 0 && law->c[0] == 1;
    return (cut || p->form == RANGE_SHORT) && p->power == power && p->least == 0;
}

static struct pair_poly poly_of(const struct range_law *law, bool hot)
{
    struct pair_poly poly;
    memset(&poly, 0, sizeof poly);
    if (!law || (hot && law->params.form == RANGE_INVERSE))
        return poly;
    for (int d = 0; d <= law->degree; d++)
        poly.c[d] = hot ? -law->c[d] : law->c[d];
    poly.form = law->params.form;
    poly.power = law->params.power;
    return poly;
}

/* Whether the polynomial of degree DIRECT in x with float32 coefficients c, evaluated in float32, is that of c, within
 * `error`, for x in [0, most]. */
static bool evaluates(const float *single, const double *c, double most, double error)
{
    enum { PROBES = 64 };
    for (int i = 0; i <= PROBES; i++) {
        const float x = (float)(most * i / PROBES);
        float value = single[DIRECT];
        double exact = c[DIRECT];
        for (int d = DIRECT - 1; d >= 0; d--) {
            value = fmaf(value, x, single[d]);
            exact = exact * (double)x + c[d];
        }
        if (!(fabs((double)value - exact) <= error))
            return false;
    }
    return true;
}

/* The polynomial of a hot law in the softened square, with its sign. False: in float32 it is not accurate enough for
 * the law, or its coefficients overflow. */
static bool direct_poly(const struct range_law *law, struct pair_poly *poly)
{
    double c[DIRECT + 1] = {0}, largest = 0;
    if (!law || law->params.form == RANGE_INVERSE)
        return true;
    if (law->degree > DIRECT)
        return false;
    const double reach2 = law->params.reach * law->params.reach, soft2 = law->params.soft * law->params.soft;
    const double slope = -2 / reach2, start = 1 - slope * soft2;
    for (int d = law->degree; d >= 0; d--) { /* c = c (start + slope x) + the next */
        for (int i = DIRECT; i >= 0; i--)
            c[i] = c[i] * start + (i > 0 ? c[i - 1] * slope : 0);
        c[0] -= (double)law->c[d];
        largest += (double)law->c[d]; /* at s = 1: where the points are */
    }
    for (int i = 0; i <= DIRECT; i++) {
        if (c[i] != 0 && !(fabs(c[i]) > 1e-30 && fabs(c[i]) < 1e36))
            return false;
        poly->c[i] = (float)c[i];
    }
    return evaluates(poly->c, c, reach2 + soft2, fmax(0.1 * law->params.error, 0x1p-20) * fabs(largest));
}

static struct pair_laws_gpu laws_of(const struct range_pair_sums *sums, bool hot)
{
    const struct range_law *v = sums->vector_law, *s = sums->scalar_law;
    const struct range_law_params *p = v ? &v->params : &s->params;
    const double slope = -2 / (p->reach * p->reach);
    struct pair_laws_gpu l;
    memset(&l, 0, sizeof l);
    l.vectors = poly_of(v, hot);
    l.scalars = poly_of(s, hot);
    struct pair_poly direct[2] = {l.vectors, l.scalars};
    l.direct = hot && direct_poly(v, &direct[0]) && direct_poly(s, &direct[1]);
    if (l.direct) {
        l.vectors = direct[0];
        l.scalars = direct[1];
    }
    l.degree = std::max(v ? v->degree : 0, s ? s->degree : 0);
    l.slope = (float)slope;
    l.start = (float)(1 - slope * p->soft * p->soft);
    l.reach2 = (float)(p->reach * p->reach);
    l.least2 = (float)(p->least * p->least);
    l.soft2 = (float)(p->soft * p->soft);
    l.spline = (float)p->spline;
    l.spline2 = (float)(p->spline * p->spline);
    return l;
}

/* ---- launches ---- */

static __global__ void take_values(cells_view c, const float *values)
{
    gpu_let_next_start();
    const uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < c.count)
        c.point[k].w = values[c.source[k]];
}

/* `blocks` of it are resident at a time on a multiprocessor. */
struct sum_kernel {
    void (*run)(struct pair_sums_args args);
    unsigned blocks;
};

struct sum_job {
    struct gpu *gpu;
    struct pair_sums_args args;
    struct sum_kernel kernel;
};

template <bool DOUBLES, int DEGREE, enum softening SOFT, bool SCALARS> static struct sum_kernel one_kernel()
{
    return {sum_pairs<DOUBLES, DEGREE, SOFT, SCALARS>, sum_warps<DEGREE, SOFT, SCALARS>() / PAIR_WARPS};
}

template <enum softening SOFT, bool SCALARS> static struct sum_kernel hot_kernel(int degree, bool direct)
{
    if (direct)
        return degree <= 5   ? one_kernel<false, 5, SOFT, SCALARS>()
               : degree <= 6 ? one_kernel<false, 6, SOFT, SCALARS>()
                             : one_kernel<false, DIRECT, SOFT, SCALARS>();
    return degree <= 11 ? one_kernel<false, 11, SOFT, SCALARS>()
                        : one_kernel<false, RANGE_DEGREE_MOST, SOFT, SCALARS>();
}

template <enum softening SOFT> static struct sum_kernel soft_kernel(const struct pair_laws_gpu *laws, bool scalars)
{
    return scalars ? hot_kernel<SOFT, true>(laws->degree, laws->direct)
                   : hot_kernel<SOFT, false>(laws->degree, laws->direct);
}

static struct sum_kernel kernel_of(bool doubles, bool hot, const struct pair_laws_gpu *laws, bool scalars)
{
    if (!hot)
        return doubles ? one_kernel<true, ANY, SOFT_NONE, false>() : one_kernel<false, ANY, SOFT_NONE, false>();
    return laws->spline2 > 0 ? soft_kernel<SOFT_SPLINE>(laws, scalars)
           : laws->soft2 > 0 ? soft_kernel<SOFT_PLUMMER>(laws, scalars)
                             : soft_kernel<SOFT_NONE>(laws, scalars);
}

static int launch_sums(void *of, uint64_t begin, uint32_t tasks)
{
    struct sum_job *job = (struct sum_job *)of;
    struct pair_sums_args &a = job->args;
    const unsigned all = gpu_blocks(tasks, PAIR_WARPS), threads = 32 * PAIR_WARPS,
                   resident = job->kernel.blocks * (unsigned)job->gpu->multiprocessors;
    a.pair.begin = begin;
    a.pair.tasks = tasks;
    int rc =
        gpu_launch_behind(job->gpu, (const void *)job->kernel.run, std::min(all, resident), (int)threads, 0, &a, what);
    if (!rc && a.partial) {
        add_parts<<<all, threads, 0, job->gpu->stream>>>(a);
        rc = gpu_launched(what);
    }
    return rc;
}

static int place_values(struct sum_job *job, const float *values)
{
    enum { PER = 256 };
    const struct cells_view &cells = job->args.pair.from;
    if (cells.count == 0)
        return 0;
    take_values<<<gpu_blocks(cells.count, PER), PER, 0, job->gpu->stream>>>(cells, values);
    return gpu_launched(what);
}

/* The values of the first channel have been placed. */
static int sum_channels(struct sum_job *job, const struct points_gpu *to, const struct points_gpu *from,
                        const struct range_pair_sums *sums, int channels, const float *values, struct slices *slices)
{
    const size_t dim = (size_t)to->view.box.dim, inputs = to->view.inputs;
    int rc = 0;
    job->args.stride = inputs;
    for (size_t c = 0; c < (size_t)channels && !rc; c++) {
        job->args.vectors = sums->vector_law ? sums->vectors + c * dim * inputs : NULL;
        job->args.scalars = sums->scalar_law ? sums->scalars + c * inputs : NULL;
        if (c > 0)
            rc = place_values(job, values + c * from->view.inputs);
        if (!rc)
            rc = slices_run(slices, launch_sums, job, what);
    }
    return rc;
}

int pairs_gpu_sum(const void *to_state, const void *from_state, const struct range_pair_sums *sums, int channels,
                  const float *values, const struct listener *listener)
{
    const struct points_gpu *to = (const struct points_gpu *)to_state, *from = (const struct points_gpu *)from_state;
    const struct range_law *law = sums->vector_law ? sums->vector_law : sums->scalar_law;
    const double reach = law->params.reach * (double)from->widest;
    struct sum_job job;
    struct pair_work work;
    memset(&work, 0, sizeof work);
    memset(&job, 0, sizeof job);
    job.gpu = to->gpu;
    int rc = gpu_enter(to->gpu);
    if (!rc)
        rc = pair_work_begin(&work, to, from, reach);
    if (!rc) {
        /* One launch, if nobody listens and no sums of parts need memory. */
        const uint32_t each = listener || work.plan.offset ? pair_work_slice(&work) : ONE_LAUNCH;
        struct slices slices = {to->gpu, listener, work.plan.tasks,
                                each,    0,        std::max<uint64_t>(work.plan.tasks * (uint64_t)channels, 1)};
        const bool doubles = points_fine(to->view) || points_fine(from->view);
        const bool hot = !doubles && !from->view.scale && is_hot(sums->vector_law, 3) && is_hot(sums->scalar_law, 1);
        job.args.pair = pair_work_args(&work, reach);
        if (work.plan.longest)
            job.args.pair.to.cluster = work.plan.longest;
        if (work.plan.offset)
            rc = gpu_array(to->gpu, (size_t)slices.each * CLUSTER, &job.args.partial, what);
        if (!rc && channels > 0) /* meanwhile, the host prepares the laws */
            rc = place_values(&job, values);
        job.args.laws = laws_of(sums, hot);
        job.args.next = work.to->next;
        job.args.use_vectors = sums->vector_law;
        job.args.use_scalars = sums->scalar_law;
        job.kernel = kernel_of(doubles, hot, &job.args.laws, job.args.use_scalars);
        if (!rc)
            rc = sum_channels(&job, to, from, sums, channels, values, &slices);
        if (!rc && slices.done < slices.most) /* no points */
            slices.done = slices.most;
        if (!rc)
            rc = slices_tell(&slices);
    }
    gpu_release(to->gpu, job.args.partial);
    pair_work_end(&work);
    return rc;
}

void pairs_gpu_memory(const struct dev *, const struct range_points_params *params, struct range_memory *memory)
{
    const size_t each = pair_work_bytes(params); /* between two such sets */
    memory->pairs = 2 * each + (size_t)SLICE_PARTS * CLUSTER * sizeof(float4) + (size_t)65536;
    memory->count = 2 * each + counts_gpu_bytes();
}
