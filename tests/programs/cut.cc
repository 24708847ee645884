// Cuts RocksDB's write-ahead logs in each way that RocksDB has: cut FOLDER [FILESYSTEM-URI]
//
// Its own file system refuses to cut a file by its name, as of version 7.8: what that answers is said. On another one
// it does not end behind `done`.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <unistd.h>

#include <rocksdb/convenience.h>
#include <rocksdb/file_system.h>

using rocksdb::FSWritableFile;
using rocksdb::FileSystem;
using rocksdb::IOOptions;

static const IOOptions usual;

static void well(const rocksdb::Status &status) {
    if (status.ok()) return;
    std::cerr << status.ToString() << "\n";
    exit(1);
}

int main(int count, char **words) {
    if (count != 2 && count != 3) return 2;
    const std::string folder = std::string(words[1]) + "/";
    std::shared_ptr<FileSystem> files = FileSystem::Default();
    if (count == 3) well(FileSystem::CreateFromString(rocksdb::ConfigOptions(), words[2], &files));
    const auto written = [&](const char *name) {
        std::unique_ptr<FSWritableFile> file;
        well(files->NewWritableFile(folder + name, rocksdb::FileOptions(), &file, nullptr));
        well(file->Append(std::string(100, 'a'), usual, nullptr));
        return file;
    };

    const auto cut_by_name = [&](const char *name, size_t to) {
        std::cout << files->Truncate(folder + name, to, usual, nullptr).ToString() << "\n";
    };

    // What is kept and not written yet is cut as well. Nothing may be written to a file behind this.
    auto cut = written("000001.log");
    well(cut->Truncate(40, usual, nullptr));
    well(cut->Sync(usual, nullptr));
    well(cut->Close(usual, nullptr));

    // By its name, and written on.
    auto closed = written("000002.log");
    well(closed->Sync(usual, nullptr));
    well(closed->Close(usual, nullptr));
    cut_by_name("000002.log", 60);
    well(files->ReopenWritableFile(folder + "000002.log", rocksdb::FileOptions(), &closed, nullptr));
    well(closed->Append("behind", usual, nullptr));

    // While it is written.
    auto open = written("000003.log");
    cut_by_name("000003.log", 70);
    well(open->Append("far behind", usual, nullptr));

    // Longer than it was.
    auto grown = written("000004.log");
    well(grown->Sync(usual, nullptr));
    well(grown->Close(usual, nullptr));
    cut_by_name("000004.log", 150);

    // Made anew over one that is there.
    auto anew = written("000005.log");
    well(anew->Sync(usual, nullptr));
    well(anew->Close(usual, nullptr));
    well(files->NewWritableFile(folder + "000005.log", rocksdb::FileOptions(), &anew, nullptr));
    well(anew->Append("anew", usual, nullptr));

    // One log has them all.
    well(anew->Sync(usual, nullptr));
    well(closed->Sync(usual, nullptr));
    well(open->Sync(usual, nullptr));
    std::cout << "done" << std::endl;
    if (count == 3) pause();
    _exit(0);
}
