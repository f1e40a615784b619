/* allocate.h: memory of a unit test. */
#ifndef MRIRECON_ALLOCATE_H
#define MRIRECON_ALLOCATE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* Zeros; never NULL, also for a count of 0. free() them. */
static inline void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

#endif
