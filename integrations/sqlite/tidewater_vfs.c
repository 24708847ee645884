/*
 * SQLite on a served drive's fast side: a VFS over the default one, as a loadable extension.
 *
 * What SQLite writes to its write-ahead log (or rollback journal) goes into the log of the device first, then to the
 * file as ever. A sync of such a file waits for the device's log instead of the disk. A sync of anything else first
 * waits until all of the log before it is on the backing store: otherwise a crash of the machine could leave pages of
 * the database ahead of their log.
 *
 *     SELECT load_extension('tidewater_vfs');
 *     .open 'file:my.db?vfs=tidewater&device=vfio-user:/run/tidewater/vfio.sock&level=ring'
 *
 * With `data=log` the database itself is on the log as well, and no sync waits for a disk: docs/guide/layers.md says
 * what that is worth at which level. A database that a connection has put on the log is on it for all of the process's
 * that come later.
 *
 * `device` may come from the environment, as TIDEWATER_DEVICE; `level` is what survives a loss of power unless given,
 * `lane` 0. With `window=LBA+BLOCKS` the log lies in these blocks of the drive's byte window instead of the ring: a
 * sync is a BA_SYNC, and the device may be "pci:ADDRESS" too. The first database that is opened decides for the
 * process: others may say nothing of these, or the same. Before it is opened, what an earlier process left in the log
 * is applied to the files. `map=off` writes the write-ahead log by calls alone.
 */

/* For SEEK_HOLE and mremap. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3ext.h>
#include <tidewater.h>

SQLITE_EXTENSION_INIT1

#include "default_vfs.h"
#include "wal_mapping.h"

/* Bytes before each page in a write-ahead log (https://www.sqlite.org/fileformat2.html#the_write_ahead_log). */
#define FRAME_HEAD 24
/* The writer's lock, in the index in shared memory (https://www.sqlite.org/walformat.html#wal_locks). */
#define WRITE_LOCK 0

/* Of a device's lanes the last that there may be. */
#define LANE_MAX 15

/* A database that this process has opened. */
typedef struct Database {
	struct Database *next;
	/* It is on the log, and stays there: the log has what was written to it. */
	bool logged;
	/* Connections that write it beside the log. */
	int beside;
	char name[];
} Database;

/* A file of ours: the default VFS's lies behind it. */
typedef struct File {
	sqlite3_file base;
	/* Its number in the log, or -1: not a file of the log. */
	int64_t number;
	/* A database that it writes beside the log, or NULL. */
	Database *beside;
	/* Of a database its write-ahead log, and the other way round; NULL: there is none, or nothing of it is held back. */
	struct File *partner;
	/* Of a write-ahead log: whether the head of a frame is held back, which belongs to this offset. */
	bool gathers, holds;
	unsigned char head[FRAME_HEAD];
	sqlite3_int64 held_at;
	/* Where it was read last, or -1: it was written since. */
	sqlite3_int64 read_at;
	/* The error of a deferred write, where no caller could be given it. */
	int late;
	/* Of a database: whether its write-ahead log may be mapped. */
	bool maps;
	/* Of a write-ahead log. */
	Mapping mapping;
} File;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct tidewater_files *files;
/* How the log was opened. */
static struct {
	char *target;
	int level;
	uint32_t lane;
} asked;
static Database *databases;

static sqlite3_file *real(sqlite3_file *file)
{
	return (sqlite3_file *)((File *)file + 1);
}

static int64_t number(sqlite3_file *file)
{
	return ((File *)file)->number;
}

/* The error of a failed call of the library, as SQLite's; the reason goes to its error log (`.log stderr` in its
   shell). */
static int failed(int otherwise)
{
	int status = errno == ENOMEM ? SQLITE_NOMEM : errno == ENOSPC ? SQLITE_FULL : otherwise;
	sqlite3_log(status, "tidewater: %s", tidewater_message());
	return status;
}

/* All of the log up to now is on the backing store. */
static int in_order(void)
{
	return files == NULL || tidewater_files_order(files) == 0 ? SQLITE_OK : failed(SQLITE_IOERR_FSYNC);
}

/* A change that is on the log, and that the file is to have too. */
typedef struct {
	sqlite3_file *file;
	const void *from;
	int bytes;
	sqlite3_int64 offset;
	int status;
} Change;

static int really_write(void *with)
{
	Change *change = with;
	change->status =
		real(change->file)->pMethods->xWrite(real(change->file), change->from, change->bytes, change->offset);
	return change->status == SQLITE_OK;
}

static int really_truncate(void *with)
{
	Change *change = with;
	change->status = real(change->file)->pMethods->xTruncate(real(change->file), change->offset);
	return change->status == SQLITE_OK;
}

static int put(sqlite3_file *file, const void *from, int bytes, sqlite3_int64 offset)
{
	Change change = { file, from, bytes, offset, SQLITE_OK };
	if (tidewater_files_write(files, number(file), from, (size_t)bytes, offset, really_write, &change) < 0)
		return failed(SQLITE_IOERR_WRITE);
	return change.status;
}

static int really_write_frame(void *with, const void *frame, size_t bytes)
{
	Change *change = with;
	unsigned char *at = mapping_find(&((File *)change->file)->mapping, change->offset, bytes);
	if (at) {
		memcpy(at, frame, bytes);
		return 1;
	}
	change->from = frame;
	change->bytes = (int)bytes;
	return really_write(change);
}

/* The head that is held back, and its page. */
static int put_frame(sqlite3_file *file, const void *page, int bytes)
{
	File *of = (File *)file;
	struct iovec frame[] = { { of->head, FRAME_HEAD }, { (void *)page, (size_t)bytes } };
	Change change = { file, NULL, 0, of->held_at, SQLITE_OK };
	if (tidewater_files_write_frame(files, of->number, frame, of->held_at, really_write_frame, &change) < 0)
		return failed(SQLITE_IOERR_WRITE);
	return change.status;
}

/* What is held back of a file goes to it: anything but the page that belongs to it is about to be done. It is tried
   once: later, the bytes may be another's. */
static int let_out(sqlite3_file *file)
{
	File *of = (File *)file;
	int status = of->late;
	of->late = SQLITE_OK;
	if (of->holds) {
		of->holds = false;
		status = put(file, of->head, FRAME_HEAD, of->held_at);
	}
	return status;
}

/* As let_out, of a database's write-ahead log, where SQLite takes no error: the next call that it makes for the log
   has it. */
static void let_out_log(sqlite3_file *file)
{
	File *log = ((File *)file)->partner;
	if (log)
		log->late = let_out(&log->base);
}

/*
 * SQLite writes a frame of its write-ahead log in two pieces, a head of 24 bytes and then the page. They go to log and
 * file as one: the head waits for the page, which is what comes next. Nothing but a head is held back, so that a frame
 * that SQLite has written is on the log and in the file. A head of a frame that was read just before is one that SQLite
 * writes anew, because of the checksums, and no page comes behind it.
 */
static int file_write(sqlite3_file *file, const void *from, int bytes, sqlite3_int64 offset)
{
	File *of = (File *)file;
	if (of->number < 0)
		return real(file)->pMethods->xWrite(real(file), from, bytes, offset);
	if (of->holds && offset == of->held_at + FRAME_HEAD) {
		of->holds = false;
		return put_frame(file, from, bytes);
	}
	int status = let_out(file);
	if (status != SQLITE_OK)
		return status;
	bool is_anew = offset == of->read_at;
	of->read_at = -1;
	if (!of->gathers || bytes != FRAME_HEAD || is_anew)
		return put(file, from, bytes, offset);
	memcpy(of->head, from, FRAME_HEAD);
	of->holds = true;
	of->held_at = offset;
	return SQLITE_OK;
}

static int file_read(sqlite3_file *file, void *to, int bytes, sqlite3_int64 offset)
{
	int status = let_out(file);
	((File *)file)->read_at = offset;
	return status != SQLITE_OK ? status : real(file)->pMethods->xRead(real(file), to, bytes, offset);
}

/* Forgets a database that no connection has open and that is not on the log. */
static void forget_database(Database *database)
{
	if (database->logged)
		return;
	for (Database **place = &databases; *place; place = &(*place)->next) {
		if (*place == database) {
			*place = database->next;
			sqlite3_free(database);
			return;
		}
	}
}

static int file_close(sqlite3_file *file)
{
	File *of = (File *)file;
	int status = let_out(file);
	if (of->partner)
		of->partner->partner = NULL;
	if (of->beside) {
		pthread_mutex_lock(&opening);
		if (--of->beside->beside == 0)
			forget_database(of->beside);
		pthread_mutex_unlock(&opening);
	}
	if (of->number >= 0)
		tidewater_files_leave(files, of->number);
	mapping_close(&of->mapping);
	int closed = real(file)->pMethods->xClose(real(file));
	return status != SQLITE_OK ? status : closed;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	int held = let_out(file);
	if (held != SQLITE_OK)
		return held;
	if (number(file) < 0) {
		int status = in_order();
		return status != SQLITE_OK ? status : real(file)->pMethods->xTruncate(real(file), size);
	}
	((File *)file)->mapping.is_known = false;
	Change change = { file, NULL, 0, size, SQLITE_OK };
	if (tidewater_files_truncate(files, number(file), size, really_truncate, &change) < 0)
		return failed(SQLITE_IOERR_TRUNCATE);
	return change.status;
}

static int file_sync(sqlite3_file *file, int flags)
{
	int held = let_out(file);
	if (held != SQLITE_OK)
		return held;
	if (number(file) >= 0)
		return tidewater_files_sync(files, number(file)) == 0 ? SQLITE_OK : failed(SQLITE_IOERR_FSYNC);
	int status = in_order();
	return status != SQLITE_OK ? status : real(file)->pMethods->xSync(real(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
	int status = let_out(file);
	return status != SQLITE_OK ? status : real(file)->pMethods->xFileSize(real(file), size);
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
	int status = let_out(file);
	if (status != SQLITE_OK)
		return status;
	/* Both are for speed, and would change the file's length beside the log. */
	if (number(file) >= 0 && (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE))
		return SQLITE_NOTFOUND;
	status = real(file)->pMethods->xFileControl(real(file), op, argument);
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
	int all = real(file)->pMethods->xDeviceCharacteristics(real(file));
	/* What the file system writes as a whole or not at all, the log does not. */
	return number(file) < 0 ? all : all & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

static int file_shm_map(sqlite3_file *file, int page, int bytes, int extend, void volatile **at)
{
	return real(file)->pMethods->xShmMap(real(file), page, bytes, extend, at);
}

static int file_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
	let_out_log(file);
	File *log = ((File *)file)->partner;
	if (log && offset == WRITE_LOCK)
		log->mapping.is_locked = false;
	int status = real(file)->pMethods->xShmLock(real(file), offset, n, flags);
	if (log && offset == WRITE_LOCK && status == SQLITE_OK && flags & SQLITE_SHM_LOCK) {
		log->mapping.is_locked = true;
		log->mapping.is_known = false;
	}
	return status;
}

static void file_shm_barrier(sqlite3_file *file)
{
	let_out_log(file);
	real(file)->pMethods->xShmBarrier(real(file));
}

static int file_shm_unmap(sqlite3_file *file, int delete)
{
	let_out_log(file);
	return real(file)->pMethods->xShmUnmap(real(file), delete);
}

static int file_fetch(sqlite3_file *file, sqlite3_int64 offset, int bytes, void **at)
{
	int status = let_out(file);
	return status != SQLITE_OK ? status : real(file)->pMethods->xFetch(real(file), offset, bytes, at);
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

/* Levels by their numbers in tidewater.h. */
static const char *const levels[] = { "default", "ring", "destaged", "remote-ring", "remote-destaged" };

/* A level by its name; -1: there is none of it. */
static int level_of(const char *name)
{
	for (int level = TIDEWATER_RING; level <= TIDEWATER_REMOTE_DESTAGED; level++)
		if (strcmp(name, levels[level]) == 0)
			return level;
	return -1;
}

/* Whether what waits for one level may count on another. The default is DESTAGED, or RING where that is as good. */
static bool covers(int level, int other)
{
	if (level == TIDEWATER_DEFAULT)
		return other <= TIDEWATER_DESTAGED;
	return level == other || level == TIDEWATER_REMOTE_DESTAGED || other == TIDEWATER_RING;
}

/* The process ends as it should: all bytes go to their files, and the log is emptied. One that is killed leaves them
   to the next. */
__attribute__((destructor)) static void close_log(void)
{
	/* No caller is left to return an error to, and the program may have ended well. */
	if (tidewater_files_close(files) != 0)
		fprintf(stderr,
			"tidewater: %s: %s: the log keeps what is not synced of its files, for who opens it next or for "
			"`tidewater recover`\n",
			asked.target, tidewater_message());
	files = NULL;
}

/* Whether the log that is open is what a database asks for: one that asks for nothing takes what is there. */
static int suits(const char *database, const char *target, const char *level, uint32_t lane)
{
	const char *what = NULL;
	if (target && strcmp(target, asked.target) != 0)
		what = "device or window";
	else if (level && !covers(asked.level, level_of(level)))
		what = "level";
	else if (sqlite3_uri_parameter(database, "lane") && lane != asked.lane)
		what = "lane";
	if (what == NULL)
		return SQLITE_OK;
	sqlite3_log(SQLITE_CANTOPEN,
		    "tidewater: %s: this process has its log on %s, lane %u, level %s: no database of it has another %s",
		    database, asked.target, asked.lane, levels[asked.level], what);
	return SQLITE_CANTOPEN;
}

/* Opens the log of this process, as its first database asks for. */
static int open_files(char *target, int level, uint32_t lane)
{
	struct tidewater_options options;
	tidewater_options_init(&options);
	options.level = level;
	options.lane = lane;
	files = tidewater_files_open(target, &options);
	if (files == NULL) {
		int status = errno == EBUSY ? SQLITE_BUSY : SQLITE_CANTOPEN;
		sqlite3_log(status, "tidewater: %s: %s", target, tidewater_message());
		return status;
	}
	sqlite3_free(asked.target);
	asked.target = target;
	asked.level = level;
	asked.lane = lane;
	return SQLITE_OK;
}

/* The log is open for this process, and as a database asks for it. */
static int open_log(const char *database)
{
	const char *level = sqlite3_uri_parameter(database, "level");
	const char *window = sqlite3_uri_parameter(database, "window");
	const char *device = sqlite3_uri_parameter(database, "device");
	sqlite3_int64 lane = sqlite3_uri_int64(database, "lane", 0);
	bool names = device || window;
	char *target = NULL;
	device = device ? device : getenv("TIDEWATER_DEVICE");
	if (level && level_of(level) < 0) {
		sqlite3_log(SQLITE_CANTOPEN,
			    "tidewater: '%s' is no level: it is ring, destaged, remote-ring or remote-destaged", level);
		return SQLITE_CANTOPEN;
	}
	if (lane < 0 || lane > LANE_MAX) {
		sqlite3_log(SQLITE_CANTOPEN, "tidewater: lane %lld: it is 0 to %d", lane, LANE_MAX);
		return SQLITE_CANTOPEN;
	}
	if (device)
		target = window ? sqlite3_mprintf("window:%s:%s", window, device) : sqlite3_mprintf("%s", device);
	if (device && target == NULL)
		return SQLITE_NOMEM;
	int status;
	pthread_mutex_lock(&opening);
	if (files && (target || !names)) {
		status = suits(database, names ? target : NULL, level, (uint32_t)lane);
	} else if (target == NULL) {
		sqlite3_log(SQLITE_CANTOPEN, "tidewater: no device: open with ...&device=vfio-user:SOCKET, or set TIDEWATER_DEVICE");
		status = SQLITE_CANTOPEN;
	} else {
		status = open_files(target, level ? level_of(level) : TIDEWATER_DEFAULT, (uint32_t)lane);
	}
	if (target != asked.target)
		sqlite3_free(target);
	pthread_mutex_unlock(&opening);
	return status;
}

/* What this process knows of a database; NULL: there is no memory. */
static Database *database_of(const char *name)
{
	Database *database = databases;
	while (database && strcmp(database->name, name) != 0)
		database = database->next;
	if (database == NULL) {
		size_t bytes = strlen(name) + 1;
		database = sqlite3_malloc64(offsetof(Database, name) + bytes);
		if (database == NULL)
			return NULL;
		memset(database, 0, sizeof *database);
		memcpy(database->name, name, bytes);
		database->next = databases;
		databases = database;
	}
	return database;
}

/* Decides whether a database that may be written to is on the log. All connections of the process do as the first:
   what one writes beside the log, the log would undo. */
static int place_database(const char *name, File *file, bool *logged)
{
	const char *data = sqlite3_uri_parameter(name, "data");
	if (data && strcmp(data, "log") != 0) {
		sqlite3_log(SQLITE_CANTOPEN, "tidewater: data=%s: it is log, or not there", data);
		return SQLITE_CANTOPEN;
	}
	int status = SQLITE_OK;
	pthread_mutex_lock(&opening);
	Database *database = database_of(name);
	if (database == NULL) {
		status = SQLITE_NOMEM;
	} else if (data && database->beside > 0) {
		sqlite3_log(SQLITE_CANTOPEN,
			    "tidewater: %s: another connection of this process has opened it without data=log", name);
		status = SQLITE_CANTOPEN;
	} else if (data || database->logged) {
		*logged = database->logged = true;
	} else {
		file->beside = database;
		database->beside++;
	}
	pthread_mutex_unlock(&opening);
	return status;
}

/* Has the head of a frame wait for its page, where the log's database is a file of ours too. */
static void gather(const char *name, File *log)
{
	/* The function is there since 3.32. */
	if (sqlite3_libversion_number() < 3032000)
		return;
	sqlite3_file *database = sqlite3_database_file_object(name);
	/* Another VFS may stand above this one. */
	if (database->pMethods < methods || database->pMethods >= methods + sizeof methods / sizeof *methods)
		return;
	log->gathers = true;
	log->partner = (File *)database;
	log->partner->partner = log;
	if (log->partner->maps)
		mapping_open(&log->mapping, name);
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *opened)
{
	(void)vfs;
	File *of = (File *)file;
	memset(of, 0, sizeof *of);
	of->number = of->read_at = -1;
	of->mapping.descriptor = -1;
	bool is_database = flags & SQLITE_OPEN_MAIN_DB && name;
	if (is_database) {
		int status = open_log(name);
		if (status != SQLITE_OK)
			return status;
		of->maps = sqlite3_uri_boolean(name, "map", true);
	}
	int got = flags;
	int status = below->xOpen(below, name, real(file), flags, &got);
	if (opened)
		*opened = got;
	if (status != SQLITE_OK)
		return status;
	bool logged = flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL) && name && files;
	if (got & SQLITE_OPEN_READONLY)
		logged = false;
	else if (is_database)
		status = place_database(name, of, &logged);
	if (logged) {
		/* SQLite locks its databases, and nothing else. */
		of->number = is_database ? tidewater_files_enter_locked(files, name) : tidewater_files_enter(files, name);
		if (of->number < 0) {
			status = failed(SQLITE_CANTOPEN);
			sqlite3_log(status, "tidewater: %s can't be taken onto the log", name);
		}
	}
	if (status != SQLITE_OK) {
		real(file)->pMethods->xClose(real(file));
		return status;
	}
	if (logged && flags & SQLITE_OPEN_WAL)
		gather(name, of);
	/* SQLite takes a method that is there for one that can be called, and some of the system's have none for an index
	   in shared memory (unix-none). */
	int version = real(file)->pMethods->iVersion;
	if (version >= 2 && real(file)->pMethods->xShmMap == NULL)
		version = 1;
	file->pMethods = &methods[(version < 1 ? 1 : version > 3 ? 3 : version) - 1];
	return SQLITE_OK;
}

/* A removal, once the log knows of it. */
typedef struct {
	const char *name;
	int sync_directory;
	int status;
} Removal;

static int really_delete(void *with)
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
	/* Each connection may load it; what is below stays, whatever the default is by then. */
	if (sqlite3_vfs_find(ours.zName) == &ours)
		return SQLITE_OK_LOAD_PERMANENTLY;
	below = sqlite3_vfs_find(NULL);
	if (below == NULL || below->iVersion < 2) {
		*error = sqlite3_mprintf("tidewater: the default VFS is too old");
		return SQLITE_ERROR;
	}
	ours.szOsFile = (int)sizeof(File) + below->szOsFile;
	ours.mxPathname = below->mxPathname;
	int status = sqlite3_vfs_register(&ours, 0);
	return status == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : status;
}
