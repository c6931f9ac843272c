package verbs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// same returns whether a cluster's request equals this one, ignoring how to wait and defaults
// that depend on the name. A SparkSession is the same one if its name is, or if it is the same
// object, which may be in several variables.
func same(have, want *clusterpb.ReserveRequest) bool {
	clean := func(r *clusterpb.ReserveRequest) *clusterpb.ReserveRequest {
		r = proto.CloneOf(r)
		r.TimeoutMillis, r.Owner, r.WorkingDir, r.TensorboardPython = 0, "", "", ""
		delete(r.GetEngine(), engineIdentity)
		if sameObject(have, want) {
			delete(r.GetEngine(), engineSession)
		}
		if want.GetName() == "" {
			r.Name = ""
		}
		if want.GetDir() == "" {
			r.Dir = ""
		}
		return r
	}
	return proto.Equal(clean(have), clean(want))
}

// sameObject returns whether two requests are for the same SparkSession of one process.
func sameObject(have, want *clusterpb.ReserveRequest) bool {
	of := have.GetEngine()[engineIdentity]
	return of != "" && of == want.GetEngine()[engineIdentity]
}

// conduct returns a role without its resources.
func conduct(r *clusterpb.Role) *clusterpb.Role {
	c := proto.CloneOf(r)
	c.Each, c.Count = nil, 0
	return c
}

// differences lists the options in which two requests differ.
func differences(have, want *clusterpb.ReserveRequest) string {
	var names []string
	add := func(differs bool, name string) {
		if differs {
			names = append(names, name)
		}
	}
	add(have.GetBackend() != want.GetBackend(), "backend")
	add(have.GetEngine()[engineSession] != want.GetEngine()[engineSession] && !sameObject(have, want), "session")
	count := func(r *clusterpb.ReserveRequest) string { return cluster.Describe(r.GetRoles()) }
	if count(have) != count(want) {
		names = append(names, fmt.Sprintf("it has %s, asked for are %s", count(have), count(want)))
	} else {
		add(!slices.EqualFunc(have.GetRoles(), want.GetRoles(),
			func(a, b *clusterpb.Role) bool { return proto.Equal(a.GetEach(), b.GetEach()) }), "resources")
		add(!slices.EqualFunc(have.GetRoles(), want.GetRoles(), func(a, b *clusterpb.Role) bool {
			return proto.Equal(conduct(a), conduct(b))
		}), "kind, depends-on, end-within or command of a role")
	}
	add(have.GetFramework() != want.GetFramework(), "framework")
	add(have.GetPython() != want.GetPython(), "python")
	add(!maps.Equal(have.GetEnv(), want.GetEnv()), "env")
	add(have.GetVenv() != want.GetVenv(), "venv")
	add(!slices.Equal(have.GetPyFiles(), want.GetPyFiles()), "py-files")
	add(!slices.Equal(have.GetFiles(), want.GetFiles()), "files")
	add(have.GetZygote() != want.GetZygote(), "no-zygote")
	add(have.GetIdleMillis() != want.GetIdleMillis(), "idle")
	add(have.GetHeartbeatTimeoutMillis() != want.GetHeartbeatTimeoutMillis(), "heartbeat-timeout")
	add(have.GetPack() != want.GetPack(), "pack")
	add(have.GetRetentionMillis() != want.GetRetentionMillis(), "retention")
	add(have.GetFeedMemoryBytes() != want.GetFeedMemoryBytes(), "feed-memory")
	add(want.GetDir() != "" && have.GetDir() != want.GetDir(), "dir")
	if len(names) == 0 {
		return "other options"
	}
	return strings.Join(names, ", ")
}
