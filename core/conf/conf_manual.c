/* The reference of all directives, as mdoc(7). */
#include "conf/core_conf.h"
#include "conf/parse.h"

/* A metavariable is all upper case: ADDRESS, IPV6-ADDRESS, A:B. */
static bool
is_meta(struct view v)
{
	size_t i;

	for (i = 0; i < v.n; i++) {
		char c = v.p[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
		    c != '-' && c != ':')
			return false;
	}
	return v.n > 0;
}

/* NAME=NUMBER: its two parts. */
static int
put_pair(struct buf *out, struct view word, size_t eq)
{
	struct view name = view_sub(word, 0, eq);
	struct view value = view_from(word, eq + 1);

	return buf_printf(out, " %s %.*s Ns = Ns Ar %.*s",
	    is_meta(name) ? "Ar" : "Cm", VIEW_ARG(name), VIEW_ARG(value));
}

static int
put_word(struct buf *out, struct view word)
{
	size_t eq = view_find(word, '=');

	if (view_eq(word, VIEW("[")))
		return buf_add_str(out, " Oo");
	if (view_eq(word, VIEW("]")))
		return buf_add_str(out, " Oc");
	if (view_eq(word, VIEW("|")))
		return buf_add_str(out, " |");
	if (view_eq(word, VIEW("...")))
		return buf_add_str(out, " ...");
	if (eq < word.n)
		return put_pair(out, word, eq);
	return buf_printf(out, " %s %.*s", is_meta(word) ? "Ar" : "Cm",
	    VIEW_ARG(word));
}

static int
put_args(struct buf *out, const char *args)
{
	struct view rest = view_str(args), word;
	int rc = 0;

	while (rc == 0 && view_split(&rest, ' ', &word))
		rc = put_word(out, word);
	return rc;
}

/* "Where: main, server." and the default. */
static int
put_facts(struct buf *out, const struct conf_directive *row)
{
	struct buf where = BUF_INIT(256);
	int rc;

	conf_lookup_scopes(row->scopes, &where);
	if (buf_len(&where) == 0) {
		rc = SP_E_NOMEM;
		goto out;
	}
	rc = buf_printf(out, "Stands in: %.*s.\n", VIEW_ARG(buf_view(&where)));
	if (rc == 0 && row->def_doc != NULL)
		rc = buf_printf(out, "Default: %s.\n", row->def_doc);
	else if (rc == 0 && row->def != NULL)
		rc = buf_printf(out, "Default:\n.Ql %s .\n", row->def);
	if (rc == 0 && (row->flags & CONF_REQUIRED) != 0)
		rc = buf_add_str(out, "Required.\n");
	if (rc == 0 && (row->flags & CONF_REPEATS) != 0)
		rc = buf_add_str(out, "May stand more than once.\n");
	if (rc == 0 && (row->flags & CONF_INHERITS) != 0)
		rc = buf_add_str(out,
		    "Where it is not set, the outer block's holds.\n");
	if (rc == 0 && (row->flags & CONF_RESTART) != 0)
		rc = buf_add_str(out, "A change needs a restart.\n");
out:
	buf_clear(&where);
	return rc;
}

static int
put_row(struct buf *out, const struct conf_directive *row)
{
	int rc;

	rc = buf_printf(out, ".It Ic %s", row->name);
	if (rc == 0 && row->args != NULL)
		rc = put_args(out, row->args);
	if (rc == 0 && (row->flags & CONF_PLAIN_TOO) != 0)
		rc = buf_add_str(out, " Op Brq ...");
	else if (rc == 0 && row->type == CONF_BLOCK)
		rc = buf_add_str(out, " Brq ...");
	if (rc == 0)
		rc = buf_printf(out, "\n%s\n.Pp\n", row->doc);
	return rc == 0 ? put_facts(out, row) : rc;
}

static int
put_rows(struct buf *out, const char *title, const struct conf_directive *rows)
{
	int rc;

	rc = buf_printf(out, ".Ss %s\n.Bl -tag -width Ds\n", title);
	for (; rows->name != NULL && rc == 0; rows++)
		rc = put_row(out, rows);
	return rc == 0 ? buf_add_str(out, ".El\n") : rc;
}

int
conf_manual(struct buf *out)
{
	size_t i;
	int rc = 0;

	for (i = 0; conf_lookup_owners[i].rows != NULL && rc == 0; i++)
		rc = put_rows(out, conf_lookup_owners[i].title,
		    conf_lookup_owners[i].rows);
	for (i = 0; i < CONF_MODULES_MAX && conf_modules[i] != NULL && rc == 0;
	     i++)
		rc = put_rows(out, conf_modules[i]->name,
		    conf_modules[i]->directives);
	return rc;
}
