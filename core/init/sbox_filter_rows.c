#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "init/sbox_filter_rows.h"

#define NEW_NAMESPACES \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | \
	    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define FAMILIES \
	(1U << AF_UNIX | 1U << AF_INET | 1U << AF_INET6 | 1U << AF_NETLINK)

/* Not in every system's headers. */
#ifndef TIOCLINUX
#define TIOCLINUX 0x541C
#endif
#ifndef F_SETDELEG
#define F_SETDELEG 1040 /* Linux 6.19 */
#endif

#if defined(__s390__) || defined(__s390x__)
enum { CLONE_FLAGS_ARG = 1 };
#else
enum { CLONE_FLAGS_ARG = 0 };
#endif

#define DENY(name, why) \
	{ \
		name, SBOX_FILTER_ALWAYS, 0, 0, 0, EPERM, NULL, why \
	}
#define DENY_IF(name, when, arg, value, condition, why) \
	{ \
		name, when, arg, value, 0, EPERM, condition, why \
	}

/* as where a file system has none */
#define LEASE(name, value, condition) \
	{ \
		name, SBOX_FILTER_EQUAL, 1, value, 0, EINVAL, condition, lease \
	}

static const char mounting[] = "what is mounted where is the sandbox's wall";
static const char spaces[] = "new namespaces open the kernel to a fake root";
static const char tracing[] = "reaches into other processes";
static const char attack[] = "kernel code that workloads have no use for";
static const char uring[] = "does file and socket work past this filter";
static const char aio[] = "fs.aio-max-nr is one bound for the whole host";
static const char keyring[] = "keyrings outlive the sandbox";
static const char host[] = "belongs to the host";
static const char lease[] = "makes whoever opens the file wait for its holder";
/* S_IFBLK has that bit, too; what else may be made has not */
static const char nodes[] = "devices, and whiteouts of overlays, are ours";
static const char programs[] =
    "takes room for programs of the kernel's, of which the host has one";
static const char typing[] = "types into a terminal that others read";

static const struct sbox_filter_row rows[] = {
	DENY("mount", mounting),
	DENY("umount", mounting),
	DENY("umount2", mounting),
	DENY("pivot_root", mounting),
	DENY("chroot", mounting),
	DENY("open_tree", mounting),
	DENY("open_tree_attr", mounting),
	DENY("move_mount", mounting),
	DENY("fsopen", mounting),
	DENY("fsconfig", mounting),
	DENY("fsmount", mounting),
	DENY("fspick", mounting),
	DENY("mount_setattr", mounting),
	DENY("unshare", spaces),
	DENY("setns", spaces),
	DENY_IF("clone", SBOX_FILTER_ANY_BIT, CLONE_FLAGS_ARG, NEW_NAMESPACES,
	    "with a CLONE_NEW* flag", spaces),
	{ "clone3", SBOX_FILTER_ALWAYS, 0, 0, 0, ENOSYS, NULL,
	    "hides its flags in memory; libraries fall back to clone" },
	DENY("ptrace", tracing),
	DENY("process_vm_readv", tracing),
	DENY("process_vm_writev", tracing),
	DENY("process_madvise", tracing),
	DENY("pidfd_getfd", tracing),
	DENY("kcmp", tracing),
	DENY("io_uring_setup", uring),
	DENY("io_uring_enter", uring),
	DENY("io_uring_register", uring),
	DENY("io_setup", aio),
	DENY("io_destroy", aio),
	DENY("io_submit", aio),
	DENY("io_cancel", aio),
	DENY("io_getevents", aio),
	DENY("io_pgetevents", aio),
	DENY("io_pgetevents_time64", aio),
	DENY("bpf", attack),
	DENY("perf_event_open", attack),
	DENY("userfaultfd", attack),
	DENY("fanotify_init", attack),
	DENY("lookup_dcookie", attack),
	DENY("uselib", attack),
	DENY("nfsservctl", attack),
	DENY("add_key", keyring),
	DENY("request_key", keyring),
	DENY("keyctl", keyring),
	DENY("open_by_handle_at", "opens files past every directory's mode"),
	DENY("name_to_handle_at", "opens files past every directory's mode"),
	/* Linux lets anybody make 0:0, and Landlock takes it for a file */
	DENY_IF("mknod", SBOX_FILTER_ANY_BIT, 1, S_IFCHR, "of a device", nodes),
	DENY_IF("mknodat", SBOX_FILTER_ANY_BIT, 2, S_IFCHR, "of a device",
	    nodes),
	DENY("init_module", host),
	DENY("finit_module", host),
	DENY("delete_module", host),
	DENY("create_module", host),
	DENY("kexec_load", host),
	DENY("kexec_file_load", host),
	DENY("reboot", host),
	DENY("swapon", host),
	DENY("swapoff", host),
	DENY("acct", host),
	DENY("syslog", host),
	DENY("quotactl", host),
	DENY("quotactl_fd", host),
	DENY("settimeofday", host),
	DENY("stime", host),
	DENY("clock_settime", host),
	DENY("clock_settime64", host),
	DENY("clock_adjtime", host),
	DENY("clock_adjtime64", host),
	DENY("adjtimex", host),
	DENY("iopl", host),
	DENY("ioperm", host),
	DENY("vhangup", host),
	DENY_IF("ioctl", SBOX_FILTER_EQUAL, 1, TIOCSTI, "TIOCSTI", typing),
	DENY_IF("ioctl", SBOX_FILTER_EQUAL, 1, TIOCLINUX, "TIOCLINUX", typing),
	DENY_IF("ioctl", SBOX_FILTER_EQUAL, 1, TIOCSETD, "TIOCSETD", attack),
	{ "setsockopt", SBOX_FILTER_PAIR, 1, SOL_SOCKET, SO_ATTACH_FILTER,
	    EPERM, "SO_ATTACH_FILTER", programs },
	{ "setsockopt", SBOX_FILTER_PAIR, 1, SOL_SOCKET,
	    SO_ATTACH_REUSEPORT_CBPF, EPERM, "SO_ATTACH_REUSEPORT_CBPF",
	    programs },
	LEASE("fcntl", F_SETLEASE, "F_SETLEASE"),
	LEASE("fcntl64", F_SETLEASE, "F_SETLEASE"),
	LEASE("fcntl", F_SETDELEG, "F_SETDELEG"),
	LEASE("fcntl64", F_SETDELEG, "F_SETDELEG"),
	{ "socket", SBOX_FILTER_FAMILY, 0, FAMILIES, 0, EAFNOSUPPORT,
	    "of a domain other than unix, inet, inet6, netlink", attack },
	{ "socketpair", SBOX_FILTER_FAMILY, 0, FAMILIES, 0, EAFNOSUPPORT,
	    "of a domain other than unix, inet, inet6, netlink", attack },
	{ "socket", SBOX_FILTER_SOCKET, 0, AF_NETLINK, 0, EPROTONOSUPPORT,
	    "netlink of a protocol other than route", attack },
	{ "socket", SBOX_FILTER_SOCKET, 0, AF_INET, SOCK_RAW, EPERM, "inet raw",
	    "packets that pass for another's" },
	{ "socket", SBOX_FILTER_SOCKET, 0, AF_INET6, SOCK_RAW, EPERM,
	    "inet6 raw", "packets that pass for another's" },
	{ "socket", SBOX_FILTER_SOCKET, 0, AF_INET, SOCK_PACKET, EPERM,
	    "inet packet", "packets that pass for another's" },
};

const struct sbox_filter_row *
sbox_filter_rows(size_t *n)
{
	*n = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

int
sbox_filter_rows_print(FILE *to)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (fprintf(to, "%s\t%s\t%s\t%s\n", rows[i].call,
			rows[i].condition != NULL ? rows[i].condition : "-",
			strerrorname_np(rows[i].en), rows[i].reason) < 0)
			return SP_E_SYS;
	return fflush(to) == 0 ? SP_OK : SP_E_SYS;
}
