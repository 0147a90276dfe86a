#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "helper/cas.h"
#include "helper/complain.h"
#include "ipc/message.h"
#include "os/fd.h"

enum { CAS_DIR_MAX = 4096 };

static int
cas_bad(const struct conf_upstream *u, const char *path, const char *what)
{
	complain("%s:%u: upstream \"%.*s\": trusted certificates \"%s\" %s",
	    u->pos.file, u->pos.line, VIEW_ARG(u->name), path, what);
	return SP_E_CONF;
}

/* Appends a regular file: 0, SP_E_NOTFOUND when it is something else. */
static int
cas_file(int dir, const char *path, struct buf *out)
{
	struct stat st;
	int fd, rc;

	fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return err_from_errno(errno);
	rc = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? SP_OK : SP_E_NOTFOUND;
	if (rc == SP_OK)
		rc = fd_read_all(fd, out);
	if (rc == SP_OK)
		rc = buf_add_char(out, '\n');
	fd_close(&fd);
	return rc;
}

/* Every file in there; that hash links give them twice does no harm. */
static int
cas_dir(const char *path, struct buf *out)
{
	struct dirent *e;
	DIR *dir = opendir(path);
	int i, rc = SP_OK;

	if (dir == NULL)
		return err_from_errno(errno);
	for (i = 0; i < CAS_DIR_MAX && rc == SP_OK; i++) {
		e = readdir(dir);
		if (e == NULL)
			break;
		if (e->d_name[0] == '.')
			continue;
		rc = cas_file(dirfd(dir), e->d_name, out);
		/* one that is gone, or not to be read, spoils no other */
		if (rc != SP_E_NOMEM && rc != SP_E_LIMIT)
			rc = SP_OK;
	}
	(void)closedir(dir);
	return rc;
}

static int
cas_path(const char *path, struct buf *out)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return err_from_errno(errno);
	return S_ISDIR(st.st_mode) ? cas_dir(path, out)
				   : cas_file(AT_FDCWD, path, out);
}

/* The places that distributions have, and OpenSSL's variables before them. */
static int
cas_system(struct buf *out)
{
	const char *places[] = { getenv("SSL_CERT_FILE"),
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
		getenv("SSL_CERT_DIR"), "/etc/ssl/certs" };
	size_t i;
	int rc = SP_E_NOTFOUND;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (places[i] == NULL)
			continue;
		buf_reset(out, SIZE_MAX);
		rc = cas_path(places[i], out);
		if (rc == SP_E_NOMEM || rc == SP_E_LIMIT ||
		    (rc == SP_OK && buf_len(out) > 1))
			return rc;
	}
	return SP_E_NOTFOUND;
}

static int
cas_add(struct cas *c, uint32_t index, const struct buf *pem)
{
	struct view v = buf_view(pem);
	int fd = -1, rc;

	if (c->n == ROLE_CAS_MAX)
		return SP_E_LIMIT;
	rc = fd_sealed("sallyport-ca", v.p, v.n, &fd);
	if (rc != SP_OK)
		return rc;
	c->v[c->n].index = index;
	c->v[c->n].fd = fd;
	c->n++;
	return SP_OK;
}

static bool
cas_wanted(const struct conf_upstream *u)
{
	size_t i;

	for (i = 0; u->tls_verify && i < u->servers_n; i++)
		if (u->servers[i].tls)
			return true;
	return false;
}

static bool
cas_has(const struct cas *c, uint32_t index)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (c->v[i].index == index)
			return true;
	return false;
}

static int
cas_upstream(struct cas *c, const struct conf_upstream *u)
{
	uint32_t index = u->ca.n > 0 ? u->index : MESSAGE_CA_SYSTEM;
	struct buf pem = BUF_INIT(ROLE_CA_MAX_BYTES);
	char *path;
	int rc;

	if (!cas_wanted(u) || cas_has(c, index))
		return SP_OK;
	path = u->ca.n > 0 ? mem_strndup(u->ca.p, u->ca.n)
			   : mem_strdup("of the system");
	if (path == NULL)
		return SP_E_NOMEM;
	rc = u->ca.n > 0 ? cas_path(path, &pem) : cas_system(&pem);
	if (rc == SP_OK &&
	    view_search(buf_view(&pem), VIEW("-----BEGIN ")) == buf_len(&pem))
		rc = cas_bad(u, path, "hold no PEM certificate");
	if (rc == SP_OK)
		rc = cas_add(c, index, &pem);
	if (rc == SP_E_NOTFOUND)
		rc = cas_bad(u, path,
		    u->ca.n > 0 ? "do not exist"
				: "are not there; install ca-certificates or "
				  "name a file with \"ca\"");
	else if (rc == SP_E_LIMIT)
		rc = cas_bad(u, path,
		    "are too many; expected at most 8 MiB, "
		    "and 64 upstreams with \"ca\"");
	else if (rc != SP_OK && rc != SP_E_CONF && rc != SP_E_NOMEM)
		rc = cas_bad(u, path, err_str(rc));
	mem_free(path);
	buf_clear(&pem);
	return rc;
}

int
cas_read(struct cas *c, const struct conf *conf)
{
	size_t i;
	int rc = SP_OK;

	memset(c, 0, sizeof(*c));
	for (i = 0; i < conf->upstreams_n && rc == SP_OK; i++)
		rc = cas_upstream(c, conf->upstreams[i]);
	return rc;
}

void
cas_clear(struct cas *c)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		fd_close(&c->v[i].fd);
	c->n = 0;
}
