package main

import "fmt"

// A group has, for every partition, a committed offset, which is a register, and at most one owner.
// Ownership is what members can be sure of: it begins within the heartbeat that told them, and `until`
// is when they gave it up, or when the group may have expired them at the earliest.
var groupsModel = model{
	split:      splitGroups,
	prepare:    prepareGroups,
	identities: valuesOf,
	project:    projectGroups,
	init:       func() any { return register{offset: -1} },
	step:       stepGroups,
	equal:      func(a, b any) bool { return a == b },
}

type register struct {
	offset int64
	owner  string
}

func splitGroups(ops []Op) (map[string][]Op, []string) {
	parts := map[string][]Op{}
	for _, op := range ops {
		key := "offset of " + op.Key
		switch op.F {
		case "own":
			key = "owner of " + op.Key
		case "beat":
			continue // It was not answered, or refused.
		}
		parts[key] = append(parts[key], op)
	}
	return parts, nil
}

// prepareGroups drops commits that are not certain and that no client was told of: they may as well have
// come after everything.
func prepareGroups(ops []Op) []Op {
	told := map[int64]bool{}
	for _, op := range ops {
		if op.F == "fetch" && op.Outcome == "ok" {
			told[op.Offset] = true
		}
	}
	var rows []Op
	for _, op := range ops {
		switch {
		case op.Outcome == "fail", op.F == "fetch" && op.Outcome != "ok":
		case op.F == "commit" && op.Outcome == "info" && !told[op.Offset]:
		case op.F == "own":
			rows = append(rows, op, Op{Process: op.Process, F: "ended", Key: op.Key, Lease: op.Lease,
				Outcome: "info", Call: op.Until, Return: never})
		default:
			rows = append(rows, op)
		}
	}
	return rows
}

func stepGroups(state any, op Op) (any, string) {
	r := state.(register)
	switch op.F {
	case "commit":
		r.offset = op.Offset
		return r, ""
	case "fetch":
		if r.offset != op.Offset {
			return r, fmt.Sprintf("told %d, and %d was committed", op.Offset, r.offset)
		}
		return r, ""
	case "own":
		if r.owner != "" {
			return r, fmt.Sprintf("two owners: %s has it", r.owner)
		}
		r.owner = op.Lease
		return r, ""
	case "ended":
		if r.owner == op.Lease {
			r.owner = ""
		}
		return r, ""
	}
	return r, "no operation of a group"
}

func valuesOf(ops []Op) []string {
	var names []string
	known := map[string]bool{}
	for _, op := range ops {
		if name := valueOf(op); !known[name] {
			known[name] = true
			names = append(names, name)
		}
	}
	return names
}

// A value with all who were told it, an ownership with its end.
func valueOf(op Op) string {
	if op.Lease != "" {
		return op.Lease
	}
	return fmt.Sprint(op.Offset)
}

func projectGroups(ops []Op, keep map[string]bool) []Op {
	var rows []Op
	for _, op := range ops {
		if keep[valueOf(op)] && !(op.F == "ended") {
			rows = append(rows, op)
		}
	}
	return rows
}
