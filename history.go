package main

import (
	"context"
	"io"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver/hdfsdir"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/session"
)

// history gives access to the records and results of this user's clusters, on this host and on HDFS.
type history struct{}

var (
	_ session.HistoryReader = history{}
	_ session.Namer         = history{}
)

// Clusters implements session.HistoryReader.
func (history) Clusters() ([]*state.ClusterRecord, error) { return state.History() }

// InUse implements session.HistoryReader.
func (history) InUse() (func(dir string) bool, error) { return state.DirsInUse() }

// FindByApplication implements session.HistoryReader.
func (history) FindByApplication(lease string) string { return state.FindByApplication(lease) }

// NextNumber implements session.Namer.
func (history) NextNumber(ctx context.Context, backend string) (int, error) {
	return state.NextNumber(ctx, backend)
}

// Folder implements session.HistoryReader.
func (history) Folder(p *state.ClusterRecord) (results.Folder, error) {
	if !rundir.IsURI(p.Dir) {
		return results.LocalFolder(p.Dir), nil
	}
	return hdfsdir.OpenFolder(p.Dir, p.Engine[cluster.EngineConfDir], p.Engine[cluster.EngineUser])
}

// Storage implements session.HistoryReader.
func (history) Storage(p *state.ClusterRecord) (results.Storage, io.Closer, error) {
	if !rundir.IsURI(p.Dir) {
		return results.LocalStorage{}, io.NopCloser(nil), nil
	}
	remote, err := hdfsdir.OpenAs(p.Dir, p.Engine[cluster.EngineConfDir], p.Engine[cluster.EngineUser])
	if err != nil {
		return nil, nil, err
	}
	return remote.Writer, remote.Close, nil
}
