/* Opens flat particles. The process that wrote them parsed untrusted bytes, so every number is checked. */
#include "recon/particle/particles.h"

#include "gridding/base/err.h"
#include "recon/codec/sealed.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64 };

static int bad(const char *what)
{
    return err_set(ERR_DECODER_DIED,
                   "The decoder returned invalid particles (%s). The file is probably damaged. Write it again, and "
                   "report the file if other programs can read it.",
                   what);
}

static const size_t widths[PARTICLE_COLUMNS] = {
    [PARTICLE_POSITION] = 3 * sizeof(double), [PARTICLE_VELOCITY] = 3 * sizeof(double),
    [PARTICLE_CHARGE] = sizeof(double),       [PARTICLE_RADIUS] = sizeof(double),
    [PARTICLE_MASS] = sizeof(double),         [PARTICLE_ID] = sizeof(uint64_t),
    [PARTICLE_ELEMENT] = sizeof(uint8_t),
};

static int header_check(const struct particles_header *h, uint64_t bytes)
{
    size_t rows, length, end;
    if (h->magic != PARTICLES_MAGIC || h->version != PARTICLES_VERSION)
        return bad("magic number or version");
    if (h->total_bytes != bytes)
        return bad("size");
    if (h->frames < 1 || h->frames > PARTICLES_FRAMES_MOST || h->count < 1 || !size_mul(h->count, h->frames, &rows) ||
        rows > PARTICLES_MOST)
        return bad("number of points");
    for (int c = 0; c < PARTICLE_COLUMNS; c++)
        if (h->at[c] && (h->at[c] < sizeof *h || h->at[c] % ALIGNMENT || !size_mul(rows, widths[c], &length) ||
                         !size_add(h->at[c], length, &end) || end > bytes))
            return bad("a column outside the memory");
    if (!h->at[PARTICLE_POSITION])
        return bad("no positions");
    for (int d = 0; d < 3; d++)
        if (!isfinite(h->box_low[d]) || !(h->box_length[d] >= 0 && h->box_length[d] < INFINITY))
            return bad("a box");
    if (h->box_placed > 1 || h->box_skewed > 1)
        return bad("a box");
    for (int i = 0; i < PARTICLES_ATTRIBUTES; i++)
        if (!isfinite(h->attribute[i]))
            return bad("an attribute");
    return 0;
}

static bool finite_all(const double *value, size_t count)
{
    bool finite = true;
    for (size_t i = 0; value && i < count; i++)
        finite = finite && isfinite(value[i]);
    return finite;
}

static int columns_check(const struct particles *p)
{
    const size_t rows = p->frames * p->count;
    if (!finite_all(p->position, 3 * rows) || !finite_all(p->velocity, 3 * rows) || !finite_all(p->charge, rows) ||
        !finite_all(p->radius, rows) || !finite_all(p->mass, rows))
        return bad("a number that is not finite");
    for (size_t i = 0; p->radius && i < rows; i++)
        if (p->radius[i] < 0)
            return bad("a radius");
    return 0;
}

static const void *column(const char *base, const struct particles_header *h, enum particle_column which)
{
    return h->at[which] ? base + h->at[which] : NULL;
}

int particles_open(struct particles *out, int fd)
{
    const char *base;
    size_t bytes;
    int rc = sealed_map(&base, &bytes, fd, sizeof(struct particles_header), "particles", bad);
    if (rc != 0)
        return rc;
    const struct particles_header *h = (const void *)base;
    rc = header_check(h, bytes);
    if (rc == 0) {
        struct particles particles = {
            .header = h,
            .frames = h->frames,
            .count = h->count,
            .position = column(base, h, PARTICLE_POSITION),
            .velocity = column(base, h, PARTICLE_VELOCITY),
            .charge = column(base, h, PARTICLE_CHARGE),
            .radius = column(base, h, PARTICLE_RADIUS),
            .mass = column(base, h, PARTICLE_MASS),
            .id = column(base, h, PARTICLE_ID),
            .element = column(base, h, PARTICLE_ELEMENT),
        };
        rc = columns_check(&particles);
        if (rc == 0)
            *out = particles;
    }
    if (rc != 0)
        munmap((void *)(uintptr_t)base, bytes);
    return rc;
}

void particles_close(struct particles *particles)
{
    if (particles && particles->header)
        munmap((void *)(uintptr_t)particles->header, particles->header->total_bytes);
    if (particles)
        *particles = (struct particles){0};
}
