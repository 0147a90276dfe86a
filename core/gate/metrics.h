/* Counters, gauges and histograms, written as Prometheus text. */
#ifndef SP_GATE_METRICS_H
#define SP_GATE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/view.h"

struct metrics;
struct metric;

enum metrics_kind { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM };

/*
 * Context: reactor.
 * Parameters: name without "sallyport_" and "_total"; labels: up to 4 names,
 *          NULL-terminated, or NULL; bounds: upper bounds in seconds of a
 *          histogram, ascending, without +Inf; 0 ends them; at most 24.
 * Returns: the metric (the same for the same name), or NULL without memory.
 */
struct metrics *metrics_new(void) must_check;
void metrics_free(struct metrics *m);
struct metric *metrics_register(struct metrics *m, enum metrics_kind kind,
    const char *name, const char *help, const char *const *labels,
    const double *bounds) must_check;
/* The cell for these label values (copied); at most 1,000 cells a metric,
 * past that one cell labelled "other".  Never NULL. */
uint64_t *metrics_cell(struct metric *m, const struct view *values);
/* Sets all of a gauge's cells to 0, before what there is is counted anew. */
void metrics_clear(struct metric *m);
static inline void
metrics_inc(uint64_t *cell)
{
	++*cell;
}
/* Into the histogram cell of these labels. */
void metrics_observe_us(struct metric *m, const struct view *values,
    uint64_t us);
/* Runs before each rendering, to set gauges. */
int metrics_on_collect(struct metrics *m, void (*cb)(void *arg),
    void *arg) must_check;
/* Text format 0.0.4, or OpenMetrics 1.0.0. */
int metrics_render(struct metrics *m, bool openmetrics,
    struct buf *out) must_check;
/* The same as a JSON object: {"name{label=\"v\"}": number, ...}. */
int metrics_render_json(struct metrics *m, struct buf *out) must_check;

#endif
