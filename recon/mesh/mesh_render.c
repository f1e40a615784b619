/* mesh_render.c: a picture of a mesh by a plain rasteriser: triangles into a depth buffer of twice the picture's
 * resolution, which also has the nearest triangle of each pixel; then each pixel is shaded once: normals interpolated,
 * two lights, paler with depth, and a line where the depth jumps. */
#include "recon/mesh/mesh_leaf.h"

#include "gridding/base/err.h"
#include "recon/result_file.h"

#include <math.h>
#include <stdlib.h>

enum { FINE = 2, MARGIN = 16, LOOK = 1 << 12 /* triangles drawn between two looks at a cancel */ };

/* The view: x of the picture to the right, y up, z towards the viewer; from 35 degrees right of the y axis' front and
 * 25 above, with z of the mesh upwards. Rows are unit vectors. */
static const double axes[3][3] = {
    {0.819152044, 0.573576436, 0},
    {-0.242403877, 0.346188613, 0.906307787},
    {0.519836790, -0.742403877, 0.422618262},
};
static const double key_light[3] = {-0.4, 0.6, 0.69282032}, fill_light[3] = {0.7, -0.1, 0.70710678};
/* Colours of the outside and, visible in open surfaces, of the inside. */
static const double colour[2][3] = {{0.42, 0.62, 0.82}, {0.88, 0.60, 0.38}};

struct view {
    const struct mesh *mesh;
    double low[3], high[3]; /* bounds of the mesh along the axes of the view */
    double scale;           /* fine pixels per unit of length */
    size_t width, height;   /* fine pixels */
    float *depth;           /* [height][width]; -INFINITY: empty */
    uint32_t *nearest;      /* [height][width]: the triangle that is seen */
};

/* A triangle in the view: x and y in fine pixels, z as a length. */
struct flat {
    double at[3][3], twice; /* twice the area of its projection, negative if its outer side is seen */
    double share;           /* 1 / twice */
};

static void turn(const float from[3], double out[3])
{
    for (int d = 0; d < 3; d++)
        out[d] = axes[d][0] * (double)from[0] + axes[d][1] * (double)from[1] + axes[d][2] * (double)from[2];
}

static void view_fit(struct view *v)
{
    double longest = 0;
    for (int d = 0; d < 3; d++) {
        v->low[d] = INFINITY;
        v->high[d] = -INFINITY;
    }
    for (size_t i = 0; i < v->mesh->vertices && result_goes_on(i); i++) {
        double at[3];
        turn(v->mesh->vertex[i].at, at);
        for (int d = 0; d < 3; d++) {
            v->low[d] = fmin(v->low[d], at[d]);
            v->high[d] = fmax(v->high[d], at[d]);
        }
    }
    const int most = MESH_PICTURE - 2 * MARGIN;
    int size[2] = {most, most};
    for (int d = 0; d < 2 && v->mesh->vertices > 0; d++)
        longest = fmax(longest, v->high[d] - v->low[d]);
    v->scale = longest > 0 ? FINE * (double)most / longest : 1;
    for (int d = 0; d < 2 && longest > 0; d++)
        size[d] = (int)ceil((v->high[d] - v->low[d]) * v->scale / FINE);
    v->width = (size_t)(FINE * (size[0] + 2 * MARGIN));
    v->height = (size_t)(FINE * (size[1] + 2 * MARGIN));
}

static double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* `normal`: in the view's axes; `inside`: the inner side is seen; `near`: 0 at the far end, 1 at the near end. */
static void shade(const double normal[3], bool inside, double near, uint8_t rgb[3])
{
    const double length = sqrt(dot(normal, normal)), sign = inside ? -1 : 1, by = length > 0 ? sign / length : 0;
    const double n[3] = {normal[0] * by, normal[1] * by, normal[2] * by};
    const double key = fmax(0, dot(n, key_light)), fill = fmax(0, dot(n, fill_light));
    /* Halfway between the light and the viewer, for the highlight: its cosine to the power of 32. */
    const double half[3] = {key_light[0], key_light[1], key_light[2] + 1};
    double shine = fmax(0, dot(n, half) / sqrt(dot(half, half)));
    for (int twice = 0; twice < 5; twice++)
        shine *= shine;
    const double light = 0.30 + 0.62 * key + 0.18 * fill, pale = 0.30 * (1 - near);
    for (int d = 0; d < 3; d++) {
        const double value = fmin(1, light * colour[inside][d] + 0.25 * shine);
        rgb[d] = (uint8_t)lrint(255 * (value + pale * (0.96 - value)));
    }
}

/* Twice the area of the triangle of a, b and (x, y), positive if that is anticlockwise. */
static double edge(const double a[3], const double b[3], double x, double y)
{
    return (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]);
}

/* The range of fine pixels with centres between `from` and `to`, clipped to 0 .. most. */
static size_t pixel_first(double from, size_t most)
{
    const double first = ceil(from - 0.5);
    return first < 0 ? 0 : first > (double)most ? most : (size_t)first;
}

/* Seen from outside, corners are anticlockwise; rows of the picture go down, so that their area is negative. */
static void flatten(const struct view *v, size_t number, struct flat *t)
{
    for (int i = 0; i < 3; i++) {
        turn(v->mesh->vertex[v->mesh->corner[number][i]].at, t->at[i]);
        for (int d = 0; d < 2; d++)
            t->at[i][d] = (t->at[i][d] - v->low[d]) * v->scale + FINE * MARGIN;
        t->at[i][1] = (double)v->height - t->at[i][1];
    }
    t->twice = edge(t->at[0], t->at[1], t->at[2][0], t->at[2][1]);
    t->share = 1 / t->twice;
}

/* The shares of the corners at the centre of fine pixel (x, y). */
static void corner_parts(const struct flat *t, size_t x, size_t y, double part[3])
{
    for (int i = 0; i < 3; i++)
        part[i] = edge(t->at[(i + 1) % 3], t->at[(i + 2) % 3], (double)x + 0.5, (double)y + 0.5) * t->share;
}

static double depth_at(const struct flat *t, const double part[3])
{
    double depth = 0;
    for (int i = 0; i < 3; i++)
        depth += part[i] * t->at[i][2];
    return depth;
}

static void triangle_draw(struct view *v, size_t number)
{
    struct flat t;
    flatten(v, number, &t);
    /* It covers no pixel, and the area is a divisor below. */
    if (!(fabs(t.twice) > 1e-9))
        return;
    const size_t x0 = pixel_first(fmin(fmin(t.at[0][0], t.at[1][0]), t.at[2][0]), v->width),
                 x1 = pixel_first(fmax(fmax(t.at[0][0], t.at[1][0]), t.at[2][0]), v->width),
                 y0 = pixel_first(fmin(fmin(t.at[0][1], t.at[1][1]), t.at[2][1]), v->height),
                 y1 = pixel_first(fmax(fmax(t.at[0][1], t.at[1][1]), t.at[2][1]), v->height);
    for (size_t y = y0; y < y1; y++) {
        bool begun = false;
        for (size_t x = x0; x < x1; x++) {
            double part[3];
            corner_parts(&t, x, y, part);
            if (part[0] < 0 || part[1] < 0 || part[2] < 0) {
                /* Each share is monotonic along a row, as computed, too: no pixel after the last one is inside. */
                if (begun)
                    break;
                continue;
            }
            begun = true;
            const float depth = (float)depth_at(&t, part);
            float *there = &v->depth[y * v->width + x];
            if (depth <= *there)
                continue;
            *there = depth;
            v->nearest[y * v->width + x] = (uint32_t)number;
        }
    }
}

/* The colour of a fine pixel that is not empty. */
static void pixel_shade(const struct view *v, size_t x, size_t y, uint8_t rgb[3])
{
    const uint32_t number = v->nearest[y * v->width + x];
    const double range = v->high[2] - v->low[2];
    double part[3], mixed[3] = {0};
    struct flat t;
    flatten(v, number, &t);
    corner_parts(&t, x, y, part);
    for (int i = 0; i < 3; i++) {
        double normal[3];
        turn(v->mesh->vertex[v->mesh->corner[number][i]].normal, normal);
        for (int d = 0; d < 3; d++)
            mixed[d] += part[i] * normal[d];
    }
    shade(mixed, t.twice > 0, range > 0 ? (depth_at(&t, part) - v->low[2]) / range : 1, rgb);
}

/* Whether this pixel is on an outline: a neighbour is much deeper, or empty. */
static bool at_outline(const struct view *v, size_t x, size_t y)
{
    const double jump = 0.03 * (v->high[2] - v->low[2]);
    const float *here = &v->depth[y * v->width + x];
    return *here > -INFINITY &&
           ((double)(here[0] - here[-1]) > jump || (double)(here[0] - here[1]) > jump ||
            (double)(here[0] - here[-(ptrdiff_t)v->width]) > jump || (double)(here[0] - here[v->width]) > jump);
}

/* The mean of the fine pixels, white where empty. Because of the margins, every drawn pixel has neighbours. */
static void picture_fill(struct picture *picture, const struct view *v)
{
    for (size_t y = 0; y < picture->height && !result_canceled(); y++)
        for (size_t x = 0; x < picture->width; x++) {
            unsigned sum[3] = {0};
            for (size_t i = 0; i < FINE * FINE; i++) {
                const size_t fx = x * FINE + i % FINE, fy = y * FINE + i / FINE;
                const bool empty = v->depth[fy * v->width + fx] == -INFINITY, line = !empty && at_outline(v, fx, fy);
                uint8_t rgb[3] = {255, 255, 255};
                if (!empty)
                    pixel_shade(v, fx, fy, rgb);
                for (int d = 0; d < 3; d++)
                    sum[d] += rgb[d] / (line ? 3 : 1);
            }
            for (int d = 0; d < 3; d++)
                picture->pixels[(y * picture->width + x) * 3 + (size_t)d] = (uint8_t)(sum[d] / (FINE * FINE));
        }
}

int mesh_render(struct picture *out, const struct mesh *mesh)
{
    struct view v = {.mesh = mesh};
    view_fit(&v);
    const size_t pixels = v.width * v.height;
    struct picture picture = {v.width / FINE, v.height / FINE, 3, malloc(3 * pixels / (FINE * FINE)), 0};
    v.depth = malloc(pixels * sizeof *v.depth);
    v.nearest = malloc(pixels * sizeof *v.nearest);
    if (!picture.pixels || !v.depth || !v.nearest) {
        free(picture.pixels);
        free(v.depth);
        free(v.nearest);
        return err_no_memory("the picture of a mesh");
    }
    for (size_t i = 0; i < pixels; i++)
        v.depth[i] = -INFINITY;
    for (size_t t = 0; t < mesh->triangles && (t % LOOK != 0 || !result_canceled()); t++)
        triangle_draw(&v, t);
    picture_fill(&picture, &v);
    free(v.depth);
    free(v.nearest);
    *out = picture;
    return 0;
}
