#include <arpa/inet.h>
#include <stdio.h>

#include "base/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/hosts.h"

enum {
	LINES_MAX = 65536,
	LINE_BYTES = 1024,
	NAMES_MAX = 16384,
	LABEL_MAX = 63
};

struct hosts {
	struct hmap *names;
};

static const struct hosts_addrs localhost = { .v = {
	{ false, { 127, 0, 0, 1 } },
	{ true, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 } },
}, .n = 2 };

int
hosts_literal(struct view host, struct hosts_ip *out)
{
	char text[INET6_ADDRSTRLEN];
	bool brackets = false;

	if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']') {
		host = view_sub(host, 1, host.n - 2);
		brackets = true;
	}
	if (host.n == 0 || host.n >= sizeof(text) ||
	    memchr(host.p, '\0', host.n) != NULL)
		return SP_E_SYNTAX;
	memcpy(text, host.p, host.n);
	text[host.n] = '\0';
	memset(out, 0, sizeof(*out));
	if (!brackets && inet_pton(AF_INET, text, out->a) == 1)
		return 0;
	out->v6 = true;
	return inet_pton(AF_INET6, text, out->a) == 1 ? 0 : SP_E_SYNTAX;
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_label(struct view v)
{
	if (v.n == 0 || v.n > LABEL_MAX || v.p[0] == '-' || v.p[v.n - 1] == '-')
		return false;
	for (size_t i = 0; i < v.n; i++)
		if (!is_digit(v.p[i]) && !(v.p[i] >= 'a' && v.p[i] <= 'z') &&
		    v.p[i] != '-' && v.p[i] != '_')
			return false;
	return true;
}

/* Decimal, octal or "0x" and whatever follows. */
static bool
is_numeric(struct view v)
{
	if (v.n >= 2 && v.p[0] == '0' && v.p[1] == 'x')
		return true;
	for (size_t i = 0; i < v.n; i++)
		if (!is_digit(v.p[i]))
			return false;
	return true;
}

size_t
hosts_name(struct view host, char *out)
{
	struct view rest, label = VIEW_NONE;

	if (host.n > 1 && host.p[host.n - 1] == '.')
		host.n--;
	if (host.n == 0 || host.n > HOSTS_NAME_MAX)
		return 0;
	for (size_t i = 0; i < host.n; i++) {
		out[i] = host.p[i];
		if (out[i] >= 'A' && out[i] <= 'Z')
			out[i] = (char)(out[i] - 'A' + 'a');
	}
	if (out[host.n - 1] == '.')
		return 0;
	rest = view_of(out, host.n);
	while (view_split(&rest, '.', &label))
		if (!is_label(label))
			return 0;
	return is_numeric(label) ? 0 : host.n;
}

static int
hosts_add(struct hosts *h, struct view host, const struct hosts_ip *ip)
{
	char name[HOSTS_NAME_MAX];
	struct hosts_addrs *a;
	size_t n;
	int rc;

	n = hosts_name(host, name);
	if (n == 0)
		return 0; /* an alias that nobody can ask for */
	a = hmap_get(h->names, view_of(name, n));
	if (a == NULL) {
		a = mem_calloc(1, sizeof(*a));
		if (a == NULL)
			return SP_E_NOMEM;
		rc = hmap_add(h->names, view_of(name, n), a);
		if (rc != 0) {
			mem_free(a);
			return rc;
		}
	}
	if (a->n < HOSTS_ADDRS_MAX)
		a->v[a->n++] = *ip;
	return 0;
}

static int
hosts_line(struct hosts *h, char *line)
{
	struct view rest, word;
	struct hosts_ip ip;
	bool have = false;
	int rc;

	line[strcspn(line, "#\r\n")] = '\0';
	for (char *p = line; *p != '\0'; p++)
		if (*p == '\t')
			*p = ' ';
	rest = view_str(line);
	while (view_split(&rest, ' ', &word)) {
		if (word.n == 0)
			continue;
		if (!have) {
			if (hosts_literal(word, &ip) != 0)
				return 0;
			have = true;
			continue;
		}
		rc = hosts_add(h, word, &ip);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int
hosts_read(struct hosts *h, FILE *f)
{
	char line[LINE_BYTES];
	int rc = 0;

	for (int i = 0; i < LINES_MAX && rc == 0; i++) {
		if (fgets(line, sizeof(line), f) == NULL)
			return 0;
		rc = hosts_line(h, line);
	}
	if (rc != SP_E_NOMEM)
		log_warn("hosts: the file is too long, its end is not used");
	return rc == SP_E_NOMEM ? rc : 0;
}

struct hosts *
hosts_new(const char *path)
{
	struct hosts *h;
	FILE *f;
	int rc = 0;

	h = mem_calloc(1, sizeof(*h));
	if (h == NULL)
		return NULL;
	h->names = hmap_new(NAMES_MAX);
	if (h->names == NULL) {
		mem_free(h);
		return NULL;
	}
	f = fopen(path, "re");
	if (f != NULL) {
		rc = hosts_read(h, f);
		(void)fclose(f);
	}
	if (rc != 0) {
		hosts_free(h);
		return NULL;
	}
	return h;
}

void
hosts_free(struct hosts *h)
{
	struct view name;
	size_t pos = 0;
	void *val;

	if (h == NULL)
		return;
	while (hmap_next(h->names, &pos, &name, &val))
		mem_free(val);
	hmap_free(h->names);
	mem_free(h);
}

const struct hosts_addrs *
hosts_get(const struct hosts *h, struct view name)
{
	const struct hosts_addrs *a = hmap_get(h->names, name);

	if (a != NULL)
		return a;
	if (view_eq(name, VIEW("localhost")) ||
	    view_ends(name, VIEW(".localhost")))
		return &localhost;
	return NULL;
}
