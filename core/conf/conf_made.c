/* What a manifest gives a block, and what is written beside it. */
#include "conf/parse.h"

enum how {
	REPLACED, /* what is written stands in its place */
	ADDED, /* both hold, but for words that are written, too */
	JOINED, /* their lines make one block */
};

struct rule {
	const char *name;
	enum how how;
	size_t key; /* arguments, with the name, that must be the same */
};

static const struct rule rules[] = {
	{ "allow", ADDED, 1 },
	{ "assets", JOINED, 1 },
	{ "egress", JOINED, 1 },
	{ "env", ADDED, 1 },
	{ "inside", REPLACED, 2 },
	{ "process", REPLACED, 2 },
	{ "read_only", ADDED, 1 },
	{ "sandbox", JOINED, 1 },
};
static const struct rule other = { NULL, REPLACED, 1 };

static const struct rule *
rule_of(const struct conf_node *made)
{
	size_t i;

	for (i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (view_eq(made->args[0], view_str(rules[i].name)))
			return &rules[i];
	return &other;
}

static bool
is(const struct conf_node *node, const char *name, const char *value)
{
	return view_eq(node->args[0], view_str(name)) &&
	    (value == NULL ||
		(node->n > 1 && view_eq(node->args[1], view_str(value))));
}

static bool
same(const struct conf_node *a, const struct conf_node *b, size_t key)
{
	size_t i;

	for (i = 0; i < key; i++)
		if (i >= a->n || i >= b->n || !view_eq(a->args[i], b->args[i]))
			return false;
	return true;
}

/* A variable is the same whatever its value, any other word as a whole. */
static bool
same_word(const struct conf_node *made, struct view a, struct view b)
{
	if (is(made, "env", NULL)) {
		a = view_sub(a, 0, view_find(a, '='));
		b = view_sub(b, 0, view_find(b, '='));
	}
	return view_eq(a, b);
}

/* Takes the words out of it that are written; true: none are left. */
static bool
thin(struct conf_node *made, const struct conf_node *own)
{
	size_t i, j, n = 1;

	if (is(made, "allow", NULL))
		return false; /* its words are one rule */
	for (i = 1; i < made->n; i++) {
		for (j = 1; j < own->n; j++)
			if (same_word(made, made->args[i], own->args[j]))
				break;
		if (j == own->n)
			made->args[n++] = made->args[i];
	}
	made->n = n;
	return n == 1;
}

static void
append(struct conf_node **list, struct conf_node *more)
{
	while (*list != NULL)
		list = &(*list)->next;
	*list = more;
}

/* What cannot be had beside what is written, under another name. */
static bool
is_excluded(const struct conf_node *made, const struct conf_node *own)
{
	if (is(own, "rootfs", NULL))
		return is(made, "read_only", NULL);
	return is(own, "enforcement", "local") &&
	    (is(made, "require", NULL) || is(made, "inside", NULL));
}

/* One line of the manifest and one that is written; true: it goes. */
static bool
meet(struct conf_node *made, struct conf_node *own)
{
	const struct rule *rule = rule_of(made);

	if (is_excluded(made, own))
		return true;
	if (!same(made, own, rule->key))
		return false;
	if (rule->how == ADDED)
		return thin(made, own);
	if (rule->how == JOINED && own->block) {
		append(&own->child, made->child);
		conf_made_join(&own->child);
	}
	return true;
}

void
conf_made_join(struct conf_node **list)
{
	struct conf_node **at = list, *own;
	bool gone;

	while (*at != NULL) {
		gone = false;
		for (own = *list; (*at)->file->made && own != NULL && !gone;
		     own = own->next)
			gone = !own->file->made && meet(*at, own);
		if (gone)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
}
