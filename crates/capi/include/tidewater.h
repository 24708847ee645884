/* Tidewater: a log on a served drive, whose ring this process maps. See tidewater(3).
 *
 * Generated from crates/capi/src/lib.rs; changes belong there. */

#ifndef TIDEWATER_H
#define TIDEWATER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// The level that a log has unless another is asked for: RING where the ring's memory survives a loss of power,
// DESTAGED elsewhere.
#define TIDEWATER_DEFAULT 0

// In the ring: survives a crash of this process and of the device's; a loss of power only where the ring's memory
// does.
#define TIDEWATER_RING 1

// On the backing store, and synced: survives a loss of power, as far as the disk below keeps what it promises.
#define TIDEWATER_DESTAGED 2

// In the rings of as many replicas as the group's mode asks for. ENOTSUP: no group, or a lazy one.
#define TIDEWATER_REMOTE_RING 3

// On the backing stores of the device and of as many replicas, and synced. ENOTSUP as there.
#define TIDEWATER_REMOTE_DESTAGED 4

// As TIDEWATER_WRITE_BACK_LINES where the ring's memory survives a loss of power, and not elsewhere.
#define TIDEWATER_WRITE_BACK_DEFAULT 0

// Nothing is written back: stores outlive the process all the same.
#define TIDEWATER_WRITE_BACK_NONE 1

// Records are stored past the caches, lines of anything else are written back, and a fence waits for both.
#define TIDEWATER_WRITE_BACK_LINES 2

// A record, in struct tidewater_entry.
#define TIDEWATER_RECORD 1

// Bytes that a writer gave up, or died over.
#define TIDEWATER_VOID 2

// Bytes that are no record: raw ones, or damage.
#define TIDEWATER_SKIPPED 3

// Wherever in the buffer there is room: the offset of tidewater_ba_pin.
#define TIDEWATER_ANYWHERE -1

// The files of this process on a log. Threads share it; a fork does not.
struct tidewater_files;

// A log. Threads share it, and, on one device, so do both sides of a fork.
struct tidewater_log;

// A record that is being filled. One thread has it at a time.
struct tidewater_record;

// The byte window of a drive, for blocks of one namespace. Threads share it; a fork does not.
struct tidewater_window;

// How a log is opened. tidewater_options_init sets the defaults.
struct tidewater_options {
  // Bytes of this structure, as the program knows it.
  size_t size;
  // The lane, 0 to 15. Default 0.
  uint32_t lane;
  // Level that tidewater_x_fsync waits for. RING on memory that survives no loss of power must be asked for here.
  int level;
  // How stores get to memory: TIDEWATER_WRITE_BACK_...
  int write_back;
  // 0.
  int reserved;
  // How long an append waits for a ring that is full, in milliseconds. Default 1000.
  int64_t full_ms;
  // How long tidewater_x_fsync waits, in milliseconds. Default 10000.
  int64_t timeout_ms;
};

// State of a log when it was opened, or attached to again.
struct tidewater_recovered {
  // Where the stream goes on: all below is in the ring, or where the device has taken it to.
  int64_t tail;
  // Bytes that are in the ring and that the device has not taken yet.
  int64_t in_ring;
  // Whole records of the writer before that it had not published, and that count now.
  int64_t records;
  // Holes between them, which were sealed as void.
  int64_t sealed;
  // The stream did not go on from what was published: a loss of power, or a function that was set up anew.
  bool is_new;
};

// An entry that tidewater_next finds.
struct tidewater_entry {
  // TIDEWATER_RECORD, TIDEWATER_VOID or TIDEWATER_SKIPPED.
  int kind;
  // Where it begins in the stream.
  int64_t lsn;
  // Where it ends.
  int64_t end;
  // A record's payload, in the bytes that were given; else NULL.
  const void *payload;
  // Its bytes.
  size_t payload_bytes;
};

// How a log is doing.
struct tidewater_status {
  // Bytes of the ring.
  int64_t ring_bytes;
  // The oldest byte that can be read; -1: not known, since there is no connection to the device.
  int64_t oldest;
  // End of what writers have reserved.
  int64_t reserved;
  // End of what is at RING.
  int64_t ring;
  // End of what the device has taken.
  int64_t taken;
  // End of what is at DESTAGED, as far as it was asked for.
  int64_t destaged;
  // The log's level.
  int level;
  // The device takes from the ring.
  bool open;
  // Its stream is broken.
  bool broken;
  // This process has a connection to the device.
  bool connected;
  // RING survives a loss of power.
  bool persistent;
};

// The lane for another process of the same PID namespace to write. The descriptors are close-on-exec.
struct tidewater_shared {
  // The ring's file.
  int ring_fd;
  // An eventfd that wakes the device.
  int doorbell_fd;
  // The ring's copy on a disk; -1: it has none.
  int copy_fd;
  // The lane.
  uint32_t lane;
  // The generation that it is written in.
  uint64_t generation;
};

// Does to the file itself what was put on the log. Returns whether all of it was done: any value but 0, or 0 where it
// was not. It is called by the thread that changes the file, while no other can change it; it must not call functions
// of this library.
typedef int (*tidewater_real)(void *with);

// As tidewater_real, of bytes that are to be written from where they lie.
typedef int (*tidewater_real_write)(void *with, const void *bytes, size_t len);

// An entry of the window's mapping table.
struct tidewater_entry_info {
  // Its first byte in the window.
  int64_t offset;
  // Its bytes.
  int64_t bytes;
  // The first logical block that it pins.
  uint64_t lba;
  // The namespace of that block.
  uint32_t nsid;
  // Not 0: a flush of it was cut short, and it can only be flushed.
  int flush_begun;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets the defaults: lane 0, a level that survives a loss of power, a second for a full ring, ten for a sync.
void tidewater_options_init(struct tidewater_options *options);

// Opens the log at "vfio-user:SOCKET", and takes up its stream. Of several such targets with commas between them it is
// the one whose device is primary; of "cluster:etcd=HOST:PORT/NAME" the one that etcd names. One is waited for up to 5
// seconds. Returns NULL and sets errno when that fails; EBUSY: another process has the device, or writes the lane.
// EROFS, EPIPE: no device is primary. ENOENT: etcd has no such cluster.
//
// On several devices the log moves: when the primary has gone or was deposed, calls find the next one for up to 30
// seconds, append there what it has not got, and go on: log sequence numbers stay what they were. They fail with EPIPE
// or EROFS when there is none, and with ESTALE when another program has appended there, or no replica had what this
// one appended.
struct tidewater_log *tidewater_open(const char *target,
                                     const struct tidewater_options *options,
                                     struct tidewater_recovered *recovered);

// Closes a log. What was appended stays where it is. No other call may be using it; records that were begun and not
// ended keep it until they are. NULL is allowed.
void tidewater_close(struct tidewater_log *log);

// Appends one record. Returns its log sequence number, and where it ends in *end (unless that is NULL): what to wait
// for. -1 and errno: nothing was appended. EAGAIN: the ring is full, and stayed so. ENOSPC: trim the log.
int64_t tidewater_append(const struct tidewater_log *log, const void *buf, size_t len, int64_t *end);

// Appends one record whose payload is the parts one after another, up to 1024. As tidewater_append.
int64_t tidewater_appendv(const struct tidewater_log *log, const struct iovec *parts, int count, int64_t *end);

// Writes bytes at the end of the stream, as they are, without a record around them. Returns where they begin, and
// their end in *end; -1 and errno.
int64_t tidewater_x_pwrite(const struct tidewater_log *log, const void *buf, size_t len, int64_t *end);

// Waits until all that was appended before, by anybody who has the lane, is at the log's level. Returns where that
// ends; -1 and errno, as tidewater_wait.
int64_t tidewater_x_fsync(const struct tidewater_log *log);

// Waits until everything before `end` is at a level, at most so many milliseconds; negative: as long as it takes.
// Returns 0; -1 and errno. ETIMEDOUT: it is not known how it ended; the same may be waited for again. EPIPE: the
// device has gone. EHOSTDOWN: it does not answer. ESTALE: the stream goes on elsewhere. EIO: it is broken, and stays
// so. ENOTSUP: nothing offers the level.
int tidewater_wait(const struct tidewater_log *log, int64_t end, int level, int64_t timeout_ms);

// A descriptor that becomes readable, and stays so, when everything before `end` is at a level or never will be:
// tidewater_wait with no time tells at once which. For poll, epoll and io_uring; close it when it is of no more use.
// -1 and errno.
int tidewater_eventfd(const struct tidewater_log *log, int64_t end, int level);

// Reads the log from `at` on, until `len` bytes are there or the time is over. Returns how many came; -1 and errno.
// ENXIO: they were trimmed or overwritten. ETIMEDOUT: none came. ENOTSUP: only flash has them, and the process that
// opened the log has the connection.
ptrdiff_t tidewater_x_pread(const struct tidewater_log *log, void *buf, size_t len, int64_t at, int64_t timeout_ms);

// Finds the next entry in bytes that were read from `lsn` on. Returns 1, and the entry; 0: there is no whole one any
// more. The next search goes on at entry->end.
int tidewater_next(const void *buf, size_t len, int64_t lsn, struct tidewater_entry *entry);

// Reserves room for a record of so many bytes, which is filled piece by piece, by this process only. Returns
// NULL and errno as tidewater_append. While it is open, nothing behind it comes to any level.
struct tidewater_record *tidewater_x_alloc(const struct tidewater_log *log, uint32_t bytes, int64_t *lsn);

// Stores bytes at a place of a record's payload. Returns 0; -1 and EINVAL: they are not inside.
int tidewater_x_fill(struct tidewater_record *record, uint32_t at, const void *buf, size_t len);

// The record is whole. Returns where it ends: what to wait for; -1 and errno. Either way the handle is gone.
int64_t tidewater_x_free(struct tidewater_record *record);

// Gives the record up: it becomes a void one, and what others appended behind it is not lost. NULL is allowed.
void tidewater_x_abort(struct tidewater_record *record);

// The log before `lsn` is not needed any more. Returns 0; -1 and errno.
int tidewater_trim(const struct tidewater_log *log, int64_t lsn);

// Tells how a log is doing. Returns 0; -1 and errno.
int tidewater_status(const struct tidewater_log *log, struct tidewater_status *status);

// Failures that a level of this log survives, in words. NULL and EINVAL: there is no such level.
const char *tidewater_survives(const struct tidewater_log *log, int level);

// Connects anew, after EPIPE, while other threads and processes use the log. All below recovered->tail is in the ring,
// or where the device took it to. Returns 0; -1 and errno. ESTALE: the stream goes on elsewhere; close the log and
// open it again, which tells where. A log on several devices moves by itself; this has it look for the primary at
// once.
int tidewater_reattach(const struct tidewater_log *log, struct tidewater_recovered *recovered);

// How often a log on several devices has moved to another primary; -1 and errno.
int64_t tidewater_moves(const struct tidewater_log *log);

// Descriptors by which another process joins the lane: they are the caller's to hand on, and to close. From then on
// the log stays on its device. Returns 0; -1 and errno.
int tidewater_share(const struct tidewater_log *log, struct tidewater_shared *shared);

// Joins a lane that another process shares. The descriptors are the log's from now on, and are closed when this fails.
// NULL and errno.
struct tidewater_log *tidewater_join(const struct tidewater_shared *shared, const struct tidewater_options *options);

// Message of this thread's last call that failed, in words. It stays until the next one fails.
const char *tidewater_message(void);

// The library's version, "0.1.0".
const char *tidewater_version(void);

// Opens the lane at "vfio-user:SOCKET" for files of this process, and applies to its files what an earlier process
// left in it. While it is open, the files are synced in the background and the log is trimmed behind them. Of the
// options `lane` and `level` count. Returns NULL and sets errno when that fails; EBUSY: another process has the
// device, or writes the lane.
//
// "window:LBA+BLOCKS:TARGET", TARGET being "vfio-user:SOCKET" or "pci:ADDRESS": the log lies in these blocks of
// namespace 1 of a drive with a byte window, and syncs are BA_SYNCs. ENOTSUP: the window's memory survives nothing, or
// the level is not TIDEWATER_DESTAGED; EEXIST: the blocks hold something else.
struct tidewater_files *tidewater_files_open(const char *target, const struct tidewater_options *options);

// Syncs all files, empties the log and closes it. 0, or -1 and errno: the log keeps what it has, and the process that
// opens it next applies it. In both cases the handle is gone. NULL is allowed. A child of a fork closes its copy of
// the handle, and no more: files and log are its parent's.
int tidewater_files_close(struct tidewater_files *files);

// A file of this name, which exists, is about to be written to: what it is now is made durable, and its changes are
// logged from here on. Returns the number of the file, or -1 and errno.
int64_t tidewater_files_enter(const struct tidewater_files *files, const char *path);

// As tidewater_files_enter, of a file that the process may have locked by fcntl(2), such as a database: the library
// opens it once, and closes it with the log. For where a process closes any descriptor of a file, the system gives up
// all its locks of it.
int64_t tidewater_files_enter_locked(const struct tidewater_files *files, const char *path);

// This number names no file any more, which another file may get; what is kept of the file goes to it first. The
// log keeps what it has of the file until that is synced. 0, or -1 and errno.
int tidewater_files_leave(const struct tidewater_files *files, int64_t number);

// Writes bytes to a file: puts them on the log, then calls `real`. `buf` must not change until this returns.
// Returns 0; 1 when `real` returned 0: then the log has what the file has now; -1 and errno when the log could not
// take them: then `real` was not called, or what the file has is not known to the log, and nothing is promised any
// more.
int tidewater_files_write(const struct tidewater_files *files,
                          int64_t number,
                          const void *buf,
                          size_t len,
                          int64_t offset,
                          tidewater_real real,
                          void *with);

// As tidewater_files_write, of the bytes of two parts that lie in the file one after the other, such as a head and its
// page. `real` is called with all of them, where they lie one after the other: so the layer need not put them
// together.
int tidewater_files_write_frame(const struct tidewater_files *files,
                                int64_t number,
                                const struct iovec *frame,
                                int64_t offset,
                                tidewater_real_write real,
                                void *with);

// From now on the layer may keep for a while what it is asked to write, instead of writing it: `bring` writes what it
// has kept, and returns any value but 0 where all of it was written. It is called as `real` is, by any thread, before
// the file is synced, gets another length or is left, and by tidewater_files_catch_up. A process that dies leaves what
// it kept on the log, for the process that opens that next. 0, or -1 and errno.
int tidewater_files_keep(const struct tidewater_files *files, int64_t number, tidewater_real bring, void *with);

// Writes the kept changes of a file to it, -1: of all files: to be called before it is read. 0, or -1 and errno: it
// could not, and the log alone has it.
int tidewater_files_catch_up(const struct tidewater_files *files, int64_t number);

// Gives a file a length: tells the log, then calls `real`. Returns as tidewater_files_write.
int tidewater_files_truncate(const struct tidewater_files *files,
                             int64_t number,
                             int64_t len,
                             tidewater_real real,
                             void *with);

// Removes a file by its name, of the log or not, or an empty directory: says so on the log, which must come first,
// then calls `real`. Returns as tidewater_files_write.
int tidewater_files_remove(const struct tidewater_files *files, const char *path, tidewater_real real, void *with);

// Gives a file or a folder another name, be it of the log or not: says so on the log, which must come first, then
// calls `real`. What is kept of the file goes to it before. Returns as tidewater_files_write.
int tidewater_files_rename(const struct tidewater_files *files,
                           const char *from,
                           const char *to,
                           tidewater_real real,
                           void *with);

// Waits until all that was written so far, to any file of the log, is at the log's level: instead of a sync of the
// file. 0, or -1 and errno, for good.
int tidewater_files_sync(const struct tidewater_files *files, int64_t number);

// To be called before any other file is synced, renamed or truncated: waits until the log survives whatever that
// survives. 0, or -1 and errno, for good.
int tidewater_files_order(const struct tidewater_files *files);

// Opens the byte window of the drive at "vfio-user:SOCKET" or "pci:ADDRESS", for blocks of a namespace. Returns NULL
// and sets errno when that fails. ENOTSUP: the drive has no byte window; EBUSY: another process has the device.
struct tidewater_window *tidewater_window_open(const char *target, uint32_t nsid);

// Closes a window. Entries stay pinned. No other call may be using it. NULL is allowed.
void tidewater_window_close(struct tidewater_window *window);

// Bytes of a logical block. -1 and errno: it is not known.
int64_t tidewater_window_block_bytes(const struct tidewater_window *window);

// BA_PIN: pins logical blocks as entry `eid`, at a byte of the buffer or TIDEWATER_ANYWHERE. Both are whole logical
// pages (4 KiB). Returns the bytes that are pinned. -1 and errno: none are. EEXIST: the entry, the place or one of the
// blocks is pinned already; ENOSPC: the buffer or the table is full; ERANGE: the range is none.
int64_t tidewater_ba_pin(const struct tidewater_window *window,
                         uint16_t eid,
                         int64_t offset,
                         uint64_t lba,
                         uint32_t blocks);

// Stores bytes into an entry from its byte `at` on. They are safe after tidewater_ba_sync. 0; -1 and errno. ERANGE:
// they end past it.
int tidewater_ba_store(const struct tidewater_window *window, uint16_t eid, int64_t at, const void *buf, size_t len);

// Loads bytes of an entry from its byte `at` on, one register after the other. 0; -1 and errno.
int tidewater_ba_load(const struct tidewater_window *window, uint16_t eid, int64_t at, void *buf, size_t len);

// BA_SYNC: all that was stored into an entry survives what the window's memory survives. 0; -1 and errno. EIO: the
// device could not make it safe.
int tidewater_ba_sync(const struct tidewater_window *window, uint16_t eid);

// BA_FLUSH: writes an entry to its blocks, and ends it. 0; -1 and errno: it is still pinned.
int tidewater_ba_flush(const struct tidewater_window *window, uint16_t eid);

// Ends an entry without writing it: its blocks are what they were. 0; -1 and errno: it is still pinned.
int tidewater_ba_unpin(const struct tidewater_window *window, uint16_t eid);

// BA_READ_DMA: brings bytes of an entry from its byte `at` on by DMA. 0; -1 and errno.
int tidewater_ba_read_dma(const struct tidewater_window *window, uint16_t eid, int64_t at, void *buf, size_t len);

// BA_GET_ENTRY_INFO: asks the device for an entry. 0; -1 and errno. ENOENT: there is none of that identifier.
int tidewater_ba_get_entry_info(const struct tidewater_window *window, uint16_t eid, struct tidewater_entry_info *info);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TIDEWATER_H */
