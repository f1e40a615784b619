/* libFuzzer target: files of particles in each format, the recognition of formats, and volumes that are read back. */
#include "recon/particle/particles_build.h"
#include "recon/volume/volume.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAP = 4 << 20, SEALED = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

static const struct particles_wanted charged = {.needed = 1U << PARTICLE_POSITION | 1U << PARTICLE_CHARGE,
                                                .charges = PARTICLES_CHARGES_BFACTOR,
                                                .order = {PARTICLE_CHARGE, PARTICLE_RADIUS}};
static const struct particles_wanted moving = {.charges = PARTICLES_CHARGES_FORMAL,
                                               .order = {PARTICLE_MASS, PARTICLE_VELOCITY, PARTICLE_ID}};

/* A file in a descriptor, which the caller closes. */
static int file_of(const uint8_t *bytes, size_t length)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(fd >= 0 && write(fd, bytes, length) == (ssize_t)length && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

/* A recognised format must be in the list. */
static void sniff(const uint8_t *bytes, size_t length)
{
    const char *format = NULL;
    int fd = file_of(bytes, length);
    if (check_result(particles_sniff(&format, fd, length, particles_inputs))) {
        const struct kind_input *input = particles_inputs;
        while (input->name && strcmp(input->name, format) != 0)
            input++;
        check(input->name != NULL);
    }
    close(fd);
}

/* A worker must accept what a reader produced, with finite numbers only; a refused file must leave nothing. */
static void read_by(int (*decode)(int, uint64_t, const void *, size_t, const void *), const uint8_t *bytes,
                    size_t length, const struct particles_wanted *wanted)
{
    struct particles p;
    struct particles_header head = {.total_bytes = 0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool decoded = check_result(decode(fd, CAP, bytes, length, wanted));
    if (pread(fd, &head, sizeof head, 0) == sizeof head && head.total_bytes)
        check(head.total_bytes <= CAP && ftruncate(fd, (off_t)head.total_bytes) == 0);
    check(fcntl(fd, F_ADD_SEALS, SEALED) == 0);
    check(check_result(particles_open(&p, fd)) == decoded);
    close(fd);
    if (!decoded)
        return;
    const size_t rows = p.frames * p.count;
    check(p.count >= 1 && rows <= length && p.header->ignored <= length);
    for (size_t i = 0; i < rows; i++) {
        check(isfinite(p.position[3 * i]) && (!p.charge || isfinite(p.charge[i])) && (!p.radius || p.radius[i] >= 0));
        check(!p.element || p.element[i] < 255);
    }
    for (int c = 0; c < PARTICLE_COLUMNS; c++)
        check(!(wanted->needed >> c & 1) || p.header->at[c]);
    particles_close(&p);
}

static void read_volume(const uint8_t *bytes, size_t length)
{
    struct volume *volume = NULL;
    int fd = file_of(bytes, length);
    if (check_result(volume_read(&volume, fd))) {
        check(volume->frames * volume->size[0] * volume->size[1] * volume->size[2] * sizeof(float) < length);
        check(volume->spacing[0] > 0 && strlen(volume->title) < VOLUME_TITLE);
        volume_free(volume);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const readers[])(int, uint64_t, const void *, size_t, const void *) = {
        particles_pqr_decode, particles_pdb_decode, particles_xyz_decode,   particles_csv_decode,
        particles_npy_decode, particles_npz_decode, particles_gadget_decode};
    enum { READERS = sizeof readers / sizeof *readers };
    if (size < 1)
        return 0;
    const unsigned which = (uint8_t)(data[0] - '0') % (2 * READERS + 1);
    uint8_t *exact = malloc(size > 1 ? size - 1 : 1); /* an exact buffer, so that an overrun is detected */
    check(exact != NULL);
    memcpy(exact, data + 1, size - 1);
    sniff(exact, size - 1);
    if (which == 2 * READERS)
        read_volume(exact, size - 1);
    else
        read_by(readers[which % READERS], exact, size - 1, which < READERS ? &charged : &moving);
    free(exact);
    return 0;
}
