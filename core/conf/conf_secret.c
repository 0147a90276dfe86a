/* Secrets: named in the text, their values put in later. */
#include "base/mem.h"
#include "conf/conf.h"
#include "conf/parse.h"

bool
conf_secret_is_env_name(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    c == '_' || (i > 0 && c >= '0' && c <= '9'))
			continue;
		return false;
	}
	return v.n > 0 && v.n <= 256;
}

int
conf_secret_parse(struct conf_parse *p, const struct conf_directive *row,
    struct view arg, struct conf_secret **out)
{
	struct conf *c = p->conf;
	struct conf_secret *s, **grown;
	int rc;

	s = conf_alloc(p, sizeof(*s));
	if (s == NULL)
		return SP_E_NOMEM;
	s->from_env = view_starts(arg, VIEW("env:"));
	if (s->from_env) {
		s->name = view_from(arg, 4);
		if (!conf_secret_is_env_name(s->name))
			return conf_error(p,
			    "\"%s\" names no environment variable; expected "
			    "env:NAME with letters, digits and \"_\"",
			    row->name);
	} else if (view_starts(arg, VIEW("file:")) && arg.n > 5) {
		rc = conf_type_path(p, view_from(arg, 5), &s->name);
		if (rc != 0)
			return rc;
	} else {
		/* Never echoed: it may be the secret itself. */
		return conf_error(p,
		    "\"%s\" holds a literal; expected env:NAME or file:PATH, "
		    "never the secret itself",
		    row->name);
	}
	grown =
	    conf_more(p, c->secrets, c->secrets_n, sizeof(void *), row->name);
	if (grown == NULL)
		return p->nomem ? SP_E_NOMEM : SP_E_CONF;
	c->secrets = grown;
	s->id = (unsigned)c->secrets_n;
	s->directive = row->name;
	s->pem = (row->flags & CONF_PEM) != 0;
	s->open = (row->flags & CONF_OPEN) != 0;
	s->min_bytes = row->min;
	s->roles = CONF_TO_REACTOR;
	s->file = p->node->file->name;
	s->line = p->node->line;
	c->secrets[c->secrets_n++] = s;
	*out = s;
	return 0;
}

/* One word that may stand in a header field: visible ASCII. */
static bool
is_word(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		if (v.p[i] <= 0x20 || v.p[i] >= 0x7f)
			return false;
	}
	return true;
}

void
conf_secret_clear(struct conf_secret *s)
{
	union {
		const char *borrowed;
		char *own;
	} mem = { .borrowed = s->value.p };

	/* The only writer is conf_secret_set(), with memory of its own. */
	if (mem.own != NULL)
		mem_free_zero(mem.own, s->value.n + 1);
	s->value = VIEW_NONE;
}

/* A line end that an editor leaves behind is no part of a word. */
static struct view
secret_trim(const struct conf_secret *s, struct view v)
{
	if (!s->pem && v.n > 0 && v.p[v.n - 1] == '\n')
		v.n--;
	if (!s->pem && v.n > 0 && v.p[v.n - 1] == '\r')
		v.n--;
	return v;
}

enum conf_secret_fault
conf_secret_fault(const struct conf_secret *s, struct view value)
{
	value = secret_trim(s, value);
	if (value.n == 0)
		return CONF_SECRET_EMPTY;
	if (s->pem)
		return memchr(value.p, '\0', value.n) != NULL
		    ? CONF_SECRET_BYTES
		    : CONF_SECRET_GOOD;
	if (!is_word(value))
		return CONF_SECRET_BYTES;
	return value.n < s->min_bytes ? CONF_SECRET_SHORT : CONF_SECRET_GOOD;
}

int
conf_secret_set(struct conf *c, unsigned id, struct view value)
{
	struct conf_secret *s;
	char *copy;

	if (id >= c->secrets_n)
		return SP_E_NOTFOUND;
	s = c->secrets[id];
	if (conf_secret_fault(s, value) != CONF_SECRET_GOOD)
		return SP_E_SYNTAX;
	value = secret_trim(s, value);
	copy = mem_strndup(value.p, value.n);
	if (copy == NULL)
		return SP_E_NOMEM;
	conf_secret_clear(s);
	s->value = view_of(copy, value.n);
	return 0;
}

static bool
is_same(const struct conf_secret *a, const struct conf_secret *b, bool by_value)
{
	if (by_value)
		return a->value.p != NULL && b->value.p != NULL &&
		    view_eq_secret(a->value, b->value);
	return a->from_env == b->from_env && view_eq(a->name, b->name);
}

bool
conf_secret_clash(const struct conf *c, bool by_value,
    const struct conf_secret **a, const struct conf_secret **b)
{
	size_t i, j;

	for (i = 1; i < c->secrets_n; i++) {
		*b = c->secrets[i];
		for (j = 0; j < i && (*b)->principal != NULL; j++) {
			*a = c->secrets[j];
			if ((*a)->principal != NULL &&
			    strcmp((*a)->principal, (*b)->principal) != 0 &&
			    is_same(*a, *b, by_value))
				return true;
		}
	}
	return false;
}
