#include "sm_script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "sm_render.h"

enum { SCRIPT_MAX = 256 * 1024 * 1024 };

struct turn {
	const struct sm_json *json;
	const struct sm_json *match;
	struct view name;
	uint64_t left; /* UINT64_MAX: for ever */
};

struct sm_script {
	struct arena *a;
	struct sm_json *root;
	struct turn *turns;
	size_t turns_n;
};

static int
read_file(const char *path, struct buf *b)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;
	int rc;

	if (fd < 0)
		return err_from_errno(errno);
	do {
		rc = buf_reserve(b, 65536);
		if (rc != 0)
			break;
		n = read(fd, buf_tail(b), 65536);
		if (n < 0 && errno != EINTR)
			rc = err_from_errno(errno);
		if (n > 0)
			buf_grow(b, (size_t)n);
	} while (rc == 0 && n != 0);
	close(fd);
	return rc;
}

static int
load_turn(const char *path, struct turn *t, const struct sm_json *j, size_t i)
{
	const char *fault = sm_render_check(j);
	int64_t repeat;

	if (fault != NULL) {
		fprintf(stderr, "scripted-model: %s: turn %zu: %s\n", path,
		    i + 1, fault);
		return SP_E_SYNTAX;
	}
	t->json = j;
	t->match = sm_json_get(j, "match");
	t->name = sm_json_string(j, "name");
	repeat = sm_json_int(j, "repeat",
	    t->match == NULL && t->name.n == 0 ? 1 : 0);
	t->left = repeat > 0 ? (uint64_t)repeat : UINT64_MAX;
	return 0;
}

static int
load_turns(struct sm_script *s, const char *path)
{
	const struct sm_json *list = sm_json_get(s->root, "turns");
	const struct sm_json *j;
	size_t n = 0, i = 0;
	int rc = 0;

	if (!sm_json_is(list, SM_JSON_ARRAY)) {
		fprintf(stderr,
		    "scripted-model: %s: an object with an array \"turns\" "
		    "was expected\n",
		    path);
		return SP_E_SYNTAX;
	}
	for (j = list->child; j != NULL; j = j->next)
		n++;
	s->turns = mem_calloc(n > 0 ? n : 1, sizeof(*s->turns));
	if (s->turns == NULL)
		return SP_E_NOMEM;
	s->turns_n = n;
	for (j = list->child; j != NULL && rc == 0; j = j->next, i++)
		rc = load_turn(path, &s->turns[i], j, i);
	return rc;
}

int
sm_script_load(const char *path, struct sm_script **out)
{
	struct sm_script *s = mem_calloc(1, sizeof(*s));
	struct buf b = BUF_INIT(SCRIPT_MAX);
	char why[200] = "";
	int rc;

	*out = NULL;
	if (s == NULL)
		return SP_E_NOMEM;
	rc = read_file(path, &b);
	if (rc == 0) {
		s->a = arena_new(buf_len(&b) * 100 + (1 << 20));
		rc = s->a == NULL ? SP_E_NOMEM
				  : sm_json_parse(s->a, buf_view(&b), &s->root,
					why, sizeof(why));
	}
	buf_clear(&b);
	if (rc != 0)
		fprintf(stderr, "scripted-model: %s: %s\n", path,
		    why[0] ? why : err_str(rc));
	else
		rc = load_turns(s, path);
	if (rc != 0) {
		sm_script_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void
sm_script_free(struct sm_script *s)
{
	if (s == NULL)
		return;
	arena_free(s->a);
	mem_free(s->turns);
	mem_free(s);
}

const struct sm_json *
sm_script_root(const struct sm_script *s)
{
	return s->root;
}

static const struct sm_json *
use(struct turn *t)
{
	if (t->left != UINT64_MAX)
		t->left--;
	return t->json;
}

/* By name where the call names a script, else by what matches. */
static struct turn *
find_chosen(struct sm_script *s, const struct sm_ask *ask)
{
	size_t i;

	for (i = 0; i < s->turns_n; i++) {
		struct turn *t = &s->turns[i];

		if (t->left == 0 || (t->name.n > 0) != (ask->script.n > 0))
			continue;
		if (t->name.n > 0 && !view_eq(t->name, ask->script))
			continue;
		if (t->name.n == 0 && t->match == NULL)
			continue;
		if (sm_ask_match(ask, t->match))
			return t;
	}
	return NULL;
}

const struct sm_json *
sm_script_pick(struct sm_script *s, const struct sm_ask *ask, bool *exhausted)
{
	struct view then = sm_json_string(s->root, "then");
	struct turn *t = find_chosen(s, ask), *last = NULL;
	size_t i;

	*exhausted = false;
	if (t != NULL)
		return use(t);
	for (i = 0; i < s->turns_n; i++) {
		t = &s->turns[i];
		if (t->match != NULL || t->name.n > 0)
			continue;
		if (t->left > 0)
			return use(t);
		last = t;
	}
	if (view_eq(then, VIEW("error")))
		*exhausted = true;
	if (last != NULL && (then.p == NULL || view_eq(then, VIEW("last"))))
		return last->json;
	return NULL;
}
