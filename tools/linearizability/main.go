// Checks a history of operations against a model, with Porcupine.
//
//	check -model log -seconds 60 history.jsonl
//
// A history is one JSON object for each operation: see Op. What is not certain is `info`: it may have
// happened at any time from its call on, or never. The first line of the answer is the verdict: `ok`,
// `illegal` or `unknown` (time was up); after `illegal` come the anomalies, each with the smallest
// part of the history that shows it. Ends with 0, 1 or 3; with 2 if it was asked something else.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	never      = int64(math.MaxInt64)
	lineMax    = 64 << 20
	shownMax   = 8
	partsShown = 5
	laterShown = 2
)

// Op is one line of a history. Times are nanoseconds of one clock.
type Op struct {
	Process string `json:"process"`
	F       string `json:"f"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Outcome string `json:"outcome"`

	// Of logs and transactions.
	Offset  int64    `json:"offset"`
	From    int64    `json:"from"`
	Next    int64    `json:"next"`
	Records []Record `json:"records"`
	Final   bool     `json:"final"`
	Writes  []Write  `json:"writes"`

	// Of queues: which lease, which delivery it is, when its lease may have ended at the earliest.
	Lease string `json:"lease"`
	Count int64  `json:"count"`
	Until int64  `json:"until"`
	Limit int64  `json:"limit"`

	rank int
}

// Record is what a read was given, Write what a transaction wrote; an offset below 0 is not known.
type Record struct {
	Offset int64  `json:"offset"`
	Value  string `json:"value"`
}

type Write struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset"`
	Value  string `json:"value"`
}

// A model says how a history falls into parts that can be checked by themselves, and what each may do.
type model struct {
	// split takes whole histories apart; what it can tell by itself it tells at once.
	split func(ops []Op) (map[string][]Op, []string)
	// prepare makes what Porcupine is given of one part: what need not have happened is dropped.
	prepare func(ops []Op) []Op
	// identities of a part, and the part as seen by who looks only at some of them.
	identities func(ops []Op) []string
	project    func(ops []Op, keep map[string]bool) []Op
	init       func() any
	// step refuses with a reason.
	step  func(state any, op Op) (any, string)
	equal func(a, b any) bool
	hash  func(state any) uint64
}

var models = map[string]model{
	"log":          logModel,
	"transactions": transactionsModel,
	"queue":        queueModel,
	"groups":       groupsModel,
}

func main() {
	name := flag.String("model", "", "log, transactions, queue or groups")
	seconds := flag.Float64("seconds", 60, "how long it may take")
	flag.Parse()
	chosen, known := models[*name]
	if !known || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ops, err := read(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	os.Exit(judge(chosen, ops, end))
}

func read(path string) ([]Op, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var ops []Op
	lines := bufio.NewScanner(io.Reader(file))
	lines.Buffer(make([]byte, 1<<16), lineMax)
	for number := 1; lines.Scan(); number++ {
		op := Op{Offset: -1}
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		switch op.Outcome {
		case "ok", "fail":
		case "info":
			op.Return = never
		default:
			return nil, fmt.Errorf("%s:%d: outcome %q is not ok, fail or info", path, number, op.Outcome)
		}
		if op.Return < op.Call {
			return nil, fmt.Errorf("%s:%d: it returns before it is called", path, number)
		}
		ops = append(ops, op)
	}
	return ops, lines.Err()
}

func judge(m model, ops []Op, end time.Time) int {
	parts, anomalies := m.split(ops)
	keys := make([]string, 0, len(parts))
	for key := range parts {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	checked, unknown, illegal := 0, 0, 0
	for _, key := range keys {
		part := m.prepare(parts[key])
		checked += len(part)
		switch check(m, part, end) {
		case porcupine.Unknown:
			unknown++
		case porcupine.Illegal:
			illegal++
			if illegal <= partsShown {
				anomalies = append(anomalies, fmt.Sprintf("%s: %s", key, explain(m, part, end)))
			}
		}
	}
	verdict, code := "ok", 0
	switch {
	case len(anomalies) > 0:
		verdict, code = "illegal", 1
	case unknown > 0:
		verdict, code = "unknown", 3
	}
	fmt.Printf("%s: %d operations in %d parts, %d illegal, %d not decided\n",
		verdict, checked, len(keys), illegal, unknown)
	for _, anomaly := range anomalies {
		fmt.Println(anomaly)
	}
	return code
}

func check(m model, ops []Op, end time.Time) porcupine.CheckResult {
	left := time.Until(end)
	if left <= 0 {
		return porcupine.Unknown
	}
	return porcupine.CheckOperationsTimeout(sequential(m), operations(ops), left)
}

func sequential(m model) porcupine.Model {
	return porcupine.Model{
		Init: m.init,
		Step: func(state, input, _ any) (bool, any) {
			next, refused := m.step(state, input.(Op))
			return refused == "", next
		},
		Equal: m.equal,
		Hash:  m.hash,
	}
}

func operations(ops []Op) []porcupine.Operation {
	rows := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		rows[i] = porcupine.Operation{Input: op, Call: op.Call, Return: op.Return}
	}
	return rows
}

// explain shrinks an illegal part and says where its longest order ends, and why.
func explain(m model, ops []Op, end time.Time) string {
	ops = shrink(m, ops, end)
	_, info := porcupine.CheckOperationsVerbose(sequential(m), operations(ops), time.Until(end)+time.Second)
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	state, placed := m.init(), map[string]int{}
	text := ""
	for i, row := range longest {
		op := row.Input.(Op)
		placed[describe(op)]++
		state, _ = m.step(state, op)
		if i >= len(longest)-shownMax {
			text += "\n    " + describe(op)
		}
	}
	// What must have happened by then, and cannot have; and what comes after it.
	var left []Op
	for _, op := range ops {
		if placed[describe(op)] > 0 {
			placed[describe(op)]--
		} else {
			left = append(left, op)
		}
	}
	if len(left) == 0 {
		return "illegal, and nothing is left to explain" + text
	}
	slices.SortStableFunc(left, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	_, refused := m.step(state, left[0])
	if refused == "" {
		refused = "it returned before what must come before it was called"
	}
	text += "\n  ! " + describe(left[0])
	for _, op := range left[1:min(len(left), laterShown+1)] {
		text += "\n  ? " + describe(op)
	}
	return refused + text
}

// shrink leaves out identities as long as what remains is illegal: halves first, then smaller ones.
func shrink(m model, ops []Op, end time.Time) []Op {
	names := m.identities(ops)
	isIllegal := func(names []string) bool {
		keep := map[string]bool{}
		for _, name := range names {
			keep[name] = true
		}
		limit := min(time.Until(end), 5*time.Second)
		if limit <= 0 {
			return false
		}
		part := m.prepare(m.project(ops, keep))
		return porcupine.CheckOperationsTimeout(sequential(m), operations(part), limit) == porcupine.Illegal
	}
	for size := (len(names) + 1) / 2; size > 0; {
		removed := false
		for at := 0; at < len(names); {
			without := slices.Concat(names[:at], names[min(at+size, len(names)):])
			if len(without) > 0 && isIllegal(without) {
				names, removed = without, true
			} else {
				at += size
			}
		}
		if size == 1 && !removed {
			break
		}
		if !removed || size > len(names) {
			size = max(size/2, 1)
		}
	}
	keep := map[string]bool{}
	for _, name := range names {
		keep[name] = true
	}
	return m.prepare(m.project(ops, keep))
}

func describe(op Op) string {
	text := fmt.Sprintf("%s %s %s", op.Process, op.F, op.Outcome)
	if op.Value != "" {
		text += " " + op.Value
	}
	switch op.F {
	case "append":
		text += fmt.Sprintf(" at %d", op.Offset)
	case "read":
		text += fmt.Sprintf(" [%d, %d)", op.From, op.Next)
		for i, record := range op.Records {
			if i == shownMax {
				text += fmt.Sprintf(" and %d more", len(op.Records)-i)
				break
			}
			text += fmt.Sprintf(" %d=%s", record.Offset, record.Value)
		}
		if op.Final {
			text += " to the end"
		}
	case "commit", "fetch":
		text += fmt.Sprintf(" %d", op.Offset)
	case "lease":
		text += fmt.Sprintf(" %s, delivery %d", op.Lease, op.Count)
	case "ack", "nack", "ended", "own":
		text += " " + op.Lease
	}
	text += fmt.Sprintf("  (from %.3f s", float64(op.Call)/1e9)
	if op.Return != never {
		text += fmt.Sprintf(" to %.3f s", float64(op.Return)/1e9)
	}
	return text + ")"
}
