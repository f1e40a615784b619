/* cpu_set.h: the instruction sets that the innermost loops are compiled for, in files *_sse2.c, *_avx2.c and
 * *_avx512.c. */
#ifndef MRIRECON_CPU_SET_H
#define MRIRECON_CPU_SET_H

enum cpu_set { CPU_SSE2, CPU_AVX2, CPU_AVX512 };

/* The best set that this CPU has, of those for which the Makefile has flags. */
static inline enum cpu_set cpu_set_best(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return CPU_AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? CPU_AVX2 : CPU_SSE2;
}

#endif
