/* A histogram of microseconds, exact to 1 in 64. */
#ifndef SP_BL_HIST_H
#define SP_BL_HIST_H

#include <stdint.h>
#include <stdio.h>

enum { BL_HIST_N = 128 + 33 * 64 };

struct bl_hist {
	uint64_t n;
	uint64_t max;
	uint64_t bucket[BL_HIST_N];
};

/*
 * Context: any, does not block; a zeroed struct is empty.
 * Returns: bl_hist_at: the value that the share q (0 to 1) does not pass, 0
 *          when nothing was added.
 */
void bl_hist_add(struct bl_hist *h, uint64_t us);
uint64_t bl_hist_at(const struct bl_hist *h, double q);
/* Writes "name":{"n":..,"p50":..,"p90":..,"p99":..,"max":..} */
void bl_hist_print(FILE *f, const char *name, const struct bl_hist *h);

#endif
