/* Images as an MRD version 1 stream, read message by message, as clients of the Gadgetron and FIRE protocols do. */
#include "tests/unit/image_fixture.h"

#include <ismrmrd/ismrmrd.h>

struct written {
    unsigned char *bytes;
    size_t length, at;
};

static struct written written(const struct image_series *series)
{
    int fd = memfd_create("image", 0);
    size_t most = 0;
    assert_int_equal(image_write(series, IMAGE_MRD, fd), 0);
    struct written file = {.length = (size_t)lseek(fd, 0, SEEK_END)};
    const size_t xml = series->xml ? strlen(series->xml) : 0;
    assert_true(image_file_most(series, IMAGE_MRD, xml, &most) && file.length <= most);
    file.bytes = malloc(file.length);
    assert_int_equal(pread(fd, file.bytes, file.length, 0), file.length);
    close(fd);
    return file;
}

static const unsigned char *take(struct written *file, size_t bytes)
{
    assert_true(bytes <= file->length - file->at);
    file->at += bytes;
    return file->bytes + file->at - bytes;
}

static unsigned number16(struct written *file)
{
    uint16_t number;
    memcpy(&number, take(file, sizeof number), sizeof number);
    return number;
}

static ISMRMRD_ImageHeader head_of(struct written *file)
{
    ISMRMRD_ImageHeader head;
    uint64_t length;
    assert_int_equal(number16(file), 1022);
    memcpy(&head, take(file, sizeof head), sizeof head);
    memcpy(&length, take(file, sizeof length), sizeof length);
    assert_int_equal(length, head.attribute_string_len);
    assert_memory_equal(take(file, length), "<?xml", 5);
    return head;
}

/* The scan's header, then every image with its own head and pixels, then the closing message. */
static void a_series_of_real_images(void **state)
{
    (void)state;
    struct image_series *series = series_make(3, 2, 5, 4, 6, false);
    assert_non_null(series->xml);
    for (size_t i = 0; i < 3; i++)
        series->info[i].repetition = (uint16_t)(i + 7);
    struct written file = written(series);
    uint32_t length;
    assert_int_equal(number16(&file), 3);
    memcpy(&length, take(&file, sizeof length), sizeof length);
    assert_int_equal(length, strlen(series->xml));
    assert_memory_equal(take(&file, length), series->xml, length);
    for (size_t i = 0; i < 3; i++) {
        const ISMRMRD_ImageHeader head = head_of(&file);
        assert_int_equal(head.data_type, ISMRMRD_FLOAT);
        assert_int_equal(head.image_type, ISMRMRD_IMTYPE_MAGNITUDE);
        assert_int_equal(head.matrix_size[0], 5);
        assert_int_equal(head.matrix_size[1], 4);
        assert_int_equal(head.matrix_size[2], 6);
        assert_int_equal(head.channels, 2);
        assert_int_equal(head.repetition, i + 7);
        assert_memory_equal(head.position, series->info[i].position, sizeof head.position);
        assert_memory_equal(head.slice_dir, series->info[i].slice_dir, sizeof head.slice_dir);
        const size_t bytes = 2 * 5 * 4 * 6 * sizeof(float);
        assert_memory_equal(take(&file, bytes), (char *)series->data + i * bytes, bytes);
    }
    assert_int_equal(number16(&file), 4);
    assert_int_equal(file.at, file.length);
    free(file.bytes);
    image_series_free(series);
}

static void a_complex_image_without_a_header(void **state)
{
    (void)state;
    struct image_series *series = series_make(1, 1, 3, 2, 1, true);
    free(series->xml);
    series->xml = NULL;
    struct written file = written(series);
    const ISMRMRD_ImageHeader head = head_of(&file);
    assert_int_equal(head.data_type, ISMRMRD_CXFLOAT);
    assert_int_equal(head.image_type, ISMRMRD_IMTYPE_COMPLEX);
    assert_memory_equal(take(&file, 6 * 8), series->data, 6 * 8);
    assert_int_equal(number16(&file), 4);
    assert_int_equal(file.at, file.length);
    free(file.bytes);
    image_series_free(series);
}

/* Sizes are 16-bit numbers in the stream. */
static void too_many_images(void **state)
{
    (void)state;
    struct image_series *series = series_make(1, 1, 1, 1, 1, false);
    series->count = 65536; /* not read */
    int fd = memfd_create("image", 0);
    assert_int_equal(image_write(series, IMAGE_MRD, fd), ERR_LIMIT);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    close(fd);
    series->count = 1;
    image_series_free(series);
}

static void no_space(void **state)
{
    (void)state;
    struct image_series *series = series_make(1, 1, 5, 4, 1, false);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_MRD, fd), ERR_SPOOL_FULL);
    close(fd);
    image_series_free(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_of_real_images),
        cmocka_unit_test(a_complex_image_without_a_header),
        cmocka_unit_test(too_many_images),
        cmocka_unit_test(no_space),
    };
    return cmocka_run_group_tests_name("image_mrd", tests, folder_make, folder_drop);
}
