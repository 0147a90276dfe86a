#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "helper/complain.h"
#include "helper/env_paths.h"

/* NULL: it is there, a directory if that is what it has to be. */
static const char *
path_lacks(const char *path, bool dir, bool links)
{
	struct stat st;

	if ((links ? stat(path, &st) : lstat(path, &st)) != 0)
		return strerror(errno);
	return dir && !S_ISDIR(st.st_mode) ? "not a directory" : NULL;
}

/* The block's own place where the directive has none. */
static int
path_check(const struct conf_environment *env, struct conf_pos pos,
    const char *name, struct view v, const char *expected)
{
	bool dir = strcmp(name, "read_only") != 0;
	const char *lacks;
	char *path = mem_strndup(v.p, v.n);
	int rc = SP_OK;

	if (path == NULL)
		return SP_E_NOMEM;
	lacks = path_lacks(path, dir, strcmp(name, "rootfs") == 0);
	if (lacks != NULL) {
		if (pos.file == NULL)
			pos = env->pos;
		complain("%s:%u: environment \"%.*s\": %s %s: %s; expected %s",
		    pos.file, pos.line, VIEW_ARG(env->name), name, path, lacks,
		    expected);
		rc = SP_E_CONF;
	}
	mem_free(path);
	return rc;
}

int
env_paths_check(const struct conf_environment *env)
{
	int rc = SP_OK, one;
	size_t i;

	if (env->enforcement == CONF_ENV_ENFORCE_LOCAL)
		return SP_OK;
	if (env->rootfs.n > 0)
		rc = path_check(env, env->rootfs_pos, "rootfs", env->rootfs,
		    "the directory of an unpacked image");
	for (i = 0; i < env->read_only.n && rc != SP_E_NOMEM; i++) {
		if (conf_env_optional(env->read_only.v[i]))
			continue;
		one = path_check(env, env->read_only_pos, "read_only",
		    env->read_only.v[i],
		    "what is there on this host: make it, or take it out");
		if (one != SP_OK)
			rc = one;
	}
	return rc;
}

int
env_paths_workspace(const struct conf_environment *env)
{
	if (env->workspace.n == 0)
		return SP_OK;
	return path_check(env, env->workspace_pos, "workspace", env->workspace,
	    "a directory, no link to one: what each episode's workspace is a "
	    "copy of");
}
