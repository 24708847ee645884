/*
 * What the VFS leaves to the default one. Included by tidewater_vfs.c alone.
 */
#ifndef TIDEWATER_DEFAULT_VFS_H
#define TIDEWATER_DEFAULT_VFS_H

#include <sqlite3ext.h>

static sqlite3_vfs *below;

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *is)
{
	(void)vfs;
	return below->xAccess(below, name, flags, is);
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int bytes, char *to)
{
	(void)vfs;
	return below->xFullPathname(below, name, bytes, to);
}

static void *vfs_dl_open(sqlite3_vfs *vfs, const char *name)
{
	(void)vfs;
	return below->xDlOpen(below, name);
}

static void vfs_dl_error(sqlite3_vfs *vfs, int bytes, char *to)
{
	(void)vfs;
	below->xDlError(below, bytes, to);
}

static void (*vfs_dl_symbol(sqlite3_vfs *vfs, void *library, const char *symbol))(void)
{
	(void)vfs;
	return below->xDlSym(below, library, symbol);
}

static void vfs_dl_close(sqlite3_vfs *vfs, void *library)
{
	(void)vfs;
	below->xDlClose(below, library);
}

static int vfs_randomness(sqlite3_vfs *vfs, int bytes, char *to)
{
	(void)vfs;
	return below->xRandomness(below, bytes, to);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
	(void)vfs;
	return below->xSleep(below, microseconds);
}

static int vfs_time(sqlite3_vfs *vfs, double *now)
{
	(void)vfs;
	return below->xCurrentTime(below, now);
}

static int vfs_last_error(sqlite3_vfs *vfs, int bytes, char *to)
{
	(void)vfs;
	return below->xGetLastError(below, bytes, to);
}

static int vfs_time64(sqlite3_vfs *vfs, sqlite3_int64 *now)
{
	(void)vfs;
	return below->xCurrentTimeInt64(below, now);
}

#endif
