/* inline.h: INLINE marks functions that are specialised for the constant arguments of each call. */
#ifndef MRIRECON_INLINE_H
#define MRIRECON_INLINE_H

/* With sanitizers (and at -O2) they are not inlined: GCC needs up to a minute per file to instrument all specialised
 * loops. */
#ifdef __SANITIZE_ADDRESS__
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#endif
