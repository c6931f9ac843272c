package containerlogs

import (
	"context"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Outcomes returns the state of each application that YARN still knows. It returns those that YARN reports
// within a few seconds. r names the YARN cluster.
func (History) Outcomes(ctx context.Context, r *clusterpb.ReserveRequest, applications []string) map[string]string {
	found := map[string]string{}
	s, err := site.Find(r)
	if err != nil {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, site.ReachLimit)
	defer cancel()
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		return found
	}
	defer client.Close()
	for _, name := range applications {
		id, err := protocol.ParseApplication(name)
		if err != nil {
			continue // the application of another engine
		}
		if report, err := client.Report(ctx, id); err == nil {
			found[name] = outcome(report)
		}
	}
	return found
}

// outcome describes an application's state, and why it ended.
func outcome(r *yarnpb.ApplicationReport) string {
	state := strings.ToLower(r.GetYarnApplicationState().String())
	if !protocol.Ended(r.GetYarnApplicationState()) {
		return state
	}
	final := strings.ToLower(strings.TrimPrefix(r.GetFinalApplicationStatus().String(), "APP_"))
	switch {
	case final == "succeeded" || final == "ended" || final == "undefined" || final == state:
	default:
		state += " as " + final
	}
	why := strings.TrimPrefix(MasterError(r.GetDiagnostics()), "Application "+
		protocol.ApplicationName(r.GetApplicationId())+" was killed ")
	why = strings.Replace(why, " with diagnostic message:", ":", 1)
	if why != "" && final != "succeeded" {
		state += ": " + why
	}
	return state
}
