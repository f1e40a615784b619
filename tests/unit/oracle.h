/* oracle.h: what the sums in double precision have in common that tests compare with. */
#ifndef MRIRECON_ORACLE_H
#define MRIRECON_ORACLE_H

/* A sanitized build instruments the code under test but not these reference loops, which would take most of the
 * programs' time. GCC inlines one of them only into another. */
#define ORACLE __attribute__((no_sanitize("address", "undefined")))

#endif
