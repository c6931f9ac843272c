// Package manifest handles what the tasks of a run ran with: it removes secrets, finds differences between the tasks
// of a run and between runs. Nothing in it has state.
package manifest

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Kind is the kind of an entry of a manifest.
type Kind string

// The kinds of entries, in the order in which differences are shown.
const (
	Code        Kind = "code"
	Version     Kind = "version"
	Package     Kind = "package"
	Argument    Kind = "argument"
	Value       Kind = "value"
	Environment Kind = "environment"
	Seed        Kind = "seed"
)

// entries is a map of texts of a manifest.
type entries struct {
	kind Kind
	of   func(*clusterpb.TaskManifest) *map[string]string
}

// texts returns the maps of texts by kind, without the sources.
func texts() []entries {
	type m = clusterpb.TaskManifest
	return []entries{
		{Code, func(t *m) *map[string]string { return &t.Code }},
		{Version, func(t *m) *map[string]string { return &t.Versions }},
		{Package, func(t *m) *map[string]string { return &t.Packages }},
		{Argument, func(t *m) *map[string]string { return &t.Arguments }},
		{Value, func(t *m) *map[string]string { return &t.Values }},
		{Environment, func(t *m) *map[string]string { return &t.Environment }},
		{Seed, func(t *m) *map[string]string { return &t.Seeds }},
	}
}

// all returns the maps of texts with the sources.
func all() []entries {
	return append(texts(), entries{of: func(t *clusterpb.TaskManifest) *map[string]string { return &t.Sources }})
}

// Merge adds a later part to a task's manifest; its entries replace those of the same name. A part of another attempt
// replaces the manifest. Names beyond maxEntries of a kind are left out: a program may copy data in an endless loop.
// have may be nil; the result is have, or a new manifest.
func Merge(have, part *clusterpb.TaskManifest) *clusterpb.TaskManifest {
	if have == nil || part.GetAttempt() > have.GetAttempt() {
		return proto.CloneOf(part)
	}
	if part.GetAttempt() < have.GetAttempt() {
		return have
	}
	part = proto.CloneOf(part)
	for _, e := range all() { // its maps may be another task's, see Share
		if len(*e.of(part)) > 0 {
			*e.of(have) = maps.Clone(*e.of(have))
			*e.of(part) = fitting(*e.of(have), *e.of(part))
		}
	}
	part.Data = fitting(have.GetData(), part.GetData())
	if len(part.GetGpus()) > 0 {
		have.Gpus = nil
	}
	if len(part.GetAbsent()) > 0 {
		have.Absent = nil
	}
	proto.Merge(have, part)
	return have
}

// fitting returns the entries of a later part that have a place beside those of a manifest.
func fitting[V any](have, part map[string]V) map[string]V {
	room := maxEntries - len(have)
	if len(part) <= room {
		return part
	}
	fits := map[string]V{}
	for _, name := range slices.Sorted(maps.Keys(part)) {
		if _, known := have[name]; known {
			fits[name] = part[name]
		} else if room > 0 {
			fits[name] = part[name]
			room--
		}
	}
	return fits
}

// Share has a task's manifest use the maps of another one where they are equal, to save memory. Only Merge may change
// them afterwards.
func Share(m, other *clusterpb.TaskManifest) {
	for _, e := range all() {
		if mine, others := e.of(m), e.of(other); len(*mine) > 0 && maps.Equal(*mine, *others) {
			*mine = *others
		}
	}
}

// Of returns the manifest of tasks, with their common entries once. It does not change them.
func Of(tasks map[string]*clusterpb.TaskManifest) *clusterpb.RunManifest {
	run := &clusterpb.RunManifest{Common: &clusterpb.TaskManifest{}, Tasks: map[string]*clusterpb.TaskManifest{}}
	members := slices.Collect(maps.Values(tasks))
	if len(members) == 0 {
		return run
	}
	for name, m := range tasks {
		run.Tasks[name] = &clusterpb.TaskManifest{
			Host: m.GetHost(), ExecutorId: m.GetExecutorId(), Attempt: m.GetAttempt(), Cpus: m.GetCpus(), Gpus: m.GetGpus(),
			Python: m.GetPython(), Absent: m.GetAbsent(), Data: m.GetData(),
		}
	}
	for _, e := range all() {
		common := *e.of(run.Common)
		for name, value := range *e.of(members[0]) {
			if allHave(members, func(m *clusterpb.TaskManifest) bool { v, ok := (*e.of(m))[name]; return ok && v == value }) {
				put(&common, name, value)
			}
		}
		*e.of(run.Common) = common
		for task, m := range tasks {
			for name, value := range *e.of(m) {
				if _, ok := common[name]; !ok {
					put(e.of(run.Tasks[task]), name, value)
				}
			}
		}
	}
	moveScalars(run, members)
	return run
}

func put(m *map[string]string, name, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[name] = value
}

// moveScalars moves the values that all tasks have to the common ones.
func moveScalars(run *clusterpb.RunManifest, members []*clusterpb.TaskManifest) {
	fields := run.GetCommon().ProtoReflect().Descriptor().Fields()
	for _, name := range []protoreflect.Name{"python", "cpus", "absent"} {
		field := fields.ByName(name)
		first := members[0].ProtoReflect()
		value := first.Get(field)
		same := func(m *clusterpb.TaskManifest) bool { return m.ProtoReflect().Get(field).Equal(value) }
		if !first.Has(field) || !allHave(members, same) {
			continue
		}
		run.GetCommon().ProtoReflect().Set(field, value)
		for _, t := range run.GetTasks() {
			t.ProtoReflect().Clear(field)
		}
	}
}

func allHave(members []*clusterpb.TaskManifest, has func(*clusterpb.TaskManifest) bool) bool {
	return !slices.ContainsFunc(members, func(m *clusterpb.TaskManifest) bool { return !has(m) })
}

// Expand returns the complete manifest of each task: the opposite of Of.
func Expand(run *clusterpb.RunManifest) map[string]*clusterpb.TaskManifest {
	tasks := make(map[string]*clusterpb.TaskManifest, len(run.GetTasks()))
	for name, own := range run.GetTasks() {
		m := &clusterpb.TaskManifest{}
		proto.Merge(m, run.GetCommon())
		proto.Merge(m, own)
		tasks[name] = m
	}
	return tasks
}
