/* An empty file system in a file: ext4 without a journal. */
#ifndef SP_INIT_DISK_IMAGE_H
#define SP_INIT_DISK_IMAGE_H

#include <stdint.h>

#include "base/err.h"

/*
 * Lays it out, with room for that much: the bound of a workspace on a disk.
 * What it takes is reserved on the disk that the file is on, so that a write
 * inside fails for want of room in it, never for want of room beneath.
 * Source:  the kernel's Documentation/filesystems/ext4: super block, group
 *          descriptors, bitmaps, inodes, directories, extents.
 * Context: keeper; blocks on the disk.
 * Parameters: fd, an empty file; bytes, of files; inodes, of which there are
 *          no more than one for each 4 KiB.
 * Returns: 0; SP_E_LIMIT larger than 4 TiB; SP_E_NOSPC the disk has not as much; SP_E_UNSUPPORTED its
 *          file system cannot reserve; SP_E_*.
 */
int disk_image_format(int fd, uint64_t bytes, uint64_t inodes) must_check;

#endif
