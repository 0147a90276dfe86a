#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "helper/complain.h"
#include "helper/secrets.h"
#include "os/fd.h"

static int
secrets_bad(const struct conf_secret *cs, const char *what)
{
	complain("%s:%u: secret %s:%.*s %s", cs->file, cs->line,
	    cs->from_env ? "env" : "file", VIEW_ARG(cs->name), what);
	return SP_E_CONF;
}

/* The variable's value within environ, or NULL. */
static char *
secrets_environ(struct view name)
{
	char **e;

	for (e = environ; e != NULL && *e != NULL; e++)
		if (strncmp(*e, name.p, name.n) == 0 && (*e)[name.n] == '=')
			return *e + name.n + 1;
	return NULL;
}

/* What was read before: the variable itself is cleared by then. */
static const struct secrets_env *
secrets_kept(const struct secrets *s, struct view name)
{
	size_t i;

	for (i = 0; i < s->env_n; i++)
		if (view_eq(view_str(s->env[i].name), name))
			return &s->env[i];
	return NULL;
}

static int
secrets_keep(struct secrets *s, struct view name, struct view value)
{
	struct secrets_env *grown, *e;

	grown = mem_reallocarray(s->env, s->env_n + 1, sizeof(*grown));
	if (grown == NULL)
		return SP_E_NOMEM;
	s->env = grown;
	e = &grown[s->env_n];
	e->name = mem_strndup(name.p, name.n);
	e->value.p = mem_strndup(value.p, value.n);
	e->value.n = value.n;
	if (e->name == NULL || e->value.p == NULL) {
		mem_free(e->name);
		if (e->value.p != NULL)
			mem_free_zero(e->value.p, value.n);
		return SP_E_NOMEM;
	}
	s->env_n++;
	return SP_OK;
}

static int
secrets_read_env(struct secrets *s, const struct conf_secret *cs,
    struct buf *out)
{
	const struct secrets_env *kept = secrets_kept(s, cs->name);
	const char *value = secrets_environ(cs->name);
	int rc;

	if (kept != NULL)
		return buf_add(out, kept->value.p, kept->value.n);

	if (value == NULL || value[0] == 0)
		return secrets_bad(cs,
		    "is not set in the environment; expected the variable to "
		    "hold the secret");
	rc = buf_add_str(out, value);
	if (rc == SP_E_LIMIT)
		return secrets_bad(cs,
		    "is too long; expected at most 16000 bytes");
	return rc == SP_OK ? secrets_keep(s, cs->name, view_str(value)) : rc;
}

/*
 * The file may be named by a symlink, as Kubernetes mounts them.  Safe against
 * whoever can write near it: what is read must belong to root or to us and be
 * writable by no one else, so nobody can choose a key for us; it is a regular
 * file, and opening it waits for nothing.
 */
static int
secrets_check_file(const struct conf_secret *cs, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return secrets_bad(cs, "cannot be examined");
	if (!S_ISREG(st.st_mode))
		return secrets_bad(cs, "is not a regular file");
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return secrets_bad(cs,
		    "belongs to another user; expected root or the user that "
		    "starts sallyport");
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return secrets_bad(cs,
		    "can be written by others; expected mode 0600 or 0640");
	if ((st.st_mode & S_IROTH) && !cs->open)
		log_warn("%s:%u: secret file:%.*s can be read by everyone; "
			 "better mode 0600",
		    cs->file, cs->line, VIEW_ARG(cs->name));
	return SP_OK;
}

static int
secrets_read_file(const struct conf_secret *cs, struct buf *out)
{
	char *path = mem_strndup(cs->name.p, cs->name.n);
	int fd, rc;

	if (path == NULL)
		return SP_E_NOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	mem_free(path);
	if (fd < 0)
		return secrets_bad(cs,
		    errno == ENOENT ? "does not exist" : "cannot be opened");
	rc = secrets_check_file(cs, fd);
	if (rc == SP_OK) {
		rc = fd_read_all(fd, out);
		if (rc == SP_E_LIMIT)
			rc = secrets_bad(cs,
			    "is too long; expected at most 16000 bytes");
		else if (rc != SP_OK && rc != SP_E_NOMEM)
			rc = secrets_bad(cs, "cannot be read");
	}
	fd_close(&fd);
	return rc;
}

/* What is wrong with it, and never the value. */
static int
secrets_fault(const struct conf_secret *cs, struct view v)
{
	switch (conf_secret_fault(cs, v)) {
	case CONF_SECRET_EMPTY:
		return secrets_bad(cs, "is empty");
	case CONF_SECRET_SHORT:
		complain("%s:%u: secret %s:%.*s is shorter than %zu characters",
		    cs->file, cs->line, cs->from_env ? "env" : "file",
		    VIEW_ARG(cs->name), cs->min_bytes);
		return SP_E_CONF;
	case CONF_SECRET_BYTES:
		return secrets_bad(cs,
		    cs->pem ? "has NUL bytes in it; expected PEM text"
			    : "has spaces, control bytes or bytes beyond ASCII "
			      "in it; expected one word");
	case CONF_SECRET_GOOD:
	default:
		return secrets_bad(cs, "is no use as a secret");
	}
}

static int
secrets_read_one(struct secrets *s, struct conf *conf, struct conf_secret *cs)
{
	struct buf value = BUF_INIT(SECRETS_VALUE_MAX);
	struct view v;
	int rc;

	rc = cs->from_env ? secrets_read_env(s, cs, &value)
			  : secrets_read_file(cs, &value);
	v = buf_view(&value);
	if (rc == SP_OK) {
		/* the same check that the roles make */
		rc = conf_secret_set(conf, cs->id, v);
		if (rc == SP_E_SYNTAX)
			rc = secrets_fault(cs, v);
	}
	if (rc == SP_OK) {
		s->values[cs->id].p = mem_strndup(v.p, v.n);
		s->values[cs->id].n = v.n;
		if (s->values[cs->id].p == NULL)
			rc = SP_E_NOMEM;
	}
	if (value.mem != NULL)
		mem_zero(value.mem, value.cap);
	buf_clear(&value);
	return rc;
}

static int
secrets_inherit(struct secrets *s, const struct secrets *before)
{
	size_t i;
	int rc = SP_OK;

	for (i = 0; before != NULL && i < before->env_n && rc == SP_OK; i++)
		rc = secrets_keep(s, view_str(before->env[i].name),
		    view_of(before->env[i].value.p, before->env[i].value.n));
	return rc;
}

/* No value is told, nor which of them: who asks may have read only one. */
static int
secrets_differ(const struct conf *conf)
{
	const struct conf_secret *a, *b;

	if (!conf_secret_clash(conf, true, &a, &b))
		return SP_OK;
	complain("%s:%u: token of the %s is the same as that of the %s at "
		 "%s:%u; expected a different one for each principal",
	    b->file, b->line, b->principal, a->principal, a->file, a->line);
	return SP_E_CONF;
}

/* Words like EMPTY stand in answers, too: such a key is no secret there. */
static void
secrets_tell_short(const struct conf *conf)
{
	const struct conf_secret *key;
	size_t i;

	for (i = 0; i < conf->upstreams_n; i++) {
		key = conf->upstreams[i]->api_key;
		if (key != NULL && key->value.n < CONF_KEY_MASKED_MIN)
			log_warn("%s:%u: upstream \"%.*s\": api_key is shorter "
				 "than %d characters: answers and traces that "
				 "quote it are left as they are",
			    key->file, key->line,
			    VIEW_ARG(conf->upstreams[i]->name),
			    CONF_KEY_MASKED_MIN);
	}
}

int
secrets_read(struct secrets *s, struct conf *conf, const struct secrets *before)
{
	struct conf_secret *cs;
	size_t i;
	char *value;
	int rc, worst;

	memset(s, 0, sizeof(*s));
	worst = secrets_inherit(s, before);
	if (conf->secrets_n == 0 || worst != SP_OK)
		return worst;
	s->values = mem_calloc(conf->secrets_n, sizeof(*s->values));
	if (s->values == NULL)
		return SP_E_NOMEM;
	s->n = conf->secrets_n;
	for (i = 0; i < conf->secrets_n; i++) {
		rc = secrets_read_one(s, conf, conf->secrets[i]);
		if (rc != SP_OK && worst != SP_E_NOMEM)
			worst = rc;
	}
	if (worst == SP_OK)
		worst = secrets_differ(conf);
	if (worst == SP_OK)
		secrets_tell_short(conf);
	/* after all, as two may name one variable; also in /proc/PID/environ */
	for (i = 0; i < conf->secrets_n; i++) {
		cs = conf->secrets[i];
		value = cs->from_env ? secrets_environ(cs->name) : NULL;
		if (value != NULL)
			mem_zero(value, strlen(value));
	}
	return worst;
}

void
secrets_clear(struct secrets *s)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (s->values[i].p != NULL)
			mem_free_zero(s->values[i].p, s->values[i].n);
	mem_free(s->values);
	for (i = 0; i < s->env_n; i++) {
		mem_free_zero(s->env[i].value.p, s->env[i].value.n);
		mem_free(s->env[i].name);
	}
	mem_free(s->env);
	memset(s, 0, sizeof(*s));
}
