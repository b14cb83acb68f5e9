package main

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
)

// A log is a list of records at offsets that rise. An append puts one at its end; a read tells every
// record between two offsets, and nothing else. A read may be late, it need not reach the end; a final
// one must. What transactions write comes to be seen record by record, in the order of offsets: a
// reader stops before the first transaction that is still open.
var logModel = model{
	split:      splitLog,
	prepare:    prepareLog,
	identities: offsetsOf,
	project:    projectLog,
	init:       func() any { return (*entry)(nil) },
	step:       stepLog,
	equal:      func(a, b any) bool { return a.(*entry).same(b.(*entry)) },
	hash:       func(state any) uint64 { return state.(*entry).sum() },
}

// In every partition the log of the records of transactions that were committed. Across partitions
// a transaction is whole or absent in the end; meanwhile Kafka's protocol promises no reader that.
var transactionsModel = func() model {
	m := logModel
	m.split = splitTransactions
	return m
}()

// entry is a log, told from its end; logs share what they have in common.
type entry struct {
	record Record
	before *entry
	count  int
	hash   uint64
}

func (e *entry) sum() uint64 {
	if e == nil {
		return 0
	}
	return e.hash
}

func (e *entry) length() int {
	if e == nil {
		return 0
	}
	return e.count
}

func (e *entry) same(other *entry) bool {
	return e == other || e.length() == other.length() && e.sum() == other.sum()
}

func (e *entry) push(record Record) *entry {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%d %d %s", e.sum(), record.Offset, record.Value)
	return &entry{record, e, e.length() + 1, sum.Sum64()}
}

func splitLog(ops []Op) (map[string][]Op, []string) {
	parts := map[string][]Op{}
	for _, op := range ops {
		if op.Key == "" {
			continue // A read that told nothing, of no partition.
		}
		parts["partition "+op.Key] = append(parts["partition "+op.Key], op)
	}
	return parts, nil
}

// splitTransactions makes an append of every record: a record may be seen from when its transaction's
// commit was asked for.
func splitTransactions(ops []Op) (map[string][]Op, []string) {
	var rows []Op
	for _, op := range ops {
		if op.F != "transaction" {
			rows = append(rows, op)
			continue
		}
		for _, write := range op.Writes {
			row := op
			row.F, row.Key, row.Value, row.Offset, row.Return = "append", write.Key, write.Value, write.Offset, never
			rows = append(rows, row)
		}
	}
	parts, _ := splitLog(rows)
	return parts, torn(ops)
}

// torn finds transactions of which the final reads show a part. What was acknowledged and is not there
// at all, or was aborted and is, each partition tells by itself.
func torn(ops []Op) []string {
	final, covered := map[string]bool{}, map[string]bool{}
	for _, op := range ops {
		if op.F == "read" && op.Final && op.Outcome == "ok" {
			covered[op.Key] = true
			for _, record := range op.Records {
				final[op.Key+" "+record.Value] = true
			}
		}
	}
	var found []string
	for _, op := range ops {
		if op.F != "transaction" {
			continue
		}
		seen, missing := []string{}, []string{}
		for _, write := range op.Writes {
			row := fmt.Sprintf("%s in partition %s", write.Value, write.Key)
			if final[write.Key+" "+write.Value] {
				seen = append(seen, row)
			} else if covered[write.Key] {
				missing = append(missing, row)
			}
		}
		if len(seen) > 0 && len(missing) > 0 {
			text := fmt.Sprintf("torn transaction %s (%s): seen %q, not %q", op.Value, op.Outcome, seen, missing)
			found = append(found, text)
		}
	}
	if len(found) > partsShown {
		found = append(found[:partsShown], fmt.Sprintf("and %d more torn", len(found)-partsShown))
	}
	return found
}

// prepareLog gives every append its place. What was refused did not happen; what is not certain did if
// a client read it, and then not after that. What no client read may as well come after everything.
func prepareLog(ops []Op) []Op {
	seen, by := map[string]int64{}, map[int64]int64{}
	for _, op := range ops {
		if op.F == "read" && op.Outcome == "ok" {
			for _, record := range op.Records {
				if at, known := seen[record.Value]; !known || record.Offset < at {
					seen[record.Value] = record.Offset
				}
				if at, known := by[record.Offset]; !known || op.Return < at {
					by[record.Offset] = op.Return
				}
			}
		}
	}
	var happened []Op
	offsets := map[int64]bool{}
	for _, op := range ops {
		switch {
		case op.Outcome == "fail", op.F == "read" && op.Outcome != "ok":
			continue
		case op.F == "append":
			if at, known := seen[op.Value]; op.Offset < 0 || op.Outcome == "info" {
				if known {
					op.Offset = at
				} else if op.Outcome == "info" {
					continue
				}
			}
			if at, known := by[op.Offset]; known && at >= op.Call {
				op.Return = min(op.Return, at)
			}
			offsets[op.Offset] = true
		}
		happened = append(happened, op)
	}
	sorted := make([]int64, 0, len(offsets))
	for offset := range offsets {
		if offset >= 0 {
			sorted = append(sorted, offset)
		}
	}
	slices.Sort(sorted)
	var rows []Op
	for _, op := range happened {
		// All of them have happened, so they did in this order.
		op.rank, _ = slices.BinarySearch(sorted, max(op.Offset, op.From))
		if op.F == "read" && len(op.Records) == 0 && !op.Final {
			if op.rank == len(sorted) || sorted[op.rank] >= op.Next {
				continue // It went over nothing.
			}
		}
		rows = append(rows, op)
	}
	return rows
}

func stepLog(state any, op Op) (any, string) {
	log := state.(*entry)
	if op.F == "append" {
		switch {
		case op.Offset < 0:
			return log, "lost: acknowledged, and nowhere"
		case log.length() > op.rank:
			return log, "there is another record at that offset, or a later one was there before"
		case log.length() < op.rank:
			return log, "its offset is after that of a record that was not sent by then"
		}
		return log.push(Record{op.Offset, op.Value}), ""
	}
	place := len(op.Records) - 1
	at := log
	for at != nil && at.record.Offset >= op.Next && !op.Final {
		at = at.before
	}
	for ; at != nil && at.record.Offset >= op.From; at = at.before {
		if place < 0 || op.Records[place].Offset < at.record.Offset {
			return log, fmt.Sprintf("lost or skipped: %d=%s is not in the read", at.record.Offset, at.record.Value)
		}
		if op.Records[place] != at.record {
			break
		}
		place--
	}
	if place >= 0 {
		record := op.Records[place]
		return log, fmt.Sprintf("read of %d=%s, which was not there (again, aborted, refused, or never sent)",
			record.Offset, record.Value)
	}
	return log, ""
}

func offsetsOf(ops []Op) []string {
	offsets := map[int64]bool{}
	for _, op := range ops {
		if op.F == "append" {
			offsets[op.Offset] = true
		}
		for _, record := range op.Records {
			offsets[record.Offset] = true
		}
	}
	sorted := make([]int64, 0, len(offsets))
	for offset := range offsets {
		sorted = append(sorted, offset)
	}
	slices.Sort(sorted)
	names := make([]string, len(sorted))
	for i, offset := range sorted {
		names[i] = strconv.FormatInt(offset, 10)
	}
	return names
}

// projectLog looks only at some offsets: a log that is in order is so there, too.
func projectLog(ops []Op, keep map[string]bool) []Op {
	var rows []Op
	for _, op := range ops {
		if op.F == "append" {
			if keep[strconv.FormatInt(op.Offset, 10)] {
				rows = append(rows, op)
			}
			continue
		}
		var records []Record
		for _, record := range op.Records {
			if keep[strconv.FormatInt(record.Offset, 10)] {
				records = append(records, record)
			}
		}
		op.Records = records
		rows = append(rows, op)
	}
	return rows
}
