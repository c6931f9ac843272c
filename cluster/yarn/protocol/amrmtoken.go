package protocol

import (
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// renewToken takes up the AMRM token of a ResourceManager's answer, for this process's calls
// and for the state of the next one. It returns false where the answer has none: a
// ResourceManager sends another only when it has rolled its master key over
// (yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs).
func (m *Master) renewToken(t *yarnpb.Token) bool {
	if len(t.GetIdentifier()) == 0 {
		return false
	}
	m.state.Token = *credentials.FromProto(t)
	config, token := m.config, m.state.Token
	config.Token = &token
	m.ipc.SetConfig(config)
	return true
}
