// RocksDB on a served drive's fast side: a FileSystem over the default one, found by its URI.
//
// What RocksDB writes to its write-ahead log goes into the log of the device first, and to the file in larger pieces:
// when 64 KiB have come together, when it is read through this FileSystem, and before the device's log is trimmed. A
// sync of the log waits for the device's log instead of the disk. A sync, rename or removal of anything else
// first waits until all of the log before it is on the backing store: otherwise a crash of the machine could leave a
// table or a manifest ahead of the log.
//
//     LD_PRELOAD=libtidewater_rocksdb.so db_bench --fs_uri=tidewater://vfio-user:/run/tidewater/vfio.sock
//     --benchmarks=fillsync TIDEWATER_LEVEL=ring TIDEWATER_LANE=0 TIDEWATER_KEEP=65536 ...
//
// With TIDEWATER_KEEP=0 each write goes to the file at once, too, for other processes that read it meanwhile.
//
// A program of your own links the library, or loads it with dlopen, and asks `Env::CreateFromUri` for the URI. Before
// the first file is opened, what an earlier process left in the log is applied to the files.

#include <tidewater.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rocksdb/file_system.h"
#include "rocksdb/utilities/object_registry.h"

namespace {

using namespace ROCKSDB_NAMESPACE;

constexpr char kScheme[] = "tidewater";

IOStatus Failure(const std::string& what) {
  const int error = errno;
  const std::string why = what + ": " + tidewater_message();
  return error == ENOSPC ? IOStatus::NoSpace(why) : IOStatus::IOError(why);
}

// The log of this process: drained and closed with its last user.
class Log {
 public:
  Log(struct tidewater_files* files, std::string device, size_t keep)
      : files_(files), device_(std::move(device)), keep_(keep) {}
  ~Log() {
    // No caller is left to return an error to, and the program may have ended well.
    if (tidewater_files_close(files_) != 0) {
      std::fprintf(stderr,
                   "tidewater: %s: %s: the log keeps what is not synced of its files, for who opens it next or for "
                   "`tidewater recover`\n",
                   device_.c_str(), tidewater_message());
    }
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  tidewater_files* get() const { return files_; }

  // Bytes of a file that may be kept.
  size_t keep() const { return keep_; }

  // All of the log up to now is on the backing store.
  IOStatus Order() const {
    return tidewater_files_order(files_) == 0 ? IOStatus::OK() : Failure("waiting for the log");
  }

  // Brings all of the log's files up to what was written, before one is read, copied or measured.
  IOStatus CatchUp() const {
    return tidewater_files_catch_up(files_, -1) == 0 ? IOStatus::OK() : Failure("writing what was kept of the log");
  }

 private:
  tidewater_files* files_;
  std::string device_;
  size_t keep_;
};

// A change that is on the log, and that the file is to have too.
template <typename Call>
struct Change {
  explicit Change(Call real) : real(std::move(real)) {}

  static int Real(void* with) {
    auto* change = static_cast<Change*>(with);
    change->status = change->real();
    return change->status.ok() ? 1 : 0;
  }

  Call real;
  IOStatus status;
};

// A file of the write-ahead log. Whatever is below `Write` and `Truncate`, and `Bring`, is under the library's lock of
// the file.
class LogFile : public FSWritableFileOwnerWrapper {
 public:
  LogFile(std::unique_ptr<FSWritableFile>&& file, std::shared_ptr<Log> log, int64_t number, uint64_t size)
      : FSWritableFileOwnerWrapper(std::move(file)), log_(std::move(log)), number_(number), size_(size) {}

  ~LogFile() override { Leave(); }

  // Whether the library knows that something may be kept.
  bool Begin() {
    // Direct writes come in pages.
    keeps_ = log_->keep() > 0 && !target()->use_direct_io();
    if (!keeps_) return true;
    kept_.reserve(log_->keep());
    return tidewater_files_keep(log_->get(), number_, Bring, this) == 0;
  }

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    return Write(data, size_, [&] { return Keep(data) ? IOStatus::OK() : Now(data, options, nullptr, dbg); });
  }

  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo& check,
                  IODebugContext* dbg) override {
    return Write(data, size_, [&] { return Keep(data) ? IOStatus::OK() : Now(data, options, &check, dbg); });
  }

  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* dbg) override {
    return Write(data, offset, [&] {
      return Brought() ? target()->PositionedAppend(data, offset, options, dbg) : failed_;
    });
  }

  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo& check, IODebugContext* dbg) override {
    return Write(data, offset, [&] {
      return Brought() ? target()->PositionedAppend(data, offset, options, check, dbg) : failed_;
    });
  }

  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) override {
    Change change([&] { return target()->Truncate(size, options, dbg); });
    const int64_t to = static_cast<int64_t>(size);
    if (tidewater_files_truncate(log_->get(), number_, to, change.Real, &change) < 0) {
      return Failure("truncating the log");
    }
    if (change.status.ok()) size_ = size;
    return change.status;
  }

  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }

  // A file that RocksDB closes has its bytes in the page cache and in the device's log, which keeps them until they are
  // synced.
  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus left = Leave();
    const IOStatus status = target()->Close(options, dbg);
    return left.ok() ? status : left;
  }

  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return tidewater_files_sync(log_->get(), number_) == 0 ? IOStatus::OK() : Failure("waiting for the log");
  }

  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override { return Sync(options, dbg); }

  // Others may wait while one appends.
  bool IsSyncThreadSafe() const override { return true; }

  // The bytes are in the log: nothing is gained by bringing them to the disk bit by bit.
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  template <typename Call>
  IOStatus Write(const Slice& data, uint64_t offset, Call real) {
    Change change(std::move(real));
    const int64_t at = static_cast<int64_t>(offset);
    if (tidewater_files_write(log_->get(), number_, data.data(), data.size(), at, change.Real, &change) < 0) {
      return change.status.ok() ? Failure("writing to the log") : change.status;
    }
    if (change.status.ok()) size_ = std::max(size_, offset + data.size());
    return change.status;
  }

  // Whether these bytes are kept, behind those that are.
  bool Keep(const Slice& data) {
    if (!keeps_ || !failed_.ok() || kept_.size() + data.size() > log_->keep()) return false;
    kept_.append(data.data(), data.size());
    return true;
  }

  // What is kept goes to the file, and then these bytes.
  IOStatus Now(const Slice& data, const IOOptions& options, const DataVerificationInfo* check, IODebugContext* dbg) {
    if (!Brought()) return failed_;
    // They are kept in their turn, unless they alone are too many.
    if (Keep(data)) return IOStatus::OK();
    return check ? target()->Append(data, options, *check, dbg) : target()->Append(data, options, dbg);
  }

  // Whether the file has all that was kept. Once it could not be written it is not tried again: how much of it is there
  // is not known, and the device's log has all of it.
  bool Brought() {
    if (failed_.ok() && !kept_.empty()) {
      failed_ = target()->Append(Slice(kept_), IOOptions(), nullptr);
      kept_.clear();
    }
    return failed_.ok();
  }

  static int Bring(void* with) { return static_cast<LogFile*>(with)->Brought() ? 1 : 0; }

  IOStatus Leave() {
    if (number_ < 0) return IOStatus::OK();
    const bool left = tidewater_files_leave(log_->get(), number_) == 0;
    number_ = -1;
    return left ? IOStatus::OK() : failed_.ok() ? Failure("leaving the log") : failed_;
  }

  std::shared_ptr<Log> log_;
  int64_t number_;
  uint64_t size_;
  bool keeps_ = false;
  std::string kept_;
  IOStatus failed_;
};

// Any other file: its syncs come after the log.
class OtherFile : public FSWritableFileOwnerWrapper {
 public:
  OtherFile(std::unique_ptr<FSWritableFile>&& file, std::shared_ptr<Log> log)
      : FSWritableFileOwnerWrapper(std::move(file)), log_(std::move(log)) {}

  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = log_->Order();
    return status.ok() ? target()->Sync(options, dbg) : status;
  }

  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = log_->Order();
    return status.ok() ? target()->Fsync(options, dbg) : status;
  }

  IOStatus RangeSync(uint64_t offset, uint64_t bytes, const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = log_->Order();
    return status.ok() ? target()->RangeSync(offset, bytes, options, dbg) : status;
  }

 private:
  std::shared_ptr<Log> log_;
};

// Write-ahead logs are called 000123.log; LOG is a text for people.
bool IsLog(const std::string& path) {
  const size_t name = path.rfind('/') + 1;
  const size_t dot = path.rfind(".log");
  return dot != std::string::npos && dot + 4 == path.size() && dot > name &&
         path.find_first_not_of("0123456789", name) == dot;
}

class TidewaterFileSystem : public FileSystemWrapper {
 public:
  TidewaterFileSystem(const std::shared_ptr<FileSystem>& below, std::shared_ptr<Log> log)
      : FileSystemWrapper(below), log_(std::move(log)) {}

  static const char* kClassName() { return "TidewaterFileSystem"; }
  const char* Name() const override { return kClassName(); }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    // What it has is cut, and that is a change of it.
    const bool cuts = IsLog(path) && target()->FileExists(path, options.io_options, dbg).ok();
    IOStatus status = cuts ? log_->CatchUp() : IOStatus::OK();
    if (status.ok()) status = target()->NewWritableFile(path, options, file, dbg);
    if (status.ok() && cuts) {
      Change change([] { return IOStatus::OK(); });
      status = Cut(path, 0, &change);
    }
    return status.ok() ? Wrap(path, file, 0) : status;
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    IOStatus status = target()->ReopenWritableFile(path, options, file, dbg);
    // The file itself does not know how long it was (RocksDB 7.8).
    uint64_t size = 0;
    if (status.ok()) status = GetFileSize(path, options.io_options, &size, dbg);
    return status.ok() ? Wrap(path, file, size) : status;
  }

  IOStatus ReuseWritableFile(const std::string& path, const std::string& old, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    Change change([&] { return target()->ReuseWritableFile(path, old, options, file, dbg); });
    const IOStatus status = Rename(old, path, &change);
    return status.ok() ? Wrap(path, file, 0) : status;
  }

  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    Change change([&] { return target()->DeleteFile(path, options, dbg); });
    if (tidewater_files_remove(log_->get(), path.c_str(), change.Real, &change) < 0) return Failure(path);
    return change.status;
  }

  // The log has a file of its own in the directory, which goes first.
  IOStatus DeleteDir(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    Change change([&] { return target()->DeleteDir(path, options, dbg); });
    if (tidewater_files_remove(log_->get(), path.c_str(), change.Real, &change) < 0) return Failure(path);
    return change.status;
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    Change change([&] { return target()->RenameFile(from, to, options, dbg); });
    return Rename(from, to, &change);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options, IODebugContext* dbg) override {
    Change change([&] { return target()->Truncate(path, size, options, dbg); });
    if (!IsLog(path)) {
      const IOStatus status = log_->Order();
      return status.ok() ? change.real() : status;
    }
    return Cut(path, size, &change);
  }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* file, IODebugContext* dbg) override {
    const IOStatus status = CatchUp(path);
    return status.ok() ? target()->NewSequentialFile(path, options, file, dbg) : status;
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* file, IODebugContext* dbg) override {
    const IOStatus status = CatchUp(path);
    return status.ok() ? target()->NewRandomAccessFile(path, options, file, dbg) : status;
  }

  IOStatus NewMemoryMappedFileBuffer(const std::string& path,
                                     std::unique_ptr<MemoryMappedFileBuffer>* buffer) override {
    const IOStatus status = CatchUp(path);
    return status.ok() ? target()->NewMemoryMappedFileBuffer(path, buffer) : status;
  }

  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* dbg) override {
    const IOStatus status = CatchUp(from);
    return status.ok() ? target()->LinkFile(from, to, options, dbg) : status;
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* dbg) override {
    const IOStatus status = CatchUp(path);
    return status.ok() ? target()->GetFileSize(path, options, size, dbg) : status;
  }

  IOStatus GetChildrenFileAttributes(const std::string& folder, const IOOptions& options,
                                     std::vector<FileAttributes>* files, IODebugContext* dbg) override {
    const IOStatus status = log_->CatchUp();
    return status.ok() ? target()->GetChildrenFileAttributes(folder, options, files, dbg) : status;
  }

 private:
  // A file of the log gets another length.
  template <typename Call>
  IOStatus Cut(const std::string& path, size_t size, Change<Call>* change) {
    const int64_t number = tidewater_files_enter(log_->get(), path.c_str());
    if (number < 0) return Failure(path);
    const int done = tidewater_files_truncate(log_->get(), number, static_cast<int64_t>(size), change->Real, change);
    const IOStatus status = done < 0 ? Failure(path) : change->status;
    tidewater_files_leave(log_->get(), number);
    return status;
  }

  // Whatever kind of file it is: the log has the new name first, and what is kept of the file is in it.
  template <typename Call>
  IOStatus Rename(const std::string& from, const std::string& to, Change<Call>* change) {
    const int done = tidewater_files_rename(log_->get(), from.c_str(), to.c_str(), change->Real, change);
    return done < 0 ? Failure(from) : change->status;
  }

  IOStatus Wrap(const std::string& path, std::unique_ptr<FSWritableFile>* file, uint64_t size) {
    if (!IsLog(path)) {
      file->reset(new OtherFile(std::move(*file), log_));
      return IOStatus::OK();
    }
    const int64_t number = tidewater_files_enter(log_->get(), path.c_str());
    if (number < 0) {
      file->reset();
      return Failure(path);
    }
    auto log_file = std::make_unique<LogFile>(std::move(*file), log_, number, size);
    if (!log_file->Begin()) return Failure(path);
    *file = std::move(log_file);
    return IOStatus::OK();
  }

  // Before a file of the log is looked at.
  IOStatus CatchUp(const std::string& path) const { return IsLog(path) ? log_->CatchUp() : IOStatus::OK(); }

  std::shared_ptr<Log> log_;
};

// What an environment variable says, or nothing.
const char* Setting(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// A number that an environment variable may say, up to `most`. False: it says something else.
bool Number(const char* name, unsigned long most, unsigned long* value, std::string* error) {
  const char* text = Setting(name);
  if (!text) return true;
  char* end;
  *value = std::strtoul(text, &end, 10);
  if (std::isdigit(static_cast<unsigned char>(*text)) && *end == 0 && *value <= most) return true;
  *error = std::string(name) + "=" + text + ": it is a number up to " + std::to_string(most);
  return false;
}

// One log for a process, whichever of its databases asks first.
std::shared_ptr<Log> OpenLog(const std::string& device, std::string* error) {
  static std::mutex mutex;
  static std::weak_ptr<Log> open;
  static std::string opened;
  std::lock_guard<std::mutex> lock(mutex);
  if (auto log = open.lock()) {
    if (opened == device) return log;
    *error = "this process already has its log on " + opened;
    return nullptr;
  }
  struct tidewater_options options;
  tidewater_options_init(&options);
  unsigned long lane = 0, keep = 64 << 10;
  if (!Number("TIDEWATER_LANE", 15, &lane, error) || !Number("TIDEWATER_KEEP", 1 << 30, &keep, error)) return nullptr;
  options.lane = static_cast<uint32_t>(lane);
  if (const char* level = Setting("TIDEWATER_LEVEL")) {
    static const std::map<std::string, int> levels = {{"ring", TIDEWATER_RING},
                                                      {"destaged", TIDEWATER_DESTAGED},
                                                      {"remote-ring", TIDEWATER_REMOTE_RING},
                                                      {"remote-destaged", TIDEWATER_REMOTE_DESTAGED}};
    const auto found = levels.find(level);
    if (found == levels.end()) {
      *error = std::string("TIDEWATER_LEVEL=") + level + ": it is ring, destaged, remote-ring or remote-destaged";
      return nullptr;
    }
    options.level = found->second;
  }
  tidewater_files* files = tidewater_files_open(device.c_str(), &options);
  if (!files) {
    *error = device + ": " + tidewater_message();
    return nullptr;
  }
  auto log = std::make_shared<Log>(files, device, keep);
  open = log;
  opened = device;
  return log;
}

FileSystem* Create(const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* error) {
  const std::string device = uri.substr(std::strlen(kScheme) + 3);
  auto log = OpenLog(device, error);
  if (!log) return nullptr;
  guard->reset(new TidewaterFileSystem(FileSystem::Default(), std::move(log)));
  return guard->get();
}

// Runs when the library is loaded.
const bool registered = [] {
  ObjectLibrary::Default()->AddFactory<FileSystem>(ObjectLibrary::PatternEntry(kScheme, false).AddSeparator("://"),
                                                   Create);
  return true;
}();

}  // namespace
