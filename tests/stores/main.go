// A load on a store of keys in Go, and the check of what a power cut left of it.
//
//	stores bbolt|goleveldb write sync|nosync ROWS   a row after the other, acknowledged on descriptor 3 once durable
//	stores bbolt|goleveldb check                    reads acknowledged numbers, prints `lost NUMBER`; status 2: damage
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"go.etcd.io/bbolt"
)

type store interface {
	put(row int, value []byte) error
	// get is nil where there is no such row.
	get(row int) ([]byte, error)
	close() error
}

type bolt struct{ *bbolt.DB }

func openBolt(sync bool) (store, error) {
	db, err := bbolt.Open("store", 0o600, &bbolt.Options{NoSync: !sync})
	if err != nil {
		return nil, err
	}
	return bolt{db}, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte("rows"))
		return err
	})
}

func (db bolt) put(row int, value []byte) error {
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("rows")).Put(key(row), value) })
}

func (db bolt) get(row int) (value []byte, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket([]byte("rows")).Get(key(row)))
		return nil
	})
	return value, err
}

func (db bolt) close() error {
	// Damage that no get has met.
	err := db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return db.Close()
}

type level struct {
	*leveldb.DB
	sync bool
}

func openLevel(sync bool) (store, error) {
	// So that logs change while rows are written.
	db, err := leveldb.OpenFile("store", &opt.Options{WriteBuffer: 64 << 10})
	return level{db, sync}, err
}

func (db level) put(row int, value []byte) error {
	return db.Put(key(row), value, &opt.WriteOptions{Sync: db.sync})
}

func (db level) get(row int) ([]byte, error) {
	value, err := db.Get(key(row), nil)
	if err == errors.ErrNotFound {
		return nil, nil
	}
	return value, err
}

func (db level) close() error { return db.Close() }

func key(row int) []byte { return []byte(fmt.Sprintf("%08d", row)) }

func value(row int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%08d", row)), 375) }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	open := map[string]func(bool) (store, error){"bbolt": openBolt, "goleveldb": openLevel}[os.Args[1]]
	if os.Args[2] == "write" {
		db, err := open(os.Args[3] == "sync")
		must(err)
		rows, err := strconv.Atoi(os.Args[4])
		must(err)
		acknowledged := os.NewFile(3, "acknowledged")
		for row := range rows {
			must(db.put(row, value(row)))
			_, err := fmt.Fprintln(acknowledged, row)
			must(err)
		}
		must(db.close())
		return
	}
	db, err := open(true)
	must(err)
	lost := false
	known := map[int]bool{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		row, err := strconv.Atoi(lines.Text())
		must(err)
		known[row] = true
	}
	// A row under way is there as a whole, or not.
	for row := range 1000 {
		found, err := db.get(row)
		must(err)
		if found == nil && known[row] {
			fmt.Println("lost", row)
			lost = true
		} else if found != nil && !bytes.Equal(found, value(row)) {
			must(fmt.Errorf("row %d has other bytes", row))
		}
	}
	must(db.close())
	if lost {
		os.Exit(1)
	}
}
