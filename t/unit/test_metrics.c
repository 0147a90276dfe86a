/* Metrics: cells, escaping, both text formats, JSON, failing memory. */
#include "config.h"

#include "base/mem.h"
#include "gate/metrics.h"
#include "json/jscan.h"

#include "tap.h"

static const char *const labels[] = { "module", "code", NULL };
static const double bounds[] = { 0.005, 0.25, 1, 0 };

static struct buf
render(struct metrics *m, bool openmetrics)
{
	struct buf b = BUF_INIT(1 << 20);

	if (metrics_render(m, openmetrics, &b) != SP_OK ||
	    buf_add_char(&b, '\0') != SP_OK)
		tap_ok(false, "rendered");
	return b;
}

static bool
has(const struct buf *b, const char *line)
{
	return strstr(buf_view(b).p, line) != NULL;
}

static void
cells(void)
{
	const struct view a[] = { VIEW("llm"), VIEW("200") };
	const struct view odd[] = { VIEW("q\"\\\n\x01\xff\xc3\xa9"),
		VIEW("404") };
	struct metrics *m = metrics_new();
	struct metric *x, *h, *plain;
	struct buf b;

	x = metrics_register(m, METRICS_COUNTER, "requests", "Requests", labels,
	    NULL);
	tap_ok(x != NULL, "counter registered");
	tap_ok(metrics_register(m, METRICS_COUNTER, "requests", "Again", labels,
		   NULL) == x,
	    "the same name is the same metric");
	plain =
	    metrics_register(m, METRICS_GAUGE, "open", "Open ones", NULL, NULL);
	h = metrics_register(m, METRICS_HISTOGRAM, "ack_seconds", "Acks", NULL,
	    bounds);
	tap_ok(metrics_register(m, METRICS_GAUGE, "process_start_time_seconds",
		   "Start", NULL, NULL) != NULL,
	    "another");
	metrics_inc(metrics_cell(x, a));
	metrics_inc(metrics_cell(x, a));
	metrics_inc(metrics_cell(x, odd));
	*metrics_cell(plain, NULL) = 7;
	tap_ok(metrics_cell(x, a) == metrics_cell(x, a), "one cell a label");
	metrics_observe_us(h, NULL, 5000);
	metrics_observe_us(h, NULL, 5001);
	metrics_observe_us(h, NULL, 2000000);

	b = render(m, false);
	tap_ok(has(&b, "# TYPE sallyport_requests_total counter\n"),
	    "0.0.4 "
	    "type");
	tap_ok(has(&b,
		   "sallyport_requests_total{module=\"llm\",code=\"200\"} "
		   "2\n"),
	    "counted");
	tap_ok(has(&b, "{module=\"q\\\"\\\\\\n??\xc3\xa9\",code=\"404\"} 1\n"),
	    "values are escaped, bytes that are not UTF-8 replaced");
	tap_ok(!has(&b, "other"), "no cell for the rest while there is none");
	tap_ok(has(&b, "sallyport_open 7\n"), "gauge");
	tap_ok(has(&b, "process_start_time_seconds 0\n") &&
		!has(&b, "sallyport_process"),
	    "names of the process have no prefix");
	tap_ok(has(&b, "ack_seconds_bucket{le=\"0.005\"} 1\n") &&
		has(&b, "ack_seconds_bucket{le=\"0.25\"} 2\n") &&
		has(&b, "ack_seconds_bucket{le=\"1.0\"} 2\n") &&
		has(&b, "ack_seconds_bucket{le=\"+Inf\"} 3\n") &&
		has(&b, "ack_seconds_count 3\n") &&
		has(&b, "ack_seconds_sum 2.010001\n"),
	    "histogram is cumulative");
	tap_ok(!has(&b, "# EOF"), "no end in 0.0.4");
	buf_clear(&b);

	b = render(m, true);
	tap_ok(has(&b, "# TYPE sallyport_requests counter\n") &&
		has(&b, "sallyport_requests_total{"),
	    "OpenMetrics names the family without _total");
	tap_ok(view_ends(view_sub(buf_view(&b), 0, buf_len(&b) - 1),
		   VIEW("# EOF\n")),
	    "and ends");
	buf_clear(&b);

	buf_init(&b, 1 << 20);
	tap_is_int(metrics_render_json(m, &b), SP_OK, "JSON");
	tap_is_int(jscan_valid(buf_view(&b), 0), SP_OK, "JSON is valid");
	tap_ok(buf_add_char(&b, '\0') == SP_OK &&
		has(&b,
		    "\"sallyport_requests_total{module=\\\"llm\\\",code="
		    "\\\"200\\\"}\": 2"),
	    "a key is the series");
	buf_clear(&b);
	buf_init(&b, 100);
	tap_is_int(metrics_render(m, false, &b), SP_E_LIMIT, "bounded");
	tap_is_int(metrics_render_json(m, &b), SP_E_LIMIT, "bounded in JSON");
	buf_clear(&b);
	metrics_free(m);
}

static void
many_cells(void)
{
	static const char *const one[] = { "x", NULL };
	struct metrics *m = metrics_new();
	struct metric *x =
	    metrics_register(m, METRICS_COUNTER, "n", "N", one, NULL);
	char text[16];
	struct view v;
	uint64_t *first = NULL, *last = NULL;
	struct buf b;
	int i;

	for (i = 0; i < 1100; i++) {
		v = view_of(text,
		    (size_t)snprintf(text, sizeof(text), "%d", i));
		last = metrics_cell(x, &v);
		if (i == 0)
			first = last;
		metrics_inc(last);
	}
	v = VIEW("0");
	tap_ok(metrics_cell(x, &v) == first, "the first stays");
	tap_is_int((long long)*last, 100, "past 1,000 all share one");
	b = render(m, false);
	tap_ok(has(&b, "sallyport_n_total{x=\"other\"} 100\n"), "the rest");
	buf_clear(&b);
	metrics_free(m);
}

static int collected;

static void
collect(void *arg)
{
	(void)arg;
	collected++;
}

static void
collecting(void)
{
	struct metrics *m = metrics_new();
	struct buf b;
	int i;

	tap_is_int(metrics_on_collect(m, collect, NULL), SP_OK, "hook");
	b = render(m, false);
	buf_clear(&b);
	tap_is_int(collected, 1, "runs before each rendering");
	for (i = 1; i < 32; i++)
		if (metrics_on_collect(m, collect, NULL) != SP_OK)
			break;
	tap_is_int(metrics_on_collect(m, collect, NULL), SP_E_LIMIT, "bounded");
	metrics_free(m);
}

/* Every allocation fails once; nothing crashes, cells are never NULL. */
static bool
try(unsigned long n)
{
	const struct view a[] = { VIEW("llm"), VIEW("200") };
	struct buf b = BUF_INIT(1 << 20);
	struct metrics *m;
	struct metric *x = NULL, *h = NULL;
	bool good = false;

	mem_fail_after(n, 0);
	m = metrics_new();
	if (m == NULL)
		goto out;
	x = metrics_register(m, METRICS_COUNTER, "r", "R", labels, NULL);
	h = metrics_register(m, METRICS_HISTOGRAM, "h", "H", labels, bounds);
	if (x != NULL)
		metrics_inc(metrics_cell(x, a));
	if (h != NULL)
		metrics_observe_us(h, a, 1);
	good = x != NULL && h != NULL &&
	    metrics_render(m, false, &b) == SP_OK &&
	    metrics_render_json(m, &b) == SP_OK;
out:
	mem_fail_after(0, 0);
	buf_clear(&b);
	metrics_free(m);
	return good;
}

static void
no_memory(void)
{
	unsigned long n, failed = 0;

	for (n = 1; n < 200; n++)
		failed += !try(n);
	tap_ok(failed > 10 && failed < 100,
	    "each failing allocation was survived (%lu)", failed);
}

static void
cleared(void)
{
	static const char *const state[] = { "state", NULL };
	const struct view on = VIEW("on"), off = VIEW("off");
	struct metrics *m = metrics_new();
	struct metric *x =
	    metrics_register(m, METRICS_GAUGE, "n", "N", state, NULL);
	struct buf b = BUF_INIT(4096);

	*metrics_cell(x, &on) = 2;
	*metrics_cell(x, &off) = 1;
	metrics_clear(x);
	metrics_inc(metrics_cell(x, &off));
	tap_ok(metrics_render_json(m, &b) == SP_OK, "a gauge that is cleared");
	tap_ok(view_search(buf_view(&b), VIEW("{state=\\\"on\\\"}\": 0")) <
		buf_len(&b),
	    "has cells of 0");
	tap_ok(view_search(buf_view(&b), VIEW("{state=\\\"off\\\"}\": 1")) <
		buf_len(&b),
	    "and those that were counted since");
	buf_clear(&b);
	metrics_free(m);
}

int
main(void)
{
	cells();
	cleared();
	many_cells();
	collecting();
	no_memory();
	return tap_done();
}
