/*
 * The write-ahead log of a database, mapped. Included by tidewater_vfs.c alone.
 */
#ifndef TIDEWATER_WAL_MAPPING_H
#define TIDEWATER_WAL_MAPPING_H

#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <sqlite3ext.h>

/* A write-ahead log in memory: a frame that goes to where the file is already is a store instead of a call. Others
   read it as if it had been written. */
typedef struct {
	/* Of the log; -1: it is not mapped. */
	int descriptor;
	/* NULL: nothing of it is mapped yet. */
	unsigned char *at;
	sqlite3_int64 bytes;
	/* The connection has the log's lock: no other connection writes or truncates it. */
	bool is_locked;
	/* Since then its length was looked at. */
	bool is_known;
} Mapping;

/*
 * Whether stores into the file can't lack room, which no call could tell: they would end the process (SIGBUS). File
 * systems that write over what they have, of which the file has all. On others, or where a snapshot shares its blocks,
 * a store may need a new one.
 */
static bool has_room(int descriptor, sqlite3_int64 bytes)
{
	struct statfs on;
	return fstatfs(descriptor, &on) == 0 && (on.f_type == EXT4_SUPER_MAGIC || on.f_type == TMPFS_MAGIC) &&
	       lseek(descriptor, 0, SEEK_HOLE) == bytes;
}

static void mapping_open(Mapping *mapping, const char *name)
{
	/* SQLite has a lock of the database, so that the name is that of the file which it has just opened. */
	int descriptor = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (descriptor >= 0 && descriptor <= STDERR_FILENO) {
		/* The program closed its own, and might print into this one. */
		int higher = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		close(descriptor);
		descriptor = higher;
	}
	mapping->descriptor = descriptor;
}

static void mapping_close(Mapping *mapping)
{
	if (mapping->at)
		munmap(mapping->at, (size_t)mapping->bytes);
	if (mapping->descriptor >= 0)
		close(mapping->descriptor);
	*mapping = (Mapping){ .descriptor = -1 };
}

/* Makes the mapping no longer than the file, which another connection may have truncated before this one got the lock,
   and as long as the file once `needed` is beyond it. */
static void mapping_look(Mapping *mapping, sqlite3_int64 needed)
{
	off_t size = lseek(mapping->descriptor, 0, SEEK_END);
	mapping->is_known = true;
	if (size < mapping->bytes) {
		munmap(mapping->at, (size_t)mapping->bytes);
		mapping->at = NULL;
		mapping->bytes = 0;
	}
	if (needed <= mapping->bytes || needed > size || (sqlite3_uint64)size > SIZE_MAX ||
	    !has_room(mapping->descriptor, size))
		return;
	/* What is mapped stays so: else each page would have to be found again. */
	void *at = mapping->at ? mremap(mapping->at, (size_t)mapping->bytes, (size_t)size, MREMAP_MAYMOVE) :
				 mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, mapping->descriptor, 0);
	if (at != MAP_FAILED) {
		mapping->at = at;
		mapping->bytes = size;
	}
}

/* Where bytes of the log may be stored. NULL: they have to be written. */
static unsigned char *mapping_find(Mapping *mapping, sqlite3_int64 offset, size_t bytes)
{
	if (mapping->descriptor < 0 || !mapping->is_locked)
		return NULL;
	sqlite3_int64 end = offset + (sqlite3_int64)bytes;
	if (!mapping->is_known)
		mapping_look(mapping, end);
	return end <= mapping->bytes ? mapping->at + offset : NULL;
}

#endif
