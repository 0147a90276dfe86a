/* Clocks. */
#ifndef SP_BASE_CLOCK_H
#define SP_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Context: any.  CLOCK_MONOTONIC; never goes back. */
uint64_t clock_ns(void);
uint64_t clock_us(void);
uint64_t clock_ms(void);
/* CLOCK_REALTIME, microseconds since 1970. */
uint64_t clock_wall_us(void);
/*
 * "2026-11-29T13:21:24.123Z" of a wall time into out (at least 25 bytes with
 * the NUL).
 */
void clock_format(uint64_t wall_us, char *out);

#endif
