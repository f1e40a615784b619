/* bench_plans: what the choice of a plan's width, grid and method costs against the best of a search: JSON lines, one
 * per case, tolerance and purpose.
 *
 *   bench_plans [--cpu] [--cases y4,n,..] [--tolerances 1e-2,1e-3,1e-4,1e-5] [--purposes adjoint,forward,both]
 *               [--within 1.6] [--coils N] [--held-out] [--all]
 *
 * Cases: tests/bench/nufft_cases.h; all by default. --held-out: instead of these, other shapes: constants of planes
 * are fitted to the times of p144 to r320, p176 and p352, those of adjoints of volumes to k56 to x160, none to others.
 *
 * Plans of each width, of oversamplings as nufft.c tries them and of each method are candidates if they keep the
 * tolerance and the model of their times expects 1 to `within` times what it expects of the choice for one of the
 * tolerances and purposes. Each is timed briefly once for all tolerances (--all prints these times), for each purpose
 * in a plan made for it, since a plan's bins depend on that. Then the fastest of a tolerance and purpose and the plan
 * that is chosen for it are timed again, in turn: the median of ROUNDS medians each, since that of many candidates
 * which had the luckiest time is not the fastest. `spread` is the chosen plan's slowest round over its fastest. */
#include "gridding/base/dev_leaf.h"
#include "gridding/nufft/nufft_leaf.h"
#include "gridding/range/kernel.h"
#include "tests/bench/nufft_cases.h"

enum { PURPOSES = 3, WAYS = 2, TOLERANCES_MOST = 8, RATIOS_MOST = 64, CANDIDATES_MOST = 16384 };
enum { ROUNDS = 7, FINALISTS = 4 /* beside the chosen plan */ };
static const char *const purpose_names[PURPOSES] = {"adjoint", "forward", "both"};

struct options {
    const char *cases, *purposes;
    double tolerance[TOLERANCES_MOST], within;
    int tolerances, coils;
    bool cpu, held_out, all;
};

static const struct bench_case held_out[] = {
    {"p144", 2, {144, 144, 1}, 10, GOLDEN, 288, 65088},    {"p192", 2, {192, 192, 1}, 5, GOLDEN, 384, 115968},
    {"p288", 2, {288, 288, 1}, 20, GOLDEN, 576, 130176},   {"p300", 2, {300, 300, 1}, 2, GOLDEN, 600, 282600},
    {"p448", 2, {448, 448, 1}, 3, GOLDEN, 896, 630784},    {"p768", 2, {768, 768, 1}, 6, GOLDEN, 1536, 1853952},
    {"r320", 2, {320, 320, 1}, 12, UNIFORM, 0, 400000},    {"k56", 3, {56, 56, 56}, 6, KOOSH, 112, 250000},
    {"k80", 3, {80, 80, 80}, 1, KOOSH, 160, 800000},       {"k144", 3, {144, 144, 144}, 3, KOOSH, 288, 2500000},
    {"g100", 3, {100, 100, 100}, 2, GAUSSIAN, 0, 1500000}, {"u72", 3, {72, 72, 72}, 4, UNIFORM, 0, 600000},
    {"u128", 3, {128, 128, 128}, 1, UNIFORM, 0, 3000000},  {"x160", 3, {160, 160, 40}, 8, STACK, 320, 2560000},
    {"k72", 3, {72, 72, 72}, 2, KOOSH, 144, 576000},       {"k112", 3, {112, 112, 112}, 4, KOOSH, 224, 1792000},
    {"x128", 3, {128, 128, 32}, 4, STACK, 256, 1638400},   {"x224", 3, {224, 224, 56}, 2, STACK, 448, 5734400},
    {"u88", 3, {88, 88, 88}, 3, UNIFORM, 0, 900000},       {"u144", 3, {144, 144, 144}, 2, UNIFORM, 0, 2500000},
    {"g72", 3, {72, 72, 72}, 4, GAUSSIAN, 0, 800000},      {"p176", 2, {176, 176, 1}, 8, GOLDEN, 352, 97152},
    {"p352", 2, {352, 352, 1}, 4, GOLDEN, 704, 281600},    {"p120", 2, {120, 120, 1}, 4, GOLDEN, 240, 45360},
    {"p208", 2, {208, 208, 1}, 7, GOLDEN, 416, 136032},    {"p272", 2, {272, 272, 1}, 1, GOLDEN, 544, 232288},
    {"p336", 2, {336, 336, 1}, 16, GOLDEN, 672, 177408},   {"p400", 2, {400, 400, 1}, 2, GOLDEN, 800, 502400},
    {"p576", 2, {576, 576, 1}, 4, GOLDEN, 1152, 1042560},  {"r144", 2, {144, 144, 1}, 6, UNIFORM, 0, 60000},
    {"k100", 3, {100, 100, 100}, 2, KOOSH, 200, 1200000},  {"u40", 3, {40, 40, 40}, 2, UNIFORM, 0, 120000},
    {"u112", 3, {112, 112, 112}, 1, UNIFORM, 0, 1500000},  {"x96", 3, {96, 96, 24}, 6, STACK, 192, 921600},
    {"v12", 3, {384, 384, 12}, 1, UNIFORM, 0, 4000000},
};

struct candidate {
    struct nufft_params params;
    struct nufft_expected expected;
    double model[PURPOSES]; /* seconds */
    bool wanted, timed[PURPOSES];
    struct nufft_info info[PURPOSES]; /* if timed: of the plan for that purpose */
    double seconds[PURPOSES];
};

/* A case on the device. */
struct scene {
    struct dev *dev;
    const struct bench_case *of;
    float *k;
    struct c32 *data, *image, *to_data, *to_image; /* device memory */
    struct candidate *candidate;
    int candidates;
};

/* ---- candidates ---- */

static struct nufft_params params_of(const struct bench_case *c, double tolerance, enum nufft_purpose purpose)
{
    return (struct nufft_params){
        .dim = c->dim, .n = {c->n[0], c->n[1], c->n[2]}, .tolerance = tolerance, .batch = c->batch, .purpose = purpose};
}

/* Some oversamplings, and those of all sizes of the longest axis that the device's FFT transforms faster than others;
 * returns their number. */
static int ratios_of(const struct scene *s, double to[RATIOS_MOST])
{
    static const double some[] = {1.2, 1.25, 1.3, 1.375, 1.5, 1.625, 5. / 3, 1.75, 16. / 9, 15. / 8, 2};
    int (*const fast_size)(int) = s->dev->leaf->nufft->fast_size;
    int count = 0, longest = 1;
    for (; count < (int)(sizeof some / sizeof *some); count++)
        to[count] = some[count];
    for (int d = 0; d < s->of->dim; d++)
        longest = s->of->n[d] > longest ? s->of->n[d] : longest;
    int size = fast_size ? fast_size((int)ceil(some[0] * longest)) : 0;
    for (; size != 0 && size <= 2 * longest && count < RATIOS_MOST; size = fast_size(size + 1))
        to[count++] = (double)size / longest;
    return count;
}

/* The same kernel, grid and expected error: also the same number of products, and the same method, or none that is
 * supported and therefore tiles. */
static bool same_expected(const struct candidate *a, const struct candidate *b)
{
    return a->expected.width == b->expected.width && a->expected.error == b->expected.error &&
           memcmp(a->expected.grid, b->expected.grid, sizeof a->expected.grid) == 0 &&
           memcmp(a->model, b->model, sizeof a->model) == 0;
}

static void candidates_make(struct scene *s, const struct options *o)
{
    const enum nufft_method first = o->cpu ? NUFFT_METHOD_CPU : NUFFT_METHOD_TILES,
                            last = o->cpu ? NUFFT_METHOD_CPU : NUFFT_METHOD_BRICK_DENSE;
    const struct bench_case *c = s->of;
    double ratio[RATIOS_MOST];
    const int ratios = ratios_of(s, ratio);
    int asked = 0;
    for (int t = 0; t < o->tolerances; t++)
        for (int width = KERNEL_MIN_WIDTH; width <= KERNEL_MAX_WIDTH; width++)
            for (int i = 0; i < ratios; i++)
                for (enum nufft_method m = first; m <= last && asked < CANDIDATES_MOST; m++) {
                    struct nufft_params *params = &s->candidate[asked++].params;
                    *params = params_of(c, o->tolerance[t], NUFFT_FOR_ADJOINT);
                    params->width = width;
                    params->oversampling = ratio[i];
                    params->method = m;
                }
#pragma omp parallel for schedule(dynamic, 16)
    for (int i = 0; i < asked; i++) {
        struct candidate *a = &s->candidate[i];
        a->expected.error = INFINITY;
        for (int purpose = 0; purpose < PURPOSES; purpose++) {
            a->params.purpose = (enum nufft_purpose)purpose;
            if (nufft_expect(s->dev, &a->params, c->samples, s->k, &a->expected))
                break; /* no such kernel keeps the tolerance */
            a->model[purpose] = a->expected.seconds;
        }
    }
    s->candidates = 0;
    for (int i = 0; i < asked; i++) {
        struct candidate *a = &s->candidate[i];
        bool known = !(a->expected.error <= a->params.tolerance);
        for (int j = 0; !known && j < s->candidates; j++)
            known = same_expected(a, &s->candidate[j]);
        if (!known)
            s->candidate[s->candidates++] = *a;
    }
}

/* The model's least is that of the choice: where it expects less of a candidate, plans do not choose that method. */
static void candidates_limit(struct scene *s, const struct options *o)
{
    const struct bench_case *c = s->of;
    for (int t = 0; t < o->tolerances; t++)
        for (int purpose = 0; purpose < PURPOSES; purpose++) {
            const struct nufft_params params = params_of(c, o->tolerance[t], (enum nufft_purpose)purpose);
            struct nufft_expected choice;
            must(nufft_expect(s->dev, &params, c->samples, s->k, &choice), "nufft_expect");
            const double least = choice.seconds * (1 - 1e-9);
            for (int i = 0; i < s->candidates && named(o->purposes, purpose_names[purpose]); i++) {
                const double seconds = s->candidate[i].model[purpose];
                if (s->candidate[i].expected.error <= o->tolerance[t] && seconds >= least &&
                    seconds <= o->within * choice.seconds)
                    s->candidate[i].wanted = true;
            }
        }
}

/* ---- times ---- */

static double time_once(const struct scene *s, struct nufft *plan, int way)
{
    const double start = clock_seconds();
    must(way ? nufft_forward(plan, s->of->batch, s->image, s->to_data)
             : nufft_adjoint(plan, s->of->batch, s->data, s->to_image),
         "a transform");
    return clock_seconds() - start;
}

/* The median of as many calls as take about `least` seconds, 1 to 21. */
static double time_some(const struct scene *s, struct nufft *plan, int way, double least)
{
    enum { MOST = 21 };
    double times[MOST] = {time_once(s, plan, way)};
    const int runs = times[0] * MOST < least ? MOST : (int)(least / times[0]) | 1;
    for (int i = 1; i < runs; i++)
        times[i] = time_once(s, plan, way);
    return median(times, runs);
}

/* Seconds of a purpose's transforms in a plan for it, with as many calls each as take about `least` seconds. */
static double time_purpose(const struct scene *s, struct nufft *plan, int purpose, double least)
{
    double seconds = 0;
    for (int way = 0; way < WAYS; way++)
        if (purpose == NUFFT_FOR_BOTH || purpose == way)
            seconds += time_some(s, plan, way, least);
    return seconds;
}

/* The candidate's plan for a purpose. */
static struct nufft *plan_make(const struct scene *s, const struct candidate *a, int purpose)
{
    struct nufft_params params = a->params;
    struct nufft *plan;
    params.purpose = (enum nufft_purpose)purpose;
    must(nufft_create(&plan, s->dev, &params, s->of->samples, s->k), "nufft_create");
    return plan;
}

static bool same_plan(const struct nufft_info *a, const struct nufft_info *b)
{
    return a->method == b->method && a->products == b->products && a->width == b->width &&
           memcmp(a->grid, b->grid, sizeof a->grid) == 0;
}

static void tell_candidate(const struct scene *s, const struct candidate *a)
{
    for (int purpose = 0; purpose < PURPOSES; purpose++) {
        const struct nufft_info *i = &a->info[purpose];
        if (!a->timed[purpose])
            continue;
        printf("{\"case\":\"%s\",\"what\":\"plan for %s\",\"method\":\"%s\",\"products\":%d,\"width\":%d,"
               "\"grid\":[%d,%d,%d],\"error\":%.6g,\"ms\":%.4f}\n",
               s->of->id, purpose_names[purpose], nufft_method_name(i->method), i->products, i->width, i->grid[0],
               i->grid[1], i->grid[2], i->expected_error, a->seconds[purpose] * 1e3);
    }
}

/* A candidate before this one whose plans for purposes `from` to `to` are timed and the same, or -1. */
static int twin_of(const struct scene *s, int index, int from, int to)
{
    for (int i = 0; i < index; i++) {
        const struct candidate *a = &s->candidate[i];
        bool same = true;
        for (int purpose = from; same && purpose <= to; purpose++)
            same = a->timed[purpose] && same_plan(&a->info[purpose], &s->candidate[index].info[purpose]);
        if (same)
            return i;
    }
    return -1;
}

/* Times the candidate, unless it turns out to be one of those before it or to use another method; returns the index of
 * the plan that it is, or -1. */
static int try_candidate(struct scene *s, const struct options *o, int index)
{
    const double brief = 1e-3; /* s */
    struct candidate *a = &s->candidate[index];
    const bool choice = a->params.width == 0; /* which is for one purpose */
    const int from = choice ? (int)a->params.purpose : 0, to = choice ? from : PURPOSES - 1;
    int twin = -1;
    for (int purpose = from; purpose <= to; purpose++) {
        struct nufft *plan = plan_make(s, a, purpose);
        nufft_describe(plan, &a->info[purpose]);
        const bool asked = a->params.method == 0 || a->params.method == a->info[purpose].method;
        twin = asked ? twin_of(s, index, from, purpose) : -1;
        for (int way = 0; way < WAYS && asked && twin < 0; way++)
            time_once(s, plan, way);
        if (asked)
            a->seconds[purpose] =
                twin < 0 ? time_purpose(s, plan, purpose, brief) : s->candidate[twin].seconds[purpose];
        nufft_free(plan);
        if (!asked)
            return -1;
    }
    if (twin >= 0)
        return twin;
    for (int purpose = from; purpose <= to; purpose++)
        a->timed[purpose] = true;
    if (o->all)
        tell_candidate(s, a);
    return index;
}

/* ---- the chosen plan and the fastest ---- */

struct finalist {
    int index; /* of the candidate */
    struct nufft *plan;
    double of_round[ROUNDS], seconds;
};

/* Times the chosen plan, finalist[0], and the others in turn. */
static void time_in_turn(struct scene *s, int purpose, struct finalist finalist[FINALISTS + 1], int count)
{
    const double brief = 1e-3; /* s, of a round */
    for (int i = 0; i < count; i++)
        finalist[i].plan = plan_make(s, &s->candidate[finalist[i].index], purpose);
    for (int round = -1; round < ROUNDS; round++)
        for (int i = 0; i < count; i++)
            finalist[i].of_round[round < 0 ? 0 : round] = time_purpose(s, finalist[i].plan, purpose, brief);
    for (int i = 0; i < count; i++) {
        finalist[i].seconds = median(finalist[i].of_round, ROUNDS);
        nufft_free(finalist[i].plan);
    }
}

/* The fastest candidate of a tolerance and purpose that is not among the finalists, or -1. */
static int fastest_left(const struct scene *s, double tolerance, int purpose, const struct finalist *finalist,
                        int count)
{
    int fastest = -1;
    for (int i = 0; i < s->candidates; i++) {
        const struct candidate *a = &s->candidate[i];
        bool left = a->timed[purpose] && a->info[purpose].expected_error <= tolerance;
        for (int j = 0; j < count; j++)
            left = left && finalist[j].index != i;
        if (left && (fastest < 0 || a->seconds[purpose] < s->candidate[fastest].seconds[purpose]))
            fastest = i;
    }
    return fastest;
}

static void compare(struct scene *s, double tolerance, int purpose, int chosen)
{
    const double close = 1.15; /* of the times of one brief look */
    struct finalist finalist[FINALISTS + 1] = {{.index = chosen}};
    int count = 1, best = 0;
    double least = INFINITY;
    while (count <= FINALISTS) {
        const int next = fastest_left(s, tolerance, purpose, finalist, count);
        const double seconds = next < 0 ? INFINITY : s->candidate[next].seconds[purpose];
        least = fmin(least, fmin(seconds, s->candidate[chosen].seconds[purpose]));
        if (next < 0 || seconds > close * least)
            break;
        finalist[count++].index = next;
    }
    time_in_turn(s, purpose, finalist, count);
    for (int i = 1; i < count; i++)
        best = finalist[i].seconds < finalist[best].seconds ? i : best;
    const struct nufft_info *a = &s->candidate[chosen].info[purpose],
                            *b = &s->candidate[finalist[best].index].info[purpose];
    printf("{\"case\":\"%s\",\"what\":\"%s\",\"tolerance\":%g,\"ms\":%.4f,\"method\":\"%s\",\"products\":%d,"
           "\"width\":%d,\"grid\":[%d,%d,%d],\"best_ms\":%.4f,\"best_method\":\"%s\",\"best_products\":%d,"
           "\"best_width\":%d,\"best_grid\":[%d,%d,%d],\"over_best\":%.3f,\"spread\":%.3f,\"finalists\":%d}\n",
           s->of->id, purpose_names[purpose], tolerance, finalist[0].seconds * 1e3, nufft_method_name(a->method),
           a->products, a->width, a->grid[0], a->grid[1], a->grid[2], finalist[best].seconds * 1e3,
           nufft_method_name(b->method), b->products, b->width, b->grid[0], b->grid[1], b->grid[2],
           finalist[0].seconds / finalist[best].seconds, finalist[0].of_round[ROUNDS - 1] / finalist[0].of_round[0],
           count);
    fflush(stdout);
}

/* ---- a case ---- */

/* Device memory of `each` values per transform, filled with those of a few transforms, again and again, if wanted. */
static struct c32 *make_values(struct scene *s, size_t each, bool filled)
{
    const size_t batch = (size_t)s->of->batch, once = filled && batch > CPU_FRAME ? CPU_FRAME : batch;
    struct c32 *values = filled ? take(once * each * sizeof *values) : NULL;
    void *memory;
    must(dev_alloc(s->dev, batch * each * sizeof *values, &memory), "dev_alloc");
    if (filled)
        fill_data(values, once * each);
    for (size_t t = 0; filled && t < batch; t += once)
        must(dev_upload(s->dev, (struct c32 *)memory + t * each, values,
                        (batch - t < once ? batch - t : once) * each * sizeof *values),
             "dev_upload");
    free(values);
    return memory;
}

static void run_case(struct dev *dev, const struct options *o, const struct bench_case *c)
{
    struct scene s = {.dev = dev, .of = c};
    const double start = clock_seconds();
    const size_t pixels = pixels_of(c);
    int chosen[TOLERANCES_MOST][PURPOSES], tried = 0;
    s.k = take(c->samples * (size_t)c->dim * sizeof *s.k);
    s.candidate = take((CANDIDATES_MOST + TOLERANCES_MOST * PURPOSES) * sizeof *s.candidate);
    fill_k(c, s.k);
    s.data = make_values(&s, c->samples, true);
    s.image = make_values(&s, pixels, true);
    s.to_data = make_values(&s, c->samples, false);
    s.to_image = make_values(&s, pixels, false);
    candidates_make(&s, o);
    candidates_limit(&s, o);
    for (int i = 0; i < s.candidates; i++)
        tried += s.candidate[i].wanted && try_candidate(&s, o, i) == i;
    for (int t = 0; t < o->tolerances; t++)
        for (int purpose = 0; purpose < PURPOSES; purpose++) {
            s.candidate[s.candidates] =
                (struct candidate){.params = params_of(c, o->tolerance[t], (enum nufft_purpose)purpose)};
            chosen[t][purpose] = try_candidate(&s, o, s.candidates);
            s.candidates++;
        }
    for (int t = 0; t < o->tolerances; t++)
        for (int purpose = 0; purpose < PURPOSES; purpose++)
            if (named(o->purposes, purpose_names[purpose]))
                compare(&s, o->tolerance[t], purpose, chosen[t][purpose]);
    fprintf(stderr, "%s: %d plans, %.1f s\n", c->id, tried, clock_seconds() - start);
    struct c32 *const held[] = {s.data, s.image, s.to_data, s.to_image};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        dev_release(dev, held[i]);
    free(s.candidate);
    free(s.k);
}

int main(int argc, char **argv)
{
    struct options o = {.purposes = "adjoint,forward,both", .within = 1.6};
    const char *tolerances = "1e-2,1e-3,1e-4,1e-5";
    const struct bench_option known[] = {{"--cpu", .flag = &o.cpu},
                                         {"--all", .flag = &o.all},
                                         {"--cases", .text = &o.cases},
                                         {"--purposes", .text = &o.purposes},
                                         {"--tolerances", .text = &tolerances},
                                         {"--within", .real = &o.within},
                                         {"--coils", .number = &o.coils},
                                         {"--held-out", .flag = &o.held_out},
                                         {.name = NULL}};
    options_read(argc, argv, known);
    for (const char *at = tolerances; at && o.tolerances < TOLERANCES_MOST; at = next_of(at))
        o.tolerance[o.tolerances++] = atof(at);
    struct dev *dev;
    must(dev_create(&dev, o.cpu ? DEV_CPU : DEV_GPU, 0, 0), "dev_create");
    const struct bench_case *all = o.held_out ? held_out : cases;
    const size_t count = o.held_out ? sizeof held_out / sizeof *held_out : sizeof cases / sizeof *cases;
    for (size_t i = 0; i < count; i++)
        if (!o.cases || named(o.cases, all[i].id)) {
            const struct bench_case c = with_coils(all[i], o.coils, o.cpu);
            run_case(dev, &o, &c);
        }
    dev_free(dev);
    return 0;
}
