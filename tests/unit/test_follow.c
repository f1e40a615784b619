/* Streams and HDF5 files that are decoded while they arrive, by the real mrirecon-codec: the same scan and the same
 * errors as for the complete file, and an end when the job is canceled. The file grows whenever the decoder asks
 * whether to continue, so decoding always begins before the input is complete. */
#include "recon/h5/h5_length.h"
#include "tests/unit/decode_fixture.h"

#include <stdatomic.h>
#include <sys/wait.h>

/* A file that grows by one piece at a time. */
struct growing {
    int fd;
    const char *content;
    size_t bytes, written, piece;
    int looks, stop_at; /* stop_at: the call at which the job is canceled; 0: none */
    atomic_bool arriving;
};

static int grow(void *context)
{
    struct growing *g = context;
    size_t count = g->bytes - g->written < g->piece ? g->bytes - g->written : g->piece;
    assert_int_equal(pwrite(g->fd, g->content + g->written, count, (off_t)g->written), count);
    g->written += count;
    g->arriving = g->written < g->bytes;
    return ++g->looks == g->stop_at;
}

/* Decode `content` while it arrives in `pieces`. The first two bytes, which identify the format, are there from the
 * start. */
static int follow(const struct place *p, struct scan *scan, const char *content, size_t bytes, size_t pieces,
                  int stop_at, uint64_t most)
{
    struct growing g = {.content = content, .bytes = bytes, .written = 2, .stop_at = stop_at, .arriving = true};
    const struct decode_limits limits = {.bytes = most, .seconds = 60, .arriving = &g.arriving};
    char path[128];
    snprintf(path, sizeof path, "%s/growing", p->folder);
    g.piece = bytes / pieces + 1;
    g.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(g.fd, content, 2), 2);
    int rc = decode_by(p->codec, scan, g.fd, NULL, &limits, grow, &g);
    assert_true(rc != 0 || g.written == bytes);
    close(g.fd);
    return rc;
}

static void scans_are_equal(const struct scan *a, const struct scan *b)
{
    assert_int_equal(a->header->readouts, b->header->readouts);
    assert_int_equal(a->header->ignored, b->header->ignored);
    assert_string_equal(a->xml, b->xml);
    assert_memory_equal(a->encodings, b->encodings, a->header->encodings * sizeof *a->encodings);
    for (uint64_t i = 0; i < a->header->readouts; i++) {
        struct scan_readout r = a->readouts[i], s = b->readouts[i];
        assert_memory_equal(a->traj + r.traj, b->traj + s.traj, (size_t)r.samples * r.traj_dims * sizeof(float));
        assert_memory_equal(a->data + r.data, b->data + s.data, (size_t)r.samples * r.coils * sizeof(struct c32));
        r.traj = s.traj = r.data = s.data = 0;
        assert_memory_equal(&r, &s, sizeof r);
    }
}

static void a_stream_that_arrives_gives_the_same_scan(void **state)
{
    const struct place *p = *state;
    static const char *const names[] = {"stream", "stream_texts"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t pieces = 1; pieces <= 3; pieces += 2) {
            struct scan whole = {0}, followed = {0};
            size_t bytes;
            int fd = open_file(p, names[i]);
            char *content = read_file(p, names[i], &bytes);
            assert_int_equal(decode_fd(p, &whole, fd, NULL), 0);
            assert_int_equal(follow(p, &followed, content, bytes, pieces, 0, roomy.bytes), 0);
            scans_are_equal(&whole, &followed);
            scan_close(&whole);
            scan_close(&followed);
            free(content);
            close(fd);
        }
}

static void errors_are_those_of_the_complete_file(void **state)
{
    const struct place *p = *state;
    struct scan scan = {0};
    size_t bytes;
    char *content = read_file(p, "stream_unknown", &bytes);
    assert_int_equal(follow(p, &scan, content, bytes, 2, 0, roomy.bytes), ERR_MALFORMED_FILE);
    assert_non_null(strstr(err_last()->text, "unknown number 4711"));
    free(content);
    content = read_file(p, "stream_no_header", &bytes);
    assert_int_equal(follow(p, &scan, content, bytes, 2, 0, roomy.bytes), ERR_MALFORMED_FILE);
    free(content);
    content = read_file(p, "stream", &bytes);
    assert_int_equal(follow(p, &scan, content, bytes, 2, 0, 2000), ERR_LIMIT);
    assert_true(err_last()->required > 2000);
    free(content);
}

/* It is complete, and its end is missing: a limit for scans as large as memory would be hours. The caller reads it
 * again.
 */
static void a_stream_that_broke_off_is_given_up_when_it_is_complete(void **state)
{
    const struct place *p = *state;
    struct scan scan = {0};
    size_t bytes;
    char *content = read_file(p, "stream", &bytes);
    /* It is asked 20 times a second whether to go on. */
    assert_int_equal(follow(p, &scan, content, 3 * bytes / 4, 3, 600, roomy.bytes), ERR_LIMIT);
    free(content);
}

static void a_stream_that_does_not_end_stops_with_its_job(void **state)
{
    const struct place *p = *state;
    struct scan scan = {0};
    size_t bytes;
    char *content = read_file(p, "stream", &bytes);
    /* Without CLOSE, its last two bytes. */
    assert_int_equal(follow(p, &scan, content, bytes - 2, 1, 3, roomy.bytes), ERR_CANCELED);
    free(content);
}

/* A stream whose decoded form somebody reads: its job begins, so it arrives no more, at look `begin_at` after the last
 * byte. */
struct taken {
    struct growing growing;
    atomic_int live;
    int looks, begin_at;
    bool ended; /* a process had ended before */
};

static int take(void *context)
{
    struct taken *t = context;
    siginfo_t info = {.si_pid = 0};
    if (t->growing.written < t->growing.bytes)
        grow(&t->growing);
    const int memory = atomic_exchange(&t->live, -1);
    if (memory >= 0)
        close(memory);
    t->looks++;
    t->growing.arriving = t->looks < t->begin_at;
    t->ended = t->ended || (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0);
    return 0;
}

/* The decoder's end takes processor time that who computes on the stream needs: it waits for the job. While it decodes,
 * which takes this stream much less than a second, there is a look in 50 ms, then one in each. */
static void a_decoder_whose_stream_is_computed_ends_when_its_job_begins(void **state)
{
    const struct place *p = *state;
    struct scan scan = {0}, whole = {0};
    size_t bytes;
    char path[128], *content = read_file(p, "stream", &bytes);
    struct taken t = {.growing = {.content = content, .bytes = bytes, .written = 2, .piece = bytes, .arriving = true},
                      .live = -1,
                      .begin_at = 20};
    const struct decode_limits limits = {
        .bytes = roomy.bytes, .seconds = 60, .arriving = &t.growing.arriving, .live = &t.live};
    snprintf(path, sizeof path, "%s/growing", p->folder);
    t.growing.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(t.growing.fd, content, 2), 2);
    assert_int_equal(decode_by(p->codec, &scan, t.growing.fd, NULL, &limits, take, &t), 0);
    assert_int_equal(t.looks, t.begin_at);
    assert_false(t.ended);
    const int fd = open_file(p, "stream");
    assert_int_equal(decode_fd(p, &whole, fd, NULL), 0);
    scans_are_equal(&whole, &scan);
    scan_close(&whole);
    scan_close(&scan);
    close(fd);
    close(t.growing.fd);
    free(content);
}

/* decode_fd(), with samples in place. */
static int decode_in_place(const struct place *p, struct scan *scan, int fd, const char *group,
                           const struct decode_limits *limits, struct growing *g)
{
    struct decoder *decoder = NULL;
    struct scan_wanted wanted = {.group = "", .in_place = 1};
    snprintf(wanted.group, sizeof wanted.group, "%s", group);
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    int rc = scan_decode(scan, decoder, fd, &wanted, limits, g ? grow : NULL, g);
    decoder_free(decoder);
    return rc;
}

/* Decode the file as a whole, and as it arrives in three pieces after its first bytes. */
static void file_compare(const struct place *p, const char *name, const char *group, const char *content, size_t bytes)
{
    struct growing g = {.content = content, .bytes = bytes, .written = H5_LENGTH_HEAD, .arriving = true};
    const struct decode_limits limits = {.bytes = roomy.bytes, .seconds = 60, .arriving = &g.arriving};
    struct scan whole = {0}, followed = {0};
    struct err failure;
    char path[128];
    snprintf(path, sizeof path, "%s/growing", p->folder);
    g.piece = (bytes - g.written) / 3 + 1;
    g.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(g.fd, content, g.written), g.written);
    int fd = open_file(p, name), rc = decode_in_place(p, &whole, fd, group, &roomy, NULL);
    failure = *err_last();
    const int got = decode_in_place(p, &followed, g.fd, group, &limits, &g);
    if (got != rc || (rc != 0 && strcmp(err_last()->text, failure.text) != 0))
        fail_msg("%s: %d (%s) as it arrives, %d (%s) as a whole", name, got, got ? err_last()->text : "", rc,
                 rc ? failure.text : "");
    if (rc == 0) {
        assert_int_equal(g.written, bytes);
        assert_int_equal(followed.header->in_place, whole.header->in_place);
        scans_are_equal(&whole, &followed);
    }
    scan_close(&whole);
    scan_close(&followed);
    close(g.fd);
    close(fd);
}

/* All HDF5 files of the decoder's tests, damaged and hostile ones, too. */
static void hdf5_files_that_arrive_give_the_same_scans_and_errors(void **state)
{
    const struct place *p = *state;
    char path[128], line[512], name[64], group[64];
    int files = 0;
    snprintf(path, sizeof path, "%s/manifest", p->folder);
    FILE *manifest = fopen(path, "re");
    assert_non_null(manifest);
    while (fgets(line, sizeof line, manifest)) {
        size_t bytes;
        assert_int_equal(sscanf(line, "%63[^\t]\t%63[^\t]\t", name, group), 2);
        char *content = read_file(p, name, &bytes);
        if (bytes > H5_LENGTH_HEAD && h5_length((const uint8_t *)content, H5_LENGTH_HEAD) == bytes) {
            file_compare(p, name, strcmp(group, "-") == 0 ? "" : group, content, bytes);
            files++;
        }
        free(content);
    }
    fclose(manifest);
    assert_true(files > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_arrives_gives_the_same_scan),
        cmocka_unit_test(errors_are_those_of_the_complete_file),
        cmocka_unit_test(a_stream_that_does_not_end_stops_with_its_job),
        cmocka_unit_test(a_stream_that_broke_off_is_given_up_when_it_is_complete),
        cmocka_unit_test(a_decoder_whose_stream_is_computed_ends_when_its_job_begins),
        cmocka_unit_test(hdf5_files_that_arrive_give_the_same_scans_and_errors),
    };
    return cmocka_run_group_tests_name("follow", tests, setup, teardown);
}
