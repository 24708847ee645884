/* A load on a store of keys, and the check of what a power cut left of it. A definition chooses it: LEVELDB or ROCKSDB,
 * whose interfaces for C have the same names, or LMDB.
 *
 *   stores write HOW ROWS     a row after the other; its number is acknowledged on descriptor 3 once it is durable
 *   stores check              reads acknowledged numbers; prints `lost NUMBER`. Exit status 2: the store is damaged */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 3000 };

static void value_of(int row, char *value)
{
    memset(value, 'a' + row % 26, BYTES);
    snprintf(value, BYTES, "row %d", row);
}

static void must(int is_well, const char *what, const char *why)
{
    if (is_well)
        return;
    fprintf(stderr, "%s: %s\n", what, why);
    exit(2);
}

#ifdef LMDB
#include <lmdb.h>

static MDB_env *env;
static MDB_dbi rows;

static void call(int code, const char *what)
{
    must(code == 0, what, mdb_strerror(code));
}

static void open_store(const char *how)
{
    unsigned flags = MDB_NOSUBDIR;
    if (strcmp(how, "nosync") == 0)
        flags |= MDB_NOSYNC;
    else if (strcmp(how, "nometasync") == 0)
        flags |= MDB_NOMETASYNC;
    else if (strcmp(how, "writemap") == 0)
        flags |= MDB_WRITEMAP;
    call(mdb_env_create(&env), "create");
    call(mdb_env_set_mapsize(env, 4 << 20), "mapsize");
    call(mdb_env_open(env, "store", flags, 0644), "open");
    MDB_txn *txn;
    call(mdb_txn_begin(env, NULL, 0, &txn), "begin");
    call(mdb_dbi_open(txn, NULL, MDB_CREATE, &rows), "dbi");
    call(mdb_txn_commit(txn), "commit");
}

static void put(int row, char *value)
{
    MDB_txn *txn;
    MDB_val key = {sizeof row, &row}, data = {BYTES, value};
    call(mdb_txn_begin(env, NULL, 0, &txn), "begin");
    call(mdb_put(txn, rows, &key, &data, 0), "put");
    call(mdb_txn_commit(txn), "commit");
}

static int get(int row, char *value)
{
    MDB_txn *txn;
    MDB_val key = {sizeof row, &row}, data;
    call(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin");
    int code = mdb_get(txn, rows, &key, &data);
    if (code == 0) {
        must(data.mv_size == BYTES, "get", "another size");
        memcpy(value, data.mv_data, BYTES);
    } else {
        must(code == MDB_NOTFOUND, "get", mdb_strerror(code));
    }
    mdb_txn_abort(txn);
    return code == 0;
}

static void close_store(void)
{
    mdb_env_close(env);
}

#else
#ifdef LEVELDB
#include <leveldb/c.h>
#define OF(name) leveldb_##name
#else
#include <rocksdb/c.h>
#define OF(name) rocksdb_##name
#endif

static OF(t) *db;
static OF(writeoptions_t) *writing;
static OF(readoptions_t) *reading;

static void open_store(const char *how)
{
    char *why = NULL;
    OF(options_t) *options = OF(options_create)();
    OF(options_set_create_if_missing)(options, 1);
    /* So that logs change while rows are written. */
    OF(options_set_write_buffer_size)(options, 64 << 10);
    writing = OF(writeoptions_create)();
    OF(writeoptions_set_sync)(writing, strcmp(how, "nosync") != 0);
    reading = OF(readoptions_create)();
    OF(readoptions_set_verify_checksums)(reading, 1);
    db = OF(open)(options, "store", &why);
    must(why == NULL, "open", why);
}

static void put(int row, char *value)
{
    char *why = NULL;
    OF(put)(db, writing, (char *)&row, sizeof row, value, BYTES, &why);
    must(why == NULL, "put", why);
}

static int get(int row, char *value)
{
    char *why = NULL;
    size_t length;
    char *found = OF(get)(db, reading, (char *)&row, sizeof row, &length, &why);
    must(why == NULL, "get", why);
    if (found == NULL)
        return 0;
    must(length == BYTES, "get", "another size");
    memcpy(value, found, BYTES);
    free(found);
    return 1;
}

static void close_store(void)
{
    OF(close)(db);
}
#endif

int main(int count, char **arguments)
{
    char value[BYTES], expected[BYTES];
    if (count == 4 && strcmp(arguments[1], "write") == 0) {
        open_store(arguments[2]);
        for (int row = 0; row < atoi(arguments[3]); row++) {
            value_of(row, value);
            put(row, value);
            dprintf(3, "%d\n", row);
        }
        close_store();
        return 0;
    }
    open_store("sync");
    int row, lost = 0;
    while (scanf("%d", &row) == 1) {
        value_of(row, expected);
        if (!get(row, value)) {
            printf("lost %d\n", row);
            lost = 1;
        } else {
            must(memcmp(value, expected, BYTES) == 0, "get", "other bytes");
        }
    }
    /* What was under way is there as a whole, or not. */
    for (int next = 0; next < 1000; next++) {
        value_of(next, expected);
        must(!get(next, value) || memcmp(value, expected, BYTES) == 0, "get", "other bytes of a row under way");
    }
    close_store();
    return lost;
}
