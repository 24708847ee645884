/*
 * SQLite on a served drive's fast side: a VFS over the default one, as a loadable extension.
 *
 * What SQLite writes to its write-ahead log (or rollback journal) goes into the log of the device first, then to the file as ever. A sync of
 * such a file waits for the device's log instead of the disk. A sync of anything else first waits until all of the log before it is on
 * the backing store: otherwise a crash of the machine could leave pages of the database ahead of their log.
 *
 *     SELECT load_extension('tidewater_vfs');
 *     .open 'file:my.db?vfs=tidewater&device=vfio-user:/run/tidewater/vfio.sock&level=ring'
 *
 * `device` may come from the environment, as TIDEWATER_DEVICE; `level` is what survives a loss of power unless given, `lane` 0. With `window=LBA+BLOCKS` the log lies
 * in these blocks of the drive's byte window instead of the ring: a sync is a BA_SYNC, and the device may be "pci:ADDRESS" too. The first database that is opened
 * decides for the process. Before it is opened, what an earlier process left in the log is applied to the files.
 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3ext.h>
#include <tidewater.h>

SQLITE_EXTENSION_INIT1

/* A file of ours: the default VFS's lies behind it. */
typedef struct {
	sqlite3_file base;
	/* Its number in the log, or -1: not a file of the log. */
	int64_t number;
} File;

static sqlite3_vfs *below;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct tidewater_files *files;

static sqlite3_file *real(sqlite3_file *file)
{
	return (sqlite3_file *)((File *)file + 1);
}

static int64_t number(sqlite3_file *file)
{
	return ((File *)file)->number;
}

static int failed(int otherwise)
{
	return errno == ENOMEM ? SQLITE_NOMEM : errno == ENOSPC ? SQLITE_FULL : otherwise;
}

/* All of the log up to now is on the backing store. */
static int in_order(void)
{
	return files == NULL || tidewater_files_order(files) == 0 ? SQLITE_OK : failed(SQLITE_IOERR_FSYNC);
}

static int file_close(sqlite3_file *file)
{
	if (number(file) >= 0)
		tidewater_files_leave(files, number(file));
	return real(file)->pMethods->xClose(real(file));
}

static int file_read(sqlite3_file *file, void *to, int bytes, sqlite3_int64 offset)
{
	return real(file)->pMethods->xRead(real(file), to, bytes, offset);
}

/* A change that is on the log, and that the file is to have too. */
typedef struct {
	sqlite3_file *file;
	const void *from;
	int bytes;
	sqlite3_int64 offset;
	int status;
} Change;

static bool really_write(void *with)
{
	Change *change = with;
	change->status =
		real(change->file)->pMethods->xWrite(real(change->file), change->from, change->bytes, change->offset);
	return change->status == SQLITE_OK;
}

static bool really_truncate(void *with)
{
	Change *change = with;
	change->status = real(change->file)->pMethods->xTruncate(real(change->file), change->offset);
	return change->status == SQLITE_OK;
}

static int file_write(sqlite3_file *file, const void *from, int bytes, sqlite3_int64 offset)
{
	if (number(file) < 0)
		return real(file)->pMethods->xWrite(real(file), from, bytes, offset);
	Change change = { file, from, bytes, offset, SQLITE_OK };
	if (tidewater_files_write(files, number(file), from, (size_t)bytes, offset, really_write, &change) < 0)
		return failed(SQLITE_IOERR_WRITE);
	return change.status;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	if (number(file) < 0) {
		int status = in_order();
		return status != SQLITE_OK ? status : real(file)->pMethods->xTruncate(real(file), size);
	}
	Change change = { file, NULL, 0, size, SQLITE_OK };
	if (tidewater_files_truncate(files, number(file), size, really_truncate, &change) < 0)
		return failed(SQLITE_IOERR_TRUNCATE);
	return change.status;
}

static int file_sync(sqlite3_file *file, int flags)
{
	if (number(file) >= 0)
		return tidewater_files_sync(files, number(file)) == 0 ? SQLITE_OK : failed(SQLITE_IOERR_FSYNC);
	int status = in_order();
	return status != SQLITE_OK ? status : real(file)->pMethods->xSync(real(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
	return real(file)->pMethods->xFileSize(real(file), size);
}

static int file_lock(sqlite3_file *file, int lock)
{
	return real(file)->pMethods->xLock(real(file), lock);
}

static int file_unlock(sqlite3_file *file, int lock)
{
	return real(file)->pMethods->xUnlock(real(file), lock);
}

static int file_check_reserved_lock(sqlite3_file *file, int *is)
{
	return real(file)->pMethods->xCheckReservedLock(real(file), is);
}

static int file_control(sqlite3_file *file, int op, void *argument)
{
	int status = real(file)->pMethods->xFileControl(real(file), op, argument);
	if (op == SQLITE_FCNTL_VFSNAME && status == SQLITE_OK)
		*(char **)argument = sqlite3_mprintf("tidewater/%z", *(char **)argument);
	return status;
}

static int file_sector_size(sqlite3_file *file)
{
	return real(file)->pMethods->xSectorSize(real(file));
}

static int file_characteristics(sqlite3_file *file)
{
	return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

static int file_shm_map(sqlite3_file *file, int page, int bytes, int extend, void volatile **at)
{
	return real(file)->pMethods->xShmMap(real(file), page, bytes, extend, at);
}

static int file_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
	return real(file)->pMethods->xShmLock(real(file), offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
	real(file)->pMethods->xShmBarrier(real(file));
}

static int file_shm_unmap(sqlite3_file *file, int delete)
{
	return real(file)->pMethods->xShmUnmap(real(file), delete);
}

static int file_fetch(sqlite3_file *file, sqlite3_int64 offset, int bytes, void **at)
{
	return real(file)->pMethods->xFetch(real(file), offset, bytes, at);
}

static int file_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *at)
{
	return real(file)->pMethods->xUnfetch(real(file), offset, at);
}

/* One table for each version of methods that a file below may have: SQLite asks by `iVersion` what there is. */
#define METHODS(version) \
	{ (version), file_close, file_read, file_write, file_truncate, file_sync, file_size, file_lock, file_unlock, \
	  file_check_reserved_lock, file_control, file_sector_size, file_characteristics, file_shm_map, file_shm_lock, \
	  file_shm_barrier, file_shm_unmap, file_fetch, file_unfetch }

static const sqlite3_io_methods methods[] = { METHODS(1), METHODS(2), METHODS(3) };

/* A level by its name; -1: there is none of it. */
static int level_of(const char *name)
{
	if (strcmp(name, "ring") == 0)
		return TIDEWATER_RING;
	return strcmp(name, "destaged") == 0 ? TIDEWATER_DESTAGED : -1;
}

/* The process ends as it should: all bytes go to their files, and the log is emptied. One that is killed leaves them to the next. */
__attribute__((destructor)) static void close_log(void)
{
	tidewater_files_close(files);
	files = NULL;
}

/* Opens the log for this process, unless it is open. */
static int open_log(const char *database)
{
	int status = SQLITE_OK;
	pthread_mutex_lock(&opening);
	if (files == NULL) {
		const char *device = sqlite3_uri_parameter(database, "device");
		const char *level = sqlite3_uri_parameter(database, "level");
		const char *window = sqlite3_uri_parameter(database, "window");
		char *target = NULL;
		struct tidewater_options options;
		tidewater_options_init(&options);
		options.lane = (uint32_t)sqlite3_uri_int64(database, "lane", 0);
		device = device ? device : getenv("TIDEWATER_DEVICE");
		if (device == NULL) {
			sqlite3_log(SQLITE_CANTOPEN, "tidewater: no device: open with ...&device=vfio-user:SOCKET, or set TIDEWATER_DEVICE");
			status = SQLITE_CANTOPEN;
		} else if (level && (options.level = level_of(level)) < 0) {
			sqlite3_log(SQLITE_CANTOPEN, "tidewater: '%s' is no level: it is ring or destaged", level);
			status = SQLITE_CANTOPEN;
		} else if (window && (target = sqlite3_mprintf("window:%s:%s", window, device)) == NULL) {
			status = SQLITE_NOMEM;
		} else if ((files = tidewater_files_open(target ? target : device, &options)) == NULL) {
			status = errno == EBUSY ? SQLITE_BUSY : SQLITE_CANTOPEN;
			sqlite3_log(status, "tidewater: %s: %s", target ? target : device, tidewater_message());
		}
		sqlite3_free(target);
	}
	pthread_mutex_unlock(&opening);
	return status;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *opened)
{
	(void)vfs;
	file->pMethods = NULL;
	((File *)file)->number = -1;
	if (flags & SQLITE_OPEN_MAIN_DB && name) {
		int status = open_log(name);
		if (status != SQLITE_OK)
			return status;
	}
	int status = below->xOpen(below, name, real(file), flags, opened);
	if (status != SQLITE_OK)
		return status;
	int is_log = flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL);
	if (is_log && name && files && !(flags & SQLITE_OPEN_READONLY)) {
		int64_t number = tidewater_files_enter(files, name);
		if (number < 0) {
			sqlite3_log(SQLITE_CANTOPEN, "tidewater: %s: %s", name, tidewater_message());
			real(file)->pMethods->xClose(real(file));
			return failed(SQLITE_CANTOPEN);
		}
		((File *)file)->number = number;
	}
	int version = real(file)->pMethods->iVersion;
	file->pMethods = &methods[(version < 1 ? 1 : version > 3 ? 3 : version) - 1];
	return SQLITE_OK;
}

/* A removal, once the log knows of it. */
typedef struct {
	const char *name;
	int sync_directory;
	int status;
} Removal;

static bool really_delete(void *with)
{
	Removal *removal = with;
	removal->status = below->xDelete(below, removal->name, removal->sync_directory);
	return removal->status == SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
	(void)vfs;
	if (files == NULL)
		return below->xDelete(below, name, sync_directory);
	Removal removal = { name, sync_directory, SQLITE_OK };
	if (tidewater_files_remove(files, name, really_delete, &removal) < 0)
		return failed(SQLITE_IOERR_DELETE);
	return removal.status;
}

/* The rest is the default VFS's. */
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

static sqlite3_vfs ours = {
	.iVersion = 2,
	.zName = "tidewater",
	.xOpen = vfs_open,
	.xDelete = vfs_delete,
	.xAccess = vfs_access,
	.xFullPathname = vfs_full_path,
	.xDlOpen = vfs_dl_open,
	.xDlError = vfs_dl_error,
	.xDlSym = vfs_dl_symbol,
	.xDlClose = vfs_dl_close,
	.xRandomness = vfs_randomness,
	.xSleep = vfs_sleep,
	.xCurrentTime = vfs_time,
	.xGetLastError = vfs_last_error,
	.xCurrentTimeInt64 = vfs_time64,
};

/* What `load_extension('tidewater_vfs')` calls: registers the VFS, which stays until the process ends. */
int sqlite3_tidewatervfs_init(sqlite3 *database, char **error, const sqlite3_api_routines *api)
{
	SQLITE_EXTENSION_INIT2(api);
	(void)database;
	below = sqlite3_vfs_find(NULL);
	if (below == NULL || below->iVersion < 2) {
		*error = sqlite3_mprintf("tidewater: the default VFS is too old");
		return SQLITE_ERROR;
	}
	if (below == &ours)
		return SQLITE_OK_LOAD_PERMANENTLY;
	ours.szOsFile = (int)sizeof(File) + below->szOsFile;
	ours.mxPathname = below->mxPathname;
	int status = sqlite3_vfs_register(&ours, 0);
	return status == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : status;
}
