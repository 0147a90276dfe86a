/*
 * Run with descriptor 3 open as a role would be (argv[0] "spawned"), it tells
 * on that descriptor what it finds itself to be.
 */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/cred.h"
#include "os/fd.h"
#include "os/spawn.h"
#include "tap.h"

struct facts {
	uid_t ruid, euid, suid;
	gid_t gid;
	int groups, fds_above_3, no_new_privs, death_signal;
	int null_input, env_n, secret_seen, signals_blocked, ignored;
	rlim_t core, files;
};

static int
count_fds(void)
{
	int i, n = 0;

	for (i = SPAWN_CHANNEL_FD + 1; i < 1024; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static int
tell(void)
{
	struct facts f;
	struct stat st, null;
	struct rlimit rl;
	sigset_t set;
	int i;

	memset(&f, 0, sizeof(f));
	getresuid(&f.ruid, &f.euid, &f.suid);
	f.gid = getegid();
	f.groups = getgroups(0, NULL);
	f.fds_above_3 = count_fds();
	f.no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	prctl(PR_GET_PDEATHSIG, &f.death_signal);
	f.null_input = fstat(0, &st) == 0 && stat("/dev/null", &null) == 0 &&
	    st.st_rdev == null.st_rdev;
	while (environ != NULL && environ[f.env_n] != NULL)
		f.env_n++;
	f.secret_seen = getenv("UPSTREAM_API_KEY") != NULL;
	sigprocmask(SIG_BLOCK, NULL, &set);
	for (i = 1; i < 32; i++)
		f.signals_blocked += sigismember(&set, i);
	f.ignored = signal(SIGPIPE, SIG_DFL) == SIG_IGN;
	getrlimit(RLIMIT_CORE, &rl);
	f.core = rl.rlim_max;
	getrlimit(RLIMIT_NOFILE, &rl);
	f.files = rl.rlim_cur;
	return send(SPAWN_CHANNEL_FD, &f, sizeof(f), 0) == sizeof(f) ? 0 : 1;
}

static int
run(const char *path, bool ids, struct facts *f)
{
	struct spawn s;
	struct pollfd p;
	int pair[2] = { -1, -1 }, status = -1;
	pid_t pid = -1;

	memset(f, 0, sizeof(*f));
	if (fd_seqpacket_pair(pair) != SP_OK)
		return -1;
	memset(&s, 0, sizeof(s));
	s.path = path;
	s.name = "spawned";
	s.change_ids = ids;
	s.uid = CRED_REACTOR_ID;
	s.gid = CRED_REACTOR_ID;
	s.files = 1500;
	s.channel_fd = pair[1];
	if (spawn_role(&s, &pid) != SP_OK)
		return -1;
	fd_close(&pair[1]);
	p = (struct pollfd){ pair[0], POLLIN, 0 };
	poll(&p, 1, -1);
	(void)!recv(pair[0], f, sizeof(*f), 0);
	fd_close(&pair[0]);
	waitpid(pid, &status, 0);
	return status;
}

static void
test_facts(const char *self, bool ids)
{
	const char *who = ids ? "as another user" : "as this user";
	struct facts f;
	int status = run(self, ids, &f);

	tap_is_int(status, 0, who);
	if (ids) {
		tap_ok(f.ruid == CRED_REACTOR_ID && f.euid == f.ruid &&
			f.suid == f.ruid && f.gid == CRED_REACTOR_ID,
		    "every id is the other user's");
		tap_is_int(f.groups, 0, "no supplementary groups");
	}
	tap_is_int(f.fds_above_3, 0, "no descriptor but 0 to 3");
	tap_is_int(f.no_new_privs, 1, "no_new_privs");
	tap_is_int(f.death_signal, SIGKILL, "dies with its parent");
	tap_is_int(f.null_input, 1, "input is /dev/null");
	tap_is_int(f.secret_seen, 0, "no secret in the environment");
	tap_ok(f.env_n <= 10, "next to nothing in the environment");
	tap_is_int(f.signals_blocked, 0, "no signal blocked");
	tap_is_int(f.ignored, 0, "none ignored");
	tap_is_int((long long)f.core, 0, "no core files");
	tap_ok(f.files >= 1024, "descriptors as wanted");
}

static void
test_refusals(void)
{
	struct spawn s;
	struct facts f;
	int status, null = dup(2),
		    dev = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t pid;

	memset(&s, 0, sizeof(s));
	s.path = "/bin/true";
	s.name = "true";
	s.change_ids = true;
	tap_is_int(spawn_role(&s, &pid), SP_E_ARG, "never as root");
	dup2(dev, 2);
	status = run("/nonexistent", false, &f);
	dup2(null, 2);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == SPAWN_FAILED,
	    "a program that is not there: its status says so");
	fd_close(&null);
	fd_close(&dev);
	tap_ok(spawn_files(10) >= 1024, "at least 1,024 descriptors");
}

static void
test_cred(void)
{
	uid_t uid = 1;
	gid_t gid = 1;

	tap_is_int(cred_user(VIEW("root"), &uid, &gid), SP_OK, "root");
	tap_ok(uid == 0 && gid == 0, "is 0");
	tap_is_int(cred_user(VIEW("64899"), &uid, &gid), SP_OK, "a number");
	tap_ok(uid == 64899 && gid == 64899, "stands for itself");
	tap_is_int(cred_user(VIEW("no such user"), &uid, &gid), SP_E_NOTFOUND,
	    "no such user");
	tap_is_int(cred_user(VIEW(""), &uid, &gid), SP_E_ARG, "no name");
	tap_is_int(cred_group(VIEW("root"), &gid), SP_OK, "group root");
	tap_is_int(cred_group(VIEW("no such group"), &gid), SP_E_NOTFOUND,
	    "no such group");
	tap_is_int(cred_group(VIEW("64899"), &gid), SP_OK, "a number");
	tap_ok(cred_uid_named(0, NULL) && !cred_uid_named(64899, NULL),
	    "which uids have accounts");
}

int
main(int argc, char **argv)
{
	char self[4096];
	ssize_t n;
	int leak;

	(void)argc;
	if (strcmp(argv[0], "spawned") == 0)
		return tell();
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return 1;
	self[n] = 0;
	signal(SIGPIPE, SIG_IGN);
	setenv("UPSTREAM_API_KEY", "sk-secret", 1);
	leak = open("/dev/null", O_RDONLY); /* not close-on-exec */
	test_facts(self, false);
	if (geteuid() != 0)
		tap_skip(1, "changing users needs root");
	else if (access(self, X_OK) == 0)
		test_facts(self, true);
	test_refusals();
	test_cred();
	if (leak >= 0)
		close(leak);
	return tap_done();
}
