#include "config.h"

#include <math.h>
#include <stdio.h>
#include <sys/queue.h>

#include "base/hmap.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/utf8.h"
#include "gate/metrics.h"
#include "json/jwrite.h"

enum {
	METRICS_LABELS_MAX = 4,
	METRICS_BOUNDS_MAX = 24,
	METRICS_CELLS_MAX = 1000,
	METRICS_VALUE_MAX = 200, /* bytes of a label's value */
	METRICS_NAME_MAX = 64,
	/* name="value", every byte of the value escaped, for each label */
	METRICS_KEY_MAX =
	    METRICS_LABELS_MAX * (METRICS_NAME_MAX + 2 * METRICS_VALUE_MAX + 4),
	METRICS_COLLECT_MAX = 32,
	METRICS_SERIES_MAX = 2 * METRICS_KEY_MAX, /* name and labels */
	METRICS_SERIES_JSON_MAX = 4 * METRICS_SERIES_MAX,
};

/* One time series; a histogram's: buckets, then sum in us, then count. */
struct metric_cell {
	STAILQ_ENTRY(metric_cell) link;
	char *labels; /* as rendered, without braces; "" none */
	uint64_t v[];
};

struct metric {
	STAILQ_ENTRY(metric) link;
	enum metrics_kind kind;
	char *name, *help;
	char *labels[METRICS_LABELS_MAX];
	size_t labels_n;
	double bounds[METRICS_BOUNDS_MAX];
	uint64_t bounds_us[METRICS_BOUNDS_MAX];
	size_t bounds_n;
	struct hmap *cells; /* by labels as rendered */
	STAILQ_HEAD(, metric_cell) list;
	/* without labels the only one; else what does not fit in elsewhere */
	struct metric_cell *other;
};

struct metrics {
	STAILQ_HEAD(, metric) list;
	struct {
		void (*cb)(void *arg);
		void *arg;
	} collect[METRICS_COLLECT_MAX];
	size_t collect_n;
};

struct metrics *
metrics_new(void)
{
	struct metrics *m = mem_calloc(1, sizeof(*m));

	if (m != NULL)
		STAILQ_INIT(&m->list);
	return m;
}

static void
metric_cell_free(struct metric_cell *c)
{
	if (c == NULL)
		return;
	mem_free(c->labels);
	mem_free(c);
}

static void
metric_free(struct metric *x)
{
	struct metric_cell *c;
	size_t i;

	if (x == NULL)
		return;
	while ((c = STAILQ_FIRST(&x->list)) != NULL) {
		STAILQ_REMOVE_HEAD(&x->list, link);
		metric_cell_free(c);
	}
	metric_cell_free(x->other);
	hmap_free(x->cells);
	for (i = 0; i < x->labels_n; i++)
		mem_free(x->labels[i]);
	mem_free(x->name);
	mem_free(x->help);
	mem_free(x);
}

void
metrics_free(struct metrics *m)
{
	struct metric *x;

	if (m == NULL)
		return;
	while ((x = STAILQ_FIRST(&m->list)) != NULL) {
		STAILQ_REMOVE_HEAD(&m->list, link);
		metric_free(x);
	}
	mem_free(m);
}

static struct metric_cell *
metric_cell_new(const struct metric *x, struct view labels)
{
	size_t n = x->kind == METRICS_HISTOGRAM ? x->bounds_n + 2 : 1;
	struct metric_cell *c;

	c = mem_calloc(1, sizeof(*c) + n * sizeof(c->v[0]));
	if (c == NULL)
		return NULL;
	c->labels = mem_strndup(labels.p != NULL ? labels.p : "", labels.n);
	if (c->labels == NULL) {
		mem_free(c);
		return NULL;
	}
	return c;
}

/* A byte of a label's value, escaped.  Source: text format 0.0.4. */
static size_t
metric_escape(char *out, char c)
{
	if (c == '\\' || c == '"') {
		out[0] = '\\';
		out[1] = c;
		return 2;
	}
	if (c == '\n') {
		out[0] = '\\';
		out[1] = 'n';
		return 2;
	}
	/* other control bytes have no escape in the format */
	out[0] = (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
	return 1;
}

/* The value must be UTF-8: what is not becomes '?'. */
static size_t
metric_value(char *out, struct view v)
{
	size_t i = 0, n = 0;
	uint32_t cp;
	unsigned len;

	while (i < v.n && i < METRICS_VALUE_MAX) {
		len = utf8_decode(view_from(v, i), &cp);
		if (len > 1 && i + len > METRICS_VALUE_MAX)
			break;
		if (len == 0)
			out[n++] = '?';
		else if (len == 1)
			n += metric_escape(out + n, v.p[i]);
		else
			memcpy(out + n, v.p + i, len);
		if (len > 1)
			n += len;
		i += len == 0 ? 1 : len;
	}
	return n;
}

/* values NULL: "other" for each. */
static size_t
metric_key(const struct metric *x, const struct view *values,
    char out[METRICS_KEY_MAX])
{
	size_t i, len, n = 0;

	for (i = 0; i < x->labels_n; i++) {
		if (i > 0)
			out[n++] = ',';
		len = strlen(x->labels[i]);
		memcpy(out + n, x->labels[i], len);
		n += len;
		out[n++] = '=';
		out[n++] = '"';
		n += metric_value(out + n,
		    values != NULL ? values[i] : VIEW("other"));
		out[n++] = '"';
	}
	return n;
}

static int
metric_fill(struct metric *x, const char *name, const char *help,
    const char *const *labels, const double *bounds)
{
	char key[METRICS_KEY_MAX];

	x->name = mem_strdup(name);
	x->help = mem_strdup(help);
	if (x->name == NULL || x->help == NULL)
		return SP_E_NOMEM;
	for (; labels != NULL && *labels != NULL; labels++) {
		err_assert(x->labels_n < METRICS_LABELS_MAX &&
		    strlen(*labels) <= METRICS_NAME_MAX);
		x->labels[x->labels_n] = mem_strdup(*labels);
		if (x->labels[x->labels_n] == NULL)
			return SP_E_NOMEM;
		x->labels_n++;
	}
	/* bounds end where they no longer ascend */
	while (bounds != NULL && x->bounds_n < METRICS_BOUNDS_MAX &&
	    bounds[x->bounds_n] > 0 &&
	    (x->bounds_n == 0 ||
		bounds[x->bounds_n] > bounds[x->bounds_n - 1])) {
		x->bounds[x->bounds_n] = bounds[x->bounds_n];
		x->bounds_us[x->bounds_n] =
		    (uint64_t)llround(bounds[x->bounds_n] * 1e6);
		x->bounds_n++;
	}
	x->cells = hmap_new(METRICS_CELLS_MAX);
	if (x->cells == NULL)
		return SP_E_NOMEM;
	x->other = metric_cell_new(x, view_of(key, metric_key(x, NULL, key)));
	return x->other == NULL ? SP_E_NOMEM : SP_OK;
}

static struct metric *
metric_find(const struct metrics *m, const char *name)
{
	struct metric *x;

	STAILQ_FOREACH (x, &m->list, link)
		if (strcmp(x->name, name) == 0)
			return x;
	return NULL;
}

struct metric *
metrics_register(struct metrics *m, enum metrics_kind kind, const char *name,
    const char *help, const char *const *labels, const double *bounds)
{
	struct metric *x = metric_find(m, name);

	err_assert((kind == METRICS_HISTOGRAM) == (bounds != NULL));
	if (x != NULL) {
		err_assert(x->kind == kind);
		return x;
	}
	x = mem_calloc(1, sizeof(*x));
	if (x == NULL)
		return NULL;
	x->kind = kind;
	STAILQ_INIT(&x->list);
	if (metric_fill(x, name, help, labels, bounds) != SP_OK) {
		metric_free(x);
		return NULL;
	}
	STAILQ_INSERT_TAIL(&m->list, x, link);
	return x;
}

static struct metric_cell *
metric_cell(struct metric *x, const struct view *values)
{
	char key[METRICS_KEY_MAX];
	struct metric_cell *c;
	struct view k;

	if (x->labels_n == 0)
		return x->other;
	k = view_of(key, metric_key(x, values, key));
	c = hmap_get(x->cells, k);
	if (c != NULL)
		return c;
	c = metric_cell_new(x, k);
	if (c == NULL)
		return x->other;
	if (hmap_add(x->cells, k, c) != SP_OK) {
		metric_cell_free(c);
		return x->other;
	}
	STAILQ_INSERT_TAIL(&x->list, c, link);
	return c;
}

uint64_t *
metrics_cell(struct metric *m, const struct view *values)
{
	err_assert(m->kind != METRICS_HISTOGRAM);
	return &metric_cell(m, values)->v[0];
}

void
metrics_clear(struct metric *m)
{
	struct metric_cell *c;

	err_assert(m->kind == METRICS_GAUGE);
	STAILQ_FOREACH (c, &m->list, link)
		c->v[0] = 0;
	if (m->other != NULL)
		m->other->v[0] = 0;
}

void
metrics_observe_us(struct metric *m, const struct view *values, uint64_t us)
{
	struct metric_cell *c;
	size_t i;

	err_assert(m->kind == METRICS_HISTOGRAM);
	c = metric_cell(m, values);
	for (i = 0; i < m->bounds_n && us > m->bounds_us[i]; i++)
		;
	/* past the last bound only the count tells */
	if (i < m->bounds_n)
		c->v[i]++;
	c->v[m->bounds_n] += us;
	c->v[m->bounds_n + 1]++;
}

int
metrics_on_collect(struct metrics *m, void (*cb)(void *arg), void *arg)
{
	if (m->collect_n == METRICS_COLLECT_MAX)
		return SP_E_LIMIT;
	m->collect[m->collect_n].cb = cb;
	m->collect[m->collect_n].arg = arg;
	m->collect_n++;
	return SP_OK;
}

/* ---- rendering ------------------------------------------------------------ */

/* Called for each sample: suffix "_total", "_bucket"...; le "" none. */
struct metric_sink {
	int (*sample)(struct metric_sink *s, const char *name,
	    const char *suffix, const char *labels, const char *le,
	    const char *value);
	struct buf *out;
	bool comma;
};

/* The process's own names stand without the prefix, as everywhere. */
static const char *
metric_prefix(const struct metric *x)
{
	return strncmp(x->name, "process_", 8) == 0 ? "" : "sallyport_";
}

/* "0.005", "1.0": one spelling in both formats, so one series. */
static void
metric_le(double bound, char out[32])
{
	snprintf(out, 32, "%g", bound);
	if (strpbrk(out, ".e") == NULL)
		memcpy(out + strlen(out), ".0", 3);
}

static void
metric_u64(uint64_t v, char out[32])
{
	out[num_format_u64(v, out)] = '\0';
}

static int
metric_emit_histogram(struct metric_sink *s, const struct metric *x,
    const char *name, const struct metric_cell *c)
{
	uint64_t sum = c->v[x->bounds_n], count = c->v[x->bounds_n + 1];
	uint64_t below = 0;
	char le[32], value[48];
	size_t i;
	int rc = SP_OK;

	for (i = 0; i < x->bounds_n && rc == SP_OK; i++) {
		below += c->v[i];
		metric_le(x->bounds[i], le);
		metric_u64(below, value);
		rc = s->sample(s, name, "_bucket", c->labels, le, value);
	}
	metric_u64(count, value);
	if (rc == SP_OK)
		rc = s->sample(s, name, "_bucket", c->labels, "+Inf", value);
	if (rc == SP_OK)
		rc = s->sample(s, name, "_count", c->labels, "", value);
	snprintf(value, sizeof(value), "%llu.%06llu",
	    (unsigned long long)(sum / 1000000),
	    (unsigned long long)(sum % 1000000));
	if (rc == SP_OK)
		rc = s->sample(s, name, "_sum", c->labels, "", value);
	return rc;
}

static int
metric_emit_cell(struct metric_sink *s, const struct metric *x,
    const char *name, const struct metric_cell *c)
{
	char value[32];

	if (x->kind == METRICS_HISTOGRAM)
		return metric_emit_histogram(s, x, name, c);
	metric_u64(c->v[0], value);
	return s->sample(s, name, x->kind == METRICS_COUNTER ? "_total" : "",
	    c->labels, "", value);
}

/* The cell for the rest shows once there was a rest. */
static bool
metric_other_used(const struct metric *x)
{
	if (x->kind == METRICS_HISTOGRAM)
		return x->other->v[x->bounds_n + 1] != 0;
	return x->other->v[0] != 0;
}

static int
metric_emit(struct metric_sink *s, const struct metric *x, const char *name)
{
	const struct metric_cell *c;
	int rc = SP_OK;

	STAILQ_FOREACH (c, &x->list, link)
		if (rc == SP_OK)
			rc = metric_emit_cell(s, x, name, c);
	if (rc == SP_OK && (x->labels_n == 0 || metric_other_used(x)))
		rc = metric_emit_cell(s, x, name, x->other);
	return rc;
}

static int
metric_text_sample(struct metric_sink *s, const char *name, const char *suffix,
    const char *labels, const char *le, const char *value)
{
	const char *comma = *labels != '\0' && *le != '\0' ? "," : "";

	if (*labels == '\0' && *le == '\0')
		return buf_printf(s->out, "%s%s %s\n", name, suffix, value);
	if (*le == '\0')
		return buf_printf(s->out, "%s%s{%s} %s\n", name, suffix, labels,
		    value);
	return buf_printf(s->out, "%s%s{%s%sle=\"%s\"} %s\n", name, suffix,
	    labels, comma, le, value);
}

static void
metrics_collect(struct metrics *m)
{
	size_t i;

	for (i = 0; i < m->collect_n; i++)
		m->collect[i].cb(m->collect[i].arg);
}

static int
metric_render(struct metric_sink *s, const struct metric *x, bool openmetrics)
{
	static const char *const kinds[] = { "counter", "gauge", "histogram" };
	char name[METRICS_NAME_MAX * 2];
	const char *suffix;
	int rc;

	snprintf(name, sizeof(name), "%s%s", metric_prefix(x), x->name);
	/* a family's name has no _total in OpenMetrics, and has it in 0.0.4 */
	suffix = x->kind == METRICS_COUNTER && !openmetrics ? "_total" : "";
	rc = buf_printf(s->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name,
	    suffix, x->help, name, suffix, kinds[x->kind]);
	return rc == SP_OK ? metric_emit(s, x, name) : rc;
}

int
metrics_render(struct metrics *m, bool openmetrics, struct buf *out)
{
	struct metric_sink s = { .sample = metric_text_sample, .out = out };
	const struct metric *x;
	int rc = SP_OK;

	metrics_collect(m);
	STAILQ_FOREACH (x, &m->list, link)
		if (rc == SP_OK)
			rc = metric_render(&s, x, openmetrics);
	if (rc == SP_OK && openmetrics)
		rc = buf_add_str(out, "# EOF\n");
	return rc;
}

/* A key of JSON text: the series' name, its quotes escaped once more. */
static int
metric_json_sample(struct metric_sink *s, const char *name, const char *suffix,
    const char *labels, const char *le, const char *value)
{
	struct buf key = BUF_INIT(METRICS_SERIES_MAX);
	struct buf text = BUF_INIT(METRICS_SERIES_JSON_MAX);
	struct metric_sink plain = { .out = &key };
	struct jwrite w;
	int rc;

	rc = metric_text_sample(&plain, name, suffix, labels, le, "");
	if (rc != SP_OK)
		goto out;
	buf_truncate(&key, buf_len(&key) - 2); /* " \n" */
	jwrite_init(&w, &text);
	jwrite_string(&w, buf_view(&key));
	rc = jwrite_finish(&w);
	if (rc == SP_OK)
		rc = buf_printf(s->out, "%s\n%.*s: %s", s->comma ? "," : "",
		    VIEW_ARG(buf_view(&text)), value);
	s->comma = true;
out:
	buf_clear(&key);
	buf_clear(&text);
	return rc;
}

int
metrics_render_json(struct metrics *m, struct buf *out)
{
	struct metric_sink s = { .sample = metric_json_sample, .out = out };
	const struct metric *x;
	char name[METRICS_NAME_MAX * 2];
	int rc;

	metrics_collect(m);
	rc = buf_add_char(out, '{');
	STAILQ_FOREACH (x, &m->list, link) {
		snprintf(name, sizeof(name), "%s%s", metric_prefix(x), x->name);
		if (rc == SP_OK)
			rc = metric_emit(&s, x, name);
	}
	return rc == SP_OK ? buf_add_str(out, "\n}\n") : rc;
}
