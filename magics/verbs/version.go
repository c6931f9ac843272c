package verbs

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
)

// versionVerb is the row of version. The command line has a version of its own, which asks nobody.
var versionVerb = row{
	Verb: command.Verb{
		Name: "version", Summary: "the version of this program, and of the cluster's driver", Magic: true, Now: true,
		Options: []command.Option{clusterOption, nowOption}, Example: "version",
		Long: "The driver goes on with the program that it was started with, until the cluster is released or attached " +
			"again after the driver's death.",
	},
	run: (*invocation).version,
}

// version prints the build of this program and of the cluster's driver, if there is one.
func (inv *invocation) version(ctx context.Context) (result.Value, error) {
	own, _ := debug.ReadBuildInfo() // nil if the build has none
	inv.out.Stdout("this program: " + versionText(inv.session.Options.Version, own) + "\n")
	m, err := inv.session.Pick(ctx, inv.Command)
	var none *result.ClusterError
	if errors.As(err, &none) && !inv.Has("cluster") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := m.Status(ctx)
	if err != nil {
		return nil, m.Explain(err)
	}
	inv.out.Stdout(fmt.Sprintf("driver of cluster %s: %s\n", st.GetName(), versionText(st.GetVersion(), driverBuild(st))))
	return nil, nil
}

// driverBuild returns the build of a driver on this host; nil if it cannot be read. For a
// driver on another host only its version is known.
func driverBuild(st *clusterpb.ClusterStatus) *debug.BuildInfo {
	if host, err := os.Hostname(); err != nil || host != st.GetHost() {
		return nil
	}
	info, err := buildinfo.ReadFile(fmt.Sprintf("/proc/%d/exe", st.GetDriverPid()))
	own, ok := debug.ReadBuildInfo()
	if err != nil || !ok || info.Main.Path != own.Main.Path {
		return nil
	}
	return info
}

// versionText returns e.g. "tfcluster 0.1.0, commit 1b54ba3 with changes".
func versionText(version string, build *debug.BuildInfo) string {
	text, changed := "tfcluster "+version, false
	if build == nil {
		return text
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			text += ", commit " + s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed {
		text += " with changes"
	}
	return text
}
