package yarn

import (
	"context"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
)

// folderOn is an application's folder on HDFS.
func folderOn(application string) string { return applicationsDir + "/" + application }

// addressURI is where an agent looks when it cannot dial the driver: a file on HDFS. That
// of an unmanaged application is there only if the driver has moved.
func (a *allocation) addressURI(app application) (string, error) {
	store, err := site.NewHDFS(a.site)
	if err != nil {
		return "", err
	}
	defer store.Close()
	return store.URI(folderOn(protocol.ApplicationName(app.id)) + "/" + addressFile)
}

// PublishAddress writes down where the driver is dialled now.
func (a *allocation) PublishAddress(ctx context.Context, address string) error {
	a.moving.Lock() // nothing is written behind forgetMoved
	defer a.moving.Unlock()
	a.mu.Lock()
	id := a.app.id
	if a.released || id == nil {
		a.mu.Unlock()
		return nil // the next one's agents are given it
	}
	a.folder = true // from the first try on: what may be there is removed
	a.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)() // who releases waits for it
	store, err := site.NewHDFS(a.site)
	if err != nil {
		return err
	}
	defer store.Close()
	folder := folderOn(protocol.ApplicationName(id))
	if err := store.MakePrivate(ctx, folder); err != nil {
		return err
	}
	return store.Write(ctx, folder+"/"+addressFile, strings.NewReader(address))
}

// forgetMoved removes what PublishAddress has written of an application that has ended.
func (a *allocation) forgetMoved(ctx context.Context, app application) error {
	a.moving.Lock()
	defer a.moving.Unlock()
	a.mu.Lock()
	written := a.folder && a.attempt == nil && app.id != nil
	a.mu.Unlock()
	if !written {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endedLimit)
	defer cancel()
	store, err := site.NewHDFS(a.site)
	if err != nil {
		return err
	}
	defer store.Close()
	return forget(ctx, store, protocol.ApplicationName(app.id))
}
