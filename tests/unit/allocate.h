/* allocate.h: zeroed memory for unit tests; a failed allocation fails the test. */
#ifndef MRIRECON_ALLOCATE_H
#define MRIRECON_ALLOCATE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* Zeroed memory, never NULL, not even for a count of 0. The caller frees it. */
static inline void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

#endif
