/* inline.h: functions whose constant arguments make a loop of their own out of each call: INLINE. */
#ifndef MRIRECON_INLINE_H
#define MRIRECON_INLINE_H

/* Under sanitizers (and at -O2) one loop serves all calls: GCC takes up to a minute a file to instrument them all. */
#ifdef __SANITIZE_ADDRESS__
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#endif
