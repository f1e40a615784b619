/* Density weights of 2-D trajectories as areas of Voronoi cells, by Qhull (Barber, Dobkin and Huhdanpaa 1996,
 * doi:10.1145/235815.235821). */
#include "gridding/traj/traj.h"

#include "gridding/base/err.h"

#include <float.h>
#include <libqhull_r/qhull_ra.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Samples this near to each other, in cycles per pixel, are one point and share its cell: a 500th of the distance of
 * samples of the largest images. */
static const double together = 1e-6;

enum { VERTICES_ASKED = 4096 /* between two questions whether to go on, where Qhull itself is done */ };

/* A point of the diagram. */
struct cell {
    double at[2];
    double area;
    bool open;    /* its cell is unbounded, or extends beyond the points' convex hull */
    size_t inner; /* the nearest neighbour that is not open; the point itself if there is none */
};

struct diagram {
    struct cell *cells;
    size_t count;    /* of all cells */
    size_t capacity; /* twice the points: each may have a mirror image outside */
};

/* ---- points ---- */

/* A sample on the raster of `together`. */
struct spot {
    int64_t x, y;
    size_t sample;
};

static int spot_order(const void *left, const void *right)
{
    const struct spot *a = left, *b = right;
    if (a->x != b->x)
        return a->x < b->x ? -1 : 1;
    if (a->y != b->y)
        return a->y < b->y ? -1 : 1;
    return (a->sample > b->sample) - (a->sample < b->sample);
}

static bool same_spot(const struct spot *a, const struct spot *b)
{
    return a->x == b->x && a->y == b->y;
}

static struct spot *spots_make(size_t samples, const float *k)
{
    struct spot *spots = malloc(samples * sizeof *spots);
    for (size_t m = 0; spots && m < samples; m++)
        spots[m] = (struct spot){llround(k[2 * m] / together), llround(k[2 * m + 1] / together), m};
    if (spots)
        qsort(spots, samples, sizeof *spots, spot_order);
    return spots;
}

/* ---- the convex hull, by Andrew's monotone chain ---- */

static double turn(const double *a, const double *b, const double *c)
{
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
}

/* The corners of the hull of cells that are sorted by x and y, counterclockwise. NULL: no memory. */
static double (*hull_make(const struct cell *cells, size_t count, size_t *corners))[2]
{
    double(*hull)[2] = malloc((count + 1) * 2 * sizeof *hull);
    size_t used = 0;
    for (size_t pass = 0; hull && pass < 2; pass++) {
        size_t bottom = used + 1;
        for (size_t i = 0; i < count; i++) {
            const double *p = cells[pass == 0 ? i : count - 1 - i].at;
            while (used > bottom && turn(hull[used - 2], hull[used - 1], p) <= 0)
                used--;
            memcpy(hull[used++], p, sizeof *hull);
        }
        used--; /* it is the first corner of the other half */
    }
    *corners = used;
    return hull;
}

/* Whether p is inside or on the hull: bisection between the corners in the order of their directions from the first. */
static bool hull_holds(double (*hull)[2], size_t corners, const double *p)
{
    size_t low = 1, high = corners - 1;
    if (turn(hull[0], hull[low], p) < 0 || turn(hull[0], hull[high], p) > 0)
        return false;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (turn(hull[0], hull[middle], p) >= 0)
            low = middle;
        else
            high = middle;
    }
    return turn(hull[low], hull[high], p) >= 0;
}

/* ---- Qhull ---- */

/* Qhull, and who is asked whether it is to go on. */
struct asked_qhull {
    qhT qh; /* first: qh_fprintf() finds the rest by it */
    int (*ask)(void *context);
    void *context;
    int rc; /* of `ask`: once it is not 0, nobody is asked again */
};

static bool goes_on(struct asked_qhull *q)
{
    if (q->rc == 0 && q->ask)
        q->rc = q->ask(q->context);
    return q->rc == 0;
}

/* Qhull's way to print, which its documentation (userprintf_r.c) gives to programs to replace: this definition takes
 * the library's place. With its option TFn it prints a line every n facets, and there it can be told to stop. */
void qh_fprintf(qhT *qh, FILE *file, int code, const char *format, ...)
{
    struct asked_qhull *q = (struct asked_qhull *)qh;
    va_list arguments;
    (void)code;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    /* It prints while it ends, too. */
    if (!goes_on(q) && !qh->NOerrexit && !qh->ERREXITcalled)
        qh_errexit(qh, qh_ERRother, NULL, NULL);
}

/* ---- cells ---- */

/* A corner of a cell, by its direction from the cell's point. */
struct corner {
    double angle, at[2];
};

static int corner_order(const void *left, const void *right)
{
    const struct corner *a = left, *b = right;
    return (a->angle > b->angle) - (a->angle < b->angle);
}

struct corners {
    struct corner *corner;
    size_t count, capacity;
};

static bool corners_add(struct corners *list, const double *from, const double *at)
{
    if (list->count == list->capacity) {
        size_t more = 2 * list->capacity + 16;
        struct corner *grown = realloc(list->corner, more * sizeof *grown);
        if (!grown)
            return false;
        list->corner = grown;
        list->capacity = more;
    }
    list->corner[list->count++] =
        (struct corner){atan2(at[1] - from[1], at[0] - from[0]), {at[0] - from[0], at[1] - from[1]}};
    return true;
}

/* The area of a convex cell with these corners about its point. */
static double corners_area(struct corners *list)
{
    double sum = 0;
    qsort(list->corner, list->count, sizeof *list->corner, corner_order);
    for (size_t i = 0; i < list->count; i++) {
        const double *a = list->corner[i].at, *b = list->corner[(i + 1) % list->count].at;
        sum += a[0] * b[1] - a[1] * b[0];
    }
    return sum / 2;
}

/* The cell of a vertex of the Delaunay triangulation: its corners are the centres of the triangles around it. */
static bool cell_measure(qhT *qh, struct diagram *diagram, vertexT *vertex, struct corners *list, double (*hull)[2],
                         size_t corners)
{
    facetT *neighbor, **neighborp;
    int id = qh_pointid(qh, vertex->point);
    if (id < 0 || (size_t)id >= diagram->count)
        return true; /* the point at infinity (Qz) */
    struct cell *cell = &diagram->cells[id];
    list->count = 0;
    cell->open = false;
    FOREACHneighbor_(vertex)
    {
        cell->open =
            cell->open || neighbor->upperdelaunay || !neighbor->center || !hull_holds(hull, corners, neighbor->center);
        if (neighbor->upperdelaunay || !neighbor->center)
            continue;
        if (!corners_add(list, cell->at, neighbor->center))
            return false;
    }
    cell->area = corners_area(list);
    return true;
}

/* The nearest neighbour of an open cell's point whose cell is not open. */
static void inner_find(qhT *qh, const struct diagram *diagram, vertexT *vertex)
{
    facetT *neighbor, **neighborp;
    vertexT *other, **otherp;
    int id = qh_pointid(qh, vertex->point);
    if (id < 0 || (size_t)id >= diagram->count || !diagram->cells[id].open)
        return;
    struct cell *cell = &diagram->cells[id];
    double nearest = DBL_MAX;
    FOREACHneighbor_(vertex)
    {
        FOREACHsetelement_(vertexT, neighbor->vertices, other)
        {
            int found = qh_pointid(qh, other->point);
            if (found < 0 || (size_t)found >= diagram->count || diagram->cells[found].open)
                continue;
            double distance =
                hypot(diagram->cells[found].at[0] - cell->at[0], diagram->cells[found].at[1] - cell->at[1]);
            if (distance < nearest) {
                nearest = distance;
                cell->inner = (size_t)found;
            }
        }
    }
}

/* Copy Qhull's result into the cells. Returns false without memory, or if it is not to go on. */
static bool diagram_read(struct asked_qhull *q, struct diagram *diagram, double (*hull)[2], size_t corners)
{
    qhT *qh = &q->qh;
    vertexT *vertex;
    struct corners list = {.count = 0};
    bool done = true;
    FORALLvertices done = done && (vertex->id % VERTICES_ASKED != 0 || goes_on(q)) &&
                          cell_measure(qh, diagram, vertex, &list, hull, corners);
    FORALLvertices
    {
        if (done)
            inner_find(qh, diagram, vertex);
    }
    free(list.corner);
    return done;
}

/* Qhull calls longjmp on failure; its messages are written to `told`. */
static int diagram_run(struct asked_qhull *q, struct diagram *diagram, double *points, FILE *told, double (*hull)[2],
                       size_t corners)
{
    char command[] = "qhull v Qbb Qc Qz TF2000";
    qhT *qh = &q->qh;
    volatile int rc = qh_new_qhull(qh, 2, (int)diagram->count, points, False, command, NULL, told);
    if (rc == 0 && (rc = setjmp(qh->errexit)) == 0) {
        qh->NOerrexit = False;
        qh_setvoronoi_all(qh);
        qh_vertexneighbors(qh);
        rc = diagram_read(q, diagram, hull, corners) ? 0 : qh_ERRmem;
    }
    qh->NOerrexit = True;
    return rc;
}

/* Fill the areas, `open` and `inner` of the cells. */
static int diagram_fill(struct asked_qhull *q, struct diagram *diagram, double (*hull)[2], size_t corners)
{
    size_t length = 0;
    char *text = NULL;
    double *points = malloc(diagram->count * 2 * sizeof *points);
    FILE *told = open_memstream(&text, &length);
    int rc = points && told ? 0 : err_no_memory("a Voronoi diagram of %zu points", diagram->count);
    for (size_t i = 0; rc == 0 && i < diagram->count; i++) {
        diagram->cells[i].area = 0;
        diagram->cells[i].open = false;
        diagram->cells[i].inner = i;
        memcpy(points + 2 * i, diagram->cells[i].at, 2 * sizeof *points);
    }
    if (rc == 0) {
        qh_zero(&q->qh, told);
        int failed = diagram_run(q, diagram, points, told, hull, corners), left, pieces;
        qh_freeqhull(&q->qh, !qh_ALL);
        qh_memfreeshort(&q->qh, &left, &pieces);
        if (q->rc != 0)
            rc = q->rc;
        else if (failed == qh_ERRmem)
            rc = err_no_memory("a Voronoi diagram of %zu points", diagram->count);
        else if (failed)
            rc = err_set(ERR_DCF_INVALID,
                         "The trajectory's samples do not spread over a plane, so they have no Voronoi cells. Pass "
                         "dcf=pipe or none.");
    }
    if (told)
        fclose(told);
    free(text);
    free(points);
    return rc;
}

/* Mirror each open cell's inner neighbour at the cell's point: the cell then extends outwards as far as inwards. */
static void diagram_close(struct diagram *diagram)
{
    size_t count = diagram->count;
    for (size_t i = 0; i < count; i++) {
        const struct cell *cell = &diagram->cells[i], *inner = &diagram->cells[cell->inner];
        if (!cell->open || cell->inner == i)
            continue;
        diagram->cells[diagram->count++] =
            (struct cell){.at = {2 * cell->at[0] - inner->at[0], 2 * cell->at[1] - inner->at[1]}};
    }
}

/* One cell for each place with samples. */
static int diagram_make(struct diagram *diagram, const struct spot *spots, size_t samples)
{
    for (size_t m = 0; m < samples; m++)
        diagram->count += m == 0 || !same_spot(&spots[m - 1], &spots[m]);
    diagram->capacity = 2 * diagram->count;
    diagram->cells = malloc(diagram->capacity * sizeof *diagram->cells);
    if (!diagram->cells)
        return err_no_memory("a Voronoi diagram of %zu points", diagram->count);
    size_t used = 0;
    for (size_t m = 0; m < samples; m++)
        if (m == 0 || !same_spot(&spots[m - 1], &spots[m]))
            diagram->cells[used++] =
                (struct cell){.at = {(double)spots[m].x * together, (double)spots[m].y * together}};
    return 0;
}

/* The samples of a place share its cell. Points that Qhull considered coplanar with others get area 0. */
static int areas_share(const struct diagram *diagram, const struct spot *spots, size_t samples, float *weights)
{
    size_t cell = 0;
    double sum = 0;
    for (size_t first = 0, last; first < samples; first = last, cell++) {
        for (last = first + 1; last < samples && same_spot(&spots[first], &spots[last]); last++)
            ;
        for (size_t m = first; m < last; m++)
            weights[spots[m].sample] = (float)(diagram->cells[cell].area / (double)(last - first));
        sum += diagram->cells[cell].area;
    }
    return sum > 0 && isfinite(sum) ? 0
                                    : err_set(ERR_DCF_INVALID, "The Voronoi cells of this trajectory have no area.");
}

int dcf_voronoi(size_t samples, const float *k, float *weights, int (*ask)(void *context), void *context)
{
    if (samples < 4 || samples > DCF_VORONOI_MOST)
        return err_set(ERR_DCF_INVALID,
                       "Voronoi weights need 4 to %d samples; these are %zu. Pass dcf=pipe, which serves any number.",
                       DCF_VORONOI_MOST, samples);
    for (size_t m = 0; m < 2 * samples; m++)
        if (!(fabsf(k[m]) <= 1e3f))
            return err_set(ERR_TRAJ_NONFINITE, "Sample %zu of the trajectory is at %g.", m / 2, (double)k[m]);
    struct diagram diagram = {.cells = NULL};
    struct asked_qhull *qhull = calloc(1, sizeof *qhull);
    size_t corners = 0;
    if (!qhull)
        return err_no_memory("a Voronoi diagram");
    qhull->ask = ask;
    qhull->context = context;
    struct spot *spots = spots_make(samples, k);
    int rc = spots ? diagram_make(&diagram, spots, samples) : err_no_memory("%zu samples", samples);
    double(*hull)[2] = rc == 0 ? hull_make(diagram.cells, diagram.count, &corners) : NULL;
    if (rc == 0 && !hull)
        rc = err_no_memory("the hull of %zu samples", samples);
    if (rc == 0 && corners < 3)
        rc = err_set(ERR_DCF_INVALID, "The trajectory's samples lie on one line, so they have no Voronoi cells. Pass "
                                      "dcf=pipe or none.");
    if (rc == 0)
        rc = diagram_fill(qhull, &diagram, hull, corners);
    if (rc == 0) {
        diagram_close(&diagram);
        rc = diagram_fill(qhull, &diagram, hull, corners);
    }
    if (rc == 0)
        rc = areas_share(&diagram, spots, samples, weights);
    free(hull);
    free(diagram.cells);
    free(spots);
    free(qhull);
    return rc;
}
