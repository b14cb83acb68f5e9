package main

import "fmt"

// A queue is looked at message by message. A message is put in, leased with a delivery count that rises,
// and settled under its lease, or the lease ends: from `until` on it may have, never before. `until`
// counts from when the lease was asked for, so it is what its owner can be sure of. A final `gone`
// says that a drained queue holds nothing more of it.
var queueModel = model{
	split:      splitQueue,
	prepare:    prepareQueue,
	identities: leasesOf,
	project:    projectLeases,
	init:       func() any { return message{} },
	step:       stepQueue,
	equal:      func(a, b any) bool { return a == b },
}

type message struct {
	is    string // "", ready, leased, acked, dead
	lease string // the latest
	count int64
}

func splitQueue(ops []Op) (map[string][]Op, []string) {
	parts := map[string][]Op{}
	for _, op := range ops {
		if op.F == "poll" {
			continue // It has no answer: what it may have leased shows in later counts.
		}
		parts["message "+op.Value] = append(parts["message "+op.Value], op)
	}
	return parts, nil
}

func prepareQueue(ops []Op) []Op {
	var rows []Op
	for _, op := range ops {
		if op.Outcome == "fail" {
			continue
		}
		rows = append(rows, op)
		if op.F == "lease" {
			rows = append(rows, Op{Process: op.Process, F: "ended", Value: op.Value, Lease: op.Lease,
				Outcome: "info", Call: op.Until, Return: never})
		}
	}
	return rows
}

func stepQueue(state any, op Op) (any, string) {
	m := state.(message)
	isHeld := m.is == "leased" && m.lease == op.Lease
	switch op.F {
	case "enqueue":
		if m.is != "" {
			return m, "put in twice"
		}
		return message{is: "ready"}, ""
	case "lease":
		switch {
		case m.is == "":
			return m, "delivered, and refused or never sent"
		case m.is == "leased":
			return m, fmt.Sprintf("leased twice: %s has it", m.lease)
		case m.is != "ready":
			return m, fmt.Sprintf("delivered again although %s", m.is)
		case op.Count <= m.count:
			return m, fmt.Sprintf("delivery %d after delivery %d", op.Count, m.count)
		case op.Limit > 0 && op.Count > op.Limit:
			return m, fmt.Sprintf("delivery %d, and the limit is %d", op.Count, op.Limit)
		}
		return message{"leased", op.Lease, op.Count}, ""
	case "ended":
		if isHeld {
			m.is = "ready"
		}
		return m, ""
	case "ack", "nack":
		// The end of a lease may be late, so its owner may still settle it if no other member has it.
		if isHeld || m.is == "ready" && m.lease == op.Lease {
			m.is = map[string]string{"ack": "acked", "nack": "ready"}[op.F]
			return m, ""
		}
		if op.Outcome == "info" {
			return m, ""
		}
		return m, fmt.Sprintf("settled under a lease that was over (%s, %s)", m.is, m.lease)
	case "dead":
		if m.is != "ready" && m.is != "leased" {
			return m, fmt.Sprintf("dead-lettered although %q", m.is)
		}
		m.is = "dead"
		return m, ""
	case "gone":
		if m.is == "ready" || m.is == "leased" {
			return m, "lost: sent, never acknowledged, and in the end neither in the queue nor dead-lettered"
		}
		return m, ""
	}
	return m, "no operation of a queue"
}

func leasesOf(ops []Op) []string {
	var names []string
	known := map[string]bool{}
	for _, op := range ops {
		if op.Lease != "" && !known[op.Lease] {
			known[op.Lease] = true
			names = append(names, op.Lease)
		}
	}
	return names
}

// projectLeases leaves out whole leases: without one of them, what was in order still is. Only one that
// was acknowledged has to stay, or its message would seem to be lost.
func projectLeases(ops []Op, keep map[string]bool) []Op {
	settles := map[string]bool{}
	for _, op := range ops {
		if op.F == "ack" {
			settles[op.Lease] = true
		}
	}
	var rows []Op
	for _, op := range ops {
		if op.F == "ended" {
			continue // Made anew.
		}
		if op.Lease == "" || keep[op.Lease] || settles[op.Lease] {
			rows = append(rows, op)
		}
	}
	return rows
}
