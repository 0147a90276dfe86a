#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/ctl_record.h"
#include "ctl/ctl_verify.h"
#include "os/fd.h"
#include "recorder/tail.h"
#include "recorder/trace.h"

enum { SEAL_MAX_BYTES = 1024 * 1024, NAME_BYTES = 512 };

struct walk {
	struct ctl_verify *v;
	struct chain_sum sum;
	uint64_t sealed_bytes; /* the seal speaks of so many */
	struct chain_link last; /* of the last line of those */
	int rc;
};

static void
broken(struct ctl_verify *v, const char *why)
{
	if (v->broken_line != 0)
		return;
	v->broken_line = v->lines;
	v->why = why;
}

/* Counts what the seal speaks of: a session may have gone on behind it. */
static void
count_line(struct walk *w, const struct chain_link *link, size_t n)
{
	if (w->sum.bytes + n + 1 > w->sealed_bytes)
		return;
	chain_sum_line(&w->sum, link, n + 1);
	w->last = *link;
}

static int
take_record(struct ctl_verify *v, struct view line)
{
	struct ctl_record r;

	if (ctl_record_read(&r, line) != 0)
		return 0;
	if (view_eq(ctl_record_get(r.v[CTL_METADATA], VIEW("has_tools")),
		VIEW("true")))
		v->any_tools = true;
	return ctl_missing_add(&v->missing, &r);
}

static int
take_line(void *arg, struct view line)
{
	struct walk *w = arg;
	struct ctl_verify *v = w->v;
	struct chain_link link;
	struct ctl_record r;
	int rc;

	chain_zero(link.prev);
	chain_zero(link.hash);
	rc = chain_check(line, &link);

	v->lines++;
	if (rc == SP_E_SYNTAX)
		broken(v, "it does not end in prev and hash");
	else if (rc == SP_E_DENIED)
		broken(v, "its bytes are not those that were hashed");
	else if (rc == 0 && v->lines > 1 &&
	    strcmp(link.prev, v->last.hash) != 0)
		broken(v, "it does not follow the line before");
	else if (rc == 0 && ctl_record_read(&r, line) != 0)
		broken(v, "it is not JSON");
	if (rc == SP_E_NOMEM)
		return rc;
	if (rc == 0) {
		if (v->lines == 1)
			v->first = link;
		v->last = link;
		rc = take_record(v, line);
	}
	count_line(w, &link, line.n);
	return rc == SP_E_NOMEM ? rc : 0;
}

static int
open_in(int dir, const char *name, int *fd)
{
	*fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return *fd >= 0 ? 0 : SP_E_NOTFOUND;
}

static int
read_small(int dir, const char *name, struct buf *out)
{
	int fd, rc = open_in(dir, name, &fd);

	if (rc != 0)
		return rc;
	rc = fd_read_all(fd, out);
	fd_close(&fd);
	return rc;
}

/* A public key beside the traces, the present one or one of before. */
static bool
key_is_known(int dir, const uint8_t key[SIGN_KEY_BYTES])
{
	struct buf pem = BUF_INIT(4096);
	uint8_t pub[SIGN_KEY_BYTES];
	char name[64];
	bool known = false;
	int i;

	(void)snprintf(name, sizeof(name), "%s", SIGNER_PUB_FILE);
	for (i = 0; i < 2 && !known; i++) {
		known = read_small(dir, name, &pem) == 0 &&
		    signer_parse_pem(buf_view(&pem), pub) == 0 &&
		    memcmp(pub, key, sizeof(pub)) == 0;
		buf_reset(&pem, 0);
		(void)snprintf(name, sizeof(name), "%s.%02x%02x%02x%02x",
		    SIGNER_PUB_FILE, key[0], key[1], key[2], key[3]);
	}
	return known;
}

static void
read_seal(int dir, const char *name, struct ctl_verify *v)
{
	struct buf text = BUF_INIT(SEAL_MAX_BYTES);
	char seal[NAME_BYTES];
	int rc = seal_name(view_str(name), seal, sizeof(seal));

	if (rc == 0)
		rc = read_small(dir, seal, &text);
	if (rc == SP_E_NOTFOUND) {
		v->seal = CTL_SEAL_NONE;
	} else if (rc != 0) {
		v->seal = CTL_SEAL_BAD;
	} else {
		rc = seal_check(buf_view(&text), &v->facts);
		v->seal = rc == 0       ? CTL_SEAL_GOOD
		    : rc == SP_E_DENIED ? CTL_SEAL_FORGED
					: CTL_SEAL_BAD;
	}
	if (v->seal == CTL_SEAL_GOOD && !key_is_known(dir, v->facts.key))
		v->seal = CTL_SEAL_KEY;
	buf_clear(&text);
}

/* The file, or a roll of it: a seal that was there moves with the roll. */
static bool
same_file(const char *name, const char *sealed)
{
	return strcmp(name, sealed) == 0 ||
	    trace_roll_number(view_str(name), view_str(sealed)) > 0;
}

/*
 * What the signed seal says of the file, and what the file is.  The last hash
 * stands for all of the bytes: each line was held against its own, which
 * covers the hash of the line before.
 */
static void
compare_seal(struct walk *w, const char *name)
{
	struct ctl_verify *v = w->v;
	const struct seal_facts *f = &v->facts;

	if (v->seal != CTL_SEAL_GOOD && v->seal != CTL_SEAL_KEY)
		return;
	if (!same_file(name, f->file) || w->sum.bytes != f->bytes ||
	    w->sum.lines != f->turns || strcmp(w->last.hash, f->last) != 0 ||
	    strcmp(w->sum.first.hash, f->first) != 0 ||
	    strcmp(w->sum.first.prev, f->first_prev) != 0)
		v->seal = CTL_SEAL_BAD;
}

/* The file that a roll, or what came after it, continues. */
static bool
name_before(int dir, const char *name, char *out, size_t n)
{
	const char *dot = strrchr(name, '.');
	uint64_t best = 0, number = 0;
	struct dirent *e;
	DIR *d;
	int fd;

	if (dot != NULL && dot != name)
		number = trace_roll_number(view_str(name),
		    view_of(name, (size_t)(dot - name)));
	if (number > 0) {
		(void)snprintf(out, n, "%.*s.%llu", (int)(dot - name), name,
		    (unsigned long long)number - 1);
		return number > 1;
	}
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	while (d != NULL && (e = readdir(d)) != NULL) {
		number = trace_roll_number(view_str(e->d_name), view_str(name));
		best = number > best ? number : best;
	}
	if (d != NULL)
		(void)closedir(d);
	(void)snprintf(out, n, "%s.%llu", name, (unsigned long long)best);
	return best > 0;
}

static void
look_before(int dir, const char *name, struct ctl_verify *v)
{
	char before[NAME_BYTES], zero[DIGEST_HEX + 1];
	struct tail tail;
	struct stat st;
	int fd;

	chain_zero(zero);
	v->continues = v->lines > 0 && strcmp(v->first.prev, zero) != 0;
	if (!v->continues || !name_before(dir, name, before, sizeof(before)) ||
	    open_in(dir, before, &fd) != 0)
		return;
	v->before_found = fstat(fd, &st) == 0 &&
	    tail_read(fd, (uint64_t)st.st_size, &tail) == 0;
	fd_close(&fd);
	v->before_high = v->before_found ? tail.turn_high : 0;
	if (v->before_found && strcmp(tail.link.hash, v->first.prev) != 0 &&
	    v->broken_line == 0) {
		v->broken_line = 1;
		v->why = "it does not follow the end of the file before";
	}
}

void
ctl_verify_clear(struct ctl_verify *v)
{
	ctl_missing_clear(&v->missing);
}

/* A line that is gone is another matter: the chain tells that. */
static int
look_for_missing(int dir, const char *name, struct ctl_verify *v)
{
	uint64_t low = 1;

	if (v->broken_line > 0)
		return 0;
	if (v->continues)
		low = v->before_found ? v->before_high + 1 : 0;
	return ctl_missing_find(&v->missing, dir, name, low);
}

int
ctl_verify(int dir, const char *name, struct ctl_verify *v)
{
	struct walk w = { .v = v };
	int fd, rc;

	*v = (struct ctl_verify){ .lines = 0 };
	chain_zero(v->first.prev);
	chain_zero(v->last.hash);
	rc = open_in(dir, name, &fd);
	if (rc != 0)
		return rc;
	read_seal(dir, name, v);
	w.sealed_bytes = v->facts.bytes;
	chain_sum_init(&w.sum);
	chain_zero(w.last.hash);
	ctl_missing_look(&v->missing, fd);
	rc = ctl_record_lines(fd, &v->torn, take_line, &w);
	fd_close(&fd);
	if (rc == 0) {
		compare_seal(&w, name);
		look_before(dir, name, v);
		rc = look_for_missing(dir, name, v);
	}
	return rc;
}
