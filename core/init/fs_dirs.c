#include "config.h"

#include "init/fs_dirs.h"

#include <string.h>

#include "base/hmap.h"
#include "base/mem.h"

struct fs_dirs {
	struct hmap *paths; /* key of a directory -> its path */
	size_t bytes;
};

struct fs_dirs *
fs_dirs_new(void)
{
	struct fs_dirs *d = mem_calloc(1, sizeof(*d));

	if (d == NULL)
		return NULL;
	d->paths = hmap_new(FS_DIRS_MAX);
	if (d->paths == NULL) {
		mem_free(d);
		return NULL;
	}
	return d;
}

void
fs_dirs_free(struct fs_dirs *d)
{
	if (d == NULL)
		return;
	fs_dirs_forget(d);
	hmap_free(d->paths);
	mem_free(d);
}

const char *
fs_dirs_find(const struct fs_dirs *d, struct view key)
{
	return hmap_get(d->paths, key);
}

void
fs_dirs_add(struct fs_dirs *d, struct view key, struct view path)
{
	char *copy;

	if (hmap_get(d->paths, key) != NULL)
		return;
	if (hmap_count(d->paths) >= FS_DIRS_MAX ||
	    path.n + 1 > FS_DIRS_BYTES - d->bytes)
		fs_dirs_forget(d);
	copy = mem_strndup(path.n > 0 ? path.p : "", path.n);
	if (copy == NULL || path.n + 1 > FS_DIRS_BYTES ||
	    hmap_add(d->paths, key, copy) != SP_OK)
		mem_free(copy);
	else
		d->bytes += path.n + 1;
}

void
fs_dirs_forget(struct fs_dirs *d)
{
	size_t pos = 0;
	struct view key;
	void *path;

	while (hmap_next(d->paths, &pos, &key, &path)) {
		(void)hmap_del(d->paths, key);
		mem_free(path);
	}
	d->bytes = 0;
}

size_t
fs_dirs_count(const struct fs_dirs *d)
{
	return hmap_count(d->paths);
}

size_t
fs_dirs_bytes(const struct fs_dirs *d)
{
	return d->bytes;
}
