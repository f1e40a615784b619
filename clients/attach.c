#include "clients/attach.h"

#include "clients/client.h"
#include "clients/mapped.h"
#include "clients/scan_write.h"
#include "gridding/base/err.h"
#include "recon/codec/decoder.h"
#include "recon/mri/frames.h"
#include "recon/scan/scan.h"
#include "recon/scan/scan_array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 64 /* acquisitions per write */ };

struct attachment {
    struct scan scan;
    struct scan_array trajectory; /* [row][sample][column] */
    bool by_line; /* row: an acquisition's kspace_encode_step_1; otherwise the acquisitions of image data take the rows
                   * in order */
    uint64_t taken; /* number of them */
};

/* ---- reading ---- */

/* The codec is installed in this program's folder. */
static int codec_find(char path[4096])
{
    ssize_t length = readlink("/proc/self/exe", path, 4000);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return err_set(ERR_INTERNAL, "The folder of this program cannot be found.");
    strcpy(slash + 1, "mrirecon-codec");
    return access(path, X_OK) == 0
               ? 0
               : err_set(ERR_IO, "%s, which reads scans, cannot be run: %s. Install mrirecon again.", path,
                         strerror(errno));
}

/* Read it in the sandbox, as the service does. */
static int scan_read(struct scan *scan, const char *path)
{
    enum { SECONDS = 60, EXPANSION = 16, SPARE = 64 << 20 };
    char codec[4096];
    struct decoder *decoder = NULL;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0 || fstat(fd, &status) != 0)
        rc = err_set(ERR_IO, "%s cannot be read (%s).", path, strerror(errno));
    if (rc == 0)
        rc = codec_find(codec);
    if (rc == 0)
        rc = decoder_create(&decoder, codec);
    if (rc == 0) {
        const struct decode_limits limits = {.bytes = (uint64_t)status.st_size * EXPANSION + SPARE, .seconds = SECONDS};
        rc = scan_decode(scan, decoder, fd, NULL, &limits, NULL, NULL);
    }
    decoder_free(decoder);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---- which row belongs to which acquisition ---- */

/* Rows are in the order of the image data, or, if their number fits, by kspace_encode_step_1. */
static int rows_check(struct attachment *a)
{
    const struct scan_array *t = &a->trajectory;
    char shape[176];
    uint64_t images = 0, lines = 0;
    if (t->complex_valued || t->axes != 3 || t->size[2] < 2 || t->size[2] > 4)
        return err_set(ERR_TRAJ_DIMENSIONS,
                       "The trajectory is %s; real numbers [readout, sample, 2 to 4] are expected: kx, ky, in 3-D kz, "
                       "and density weights if there are any.",
                       scan_array_shape(t, shape));
    for (uint64_t i = 0; i < a->scan.header->readouts; i++) {
        const struct scan_readout *r = &a->scan.readouts[i];
        if (frames_ignore(r->flags) >= 0)
            continue;
        images++;
        lines = r->idx[SCAN_STEP1] + 1U > lines ? r->idx[SCAN_STEP1] + 1U : lines;
        if (r->samples != t->size[1])
            return err_set_acquisition(ERR_TRAJ_DIMENSIONS, r->acquisition,
                                       "Acquisition %u has %u samples, and the trajectory is %s, of readouts of %llu.",
                                       r->acquisition, r->samples, scan_array_shape(t, shape),
                                       (unsigned long long)t->size[1]);
    }
    a->by_line = t->size[0] != images;
    if (a->by_line && t->size[0] != lines)
        return err_set(ERR_TRAJ_DIMENSIONS,
                       "The trajectory has %llu readouts; the scan has %llu acquisitions of image data, and their "
                       "kspace_encode_step_1 counts %llu. One of these numbers is expected.",
                       (unsigned long long)t->size[0], (unsigned long long)images, (unsigned long long)lines);
    return 0;
}

/* ---- writing ---- */

static void head_fill(const struct scan_readout *r, size_t columns, ISMRMRD_AcquisitionHeader *head)
{
    ismrmrd_init_acquisition_header(head);
    head->flags = r->flags;
    head->measurement_uid = r->measurement_uid;
    head->scan_counter = r->scan_counter;
    head->acquisition_time_stamp = r->time_stamp;
    head->number_of_samples = r->samples;
    head->available_channels = head->active_channels = r->coils;
    for (uint16_t c = 0; c < r->coils; c++)
        ismrmrd_set_channel_on(head->channel_mask, c);
    head->discard_pre = r->discard_pre;
    head->discard_post = r->discard_post;
    head->center_sample = r->center_sample;
    head->encoding_space_ref = r->encoding;
    head->trajectory_dimensions = (uint16_t)columns;
    head->sample_time_us = r->sample_time_us;
    memcpy(head->position, r->position, sizeof head->position);
    memcpy(head->read_dir, r->read_dir, sizeof head->read_dir);
    memcpy(head->phase_dir, r->phase_dir, sizeof head->phase_dir);
    memcpy(head->slice_dir, r->slice_dir, sizeof head->slice_dir);
    memcpy(head->patient_table_position, r->table_position, sizeof head->patient_table_position);
    head->idx.kspace_encode_step_1 = r->idx[SCAN_STEP1];
    head->idx.kspace_encode_step_2 = r->idx[SCAN_STEP2];
    head->idx.average = r->idx[SCAN_AVERAGE];
    head->idx.slice = r->idx[SCAN_SLICE];
    head->idx.contrast = r->idx[SCAN_CONTRAST];
    head->idx.phase = r->idx[SCAN_PHASE];
    head->idx.repetition = r->idx[SCAN_REPETITION];
    head->idx.set = r->idx[SCAN_SET];
    head->idx.segment = r->idx[SCAN_SEGMENT];
}

/* One acquisition, with its row of the trajectory (at `traj`) if it is image data. */
static void acquisition_fill(struct attachment *a, const struct scan_readout *r, float *traj,
                             struct scan_write_acquisition *out)
{
    const struct scan_array *t = &a->trajectory;
    bool image = frames_ignore(r->flags) < 0;
    size_t columns = image ? t->size[2] : 0;
    for (size_t column = 0; column < columns; column++) {
        const uint64_t at[] = {a->by_line ? r->idx[SCAN_STEP1] : a->taken, 0, column};
        scan_array_reals(t, at, 1, r->samples, traj + column, columns);
    }
    a->taken += image;
    head_fill(r, columns, &out->head);
    out->traj = (hvl_t){columns * r->samples, traj};
    out->data = (hvl_t){(size_t)2 * r->coils * r->samples, (void *)(uintptr_t)(a->scan.data + r->data)};
}

static int scan_write(struct attachment *a, struct scan_writer *writer)
{
    struct scan_write_acquisition batch[BATCH];
    size_t most = a->trajectory.size[1] * a->trajectory.size[2];
    float *traj = malloc((size_t)BATCH * most * sizeof *traj);
    int rc = traj ? 0 : err_no_memory("the trajectory of %d acquisitions", BATCH);
    for (uint64_t first = 0, all = a->scan.header->readouts; first < all && rc == 0; first += BATCH) {
        size_t count = all - first < BATCH ? (size_t)(all - first) : BATCH;
        for (size_t i = 0; i < count; i++)
            acquisition_fill(a, &a->scan.readouts[first + i], traj + i * most, &batch[i]);
        rc = scan_writer_append(writer, count, batch);
    }
    free(traj);
    return rc;
}

/* The scan's coil maps and field maps, as it has them. */
static int maps_write(const struct scan *scan, struct scan_writer *writer)
{
    const uint32_t *n = scan->encodings[0].matrix;
    const struct scan_header *h = scan->header;
    const hsize_t maps[] = {h->map_coils, n[2], n[1], n[0]}, fields[] = {h->field_maps, n[2], n[1], n[0]};
    const bool sliced = h->field_maps > 1;
    int rc = h->map_coils ? scan_writer_complex_array(writer, "sensitivities", 4, maps, scan->maps) : 0;
    if (rc == 0 && h->field_maps)
        rc = scan_writer_array(writer, "fieldmap", sliced ? 4 : 3, sliced ? fields : fields + 1, scan->field);
    return rc;
}

static int attach(struct attachment *a, const char *out)
{
    struct scan_writer *writer = NULL;
    int rc = rows_check(a);
    if (rc == 0 && access(out, F_OK) == 0)
        rc = err_set(ERR_IO, "%s already exists. Choose another name.", out);
    if (rc == 0)
        rc = scan_writer_create(&writer, out, a->scan.xml, a->scan.header->readouts);
    if (rc != 0)
        return rc;
    rc = scan_write(a, writer);
    if (rc == 0)
        rc = maps_write(&a->scan, writer);
    return scan_writer_end(writer, out, rc);
}

int attach_main(int argc, char **argv)
{
    struct attachment a = {.by_line = false};
    struct mapped array = {0};
    if (argc != 3)
        return client_usage("use: mrirecon attach-trajectory SCAN OUT.h5 TRAJECTORY.npy");
    int rc = mapped_open(&array, argv[2]);
    if (rc == 0)
        rc = scan_array_npy(&a.trajectory, "trajectory", array.bytes, array.length);
    if (rc == 0)
        rc = scan_read(&a.scan, argv[0]);
    if (rc == 0)
        rc = attach(&a, argv[1]);
    scan_close(&a.scan);
    mapped_close(&array);
    return rc == 0 ? CLIENT_OK : client_failed();
}
