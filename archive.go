package main

import (
	"context"
	"io"
	"io/fs"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn/containerlogs"
	"github.com/tfcluster/tfcluster/magics/session"
)

// archive is what is left of this user's clusters: on this host, on HDFS, at YARN.
type archive struct{}

var _ session.Archive = archive{}

// Pasts implements session.Archive.
func (archive) Pasts() ([]*state.ClusterRecord, error) { return state.History() }

// LivesAs implements session.Archive.
func (archive) LivesAs(lease string) string { return state.FindByApplication(lease) }

// Folder implements session.Archive.
func (archive) Folder(p *state.ClusterRecord) (results.Folder, error) {
	if !rundir.IsURI(p.Dir) {
		return results.LocalFolder(p.Dir), nil
	}
	e, err := elsewhereOf(p.Dir, p.Engine["conf-dir"], p.Engine["user"])
	if err != nil {
		return nil, err
	}
	return elsewhereFolder{e}, nil
}

// elsewhereFolder is a folder on HDFS.
type elsewhereFolder struct{ driver.Elsewhere }

func (f elsewhereFolder) name(below string) string { return strings.TrimRight(f.Dir+"/"+below, "/") }

// List implements results.Folder.
func (f elsewhereFolder) List(ctx context.Context, name string) ([]fs.FileInfo, error) {
	return f.Ask.List(ctx, f.name(name))
}

// Open implements results.Folder.
func (f elsewhereFolder) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return f.Ask.Open(ctx, f.name(name))
}

// Close implements results.Folder.
func (f elsewhereFolder) Close() error { return f.Elsewhere.Close.Close() }

// EngineLogs implements session.Archive.
func (archive) EngineLogs(ctx context.Context, r *clusterpb.ReserveRequest, places []byte, q cluster.LogQuery, emit func(string, []*clusterpb.Line) error) error {
	return containerlogs.Read(ctx, r, places, q, emit)
}

// Outcomes implements session.Archive.
func (archive) Outcomes(ctx context.Context, r *clusterpb.ReserveRequest, leases []string) map[string]string {
	return containerlogs.Outcomes(ctx, r, leases)
}
