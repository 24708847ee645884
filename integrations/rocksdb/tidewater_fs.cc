// RocksDB on a served drive's fast side: a FileSystem over the default one, found by its URI.
//
// What RocksDB writes to its write-ahead log goes into the log of the device first, then to the file as ever. A sync of the log waits for the
// device's log instead of the disk. A sync, rename or removal of anything else first waits until all of the log before it is on the backing
// store: otherwise a crash of the machine could leave a table or a manifest ahead of the log.
//
//     LD_PRELOAD=libtidewater_rocksdb.so db_bench --fs_uri=tidewater://vfio-user:/run/tidewater/vfio.sock --benchmarks=fillsync
//     TIDEWATER_LEVEL=ring TIDEWATER_LANE=0 ...
//
// A program of your own links the library, or loads it with dlopen, and asks `Env::CreateFromUri` for the URI. Before the first file is
// opened, what an earlier process left in the log is applied to the files.

#include <tidewater.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

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

// The log of this process: closed, and with it drained, when nobody uses it any more.
class Log {
 public:
  explicit Log(struct tidewater_files* files) : files_(files) {}
  ~Log() { tidewater_files_close(files_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  tidewater_files* get() const { return files_; }

  // All of the log up to now is on the backing store.
  IOStatus Order() const {
    return tidewater_files_order(files_) == 0 ? IOStatus::OK() : Failure("waiting for the log");
  }

 private:
  tidewater_files* files_;
};

// A change that is on the log, and that the file is to have too.
struct Change {
  std::function<IOStatus()> real;
  IOStatus status;

  static bool Real(void* with) {
    auto* change = static_cast<Change*>(with);
    change->status = change->real();
    return change->status.ok();
  }
};

// A file of the write-ahead log.
class LogFile : public FSWritableFileOwnerWrapper {
 public:
  LogFile(std::unique_ptr<FSWritableFile>&& file, std::shared_ptr<Log> log, int64_t number, uint64_t size)
      : FSWritableFileOwnerWrapper(std::move(file)), log_(std::move(log)), number_(number), size_(size) {}

  ~LogFile() override { Leave(); }

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    return Write(data, size_, [&] { return target()->Append(data, options, dbg); });
  }

  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo& check,
                  IODebugContext* dbg) override {
    return Write(data, size_, [&] { return target()->Append(data, options, check, dbg); });
  }

  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* dbg) override {
    return Write(data, offset, [&] { return target()->PositionedAppend(data, offset, options, dbg); });
  }

  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo& check, IODebugContext* dbg) override {
    return Write(data, offset, [&] { return target()->PositionedAppend(data, offset, options, check, dbg); });
  }

  IOStatus Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) override {
    Change change{[&] { return target()->Truncate(size, options, dbg); }, IOStatus::OK()};
    const int64_t to = static_cast<int64_t>(size);
    if (tidewater_files_truncate(log_->get(), number_, to, Change::Real, &change) < 0) {
      return Failure("truncating the log");
    }
    if (change.status.ok()) size_ = size;
    return change.status;
  }

  // A file that RocksDB closes has its bytes in the page cache and in the device's log, which keeps them until they are synced.
  IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = target()->Close(options, dbg);
    Leave();
    return status;
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
  IOStatus Write(const Slice& data, uint64_t offset, std::function<IOStatus()> real) {
    Change change{std::move(real), IOStatus::OK()};
    const int64_t at = static_cast<int64_t>(offset);
    if (tidewater_files_write(log_->get(), number_, data.data(), data.size(), at, Change::Real, &change) < 0) {
      return Failure("writing to the log");
    }
    if (change.status.ok()) size_ = std::max(size_, offset + data.size());
    return change.status;
  }

  void Leave() {
    if (number_ >= 0) tidewater_files_leave(log_->get(), number_);
    number_ = -1;
  }

  std::shared_ptr<Log> log_;
  int64_t number_;
  uint64_t size_;
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
    const IOStatus status = target()->NewWritableFile(path, options, file, dbg);
    return status.ok() ? Wrap(path, file, 0) : status;
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    const IOStatus status = target()->ReopenWritableFile(path, options, file, dbg);
    if (!status.ok()) return status;
    return Wrap(path, file, (*file)->GetFileSize(options.io_options, dbg));
  }

  IOStatus ReuseWritableFile(const std::string& path, const std::string& old, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* file, IODebugContext* dbg) override {
    IOStatus status = log_->Order();
    if (status.ok()) status = target()->ReuseWritableFile(path, old, options, file, dbg);
    return status.ok() ? Wrap(path, file, 0) : status;
  }

  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    Change change{[&] { return target()->DeleteFile(path, options, dbg); }, IOStatus::OK()};
    if (tidewater_files_remove(log_->get(), path.c_str(), Change::Real, &change) < 0) return Failure(path);
    return change.status;
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    const IOStatus status = log_->Order();
    return status.ok() ? target()->RenameFile(from, to, options, dbg) : status;
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options, IODebugContext* dbg) override {
    const IOStatus status = log_->Order();
    return status.ok() ? target()->Truncate(path, size, options, dbg) : status;
  }

 private:
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
    file->reset(new LogFile(std::move(*file), log_, number, size));
    return IOStatus::OK();
  }

  std::shared_ptr<Log> log_;
};

// What an environment variable says, or nothing.
const char* Setting(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
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
  if (const char* lane = Setting("TIDEWATER_LANE")) options.lane = static_cast<uint32_t>(std::strtoul(lane, nullptr, 10));
  if (const char* level = Setting("TIDEWATER_LEVEL")) {
    const std::string name = level;
    if (name != "ring" && name != "destaged") {
      *error = "TIDEWATER_LEVEL=" + name + ": it is ring or destaged";
      return nullptr;
    }
    options.level = name == "ring" ? TIDEWATER_RING : TIDEWATER_DESTAGED;
  }
  tidewater_files* files = tidewater_files_open(device.c_str(), &options);
  if (!files) {
    *error = device + ": " + tidewater_message();
    return nullptr;
  }
  auto log = std::make_shared<Log>(files);
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
  ObjectLibrary::Default()->AddFactory<FileSystem>(ObjectLibrary::PatternEntry(kScheme, false).AddSeparator("://"), Create);
  return true;
}();

}  // namespace
