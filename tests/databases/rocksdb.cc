// A server in front of RocksDB, for tests: rocksdb-server FOLDER SOCKET sync|none [FILESYSTEM-URI]
//
// A line in, lines out, the last of them `ok` or `error WHY`:
//   ping
//   commit KEY VALUE KEY VALUE ...   in one batch, answered when it is written
//   scan                             every pair, its checksums looked at: KEY VALUE
//   updates                          how many updates can be read from the log
//   check                            the checksums of all files, and that all the manifest names is there
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/transaction_log.h>
#include <rocksdb/write_batch.h>

using rocksdb::Status;

static std::unique_ptr<rocksdb::DB> database;
static bool synced;

static Status commit(std::istringstream &words) {
    rocksdb::WriteBatch batch;
    std::string key, value;
    while (words >> key >> value) batch.Put(key, value);
    rocksdb::WriteOptions options;
    options.sync = synced;
    return database->Write(options, &batch);
}

static Status scan(std::string &answer) {
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    std::unique_ptr<rocksdb::Iterator> at(database->NewIterator(options));
    for (at->SeekToFirst(); at->Valid(); at->Next())
      answer += at->key().ToString() + " " + at->value().ToString() + "\n";
    return at->status();
}

static Status updates(std::string &answer) {
    std::unique_ptr<rocksdb::TransactionLogIterator> at;
    Status status = database->GetUpdatesSince(1, &at);
    int count = 0;
    if (status.ok()) {
        for (; at->Valid(); at->Next()) count += at->GetBatch().writeBatchPtr->Count();
        status = at->status();
    }
    answer += std::to_string(count) + "\n";
    return status;
}

static void serve(int connection) {
    FILE *in = fdopen(connection, "r");
    char *line = nullptr;
    size_t room = 0;
    ssize_t len;
    while ((len = getline(&line, &room, in)) > 0) {
        std::istringstream words(std::string(line, len));
        std::string what, answer;
        words >> what;
        Status status;
        if (what == "commit") status = commit(words);
        else if (what == "scan") status = scan(answer);
        else if (what == "updates") status = updates(answer);
        else if (what == "check") status = database->VerifyChecksum();
        else if (what != "ping") status = Status::InvalidArgument(what);
        answer += status.ok() ? "ok\n" : "error " + status.ToString() + "\n";
        const char *rest = answer.data();
        for (size_t left = answer.size(); left > 0;) {
            ssize_t sent = send(connection, rest, left, MSG_NOSIGNAL);
            if (sent <= 0) break;
            rest += sent;
            left -= sent;
        }
    }
    free(line);
    fclose(in);
}

int main(int count, char **words) {
    if (count != 4 && count != 5) {
        std::cerr << "usage: rocksdb-server FOLDER SOCKET sync|none [FILESYSTEM-URI]\n";
        return 2;
    }
    synced = !strcmp(words[3], "sync");
    rocksdb::Options options;
    options.create_if_missing = true;
    options.paranoid_checks = true;
    // Memtables leave for files, and logs are deleted, while commits go on.
    options.write_buffer_size = 1 << 20;
    static std::shared_ptr<rocksdb::Env> environment;
    Status status;
    if (count == 5)
        status = rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", words[4], &options.env, &environment);
    rocksdb::DB *opened;
    if (status.ok()) status = rocksdb::DB::Open(options, words[1], &opened);
    if (!status.ok()) {
        std::cerr << status.ToString() << "\n";
        return 1;
    }
    database.reset(opened);

    // Before there is a thread: all inherit it, and one waits for the signal.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);

    unlink(words[2]);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, words[2], sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) ||
        listen(listener, 64)) {
        perror(words[2]);
        return 1;
    }
    std::thread([listener] {
        for (;;) {
            int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            if (connection >= 0) std::thread(serve, connection).detach();
        }
    }).detach();
    int signal;
    sigwait(&ends, &signal);
    status = database->Close();
    if (!status.ok()) std::cerr << status.ToString() << "\n";
    _exit(status.ok() ? 0 : 1);
}
