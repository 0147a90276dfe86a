#include "config.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "init/disk_image.h"

enum {
	BLOCK = 4096,
	BLOCK_SHIFT = 12,
	GROUP_BLOCKS = BLOCK * 8, /* a bit each */
	INODE = 256,
	INODES_PER_BLOCK = BLOCK / INODE,
	DESC = 32, /* of a group */
	SPARE_BLOCKS = 64, /* for directories, over what was asked for */
	INODES_RESERVED = 10,
	INODE_ROOT = 2,
	LAYOUT_ROUNDS = 16,
	BLOCKS_MAX = 1 << 30, /* 4 TiB */
	SUPER_AT = 1024,
};

/* Of the kernel's Documentation/filesystems/ext4/super.rst. */
enum {
	SUPER_MAGIC = 0xef53,
	COMPAT_EXT_ATTR = 0x8,
	COMPAT_DIR_INDEX = 0x20,
	COMPAT_SPARSE_SUPER2 = 0x200, /* no copies of the super block */
	INCOMPAT_FILETYPE = 0x2,
	INCOMPAT_EXTENTS = 0x40,
	RO_COMPAT_LARGE_FILE = 0x2,
	RO_COMPAT_DIR_NLINK = 0x20,
	RO_COMPAT_EXTRA_ISIZE = 0x40,
	FLAG_SIGNED_HASH = 0x1,
	HASH_HALF_MD4 = 1,
	STATE_CLEAN = 1,
	ERRORS_READ_ONLY = 2,
	EXTRA_ISIZE = 32,
	INODE_FLAG_EXTENTS = 0x80000,
	EXTENT_MAGIC = 0xf30a,
	DIR_TYPE = 2,
};

struct layout {
	uint32_t blocks, groups;
	uint32_t desc_blocks; /* of the groups' descriptors */
	uint32_t inodes_per_group, table_blocks;
};

static void
put16(unsigned char *p, uint32_t v)
{
	const uint16_t le = htole16((uint16_t)v);

	memcpy(p, &le, sizeof(le));
}

static void
put32(unsigned char *p, uint32_t v)
{
	const uint32_t le = htole32(v);

	memcpy(p, &le, sizeof(le));
}

static int
put_at(int fd, const unsigned char *p, size_t n, uint64_t at)
{
	ssize_t put;

	while (n > 0) {
		put = pwrite(fd, p, n, (off_t)at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? err_from_errno(errno) : SP_E_SYS;
		p += put;
		n -= (size_t)put;
		at += (uint64_t)put;
	}
	return SP_OK;
}

/* ---- where what lies ------------------------------------------------------- */

/* Blocks of a group, from its first, that are not for files. */
static uint32_t
group_used(const struct layout *l, uint32_t group)
{
	return (group == 0 ? 1 + l->desc_blocks : 0) + 2 + l->table_blocks;
}

static uint32_t
group_blocks(const struct layout *l, uint32_t group)
{
	return group + 1 < l->groups ? (uint32_t)GROUP_BLOCKS
				     : l->blocks - group * GROUP_BLOCKS;
}

/* The more it holds the more it needs to tell of that. */
static int
lay_out(struct layout *l, uint64_t bytes, uint64_t inodes)
{
	uint64_t files = bytes / BLOCK + (bytes % BLOCK != 0) + SPARE_BLOCKS;
	uint64_t blocks = files, per, over;
	int i;

	memset(l, 0, sizeof(*l));
	/* more would be empty files alone, and room for them is room lost */
	inodes = (inodes < files ? inodes : files) + INODES_RESERVED + 1;
	for (i = 0; i < LAYOUT_ROUNDS && blocks < BLOCKS_MAX; i++) {
		l->groups =
		    (uint32_t)((blocks + GROUP_BLOCKS - 1) / GROUP_BLOCKS);
		per = (inodes + l->groups - 1) / l->groups;
		per = (per + INODES_PER_BLOCK - 1) / INODES_PER_BLOCK;
		if (per * INODES_PER_BLOCK > GROUP_BLOCKS)
			return SP_E_LIMIT;
		l->table_blocks = (uint32_t)per;
		l->inodes_per_group = (uint32_t)per * INODES_PER_BLOCK;
		l->desc_blocks = (l->groups * DESC + BLOCK - 1) / BLOCK;
		over = 1 + l->desc_blocks +
		    (uint64_t)l->groups * (2 + l->table_blocks);
		if (blocks == files + over) {
			l->blocks = (uint32_t)blocks;
			break;
		}
		blocks = files + over;
	}
	if (l->blocks == 0)
		return SP_E_LIMIT;
	/* a last group that holds nothing but what tells of it */
	if (group_blocks(l, l->groups - 1) <= group_used(l, l->groups - 1)) {
		l->groups--;
		l->blocks = l->groups * GROUP_BLOCKS;
	}
	return l->groups > 0 ? SP_OK : SP_E_LIMIT;
}

static uint64_t
first_of(uint32_t group)
{
	return (uint64_t)group * GROUP_BLOCKS;
}

/* Block bitmap; inode bitmap and table follow it. */
static uint32_t
bitmap_of(const struct layout *l, uint32_t group)
{
	return (uint32_t)first_of(group) +
	    (group == 0 ? 1 + l->desc_blocks : 0);
}

/* The root's one block is the first of all that is free. */
static uint32_t
root_block(const struct layout *l)
{
	return group_used(l, 0);
}

static uint32_t
free_blocks(const struct layout *l, uint32_t group)
{
	return group_blocks(l, group) - group_used(l, group) - (group == 0);
}

static uint32_t
free_inodes(const struct layout *l, uint32_t group)
{
	return l->inodes_per_group - (group == 0 ? INODES_RESERVED : 0);
}

/* ---- what is written ------------------------------------------------------- */

static int
put_super(int fd, const struct layout *l)
{
	unsigned char s[1024] = { 0 };
	uint32_t blocks = 0, inodes = 0, g;

	for (g = 0; g < l->groups; g++) {
		blocks += free_blocks(l, g);
		inodes += free_inodes(l, g);
	}
	put32(s + 0x00, l->groups * l->inodes_per_group);
	put32(s + 0x04, l->blocks);
	put32(s + 0x0c, blocks);
	put32(s + 0x10, inodes);
	put32(s + 0x18, BLOCK_SHIFT - 10);
	put32(s + 0x1c, BLOCK_SHIFT - 10);
	put32(s + 0x20, GROUP_BLOCKS);
	put32(s + 0x24, GROUP_BLOCKS);
	put32(s + 0x28, l->inodes_per_group);
	put16(s + 0x36, 0xffff); /* no check after so many mounts */
	put16(s + 0x38, SUPER_MAGIC);
	put16(s + 0x3a, STATE_CLEAN);
	put16(s + 0x3c, ERRORS_READ_ONLY);
	put32(s + 0x4c, 1); /* revision */
	put32(s + 0x54, INODES_RESERVED + 1);
	put16(s + 0x58, INODE);
	put32(s + 0x5c,
	    COMPAT_EXT_ATTR | COMPAT_DIR_INDEX | COMPAT_SPARSE_SUPER2);
	put32(s + 0x60, INCOMPAT_FILETYPE | INCOMPAT_EXTENTS);
	put32(s + 0x64,
	    RO_COMPAT_LARGE_FILE | RO_COMPAT_DIR_NLINK | RO_COMPAT_EXTRA_ISIZE);
	/* one of its own is nothing that anybody asks for, but not none */
	memcpy(s + 0x68, "sallyport-upper", 16);
	memcpy(s + 0x78, "sallyport", 9);
	memcpy(s + 0xec, "sallyport-hashes", 16);
	s[0xfc] = HASH_HALF_MD4;
	put16(s + 0x15c, EXTRA_ISIZE);
	put16(s + 0x15e, EXTRA_ISIZE);
	put32(s + 0x160, FLAG_SIGNED_HASH);
	return put_at(fd, s, sizeof(s), SUPER_AT);
}

static void
describe(const struct layout *l, uint32_t group, unsigned char d[DESC])
{
	uint32_t bitmap = bitmap_of(l, group);

	put32(d + 0x0, bitmap);
	put32(d + 0x4, bitmap + 1);
	put32(d + 0x8, bitmap + 2);
	put16(d + 0xc, free_blocks(l, group));
	put16(d + 0xe, free_inodes(l, group));
	put16(d + 0x10, group == 0); /* directories */
}

static int
put_descriptors(int fd, const struct layout *l)
{
	unsigned char block[BLOCK];
	uint32_t g = 0, i, b;
	int rc = SP_OK;

	for (b = 0; b < l->desc_blocks && rc == SP_OK; b++) {
		memset(block, 0, sizeof(block));
		for (i = 0; i < BLOCK / DESC && g < l->groups; i++, g++)
			describe(l, g, block + (size_t)i * DESC);
		rc = put_at(fd, block, sizeof(block), (1ULL + b) * BLOCK);
	}
	return rc;
}

static void
set_bits(unsigned char *map, uint32_t from, uint32_t to)
{
	for (; from < to && from % 8 != 0; from++)
		map[from / 8] |= (unsigned char)(1U << from % 8);
	for (; to - from >= 8; from += 8)
		map[from / 8] = 0xff;
	for (; from < to; from++)
		map[from / 8] |= (unsigned char)(1U << from % 8);
}

static int
put_bitmaps(int fd, const struct layout *l, uint32_t group)
{
	unsigned char maps[2 * BLOCK] = { 0 };
	uint32_t n = group_blocks(l, group);

	set_bits(maps, 0, n - free_blocks(l, group));
	set_bits(maps, n, GROUP_BLOCKS);
	set_bits(maps + BLOCK, 0, l->inodes_per_group - free_inodes(l, group));
	set_bits(maps + BLOCK, l->inodes_per_group, GROUP_BLOCKS);
	return put_at(fd, maps, sizeof(maps),
	    (uint64_t)bitmap_of(l, group) * BLOCK);
}

/* A directory of "." and "..": the inode, with its one extent, and the block. */
static int
put_root(int fd, const struct layout *l)
{
	unsigned char i[INODE] = { 0 }, d[BLOCK] = { 0 };
	uint64_t table = (uint64_t)(bitmap_of(l, 0) + 2) * BLOCK;
	int rc;

	put16(i + 0x00, S_IFDIR | 0755);
	put32(i + 0x04, BLOCK);
	put16(i + 0x1a, 2); /* links */
	put32(i + 0x1c, BLOCK / 512);
	put32(i + 0x20, INODE_FLAG_EXTENTS);
	put16(i + 0x28, EXTENT_MAGIC);
	put16(i + 0x2a, 1); /* entries */
	put16(i + 0x2c, 4); /* that fit */
	put16(i + 0x38, 1); /* blocks of the first */
	put32(i + 0x3c, root_block(l));
	put16(i + 0x80, EXTRA_ISIZE);
	rc = put_at(fd, i, sizeof(i), table + (INODE_ROOT - 1) * INODE);
	put32(d, INODE_ROOT);
	put16(d + 4, 12);
	d[6] = 1;
	d[7] = DIR_TYPE;
	d[8] = '.';
	put32(d + 12, INODE_ROOT);
	put16(d + 16, BLOCK - 12);
	d[18] = 2;
	d[19] = DIR_TYPE;
	d[20] = d[21] = '.';
	if (rc == SP_OK)
		rc = put_at(fd, d, sizeof(d), (uint64_t)root_block(l) * BLOCK);
	return rc;
}

/*
 * What is reserved and not written reads as zeros: free inodes are such.  What
 * cannot fit is not tried: that would take all there is from others meanwhile.
 */
static int
reserve(int fd, uint64_t bytes)
{
	struct statfs s;
	int rc;

	/* one of memory without a bound has no blocks */
	if (fstatfs(fd, &s) == 0 && s.f_blocks > 0 && s.f_bsize > 0 &&
	    bytes / (uint64_t)s.f_bsize > s.f_bfree)
		return SP_E_NOSPC;
	do
		rc = fallocate(fd, 0, 0, (off_t)bytes);
	while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return SP_OK;
	return errno == EOPNOTSUPP || errno == ENOSYS ? SP_E_UNSUPPORTED
						      : err_from_errno(errno);
}

int
disk_image_format(int fd, uint64_t bytes, uint64_t inodes)
{
	struct layout l;
	uint32_t g;
	int rc;

	if (bytes / BLOCK >= BLOCKS_MAX || inodes >= BLOCKS_MAX)
		return SP_E_LIMIT;
	rc = lay_out(&l, bytes, inodes);
	if (rc == SP_OK)
		rc = reserve(fd, (uint64_t)l.blocks * BLOCK);
	if (rc == SP_OK)
		rc = put_super(fd, &l);
	if (rc == SP_OK)
		rc = put_descriptors(fd, &l);
	for (g = 0; g < l.groups && rc == SP_OK; g++)
		rc = put_bitmaps(fd, &l, g);
	return rc == SP_OK ? put_root(fd, &l) : rc;
}
