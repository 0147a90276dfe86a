/*
 * cgroup.h by hand, for t/sandbox-cgroup.t: a command a line on standard
 * input, an answer a line on standard output, first the SP_E_* number.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "os/cgroup.h"

static struct cgroup_root root;
static struct cgroup leaf;

static int
number(const char *text)
{
	return (int)strtol(text, NULL, 10);
}

static int
do_open(const char *path)
{
	struct buf why = BUF_INIT(4096);
	size_t i;
	int h, rc;

	rc =
	    cgroup_root_open(&root, strcmp(path, "-") == 0 ? NULL : path, &why);
	for (i = 0; i < buf_len(&why); i++)
		if (why.mem[why.off + i] == '\n')
			why.mem[why.off + i] = ';';
	printf("%d", rc);
	for (h = 0; h < CGROUP_HIERARCHIES; h++)
		printf(" %s:%.*s", root.v1[h] ? "v1" : "v2",
		    root.fd[h] < 0 ? 0 : (int)buf_len(&root.path[h]),
		    buf_view(&root.path[h]).p ? buf_view(&root.path[h]).p : "");
	printf(" | %.*s\n", VIEW_ARG(buf_view(&why)));
	buf_clear(&why);
	return rc;
}

static void
do_make(const char *name, unsigned long a, unsigned long b, unsigned long c)
{
	struct cgroup_limits l = { a, b, c };
	const char *what = "";
	int rc;

	rc = cgroup_make(&leaf, root.fd, root.v1, name, &l, &what);
	printf("%d %s\n", rc, what);
}

static void
do_usage(void)
{
	struct cgroup_usage u;
	int rc = cgroup_usage(&leaf, &u);

	printf("%d %d %d %d %llu %llu %llu %llu %llu\n", rc, u.has_cpu,
	    u.has_memory, u.has_pids, (unsigned long long)u.cpu_us,
	    (unsigned long long)u.memory_bytes,
	    (unsigned long long)u.memory_peak_bytes, (unsigned long long)u.pids,
	    (unsigned long long)u.oom_kills);
}

static void
do_procs(void)
{
	int pids[4096], rc;
	size_t i, n = 0;

	rc = cgroup_processes(&leaf, pids, 4096, &n);
	printf("%d", rc);
	for (i = 0; i < n; i++)
		printf(" %d", pids[i]);
	printf("\n");
}

static void
obey(const char *verb, const char *arg, unsigned long a, unsigned long b,
    unsigned long c)
{
	uint32_t left = 0;
	uint64_t start = clock_ms();
	int rc;

	if (strcmp(verb, "open") == 0) {
		(void)do_open(arg);
	} else if (strcmp(verb, "make") == 0) {
		do_make(arg, a, b, c);
	} else if (strcmp(verb, "leaf") == 0) {
		printf("%d\n", cgroup_open(&leaf, root.fd, root.v1, arg));
	} else if (strcmp(verb, "close") == 0) {
		cgroup_close(&leaf);
		printf("0\n");
	} else if (strcmp(verb, "enter") == 0) {
		printf("%d\n", cgroup_enter(&leaf, number(arg), a != 0));
	} else if (strcmp(verb, "adopt") == 0) {
		printf("%d\n", cgroup_root_adopt(&root, number(arg)));
	} else if (strcmp(verb, "kill") == 0) {
		printf("%d\n", cgroup_kill(&leaf));
	} else if (strcmp(verb, "wait") == 0) {
		rc = cgroup_wait_empty(&leaf, strtoul(arg, NULL, 10), &left);
		printf("%d %u %llu\n", rc, left,
		    (unsigned long long)(clock_ms() - start));
	} else if (strcmp(verb, "freeze") == 0) {
		printf("%d\n", cgroup_freeze(&leaf, number(arg) != 0, a));
	} else if (strcmp(verb, "remove") == 0) {
		printf("%d\n", cgroup_remove(root.fd, arg, a));
	} else if (strcmp(verb, "usage") == 0) {
		do_usage();
	} else if (strcmp(verb, "procs") == 0) {
		do_procs();
	} else {
		printf("? %s\n", verb);
	}
}

int
main(void)
{
	char line[512], verb[32], arg[256];
	unsigned long a, b, c;
	int h;

	for (h = 0; h < CGROUP_HIERARCHIES; h++)
		root.fd[h] = leaf.fd[h] = -1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		verb[0] = arg[0] = 0;
		a = b = c = 0;
		(void)!sscanf(line, "%31s %255s %lu %lu %lu", verb, arg, &a, &b,
		    &c);
		obey(verb, arg, a, b, c);
	}
	cgroup_close(&leaf);
	cgroup_root_clear(&root);
	return 0;
}
