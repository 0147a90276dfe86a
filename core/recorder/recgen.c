#include "config.h"

#include <fcntl.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/fd.h"
#include "recorder/recgen.h"

/* Stands for a capture that is no more: it has no directory. */
static const struct conf_capture gone = { .level = CONF_LEVEL_TEXT,
	.turn_max_bytes = 65536 };

void
recgens_init(struct recgens *g, struct store *store)
{
	*g = (struct recgens){ .store = store };
	LIST_INIT(&g->list);
}

static void
free_one(struct recgen *n)
{
	LIST_REMOVE(n, link);
	store_drop(n->of->store, n->conf);
	conf_free(n->conf);
	mem_free(n);
}

void
recgens_clear(struct recgens *g)
{
	struct recgen *n;

	g->store->conf = NULL;
	while ((n = LIST_FIRST(&g->list)) != NULL)
		free_one(n);
	g->current = g->next = NULL;
}

/* Frees it when nothing keeps it. */
static void
settle(struct recgen *n)
{
	if (n->refs == 0 && n->ended && n != n->of->current && n != n->of->next)
		free_one(n);
}

static struct recgen *
add(struct recgens *g, uint32_t number, struct conf *conf)
{
	struct recgen *n = mem_calloc(1, sizeof(*n));

	if (n == NULL) {
		conf_free(conf);
		return NULL;
	}
	n->of = g;
	n->number = number;
	n->conf = conf;
	LIST_INSERT_HEAD(&g->list, n, link);
	return n;
}

int
recgen_first(struct recgens *g, uint32_t number, struct conf *conf)
{
	g->current = add(g, number, conf);
	return g->current != NULL ? 0 : SP_E_NOMEM;
}

/*
 * Landlock tells: what lies outside can be held, but nothing in it opened.
 * What is in use already was let in at the start.
 */
static int
check_dir(const struct recgens *g, const struct conf_capture *c, int fd,
    struct buf *err)
{
	int probe, rc;

	if (store_has_dir(g->store, fd))
		return 0;
	rc = fd_open_beneath(fd, ".", O_RDONLY | O_DIRECTORY, 0, &probe);
	if (rc == 0) {
		fd_close(&probe);
		return 0;
	}
	if (rc != SP_E_DENIED)
		return rc;
	rc = buf_printf(err,
	    "%s:%u: capture \"%.*s\": trace directory \"%.*s\" lies outside "
	    "those that the recorder was confined to at its start; restart "
	    "sallyport, or put it beneath the traces of state_dir",
	    c->pos.file, c->pos.line, VIEW_ARG(c->name),
	    VIEW_ARG(c->trace_dir));
	return rc == 0 ? SP_E_DENIED : rc;
}

static int
add_dir(struct recgens *g, const struct conf *conf, struct role_fd *dir,
    struct buf *err)
{
	const struct conf_capture *c;
	int fd, rc;

	if (dir->index >= conf->captures_n)
		return SP_E_PROTO;
	c = conf->captures[dir->index];
	rc = check_dir(g, c, dir->fd, err);
	if (rc != 0)
		return rc;
	fd = dir->fd;
	dir->fd = -1;
	rc = store_add_dir(g->store, c, &fd);
	return rc == 0
	    ? signer_publish(g->store->signer, fd, store_mode(g->store))
	    : rc;
}

int
recgen_prepare(struct recgens *g, struct role *from, struct buf *err)
{
	const struct conf_defaults defaults = { "/", "/", "/" };
	struct conf *conf = NULL;
	size_t i;
	int rc;

	if (g->next != NULL)
		return SP_E_STATE;
	rc = conf_parse(buf_view(&from->conf), &defaults, &conf, err);
	if (rc != 0)
		return rc;
	g->next = add(g, from->generation, conf);
	if (g->next == NULL)
		return SP_E_NOMEM;
	for (i = 0; i < from->trace_dirs_n && rc == 0; i++)
		rc = add_dir(g, conf, &from->trace_dirs[i], err);
	if (rc != 0)
		recgen_abandon(g);
	return rc;
}

int
recgen_commit(struct recgens *g, uint32_t number)
{
	struct recgen *before = g->current;

	if (g->next == NULL || g->next->number != number)
		return SP_E_STATE;
	g->current = g->next;
	g->next = NULL;
	g->store->conf = g->current->conf;
	log_set_level((enum log_level)g->current->conf->main.error_level);
	if (before != NULL)
		settle(before);
	return 0;
}

void
recgen_abandon(struct recgens *g)
{
	struct recgen *n = g->next;

	g->next = NULL;
	if (n == NULL)
		return;
	n->ended = true;
	settle(n);
}

static struct recgen *
known(const struct recgens *g, uint32_t number)
{
	struct recgen *n;

	LIST_FOREACH (n, &g->list, link)
		if (n->number == number)
			return n;
	return NULL;
}

int
recgen_find(struct recgens *g, uint32_t number, struct view name,
    struct recgen **out, const struct conf_capture **capture)
{
	struct recgen *n = known(g, number);
	bool exact = n != NULL;
	size_t i;

	if (n == NULL)
		n = g->current;
	*capture = exact ? NULL : &gone;
	for (i = 0; i < n->conf->captures_n; i++)
		if (view_eq(n->conf->captures[i]->name, name))
			*capture = n->conf->captures[i];
	if (*capture == NULL)
		return SP_E_PROTO;
	n->refs++;
	*out = n;
	return 0;
}

void
recgen_unref(struct recgen *n)
{
	if (n == NULL)
		return;
	err_assert(n->refs > 0);
	n->refs--;
	settle(n);
}

void
recgen_end(struct recgens *g, uint32_t number)
{
	struct recgen *n = known(g, number);

	if (n == NULL)
		return;
	n->ended = true;
	settle(n);
}

void
recgen_end_old(struct recgens *g)
{
	struct recgen *n, *next;

	for (n = LIST_FIRST(&g->list); n != NULL; n = next) {
		next = LIST_NEXT(n, link);
		if (n == g->current || n == g->next)
			continue;
		n->ended = true;
		settle(n);
	}
}
