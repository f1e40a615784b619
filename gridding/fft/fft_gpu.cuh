/* fft_gpu.cuh: one-dimensional FFTs of many lines, fused with the operations before and after them.
 *
 * A NUFFT needs only part of an FFT: of an oversampled grid's inverse FFT only the image's cells are kept, and before a
 * forward FFT all other cells are zero. Each pass reads its lines once, transforms them in shared memory, and writes
 * only the kept cells: for a grid of twice the image's size the three passes move 2.6 grids instead of the 6 and more
 * of a full FFT and a crop, and they work in place.
 */
#ifndef MRIRECON_FFT_GPU_CUH
#define MRIRECON_FFT_GPU_CUH

#include "gridding/range/bricks_gpu.cuh"
#include "gridding/range/slots_gpu.cuh"

enum { FFT_STAGES_MOST = 12 };

/* Lines of length n = 2^a 3^b 5^c 7^d. */
struct fft_plan {
    int n, stages, radix[FFT_STAGES_MOST];
    int threads;      /* per line: one butterfly each, in every stage */
    float2 *twiddles; /* device, [n]: exp(2 pi i j / n) */
    float2 *turns;    /* behind them, of a size in halves: fft_halves_turns() (fft_halves.cuh) */
};

/* Whether kernels were compiled for this size: such passes take half the time. */
bool fft_size_known(int n);
/* The smallest such size >= cells; 0: none. */
int fft_known_size(int cells);

int fft_plan_make(struct fft_plan *plan, struct gpu *gpu, int n);
void fft_plan_free(struct fft_plan *plan, struct gpu *gpu);

/* Element e of line l of set s is at e * step + l * line + s * set. */
struct fft_view {
    size_t step, line, set;
};

/* A pass back (inverse, exponent +) reads all n elements, in FFT order, and writes the `kept` ones around 0: positions
 * -floor(kept/2) .. ceil(kept/2)-1 in that order. A pass forth (exponent -) reads those, the others being zero, and
 * writes all n. In the _IMAGE kinds the kept elements are multiplied by element[e] line[l] set[s] (line, set: may be
 * NULL), or by full[] if that is set. FFT_FORTH multiplies all n elements it writes by full[] if that is set.
 * FFT_BACK_SLOTS is FFT_BACK along x of a grid in slots: line l of set s are the cells y = first_line + l, z = s.
 * FFT_BACK_BRICKS likewise of grids in bricks: line l of set s are the cells y = l of the set's.
 *
 * If `list` is set, a pass along rows processes line list[l] where it would process line l, for l < lines: others keep
 * what they hold. */
enum fft_kind { FFT_BACK, FFT_BACK_IMAGE, FFT_FORTH, FFT_FORTH_IMAGE, FFT_BACK_SLOTS, FFT_BACK_BRICKS };

struct fft_pass {
    enum fft_kind kind;
    const float2 *in; /* not for slots and bricks */
    float2 *out;
    struct fft_view in_view, out_view;
    int kept;
    int lines, sets;
    const uint32_t *list; /* device, [lines]; NULL: all. Not for slots and bricks */
    bool volume;          /* a grid of three dimensions: many lines */
    const float *element, *line, *set, *full;
    struct fft_view full_view;
    struct slots slots;   /* FFT_BACK_SLOTS */
    struct bricks bricks; /* FFT_BACK_BRICKS */
    int first_line;
    float *squares; /* FFT_BACK_IMAGE, not NULL: |value|^2 is added here, laid out as `out` */
};

/* In-place passes are allowed if in and out share each line's first element and lines do not overlap. */
int fft_run(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass);

/* Rows of kept <= n / 2 cells, one after the other, each padded with zeros to n cells, convolved with a row of the
 * kernel whose (real) transform is spectrum[], and cropped again, in place. */
struct fft_rows {
    float2 *values; /* [sets][lines][kept] */
    int kept, lines, sets;
    const float *spectrum; /* [sets / sets_per_plane][lines][n], in the order of fft_rows_place() (fft_halves.cuh) */
    int sets_per_plane;    /* number of adjacent sets that share a plane of the spectrum */
};

/* The smallest size >= cells of such rows; 0: none. */
int fft_rows_size(int cells);
/* The smallest size >= cells whose halves are transformed in two stages (fft_halves.cuh); 0: none. */
int fft_two_stage_size(int cells);

/* plan->n is a size of fft_rows_size(). */
int fft_convolve_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows);

/* fft_run() of FFT_FORTH or FFT_BACK along adjacent columns, kept <= n / 2 of them anywhere in n, not in place. */
int fft_convolve_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass);

#endif
