package protocol

import (
	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// renewToken stores the AMRM token of a response, for this process's calls and for the state. It returns
// false if the response has none: the ResourceManager sends a new token only after it has rolled over its
// master key (yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs).
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
