// Judges a history of appends and reads of a replicated log by Porcupine, a checker of linearizability that shares
// nothing with the checker of our own (tests/tests/nets/history.rs, which writes the file).
//
//	porcupine HISTORY
//
// It ends with 0 when the history is linearizable, 1 when it is not, 2 when that was not found out in time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 5 * time.Minute

// A line of the history: an append, or a read of all records up to the reader's own.
type call struct {
	Client int    `json:"client"`
	Begin  int64  `json:"begin"`
	End    *int64 `json:"end"` // none: not acknowledged, and found by a read all the same
	Read   bool   `json:"read"`
	Number uint64 `json:"number"`
	Offset uint64 `json:"offset"`
	Epoch  uint64 `json:"epoch"`
	Count  uint64 `json:"count"`
	Digest string `json:"digest"`
}

// An append-only log with epochs: where its last record begins, and a sum over all records in their order.
type log struct {
	last, epoch, count, digest uint64
}

func (l log) append(c call) log {
	digest := l.digest
	for _, word := range []uint64{c.Offset, c.Number} {
		for i := 0; i < 8; i++ {
			digest = (digest ^ (word >> (8 * i) & 0xff)) * 0x100000001b3
		}
	}
	return log{c.Offset, c.Epoch, l.count + 1, digest}
}

var model = porcupine.Model{
	Init: func() interface{} { return log{digest: 0xcbf29ce484222325} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		l, c := state.(log), input.(call)
		if c.Read {
			return l.count == c.Count && fmt.Sprintf("%016x", l.digest) == c.Digest, l
		}
		// Records stand in the order of their offsets, and none of an old epoch comes behind one of a later.
		if l.count > 0 && c.Offset <= l.last || c.Epoch < l.epoch {
			return false, l
		}
		return true, l.append(c)
	},
	Equal: func(one, other interface{}) bool { return one == other },
}

func run(path string) (porcupine.CheckResult, int, error) {
	file, err := os.Open(path)
	if err != nil {
		return porcupine.Unknown, 0, err
	}
	defer file.Close()
	var operations []porcupine.Operation
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return porcupine.Unknown, 0, err
		}
		end := int64(math.MaxInt64)
		if c.End != nil {
			end = *c.End
		}
		operations = append(operations, porcupine.Operation{ClientId: c.Client, Input: c, Call: c.Begin, Return: end})
	}
	if err := lines.Err(); err != nil {
		return porcupine.Unknown, 0, err
	}
	return porcupine.CheckOperationsTimeout(model, operations, patience), len(operations), nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine HISTORY")
		os.Exit(3)
	}
	result, count, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Printf("%d operations\n", count)
	switch result {
	case porcupine.Ok:
		os.Exit(0)
	case porcupine.Illegal:
		os.Exit(1)
	default:
		os.Exit(2)
	}
}
