#include "clients/bodies.h"

#include "clients/random.h"
#include "gridding/base/err.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PI  3.14159265358979323846
#define G   43007.1
#define BOX 100.0

struct cloud {
    size_t count;
    double box;
    double (*at)[3], (*velocity)[3];
    uint64_t random;
};

/* In (0, 1). */
static double uniform(struct cloud *cloud)
{
    return ((double)random_next(&cloud->random) + 0.5) * 0x1p-53;
}

static void direction(struct cloud *cloud, double length, double out[3])
{
    const double z = 2 * uniform(cloud) - 1, turn = 2 * PI * uniform(cloud), s = sqrt(1 - z * z);
    out[0] = length * s * cos(turn);
    out[1] = length * s * sin(turn);
    out[2] = length * z;
}

/* Radii up to 20: 99.6 % of the mass. The speed is q times the escape speed; q^2 (1 - q^2)^(7/2) is at most 0.1. */
static void plummer(struct cloud *cloud)
{
    double centre[2][3] = {{0}};
    for (size_t i = 0; i < cloud->count; i++) {
        double radius, q;
        do
            radius = 1 / sqrt(pow(uniform(cloud), -2.0 / 3) - 1);
        while (radius > 20);
        do
            q = uniform(cloud);
        while (0.1 * uniform(cloud) > q * q * pow(1 - q * q, 3.5));
        direction(cloud, radius, cloud->at[i]);
        direction(cloud, q * sqrt(2 * G) * pow(1 + radius * radius, -0.25), cloud->velocity[i]);
        for (int d = 0; d < 3; d++) {
            centre[0][d] += cloud->at[i][d] / (double)cloud->count;
            centre[1][d] += cloud->velocity[i][d] / (double)cloud->count;
        }
    }
    for (size_t i = 0; i < cloud->count; i++)
        for (int d = 0; d < 3; d++) {
            cloud->at[i][d] -= centre[0][d];
            cloud->velocity[i][d] -= centre[1][d];
        }
}

/* Waves of one to MOST lengths in the box, each displacing along itself; densities of root mean square 0.3. */
static void zeldovich(struct cloud *cloud)
{
    enum { WAVES = 48, MOST = 5 };
    const size_t side = (size_t)rint(cbrt((double)cloud->count));
    const double growth = sqrt(4 * PI * G / (BOX * BOX * BOX)), density = 0.3 * sqrt(2.0 / WAVES);
    double k[WAVES][3], phase[WAVES], square[WAVES];
    for (int w = 0; w < WAVES; w++) {
        do {
            square[w] = 0;
            for (int d = 0; d < 3; d++) {
                k[w][d] = 2 * PI / BOX * (floor(uniform(cloud) * (2 * MOST + 1)) - MOST);
                square[w] += k[w][d] * k[w][d];
            }
        } while (square[w] == 0);
        phase[w] = 2 * PI * uniform(cloud);
    }
    for (size_t i = 0; i < cloud->count; i++) {
        const size_t site[3] = {i % side, i / side % side, i / side / side};
        double from[3], moved[3] = {0};
        for (int d = 0; d < 3; d++)
            from[d] = ((double)site[d] + 0.5) * BOX / (double)side;
        for (int w = 0; w < WAVES; w++) {
            const double wave =
                density / square[w] * sin(k[w][0] * from[0] + k[w][1] * from[1] + k[w][2] * from[2] + phase[w]);
            for (int d = 0; d < 3; d++)
                moved[d] += k[w][d] * wave;
        }
        for (int d = 0; d < 3; d++) {
            const double x = from[d] + moved[d];
            cloud->at[i][d] = x - floor(x / BOX) * BOX;
            cloud->velocity[i][d] = growth * moved[d];
        }
    }
}

/* ---- the file ---- */

static void record(FILE *file, const void *bytes, size_t count)
{
    const uint32_t length = (uint32_t)count;
    fwrite(&length, sizeof length, 1, file);
    fwrite(bytes, 1, count, file);
    fwrite(&length, sizeof length, 1, file);
}

/* All bodies are of type 1; their mass is in the header. */
static void snapshot_write(FILE *file, const struct cloud *cloud)
{
    enum { HEADER = 256, TYPE = 1, MASSES = 24, TOTAL = 96, FILES = 124, SIDE = 128 };
    unsigned char header[HEADER] = {0};
    const uint32_t count = (uint32_t)cloud->count, files = 1;
    const double mass = 1.0 / (double)cloud->count;
    memcpy(header + 4 * TYPE, &count, sizeof count);
    memcpy(header + MASSES + 8 * TYPE, &mass, sizeof mass);
    memcpy(header + TOTAL + 4 * TYPE, &count, sizeof count);
    memcpy(header + FILES, &files, sizeof files);
    memcpy(header + SIDE, &cloud->box, sizeof cloud->box);
    record(file, header, sizeof header);
    record(file, cloud->at, cloud->count * sizeof *cloud->at);
    record(file, cloud->velocity, cloud->count * sizeof *cloud->velocity);
    const uint32_t bytes = (uint32_t)(cloud->count * sizeof count);
    fwrite(&bytes, sizeof bytes, 1, file);
    for (uint32_t id = 0; id < count; id++)
        fwrite(&id, sizeof id, 1, file);
    fwrite(&bytes, sizeof bytes, 1, file);
}

int bodies_write(enum bodies bodies, int64_t count, uint64_t seed, const char *path)
{
    struct cloud cloud = {.count = (size_t)count, .random = seed};
    if (bodies == BODIES_ZELDOVICH) {
        const size_t side = (size_t)floor(cbrt((double)count) + 1e-9);
        cloud.count = side * side * side;
        cloud.box = BOX;
    }
    cloud.at = malloc(cloud.count * sizeof *cloud.at);
    cloud.velocity = malloc(cloud.count * sizeof *cloud.velocity);
    int rc = cloud.at && cloud.velocity ? 0 : err_no_memory("%zu bodies", cloud.count);
    FILE *file = rc == 0 ? fopen(path, "wbe") : NULL;
    if (rc == 0 && !file)
        rc = err_set(ERR_IO, "%s cannot be written: %s.", path, strerror(errno));
    if (rc == 0) {
        (bodies == BODIES_PLUMMER ? plummer : zeldovich)(&cloud);
        snapshot_write(file, &cloud);
        const bool failed = ferror(file) != 0;
        if (fclose(file) != 0 || failed) {
            rc = err_set(ERR_IO, "%s cannot be written: %s.", path, strerror(errno));
            unlink(path);
        }
    }
    free(cloud.at);
    free(cloud.velocity);
    return rc;
}
